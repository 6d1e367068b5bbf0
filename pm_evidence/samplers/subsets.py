"""Probabilities of small regions, one condition at a time.

The probability that several conditions hold is that of the first, times that of the second given
the first, and so on (Au and Beck 2001; Cerou, Del Moral, Furon and Guyader 2012). Copies of the
draws that satisfy the conditions so far are moved by HMC, of which proposals outside of their
region are rejected, so that many draws tell each factor where none may satisfy all conditions.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.random import streams
from pm_evidence.kernels.hmc import HMC
from pm_evidence.paths.geometric import GeometricPath
from pm_evidence.targets.layout import Particles

Floats = NDArray[np.float64]
# Returns which points, shape (n, n_dim), satisfy which conditions, shape (n, n_conditions).
type Conditions = Callable[[Floats], NDArray[np.bool_]]

# Moves of every member between two conditions. A trajectory is about as long as the region is wide.
_MOVES = 12
# The rarest condition is met next of those that at least so many members satisfy, because the
# others are then less rare.
_FEWEST = 16


def probabilities(
    target: Any,
    x: Floats,
    beta: float,
    conditions: Conditions,
    n_groups: int,
    seed: np.random.SeedSequence,
) -> Floats:
    """Return an estimate of the probability of all conditions from each group of draws.

    Parameters
    ----------
    target : object
        A target with continuous coordinates and gradients.
    x : ndarray, shape (n, n_dim)
        Draws from the prior (``beta`` 0) or the posterior (1), group after group.
    conditions : callable
        Returns which points satisfy which conditions.

    Returns
    -------
    ndarray, shape (n_groups,)
        Estimates, one for each group, without bias. They are independent if the draws of different
        groups are, except that all groups share the order of the conditions and the kernel.
    """
    of_resampling, of_moves = seed.spawn(2)
    rng, words = np.random.default_rng(of_resampling), streams(of_moves, len(x))
    path, kernel = GeometricPath(target), HMC(path_length=1.0)
    found, satisfied = np.ones(n_groups), conditions(x)
    left = list(range(satisfied.shape[1]))
    while True:
        chosen = min(left, key=partial(_rank, satisfied.sum(axis=0)))
        left.remove(chosen)
        inside = satisfied[:, chosen].reshape(n_groups, -1)
        found *= inside.mean(axis=1)
        if not left or not found.any():
            return found
        state = path.at(x[_survivors(inside, rng)])
        kernel = kernel.learn(path, state)
        for _ in range(_MOVES):
            moved, info = kernel.advance(path, state, beta, words)
            kernel = kernel.adjust(info)
            allowed = np.delete(conditions(moved.x), left, axis=1).all(axis=1)
            state = _where(allowed, moved, state)
        x, satisfied = state.x, conditions(state.x)


def _rank(n_satisfied: NDArray[np.int64], condition: int) -> tuple[bool, int]:
    """Return the place of a condition in the order in which they are met next."""
    n = int(n_satisfied[condition])
    return n < _FEWEST, n if n >= _FEWEST else -n


def _survivors(inside: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.int64]:
    """Return indices of draws inside, as many for each group as it has draws.

    A group that has none takes those of all others: its estimate is zero whatever follows.
    """
    n, every, chosen = inside.shape[1], np.flatnonzero(inside), []
    for group, row in enumerate(inside):
        own = group * n + np.flatnonzero(row)
        own = rng.permutation(own if own.size else every)
        chosen.append(own[np.arange(n) % own.size])
    return np.concatenate(chosen)


def _where(allowed: NDArray[np.bool_], one: Particles, other: Particles) -> Particles:
    """Return the members of one population where they are allowed, else those of another."""
    x = np.where(allowed[:, None], one.x, other.x)
    log_density = np.where(allowed[:, None], one.log_density, other.log_density)
    if one.gradient is None or other.gradient is None:  # not known before the first move
        return Particles(x, log_density)
    return Particles(x, log_density, np.where(allowed[:, None, None], one.gradient, other.gradient))
