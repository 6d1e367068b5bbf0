"""Checks that anybody can run on a new kernel, path, target or sampler.

Kernels leave the density invariant, and ``reversed`` is the time reversal; paths and samplers keep
their contracts; whole runs give the exact evidence.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path as File
from tempfile import TemporaryDirectory
from typing import Any, Self

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.stats import norm
from scipy.stats import t as student

from pm_evidence.api.arguments import chosen_sampler
from pm_evidence.api.sample import sample_evidence
from pm_evidence.core.checks import check_count, check_share, described, missing_members
from pm_evidence.core.contracts import (
    AnnealingSetup,
    BatchedKernel,
    Kernel,
    MoveInfo,
    Path,
    PerMemberKernel,
    State,
    Tunable,
)
from pm_evidence.core.exceptions import EvidenceWarning
from pm_evidence.core.numerics import ess_share, normalised
from pm_evidence.core.random import streams
from pm_evidence.core.records import LogEvidence
from pm_evidence.core.resampling import resample
from pm_evidence.families.native import checked_native
from pm_evidence.kernels.suitability import checked_kernel
from pm_evidence.results import log_evidence as stored_evidence
from pm_evidence.results.schema import WORK
from pm_evidence.runs.defaults import annealing_setup
from pm_evidence.samplers.sampler import MovesRepeatedly, Sampler

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
    >>> from pm_evidence.kernels import HMC
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
    name, deviation = report.worst
    require(
        report.passed,
        f"the kernel does not leave the density at beta={beta} invariant: after {n_moves} moves of "
        f"{n} exact draws the mean of {name} went from {before[name].mean():.5g} to "
        f"{after[name].mean():.5g}, {deviation:.1f} standard errors (limit {report.limit:.1f} at a "
        f"false-alarm rate of {false_alarm:g}). Look at the accept step, at the densities that the "
        "state carries, and whether the draws were exact.",
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
            z.append(_z(forward, backward))
    report = _report(tuple(names), np.array(z), false_alarm, first, moved)
    name, deviation = report.worst
    require(
        report.passed,
        f"reversed() is not the kernel's reversal at beta={beta}: the mean product of ({name}) "
        f"differs by {deviation:.1f} standard errors between {len(first)} forward and {len(last)} "
        f"backward pairs (limit {report.limit:.1f} at a false-alarm rate of {false_alarm:g}). A "
        "sweep has to run in the opposite order, and a cycle as well.",
    )
    return report


def standard_functions(draws: NDArray[Any]) -> Functions:
    """Return coordinates, their squares and their products as test functions."""
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


def _z(a: Floats, b: Floats | None = None) -> float:
    """Return the mean of a sample, or that less the mean of another one, in standard errors."""
    difference, variance = float(a.mean()), float(a.var(ddof=1)) / len(a)
    if b is not None:
        difference, variance = float(a.mean() - b.mean()), variance + float(b.var(ddof=1)) / len(b)
    if variance == 0.0:
        return 0.0 if difference == 0.0 else float(np.copysign(np.inf, difference))
    return difference / variance**0.5


def _report(
    names: tuple[str, ...], z: Floats, false_alarm: float, before: State, after: State
) -> KernelReport:
    limit = float(norm.isf(0.5 * false_alarm / len(names)))
    changed = _flat(before.to_draws()) != _flat(after.to_draws())
    return KernelReport(names, z, limit, float(changed.any(axis=1).mean()))


_BETAS = (0.0, 0.3, 0.5, 0.8, 1.0)
_SUM, _SLOPE = 1e-8, 1e-4  # relative tolerances of sums, and of slopes
_STEP = 1e-4  # of beta, for finite differences
_OF_STATE = ("__len__", "take", "join", "to_draws")


def check_path(path: Path, *, n: int = 200, seed: int = 0) -> None:
    """Check that a path and its populations do what samplers rely on.

    Parameters
    ----------
    path : Path
        The path.
    n : int
        Number of draws from the reference on which it is checked, at least 10.
    seed : int
        Seed of these draws.

    Raises
    ------
    AssertionError
        If the path or its populations lack a method; draws do not repeat with their seed; ``take``,
        ``join``, ``to_draws`` and ``at`` contradict each other; ``log_ratio`` does not add up
        along beta, or is not the integral of minus ``energy``; or ``order`` is no permutation.

    Notes
    -----
    The slope of ``log_ratio`` is compared with ``energy`` at beta 0.3, 0.5 and 0.8, by central
    differences with a relative tolerance of 1e-4. That ``draw`` samples the density at beta 0
    is not checked: give ``log_evidence`` to :func:`check_target`.

    Examples
    --------
    >>> import pm_evidence as pe
    >>> from pm_evidence.testing import check_path
    >>> check_path(pe.mixtures.Gaussian().annealing_setup("auto").path)
    """
    check_count("n", n, 10)
    missing = missing_members(path, Path)
    require(not missing, f"path must have {', '.join(missing)}; define what is missing.")
    state = _drawn(path, n, seed)
    _check_population(path, state)
    finite = np.isfinite(path.log_ratio(state, 0.0, 1.0))
    require(
        bool(finite.any()), "log_ratio(state, 0, 1) must be finite at some draws from the reference"
    )
    state = state.take(np.flatnonzero(finite))
    _check_sums(path, state)
    _check_slope(path, state)
    order = np.asarray(path.order(state))
    require(
        order.dtype.kind in "iu" and np.array_equal(np.sort(order), np.arange(len(state))),
        f"order must return a permutation of 0 to {len(state) - 1}, got {described(order)} that "
        "is none; use numpy.argsort.",
    )


def require(condition: bool, message: str) -> None:
    """Raise AssertionError with a message unless the condition holds."""
    if not condition:
        raise AssertionError(message)


@contextmanager
def _failing(*kinds: type[Exception]) -> Iterator[None]:
    """Raise AssertionError in place of exceptions of some kinds."""
    try:
        yield
    except kinds as error:
        raise AssertionError(str(error)) from error


def equal_draws(a: Any, b: Any) -> bool:
    """Return whether two populations hold the same draws, bit for bit."""
    return bool(np.array_equal(a.to_draws(), b.to_draws()))


def _drawn(path: Path, n: int, seed: int) -> Any:
    """Return draws from the reference, after checking their number and their seed."""
    state, again = (path.draw(n, np.random.SeedSequence(seed)) for _ in range(2))
    missing = [name for name in _OF_STATE if not hasattr(state, name)]
    require(
        not missing,
        f"draw must return a population, got {described(state)} without {', '.join(missing)}; "
        "pe.extending.Points is a population of rows of numbers.",
    )
    require(
        len(state) == n and len(state.to_draws()) == n,
        f"draw(n, seed) must return n={n} members, got {len(state)}, with "
        f"{len(state.to_draws())} draws; draw as many as are asked for.",
    )
    require(
        equal_draws(state, again),
        "draw must repeat with its seed, got other draws from an equal SeedSequence; take all "
        "random numbers from numpy.random.default_rng(seed).",
    )
    other = path.draw(n, np.random.SeedSequence(seed + 1))
    require(
        not equal_draws(state, other),
        "draw must depend on its seed, got equal draws from two seeds; use the seed.",
    )
    return state


def _check_population(path: Path, state: Any) -> None:
    """Check take, join, to_draws and at against each other."""
    draws = np.array(state.to_draws())
    n = len(draws)
    index = np.random.default_rng(0).integers(n, size=n)
    require(
        np.array_equal(state.take(index).to_draws(), draws[index]),
        "take(index) must return the members at index, repeats included, got others; index every "
        "array of the state.",
    )
    parts = [state.take(part) for part in np.array_split(np.arange(n), 3)]
    require(
        np.array_equal(parts[0].join(parts[1:]).to_draws(), draws),
        "join(others) must return this population followed by the others, got other draws; "
        "concatenate [self, *others].",
    )
    again = path.at(np.array(draws))
    require(
        np.array_equal(again.to_draws(), draws),
        "at(draws).to_draws() must be draws, got other values; at is the inverse of to_draws.",
    )
    whole = path.log_ratio(state, 0.0, 0.5)
    require(
        np.array_equal(state.to_draws(), draws),
        "take, join and log_ratio must leave the population as it is, got other draws after them; "
        "copy arrays before changing them.",
    )
    for name, found, expected in (
        ("at(draws)", path.log_ratio(again, 0.0, 0.5), whole),
        ("take(index)", path.log_ratio(state.take(index), 0.0, 0.5), whole[index]),
    ):
        require(
            _close(found, expected, _SUM),
            f"log_ratio must be the same for a population and for {name} of it, got a difference "
            "in some member; the log_ratio of a member must not depend on the other members.",
        )


def _check_sums(path: Path, state: Any) -> None:
    """Check shapes of energies and log ratios, and that log ratios add up along beta."""
    n = len(state)
    at = {beta: path.log_ratio(state, 0.0, beta) for beta in _BETAS}
    for name, values in (("log_ratio", at[1.0]), ("energy", path.energy(state, 0.5))):
        values = np.asarray(values)
        require(
            values.shape == (n,) and values.dtype == np.float64,
            f"{name} must return an array of float64 of shape ({n},), got {described(values)}; "
            "return one number for each member.",
        )
    for start in _BETAS:
        for stop in _BETAS:
            found = path.log_ratio(state, start, stop)
            require(
                _close(found, at[stop] - at[start], _SUM),
                f"log_ratio must add up along beta, but log_ratio(0, {stop}) - log_ratio(0, "
                f"{start}) differs from log_ratio({start}, {stop}) by up to "
                f"{_largest(found, at[stop] - at[start]):.3g} nats; compute both ends alike.",
            )


def _check_slope(path: Path, state: Any) -> None:
    """Check energies against the slope of log ratios."""
    for beta in _BETAS[1:-1]:
        slope = path.log_ratio(state, beta - _STEP, beta + _STEP) / (2.0 * _STEP)
        energy = path.energy(state, beta)
        require(
            _close(-energy, slope, _SLOPE),
            f"energy must be minus the derivative of the log density by beta, but at beta={beta} "
            f"it differs from a finite difference of log_ratio by up to "
            f"{_largest(-energy, slope):.3g} nats; differentiate log_ratio by its upper end.",
        )


def _close(a: Any, b: Any, tolerance: float) -> bool:
    a, b = np.asarray(a), np.asarray(b)
    return a.shape == b.shape and bool(np.allclose(a, b, rtol=tolerance, atol=tolerance))


def _largest(a: Floats, b: Floats) -> float:
    return float(np.max(np.abs(a - b)))


# Densities that a kernel carries along may be sums of single precision.
_SINGLE = 1e-5
_MEMBERS, _GROUPS = 200, 3  # of exact comparisons
_SURPLUS, _LEAST_ESS = 20, 0.4  # draws from the reference for each member, and what is left of them
_HALVINGS = 20


def check_kernel(
    kernel: Kernel,
    path: Path,
    population: State | None = None,
    beta: float | None = None,
    *,
    n: int = 4000,
    functions: Functions | None = None,
    seed: int = 0,
    false_alarm: float = 1e-6,
) -> tuple[KernelReport, KernelReport]:
    """Check that a kernel does what samplers rely on.

    Parameters
    ----------
    kernel : Kernel
        The kernel. One that is tuned learns from draws of the reference first.
    path : Path
        The path that it moves on.
    population : State, optional
        Independent exact draws at ``beta``, at least 100 and better 10,000. By default ``n`` draws
        from the reference, resampled at the largest inverse temperature at which 40 % of 20 times
        as many draws are left.
    beta : float, optional
        Inverse temperature of ``population``; given together with it.
    n : int
        Size of the default population.
    functions : callable, optional
        See :func:`check_invariance`.
    seed : int
        Seed of draws and streams.
    false_alarm : float
        Probability that each of the two statistical checks fails for a right kernel.

    Returns
    -------
    tuple of two KernelReport
        Of :func:`check_invariance` and :func:`check_reversal`.

    Raises
    ------
    AssertionError
        If the kernel lacks a method; moves do not repeat with their streams, or change the
        population that they start from; a member's move depends on the other members; moves of many
        stages, at different inverse temperatures, or several in one call, are others than those of
        one; the state carries other densities than its draws have; no member moves; the reversal of
        the reversal is another kernel; settings or reports are no numbers; tuning does not return
        kernels; or a check of invariance or reversal fails.
    ValueError
        If only one of ``population`` and ``beta`` is given, or the population is too small.

    Examples
    --------
    >>> import pm_evidence as pe
    >>> from pm_evidence.testing import check_kernel
    >>> setup = pe.mixtures.Gaussian().annealing_setup("auto")
    >>> invariance, reversal = check_kernel(setup.kernel, setup.path)
    >>> invariance.passed and reversal.passed
    True
    """
    if (population is None) != (beta is None):
        raise ValueError("population and beta must be given together, got one; pass both or none.")
    with _failing(ValueError):
        checked_kernel("kernel", kernel)
    if population is None or beta is None:
        population, beta = _reweighted(path, n, seed)
    if isinstance(kernel, Tunable):
        kernel = _tuned(kernel, path, population, beta, seed)
    few = np.arange(min(max(_MEMBERS, _GROUPS * _together(kernel)), len(population)))
    trial = _Trial(path, population.take(few), beta, seed)
    _check_settings(kernel)
    _check_moves(kernel, trial)
    _check_members(kernel, trial)
    if isinstance(kernel, BatchedKernel):
        _check_batches(kernel, trial)
    if isinstance(kernel, PerMemberKernel):
        _check_each(kernel, trial)
    if isinstance(kernel, MovesRepeatedly):
        _check_repeated(kernel, trial)
    again = trial.moved(kernel.reversed().reversed())
    require(
        equal_draws(again, trial.moved(kernel)),
        "reversed().reversed() must move as the kernel itself, got other states; reverse every "
        "part of the move.",
    )
    options: dict[str, Any] = {"functions": functions, "seed": seed, "false_alarm": false_alarm}
    invariance = check_invariance(kernel, path, population, beta, **options)
    require(
        invariance.moved > 0.0,
        f"advance must move members, got {len(population)} members at beta={beta:.3g} that all "
        "stayed where they were; look at the size of the moves and at the accept step.",
    )
    return invariance, check_reversal(kernel, path, population, beta, **options)


@dataclass(frozen=True)
class _Trial:
    """A small population, and the streams that its members move with."""

    path: Path
    start: State
    beta: float
    seed: int

    def streams(self) -> NDArray[np.uint64]:
        return streams(np.random.SeedSequence(self.seed), len(self.start))

    def moved(self, kernel: Kernel) -> Any:
        return kernel.advance(self.path, self.start, self.beta, self.streams())[0]


def _reweighted(path: Path, n: int, seed: int) -> tuple[Any, float]:
    """Return ``n`` draws away from the reference, resampled from many draws of it, and where."""
    pool = path.draw(_SURPLUS * n, np.random.SeedSequence(seed))
    low, high = 0.0, 1.0
    if ess_share(path.log_ratio(pool, 0.0, 1.0)) >= _LEAST_ESS:
        low = 1.0
    for _ in range(_HALVINGS if low < high else 0):
        middle = 0.5 * (low + high)
        enough = ess_share(path.log_ratio(pool, 0.0, middle)) >= _LEAST_ESS
        low, high = (middle, high) if enough else (low, middle)
    rng = np.random.default_rng(seed)
    chosen = resample(normalised(path.log_ratio(pool, 0.0, low)), n, rng, "systematic")
    return pool.take(rng.permutation(chosen)), low


def _tuned(kernel: Any, path: Path, population: State, beta: float, seed: int) -> Any:
    """Return a kernel as the pilot leaves it, tuned on a population of its own."""
    own = path.draw(len(population), np.random.SeedSequence(seed + 1))
    chains = streams(np.random.SeedSequence(seed + 1), len(population))
    learnt = _same_kind("learn", kernel.learn(path, own), kernel)
    info = learnt.advance(path, population, beta, chains)[1]
    adjusted = _same_kind("adjust", learnt.adjust(info), kernel)
    return _same_kind("without_exploration", adjusted.without_exploration(), kernel)


def _same_kind(name: str, made: Any, kernel: Any) -> Any:
    """Return what a method of tuning made, after checking that it is such a kernel."""
    known = isinstance(made, Tunable) and hasattr(made, "settings")
    require(
        known and made.settings().keys() == kernel.settings().keys(),
        f"{name} must return a kernel with the same settings, got {described(made)}; return "
        "dataclasses.replace(self, ...).",
    )
    return made


def _check_settings(kernel: Kernel) -> None:
    for name, made in (("settings", kernel), ("reversed().settings", kernel.reversed())):
        settings = made.settings()
        require(
            all(isinstance(v, float) and np.isfinite(v) for v in settings.values())
            and settings.keys() == kernel.settings().keys(),
            f"{name}() must return finite floats by the same names, got {settings}; convert them "
            "with float().",
        )


def _check_moves(kernel: Kernel, trial: _Trial) -> None:
    """Check that a move repeats, leaves its start alone, and reports and carries numbers."""
    path, start, beta = trial.path, trial.start, trial.beta
    draws, chains = np.array(start.to_draws()), trial.streams()
    state, info = kernel.advance(path, start, beta, chains)
    require(
        isinstance(info, MoveInfo) and 0.0 <= info.acceptance <= 1.0 and info.n_evaluations >= 0,
        f"advance must report a MoveInfo with an acceptance from 0 to 1, got {info}.",
    )
    require(
        len(state) == len(start) and np.array_equal(start.to_draws(), draws),
        "advance must return as many members and leave the population that it is given as it is, "
        f"got {len(state)} of {len(start)} members, or other draws there; copy before moving.",
    )
    require(
        bool((chains != trial.streams()).any()),
        "advance must advance the streams that it draws from, got all of them as they were: the "
        "next move would use the same random numbers. Do not copy streams.",
    )
    require(
        equal_draws(state, trial.moved(kernel)),
        "advance must repeat with its streams, got other states from equal streams; take all "
        "random numbers from streams.",
    )
    fresh = path.at(np.array(state.to_draws()))
    for name, carried, expected in (
        ("log_ratio", path.log_ratio(state, beta, 0.5), path.log_ratio(fresh, beta, 0.5)),
        ("energy", path.energy(state, beta), path.energy(fresh, beta)),
    ):
        require(
            bool(np.allclose(carried, expected, rtol=_SINGLE, atol=_SINGLE, equal_nan=True)),
            f"advance must return a state that carries the densities of its draws, but its {name} "
            "differs from that of path.at(draws); update what the state holds beside its draws.",
        )


def _check_members(kernel: Kernel, trial: _Trial) -> None:
    """Check that a member's move depends on its own stream only."""
    whole_chains = trial.streams()
    group = np.arange(len(trial.start)) // _together(kernel)
    some = np.flatnonzero(group % 3 == group[-1] % 3)
    whole = kernel.advance(trial.path, trial.start, trial.beta, whole_chains)[0]
    part_chains = trial.streams()[some]
    part = kernel.advance(trial.path, trial.start.take(some), trial.beta, part_chains)[0]
    require(
        equal_draws(part, whole.take(some)) and np.array_equal(part_chains, whole_chains[some]),
        "advance must move member i with streams[i] only, but some members moved in another way "
        "without the others; learn from a population in learn() and not in advance().",
    )


