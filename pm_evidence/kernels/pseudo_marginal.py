"""Pseudo-marginal Metropolis, where an estimate of the likelihood is part of the state."""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_count, check_positive, check_share, real_number
from pm_evidence.core.codegen.numba import njit
from pm_evidence.core.contracts import MoveInfo
from pm_evidence.core.random import fill_normal, next_word, uniform
from pm_evidence.core.shape import Shape, learn_shape
from pm_evidence.kernels.random_walk import (
    MOST_STEPS,
    acceptance_probability,
    accepts,
    add_scaled,
    move_towards,
)
from pm_evidence.kernels.suitability import check_shape, check_shape_options, checked_row
from pm_evidence.targets.estimated.target import SEED_BITS, EstimatedParticles, EstimatedTarget

# 2.38 / sqrt(d) is about optimal for any noise (Sherlock, Thiery, Roberts and Rosenthal 2015).
# Noise lowers the acceptance rate, so the scale is adapted to it only within narrow bounds.
_OPTIMAL_SCALE = 2.38
_SCALES = (0.4, 1.5)
_LARGEST_SPREAD = 1e15  # whole numbers beyond it have no digits of their own
_EXACT_SUPPORT = 32  # with at most so many values, a discrete move may propose any other value
_SHIFT = np.uint64(64 - SEED_BITS)


@dataclass(frozen=True)
class PseudoMarginal:
    """Random-walk Metropolis on parameters and seeds of estimates; reversible.

    A proposal has its own estimate of the likelihood; if it is rejected, the old estimate is kept.
    Discrete coordinates are proposed one at a time, in every other move on average.

    Parameters
    ----------
    scale : float
        Step relative to ``2.38 / sqrt(d)`` times the population's shape.
    n_steps : int
        Proposals in one advance.
    renewal : float
        Share of the seeds that a proposal draws anew, up to 1. With less than 1 the
        estimates of a state and its proposal are correlated, and their noise partly cancels.
    shape : Shape, optional
        Location and scale of the continuous coordinates; learnt from the population if left out.
    spread : ndarray, shape (n_discrete,), optional
        Typical step of each discrete coordinate of large support; learnt likewise if left out.
    target_accept : float
        Mean acceptance probability that tuning aims at.

    Notes
    -----
    Andrieu and Roberts (2009); Tran et al., Algorithm 1, step 2 (iii). Renewal in blocks is that
    of Tran, Kohn, Quiroz and Villani (2016), a form of the correlated pseudo-marginal method of
    Deligiannidis, Doucet and Pitt (2018) that stores seeds instead of normal variables.
    """

    scale: float = 1.0
    n_steps: int = 1
    renewal: float = 1.0
    shape: Shape | None = None
    spread: NDArray[np.float64] | None = None
    target_accept: float = 0.25

    def __post_init__(self) -> None:
        check_positive("scale", self.scale)
        check_count("n_steps", self.n_steps, 1, MOST_STEPS)
        if real_number(self.renewal) != 1.0:
            check_share("renewal", self.renewal, 0.1)
        check_shape_options(self.shape)
        check_share("target_accept", self.target_accept, 0.25)
        if self.spread is not None:
            spread = checked_row("spread", self.spread, None)
            if not ((spread >= 1.0) & (spread <= _LARGEST_SPREAD)).all():
                raise ValueError(
                    "spread must be from 1, the least step of a whole number, to "
                    f"{_LARGEST_SPREAD:g}, got {spread.min():g} to {spread.max():g}; leave it out "
                    "to have it learnt."
                )
            object.__setattr__(self, "spread", spread)

    def check(self, target: Any) -> NDArray[np.int64]:
        """Return the coordinates that it moves: all.

        Raises
        ------
        ValueError
            If the target's likelihood is not estimated, or ``shape`` or ``spread`` does not fit.
        """
        if not isinstance(target, EstimatedTarget):
            raise ValueError(
                "kernel PseudoMarginal needs a likelihood that is estimated, and that of this "
                "target is known; use kernel='auto', or define a pe.StateSpace or pe.RandomEffects."
            )
        check_shape(self.shape, target.continuous.size)
        if self.spread is not None:
            checked_row("spread", self.spread, target.discrete.size)
        return np.arange(target.n_dim)

    def advance(
        self, path: Any, state: EstimatedParticles, beta: float, streams: NDArray[np.uint64]
    ) -> tuple[EstimatedParticles, MoveInfo]:
        """Make ``n_steps`` proposals for every member at ``beta``; see ``contracts.Kernel``."""
        kernel = self._complete(path, state)
        acceptance, n_evaluations, n_nan = 0.0, 0, 0
        for _ in range(self.n_steps):
            proposal = kernel._propose(path.target, state, streams)
            # a uniform number is drawn for every member, so that its stream depends on no other
            with np.errstate(invalid="ignore"):  # inf - inf, and 0 * inf at beta 0
                change = proposal.log_density - state.log_density
                gained = change[:, 0] + beta * change[:, 1]
                stuck = ~np.isfinite(state.log_density[:, 0] + beta * state.log_density[:, 1])
            failed = np.isnan(proposal.log_density).any(axis=1)
            gained[failed | stuck] = -np.inf
            accepted = np.empty(len(state), np.bool_)
            acceptance += _decide(gained, streams, accepted)
            state = state.replaced(proposal, accepted)
            n_evaluations += int((proposal.log_density[:, 0] > -np.inf).sum())
            n_nan += int(failed.sum())
        info = MoveInfo(acceptance / (self.n_steps * len(state)), n_evaluations, n_nan)
        return state, info

    def _complete(self, path: Any, state: EstimatedParticles) -> Self:
        """Return the kernel with the settings that were not given learnt from a population."""
        if self.shape is not None and self.spread is not None:
            return self
        learnt = self.learn(path, state)
        spread = learnt.spread if self.spread is None else self.spread
        return replace(learnt, shape=self.shape or learnt.shape, spread=spread)

    def _propose(
        self, target: Any, state: EstimatedParticles, streams: NDArray[np.uint64]
    ) -> EstimatedParticles:
        assert self.shape is not None and self.spread is not None
        x, seeds = state.x.copy(), state.seeds.copy()
        factor = self.scale * _OPTIMAL_SCALE / np.sqrt(max(target.continuous.size, 1))
        discrete = target.discrete, target.lower, target.upper, self.spread.copy()
        _propose(x, target.continuous, factor * self.shape.factor, discrete, streams)
        _renew(seeds, self.renewal, streams)
        proposal: EstimatedParticles = target.estimated(target.wrap(x), seeds)
        return proposal

    def learn(self, path: Any, state: EstimatedParticles) -> Self:
        """Return the kernel with its covariance learnt from a population."""
        target = path.target
        x = state.x[:, target.continuous]
        shape = learn_shape(x) if x.size else Shape(np.empty(0), np.empty((0, 1)))
        low, high = np.quantile(state.x[:, target.discrete], (0.1, 0.9), axis=0)
        return replace(self, shape=shape, spread=np.maximum(0.5 * (high - low), 1.0))

    def adjust(self, info: MoveInfo) -> Self:
        """Return the kernel with its scale moved towards ``target_accept``, within bounds."""
        scale = move_towards(self.scale, info.acceptance, self.target_accept)
        return replace(self, scale=float(np.clip(scale, *_SCALES)))

    def without_exploration(self) -> Self:
        """Return the kernel itself: it never explores."""
        return self

    def reversed(self) -> Self:
        """Return the kernel itself: it is reversible."""
        return self

    def settings(self) -> dict[str, float]:
        """Return the scale and the share of seeds that are renewed."""
        return {"scale": self.scale, "renewal": self.renewal}


