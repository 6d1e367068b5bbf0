"""Verdicts on the estimates of a run, and the choice of the estimate that is recommended.

Estimates are compared with each other, with the fit that they come from, and with facts of the run
that rule them out. A verdict is a row of a table, see `errors`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import ceil, isnan, nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_choice, check_kind, described
from pm_evidence.core.contracts import NOISY_VARIANCE
from pm_evidence.core.numerics import normalised
from pm_evidence.core.records import Facts, LogEvidence, Role, RunRecord, Status
from pm_evidence.estimators.bar import bridge
from pm_evidence.estimators.errors import Verdict, judged, pareto_k, widened
from pm_evidence.estimators.jarzynski import importance

Floats = NDArray[np.float64]

# With an error of this many nats, a factor of 5e8, an evidence is not known.
LARGEST_KNOWN = 20.0
# Two estimates contradict each other if they differ by more than this number of combined standard
# errors and by more than this rounding error in nats.
DISAGREEMENT, ROUNDING = 5.0, 1e-9
# A nonnegative unbiased estimate of Z exceeds Z by the exponential of this, 20, rarely.
_TWENTYFOLD = 3.0
# Without another estimate to confirm them, estimates from islands are not ok if the states of a
# chain are more correlated than this. A random walk of 100 states was 0.1 to 0.4 too low at 0.7,
# and right within its errors at 0.5.
_UNMIXED = 0.6
# What ends a run if it is neither time nor draws: posterior draws that the user gave.
GIVEN_DRAWS = "given_draws"
EVERY = tuple(Status)
_UNBROKEN = tuple(s for s in Status if s not in (Status.UNBOUNDED, Status.MISSED_MASS))
_MOST_PARTICLES = 1_000_000  # that a message advises
# Rule of three: if none of n independent draws is of a kind, its share is at most 3 / n, with a
# confidence of 95 %.
_THREE = 3.0


def contradict(one: LogEvidence, other: LogEvidence, most: float = DISAGREEMENT) -> bool:
    """Return whether two estimates contradict each other; False if one has no error estimate."""
    distance = abs(one.value - other.value)
    return bool(distance > most * float(np.hypot(one.mcse, other.mcse)) + ROUNDING)


def contradiction(
    one: LogEvidence, other: LogEvidence, name: str, other_name: str, remedy: str
) -> Iterator[Verdict]:
    """Yield the verdict on two independent estimates that contradict each other."""
    if one.status == other.status == Status.OK and contradict(one, other):
        error = float(np.hypot(one.mcse, other.mcse))
        yield (
            Status.INCONSISTENT,
            f"{name} gives {one.value:.3f} and {other_name} gives {other.value:.3f}; they differ "
            f"by {times(abs(one.value - other.value), error)} combined standard errors: {remedy}",
        )


def agreeing(
    one: LogEvidence, other: LogEvidence, name: str, other_name: str, remedy: str
) -> tuple[LogEvidence, LogEvidence]:
    """Return two independent estimates, both ``"inconsistent"`` if they contradict each other."""
    verdicts = [*contradiction(one, other, name, other_name, remedy)]
    return judged(one, verdicts), judged(other, verdicts)


def short_of(estimate: LogEvidence, drawn: LogEvidence) -> Iterator[Verdict]:
    """Yield the verdict on an estimate if importance sampling finds more evidence."""
    if contradict(estimate, drawn) and not estimate.value > drawn.value:
        yield (
            Status.MISSED_MASS,
            f"importance sampling from the fitted density gives {drawn.value:.3f}, and "
            f"{estimate.estimator} only {estimate.value:.3f}: annealing missed a part of the "
            "posterior. Use the estimate 'importance'.",
            _UNBROKEN,
        )


def of_uncovered(drawn: LogEvidence, share: float) -> LogEvidence:
    """Return an importance sampling estimate, as ``"missed_mass"`` if its draws miss a region."""
    if share <= DISAGREEMENT * drawn.mcse:
        return drawn
    message = (
        f"{share:.1%} of the islands' draws lie in a region where the fitted density is so low "
        "that it produced no draws there. Use the estimate 'bridge', or more draws."
    )
    return judged(drawn, [(Status.MISSED_MASS, message)])


def unmixed(
    correlation: float | None,
    drawn: LogEvidence,
    remedy: str = "Use longer chains (pe.methods.SMC(chain_length=50))",
) -> Iterator[Verdict]:
    """Yield the verdict on islands whose chains have hardly moved, if no draws confirm them."""
    if drawn.status == Status.OK or correlation is None or correlation <= _UNMIXED:
        return
    seen = f"the states of a chain have a correlation of {correlation:.2f} in one coordinate"
    if isnan(correlation):
        seen = "chains of fewer than four states do not show whether the kernel mixes"
    yield (
        Status.NOT_MIXED,
        f"{seen}: the islands may all miss the same part of the posterior. Importance sampling, "
        f"which would show it, has the status {drawn.status}. {remedy}, or another "
        "parametrisation of the model.",
    )


def of_survey(facts: Facts) -> Iterator[Verdict]:
    """Yield the verdicts of a survey of the posterior."""
    if facts.unbounded:
        yield (
            Status.UNBOUNDED,
            "the posterior density and its mass increase along a ridge as far as it was followed: "
            "the evidence is infinite, or concentrated in a region without draws. Look for a scale "
            "that can go to zero where data coincide, and give it a prior that excludes zero.",
            EVERY,
        )
    if facts.more_peaks:
        yield (
            Status.MISSED_MASS,
            f"the posterior has more modes than the {facts.n_peaks} that were found, because "
            "coordinates have several modes each: draws do not meet all of their combinations, and "
            "the value may be too low. Integrate such coordinates out of the model, or give them "
            "priors that leave one mode.",
        )


def of_facts(estimate: LogEvidence, record: RunRecord) -> Iterator[Verdict]:
    """Yield the verdicts of the facts of a run on an estimate, in the order of their weight."""
    facts = record.facts
    yield from of_survey(facts)
    yield from short_of_check(estimate, facts)
    if facts.stepwise:
        ess = np.array([block.trace.ess for block in record.of(Role.FORWARD)])
        stage, n = int(np.isfinite(ess).sum(axis=1).max()), ess.shape[1]
        if stage < n:
            message = f"{estimate.message} No particle was left at stage {stage + 1} of {n}."
            yield Status.NO_SUPPORT, message, (Status.NO_SUPPORT,)
    if facts.n_values is not None and facts.n_prior_draws is not None:
        values = "a single value" if facts.n_values == 1 else f"only {facts.n_values} values"
        yield (
            Status.FEW_VALUES,
            f"the likelihood took {values} over all draws, which shows nothing of the places that "
            "no draw has hit: with a confidence of 95 %, these are a share of at most "
            f"{_THREE / facts.n_prior_draws:.1g} of the prior, and their evidence is missing. Use "
            "more draws, or a likelihood that rises towards its steps; ignore this if it can take "
            "no other values.",
        )
    if facts.annealed_log_z is not None:
        yield (
            Status.INCONSISTENT,
            f"annealing with more particles gives only {facts.annealed_log_z:.3f}, because it "
            "missed a mode that importance sampling from a density fitted to few particles found; "
            "its error is larger than asked for. Use more draws.",
        )


# Largest error of integrals over local variables with which an estimate is used, in nats.
_MOST_INTEGRATION_ERROR = 0.1


# What a small run is, and what helps if it finds more evidence, by its kind.
_CHECKS = {
    "reference": (
        "a short annealing from the prior",
        "Use reference='prior', or more draws.",
    ),
    "coarse": ("a short annealing from the prior", "Use more draws."),
    "fitted": (
        "importance sampling from a density fitted to a short annealing",
        "Use more draws.",
    ),
    "base rates": (
        "a short annealing from independent units of rate 1/2",
        "Pass base='uniform' and more stages, pe.methods.AIS(n_stages=20_000), or try "
        "method='simulated_tempering'.",
    ),
}


def short_of_check(estimate: LogEvidence, facts: Facts) -> Iterator[Verdict]:
    """Yield the verdict on an estimate if a small run from the prior finds more evidence."""
    check = facts.cross_check
    if check is None or estimate.status == Status.BOUND:  # a bound may lie below
        return
    excess, error = check.log_z - estimate.value, float(np.hypot(check.mcse, estimate.mcse))
    if excess > min(_TWENTYFOLD, DISAGREEMENT * error + ROUNDING):
        run, remedy = _CHECKS[check.kind]
        yield (
            Status.MISSED_MASS,
            f"{run} gives {check.log_z:.2f}, and {estimate.estimator} only {estimate.value:.2f}: "
            f"the paths have missed a mode. {remedy}",
            _UNBROKEN,
        )


def short_of_target(estimate: LogEvidence, target_mcse: float) -> LogEvidence:
    """Return an estimate of a default run, which says if its error is larger than the default."""
    if estimate.status != Status.OK or estimate.message or estimate.mcse <= target_mcse:
        return estimate
    message = (
        f"the error is {estimate.mcse:.3g} nats and not {target_mcse:.3g}: by default a run ends "
        "after some rounds. Pass max_time in seconds, or the target_mcse that you need, to go on."
    )
    return replace(estimate, message=message)


def unfinished(estimate: LogEvidence, limit: str, target_mcse: float) -> LogEvidence:
    """Return an estimate whose status, if it was ``"ok"``, says what ended the run."""
    error = f"the error is {estimate.mcse:.3g} nats"
    wanted = f" and not {target_mcse:.3g}"
    if limit == Status.INTERRUPTED:
        if estimate.status != Status.OK:
            return in_addition(estimate, "the run was interrupted.")
        message = (
            "the run was interrupted, and the estimate is that of what had finished, without the "
            f"checks that come later: {error}{wanted if estimate.mcse > target_mcse else ''}. The "
            "same call finishes the run, from where it stopped if it has a checkpoint."
        )
    elif limit == GIVEN_DRAWS:
        message = (
            f"{error}{wanted}, because it is limited by the given posterior draws. Pass more of "
            "them, or accept the error."
        )
    elif estimate.mcse <= target_mcse:
        message = (
            "the density fitted to a coarse annealing is too poor to rely on it alone, and "
            f"annealing with more particles would have exceeded {limit}. Pass a larger {limit}."
        )
    else:
        message = (
            f"{error}{wanted}, because a further round would have exceeded {limit}. Pass a larger "
            f"{limit}, or accept the error."
        )
    status = Status.MAX_DRAWS if limit == GIVEN_DRAWS else Status(limit)
    return judged(estimate, [(status, message)])


def of_noise(estimate: LogEvidence, facts: Facts) -> LogEvidence:
    """Return an estimate, as ``"noisy_likelihood"`` if the likelihood is too noisy to trust it.

    An estimate that has another status already keeps it, and the message names both reasons.
    """
    variance, numbers = facts.log_likelihood_variance, facts.n_particles
    if variance is None or numbers is None or variance <= NOISY_VARIANCE:
        return estimate
    enough = max(numbers) * variance
    wanted = f"about {ceil(enough)}" if enough < _MOST_PARTICLES else "many more"
    message = (
        f"the estimated log likelihood has a variance of {variance:.1f} with n_particles="
        f"{', '.join(map(str, numbers))}: at most a share of {facts.noise_acceptance:.1g} of "
        f"the MCMC proposals is accepted, and the error cannot be trusted. Use {wanted} "
        "particles, or n_particles='auto'."
    )
    if estimate.status != Status.OK:
        return in_addition(estimate, message)
    return replace(estimate, status=Status.NOISY_LIKELIHOOD, message=message)


def in_addition(estimate: LogEvidence, message: str) -> LogEvidence:
    """Return an estimate with a further message."""
    before = f"{estimate.message} In addition, " if estimate.message else ""
    return replace(estimate, message=f"{before}{message}")


def known(estimate: LogEvidence) -> LogEvidence:
    """Return an estimate, without value and error if the error is so large that it says nothing."""
    if not LARGEST_KNOWN < estimate.mcse < np.inf:
        return estimate
    message = (
        f"there is no estimate: {estimate.value:.4g} would have an error of {estimate.mcse:.0f} "
        f"nats. {estimate.message}"
    ).rstrip()
    return replace(estimate, value=nan, mcse=nan, lower=nan, upper=nan, message=message)


def of_integration(estimate: LogEvidence, error: float) -> LogEvidence:
    """Return an estimate with the error of the integrals over local variables in its own.

    An error of more than 0.1 nats is no error of rounding: finer nodes found a mode that the run
    has missed.
    """
    found = widened(estimate, error)
    if error <= _MOST_INTEGRATION_ERROR:
        return found
    message = (
        f"finer nodes change the integrals over local variables by {error:.2g} nats: they have "
        "modes that the nodes of this run have missed. Pass marginalise=False."
    )
    return judged(found, [(Status.MISSED_MASS, message)])


def times(distance: float, error: float) -> str:
    """Return a distance in units of its standard error as text; the error may be exactly 0."""
    return f"{distance / error:.1f}" if error > 0.0 else "infinitely many"


# Chains with fewer states than this say nothing on how fast they move.
_SHORTEST_CHAIN = 4
# The share of a region that no draw has shown, times the number of draws, as a standard error: an
# interval of 95 % reaches two of them.
_UNSEEN = _THREE / 2.0
# Standard errors by which the share must exceed zero.
_SIGNIFICANT = 2.0
# A moment of the islands contradicts importance sampling beyond this number of standard errors, or
# more if there are so many moments, or so few islands, that one of them is as far off by chance
# with this probability.
MOMENTS_EXCLUDED, _BY_CHANCE = 5.0, 0.003
# Moments of so many coordinates are computed at once, which bounds the memory.
_COORDINATES = 1000


def uncovered(works: Sequence[tuple[Floats, Floats]]) -> float:
    """Return the share of posterior draws with more weight than any draw from the fitted density.

    Let ``w = f / (q Z)``, and ``t`` be the largest weight of ``n`` draws from ``q``. Importance
    sampling misses about ``P(w > t)`` of the evidence, with the probability taken under the
    posterior. Where weights have a Pareto tail of shape ``k < 1``, this is about
    ``t / (n (1 - k))``, and the error of importance sampling is at least ``t / n``. If the share is
    many times this error, the draws from ``q`` did not reach the tail at all.
    """
    least = min(float(forward.min()) for forward, _ in works)
    share = np.array([float(np.mean(reverse < least)) for _, reverse in works if len(reverse)])
    if not len(share):
        return 0.0
    error = float(share.std(ddof=1)) / len(share) ** 0.5 if len(share) > 1 else 0.0
    mean = float(share.mean())
    return mean if mean > _SIGNIFICANT * error else 0.0


def unseen_share(works: Sequence[tuple[Floats, Floats]]) -> float:
    """Return the share of the posterior that a fitted density may miss, as a standard error.

    If none of ``n`` independent draws lies in a region, its share is at most about ``3 / n`` with
    a probability of 95 %, which is two standard errors. Weights whose Pareto shape is not positive
    are bounded: there is no such region beside the fitted density.
    """
    n = sum(len(reverse) for _, reverse in works)
    k = pareto_k(-np.concatenate([forward for forward, _ in works]))
    return float(np.clip(2.0 * k, 0.0, 1.0)) * _UNSEEN / max(n, 1) if np.isfinite(k) else 0.0


def chain_correlation(draws: Sequence[Floats], chains: Sequence[NDArray[np.int64]]) -> float:
    """Return the mean correlation between two states of a chain, in the slowest coordinate.

    Islands move their particles in chains that start from resampled particles. If the states of a
    chain are alike, the kernel has hardly moved them, and whatever the islands lost at an earlier
    stage is still missing. All islands then miss the same, and agree with each other.
    """
    counts = [np.bincount(chain) for chain in chains]
    if max(int(count.max()) for count in counts) < _SHORTEST_CHAIN:
        return float("nan")
    n = sum(len(x) for x in draws)
    centre = np.sum([x.sum(axis=0) for x in draws], axis=0) / n
    square, between = np.zeros(len(centre)), np.zeros(len(centre))
    for x, chain, count in zip(draws, chains, counts, strict=True):
        apart = x[np.argsort(chain, kind="stable")] - centre
        starts = np.cumsum(count)[:-1]
        square += np.sum(apart**2, axis=0)
        between += sum(np.sum(part, axis=0) ** 2 for part in np.split(apart, starts))
    pairs = sum(float(np.sum(count * (count - 1.0))) for count in counts)
    with np.errstate(invalid="ignore", divide="ignore"):  # a coordinate may be constant
        correlation = (between - square) / pairs / (square / n)
    largest = np.max(correlation, where=np.isfinite(correlation), initial=0.0)
    return float(np.clip(largest, 0.0, 1.0))


def moment_distance(draws: Sequence[Floats], fit_draws: Floats, log_weight: Floats) -> float:
    """Return how far the means and mean squares of islands are from those of importance sampling.

    If they are far apart, the modes have wrong weights in the islands, although the islands may
    agree with each other.
    """
    weight, d = normalised(log_weight), fit_draws.shape[1]
    parts = [slice(k, k + _COORDINATES) for k in range(0, d, _COORDINATES)]
    largest = max(
        _moment_distance([x[:, part] for x in draws], fit_draws[:, part], weight) for part in parts
    )
    return largest / max(_by_chance(2 * d, len(draws)) / MOMENTS_EXCLUDED, 1.0)


def _moment_distance(draws: Sequence[Floats], fit_draws: Floats, weight: Floats) -> float:
    """Return the largest distance of a moment of some coordinates, in standard errors."""
    centre = weight @ fit_draws
    found = _moments(fit_draws, centre)
    mean = weight @ found
    error = np.sqrt((weight**2) @ (found - mean) ** 2)
    islands = np.array([_moments(x, centre).mean(axis=0) for x in draws])
    island_error = islands.std(axis=0, ddof=1) / len(islands) ** 0.5
    distance = np.abs(mean - islands.mean(axis=0))
    with np.errstate(divide="ignore", invalid="ignore"):  # a coordinate may have no error
        standardised = distance / np.hypot(error, island_error)
    return float(np.max(standardised, where=standardised > 0.0, initial=0.0))


def _by_chance(n_moments: int, n_islands: int) -> float:
    """Return how many standard errors the largest of some moments may be off by chance."""
    from scipy.special import stdtrit

    return -float(stdtrit(n_islands - 1, 0.5 * _BY_CHANCE / n_moments))


def _moments(x: Floats, centre: Floats) -> Floats:
    apart = x - centre
    return np.concatenate([apart, apart**2], axis=1)


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


def ranked(
    first: LogEvidence,
    others: list[LogEvidence],
    drawn: list[LogEvidence],
    smaller: LogEvidence | None = None,
) -> list[LogEvidence]:
    """Return all estimates, the recommended one first.

    That is importance sampling, the last one of ``drawn``, if it is ok where the first estimate is
    not, or if it is given as the one of a much ``smaller`` error.
    """
    if drawn and drawn[-1].status == Status.OK and first.status in _REPLACED:
        message = (
            f"importance is recommended because the status of {first.estimator} is {first.status}."
        )
        smaller = replace(drawn[-1], message=message)
    if smaller is None:
        return [first, *others, *drawn]
    return [smaller, first, *others, *drawn[:-1]]


# An estimate replaces one that comes before it if its error is this many times smaller.
_GROSS = 2.0
# The order in which the estimates of islands are considered.
_ORDER = ("bridge", "importance", "smc")


def recommend(found: Sequence[LogEvidence]) -> list[LogEvidence]:
    """Return independent estimates of one evidence, the recommended one first.

    Parameters
    ----------
    found : sequence of LogEvidence
        Estimates named ``"bridge"``, ``"importance"`` and ``"smc"``.

    Returns
    -------
    list of LogEvidence
        All of them. If the recommended one is not the first in the order, its message says why.

    Raises
    ------
    ValueError, TypeError
        If ``found`` is not a list of such estimates.

    Notes
    -----
    The first estimate with the status ``"ok"`` in the order bridge, importance, smc is recommended,
    unless that of a later one has an error that is less than half as large. Smaller differences
    between errors are ignored, because an error may be small by chance. Importance sampling is
    never preferred to the bridge for its error, which is too small if none of the rare large
    weights occurred.

    If none is ok, the first one with an error comes first, unless importance or smc exceeds it by
    more than five of its own errors: unbiased estimates rarely exceed Z by much, and may be far
    too low.
    """
    _check_found(found)
    ranked = sorted(found, key=lambda estimate: _ORDER.index(estimate.estimator))
    usable = [estimate for estimate in ranked if estimate.status == Status.OK]
    if not usable:
        known = [estimate for estimate in ranked if np.isfinite(estimate.mcse)] or ranked
        unbiased = [estimate for estimate in known if estimate.estimator != "bridge"]
        most = max(unbiased, key=_demanded, default=known[0])
        first = most if _demanded(most) > known[0].value else known[0]
        return [first, *(estimate for estimate in ranked if estimate is not first)]
    first = usable[0]
    trusted = [e for e in usable if e is first or e.estimator != "importance"]
    best = min(trusted, key=lambda estimate: estimate.mcse)
    if best.mcse * _GROSS < first.mcse:
        message = (
            f"{best.estimator} is recommended because its error is {best.mcse:.2g} nats, and that "
            f"of {first.estimator} is {first.mcse:.2g} nats."
        )
        first = replace(best, message=message)
    elif first.estimator != ranked[0].estimator:
        message = (
            f"{first.estimator} is recommended because the status of {ranked[0].estimator} is "
            f"{ranked[0].status}."
        )
        first = replace(first, message=message)
    return [first, *(e for e in ranked if e.estimator != first.estimator)]


def _demanded(estimate: LogEvidence) -> float:
    """Return what the evidence is at least, if an unbiased estimate is not far too high."""
    return estimate.value - DISAGREEMENT * estimate.mcse


def _check_found(found: Any) -> None:
    if not isinstance(found, list | tuple) or not found:
        raise ValueError(
            f"found must be a list of estimates, got {described(found)}; pass for example "
            "[bridge(...), jarzynski(..., name='smc')]."
        )
    for i, estimate in enumerate(found):
        check_kind(f"found[{i}]", estimate, LogEvidence, "pass an estimate, for example bar(...)")
        check_choice(f"found[{i}].estimator", estimate.estimator, _ORDER)