def _check_each(kernel: Any, trial: _Trial) -> None:
    """Check that members at different inverse temperatures move as in populations at each."""
    path, start = trial.path, trial.start
    hot = np.arange(len(start)) // _together(kernel) % 2 == 0
    beta = np.where(hot, trial.beta, 0.5 * trial.beta)
    chains = trial.streams()
    moved = kernel.advance_each(path, start, beta, chains)[0]
    for index in (np.flatnonzero(hot), np.flatnonzero(~hot)):
        own = trial.streams()[index]
        alone = kernel.advance(path, start.take(index), float(beta[index[0]]), own)[0]
        require(
            equal_draws(alone, moved.take(index)) and np.array_equal(own, chains[index]),
            "advance_each must move member i as advance does at beta[i], got other states or "
            "streams; use beta[i] for all that member i draws.",
        )


def _check_repeated(kernel: Any, trial: _Trial) -> None:
    """Check that several moves in one call are the same as one after the other."""
    path, start, chains = trial.path, trial.start, trial.streams()
    state, states = start, [start]
    for _ in range(2):
        state = kernel.advance(path, state, trial.beta, chains)[0]
        states.append(state)
    own = trial.streams()
    together = kernel.advance_repeatedly(path, start, trial.beta, 2, own)[0]
    require(
        equal_draws(start.join(states[1:]), together) and np.array_equal(own, chains),
        "advance_repeatedly must return the given states and those of each move in turn, as "
        "advance does, got other states or streams; move each member along its own chain.",
    )


