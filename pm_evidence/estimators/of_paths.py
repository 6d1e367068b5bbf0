"""All estimates of a run of independent paths, of one model or between two."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_kind
from pm_evidence.core.numerics import log_mean_exp
from pm_evidence.core.records import SOUND, BlockRecord, LogEvidence, Role, RunRecord, Status
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
    GOOD,
    ROUNDING,
    Verdict,
    agreeing,
    contradict,
    judged,
    of_uncovered,
    short_of,
    short_of_target,
    times,
    uncovered,
    unfinished,
    unmixed,
)

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
    "method=pe.methods.SMC(chain_length=50)"
)


def one_sided(record: RunRecord) -> list[LogEvidence]:
    """Return the estimates of forward paths alone."""
    work = record.work(Role.FORWARD)
    mean, drawn = with_check(jarzynski(work), record)
    return _ranked(mean, [lower_bound(work)], drawn)


def two_sided(record: RunRecord) -> list[LogEvidence]:
    """Return the estimates of forward and reverse paths."""
    forward, reverse = record.work(Role.FORWARD), record.work(Role.REVERSE)
    origin, facts = record.origin, record.facts
    both = bar(forward, reverse, reverse_blocks=origin)
    met = forward[np.isfinite(forward)]  # reverse paths cannot have weight zero
    there, back = jarzynski(forward), jarzynski_reverse(reverse, blocks=origin)
    there = judged(there, _by_reversal(there, -forward, -reverse, both))
    back = judged(back, _by_reversal(back, reverse, met, both))
    remedy = "the kernel does not mix. Use more stages, better starts or another kernel."
    there, back = agreeing(there, back, "forward annealing", "reverse annealing", remedy)
    if record.of(Role.ISLAND):
        # the islands are small, since they only provide starts: their own estimate is too noisy to
        # be reported
        smc = jarzynski(record.work(Role.ISLAND), name="smc")
        both, _ = agreeing(both, smc, "annealing in both directions", "smc", remedy)
        if facts.reverse_start == "annealed" and there.status == Status.DOMINATED:
            both = judged(both, [(GOOD, Status.DOMINATED, _SAME_MODES)])
    both, drawn = with_check(both, record)
    if drawn and there.status != Status.OK:
        both = judged(both, unmixed(facts.chain_correlation, drawn[-1], _OTHER_STARTS))
    if Status.INCONSISTENT in (there.status, back.status):
        both = judged(both, [(GOOD, Status.INCONSISTENT, there.message)])
    others = [histogram(forward, reverse, reverse_blocks=origin), there, back]
    if np.isfinite(forward).all():
        others += [cumulant(forward, reverse, reverse_blocks=origin), cumulant_forward(forward)]
    others.append(cumulant_reverse(reverse, blocks=origin))
    checked = [judged(other, _beside(both, other)) for other in others]
    exact = facts.reverse_start == "exact"
    bounds = lower_bound(forward), upper_bound(reverse, blocks=origin, exact=exact)
    return _ranked(both, [*checked, *bounds], drawn)


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
        estimate = judged(estimate, short_of(estimate, drawn))
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


def _ranked(
    first: LogEvidence, others: list[LogEvidence], drawn: list[LogEvidence]
) -> list[LogEvidence]:
    """Return all estimates, the recommended one first."""
    instead = first_of(first, drawn)
    if instead is None:
        return [first, *others, *drawn]
    return [instead, first, *others, *drawn[:-1]]


def _by_reversal(
    estimate: LogEvidence, log_weight: Floats, log_other: Floats, both: LogEvidence
) -> Iterator[Verdict]:
    """Yield the verdict on an exponential average whose tail the other direction shows.

    The mean weight of the other direction's paths over that of this direction's is the inverse of
    the effective share of paths. If the paths of the largest weights were not sampled, the weights
    of one direction cannot show it; the paths of the other direction can, because they are typical
    of the end where those weights are large.
    """
    if estimate.status != Status.OK or not np.isfinite(both.value):
        return
    n = len(log_weight)
    effective = n * float(np.exp(log_mean_exp(log_weight) - log_mean_exp(log_other)))
    if effective < min(_LEAST_EFFECTIVE_PATHS, 0.5 * n):
        yield (
            GOOD,
            Status.HEAVY_TAIL,
            "the paths of the other direction show that the effective number of paths is only "
            f"about {effective:.1f} of {n}: the error cannot be trusted. Use the estimate 'bar', "
            "or more stages.",
        )


def _beside(both: LogEvidence, other: LogEvidence) -> Iterator[Verdict]:
    """Yield the verdict on an estimate from the same work that contradicts Bennett's.

    This is the test of Hausman (1978): the variance of the difference between an efficient estimate
    and another one is the difference of their variances.
    """
    if both.status != Status.OK:
        yield GOOD, Status(both.status), both.message
    if not both.status == other.status == Status.OK:
        return
    least = _LEAST_DIFFERENCE * both.mcse
    error = float(np.sqrt(max(other.mcse**2 - both.mcse**2, least**2)))
    distance = abs(both.value - other.value)
    if not distance <= _EXCLUDED * error + ROUNDING:
        yield (
            GOOD,
            Status.INCONSISTENT,
            f"the estimate differs from bar by {distance:.3f} nats, {times(distance, error)} "
            "standard errors of the difference: the paths of the largest weights were not sampled. "
            "Use the estimate 'bar'.",
        )


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
    separate = two_evidences(record)
    both = _confirmed(both, [*one_way, separate])
    both = judged(both, _of_evidences(both, separate, record))
    if both.status == Status.INCONSISTENT:
        separate = judged(separate, [(GOOD, Status.INCONSISTENT, both.message)])
    better = both.status == Status.OK and both.mcse <= separate.mcse
    found = [both, separate] if better or separate.status != Status.OK else [separate, both]
    facts = record.facts
    if facts.short_of is not None:
        found[0] = short_of_target(found[0], facts.short_of)
    wanted = 0.0 if facts.target_mcse is None else facts.target_mcse
    if facts.stopped_by is not None and not found[0].mcse <= wanted:
        found[0] = unfinished(found[0], facts.stopped_by, wanted)
    others = []
    if np.isfinite(forward).any():  # there is no work density otherwise
        density = histogram(forward, reverse, forward_blocks=there, reverse_blocks=back)
        others = [replace(density, status=both.status, message=both.message)]
    return [*found, *others, *one_way]


def _confirmed(both: LogEvidence, others: Sequence[LogEvidence]) -> LogEvidence:
    """Return Bennett's estimate; if both directions contradict each other, with another message.

    If models are nearly the same, the work varies mainly because the map between their posteriors
    is fitted to draws. Each half of the draws then sees the deviations of the other half, which are
    the same in both directions, and the test counts them several times. They do not matter if each
    direction alone, and the two separate evidences, are reliable and agree with the estimate.
    """
    if all(each.status == Status.OK and not contradict(both, each) for each in others):
        both = judged(both, [((Status.INCONSISTENT,), Status.OK, "")])
    hardly = f"the posteriors of the models hardly overlap, also after annealing. {_ADVICE_PAIR}"
    violated = (
        "the work at the posterior draws of the two models violates the fluctuation theorem: some "
        "of the draws are not from the posterior, or miss a part of it. Leave idata out, or pass "
        f"better draws. {_ADVICE_PAIR}"
    )
    messages = ((Status.NO_OVERLAP, hardly), (Status.INCONSISTENT, violated))
    return judged(both, [((status,), status, message) for status, message in messages])


def _of_evidences(both: LogEvidence, separate: LogEvidence, record: RunRecord) -> Iterator[Verdict]:
    """Yield the verdicts of the two separate evidences on Bennett's estimate."""
    assert record.facts.evidences is not None
    for evidence, which in zip(record.facts.evidences, ("first", "second"), strict=True):
        if evidence.status not in SOUND:  # what ended a run does not make its draws worse
            yield (
                GOOD,
                Status(evidence.status),
                f"the posterior draws of the {which} model cannot be relied on, because the status "
                f"of its own evidence is {evidence.status}: {evidence.message}",
            )
    if contradict(both, separate):
        error = float(np.hypot(both.mcse, separate.mcse))
        distance = abs(both.value - separate.value)
        yield (
            GOOD,
            Status.INCONSISTENT,
            f"annealing between the models gives {both.value:.3f}, and two separate coarse "
            f"evidences differ by {separate.value:.3f}, which is {times(distance, error)} combined "
            "standard errors away: the draws of one posterior miss a part of it. "
            f"{_ADVICE_PAIR}",
        )


def two_evidences(record: RunRecord) -> LogEvidence:
    """Return the difference of the two coarse log evidences, which are independent."""
    assert record.facts.evidences is not None
    return replace(difference(*record.facts.evidences), estimator="two_evidences")


def _origin(blocks: Sequence[BlockRecord]) -> NDArray[np.int64]:
    """Return the group of posterior draws that each path started from, shape ``(n_paths,)``."""
    return np.concatenate([np.asarray(block.origin) for block in blocks])
