"""All estimates of one run, the recommended one first, and any other that its record allows.

What is done with islands and tempered chains is in modules of their own.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.numerics import log_mean_exp
from pm_evidence.core.records import SOUND, BlockRecord, LogEvidence, Role, RunRecord, Status
from pm_evidence.estimators.bar import bar, histogram, histogram_posterior
from pm_evidence.estimators.errors import Verdict, difference, judged
from pm_evidence.estimators.jarzynski import (
    cumulant,
    cumulant_forward,
    cumulant_reverse,
    jarzynski,
    jarzynski_reverse,
    lower_bound,
    single_run,
    upper_bound,
)
from pm_evidence.estimators.of_islands import integrated, of_given, of_islands
from pm_evidence.estimators.of_tempering import of_tempering, others_of_tempering
from pm_evidence.estimators.verdicts import (
    ROUNDING,
    agreeing,
    contradict,
    known,
    of_facts,
    of_integration,
    of_noise,
    of_survey,
    ranked,
    short_of_target,
    times,
    unfinished,
    unmixed,
    with_check,
)

Floats = NDArray[np.float64]
Estimator = Callable[[], LogEvidence]


def estimates(record: RunRecord) -> list[LogEvidence]:
    """Return all estimates that a run reports, the recommended one first.

    With paths in both directions Bennett's ratio is recommended, because it uses all work and has
    the smallest variance. With islands of SMC alone the rule is that of `recommend`, and with
    forward paths alone the mean weight is recommended.

    The estimates depend on the record alone: facts of the run that change them, such as the noise
    of an estimated likelihood, the limit that ended the run, or the normalising constant of a prior
    with potentials, are in ``record.facts``.
    """
    found = _before_the_constant(record)
    first = found if record.facts.prior_constant is None else found[:1]
    return [_relative(estimate, record) for estimate in first]


def applicable(record: RunRecord) -> Mapping[str, Estimator]:
    """Return every estimator that can be computed from a record, by name."""
    reported = {
        each.estimator: partial(_relative, each, record) for each in _before_the_constant(record)
    }
    others = {
        name: partial(_computed, estimator, record) for name, estimator in _others(record).items()
    }
    return {**reported, **{name: each for name, each in others.items() if name not in reported}}


def _before_the_constant(record: RunRecord) -> list[LogEvidence]:
    """Return the estimates of the path, with the verdicts of the run's facts."""
    facts = record.facts
    if facts.evidences is not None:
        return of_pair(record)
    found = [judged(each, of_facts(each, record)) for each in _of_blocks(record)]
    if facts.short_of is not None:
        found[0] = short_of_target(found[0], facts.short_of)
    if facts.stopped_by is not None and facts.target_mcse is not None:
        found[0] = unfinished(found[0], facts.stopped_by, facts.target_mcse)
    if facts.integration_error is not None:
        found = [of_integration(each, facts.integration_error) for each in found]
    return [of_noise(estimate, facts) for estimate in found]


def _of_blocks(record: RunRecord) -> list[LogEvidence]:
    """Return the estimates of the blocks, which depend on what these are."""
    if record.tempered:
        return of_tempering(record)
    if record.of(Role.GIVEN):
        return of_given(record)
    if record.of_islands:
        return of_islands(record)
    return two_sided(record) if record.of(Role.REVERSE) else one_sided(record)


def _relative(estimate: LogEvidence, record: RunRecord) -> LogEvidence:
    """Return an estimate relative to the prior, where potentials belong to that, if it is known."""
    constant = record.facts.prior_constant
    return known(estimate if constant is None else difference(estimate, constant))


def _computed(estimator: Estimator, record: RunRecord) -> LogEvidence:
    """Return an estimate that the run does not report, with the verdicts of the run's facts."""
    found = judged(estimator(), of_survey(record.facts))
    return _relative(of_noise(found, record.facts), record)


def _others(record: RunRecord) -> dict[str, Estimator]:
    """Return estimators that need no more than the work and the traces of this record."""
    forward, reverse = record.work(Role.FORWARD), record.work(Role.REVERSE)
    found: dict[str, Estimator] = {
        "jarzynski": partial(jarzynski, forward),
        "lower_bound": partial(lower_bound, forward),
    }
    if record.tempered:
        return found | dict(others_of_tempering(record))
    finite = np.isfinite(forward)
    if finite.all():
        found["cumulant_forward"] = partial(cumulant_forward, forward)
    if record.of(Role.REVERSE):
        origin, exact = record.origin, record.facts.reverse_start == "exact"
        found["cumulant_reverse"] = partial(cumulant_reverse, reverse, blocks=origin)
        found["upper_bound"] = partial(upper_bound, reverse, blocks=origin, exact=exact)
        if finite.all():
            found["cumulant"] = partial(cumulant, forward, reverse, reverse_blocks=origin)
        if finite.any():  # there is no work density otherwise
            # its draws have a seed of their own, so that a record gives one number
            density = partial(histogram_posterior, forward, reverse, random_seed=0)
            found["histogram_posterior"] = density
    return found | _of_populations(record)


