"""Thermodynamic integration: the mean energy, integrated over inverse temperature."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pm_evidence.core.checks import check_choice
from pm_evidence.core.records import LogEvidence
from pm_evidence.core.statuses import Status
from pm_evidence.estimators.clusters import Clusters
from pm_evidence.estimators.energy_moments import EnergyMoments, OfAll, OfDrawn
from pm_evidence.estimators.quadrature import RULES, weights
from pm_evidence.estimators.rts import shares_of
from pm_evidence.estimators.tempered import concluded, no_support, tempered

__all__ = ["ti", "ti_rb"]

Floats = NDArray[np.float64]

# Largest error of the rule, in standard errors, that the interval still covers.
_COARSE = 1.0
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
    shares, dependence = shares_of(beta, energy, log_z, prior, groups)
    name = _name("ti_rb", rule)
    if not np.isfinite(shares.energy).any():
        return no_support(name)
    found = shares.verdict()
    return _integral(name, rule, shares.beta, OfAll.of(shares), dependence, found)


def _name(first: str, rule: str) -> str:
    return first if rule == "corrected" else f"{first}_{rule}"


def _integral(
    name: str,
    rule: str,
    beta: Floats,
    moments: EnergyMoments,
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


def _rule_error(rule: str, moments: EnergyMoments) -> float:
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
