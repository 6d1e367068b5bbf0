"""The evidence under another prior, and numbers of particles that would have been best."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.numerics import ess_share, log_mean_exp
from pm_evidence.core.records import Role, RunRecord
from pm_evidence.estimators.errors import is_heavy, pareto_k, spread
from pm_evidence.schedules import Allocation, optimal_allocation

Floats = NDArray[np.float64]


# If none of n independent draws lies in a region, its mass is below this over n with 95 %.
_NONE_OF_N = 3.0
_LARGEST_LOG = 700.0  # of a number that float64 holds


@dataclass(frozen=True)
class Reweighted:
    """The log Bayes factor of a model with another prior, against the model that was sampled."""

    log_bf: float  # in nats
    mcse: float  # its standard error, and the degrees of freedom of that
    dof: float
    pareto_k: float  # shape of the tail of the prior ratios; NaN if they have none
    is_heavy: bool  # whether that tail is too heavy for the number of draws
    ess: float  # effective number of weighted draws
    # Upper bound, at a level of 95 %, of the share of the other evidence that belongs to regions in
    # which the posterior that was sampled has no draw. Infinite where its prior has no support.
    unseen: float


def reweighted(
    log_ratio: Floats, origin: NDArray[np.int64], largest_log_ratio: float
) -> Reweighted:
    """Return the Bayes factor of two priors, from posterior draws under one of them.

    The Bayes factor is the posterior mean of the ratio of prior densities, an importance sampling
    estimate with the same likelihood in numerator and denominator. Its error is that of a mean over
    clusters of draws of the same origin. The bound of what may be unseen: a region without any of
    ``n`` independent draws has less than ``3 / n`` of the posterior with 95 %, so that it has at
    most ``3 / n`` times the largest ratio, over the mean ratio, of the other posterior. ``n`` is
    the number of independent draws whose mean ratio has the same error.
    """
    n = len(log_ratio)
    log_bf = float(log_mean_exp(log_ratio))
    if not np.isfinite(log_bf):  # no draw lies where the other prior has support
        nan = float("nan")
        return Reweighted(log_bf, nan, 1.0, nan, True, 0.0, np.inf)
    weight = np.exp(log_ratio - log_bf)
    error = spread(((weight - 1.0) / n, origin))
    k = pareto_k(log_ratio)
    variance = float(np.mean((weight - 1.0) ** 2))
    n_independent = min(variance / error.mcse**2, n) if error.mcse > 0.0 else float(n)
    excess = min(max(largest_log_ratio, float(log_ratio.max())) - log_bf, _LARGEST_LOG)
    unseen = _NONE_OF_N * float(np.exp(excess)) / max(n_independent, 1.0)
    return Reweighted(
        log_bf=log_bf,
        mcse=error.mcse,
        dof=error.dof,
        pareto_k=k,
        is_heavy=is_heavy(k, n),
        ess=n * float(ess_share(log_ratio)),
        unseen=float("inf") if largest_log_ratio == np.inf else unseen,
    )


def allocation_of(record: RunRecord) -> tuple[Allocation, Allocation] | None:
    """Return the particles that a run spent on each stage, and the best use of as many."""
    blocks = record.of(Role.FORWARD)
    particles = np.array([block.trace.particles for block in blocks])
    ess = np.array([block.trace.ess for block in blocks])
    if not particles.size or not (np.isfinite(particles) & (ess > 0.0)).all():
        return None
    # rounding may put a share of equal weights above 1
    variance = np.maximum(1.0 / ess - 1.0, 0.0).mean(axis=0)
    spent = particles.mean(axis=0)
    found = Allocation(spent, float((variance / spent).sum()))
    return found, optimal_allocation(variance, float(spent.sum()))
