"""The evidence of a target by the usual method, for callers that need very many of them."""

from typing import Any

from pm_evidence.core.records import LogEvidence
from pm_evidence.execution.display import Display
from pm_evidence.execution.rows import dividing_rows
from pm_evidence.runs.defaults import effort_of
from pm_evidence.runs.limits import Limits
from pm_evidence.runs.reparameterise import anneal_moved
from pm_evidence.runs.rounds import Run
from pm_evidence.runs.routes import anneal_by_routes, has_routes
from pm_evidence.samplers.smc import SMC

__all__ = ["evidence_of"]

_MOST_ROUNDS = 10  # in draws of the first


def evidence_of(target: Any, target_mcse: float, cores: int, seed: int) -> LogEvidence:
    """Return the recommended estimate of a target, as `sample_evidence` would make it.

    Parameters
    ----------
    target : PyMCTarget
        What is annealed; it is not compiled again.
    target_mcse : float
        Error in nats that is aimed at.
    cores : int
        Threads.
    seed : int
        Seed of all streams.

    Raises
    ------
    NumericalError
        If a log density is NaN, or the data have no support under the prior.
    """
    sampler, effort = SMC(), effort_of(target)
    size = sampler.size(int(sampler.default_draws * effort))
    most = _MOST_ROUNDS * sampler.first_round(size)
    limits = Limits(target_mcse=target_mcse, max_draws=most)
    run = Run(sampler, size, cores, None, seed, name=sampler.name, limits=limits)
    with dividing_rows(cores, None), Display(enabled=False) as display:
        if has_routes(target):
            return anneal_by_routes(run, target, "auto", display, effort)[2][0]
        return anneal_moved(run, target, "auto", display, None, "auto")[2][0]
