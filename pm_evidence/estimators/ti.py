"""Thermodynamic integration: the mean energy, integrated over inverse temperature."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pm_evidence.core.checks import check_choice, float_array
from pm_evidence.core.codegen.numba import njit
from pm_evidence.core.codegen.vectors import fast_exp
from pm_evidence.core.numerics import dot, total
from pm_evidence.core.records import LogEvidence, Status
from pm_evidence.estimators.errors import Clusters, interval, spread
from pm_evidence.estimators.rts import Shares, shares_of
from pm_evidence.estimators.tempered import (
    Tempered,
    checked_beta,
    concluded,
    no_support,
    tempered,
)

Floats = NDArray[np.float64]
# Largest error of a rule, in standard errors, that the interval still covers.
_COARSE = 1.0


RULES = ("riemann", "trapezoid", "corrected")


def riemann(beta: Floats) -> Floats:
    """Return the weights of function values in a right Riemann sum, shape of ``beta``."""
    return np.append(0.0, np.diff(beta))


def trapezoid(beta: Floats) -> Floats:
    """Return the weights of function values in the trapezoidal rule, shape of ``beta``."""
    step = np.diff(beta)
    sides: Floats = 0.5 * (np.append(step, 0.0) + np.append(0.0, step))
    return sides


def correction(beta: Floats) -> Floats:
    """Return the weights of variances of the energy in the correction of the trapezoidal rule.

    The slope of minus the mean energy is the variance of the energy, so that the trapezoidal rule
    for minus the mean energy lacks ``-sum_k (beta[k + 1] - beta[k])**2 (V[k + 1] - V[k]) / 12``
    in nats, with variances ``V`` in square nats (Friel, Hurn and Wyse 2014, Eq. 6).
    """
    square = np.diff(beta) ** 2 / 12.0
    terms: Floats = np.append(square, 0.0) - np.append(0.0, square)
    return terms


def weights(rule: str, beta: Floats) -> tuple[Floats, Floats]:
    """Return the weights of minus the mean energies and of the variances under a rule."""
    means = riemann(beta) if rule == "riemann" else trapezoid(beta)
    return means, correction(beta) if rule == "corrected" else np.zeros(len(beta))


@dataclass(frozen=True, slots=True)
class OfDrawn:
    """Moments of the energies of the states that were drawn at each temperature."""

    states: Tempered  # the states
    # shape (n_known,): temperatures with a state of finite energy, mean and variance of the finite
    # energies there, in nats and square nats
    beta: Floats
    mean: Floats
    variance: Floats
    # Log of the share of the density at ``beta = 0`` where the likelihood is not zero, in nats: a
    # jump of log Z that no integral of mean energies shows
    log_alive: float

    @classmethod
    def of(cls, states: Tempered) -> "OfDrawn":
        """Return the moments at the temperatures that have a state of finite energy."""
        alive = np.isfinite(states.energy)
        size, rung = len(states.beta), states.rung
        energy = np.where(alive, states.energy, 0.0)
        n = np.bincount(rung, alive, minlength=size)
        seen = np.flatnonzero(n)
        mean = np.bincount(rung, energy, minlength=size) / np.maximum(n, 1.0)
        square = np.where(alive, (energy - mean[rung]) ** 2, 0.0)
        variance = np.bincount(rung, square, minlength=size) / np.maximum(n - 1.0, 1.0)
        drawn = states.counts[0]
        with np.errstate(divide="ignore"):
            log_alive = float(np.log(n[0] / drawn)) if drawn else 0.0
        return cls(states, states.beta[seen], mean[seen], variance[seen], log_alive)

    def influence(self, of_mean: Floats, of_variance: Floats) -> Floats:
        """Return the influence of every state on a sum of moments; see `ti`."""
        states = self.states
        alive = np.isfinite(states.energy)
        known = np.searchsorted(self.beta, states.beta[states.rung])
        known = np.minimum(known, len(self.beta) - 1)  # of states that are not alive
        n = np.bincount(known, alive, minlength=len(self.beta))
        energy = np.where(alive, states.energy, self.mean[known])
        rest = energy - self.mean[known]
        mean_square = self.variance * (n - 1.0) / n
        square = np.where(alive, rest**2 - mean_square[known], 0.0)
        values: Floats = (of_variance[known] * square - of_mean[known] * rest) / n[known]
        zero = states.rung == 0
        if zero.any():
            values += zero * (alive / max((zero & alive).sum(), 1) - 1.0 / zero.sum())
        return values


@dataclass(frozen=True, slots=True)
class OfAll:
    """Moments over all states, weighted by the probability of each temperature given the state."""

    shares: Shares  # the states, and their probabilities of the temperatures
    alive: NDArray[np.bool_]  # shape (n,): which states have a finite energy
    log_density: Floats  # shape (n_alive,): log marginal density of those, as in `Shares`
    # shape (n_temperatures,): log of the sums over those of the shares, as in `Shares`
    log_sums: Floats
    beta: Floats  # as in `OfDrawn`
    mean: Floats
    variance: Floats
    log_alive: float

    @classmethod
    def of(cls, shares: Shares) -> "OfAll":
        """Return the moments at all temperatures."""
        alive = np.isfinite(shares.energy)
        energy, log_density = shares.energy[alive], shares.log_density[alive]
        log_sums, size = shares.log_sums.copy(), len(shares.beta)
        at_zero = np.exp(shares.relative(0))
        share = float(at_zero[alive].sum())
        log_sums[0] += np.log(share)
        mean, variance = np.empty((2, size))
        _moments(shares.beta, energy, log_density, log_sums, mean, variance)
        return cls(
            shares,
            alive,
            log_density,
            log_sums,
            shares.beta,
            mean,
            variance,
            float(np.log(share)),
        )

    def influence(self, of_mean: Floats, of_variance: Floats) -> Floats:
        """Return the influence of every state on a sum of moments; see `ti`."""
        at_zero = np.exp(self.shares.relative(0))
        values = -at_zero
        values[self.alive] += at_zero[self.alive] / np.exp(self.log_alive)
        added = np.zeros(int(self.alive.sum()))
        energy = self.shares.energy[self.alive]
        for_each = np.stack([self.mean, self.variance, of_mean, of_variance])
        _influence(self.beta, energy, self.log_density, self.log_sums, for_each, added)
        values[self.alive] += added
        return values - values.mean()


@njit
def _moments(
    beta: Any, energy: Any, log_density: Any, log_sums: Any, mean: Any, variance: Any
) -> None:
    weight, rest = np.empty(energy.size), np.empty(energy.size)
    for k in range(beta.size):
        for n in range(energy.size):
            weight[n] = fast_exp(-beta[k] * energy[n] - log_density[n] - log_sums[k])
        mean[k] = dot(weight, energy) / total(weight)
        for n in range(energy.size):
            rest[n] = (energy[n] - mean[k]) ** 2
        variance[k] = dot(weight, rest) / total(weight)


@njit
def _influence(
    beta: Any, energy: Any, log_density: Any, log_sums: Any, for_each: Any, out: Any
) -> None:
    for k in range(beta.size):
        mean, variance, of_mean, of_variance = for_each[:, k]
        for n in range(energy.size):
            weight = fast_exp(-beta[k] * energy[n] - log_density[n] - log_sums[k])
            rest = energy[n] - mean
            out[n] += weight * (of_variance * (rest * rest - variance) - of_mean * rest)


# The corrected rule with steps of half the length has an error 16 times smaller.
_HALVED = 16.0


def ti(
    beta: ArrayLike,
    energy: ArrayLike,
    rung: ArrayLike,
    *,
    rule: str = "corrected",
    groups: ArrayLike | None = None,
) -> LogEvidence:
    """Estimate log Z as the integral of minus the mean energy over inverse temperature.

    Parameters
    ----------
    beta, energy, rung, groups
        As for `mbar`.
    rule : str
        ``"riemann"``: right Riemann sum. ``"trapezoid"``: trapezoidal rule. ``"corrected"``: the
        trapezoidal rule with the correction by the variances of the energy.

    Returns
    -------
    LogEvidence
        The integral, with a Student interval from the groups. The interval does not include the
        error of the rule.

    Raises
    ------
    ValueError
        As `mbar`, and if there is no such rule.

    Notes
    -----
    Gelman and Meng (1998); Friel and Pettitt (2008); for the correction Friel, Hurn and Wyse
    (2014), Eq. 6. Unbiased for the sum that stands for the integral, but inconsistent: the error of
    the rule stays as the chains become longer. It is estimated for the Riemann sum and the
    trapezoidal rule from the better rules, and for the corrected one from twice the steps; if it
    exceeds the Monte Carlo error, the status is ``"coarse_schedule"``. Then use more temperatures,
    or `mbar`, which has no such error.

    The mean at a temperature without states is interpolated linearly between its neighbours, as in
    Carlson, Stinson, Pakman and Paninski (2016), section 4.3; the message says so. An end of the
    ladder without states takes the mean of its neighbour and has the status ``"coarse_schedule"``.
    Where the likelihood can be zero, log Z has a jump at ``beta = 0``, the log of the share of
    states there that have a finite energy, which is added.

    Examples
    --------
    >>> import numpy as np
    >>> rng, beta = np.random.default_rng(1), np.linspace(0.0, 1.0, 21) ** 2
    >>> rung = np.tile(np.arange(21), 1000)
    >>> x = rng.normal(size=21_000) / np.sqrt(1.0 + 9.0 * beta[rung])
    >>> ti(beta, 4.5 * x**2, rung)  # exactly -0.5 log(10) = -1.151
    LogEvidence(value=-1.136, mcse=0.012, estimator="ti", status="ok")
    """
    check_choice("rule", rule, RULES)
    states = tempered(beta, energy, rung, groups)
    if not states.alive:
        return no_support(_name("ti", rule))
    return _integral(_name("ti", rule), rule, states.beta, OfDrawn.of(states), states.clusters)


def ti_rb(
    beta: ArrayLike,
    energy: ArrayLike,
    log_z: ArrayLike,
    *,
    prior: ArrayLike | None = None,
    rule: str = "corrected",
    groups: ArrayLike | None = None,
) -> LogEvidence:
    """Integrate the mean energy, where every state counts at all temperatures.

    Parameters
    ----------
    beta, energy, log_z, prior
        As for `rts`: states of simulated tempering.
    rule : str
        As for `ti`.
    groups : array_like, optional
        As for `rts`.

    Returns
    -------
    LogEvidence
        The integral, with a Student interval from the groups. The interval does not include the
        error of the rule.

    Raises
    ------
    ValueError
        As `rts`, and if there is no such rule.

    Notes
    -----
    Carlson, Stinson, Pakman and Paninski (2016), Eq. 21: means of the energy over all states,
    weighted by the conditional probability of the temperature. For many temperatures the estimate
    is that of `rts` (their Appendix C), which has no error of a rule and is to be preferred. The
    conditional probabilities only hold for states of simulated tempering with these ``log_z`` and
    ``prior``.

    Examples
    --------
    >>> import numpy as np
    >>> rng, beta = np.random.default_rng(1), np.linspace(0.0, 1.0, 21) ** 2
    >>> log_z = -0.5 * np.log(1.0 + 9.0 * beta)
    >>> x = rng.normal(size=5000) / np.sqrt(1.0 + 9.0 * beta[rng.integers(21, size=5000)])
    >>> ti_rb(beta, 4.5 * x**2, log_z)  # exactly -0.5 log(10) = -1.151
    LogEvidence(value=-1.137, mcse=0.018, estimator="ti_rb", status="ok")
    """
    check_choice("rule", rule, RULES)
    joint, dependence = shares_of(beta, energy, log_z, prior, groups)
    name = _name("ti_rb", rule)
    if not joint.alive:
        return no_support(name)
    moments = OfAll.of(joint.rounds[0])
    return _integral(name, rule, moments.beta, moments, dependence, joint.verdict())


def _name(first: str, rule: str) -> str:
    return first if rule == "corrected" else f"{first}_{rule}"


def _integral(
    name: str,
    rule: str,
    beta: Floats,
    moments: OfDrawn | OfAll,
    clusters: Clusters,
    problem: tuple[Status, str] = (Status.OK, ""),
) -> LogEvidence:
    """Return the integral with its error; ``problem`` is what is wrong with the moments."""
    if not np.isfinite(moments.log_alive):
        return no_support(name)
    of_mean, of_variance = _on_ladder(rule, beta, moments.beta)
    value = moments.log_alive + float(of_variance @ moments.variance - of_mean @ moments.mean)
    found = clusters.spread(moments.influence(of_mean, of_variance))
    if problem[0] != Status.OK:
        return concluded(name, value, found, *problem)
    missing = np.setdiff1d(beta, moments.beta)
    filled = _filled(missing, len(beta))
    rule_error = _rule_error(rule, moments)
    coarse = abs(rule_error) > _COARSE * found.mcse
    if not coarse and not np.isin(missing, beta[[0, -1]]).any():
        return concluded(name, value, found, Status.OK, filled)
    message = filled
    if coarse:
        message += (
            f"the rule is wrong by about {rule_error:.2g} nats on {len(moments.beta)} "
            "temperatures, which mcse does not include. Use more temperatures, or mbar."
        )
    return concluded(name, value, found, Status.COARSE_SCHEDULE, message)


def _on_ladder(rule: str, beta: Floats, known: Floats) -> tuple[Floats, Floats]:
    """Return the weights of the known means and variances, where other means are interpolated.

    The correction takes the steps between temperatures with known variances.
    """
    of_mean, _ = weights(rule, beta)
    unit = np.eye(len(known))
    filled = np.stack([np.interp(beta, known, row) for row in unit], axis=1)
    return of_mean @ filled, weights(rule, known)[1]


def _rule_error(rule: str, moments: OfDrawn | OfAll) -> float:
    """Return by how much the integral under a rule is too large, in nats."""
    beta = moments.beta

    def integral(which: str, at: Floats | slice) -> float:
        points = beta[at]
        of_mean, of_variance = weights(which, points)
        return float(of_variance @ moments.variance[at] - of_mean @ moments.mean[at])

    everywhere = slice(None)
    if rule != "corrected":
        return integral(rule, everywhere) - integral("corrected", everywhere)
    if len(beta) < 3:
        return integral("corrected", everywhere) - integral("trapezoid", everywhere)
    second = np.unique(np.append(np.arange(0, len(beta), 2), len(beta) - 1))
    twice = integral("corrected", second)
    return (twice - integral("corrected", everywhere)) / (_HALVED - 1.0)


def _filled(missing: Floats, size: int) -> str:
    if not missing.size:
        return ""
    return (
        f"no state of finite energy was drawn at {missing.size} of {size} temperatures, whose mean "
        "energies are interpolated linearly or taken from the nearest temperature. "
    )


def power_posterior(
    beta: ArrayLike, energy: ArrayLike, variance: ArrayLike | None = None
) -> LogEvidence:
    """Estimate log Z as the integral of minus the mean energy over inverse temperature.

    Parameters
    ----------
    beta : array_like, shape (n_stages + 1,)
        Inverse temperatures, from 0 to 1.
    energy : array_like, shape (n_islands, n_stages + 1)
        Mean energy of each independent population at each inverse temperature, in nats; minus the
        mean log likelihood on a geometric path.
    variance : array_like, shape (n_islands, n_stages + 1), optional
        Variance of the energy there, from which the error of the trapezoidal rule is estimated.

    Returns
    -------
    LogEvidence
        The status is ``"coarse_schedule"`` if the error of the trapezoidal rule exceeds the Monte
        Carlo error.

    Raises
    ------
    ValueError
        If inverse temperatures do not rise, shapes do not fit, a value is not finite, or a variance
        is negative.

    Notes
    -----
    Friel and Pettitt (2008); with an estimated likelihood Tran et al., Eq. 9 to 11. The slope of
    the mean log likelihood is its variance, so the leading error of the trapezoidal rule is
    ``-sum (beta step)**2 (change of variance) / 12`` (Friel, Hurn and Wyse 2014, Eq. 6).

    Examples
    --------
    >>> import numpy as np
    >>> beta = np.linspace(0.0, 1.0, 11)
    >>> round(power_posterior(beta, np.stack([3.0 - beta, 3.1 - beta])).value, 6)
    -2.55
    """
    beta, energy, variance = _checked(beta, energy, variance)
    each = -energy @ trapezoid(beta)
    value = float(each.mean())
    error = spread(((each - value) / len(each), None))
    lower, upper = interval(value, error)
    status, message = Status.OK, ""
    if not np.isfinite(error.mcse):
        status = Status.NO_ERROR
        message = "a single population gives no error estimate. Use at least two."
    elif variance is not None:
        lacking = float(correction(beta) @ variance.mean(axis=0))
        if abs(lacking) > _COARSE * error.mcse:
            status = Status.COARSE_SCHEDULE
            message = (
                f"the trapezoidal rule over {beta.size - 1} stages is wrong by about "
                f"{-lacking:.2g} nats, which mcse does not include. Use more stages, or the "
                "estimate 'smc' of the same run."
            )
    return LogEvidence(
        value, error.mcse, "power_posterior", status, lower, upper, message, error.dof
    )


def _checked(
    beta: ArrayLike, energy: ArrayLike, variance: ArrayLike | None
) -> tuple[Floats, Floats, Floats | None]:
    """Return the arrays; raise ValueError where one is unusable."""
    beta = checked_beta(beta)
    given = {"energy": float_array("energy", energy)}
    if variance is not None:
        given["variance"] = float_array("variance", variance)
    for name, values in given.items():
        if values.ndim != 2 or values.shape[1] != beta.size or not len(values):
            raise ValueError(
                f"{name} must have shape (n_islands, {beta.size}), one value for each inverse "
                f"temperature, got {values.shape}; transpose it, or pass the same beta."
            )
        wrong = ~np.isfinite(values) if name == "energy" else ~(values >= 0.0)
        if wrong.any():
            rule = "finite" if name == "energy" else "at least 0"
            raise ValueError(
                f"{name} must be {rule}, got {values[wrong][0]}; find out why these stages failed."
            )
    return beta, given["energy"], given.get("variance")