def _together(kernel: Any) -> int:
    """Return how many neighbouring members share streams."""
    return int(getattr(kernel, "n_together", 1))


def _check_batches(kernel: Any, trial: _Trial) -> None:
    """Check that many stages at once are the same as one after the other."""
    beta = trial.beta * np.array([1.0, 0.9, 0.8])
    chains = trial.streams()
    state: Any = trial.start
    for one in beta:
        state = kernel.advance(trial.path, state, float(one), chains)[0]
    start = trial.path.at(np.array(trial.start.to_draws()))  # advance_many may move it in place
    batch = kernel.advance_many(trial.path, start, beta, trial.streams())
    require(
        equal_draws(state, batch.state),
        "advance_many must give the states that advance gives stage by stage, got others.",
    )


_DRAWS, _STARTS = 30, 7
_FALSE_ALARM = 1e-6
_OUT_OF_REACH = 1e-9  # an error in nats that two rounds do not reach


def check_target(
    target: Any, *, log_evidence: float | None = None, n: int = 4000, seed: int = 0
) -> None:
    """Check a target with a path and a kernel of its own, and runs on it.

    Parameters
    ----------
    target : NativeTarget
        The target.
    log_evidence : float, optional
        Its exact log evidence in nats, which runs then have to find.
    n : int
        Population on which the kernel is checked, see :func:`check_kernel`.
    seed : int
        Seed of all draws and runs.

    Raises
    ------
    AssertionError
        If the target lacks a method; its path fails :func:`check_path` or its kernel
        :func:`check_kernel`; ``posterior``, ``sample_stats``, ``check`` or ``starts`` return
        other shapes or other draws than they are given; or a run with sequential Monte Carlo
        or annealed importance sampling fails :func:`check_sampler`.

    Examples
    --------
    >>> import pm_evidence as pe
    >>> from pm_evidence.testing import check_target
    >>> target = pe.mixtures.Gaussian()
    >>> check_target(target, log_evidence=target.log_evidence)
    """
    with _failing(TypeError, ValueError):
        checked_native(target)
        setup = annealing_setup(target, "auto")
    check_path(setup.path, seed=seed)
    check_kernel(setup.kernel, setup.path, n=n, seed=seed)
    _check_draws(target, setup, seed)
    for method in ("smc", "ais"):
        _check_run(target, method, log_evidence, seed)


