"""The multistate Bennett acceptance ratio: samples of several densities together."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pm_evidence.core.checks import described, float_array, whole_array
from pm_evidence.core.numerics import log_mean_exp
from pm_evidence.core.records import LogEvidence
from pm_evidence.core.statuses import Status
from pm_evidence.estimators.clusters import Clusters, clusters
from pm_evidence.estimators.mbar_equations import LEAST_COMMON, Multistate, solve
from pm_evidence.estimators.mixture import finite_potentials
from pm_evidence.estimators.standard_errors import Spread
from pm_evidence.estimators.tempered import (
    LogZCurve,
    Tempered,
    check_size,
    concluded,
    no_support,
    tempered,
)

__all__ = ["mbar", "mbar_curve", "multistate", "multistate_curve"]

Floats = NDArray[np.float64]


def mbar(
    beta: ArrayLike, energy: ArrayLike, rung: ArrayLike, *, groups: ArrayLike | None = None
) -> LogEvidence:
    """Estimate log Z from the states of chains at several temperatures.

    Parameters
    ----------
    beta : array_like of float64, shape (n_temperatures,)
        Inverse temperatures, rising from 0 to 1.
    energy : array_like of float64, shape (n_iterations, n_chains) or (n,)
        Minus the derivative of the log density by ``beta`` at every state, in nats; minus the log
        likelihood on a geometric path. ``inf`` (likelihood zero) is legal at ``beta = 0``.
    rung : array_like of int, of the same shape
        Index of the temperature at which every state was drawn.
    groups : array_like of int, shape (n_chains,) or (n,), optional
        Independent group of each chain (ladders of parallel tempering, for instance), or of each
        state of a flat array. By default every chain is a group; the states of a flat array are
        taken as independent.

    Returns
    -------
    LogEvidence
        Estimate of the log normalising constant at ``beta = 1`` relative to ``beta = 0``. Its
        interval is a Student interval from the groups or, for independent states, a normal one.

    Raises
    ------
    ValueError
        If ``beta`` does not rise from 0 to 1, the shapes differ, an energy is NaN, minus infinity
        or, at ``beta`` above 0, infinite, or an index is out of range.

    See Also
    --------
    mbar_curve : The constants at all temperatures.
    multistate : The same for densities that are no powers of each other.

    Notes
    -----
    Shirts and Chodera (2008), Eq. 11; also known as UWHAM (Tan, Gallicchio, Lapelosa and Levy 2012,
    where its likelihood is derived) and as reverse logistic regression (Geyer 1994). Consistent for
    fixed and for random numbers of states at each temperature, and among the estimators that only
    use the energies the one with the smallest asymptotic variance for independent states. A
    temperature without states is allowed; but where the likelihood can be zero, only states at
    ``beta = 0`` show how often it is.

    For independent states the error is the asymptotic one of Shirts and Chodera, Eq. 8. For chains
    it is the root of the sum of squares of influence values that are added up over groups or, if
    there are fewer than eight groups, over batches that are long compared with the autocorrelation
    time. It cannot be trusted if fewer than about ten states could be of either of two sets of
    temperatures (status ``"no_overlap"``).

    The potentials are not stored: memory is linear in the number of states.

    Examples
    --------
    A normal prior and a normal likelihood: ``Z`` is ``(1 + 9 beta) ** -0.5`` exactly.

    >>> import numpy as np
    >>> rng, beta = np.random.default_rng(1), np.linspace(0.0, 1.0, 5)
    >>> rung = np.tile(np.arange(5), 1000)
    >>> x = rng.normal(size=5000) / np.sqrt(1.0 + 9.0 * beta[rung])
    >>> mbar(beta, 4.5 * x**2, rung)  # exactly -0.5 log(10) = -1.151
    LogEvidence(value=-1.135, mcse=0.023, estimator="mbar", status="ok")
    """
    states = tempered(beta, energy, rung, groups)
    if not states.alive:
        return no_support("mbar")
    solved = _of_ladder(states)
    return _estimate("mbar", solved, _dependence(energy, groups, states.clusters), states.beta)


def mbar_curve(
    beta: ArrayLike, energy: ArrayLike, rung: ArrayLike, *, groups: ArrayLike | None = None
) -> LogZCurve:
    """Estimate the log normalising constants at all temperatures; see `mbar`.

    Parameters
    ----------
    beta, energy, rung, groups
        As for `mbar`.

    Returns
    -------
    LogZCurve
        Log normalising constants relative to ``beta = 0`` in nats, with their covariance.

    Raises
    ------
    ValueError
        As `mbar`, and if every energy is infinite.

    Examples
    --------
    >>> import numpy as np
    >>> rng, beta = np.random.default_rng(1), np.linspace(0.0, 1.0, 3)
    >>> rung = np.tile(np.arange(3), 4000)
    >>> x = rng.normal(size=12_000) / np.sqrt(1.0 + 9.0 * beta[rung])
    >>> mbar_curve(beta, 4.5 * x**2, rung).log_z.round(2)  # exactly 0, -0.85, -1.15
    array([ 0.  , -0.86, -1.16])
    """
    states = tempered(beta, energy, rung, groups)
    if not states.alive:
        raise ValueError(
            "energy must be finite at one state or more, got inf at all; use longer chains, or "
            "check the support of the likelihood."
        )
    return _curve(_of_ladder(states), _dependence(energy, groups, states.clusters))


def multistate(
    potential: ArrayLike, counts: ArrayLike, *, groups: ArrayLike | None = None
) -> LogEvidence:
    """Estimate the log ratio of two normalising constants from samples of any densities.

    Parameters
    ----------
    potential : array_like of float64, shape (n_states, n)
        Reduced potentials, that is minus unnormalised log densities in nats: of every state in the
        rows, at every sample in the columns. Samples are in the order of the states that they were
        drawn from. ``inf`` is legal where a sample is outside the support of another state.
    counts : array_like of int, shape (n_states,)
        Number of samples that were drawn from each state; may be zero.
    groups : array_like of int, shape (n,), optional
        Independent group of each sample; by default all samples are independent. The samples of a
        group stand in the order in which they were drawn.

    Returns
    -------
    LogEvidence
        Estimate of the log normalising constant of the last state relative to the first.

    Raises
    ------
    ValueError
        If shapes and counts do not fit, a potential is NaN or minus infinity, a sample has an
        infinite potential in the state that it was drawn from, or a state at all samples.

    See Also
    --------
    mbar : The same for a ladder of temperatures, without a table of potentials.

    Notes
    -----
    As for `mbar`. The arguments are those of pymbar (``u_kn`` and ``N_k``), and values and errors
    without ``groups`` agree with it.

    Examples
    --------
    >>> import numpy as np
    >>> rng, sd = np.random.default_rng(1), np.array([1.0, 0.5, 0.25])
    >>> x = rng.normal(size=3000) * np.repeat(sd, 1000)
    >>> multistate(0.5 * (x / sd[:, None]) ** 2, [1000, 1000, 1000])  # exactly log(0.25) = -1.386
    LogEvidence(value=-1.381, mcse=0.030, estimator="multistate", status="ok")
    """
    solved = _of_table(potential, counts)
    return _estimate("multistate", solved, _groups(solved, groups), None)


def multistate_curve(
    potential: ArrayLike, counts: ArrayLike, *, groups: ArrayLike | None = None
) -> LogZCurve:
    """Estimate the log normalising constants of all states; see `multistate`.

    Parameters
    ----------
    potential, counts, groups
        As for `multistate`.

    Returns
    -------
    LogZCurve
        Log normalising constants relative to the first state in nats, with their covariance.
        ``difference(j, i)`` gives the log ratio of two of them with its standard error.

    Raises
    ------
    ValueError
        As `multistate`.
    """
    solved = _of_table(potential, counts)
    return _curve(solved, _groups(solved, groups))


def _of_ladder(states: Tempered) -> Multistate:
    base = finite_potentials(states.energy)[None]
    return solve(states.beta, base, states.rung, states.counts, _stepping(states))


def _stepping(states: Tempered) -> Floats:
    """Return log normalising constants by stepping stones: a start for the solution.

    The mean energy at the reference may be dominated by a few states of a vague prior, so that
    integrating it would start far from the solution.
    """
    log_z, here = np.zeros(len(states.beta)), 0
    for k in range(1, len(states.beta)):
        energy = states.energy[states.at(here)]
        log_z[k] = log_z[here]
        if np.isfinite(energy).any():
            log_z[k] += log_mean_exp(-(states.beta[k] - states.beta[here]) * energy)
        if states.counts[k]:
            here = k
    return log_z


def _of_table(potential: ArrayLike, counts: ArrayLike) -> Multistate:
    table, n = _checked_table(potential, counts)
    state = np.repeat(np.arange(len(n)), n)
    own = table[state, np.arange(len(state))]
    if not np.isfinite(own).all():
        k = int(state[np.argmin(np.isfinite(own))])
        raise ValueError(
            f"potential must be finite where a sample was drawn from, got inf in state {k} at one "
            "of its own samples; order the samples by state."
        )
    barren = np.flatnonzero(~np.isfinite(table).any(axis=1))
    if barren.size:
        raise ValueError(
            f"potential must be finite at one sample or more of every state, got inf at all in "
            f"state {barren[0]}; leave the state out."
        )
    return solve(np.ones(len(n)), finite_potentials(table), state, n)


def _checked_table(potential: ArrayLike, counts: ArrayLike) -> tuple[Floats, NDArray[np.int64]]:
    """Return potentials and counts; raise ValueError where they are unusable."""
    table, n = float_array("potential", potential), whole_array("counts", counts)
    if table.ndim != 2 or len(table) < 2 or table.shape[1] == 0:
        raise ValueError(
            "potential must have shape (n_states, n) with at least two states and one sample, got "
            f"shape {table.shape}; pass the potential of every state at every sample."
        )
    bad = np.isnan(table) | (table == -np.inf)
    if bad.any():
        raise ValueError(
            f"potential must be a number or inf, got {table[bad][0]} at {int(bad.sum())} entries; "
            "find out why these densities failed."
        )
    check_size("potential", table)
    if n.ndim != 1 or n.size < 2 or n.min() < 0:
        raise ValueError(
            "counts must be a row of numbers of samples, one for each of at least two states, got "
            f"{described(n)}; count the columns of potential by the state they were drawn from."
        )
    if table.shape != (n.size, n.sum()):
        raise ValueError(
            f"potential must have a row for each of {n.size} counts and as many columns as counts "
            f"add up to, {n.sum()}, got shape {table.shape}; transpose it, or count again."
        )
    return table, n


def _dependence(
    energy: ArrayLike, groups: ArrayLike | None, of_chains: Clusters
) -> Clusters | None:
    """Return the clusters, or None if all states are independent."""
    return None if groups is None and np.ndim(energy) == 1 else of_chains


def _groups(solved: Multistate, groups: ArrayLike | None) -> Clusters | None:
    return None if groups is None else clusters(solved.state.shape, groups)


def _estimate(
    name: str, solved: Multistate, dependence: Clusters | None, beta: Floats | None
) -> LogEvidence:
    last = len(solved.counts) - 1
    value = float(solved.log_z[last] - solved.log_z[0])
    if dependence is None:
        variance = np.maximum(solved.covariance()[last, last], 0.0)
        found = Spread(float(np.sqrt(variance)), np.inf)
    else:
        found = dependence.spread(solved.influence(last))
    return concluded(name, value, found, *_verdict(solved, beta))


def _curve(solved: Multistate, dependence: Clusters | None) -> LogZCurve:
    log_z = solved.log_z - solved.log_z[0]
    if dependence is None:
        return LogZCurve(log_z, solved.covariance())
    return LogZCurve(log_z, *solved.clustered_covariance(dependence))


def _verdict(solved: Multistate, beta: Floats | None) -> tuple[Status, str]:
    """Return status and message: whether points of neighbouring states overlap."""
    labels = [
        f"state {k}" if beta is None else f"beta={beta[k]:.4g}" for k in range(len(solved.counts))
    ]
    common, most, lower = solved.narrowest
    if common < min(LEAST_COMMON, 0.5 * most):
        upper = np.setdiff1d(solved.sampled, lower)
        return Status.NO_OVERLAP, (
            f"the samples of {_span(labels, lower)} and of {_span(labels, upper)} hardly overlap "
            f"(about {common:.1f} samples could be of either): the error cannot be trusted. Use "
            "states between them, or more samples."
        )
    for k in (0, len(solved.counts) - 1):
        effective = 1.0 / float(solved.products[k, k])
        if not solved.counts[k] and effective < LEAST_COMMON:
            return Status.NO_OVERLAP, (
                f"no sample was drawn from {labels[k]}, and only about {effective:.1f} of the "
                "others would be typical of it: the error cannot be trusted. Draw samples from it."
            )
    return Status.OK, ""


def _span(labels: list[str], states: NDArray[np.int64]) -> str:
    ends = labels[states[0]], labels[states[-1]]
    return ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"
