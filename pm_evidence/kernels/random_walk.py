"""Random-walk Metropolis with a learnt covariance, and what all proposals share."""

from dataclasses import dataclass, replace
from math import exp, log
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_count, check_positive, check_share
from pm_evidence.core.codegen.numba import call_density, njit
from pm_evidence.core.contracts import MoveInfo
from pm_evidence.core.random import fill_normal, uniform
from pm_evidence.core.rows import over_rows
from pm_evidence.core.shape import Shape, learn_shape
from pm_evidence.kernels.suitability import check_shape, check_shape_options
from pm_evidence.targets.layout import Particles


@njit
def accepts(log_ratio, stream):
    """Return whether a proposal with this log density ratio is accepted; never if it is NaN."""
    return log(uniform(stream)) < log_ratio


@njit
def acceptance_probability(log_ratio):
    """Return ``min(1, exp(log_ratio))``, 0 for NaN."""
    if log_ratio >= 0.0:
        return 1.0
    return exp(log_ratio) if log_ratio > -745.0 else 0.0


# Largest number of proposals in one call, so that a mistyped number does not run for hours.
MOST_STEPS = 1_000_000


def move_towards(scale: float, acceptance: float, target: float, gain: float = 1.0) -> float:
    """Return a step scale moved on the log scale towards the target acceptance."""
    return float(scale * np.exp(gain * (acceptance - target)))


# Roberts, Gelman and Gilks (1997): 2.38 / sqrt(d) and an acceptance of 0.234 are optimal in high
# dimension; in a few dimensions the optimum is nearer to 0.4 and flat.
_OPTIMAL_SCALE = 2.38


@dataclass(frozen=True)
class RandomWalk:
    """Gaussian random-walk Metropolis on the continuous coordinates; reversible.

    Parameters
    ----------
    scale : float
        Step relative to ``2.38 / sqrt(d)`` times the population's shape.
    n_steps : int
        Proposals in one advance.
    shape : Shape, optional
        Location and scale of the continuous coordinates; learnt from the population if left out.
    dense : bool, optional
        Whether proposals are correlated; by default if the population is large enough.
    target_accept : float
        Mean acceptance probability that tuning aims at.

    Raises
    ------
    ValueError, TypeError
        If an argument is of the wrong type or out of range.
    """

    scale: float = 1.0
    n_steps: int = 5
    shape: Shape | None = None
    dense: bool | None = None
    target_accept: float = 0.3

    def __post_init__(self) -> None:
        check_positive("scale", self.scale)
        check_count("n_steps", self.n_steps, 1, MOST_STEPS)
        check_shape_options(self.shape, self.dense)
        check_share("target_accept", self.target_accept, 0.3)

    def check(self, target: Any) -> NDArray[np.int64]:
        """Return the coordinates that it moves, all continuous ones.

        Raises
        ------
        ValueError
            If the target has no continuous coordinate, or ``shape`` does not fit.
        """
        if not target.continuous.size:
            raise ValueError(
                "kernel RandomWalk needs continuous variables, and this target has none; use "
                "kernel='auto'."
            )
        check_shape(self.shape, target.continuous.size)
        moved: NDArray[np.int64] = target.continuous
        return moved

    def advance(
        self, path: Any, state: Particles, beta: float, streams: NDArray[np.uint64]
    ) -> tuple[Particles, MoveInfo]:
        """Make ``n_steps`` proposals for every member at ``beta``; see ``contracts.Kernel``."""
        target = path.target
        shape = self.shape or learn_shape(state.x[:, target.continuous], self.dense)
        x, log_density = state.x.copy(), state.log_density.copy()
        factor = self.scale * _OPTIMAL_SCALE / np.sqrt(target.continuous.size) * shape.factor
        acceptance, n_nan = np.zeros(len(x)), np.zeros(len(x), np.int64)
        work = _Walk(target, beta, factor, self.n_steps)
        over_rows(work, (), (x, log_density, streams, acceptance, n_nan))
        n_evaluations = self.n_steps * len(x)
        rate = float(acceptance.sum()) / max(n_evaluations, 1)
        info = MoveInfo(rate, n_evaluations, int(n_nan.sum()))
        return Particles(target.wrap(x), log_density), info

    def learn(self, path: Any, state: Particles) -> Self:
        """Return the kernel with its covariance learnt from a population."""
        shape = learn_shape(state.x[:, path.target.continuous], self.dense)
        return replace(self, shape=shape)

    def adjust(self, info: MoveInfo) -> Self:
        """Return the kernel with its scale moved towards an acceptance of ``target_accept``."""
        return replace(self, scale=move_towards(self.scale, info.acceptance, self.target_accept))

    def without_exploration(self) -> Self:
        """Return the kernel itself: it never explores."""
        return self

    def reversed(self) -> Self:
        """Return the kernel itself: it is reversible."""
        return self

    def settings(self) -> dict[str, float]:
        """Return the scale."""
        return {"scale": self.scale}


@dataclass(frozen=True)
class _Walk:
    """Work on rows: the proposals of every member."""

    target: Any
    beta: float
    factor: NDArray[np.float64]
    n_steps: int

    def __call__(self, *rows: NDArray[Any]) -> None:
        compiled = self.target.density
        density, free = (compiled.address, compiled.data), self.target.continuous
        _walk(density, self.beta, free, self.factor, self.n_steps, *rows)


@njit
def add_scaled(row, free, factor, noise):
    """Add the factor times a vector to the free coordinates of a row."""
    dense = factor.shape[1] == free.size
    for j in range(free.size):
        if dense:
            for m in range(j + 1):
                row[free[j]] += factor[j, m] * noise[m]
        else:
            row[free[j]] += factor[j, 0] * noise[j]


@njit
def _walk(density, beta, free, factor, n_steps, x, log_density, streams, acceptance, n_nan):
    """Move every row in place; add up its acceptance probabilities and densities of NaN."""
    address, data = density
    n, n_dim = x.shape
    noise, proposal = np.empty(free.size), np.empty(n_dim)
    new_density = np.empty(2)
    no_gradient = np.empty((2, n_dim))
    for i in range(n):
        for _ in range(n_steps):
            start = log_density[i, 0] + beta * log_density[i, 1]
            if not np.isfinite(start):  # a path of weight zero is not moved
                break
            fill_normal(streams[i], noise)
            proposal[:] = x[i]
            add_scaled(proposal, free, factor, noise)
            failed = call_density(address, proposal, new_density, no_gradient, data) != 0
            log_ratio = new_density[0] + beta * new_density[1] - start
            if failed or np.isnan(log_ratio) or log_ratio == np.inf:
                n_nan[i] += 1
                continue
            acceptance[i] += acceptance_probability(log_ratio)
            if accepts(log_ratio, streams[i]):
                x[i] = proposal
                log_density[i] = new_density