def _of_populations(record: RunRecord) -> dict[str, Estimator]:
    """Return the estimators of islands, also of those that reverse paths start from."""
    role = Role.FORWARD if record.of_islands else Role.ISLAND
    if not record.of(role):
        return {}
    work = record.work(role)
    stated = np.array([block.relative_variance for block in record.of(role)])
    found: dict[str, Estimator] = {"smc": partial(jarzynski, work, name="smc")}
    if not np.isnan(stated).any():
        found["single_run"] = partial(single_run, work, stated)
    if record.of_islands and (area := integrated(record)):
        found["power_posterior"] = lambda: area[0]
    return found


# With fewer effective paths than this, counted with the paths of the other direction, the paths of
# the largest weights may not have been sampled.
_LEAST_EFFECTIVE_PATHS = 50.0
# An estimate may differ from Bennett's by this number of standard errors of the difference, each of
# which is taken to be at least this share of Bennett's own error.
_EXCLUDED, _LEAST_DIFFERENCE = 3.0, 0.1
_SAME_MODES = (
    "a few forward paths carry nearly all of the weight, and the islands that reverse paths start "
    "from were annealed in the same way: both may lack the same modes. Use more stages, or pass "
    "reverse_start (data, for a restricted Boltzmann machine)."
)
_OTHER_STARTS = (
    "Pass posterior draws for reverse paths to start from, by "
    "method=pe.methods.AIS(reverse_start=idata), or use method=pe.methods.SMC(chain_length=50)"
)


def one_sided(record: RunRecord) -> list[LogEvidence]:
    """Return the estimates of forward paths alone."""
    work = record.work(Role.FORWARD)
    mean, drawn = with_check(jarzynski(work), record)
    return ranked(mean, [lower_bound(work)], drawn)


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
            both = judged(both, [(Status.DOMINATED, _SAME_MODES)])
    both, drawn = with_check(both, record)
    if drawn and there.status != Status.OK:
        both = judged(both, unmixed(facts.chain_correlation, drawn[-1], _OTHER_STARTS))
    if Status.INCONSISTENT in (there.status, back.status):
        both = judged(both, [(Status.INCONSISTENT, there.message)])
    others = [histogram(forward, reverse, reverse_blocks=origin), there, back]
    if np.isfinite(forward).all():
        others += [cumulant(forward, reverse, reverse_blocks=origin), cumulant_forward(forward)]
    others.append(cumulant_reverse(reverse, blocks=origin))
    checked = [judged(other, _beside(both, other)) for other in others]
    exact = facts.reverse_start == "exact"
    bounds = lower_bound(forward), upper_bound(reverse, blocks=origin, exact=exact)
    return ranked(both, [*checked, *bounds], drawn)


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
        yield Status(both.status), both.message
    if not both.status == other.status == Status.OK:
        return
    least = _LEAST_DIFFERENCE * both.mcse
    error = float(np.sqrt(max(other.mcse**2 - both.mcse**2, least**2)))
    distance = abs(both.value - other.value)
    if not distance <= _EXCLUDED * error + ROUNDING:
        yield (
            Status.INCONSISTENT,
            f"the estimate differs from bar by {distance:.3f} nats, {times(distance, error)} "
            "standard errors of the difference: the paths of the largest weights were not sampled. "
            "Use the estimate 'bar'.",
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
        separate = judged(separate, [(Status.INCONSISTENT, both.message)])
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
        both = judged(both, [(Status.OK, "", (Status.INCONSISTENT,))])
    hardly = f"the posteriors of the models hardly overlap, also after annealing. {_ADVICE_PAIR}"
    violated = (
        "the work at the posterior draws of the two models violates the fluctuation theorem: some "
        "of the draws are not from the posterior, or miss a part of it. Leave idata out, or pass "
        f"better draws. {_ADVICE_PAIR}"
    )
    messages = ((Status.NO_OVERLAP, hardly), (Status.INCONSISTENT, violated))
    return judged(both, [(status, message, (status,)) for status, message in messages])


def _of_evidences(both: LogEvidence, separate: LogEvidence, record: RunRecord) -> Iterator[Verdict]:
    """Yield the verdicts of the two separate evidences on Bennett's estimate."""
    assert record.facts.evidences is not None
    for evidence, which in zip(record.facts.evidences, ("first", "second"), strict=True):
        if evidence.status not in SOUND:  # what ended a run does not make its draws worse
            yield (
                Status(evidence.status),
                f"the posterior draws of the {which} model cannot be relied on, because the status "
                f"of its own evidence is {evidence.status}: {evidence.message}",
            )
    if contradict(both, separate):
        error = float(np.hypot(both.mcse, separate.mcse))
        distance = abs(both.value - separate.value)
        yield (
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
