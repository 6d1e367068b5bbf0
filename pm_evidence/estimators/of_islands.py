"""All estimates of a run of independent islands, or from posterior draws that the user gave."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.numerics import log_mean_exp
from pm_evidence.core.records import BlockRecord, Facts, LogEvidence, Role, RunRecord, Status
from pm_evidence.estimators.bar import bridge
from pm_evidence.estimators.errors import Verdict, judged, pareto_k, widened, with_error
from pm_evidence.estimators.jarzynski import importance, jarzynski, single_run
from pm_evidence.estimators.ti import power_posterior
from pm_evidence.estimators.verdicts import (
    DISAGREEMENT,
    MOMENTS_EXCLUDED,
    chain_correlation,
    contradict,
    contradiction,
    moment_distance,
    of_uncovered,
    recommend,
    short_of,
    uncovered,
    unmixed,
    unseen_share,
)

Floats = NDArray[np.float64]


# The islands differ if the variance of their log evidences is more than this number of times the
# variance that is estimated from the draws within each island.
_UNLIKE = 4.5
# The error of stratified draws is taken from the spread of at least so many islands, and is at
# least this share of the error of independent draws. It is an upper confidence bound at this level.
_ENOUGH_ISLANDS, _LEAST_SHARE, _BOUND = 8, 0.5, 0.8
# The error of small islands is at least the change that so many further draws of weight zero would
# make.
_LEAST_UNSEEN = 2.0


def of_islands(record: RunRecord) -> list[LogEvidence]:
    """Return the estimates of independent islands, the recommended one first."""
    blocks, facts = record.of(Role.FORWARD), record.facts
    work = np.concatenate([block.work for block in blocks])
    stated = np.array([block.relative_variance for block in blocks])
    smc = jarzynski(work, name="smc")
    # a sampler of a user's own may not estimate the variance within its islands
    alone = [] if np.isnan(stated).any() else [single_run(work, stated)]
    if facts.estimated_likelihood:
        alone += integrated(record)
    works = [block.bridge for block in blocks if block.bridge is not None]
    if len(works) < len(blocks):
        return [judged(smc, _unlike(work, stated)), *alone]
    bridged = bridge(works)
    drawn = of_uncovered(_stratified([forward for forward, _ in works]), uncovered(works))
    if facts.small_islands:
        share = unseen_share(works)
        bridged, drawn = widened(_not_below(bridged, drawn, works), share), widened(drawn, share)
        smc = of_small_islands(blocks, sum(len(reverse) for _, reverse in works))
    smc, bridged, drawn = _compared(smc, bridged, drawn)
    verdicts = [*_of_moments(facts, bridged, drawn), *unmixed(facts.chain_correlation, drawn)]
    verdicts += _unlike(work, stated)
    smc, bridged = judged(smc, verdicts), judged(bridged, verdicts)
    if smc.status == Status.MISSED_MASS:
        message = f"the bridge uses the islands of smc, whose status is {smc.status}: {smc.message}"
        bridged = judged(bridged, [(Status.MISSED_MASS, message)])
    # the estimates of small islands may agree by chance
    first = facts.small_islands and bridged.status == Status.OK
    ranked = [bridged, drawn, smc] if first else recommend([smc, bridged, drawn])
    if facts.reference not in (None, "prior") and bridged.status != Status.OK:
        # weights from the prior are bounded by the likelihood; from another reference they may have
        # a heavy tail, which the spread of a few islands does not show
        message = (
            "annealing from a reference may have weights with a heavy tail, and the bridge, which "
            f"would confirm it, has the status {bridged.status}: {bridged.message}"
        )
        verdict = Status(bridged.status), message
        ranked = [judged(e, [verdict]) if e.estimator == "smc" else e for e in ranked]
    return [*ranked, *alone]


def of_small_islands(blocks: Sequence[BlockRecord], n_draws: float = np.inf) -> LogEvidence:
    """Return the mean over small islands, with an error that is not small by chance.

    If a small share of islands has much less evidence than the rest, a run of few islands may
    contain none of them: its mean is then too large, and its spread far too small. The error is
    therefore at least what the variances within the islands imply, and at least ``2 / n_draws``,
    the relative change that two further draws of weight zero would make.
    """
    work = np.concatenate([block.work for block in blocks])
    stated = np.array([block.relative_variance for block in blocks])
    smc = jarzynski(work, name="smc")
    within = 0.0 if np.isnan(stated).any() else single_run(work, stated).mcse
    least = max(within, _LEAST_UNSEEN / n_draws)
    return with_error(smc, least, np.inf) if smc.mcse < least else smc


def _stratified(works: Sequence[Floats]) -> LogEvidence:
    """Return the importance sampling estimate, with the error of draws that are stratified.

    Draws from a mixture are, within each island: each component has its share of them. What differs
    between the components is then not a part of the error, which the spread of the islands shows.
    Islands may agree by chance: the error is an upper 80 % confidence bound from their spread, and
    at least half of that of independent draws.
    """
    # SciPy is imported where it is used: it takes as long as the rest of the package
    from scipy.special import chdtri

    every, n = np.concatenate(works), len(works)
    drawn, independent = importance(every), jarzynski(every).mcse
    if drawn.status != Status.OK or n < _ENOUGH_ISLANDS:
        return drawn
    share = np.array([len(work) for work in works]) / every.size
    excess = np.exp([log_mean_exp(-work) - drawn.value for work in works]) - 1.0
    variance = ((share * excess) ** 2).sum() * n / (n - 1)
    spread = np.sqrt(variance * (n - 1) / chdtri(n - 1, _BOUND))
    if spread >= independent:
        return drawn
    beyond = drawn.mcse**2 - independent**2  # what is expected beyond the largest weight
    error = np.sqrt(max(spread, _LEAST_SHARE * independent) ** 2 + max(beyond, 0.0))
    return with_error(drawn, float(error), drawn.dof)


def _not_below(
    bridged: LogEvidence, drawn: LogEvidence, works: Sequence[tuple[Floats, Floats]]
) -> LogEvidence:
    """Return a bridge whose error is not smaller than what importance sampling allows.

    The draws of the islands are worth as much, at best, as further draws from the fitted density.
    The spread of a few islands may be smaller by chance.
    """
    if drawn.status != Status.OK:
        return bridged
    n_forward, n_reverse = (sum(len(side) for side in sides) for sides in zip(*works, strict=True))
    least = drawn.mcse * np.sqrt(n_forward / (n_forward + n_reverse))
    if bridged.mcse >= least:  # it may be too large for its square
        return bridged
    return widened(bridged, float(np.sqrt(least**2 - bridged.mcse**2)))


def distance_from_fit(blocks: Sequence[BlockRecord]) -> float | None:
    """Return how far the moments of the islands' draws are from those of importance sampling."""
    draws = [np.asarray(block.draws) for block in blocks if block.draws is not None]
    fit_draws = [block.fit_draws for block in blocks if block.fit_draws is not None]
    if len(draws) < 2 or len(fit_draws) < len(blocks):
        return None
    log_weight = -np.concatenate([block.bridge[0] for block in blocks if block.bridge is not None])
    return moment_distance(draws, np.concatenate(fit_draws), log_weight)


