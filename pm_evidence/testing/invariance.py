"""Statistical checks for kernels: invariance, and whether ``reversed`` is the time reversal.

Both start from exact draws at one inverse temperature, for example of a conjugate model, of a table
of states, or of a long run of another sampler. They compare means, so that a kernel which passes
may still be wrong: use many members, and kernels that move far enough for an error to show.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from pm_evidence.core.checks import check_count, check_share
from pm_evidence.core.contracts import Kernel, Path, State
from pm_evidence.core.random import streams

__all__ = ["Functions", "KernelReport", "check_invariance", "check_reversal", "standard_functions"]

Floats = NDArray[np.float64]
Functions = Callable[[NDArray[Any]], dict[str, Floats]]

_LEAST_MEMBERS = 100
# Products of all pairs up to this many coordinates, of neighbours only beyond it.
_ALL_PAIRS = 8
# Where standardised coordinates are cut: bounded functions have a central limit theorem, whatever
# the tails of the density.
_BOUND = 10.0
_NORMAL_QUARTILES = 1.349  # interquartile range of a standard normal


@dataclass(frozen=True, slots=True)
class KernelReport:
    """The result of a check of a kernel.

    Parameters
    ----------
    names : tuple of str
        The statistics.
    z : ndarray, shape (n_statistics,)
        Their deviations in standard errors, which have mean 0 for a correct kernel.
    limit : float
        Largest deviation that passes, from the false-alarm rate by Bonferroni's inequality.
    moved : float
        Share of the members whose state has changed. A kernel that never moves would pass.
    """

    names: tuple[str, ...]
    z: Floats
    limit: float
    moved: float

    @property
    def worst(self) -> tuple[str, float]:
        """Name and deviation of the worst statistic."""
        k = int(np.argmax(np.abs(self.z)))
        return self.names[k], float(self.z[k])

    @property
    def passed(self) -> bool:
        """Whether no deviation exceeds the limit."""
        return bool(np.all(np.abs(self.z) <= self.limit))


def check_invariance(
    kernel: Kernel,
    path: Path,
    population: State,
    beta: float,
    *,
    n_moves: int = 3,
    functions: Functions | None = None,
    seed: int = 0,
    false_alarm: float = 1e-6,
) -> KernelReport:
    """Check that a kernel leaves the density at ``beta`` invariant.

    Parameters
    ----------
    kernel : Kernel
        The kernel, with its settings fixed: one that learns from the population that it moves is
        not invariant.
    path : Path
        The path that it moves on.
    population : State
        Independent exact draws at ``beta``, at least 100 and better 10,000.
    beta : float
        Inverse temperature.
    n_moves : int
        Number of applications of the kernel.
    functions : callable, optional
        From draws, shape ``(n, ...)``, to a dictionary of test functions, each of shape ``(n,)``;
        :func:`standard_functions` by default. The energy is added to them.
    seed : int
        Seed of the kernel's streams.
    false_alarm : float
        Probability that a correct kernel fails.

    Returns
    -------
    KernelReport
        If the check is passed.

    Raises
    ------
    AssertionError
        If the mean of a test function has moved by more than chance allows.
    ValueError
        If the population is too small, or an energy or a test function is NaN.

    Notes
    -----
    Members are independent, so the changes ``f(y) - f(x)`` of a test function between start and end
    are independent as well. They have mean zero, which is tested by a two-sided z-test, exact for
    large populations. The use of differences removes the variance between the starts.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> from pm_evidence import HMC
    >>> from pm_evidence.paths.geometric import GeometricPath
    >>> from pm_evidence.targets.model.target import PyMCTarget
    >>> from pm_evidence.testing import check_invariance
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", 0, 1)
    ...     y = pm.Normal("y", mu, 1, observed=2.0)
    >>> target = PyMCTarget(model)
    >>> beta = 0.5  # prior precision 1, half a datum of precision 1
    >>> x = np.random.default_rng(1).normal(2.0 * 0.5 / 1.5, 1.5**-0.5, size=(10_000, 1))
    >>> path, population = GeometricPath(target), target.evaluate(x)
    >>> kernel = HMC().learn(path, population)
    >>> check_invariance(kernel, path, population, beta).passed
    True
    """
    check_share("false_alarm", false_alarm, 1e-6)
    look = _Look(path, beta, population, functions)
    n = len(population)
    chains = streams(np.random.SeedSequence(seed), n)
    state: Any = population
    for _ in range(check_count("n_moves", n_moves, 1)):
        state, _ = kernel.advance(path, state, beta, chains)
    before, after = look(population), look(state)
    z = np.array([_z(after[name] - before[name]) for name in before])
    report = _report(tuple(before), z, false_alarm, population, state)
    if not report.passed:
        name, deviation = report.worst
        raise AssertionError(
            f"the kernel does not leave the density at beta={beta} invariant: after {n_moves} "
            f"moves of {n} exact draws the mean of {name} went from "
            f"{before[name].mean():.5g} to {after[name].mean():.5g}, {deviation:.1f} standard "
            f"errors (limit {report.limit:.1f} at a false-alarm rate of {false_alarm:g}). Look at "
            "the accept step, at the densities that the state carries, and whether the draws "
            "were exact."
        )
    return report


def check_reversal(
    kernel: Kernel,
    path: Path,
    population: State,
    beta: float,
    *,
    functions: Functions | None = None,
    seed: int = 0,
    false_alarm: float = 1e-6,
) -> KernelReport:
    """Check that ``kernel.reversed()`` is the time reversal of a kernel at ``beta``.

    Parameters
    ----------
    kernel, path, population, beta, functions, seed, false_alarm
        As in :func:`check_invariance`. Half of the population is moved by the kernel, the other
        half by its reversal.

    Returns
    -------
    KernelReport
        If the check is passed.

    Raises
    ------
    AssertionError
        If forward and backward pairs differ by more than chance allows.
    ValueError
        If the population is too small, or an energy or a test function is NaN.

    Notes
    -----
    With ``x`` and ``y'`` exact draws, ``y`` the kernel's move of ``x`` and ``x'`` the reversal's
    move of ``y'``, the pairs ``(x, y)`` and ``(x', y')`` have one distribution. So the means of
    ``f(x) g(y)`` and ``f(x') g(y')`` agree for all test functions: a two-sided z-test for each
    pair of them. Neal (2001), Eq. 8, is the reversal meant here; reverse annealing rests on it.
    """
    check_share("false_alarm", false_alarm, 1e-6)
    look = _Look(path, beta, population, functions)
    index = np.arange(len(population))
    first, last = population.take(index[::2]), population.take(index[1::2])
    chains = streams(np.random.SeedSequence(seed), len(population))
    moved: Any = kernel.advance(path, first, beta, chains[::2].copy())[0]
    back: Any = kernel.reversed().advance(path, last, beta, chains[1::2].copy())[0]
    x, y = look(first), look(moved)
    old_y, old_x = look(last), look(back)
    # centred: products of means would only add noise
    centre = {name: 0.5 * (x[name].mean() + old_y[name].mean()) for name in x}
    names, z = [], []
    for f, c in centre.items():
        for g, d in centre.items():
            forward = (x[f] - c) * (y[g] - d)
            backward = (old_x[f] - c) * (old_y[g] - d)
            names.append(f"{f} before, {g} after")
            z.append(_z_of_two(forward, backward))
    report = _report(tuple(names), np.array(z), false_alarm, first, moved)
    if not report.passed:
        name, deviation = report.worst
        raise AssertionError(
            f"reversed() is not the kernel's reversal at beta={beta}: the mean product of "
            f"({name}) differs by {deviation:.1f} standard errors between {len(first)} forward "
            f"and {len(last)} backward pairs (limit {report.limit:.1f} at a false-alarm rate of "
            f"{false_alarm:g}). A sweep has to run in the opposite order, and a cycle as well."
        )
    return report


def standard_functions(draws: NDArray[Any]) -> Functions:
    """Return coordinates, their squares and their products as test functions.

    Parameters
    ----------
    draws : ndarray, shape (n, ...)
        Where location and scale of every coordinate are taken from.

    Returns
    -------
    callable
        From draws to a dictionary of arrays of shape ``(n,)``. Coordinates are centred by their
        median, scaled by their interquartile range and cut at ten normal standard deviations, so
        that the z-tests hold for heavy tails too.
    """
    bounded = _Bounded.of(_flat(draws))

    def functions(draws: NDArray[Any]) -> dict[str, Floats]:
        u = bounded(_flat(draws))
        d = u.shape[1]
        pairs = list(combinations(range(d), 2))
        if d > _ALL_PAIRS:
            pairs = [(j, j + 1) for j in range(d - 1)]
        values = {f"x{j}": u[:, j] for j in range(d)}
        values |= {f"x{j}^2": u[:, j] ** 2 for j in range(d)}
        return values | {f"x{j} x{k}": u[:, j] * u[:, k] for j, k in pairs}

    return functions


@dataclass(frozen=True, slots=True)
class _Bounded:
    """Columns centred, scaled and cut; infinities end at the cut."""

    middle: Floats
    scale: Floats

    @classmethod
    def of(cls, x: Floats) -> Self:
        low, middle, high = np.quantile(x, (0.25, 0.5, 0.75), axis=0)
        scale = (high - low) / _NORMAL_QUARTILES
        scale = np.where(scale > 0, scale, x.std(axis=0))
        return cls(middle, np.where(scale > 0, scale, 1.0))

    def __call__(self, x: Floats) -> Floats:
        return np.clip((x - self.middle) / self.scale, -_BOUND, _BOUND)


class _Look:
    """Test functions and energy of a population, scaled by those of the first one."""

    def __init__(
        self, path: Path, beta: float, population: State, functions: Functions | None
    ) -> None:
        draws = population.to_draws()
        if len(draws) < _LEAST_MEMBERS:
            raise ValueError(
                f"population must have at least {_LEAST_MEMBERS} members for a z-test, got "
                f"{len(draws)}; draw more."
            )
        energy = path.energy(population, beta)
        finite = energy[np.isfinite(energy)]
        self._path, self._beta = path, beta
        self._functions = functions or standard_functions(draws)
        self._energy = _Bounded.of(finite if finite.size else np.zeros(1))

    def __call__(self, state: Any) -> dict[str, Floats]:
        values = dict(self._functions(state.to_draws()))
        values["energy"] = self._energy(self._path.energy(state, self._beta))
        for name, value in values.items():
            if np.isnan(value).any():
                raise ValueError(
                    f"test functions must be numbers, got NaN of {name} at "
                    f"{int(np.isnan(value).sum())} members; leave such members out."
                )
        return values


def _flat(draws: NDArray[Any]) -> Floats:
    return np.reshape(draws, (len(draws), -1)).astype(float)


def _z(change: Floats) -> float:
    """Return the mean of independent changes in standard errors."""
    return _ratio(float(change.mean()), float(change.var(ddof=1)) / len(change))


def _z_of_two(a: Floats, b: Floats) -> float:
    """Return the difference of the means of two independent samples in standard errors."""
    variance = a.var(ddof=1) / len(a) + b.var(ddof=1) / len(b)
    return _ratio(float(a.mean() - b.mean()), float(variance))


def _ratio(difference: float, variance: float) -> float:
    if variance == 0.0:
        return 0.0 if difference == 0.0 else float(np.copysign(np.inf, difference))
    return float(difference / variance**0.5)


def _report(
    names: tuple[str, ...], z: Floats, false_alarm: float, before: State, after: State
) -> KernelReport:
    limit = float(norm.isf(0.5 * false_alarm / len(names)))
    changed = _flat(before.to_draws()) != _flat(after.to_draws())
    return KernelReport(names, z, limit, float(changed.any(axis=1).mean()))