def check_sampler(
    sampler: Sampler, target: Any, *, log_evidence: float | None = None, seed: int = 0
) -> None:
    """Check a sampler, by runs on a target or a model.

    Parameters
    ----------
    sampler : Sampler
        The sampler.
    target : pymc.Model or NativeTarget
        What it runs on; best one whose evidence is known.
    log_evidence : float, optional
        The exact log evidence in nats, which runs then have to find.
    seed : int
        Seed of the runs.

    Raises
    ------
    AssertionError
        If the sampler lacks a method; a run does not repeat with its seed on another number of
        threads; a round adds no draws; the estimate is not within its error, at a false-alarm rate
        of 1e-6; or a result read from a file has another log evidence.

    Examples
    --------
    >>> import pm_evidence as pe
    >>> from pm_evidence.testing import check_sampler
    >>> target = pe.mixtures.Gaussian()
    >>> check_sampler(pe.methods.AIS(direction="forward"), target, log_evidence=target.log_evidence)
    """
    with _failing(TypeError):
        chosen_sampler(sampler, "smc")
    _check_run(target, sampler, log_evidence, seed)


def _check_draws(target: Any, setup: AnnealingSetup, seed: int) -> None:
    """Check what a target makes of draws."""
    draws = setup.path.draw(_DRAWS, np.random.SeedSequence(seed)).to_draws()
    found = int(np.prod(draws.shape[1:]))
    require(
        found == target.n_dim,
        f"n_dim must be the number of coordinates of a state, got n_dim={target.n_dim} and "
        f"{found} numbers in a draw; correct one of them.",
    )
    posterior = target.posterior(draws)
    for group, values in (("posterior", posterior), ("sample_stats", target.sample_stats(draws))):
        for name, value in values.items():
            require(
                np.shape(value)[:1] == (_DRAWS,),
                f"{group} must return a value for each of {_DRAWS} draws, got shape "
                f"{np.shape(value)} of {name!r}; let the first axis be that of draws.",
            )
    if "x" in posterior:
        require(
            np.array_equal(target.check(posterior["x"]), draws),
            "check(posterior(draws)['x']) must return the draws, got others: reverse paths would "
            "start from other states than an earlier run found.",
        )
    if setup.starts is not None:
        starts = setup.starts(_STARTS, np.random.default_rng(seed))
        require(
            len(setup.path.at(starts)) == _STARTS,
            f"starts(n, rng) must return n={_STARTS} states, got {described(starts)}.",
        )


