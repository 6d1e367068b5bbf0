"""Verdicts on estimates: comparisons with each other, and facts of the run that rule them out."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil, isnan, nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.contracts import NOISY_VARIANCE
from pm_evidence.core.records import BlockRecord, LogEvidence
from pm_evidence.core.statuses import Status
from pm_evidence.estimators.intervals import widened
from pm_evidence.estimators.pareto import unseen_tail

__all__ = [
    "DISAGREEMENT",
    "GIVEN_DRAWS",
    "LARGEST_KNOWN",
    "LARGEST_MCSE",
    "ROUNDING",
    "agreeing",
    "apart",
    "beyond_annealing",
    "known",
    "of_few_values",
    "of_more_peaks",
    "of_noise",
    "of_uncovered",
    "of_unmixed",
    "short_of",
    "short_of_target",
    "short_of_trial",
    "times",
    "unbounded",
    "unfinished",
    "with_stage",
    "with_tail",
]

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
    """Return an estimate, as ``"missed_mass"`` if a trial run finds more evidence.

    Parameters
    ----------
    estimate : LogEvidence
        The estimate to be checked.
    log_z, mcse : float
        What the trial found, and its error, in nats. It is unbiased for Z, so that it exceeds Z by
        a factor of 20 with a probability of at most 1/20, however heavy the tail of its weights.
    kind : str
        ``"coarse"`` if the trial was a coarse annealing from the prior, as was the run, and
        ``"fitted"`` if it was a density fitted to such an annealing. Else what the run was annealed
        from: ``"base rates"`` of a machine, whose trial began with units of
        rate 1/2, or the name of a reference of a model, whose trial began with the prior.
    """
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
    """Return an estimate, as ``"missed_mass"`` if importance sampling finds more evidence.

    Parameters
    ----------
    estimate : LogEvidence
        The estimate to be checked.
    drawn : LogEvidence
        The importance sampling estimate of the same run.
    """
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
    """Return an importance sampling estimate, as ``"missed_mass"`` if its draws miss a region.

    Parameters
    ----------
    drawn : LogEvidence
        The importance sampling estimate.
    share : float
        Share of the posterior draws that lie in this region; see ``fit_checks.uncovered``.
    """
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
    """Return an estimate, as ``"not_mixed"`` if the chains of its islands have hardly moved.

    Parameters
    ----------
    estimate : LogEvidence
        An estimate that importance sampling does not confirm.
    correlation : float or None
        Mean correlation between states of a chain, see ``fit_checks.chain_correlation``; None if
        there are no chains.
    drawn : LogEvidence
        The importance sampling estimate, which is not ok.
    remedy : str
        What to do, apart from another parametrisation.
    """
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
    """Return an estimate with the error of the tail that its draws may not have reached.

    Parameters
    ----------
    estimate : LogEvidence
        An estimate from importance weights.
    log_weight : ndarray, shape (n,)
        Log weights in nats of draws from a fitted density.
    reached : float
        Share of posterior draws with larger weights than any of these.
    """
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
    """Return an estimate, as ``"few_values"``: the likelihood consists of steps.

    Parameters
    ----------
    estimate : LogEvidence
        The estimate.
    n_values : int
        Number of values of the likelihood at all draws.
    n_draws : int
        Number of independent prior draws among these.
    """
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
    """Return an estimate whose status, if it was ``"ok"``, says what ended the run.

    Parameters
    ----------
    estimate : LogEvidence
        The recommended estimate of the run.
    limit : str
        ``"max_time"``, ``"max_draws"``, ``GIVEN_DRAWS``, or ``"interrupted"``, which the message of
        an estimate of another status names as well.
    target_mcse : float
        The error in nats that was asked for; NaN if none was.
    """
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


# Largest error of integrals over local variables with which an estimate is used, in nats.
_MOST_INTEGRATION_ERROR = 0.1


def of_noise(estimate: LogEvidence, facts: Mapping[str, Any]) -> LogEvidence:
    """Return an estimate, as ``"noisy_likelihood"`` if the likelihood is too noisy to trust it.

    An estimate that has another status already keeps it, and the message names both reasons.

    Parameters
    ----------
    estimate : LogEvidence
        An estimate of the run.
    facts : mapping
        Of the run: ``log_likelihood_variance`` in square nats, ``n_particles`` of each estimator
        and ``noise_acceptance``, the largest acceptance probability that the noise permits.
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


def of_integration(estimate: LogEvidence, error: float) -> LogEvidence:
    """Return an estimate with the error of the integrals over local variables in its own.

    An error of more than 0.1 nats is no error of rounding: finer nodes found a mode that the run
    has missed.

    Parameters
    ----------
    estimate : LogEvidence
        An estimate of the run.
    error : float
        Change of the log likelihood by finer nodes, in nats.
    """
    estimate = replace(estimate, mcse=float(np.hypot(estimate.mcse, error)))
    if error <= _MOST_INTEGRATION_ERROR or estimate.status != Status.OK:
        return estimate
    message = (
        f"finer nodes change the integrals over local variables by {error:.2g} nats: they have "
        "modes that the nodes of this run have missed. Pass marginalise=False."
    )
    return replace(estimate, status=Status.MISSED_MASS, message=message)


def times(distance: float, error: float) -> str:
    """Return a distance in units of its standard error as text; the error may be exactly 0."""
    return f"{distance / error:.1f}" if error > 0.0 else "infinitely many"
