"""Checks that anybody can run on a new path and its populations."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_count, described, missing_members
from pm_evidence.core.contracts import Path

__all__ = ["check_path", "equal_draws", "require"]

Floats = NDArray[np.float64]
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
    >>> check_path(pe.Gaussian().annealing_setup("auto").path)
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