def _check_run(target: Any, method: Any, exact: float | None, seed: int) -> None:
    name = method if isinstance(method, str) else method.name
    dt = _run(target, method, seed, cores=1)
    found = stored_evidence(dt)
    again = _run(target, method, seed, cores=2)
    require(
        dt[WORK].to_dataset().equals(again[WORK].to_dataset()) and found == stored_evidence(again),
        f"a run of {name!r} must repeat with its seed, got log evidences {found.value!r} on one "
        f"thread and {stored_evidence(again).value!r} on two; take all random numbers from "
        "block_seeds(seed, phase, block), and keep nothing from block to block.",
    )
    with _failing(TypeError):
        _run(target, method, seed, cores=2, target_mcse=_OUT_OF_REACH, max_draws=_twice(method))
    require(
        exact is None or _within(found, exact),
        f"{name!r} must find the exact log evidence, got {found} and not {exact}; look at the "
        "weights, at the reference's draws and at the kernel.",
    )
    with TemporaryDirectory() as folder:
        file = File(folder) / "result.nc"
        dt.to_netcdf(file, engine="h5netcdf")
        with xr.open_datatree(file, engine="h5netcdf") as stored:
            require(
                str(stored_evidence(stored)) == str(found),
                f"a result of {name!r} must have the same log evidence when it is read from a "
                f"file, got {stored_evidence(stored)} and not {found}.",
            )


def _run(target: Any, method: Any, seed: int, **options: Any) -> Any:
    options = {"target_mcse": None, "random_seed": seed, "progressbar": False, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EvidenceWarning)
        return sample_evidence(target, method=method, **options)


def _twice(method: Any) -> int:
    """Return twice the draws of a sampler's first round."""
    chosen = chosen_sampler(method, "smc")
    sampler = chosen.annealer
    return 2 * sampler.first_round(sampler.size(chosen.default_draws))


def _within(found: LogEvidence, exact: float) -> bool:
    limit = float(student.isf(0.5 * _FALSE_ALARM, found.dof)) if found.dof < 1e6 else 4.9
    return bool(abs(found.value - exact) <= limit * found.mcse + 1e-9)
