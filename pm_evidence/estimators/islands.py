"""All estimates of a run of independent islands."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.numerics import log_mean_exp
from pm_evidence.core.records import BlockRecord, LogEvidence, RunRecord
from pm_evidence.estimators.bridge import bridge
from pm_evidence.estimators.fit_checks import MOMENTS_EXCLUDED, moment_distance, uncovered
from pm_evidence.estimators.jarzynski import importance, jarzynski, single_run
from pm_evidence.estimators.power_posterior import power_posterior
from pm_evidence.estimators.recommend import BRIDGE_FIRST, IMPORTANCE_FIRST, recommend
from pm_evidence.estimators.verdicts import agreeing, apart, of_uncovered, short_of

__all__ = ["distance_from_fit", "integrated", "of_islands"]

Floats = NDArray[np.float64]

# Variance of the islands' log evidence over the one that they state of themselves.
_UNLIKE = 4.5
# With fewer effective draws from the fitted density than this share, large weights are so rare that
# importance sampling has a skewed error, low and small at once. A bridge bounds the weights; but it
# also rests on the shares in which islands hold modes, which vary more than its error tells.
_GOOD_SHARE = 0.7


def of_islands(blocks: Sequence[BlockRecord], distance: float | None = None) -> list[LogEvidence]:
    """Return the estimates of independent islands.

    Parameters
    ----------
    blocks : sequence of BlockRecord
        The islands.
    distance : float, optional
        What `distance_from_fit` returned for them.
    """
    work = np.concatenate([block.work for block in blocks])
    stated = np.array([block.relative_variance for block in blocks])
    smc = jarzynski(work, name="smc")
    alone = _within(single_run(work, stated))
    works = [block.bridge for block in blocks if block.bridge is not None]
    unlike = _unlike(work, stated)
    if len(works) < len(blocks):
        return [_of_unlike(smc, unlike), alone]
    drawn = importance(np.concatenate([forward for forward, _ in works]))
    bridged = bridge(works)
    drawn = of_uncovered(drawn, uncovered(works))
    smc, bridged, drawn = _compared(smc, bridged, drawn)
    differ = distance is not None and distance > MOMENTS_EXCLUDED
    if drawn.status == "ok" and differ:
        smc, bridged = (_of_other_shares(estimate) for estimate in (smc, bridged))
    smc, bridged = _of_unlike(smc, unlike), _of_unlike(bridged, unlike)
    if smc.status == "missed_mass" and bridged.status == "ok":
        message = f"it rests on the islands of smc, and of these is known: {smc.message}"
        bridged = replace(bridged, status=smc.status, message=message)
    share = _effective_share(works, bridged.value) if distance is not None else 1.0
    order = BRIDGE_FIRST if share < _GOOD_SHARE else IMPORTANCE_FIRST
    found = recommend([smc, bridged, drawn], order)
    if order is BRIDGE_FIRST and found[0] == bridged:
        message = (
            f"bridge is recommended because only {share:.0%} of the draws from the fitted density "
            "are effective."
        )
        found[0] = replace(bridged, message=message)
    return [*found, alone]


def distance_from_fit(blocks: Sequence[BlockRecord]) -> float | None:
    """Return how far the moments of the islands' draws are from those of importance sampling.

    Parameters
    ----------
    blocks : sequence of BlockRecord
        The islands, with their own draws and those from the fitted density.

    Returns
    -------
    float or None
        In standard errors, see ``fit_checks.moment_distance``; None where draws are missing.
    """
    draws = [np.asarray(block.draws) for block in blocks if block.draws is not None]
    fit_draws = [block.fit_draws for block in blocks if block.fit_draws is not None]
    if len(draws) < 2 or len(fit_draws) < len(blocks):
        return None
    log_weight = -np.concatenate([block.bridge[0] for block in blocks if block.bridge is not None])
    return moment_distance(draws, np.concatenate(fit_draws), log_weight)


def _effective_share(works: Sequence[tuple[Floats, Floats]], log_evidence: float) -> float:
    """Return the effective share of draws from a fitted density, as draws of islands tell it.

    It is the inverse of the mean weight of draws from the posterior. Draws from the fitted density
    tell it less well: where large weights are rare, these are few among them, or none.
    """
    log_weight = -np.concatenate([reverse for _, reverse in works])
    return float(np.exp(min(log_evidence - log_mean_exp(log_weight), 0.0)))


def _compared(
    smc: LogEvidence, bridged: LogEvidence, drawn: LogEvidence
) -> tuple[LogEvidence, LogEvidence, LogEvidence]:
    """Return the estimates of islands, with their status changed where they exclude each other.

    Both the mean over islands and importance sampling are unbiased for Z and never negative: by
    Markov's inequality they seldom exceed it by much, but may well fall short of it, where all
    islands missed a mode. So the larger of the two is believed.
    """
    route, other = "annealing from the prior", "importance sampling"
    if drawn.status != "ok":
        remedy = "the fitted density has a heavy tail, or the run missed a mode. Use more draws."
        if drawn.status != "no_support" and apart(smc, drawn) and smc.value < drawn.value:
            smc, bridged = (_doubted(estimate, drawn, remedy) for estimate in (smc, bridged))
        remedy = "the moves do not mix. Use more draws, longer chains or another kernel."
        return *agreeing(smc, bridged, route, "the bridge", remedy), drawn
    smc, bridged = short_of(smc, drawn), short_of(bridged, drawn)
    remedy = "the islands hold modes in other shares than the fitted density. Use importance."
    bridged, _ = agreeing(bridged, drawn, "the bridge", other, remedy)
    remedy = "the fitted density leaves out what the islands met. Use more draws."
    _, bridged = agreeing(smc, bridged, route, "the bridge", remedy)
    smc, drawn = agreeing(smc, drawn, route, other, remedy)
    return smc, bridged, drawn


def _doubted(estimate: LogEvidence, drawn: LogEvidence, remedy: str) -> LogEvidence:
    """Return an estimate with a status where importance sampling, though not ok, finds more."""
    if estimate.status != "ok":
        return estimate
    message = (
        f"importance sampling from the fitted density gives {drawn.value:.3f}, far more than "
        f"{estimate.value:.3f} of {estimate.estimator}: {remedy}"
    )
    return replace(estimate, status="inconsistent", message=message)


def _unlike(work: Floats, stated: Floats) -> float:
    """Return how many times more the islands vary than they state; 0 where that is no sign."""
    if len(work) < 3 or not np.isfinite(work).all():
        return 0.0
    expected = float(np.mean(stated))
    ratio = float(work.var(ddof=1)) / expected if expected > 0.0 else 0.0
    return ratio if ratio > _UNLIKE else 0.0


def _of_unlike(estimate: LogEvidence, ratio: float) -> LogEvidence:
    if not ratio or estimate.status != "ok":
        return estimate
    message = (
        f"the islands' evidences vary {ratio:.0f} times more than each island states of itself: "
        "they hold different parts of the posterior, because the moves do not mix. Use more draws, "
        "longer chains (pe.SMC(chain_length=50)), or another parametrisation of the model."
    )
    return replace(estimate, status="islands_differ", message=message)


def _of_other_shares(estimate: LogEvidence) -> LogEvidence:
    if estimate.status != "ok":
        return estimate
    message = (
        "importance sampling excludes a mean or a variance of the islands' draws: they hold modes "
        "in wrong shares. Use importance."
    )
    return replace(estimate, status="inconsistent", message=message)


def _within(alone: LogEvidence) -> LogEvidence:
    """Return the estimate with the error that islands state of themselves, marked as such."""
    if alone.status != "ok":
        return alone
    message = "its error counts what varies within islands only; that of smc counts all."
    return replace(alone, status="within_islands", message=message)


def integrated(record: RunRecord) -> list[LogEvidence]:
    """Return the power-posterior estimate, where every population went to the end."""
    rows = [
        (np.append(block.trace.energy_mean, mean), np.append(block.trace.energy_var, var))
        for block in record.forward
        for mean, var in [block.end]
    ]
    energy, variance = np.stack(rows, axis=1)
    return [power_posterior(record.beta, energy, variance)] if np.isfinite(energy).all() else []
