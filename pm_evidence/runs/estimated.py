"""Runs with an estimated likelihood: the number of particles, and the noise of the estimate."""

from dataclasses import replace
from functools import partial
from typing import Any

from pm_evidence.core.contracts import Kernel
from pm_evidence.core.progress import Report
from pm_evidence.core.records import LogEvidence, RunRecord
from pm_evidence.estimators.of_run import estimates
from pm_evidence.runs.defaults import annealing_setup
from pm_evidence.runs.result import posterior_draws
from pm_evidence.runs.rounds import Run
from pm_evidence.samplers.n_particles import choose_particles, measure, tau_of
from pm_evidence.samplers.sampler import Sampler
from pm_evidence.targets.estimated.target import EstimatedTarget

__all__ = ["kernel_of_prior", "with_particles", "with_precision"]


def with_particles(
    run: Run, target: Any, kernel: str | Kernel, chosen: Sampler, report: Report
) -> tuple[Any, str | Kernel]:
    """Return the target and the kernel that are used for annealing.

    For an estimated likelihood, numbers of particles are chosen, and the kernel is that of the
    sampler unless ``kernel`` is a kernel object. Any other target is returned unchanged.
    """
    if not isinstance(target, EstimatedTarget):
        return target, kernel
    moves = annealing_setup(target, kernel).kernel
    if isinstance(kernel, str):
        moves = chosen.likelihood_moves
    if chosen.n_seeds is not None:
        n_particles, _ = zip(*target.settings(), strict=True)
        target = target.with_settings([(n, chosen.n_seeds) for n in n_particles])

    def settings() -> tuple[tuple[int, int], ...]:
        return choose_particles(target, moves, run.seed, report).settings()

    return target.with_settings(run.remembered("particles", settings)), moves


def kernel_of_prior(target: Any, kernel: str | Kernel) -> str | Kernel:
    """Return the kernel of the run that normalises a prior, where no likelihood is estimated."""
    return "auto" if isinstance(target, EstimatedTarget) else kernel


def with_precision(
    run: Run, target: Any, record: RunRecord, evidence: list[LogEvidence]
) -> tuple[RunRecord, list[LogEvidence]]:
    """Return record and estimates with the measured noise of an estimated likelihood."""
    drawn = posterior_draws(run, record) if isinstance(target, EstimatedTarget) else None
    if drawn is None:
        return record, evidence
    x = drawn.draws.reshape(-1, drawn.draws.shape[-1])[:, : target.n_dim]
    noise = partial(measure, target, x, run.seed, tau_of(record.beta))
    precision = run.remembered("noise", noise)
    _, n_seeds = zip(*target.settings(), strict=True)
    info = {**record.info, **precision.facts(), "n_seeds": list(n_seeds)}
    record = replace(record, info=info)
    return record, estimates(record)
