"""All estimates of a run of independent paths, of one model or between two."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_kind
from pm_evidence.core.numerics import log_mean_exp
from pm_evidence.core.records import BlockRecord, LogEvidence, Role, RunRecord, Status
from pm_evidence.estimators.bar import bar, bridge, histogram
from pm_evidence.estimators.cumulant import (
    cumulant,
    cumulant_forward,
    cumulant_reverse,
    lower_bound,
    upper_bound,
)
from pm_evidence.estimators.errors import Spread, combined, interval
from pm_evidence.estimators.jarzynski import importance, jarzynski, jarzynski_reverse
from pm_evidence.estimators.verdicts import (
    ROUNDING,
    agreeing,
    of_uncovered,
    of_unmixed,
    short_of,
    short_of_target,
    times,
    uncovered,
)
from pm_evidence.estimators.verdicts import apart as contradict

Floats = NDArray[np.float64]


# With fewer effective paths than this, counted with the paths of the other direction, the paths of
# the largest weights may not have been sampled.
_LEAST_EFFECTIVE_PATHS = 50.0
# An estimate may differ from Bennett's by this number of standard errors of the difference, each of
# which is taken to be at least this share of Bennett's own error.
_EXCLUDED, _LEAST_DIFFERENCE = 3.0, 0.1
# If the estimate from paths has one of these statuses, importance sampling is recommended instead.
# A contradiction between paths is not among them, because the user has to know of it.
_REPLACED = (
    Status.MISSED_MASS,
    Status.NO_OVERLAP,
    Status.DOMINATED,
    Status.HEAVY_TAIL,
    Status.HIGH_VARIANCE,
    Status.NO_ERROR,
)


_SAME_MODES = (
    "a few forward paths carry nearly all of the weight, and the islands that reverse paths start "
    "from were annealed in the same way: both may lack the same modes. Use more stages, or pass "
    "reverse_start (data, for a restricted Boltzmann machine)."
)
_OTHER_STARTS = (
    "Pass posterior draws for reverse paths to start from (reverse_start=idata), use "
    "method=pe.SMC(chain_length=50)"
)


def one_sided(record: RunRecord) -> list[LogEvidence]:
    """Return the estimates of forward paths alone."""
    work = record.work(Role.FORWARD)
    mean, drawn = with_check(jarzynski(work), record)
    instead = first_of(mean, drawn)
    if instead is not None:
        return [instead, mean, lower_bound(work), *drawn[:-1]]
    return [mean, lower_bound(work), *drawn]


def two_sided(record: RunRecord) -> list[LogEvidence]:
    """Return the estimates of forward and reverse paths."""
    forward, reverse = record.work(Role.FORWARD), record.work(Role.REVERSE)
    origin = record.origin
    both = bar(forward, reverse, reverse_blocks=origin)
    met = forward[np.isfinite(forward)]  # reverse paths cannot have weight zero
    there = _checked_by_reversal(jarzynski(forward), -forward, -reverse, both)
    back = _checked_by_reversal(jarzynski_reverse(reverse, blocks=origin), reverse, met, both)
    remedy = "the kernel does not mix. Use more stages, better starts or another kernel."
    there, back = agreeing(there, back, "forward annealing", "reverse annealing", remedy)
    if record.of(Role.ISLAND):
        # the islands are small, since they only provide starts: their own estimate is too noisy to
        # be reported
        smc = jarzynski(record.work(Role.ISLAND), name="smc")
        both, _ = agreeing(both, smc, "annealing in both directions", "smc", remedy)
        annealed = record.info.get("reverse_start") == "annealed"
        if annealed and both.status == Status.OK and there.status == Status.DOMINATED:
            both = replace(both, status=Status.DOMINATED, message=_SAME_MODES)
    both, drawn = with_check(both, record)
    if drawn and Status.OK not in (drawn[-1].status, there.status):
        both = of_unmixed(both, record.info.get("chain_correlation"), drawn[-1], _OTHER_STARTS)
    if Status.INCONSISTENT in (there.status, back.status) and both.status == Status.OK:
        both = replace(both, status=Status.INCONSISTENT, message=there.message)
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
    instead = first_of(both, drawn)
    if instead is not None:
        return [instead, both, *checked, *bounds, *drawn[:-1]]
    return [both, *checked, *bounds, *drawn]


def with_check(estimate: LogEvidence, record: RunRecord) -> tuple[LogEvidence, list[LogEvidence]]:
    """Return an estimate, checked by importance sampling, and the estimates that check it.

    These are made from a density fitted to posterior draws, and from the islands that reverse paths
    started from; there are none without a fitted density.
    """
    works = [block.bridge for block in record.sources if block.bridge is not None]
    if not works:
        return estimate, []
    drawn = importance(np.concatenate([forward for forward, _ in works]))
    if record.of(Role.ISLAND) or record.tempered:
        drawn = of_uncovered(drawn, uncovered(works))
    if drawn.status == Status.OK:
        remedy = "the fitted density misses a region that the paths found. Use more draws."
        estimate = short_of(estimate, drawn)
        estimate, drawn = agreeing(estimate, drawn, "annealing", "importance sampling", remedy)
    others = [bridge(works)] if record.of(Role.ISLAND) else []
    return estimate, [*others, drawn]


def first_of(estimate: LogEvidence, drawn: list[LogEvidence]) -> LogEvidence | None:
    """Return the importance sampling estimate if it is recommended in place of one from paths."""
    if not drawn or drawn[-1].status != Status.OK or estimate.status not in _REPLACED:
        return None
    message = (
        f"importance is recommended because the status of {estimate.estimator} is "
        f"{estimate.status}."
    )
    return replace(drawn[-1], message=message)


def _checked_by_reversal(
    estimate: LogEvidence, log_weight: Floats, log_other: Floats, both: LogEvidence
) -> LogEvidence:
    """Return an exponential average, as ``"heavy_tail"`` if the other direction shows that it is.

    The mean weight of the other direction's paths over that of this direction's is the inverse of
    the effective share of paths. If the paths of the largest weights were not sampled, the weights
    of one direction cannot show it; the paths of the other direction can, because they are typical
    of the end where those weights are large.
    """
    if estimate.status != Status.OK or not np.isfinite(both.value):
        return estimate
    value = log_mean_exp(log_weight)
    effective = len(log_weight) * float(np.exp(value - log_mean_exp(log_other)))
    if effective >= min(_LEAST_EFFECTIVE_PATHS, 0.5 * len(log_weight)):
        return estimate
    message = (
        "the paths of the other direction show that the effective number of paths is only about "
        f"{effective:.1f} of {len(log_weight)}: the error cannot be trusted. Use the estimate "
        "'bar', or more stages."
    )
    return replace(estimate, status=Status.HEAVY_TAIL, message=message)


def _checked_by(both: LogEvidence, other: LogEvidence) -> LogEvidence:
    """Return an estimate from the same work, as ``"inconsistent"`` if it contradicts Bennett's.

    This is the test of Hausman (1978): the variance of the difference between an efficient estimate
    and another one is the difference of their variances.
    """
    if other.status != Status.OK:
        return other
    if both.status != Status.OK:
        return replace(other, status=both.status, message=both.message)
    least = _LEAST_DIFFERENCE * both.mcse
    error = float(np.sqrt(max(other.mcse**2 - both.mcse**2, least**2)))
    distance = abs(both.value - other.value)
    if distance <= _EXCLUDED * error + ROUNDING:
        return other
    message = (
        f"the estimate differs from bar by {distance:.3f} nats, {times(distance, error)} standard "
        "errors of the difference: the paths of the largest weights were not sampled. Use the "
        "estimate 'bar'."
    )
    return replace(other, status=Status.INCONSISTENT, message=message)


def difference(minuend: LogEvidence, subtrahend: LogEvidence) -> LogEvidence:
    """Return ``minuend - subtrahend`` in nats; errors add in quadrature.

    Parameters
    ----------
    minuend, subtrahend : LogEvidence
        Independent estimates.

    Returns
    -------
    LogEvidence
        Its status and message are those of the first of the two whose status is not ``"ok"``. Its
        interval is a Student interval whose degrees of freedom
        are those of Welch and Satterthwaite.

    Raises
    ------
    TypeError
        If one of them is no LogEvidence.
    """
    for name, estimate in (("minuend", minuend), ("subtrahend", subtrahend)):
        check_kind(name, estimate, LogEvidence, "pass an estimate, for example pe.log_evidence(dt)")
    value = minuend.value - subtrahend.value
    found = combined(*(Spread(each.mcse, each.dof) for each in (minuend, subtrahend)))
    worst = minuend if minuend.status != Status.OK else subtrahend
    return LogEvidence(
        value,
        found.mcse,
        minuend.estimator,
        worst.status,
        *interval(value, found),
        worst.message,
        found.dof,
    )


# What ended a run does not make its posterior draws worse.
_SOUND = (Status.OK, Status.MAX_TIME, Status.MAX_DRAWS)
_ADVICE_PAIR = "Use pe.compare_models, which estimates both evidences in full."


def of_pair(record: RunRecord) -> list[LogEvidence]:
    """Return the estimates of a log Bayes factor, the recommended one first.

    Of Bennett's ratio of the work and the difference of the two evidences, the one with the smaller
    error is recommended. Where the posteriors hardly overlap, this is the difference.
    """
    forward, reverse = record.work(Role.FORWARD), record.work(Role.REVERSE)
    there, back = (_origin(record.of(role)) for role in (Role.FORWARD, Role.REVERSE))
    both = bar(forward, reverse, forward_blocks=there, reverse_blocks=back)
    one_way = jarzynski(forward, blocks=there), jarzynski_reverse(reverse, blocks=back)
    apart = two_evidences(record)
    both = _checked(_confirmed(both, [*one_way, apart]), record)
    if both.status == Status.INCONSISTENT and apart.status == Status.OK:
        apart = replace(apart, status=both.status, message=both.message)
    found = [both, apart] if _is_better(both, apart) else [apart, both]
    if "short_of" in record.info:
        found[0] = short_of_target(found[0], record.info["short_of"])
    if "stopped_by" in record.info:
        found[0] = _unfinished(found[0], record.info["target_mcse"])
    others = [histogram(forward, reverse, forward_blocks=there, reverse_blocks=back)]
    if not np.isfinite(forward).any():  # there is no work density then
        others = []
    others = [replace(each, status=both.status, message=both.message) for each in others]
    return [*found, *others, *one_way]


def _confirmed(both: LogEvidence, others: Sequence[LogEvidence]) -> LogEvidence:
    """Return Bennett's estimate; if both directions contradict each other, with another message.

    If models are nearly the same, the work varies mainly because the map between their posteriors
    is fitted to draws. Each half of the draws then sees the deviations of the other half, which are
    the same in both directions, and the test counts them several times. They do not matter if each
    direction alone, and the two separate evidences, are reliable and agree with the estimate.
    """
    if both.status == Status.NO_OVERLAP:
        message = (
            f"the posteriors of the models hardly overlap, also after annealing. {_ADVICE_PAIR}"
        )
        return replace(both, message=message)
    if both.status != Status.INCONSISTENT:
        return both
    if all(each.status == Status.OK and not contradict(both, each) for each in others):
        return replace(both, status=Status.OK, message="")
    message = (
        "the work at the posterior draws of the two models violates the fluctuation theorem: some "
        "of the draws are not from the posterior, or miss a part of it. Leave idata out, or pass "
        f"better draws. {_ADVICE_PAIR}"
    )
    return replace(both, message=message)


def _unfinished(found: LogEvidence, target_mcse: float) -> LogEvidence:
    """Return the recommended estimate, unless its error is larger than asked for."""
    if found.status != Status.OK or found.mcse <= target_mcse:
        return found
    message = (
        f"the error is {found.mcse:.3g} nats and not {target_mcse:.3g}, because it is limited by "
        "the posterior draws of the models. Pass more of them in idata, or accept the error."
    )
    return replace(found, status=Status.MAX_DRAWS, message=message)


def _is_better(both: LogEvidence, apart: LogEvidence) -> bool:
    """Return whether paths between the models are recommended before two evidences."""
    if apart.status != Status.OK:
        return True
    return both.status == Status.OK and both.mcse <= apart.mcse


def two_evidences(record: RunRecord) -> LogEvidence:
    """Return the difference of the two coarse log evidences, which are independent."""
    first, second = (LogEvidence(**fields) for fields in record.info["evidences"])
    return replace(difference(first, second), estimator="two_evidences")


def _origin(blocks: Sequence[BlockRecord]) -> NDArray[np.int64]:
    """Return the group of posterior draws that each path started from, shape ``(n_paths,)``."""
    return np.concatenate([np.asarray(block.origin) for block in blocks])


def _checked(both: LogEvidence, record: RunRecord) -> LogEvidence:
    """Return Bennett's estimate, unless its status is ok although something contradicts it."""
    if both.status != Status.OK:
        return both
    evidences = [LogEvidence(**fields) for fields in record.info["evidences"]]
    for evidence, which in zip(evidences, ("first", "second"), strict=True):
        if evidence.status not in _SOUND:
            message = (
                f"the posterior draws of the {which} model cannot be relied on, because the status "
                f"of its own evidence is {evidence.status}: {evidence.message}"
            )
            return replace(both, status=evidence.status, message=message)
    apart = two_evidences(record)
    error = float(np.hypot(both.mcse, apart.mcse))
    if not contradict(both, apart):
        return both
    distance = abs(both.value - apart.value)
    message = (
        f"annealing between the models gives {both.value:.3f}, and two separate coarse evidences "
        f"differ by {apart.value:.3f}, which is {times(distance, error)} combined standard errors "
        f"away: the draws of one posterior miss a part of it. {_ADVICE_PAIR}"
    )
    return replace(both, status=Status.INCONSISTENT, message=message)
