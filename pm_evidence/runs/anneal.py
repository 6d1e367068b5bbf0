"""The run of one target: its setup, the rounds, and the facts that every record holds."""

from dataclasses import replace
from typing import Any

import numpy as np

from pm_evidence.core.contracts import Kernel, Path, Target
from pm_evidence.core.exceptions import warn
from pm_evidence.core.records import BlockRecord, LogEvidence, Role, RunRecord, StageTrace
from pm_evidence.core.statuses import Status, with_pointer
from pm_evidence.estimators.of_run import estimates
from pm_evidence.execution.display import Display
from pm_evidence.runs.defaults import along, annealing_setup
from pm_evidence.runs.estimated import with_precision
from pm_evidence.runs.few_values import with_few_values
from pm_evidence.runs.rounds import Run
from pm_evidence.samplers.reverse_starts import ReverseStarts

__all__ = ["anneal", "warn_of"]

# A warning is issued if the density is NaN at a larger share of the proposals.
_NAN_SHARE = 1e-3


def anneal(
    run: Run,
    target: Target,
    kernel: str | Kernel,
    display: Display,
    starts: ReverseStarts | None = None,
    path: str | Path = "auto",
) -> tuple[RunRecord, list[LogEvidence]]:
    """Anneal a target; return the record and its estimates, the recommended one first."""
    if target.n_dim == 0:
        record = _nothing_to_sample(target)
        return record, estimates(record)
    with display.compiling():  # the gradient, if the kernel needs it
        setup = along(target, annealing_setup(target, kernel), path)
    record, evidence = run.anneal(setup, display, starts)
    record, evidence = with_precision(run, target, record, evidence)
    record, evidence = with_few_values(run, target, record, evidence)
    return replace(record, info={**record.info, "log_prior_mass": target.log_prior_mass}), evidence


def _nothing_to_sample(target: Any) -> RunRecord:
    """Return the record of a model without free variables: its likelihood is its evidence."""
    log_likelihood = target.draw(1, np.random.SeedSequence(0)).log_density[:, 1]
    nothing = StageTrace(-log_likelihood, np.zeros(1), np.ones(1), np.full(1, np.nan), np.ones(1))
    blocks = [BlockRecord(i, -log_likelihood, nothing, relative_variance=0.0) for i in range(2)]
    return RunRecord(
        "smc", np.array([0.0, 1.0]), {Role.FORWARD: blocks}, {}, {"log_prior_mass": 0.0}
    )


def warn_of(evidence: LogEvidence, record: RunRecord) -> None:
    """Warn if an estimate should not be relied on, or if the density was often NaN."""
    if evidence.status != Status.OK:
        message = with_pointer(evidence.status, evidence.message)
        warn(f"status {evidence.status!r}: {message}")
    n_nan, n = record.info.get("n_nan", 0), record.info.get("n_evaluations", 0)
    if n_nan > _NAN_SHARE * n:
        warn(
            f"the log density was NaN at {n_nan} of {n} proposals; they were rejected, so the "
            "evidence only covers the region where the density is defined. Look for an overflow, "
            "or for a covariance that is not positive definite."
        )