def correlation_in_chains(blocks: Sequence[BlockRecord]) -> float | None:
    """Return how alike the states of a chain are, see ``verdicts.chain_correlation``."""
    known = [b for b in blocks if b.draws is not None and b.origin is not None]
    if len(known) < len(blocks) or np.asarray(known[0].draws).ndim != 2:
        return None
    n_chains = sum(len(np.unique(np.asarray(b.origin))) for b in known)
    if np.log2(n_chains) >= np.asarray(known[0].draws).shape[1]:
        return None
    return chain_correlation(
        [np.asarray(b.draws) for b in known], [np.asarray(b.origin) for b in known]
    )


def _compared(
    smc: LogEvidence, bridged: LogEvidence, drawn: LogEvidence
) -> tuple[LogEvidence, LogEvidence, LogEvidence]:
    """Return the estimates of islands, with other statuses if they contradict each other.

    Both the mean over islands and importance sampling are unbiased for Z and never negative. By
    Markov's inequality they rarely exceed Z by a large factor, but they can be far too low, for
    example if all islands missed a mode. Therefore the larger of the two estimates is trusted.
    """
    route, other = "annealing from the prior", "importance sampling"
    if drawn.status == Status.OK:
        smc = judged(smc, short_of(smc, drawn))
        remedy = "the fitted density misses a region that the islands found. Use more draws."
        bridged = judged(
            bridged,
            [
                *short_of(bridged, drawn),
                *contradiction(
                    bridged,
                    drawn,
                    "the bridge",
                    other,
                    "the islands have wrong weights of the modes. Use the estimate 'importance'.",
                ),
                *contradiction(smc, bridged, route, "the bridge", remedy),
            ],
        )
        both = [*contradiction(smc, drawn, route, other, remedy)]
        return judged(smc, both), bridged, judged(drawn, both)
    if drawn.status != Status.NO_SUPPORT and contradict(smc, drawn) and smc.value < drawn.value:
        return _doubted(smc, drawn), _doubted(bridged, drawn), drawn
    remedy = "the kernel does not mix. Use more draws, longer chains or another kernel."
    both = [*contradiction(smc, bridged, route, "the bridge", remedy)]
    return judged(smc, both), judged(bridged, both), drawn