@njit
def _decide(gained, streams, accepted):
    """Accept or reject every proposal; return the sum of acceptance probabilities."""
    total = 0.0
    for i in range(gained.size):
        total += acceptance_probability(gained[i])
        accepted[i] = accepts(gained[i], streams[i])
    return total


@njit
def _propose(x, free, factor, discrete, streams):
    """Move every row in place: its continuous coordinates, or one of the discrete ones."""
    d, n_discrete = free.size, discrete[0].size
    noise = np.empty(d)
    for i in range(x.shape[0]):
        if n_discrete and (d == 0 or uniform(streams[i]) < 0.5):
            _step(x[i], discrete, streams[i])
            continue
        fill_normal(streams[i], noise)
        add_scaled(x[i], free, factor, noise)


@njit
def _step(row, discrete, stream):
    """Move a random discrete coordinate, symmetrically, to another value."""
    coordinates, lower, upper, spread = discrete
    k = min(int(uniform(stream) * coordinates.size), coordinates.size - 1)
    j, n_values = coordinates[k], upper[k] - lower[k] + 1.0
    if n_values <= _EXACT_SUPPORT:
        others = max(n_values - 1.0, 1.0)
        ahead = 1.0 + min(np.floor(uniform(stream) * others), others - 1.0)
        row[j] = lower[k] + (row[j] - lower[k] + ahead) % n_values
        return
    size = 1.0 + np.floor(-np.log(uniform(stream)) * spread[k])
    moved = row[j] + (size if uniform(stream) < 0.5 else -size)
    if lower[k] <= moved <= upper[k]:  # else no change: a model may use the value as an index
        row[j] = moved


@njit
def _renew(seeds, share, streams):
    """Draw each random word anew with probability ``share``."""
    for i in range(seeds.shape[0]):
        for j in range(seeds.shape[1]):
            if share >= 1.0 or uniform(streams[i]) < share:
                seeds[i, j] = next_word(streams[i]) >> _SHIFT
