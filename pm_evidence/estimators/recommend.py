"""All estimates of one run, the recommended one first."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_choice, check_kind, described
from pm_evidence.core.numerics import log_mean_exp
from pm_evidence.core.records import BlockRecord, LogEvidence, RunRecord
from pm_evidence.estimators.bar import bar
from pm_evidence.estimators.bridge import bridge
from pm_evidence.estimators.cumulant import (
    cumulant,
    cumulant_forward,
    cumulant_reverse,
    lower_bound,
    upper_bound,
)
from pm_evidence.estimators.fit_checks import moments_differ, uncovered
from pm_evidence.estimators.histogram import histogram
from pm_evidence.estimators.jarzynski import (
    importance,
    jarzynski,
    jarzynski_reverse,
    single_run,
)
from pm_evidence.estimators.power_posterior import power_posterior

__all__ = ["estimates", "recommend"]

Floats = NDArray[np.float64]

# An estimate whose error is this many times smaller than that of one before it is taken instead.
_GROSS = 2.0
_DISAGREEMENT = 5.0
_ROUNDING = 1e-9  # nats
# Variance of the islands' log evidence over the one that they state of themselves.
_UNLIKE = 4.5
# Fewer effective paths than this, as the other direction tells, may hide the heaviest.
_LEAST_EFFECTIVE_PATHS = 50.0
# Standard errors by which an estimate may differ from Bennett's, and the least such error in its.
_EXCLUDED, _LEAST_DIFFERENCE = 3.0, 0.1
_BROKEN = ("unbounded", "missed_mass")
# Where paths fail in these ways, importance sampling from a fitted density may still be right.
# Where they contradict each other, that is to be known first.
_REPLACED = ("missed_mass", "no_overlap", "dominated", "heavy_tail", "high_variance", "no_error")
# The order in which the estimates of islands are considered. Weights that are too rare to be met
# make importance sampling low and its error small at once; a bridge bounds them. But a bridge also
# rests on the islands' draws, so these must be comparable with those from the fitted density.
_ORDER = ("bridge", "importance", "smc")
_UNCHECKED = ("importance", "bridge", "smc")


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
        if record.method == "aisel":
            found += _integrated(record)
    elif not record.reverse:
        found = _one_sided(record)
    else:
        found = _two_sided(record)
    return [_unbounded(e) for e in found] if record.info.get("unbounded") else found


def recommend(found: Sequence[LogEvidence], order: Sequence[str] = _ORDER) -> list[LogEvidence]:
    """Return independent estimates of one evidence, the recommended one first.

    Parameters
    ----------
    found : sequence of LogEvidence
        Estimates named ``"importance"``, ``"bridge"`` and ``"smc"``.
    order : sequence of str
        These names, in the order in which the estimates are considered.

    Notes
    -----
    The first estimate with the status ``"ok"`` is recommended, unless another one has an error
    that is half as large. Then its message says why it was chosen. An order that is fixed
    beforehand, but for gross differences, does not choose estimates for an error that happens to
    be too small.
    """
    _check_found(found)
    if sorted(order) != sorted(_ORDER):
        raise ValueError(
            f"order must hold {', '.join(map(repr, _ORDER))}, each once, got {described(order)}."
        )
    ranked = sorted(found, key=lambda estimate: list(order).index(estimate.estimator))
    usable = [estimate for estimate in ranked if estimate.status == "ok"]
    if not usable:
        known = [estimate for estimate in ranked if np.isfinite(estimate.mcse)] or ranked
        return [known[0], *(estimate for estimate in ranked if estimate is not known[0])]
    first = usable[0]
    best = min(usable, key=lambda estimate: estimate.mcse)
    if best.mcse * _GROSS < first.mcse:
        message = (
            f"{best.estimator} is recommended because its error is {best.mcse:.2g} nats, against "
            f"{first.mcse:.2g} of {first.estimator}."
        )
        first = replace(best, message=message)
    elif first.estimator != ranked[0].estimator:
        message = (
            f"{first.estimator} is recommended because the status of {ranked[0].estimator} is "
            f"{ranked[0].status}."
        )
        first = replace(first, message=message)
    return [first, *(e for e in ranked if e.estimator != first.estimator)]


def _check_found(found: Any) -> None:
    if not isinstance(found, list | tuple) or not found:
        raise ValueError(
            f"found must be a list of estimates, got {described(found)}; pass for example "
            "[bridge(...), jarzynski(..., name='smc')]."
        )
    for i, estimate in enumerate(found):
        check_kind(f"found[{i}]", estimate, LogEvidence, "pass an estimate, for example bar(...)")
        check_choice(f"found[{i}].estimator", estimate.estimator, _ORDER)


def _of_islands(blocks: Sequence[BlockRecord]) -> list[LogEvidence]:
    """Return the estimates of independent islands."""
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
    drawn = _of_uncovered(drawn, uncovered(works))
    smc, bridged, drawn = _compared(smc, bridged, drawn)
    differ = _hold_other_shares(blocks)
    if drawn.status == "ok" and differ:
        smc, bridged = (_of_other_shares(estimate) for estimate in (smc, bridged))
    smc, bridged = _of_unlike(smc, unlike), _of_unlike(bridged, unlike)
    if smc.status == "missed_mass" and bridged.status == "ok":
        message = f"it rests on the islands of smc, and of these is known: {smc.message}"
        bridged = replace(bridged, status=smc.status, message=message)
    order = _ORDER if differ is not None else _UNCHECKED
    return [*recommend([smc, bridged, drawn], order), alone]


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
        if drawn.status != "no_support" and _apart(smc, drawn) and smc.value < drawn.value:
            smc, bridged = (_doubted(estimate, drawn, remedy) for estimate in (smc, bridged))
        remedy = "the moves do not mix. Use more draws, longer chains or another kernel."
        return *_agreeing(smc, bridged, route, "the bridge", remedy), drawn
    smc, bridged = _short_of(smc, drawn), _short_of(bridged, drawn)
    remedy = "the islands hold modes in other shares than the fitted density. Use importance."
    bridged, _ = _agreeing(bridged, drawn, "the bridge", other, remedy)
    remedy = "the fitted density leaves out what the islands met. Use more draws."
    _, bridged = _agreeing(smc, bridged, route, "the bridge", remedy)
    smc, drawn = _agreeing(smc, drawn, route, other, remedy)
    return smc, bridged, drawn


def _short_of(estimate: LogEvidence, drawn: LogEvidence) -> LogEvidence:
    """Return an estimate with a status where importance sampling finds more."""
    if estimate.status in _BROKEN or not _apart(estimate, drawn):
        return estimate
    if estimate.value > drawn.value:
        return estimate
    message = (
        f"importance sampling from the fitted density gives {drawn.value:.3f}, more than "
        f"{estimate.value:.3f} of {estimate.estimator}: annealing missed a part of the posterior. "
        "Use importance."
    )
    return replace(estimate, status="missed_mass", message=message)


def _doubted(estimate: LogEvidence, drawn: LogEvidence, remedy: str) -> LogEvidence:
    """Return an estimate with a status where importance sampling, though not ok, finds more."""
    if estimate.status != "ok":
        return estimate
    message = (
        f"importance sampling from the fitted density gives {drawn.value:.3f}, far more than "
        f"{estimate.value:.3f} of {estimate.estimator}: {remedy}"
    )
    return replace(estimate, status="inconsistent", message=message)


def _apart(one: LogEvidence, other: LogEvidence) -> bool:
    """Whether two estimates exclude each other; never where one has no error."""
    distance = abs(one.value - other.value)
    return bool(distance > _DISAGREEMENT * float(np.hypot(one.mcse, other.mcse)) + _ROUNDING)


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


def _hold_other_shares(blocks: Sequence[BlockRecord]) -> bool | None:
    """Whether importance sampling excludes what islands say of the posterior; None if unknown."""
    draws = [np.asarray(block.draws) for block in blocks if block.draws is not None]
    fit_draws = [block.fit_draws for block in blocks if block.fit_draws is not None]
    if len(draws) < 2 or len(fit_draws) < len(blocks):
        return None
    log_weight = -np.concatenate([block.bridge[0] for block in blocks if block.bridge is not None])
    return moments_differ(draws, np.concatenate(fit_draws), log_weight)


def _of_other_shares(estimate: LogEvidence) -> LogEvidence:
    if estimate.status != "ok":
        return estimate
    message = (
        "importance sampling excludes a mean or a variance of the islands' draws: they hold modes "
        "in wrong shares. Use importance."
    )
    return replace(estimate, status="inconsistent", message=message)


def _of_uncovered(drawn: LogEvidence, share: float) -> LogEvidence:
    """Return importance sampling with a status where it misses many of its errors."""
    if drawn.status != "ok" or share <= _DISAGREEMENT * drawn.mcse:
        return drawn
    message = (
        f"{share:.1%} of the islands' draws lie where the fitted density is so low that none of "
        "its own draws came. Use bridge, or more draws."
    )
    return replace(drawn, status="missed_mass", message=message)


def _unbounded(estimate: LogEvidence) -> LogEvidence:
    message = (
        "the posterior grows along a ridge, and its mass with it, as far as it was followed: the "
        "evidence is infinite, or concentrated where no draw came. Look for a scale that may go to "
        "zero where data coincide; give it a prior that excludes zero."
    )
    return replace(estimate, status="unbounded", message=message)


def _one_sided(record: RunRecord) -> list[LogEvidence]:
    """Return the estimates of forward paths alone."""
    work = record.work_forward
    mean, drawn = _with_check(jarzynski(work), record)
    instead = _first_of(mean, drawn)
    if instead is not None:
        return [instead, mean, lower_bound(work), *drawn[:-1]]
    return [mean, lower_bound(work), *drawn]


def _with_check(estimate: LogEvidence, record: RunRecord) -> tuple[LogEvidence, list[LogEvidence]]:
    """Return an estimate, judged by importance sampling from a fitted density where there is one.

    And the estimates of the islands that reverse paths started from, or of the fitted density.
    """
    blocks = record.islands or record.forward
    works = [block.bridge for block in blocks if block.bridge is not None]
    if not works:
        return estimate, []
    drawn = importance(np.concatenate([forward for forward, _ in works]))
    if record.islands:
        drawn = _of_uncovered(drawn, uncovered(works))
    if drawn.status == "ok":
        remedy = "the fitted density leaves out what the paths met. Use more draws."
        estimate = _short_of(estimate, drawn)
        estimate, drawn = _agreeing(estimate, drawn, "annealing", "importance sampling", remedy)
    others = [bridge(works)] if record.islands else []
    return estimate, [*others, drawn]


def _first_of(estimate: LogEvidence, drawn: list[LogEvidence]) -> LogEvidence | None:
    """Return importance sampling if it is to be recommended instead of an estimate of paths."""
    if not drawn or drawn[-1].status != "ok" or estimate.status not in _REPLACED:
        return None
    message = (
        f"importance is recommended because the status of {estimate.estimator} is "
        f"{estimate.status}."
    )
    return replace(drawn[-1], message=message)


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
    if record.islands:
        # small islands are there to start from: their own weights are too uneven to report
        smc = jarzynski(np.concatenate([block.work for block in record.islands]), name="smc")
        both, _ = _agreeing(both, smc, "annealing both ways", "its islands", remedy)
    both, drawn = _with_check(both, record)
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
    instead = _first_of(both, drawn)
    if instead is not None:
        return [instead, both, *checked, *bounds, *drawn[:-1]]
    return [both, *checked, *bounds, *drawn]


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
        f"{name} gives {one.value:.3f} and {other_name} {other.value:.3f}, "
        f"{_times(distance, error)} of their combined errors apart: {remedy}"
    )
    return tuple(replace(e, status="inconsistent", message=message) for e in (one, other))  # type: ignore[return-value]


def _times(distance: float, error: float) -> str:
    """Return how many errors a distance is, as text; an error may be exactly 0."""
    return f"{distance / error:.1f}" if error > 0.0 else "more than any number"


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
    if distance <= _EXCLUDED * error + _ROUNDING:
        return other
    message = (
        f"it differs from bar by {distance:.3f} nats, {_times(distance, error)} standard errors "
        "of the difference: it rests on paths that were not met. Use bar."
    )
    return replace(other, status="inconsistent", message=message)