def _doubted(estimate: LogEvidence, drawn: LogEvidence) -> LogEvidence:
    """Return an estimate as ``"inconsistent"``: importance sampling, not ok itself, finds more."""
    message = (
        f"importance sampling from the fitted density gives {drawn.value:.3f}, and "
        f"{estimate.estimator} only {estimate.value:.3f}: the weights have a heavy tail, or "
        "annealing missed a mode. Use more draws."
    )
    return judged(estimate, [(Status.INCONSISTENT, message)])


def _of_moments(facts: Facts, bridged: LogEvidence, drawn: LogEvidence) -> Iterator[Verdict]:
    """Yield the verdict on islands whose moments contradict those of importance sampling.

    Where these may be wrong, the bridge has to contradict itself too.
    """
    certain = drawn.status == Status.OK or bridged.status == Status.INCONSISTENT
    if certain and (facts.moment_distance or 0.0) > MOMENTS_EXCLUDED:
        yield (
            Status.INCONSISTENT,
            "a mean or a variance of the islands' draws differs significantly from the value by "
            "importance sampling: the islands have wrong weights of the modes. Use the estimate "
            "'importance'.",
        )


def _unlike(work: Floats, stated: Floats) -> Iterator[Verdict]:
    """Yield the verdict on islands that differ far more than each of them tells."""
    if len(work) < 3 or not np.isfinite(work).all():
        return
    expected = float(np.mean(stated))
    ratio = float(work.var(ddof=1)) / expected if expected > 0.0 else 0.0
    if ratio > _UNLIKE:
        yield (
            Status.ISLANDS_DIFFER,
            f"the variance of the log evidence between islands is {ratio:.0f} times that expected "
            "from the draws within islands: they hold different parts of the posterior, because "
            "the kernel does not mix. Use more draws, longer chains "
            "(pe.methods.SMC(chain_length=50)), or "
            "another parametrisation of the model.",
        )


