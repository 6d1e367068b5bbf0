"""Verdicts on estimates, and the choice of the one that is recommended.

Estimates are compared with each other, with the fit that they come from, and with facts of the run
that rule them out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil, isnan, nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_choice, check_kind, described
from pm_evidence.core.contracts import NOISY_VARIANCE
from pm_evidence.core.numerics import normalised
from pm_evidence.core.records import BlockRecord, LogEvidence, Status
from pm_evidence.estimators.errors import widened
from pm_evidence.estimators.pareto import pareto_k, unseen_tail

Floats = NDArray[np.float64]


# An interval around the log of a mean is not symmetric if the error is larger than this, in nats.
LARGEST_MCSE = 0.5
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
_BROKEN = (Status.UNBOUNDED, Status.MISSED_MASS)
_MOST_PARTICLES = 1_000_000  # that a message advises
# Rule of three: if none of n independent draws is of a kind, its share is at most 3 / n, with a
# confidence of 95 %.
_THREE = 3.0


def apart(one: LogEvidence, other: LogEvidence) -> bool:
    """Return whether two estimates contradict each other; False if one has no error estimate."""
    distance = abs(one.value - other.value)
    return bool(distance > DISAGREEMENT * float(np.hypot(one.mcse, other.mcse)) + ROUNDING)


def agreeing(
    one: LogEvidence, other: LogEvidence, name: str, other_name: str, remedy: str
) -> tuple[LogEvidence, LogEvidence]:
    """Return two independent estimates, both ``"inconsistent"`` if they contradict each other."""
    error = float(np.hypot(one.mcse, other.mcse))
    distance = abs(one.value - other.value)
    if not (one.status == other.status == Status.OK and distance > DISAGREEMENT * error + ROUNDING):
        return one, other
    message = (
        f"{name} gives {one.value:.3f} and {other_name} gives {other.value:.3f}; they differ by "
        f"{times(distance, error)} combined standard errors: {remedy}"
    )
    return tuple(replace(e, status=Status.INCONSISTENT, message=message) for e in (one, other))  # type: ignore[return-value]


def with_stage(estimate: LogEvidence, blocks: Sequence[BlockRecord]) -> LogEvidence:
    """Return an estimate whose message says at which stage no particle was left."""
    if estimate.status != Status.NO_SUPPORT:
        return estimate
    ess = np.array([block.trace.ess for block in blocks])
    stage, n = int(np.isfinite(ess).sum(axis=1).max()), ess.shape[1]
    if stage == n:
        return estimate
    message = f"{estimate.message} No particle was left at stage {stage + 1} of {n}."
    return replace(estimate, message=message)


def beside_bridge(found: Sequence[LogEvidence]) -> list[LogEvidence]:
    """Return the estimates of islands from a reference: ``smc`` is not ok if the bridge is not.

    The weights of islands that start from the prior are bounded by the likelihood. From another
    reference they may have a heavy tail, which the spread of a few islands does not show.
    """
    bridged = [estimate for estimate in found if estimate.estimator == "bridge"]
    if not bridged or bridged[0].status == Status.OK:
        return list(found)
    message = (
        "annealing from a reference may have weights with a heavy tail, and the bridge, which "
        f"would confirm it, has the status {bridged[0].status}: {bridged[0].message}"
    )
    return [
        replace(estimate, status=bridged[0].status, message=message)
        if estimate.estimator == "smc" and estimate.status == Status.OK
        else estimate
        for estimate in found
    ]


def short_of_trial(
    estimate: LogEvidence, log_z: float, mcse: float, kind: str = "base rates"
) -> LogEvidence:
    """Return an estimate, as ``"missed_mass"`` if a trial run finds more evidence."""
    if estimate.status == Status.BOUND:  # a bound may lie below
        return estimate
    excess, error = log_z - estimate.value, float(np.hypot(mcse, estimate.mcse))
    if estimate.status in _BROKEN or not excess > min(_TWENTYFOLD, DISAGREEMENT * error + ROUNDING):
        return estimate
    trial, remedy = "a short annealing from the prior", "Use reference='prior', or more draws."
    if kind == "coarse":
        remedy = "Use more draws."
    elif kind == "fitted":
        trial = "importance sampling from a density fitted to a short annealing"
        remedy = "Use more draws."
    elif kind == "base rates":
        trial = "a short annealing from independent units of rate 1/2"
        remedy = (
            "Pass base='uniform' and more stages, pe.AIS(n_stages=20_000), or try "
            "method='simulated_tempering'."
        )
    message = (
        f"{trial} gives {log_z:.2f}, and {estimate.estimator} only {estimate.value:.2f}: the paths "
        f"have missed a mode. {remedy}"
    )
    return replace(estimate, status=Status.MISSED_MASS, message=message)


def beyond_annealing(estimate: LogEvidence, log_z: float) -> LogEvidence:
    """Return an estimate of a first route, as ``"inconsistent"``: the next one finds far less."""
    if estimate.status != Status.OK:
        return estimate
    message = (
        f"annealing with more particles gives only {log_z:.3f}, because it missed a mode that "
        "importance sampling from a density fitted to few particles found; its error is larger "
        "than asked for. Use more draws."
    )
    return replace(estimate, status=Status.INCONSISTENT, message=message)


def short_of(estimate: LogEvidence, drawn: LogEvidence) -> LogEvidence:
    """Return an estimate, as ``"missed_mass"`` if importance sampling finds more evidence."""
    if estimate.status in _BROKEN or not apart(estimate, drawn):
        return estimate
    if estimate.value > drawn.value:
        return estimate
    message = (
        f"importance sampling from the fitted density gives {drawn.value:.3f}, and "
        f"{estimate.estimator} only {estimate.value:.3f}: annealing missed a part of the "
        "posterior. Use the estimate 'importance'."
    )
    return replace(estimate, status=Status.MISSED_MASS, message=message)


def of_uncovered(drawn: LogEvidence, share: float) -> LogEvidence:
    """Return an importance sampling estimate, as ``"missed_mass"`` if its draws miss a region."""
    if drawn.status != Status.OK or share <= DISAGREEMENT * drawn.mcse:
        return drawn
    message = (
        f"{share:.1%} of the islands' draws lie in a region where the fitted density is so low "
        "that it produced no draws there. Use the estimate 'bridge', or more draws."
    )
    return replace(drawn, status=Status.MISSED_MASS, message=message)


def of_more_peaks(estimate: LogEvidence, n_peaks: int) -> LogEvidence:
    """Return an estimate, as ``"missed_mass"`` if there are more peaks than a survey follows."""
    if estimate.status != Status.OK:
        return estimate
    message = (
        f"the posterior has more modes than the {n_peaks} that were found, because coordinates "
        "have several modes each: draws do not meet all of their combinations, and the value may "
        "be too low. Integrate such coordinates out of the model, or give them priors that leave "
        "one mode."
    )
    return replace(estimate, status=Status.MISSED_MASS, message=message)


def of_unmixed(
    estimate: LogEvidence,
    correlation: float | None,
    drawn: LogEvidence,
    remedy: str = "Use longer chains (pe.SMC(chain_length=50))",
) -> LogEvidence:
    """Return an estimate, as ``"not_mixed"`` if the chains of its islands have hardly moved."""
    if correlation is None or correlation <= _UNMIXED or estimate.status != Status.OK:
        return estimate
    seen = f"the states of a chain have a correlation of {correlation:.2f} in one coordinate"
    if isnan(correlation):
        seen = "chains of fewer than four states do not show whether the kernel mixes"
    message = (
        f"{seen}: the islands may all miss the same part of the posterior. Importance sampling, "
        f"which would show it, has the status {drawn.status}. {remedy}, or another "
        "parametrisation of the model."
    )
    return replace(estimate, status=Status.NOT_MIXED, message=message)


def with_tail(estimate: LogEvidence, log_weight: Floats, reached: float = 0.0) -> LogEvidence:
    """Return an estimate with the error of the tail that its draws may not have reached."""
    if not np.isfinite(estimate.mcse):
        return estimate
    found = widened(estimate, max(unseen_tail(log_weight, estimate.value) - reached, 0.0))
    if found.status != Status.OK or found.mcse <= LARGEST_MCSE:
        return found
    message = (
        f"the error is {found.mcse:.2f} nats, because a large share of the evidence may lie where "
        "the fitted density produced no draws. Use more draws or another parametrisation."
    )
    return replace(found, status=Status.HIGH_VARIANCE, message=message)


def of_few_values(estimate: LogEvidence, n_values: int, n_draws: int) -> LogEvidence:
    """Return an estimate, as ``"few_values"``: the likelihood consists of steps."""
    if estimate.status != Status.OK:
        return estimate
    values = "a single value" if n_values == 1 else f"only {n_values} values"
    message = (
        f"the likelihood took {values} over all draws, which shows nothing of the places that no "
        f"draw has hit: with a confidence of 95 %, these are a share of at most "
        f"{_THREE / n_draws:.1g} of the prior, and their evidence is missing. Use more draws, or a "
        "likelihood that rises towards its steps; ignore this if it can take no other values."
    )
    return replace(estimate, status=Status.FEW_VALUES, message=message)


def known(estimate: LogEvidence) -> LogEvidence:
    """Return an estimate, without value and error if the error is so large that it says nothing."""
    if not LARGEST_KNOWN < estimate.mcse < np.inf:
        return estimate
    message = (
        f"there is no estimate: {estimate.value:.4g} would have an error of {estimate.mcse:.0f} "
        f"nats. {estimate.message}"
    ).rstrip()
    return replace(estimate, value=nan, mcse=nan, lower=nan, upper=nan, message=message)


def unbounded(estimate: LogEvidence) -> LogEvidence:
    """Return an estimate with the status of an evidence that is probably infinite."""
    message = (
        "the posterior density and its mass increase along a ridge as far as it was followed: the "
        "evidence is infinite, or concentrated in a region without draws. Look for a scale that "
        "can go to zero where data coincide, and give it a prior that excludes zero."
    )
    return replace(estimate, status=Status.UNBOUNDED, message=message)


def short_of_target(estimate: LogEvidence, target_mcse: float) -> LogEvidence:
    """Return an estimate of a default run, which says if its error is larger than the default."""
    if estimate.status != Status.OK or estimate.message or estimate.mcse <= target_mcse:
        return estimate
    message = (
        f"the error is {estimate.mcse:.3g} nats and not {target_mcse:.3g}: by default a run ends "
        f"after some rounds. Pass target_mcse={1.01 * target_mcse:.3g} or max_time to go on."
    )
    return replace(estimate, message=message)


def unfinished(estimate: LogEvidence, limit: str, target_mcse: float) -> LogEvidence:
    """Return an estimate whose status, if it was ``"ok"``, says what ended the run."""
    if limit == Status.INTERRUPTED:
        return _interrupted(estimate, target_mcse)
    if estimate.status != Status.OK:
        return estimate
    if limit == GIVEN_DRAWS:
        message = (
            f"the error is {estimate.mcse:.3g} nats and not {target_mcse:.3g}, because it is "
            "limited by the given posterior draws. Pass more of them, or accept the error."
        )
        return replace(estimate, status=Status.MAX_DRAWS, message=message)
    message = (
        f"the error is {estimate.mcse:.3g} nats and not {target_mcse:.3g}, because a further round "
        f"would have exceeded {limit}. Pass a larger {limit}, or accept the error."
    )
    if estimate.mcse <= target_mcse:
        message = (
            "the density fitted to a coarse annealing is too poor to rely on it alone, and "
            f"annealing with more particles would have exceeded {limit}. Pass a larger {limit}."
        )
    return replace(estimate, status=Status(limit), message=message)


def _interrupted(estimate: LogEvidence, target_mcse: float) -> LogEvidence:
    """Return the estimate of a run that Ctrl-C ended."""
    if estimate.status != Status.OK:
        message = f"{estimate.message} In addition, the run was interrupted."
        return replace(estimate, message=message)
    wanted = f" and not {target_mcse:.3g}" if estimate.mcse > target_mcse else ""
    message = (
        "the run was interrupted, and the estimate is that of what had finished, without the "
        f"checks that come later: the error is {estimate.mcse:.3g} nats{wanted}. The same call "
        "finishes the run, from where it stopped if it has a checkpoint."
    )
    return replace(estimate, status=Status.INTERRUPTED, message=message)


def of_noise(estimate: LogEvidence, facts: Mapping[str, Any]) -> LogEvidence:
    """Return an estimate, as ``"noisy_likelihood"`` if the likelihood is too noisy to trust it.

    An estimate that has another status already keeps it, and the message names both reasons.
    """
    variance, numbers = facts["log_likelihood_variance"], facts["n_particles"]
    if variance <= NOISY_VARIANCE:
        return estimate
    enough = max(numbers) * variance
    wanted = f"about {ceil(enough)}" if enough < _MOST_PARTICLES else "many more"
    message = (
        f"the estimated log likelihood has a variance of {variance:.1f} with n_particles="
        f"{', '.join(map(str, numbers))}: at most a share of {facts['noise_acceptance']:.1g} of "
        f"the MCMC proposals is accepted, and the error cannot be trusted. Use {wanted} "
        "particles, or n_particles='auto'."
    )
    if estimate.status != Status.OK:
        return replace(estimate, message=f"{estimate.message} In addition, {message}")
    return replace(estimate, status=Status.NOISY_LIKELIHOOD, message=message)


def times(distance: float, error: float) -> str:
    """Return a distance in units of its standard error as text; the error may be exactly 0."""
    return f"{distance / error:.1f}" if error > 0.0 else "infinitely many"


# Chains with fewer states than this say nothing on how fast they move.
_SHORTEST_CHAIN = 4
# Numerator of the share of a region that no draw has shown.
_UNSEEN = 3.0
# Standard errors by which the share must exceed zero.
_SIGNIFICANT = 2.0
# A moment of the islands contradicts importance sampling beyond this number of standard errors, or
# more if there are so many moments, or so few islands, that one of them is as far off by chance
# with this probability.
MOMENTS_EXCLUDED, _BY_CHANCE = 5.0, 0.003


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
    """Return the share of the posterior that a fitted density may miss, although no draw shows it.

    If none of ``n`` independent draws lies in a region, its share is at most about ``3 / n`` with
    a probability of 95 %. Weights whose Pareto shape is not positive are bounded: there is no such
    region beside the fitted density.
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
    weight = normalised(log_weight)
    centre = weight @ fit_draws
    found = _moments(fit_draws, centre)
    mean = weight @ found
    error = np.sqrt((weight**2) @ (found - mean) ** 2)
    islands = np.array([_moments(x, centre).mean(axis=0) for x in draws])
    island_error = islands.std(axis=0, ddof=1) / len(islands) ** 0.5
    distance = np.abs(mean - islands.mean(axis=0))
    with np.errstate(divide="ignore", invalid="ignore"):  # a coordinate may have no error
        standardised = distance / np.hypot(error, island_error)
    largest = float(np.max(standardised, where=standardised > 0.0, initial=0.0))
    return largest / max(_by_chance(mean.size, len(islands)) / MOMENTS_EXCLUDED, 1.0)


def _by_chance(n_moments: int, n_islands: int) -> float:
    """Return how many standard errors the largest of some moments may be off by chance."""
    from scipy.special import stdtrit

    return -float(stdtrit(n_islands - 1, 0.5 * _BY_CHANCE / n_moments))


def _moments(x: Floats, centre: Floats) -> Floats:
    apart = x - centre
    return np.concatenate([apart, apart**2], axis=1)


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
