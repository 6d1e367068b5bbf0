"""All estimates of one run, the recommended one first."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pm_evidence.core.checks import check_kind
from pm_evidence.core.numerics import log_mean_exp
from pm_evidence.core.records import BlockRecord, LogEvidence, RunRecord
from pm_evidence.estimators.bar import bar
from pm_evidence.estimators.bridge import bridge, checked_works, fit_share
from pm_evidence.estimators.cumulant import (
    cumulant,
    cumulant_forward,
    cumulant_reverse,
    lower_bound,
    upper_bound,
)
from pm_evidence.estimators.histogram import histogram
from pm_evidence.estimators.jarzynski import jarzynski, jarzynski_reverse, single_run
from pm_evidence.estimators.power_posterior import power_posterior

__all__ = ["estimates", "missing", "recommend"]

Floats = NDArray[np.float64]

# Where this share of the fitted density's draws counts as draws from the target, the bridge has
# the smaller error; further down the path from the prior has.
_GOOD_FIT = 0.05
_DISAGREEMENT = 5.0
_MARKOV = 3.0
_ROUNDING = 1e-9  # nats
# Fewer effective paths than this, as the other direction tells, may hide the heaviest.
_LEAST_EFFECTIVE_PATHS = 50.0
# Standard errors by which an estimate may differ from Bennett's, and the least such error in its.
_EXCLUDED, _LEAST_DIFFERENCE = 3.0, 0.1


def estimates(record: RunRecord) -> list[LogEvidence]:
    """Return all estimates of a run, the recommended one first.

    Parameters
    ----------
    record : RunRecord
        A run of any sampler.

    Notes
    -----
    With both directions Bennett's ratio is recommended, which sees all work and has the smallest
    variance; with islands of SMC alone, see `recommend`; with forward paths alone, the mean weight.
    """
    if record.of_islands:
        found = _of_islands(record.forward)
        return _of_estimated(record, found) if record.method == "aisel" else found
    work = record.work_forward
    if not record.reverse:
        return [jarzynski(work), lower_bound(work)]
    return _two_sided(record)


def recommend(
    smc: LogEvidence, bridge: LogEvidence, works: Sequence[tuple[ArrayLike, ArrayLike]]
) -> list[LogEvidence]:
    """Return both estimates, the recommended one first.

    Parameters
    ----------
    smc : LogEvidence
        From annealing the prior.
    bridge : LogEvidence
        From a bridge between a fitted density and the target.
    works : sequence of (forward, reverse)
        The work that ``bridge`` was made from.

    Notes
    -----
    The choice looks at the fit alone, never at the errors: taking the smaller of two estimated
    errors would make it too small. Estimates that differ by more than five of their combined
    errors both get the status ``"inconsistent"``.
    """
    remedy = "the moves do not mix. Use more draws, longer chains or another kernel."
    for name, estimate in (("smc", smc), ("bridge", bridge)):
        check_kind(name, estimate, LogEvidence, "pass an estimate, for example bar(...)")
    checked_works(works)
    smc, bridge = _agreeing(smc, bridge, "annealing from the prior", "the bridge", remedy)
    fits = not np.isnan(bridge.mcse) and fit_share(works) >= _GOOD_FIT
    return [bridge, smc] if fits else [smc, bridge]


def missing(estimate: LogEvidence, work: Floats) -> LogEvidence:
    """Return an estimate, with a status if a peak alone holds more evidence than it says.

    Parameters
    ----------
    estimate : LogEvidence
        Of the whole.
    work : ndarray, shape (n,)
        Work of independent draws by importance sampling at a peak of the target, which sees a part
        of Z at most.

    Notes
    -----
    The mean weight is unbiased for what it sees, so by Markov's inequality those of both halves of
    the draws exceed Z by more than ``exp(3)`` in less than 0.3 % of runs, however heavy their tail
    is. One half alone would follow a single draw.
    """
    if estimate.status != "ok":
        return estimate
    peak = jarzynski(work, name="peak")
    least = min(log_mean_exp(-half) for half in np.array_split(work, 2))
    error = float(np.hypot(estimate.mcse, peak.mcse))
    known = peak.status == "ok" and peak.value - estimate.value > _DISAGREEMENT * error
    if not (known or least > estimate.upper + _MARKOV):
        return estimate
    message = (
        f"a peak of the posterior holds a log evidence of about {least:.2f} by itself, which "
        f"the run missed: there is a phase transition on the way from the prior. Start reverse "
        "runs there (pe.AIS(reverse_start=...) with draws of pm.sample), or use a prior nearer to "
        "the data."
    )
    return replace(estimate, status="missed_mass", message=message)


def _of_islands(blocks: Sequence[BlockRecord]) -> list[LogEvidence]:
    work = np.concatenate([block.work for block in blocks])
    smc = jarzynski(work, name="smc")
    alone = _within(single_run(work, [block.relative_variance for block in blocks]))
    works = [block.bridge for block in blocks if block.bridge is not None]
    if len(works) < len(blocks):
        return [smc, alone]
    return [*recommend(smc, bridge(works), works), alone]


def _of_estimated(record: RunRecord, found: list[LogEvidence]) -> list[LogEvidence]:
    """Return the estimates of islands whose likelihood is estimated, and two more.

    Importance sampling from the fitted density (IS squared) needs no draws from the posterior: it
    is unbiased where the populations that a bridge ends in are too small for their noise. So it is
    recommended where the fit is good and no few weights dominate.
    """
    works = [block.bridge for block in record.forward if block.bridge is not None]
    integrated = _integrated(record)
    if len(works) < len(record.forward):
        return [*found, *integrated]
    smc = next(estimate for estimate in found if estimate.estimator == "smc")
    importance = jarzynski(np.concatenate([forward for forward, _ in works]), name="importance")
    remedy = "the moves do not mix. Use more draws, more particles or longer chains."
    pair = _agreeing(smc, importance, "annealing from the prior", "importance sampling", remedy)
    importance = pair[1]
    fits = importance.status in ("ok", "inconsistent") and fit_share(works) >= _GOOD_FIT
    first, last = ([importance], []) if fits else ([], [importance])
    return [*first, *found, *last, *integrated]


def _integrated(record: RunRecord) -> list[LogEvidence]:
    """Return the power-posterior estimate, where every population went to the end."""
    rows = [
        (np.append(block.trace.energy_mean, mean), np.append(block.trace.energy_var, var))
        for block in record.forward
        for mean, var in [block.end]
    ]
    energy, variance = np.stack(rows, axis=1)
    return [power_posterior(record.beta, energy, variance)] if np.isfinite(energy).all() else []


def _within(alone: LogEvidence) -> LogEvidence:
    """Return the estimate with the error that islands state of themselves, marked as such."""
    if alone.status != "ok":
        return alone
    message = "its error counts what varies within islands only; that of smc counts all."
    return replace(alone, status="within_islands", message=message)


def _two_sided(record: RunRecord) -> list[LogEvidence]:
    forward, reverse, origin = record.work_forward, record.work_reverse, record.origin
    both = bar(forward, reverse, reverse_blocks=origin)
    met = forward[np.isfinite(forward)]  # reverse paths never take those of weight zero
    there = _seen_from_behind(jarzynski(forward), -forward, -reverse, both)
    back = _seen_from_behind(jarzynski_reverse(reverse, blocks=origin), reverse, met, both)
    remedy = "the moves do not mix. Use more stages, better starts or another kernel."
    there, back = _agreeing(there, back, "forward annealing", "reverse annealing", remedy)
    bridged = []
    if record.islands:
        # small islands are there to start from: their own weights are too uneven to report
        found = {estimate.estimator: estimate for estimate in _of_islands(record.islands)}
        both, _ = _agreeing(both, found["smc"], "annealing both ways", "its islands", remedy)
        bridged = [found["bridge"]] if "bridge" in found else []
    if "inconsistent" in (there.status, back.status) and both.status == "ok":
        both = replace(both, status="inconsistent", message=there.message)
    others = [histogram(forward, reverse, reverse_blocks=origin), there, back]
    if np.isfinite(forward).all():
        others += [
            cumulant(forward, reverse, reverse_blocks=origin),
            cumulant_forward(forward),
        ]
    others.append(cumulant_reverse(reverse, blocks=origin))
    checked = [_checked_by(both, other) for other in others]
    exact = record.info.get("reverse_start") == "exact"
    bounds = lower_bound(forward), upper_bound(reverse, blocks=origin, exact=exact)
    return [both, *checked, *bounds, *bridged]


def _seen_from_behind(
    estimate: LogEvidence, log_weight: Floats, log_other: Floats, both: LogEvidence
) -> LogEvidence:
    """Return an exponential average with a verdict from paths of the other direction.

    Their mean weight over this direction's is the inverse of the effective share of paths: a run
    that never met its heaviest paths cannot know it, but the other direction starts from them.
    """
    if estimate.status != "ok" or not np.isfinite(both.value):
        return estimate
    value = log_mean_exp(log_weight)
    effective = len(log_weight) * float(np.exp(value - log_mean_exp(log_other)))
    if effective >= min(_LEAST_EFFECTIVE_PATHS, 0.5 * len(log_weight)):
        return estimate
    message = (
        f"paths of the other direction show that only about {effective:.1f} of "
        f"{len(log_weight)} paths carry the weight: the error is not to be trusted. Use bar, or "
        "more stages."
    )
    return replace(estimate, status="heavy_tail", message=message)


def _agreeing(
    one: LogEvidence, other: LogEvidence, name: str, other_name: str, remedy: str
) -> tuple[LogEvidence, LogEvidence]:
    """Return two independent estimates, with their status changed where they exclude each other."""
    error = float(np.hypot(one.mcse, other.mcse))
    distance = abs(one.value - other.value)
    if not (one.status == other.status == "ok" and distance > _DISAGREEMENT * error + _ROUNDING):
        return one, other
    message = (
        f"{name} gives {one.value:.3f} and {other_name} {other.value:.3f}, {distance / error:.1f} "
        f"of their combined errors apart: {remedy}"
    )
    return tuple(replace(e, status="inconsistent", message=message) for e in (one, other))  # type: ignore[return-value]


def _checked_by(both: LogEvidence, other: LogEvidence) -> LogEvidence:
    """Return an estimate from the same work, with a status where Bennett's excludes it.

    Hausman's (1978) test: what an efficient estimate and another one differ by has the difference
    of their variances.
    """
    if other.status != "ok":
        return other
    if both.status != "ok":
        return replace(other, status=both.status, message=both.message)
    least = _LEAST_DIFFERENCE * both.mcse
    error = float(np.sqrt(max(other.mcse**2 - both.mcse**2, least**2)))
    distance = abs(both.value - other.value)
    if distance <= _EXCLUDED * error:
        return other
    message = (
        f"it differs from bar by {distance:.3f} nats, {distance / error:.1f} standard errors of "
        "the difference: it rests on paths that were not met. Use bar."
    )
    return replace(other, status="inconsistent", message=message)