def integrated(record: RunRecord) -> list[LogEvidence]:
    """Return the power-posterior estimate.

    There is none if a population has no finite energy, or if the path has no densities between its
    steps, so that there is no derivative to integrate.
    """
    if record.facts.stepwise:
        return []
    rows = [
        (np.append(block.trace.energy_mean, mean), np.append(block.trace.energy_var, var))
        for block in record.of(Role.FORWARD)
        for mean, var in [block.end]
    ]
    energy, variance = np.stack(rows, axis=1)
    return [power_posterior(record.beta, energy, variance)] if np.isfinite(energy).all() else []


# Share of divergent draws that importance sampling with weights of a light tail may confirm: it
# reaches regions that a trajectory could not enter.
TOLERATED = 0.005
# Pareto shape of such weights.
_LIGHT = 0.5
# Combined standard errors by which importance sampling may differ from the bridge. Both use the
# same draws from the fitted density: they are nearer to each other than independent estimates.
_DIFFERENT = 3.0

_ADVICE = (
    "Sample again with a higher target_accept, more draws, or more chains from dispersed starts, "
    "or use pe.sample_evidence(model)."
)


def of_given(record: RunRecord) -> list[LogEvidence]:
    """Return the estimates of a run with given draws, the recommended one first.

    A sign that the draws are not from the posterior gives all estimates from them its status, also
    the one that does not need it: it is the posterior that has to be sampled again.
    """
    works = [block.bridge for block in record.of(Role.GIVEN) if block.bridge is not None]
    forward = np.concatenate([forward for forward, _ in works])
    bridged, drawn = bridge(works), of_uncovered(importance(forward), uncovered(works))
    smc = of_small_islands(record.of(Role.FORWARD))
    found = recommend([bridged, drawn])
    confirmed = drawn.status == Status.OK and not pareto_k(-forward) > _LIGHT
    verdict = next(_of_draws(bridged, drawn, smc, record.facts, confirmed), None)
    return [*(_spoilt(each, *verdict) if verdict else each for each in found), smc]


def _spoilt(estimate: LogEvidence, status: Status, message: str) -> LogEvidence:
    """Return an estimate with another status, whose message also has that of the old one."""
    also = "" if estimate.status == Status.OK else f" In addition, {estimate.message}"
    return replace(estimate, status=status, message=f"{message}{also}")


def _of_draws(
    bridged: LogEvidence, drawn: LogEvidence, smc: LogEvidence, facts: Facts, confirmed: bool
) -> Iterator[tuple[Status, str]]:
    """Yield what contradicts the given draws."""
    for other, name, most in (
        (drawn, "importance sampling from the fitted density", _DIFFERENT),
        (smc, "a small annealing from the prior", DISAGREEMENT),
    ):
        if other.value > bridged.value and contradict(bridged, other, most):
            yield (
                Status.MISSED_MASS,
                f"{name} gives {other.value:.2f}, and the bridge to the given draws only "
                f"{bridged.value:.2f}: the draws have missed a part of the posterior. {_ADVICE}",
            )
    doubt = facts.doubt
    if facts.n_divergent and not doubt and not confirmed:
        doubt = (
            f"{facts.n_divergent} draws ended in a divergence, and the weights of importance "
            "sampling, which could confirm them, have a heavy tail"
        )
    if doubt:
        message = f"the given draws may not be from the posterior: {doubt}. {_ADVICE}"
        yield Status.DOUBTFUL_DRAWS, message
    if drawn.status == Status.OK:
        seen = ""
        if contradict(bridged, drawn, _DIFFERENT):
            seen = f"it gives {drawn.value:.3f}, and the bridge to the draws {bridged.value:.3f}"
        elif (facts.moment_distance or 0.0) > MOMENTS_EXCLUDED:
            seen = "a mean or a variance of the draws differs significantly from its value"
        if seen:
            yield (
                Status.INCONSISTENT,
                "the given draws contradict importance sampling from the density that is fitted "
                f"to them: {seen}. Modes have wrong weights, or the draws are of another model or "
                f"data. {_ADVICE}",
            )
