"""Checks that anybody can run on a new kernel: its contract, invariance and reversal together."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import described
from pm_evidence.core.contracts import (
    BatchedKernel,
    Kernel,
    MoveInfo,
    Path,
    PerMemberKernel,
    State,
    Tunable,
)
from pm_evidence.core.numerics import ess_share, normalised
from pm_evidence.core.random import streams
from pm_evidence.core.resampling import resample
from pm_evidence.kernels.suitability import checked_kernel
from pm_evidence.samplers.moves import MovesRepeatedly
from pm_evidence.testing.invariance import (
    Functions,
    KernelReport,
    check_invariance,
    check_reversal,
)
from pm_evidence.testing.path_checks import equal_draws, require

__all__ = ["check_kernel"]

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
    >>> setup = pe.Gaussian().annealing_setup("auto")
    >>> invariance, reversal = check_kernel(setup.kernel, setup.path)
    >>> invariance.passed and reversal.passed
    True
    """
    if (population is None) != (beta is None):
        raise ValueError("population and beta must be given together, got one; pass both or none.")
    try:
        checked_kernel("kernel", kernel)
    except ValueError as error:
        raise AssertionError(str(error)) from error
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
