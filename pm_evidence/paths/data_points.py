"""Paths along which the data of a PyMC model are added point by point."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.exceptions import NumericalError
from pm_evidence.core.numerics import ess_share
from pm_evidence.paths.geometric import GeometricPath
from pm_evidence.paths.posterior import Posterior
from pm_evidence.targets.points import Particles

__all__ = ["DataPointsPath", "Placed"]

Floats = NDArray[np.float64]
_LEAST_PART = 1e-6  # of a data point, in a step


@dataclass(frozen=True, slots=True)
class Placed:
    """Particles whose log likelihood is that of the data points up to a place on the path.

    Parameters
    ----------
    particles : Particles
        The particles.
    beta : float
        The place on the path, from 0 (no data) to 1 (all data).
    """

    particles: Particles
    beta: float

    def __len__(self) -> int:
        return len(self.particles)

    def take(self, index: NDArray[np.int64]) -> Self:
        """Return the members at ``index`` as a new population."""
        return type(self)(self.particles.take(index), self.beta)

    def join(self, others: Sequence[Self]) -> Self:
        """Return this population followed by ``others``, which have the same place."""
        particles = self.particles.join([other.particles for other in others])
        return type(self)(particles, self.beta)

    def to_draws(self) -> Floats:
        """Return the points, shape ``(n, n_dim)``."""
        return self.particles.x


@dataclass(frozen=True)
class DataPointsPath:
    """``log f_beta(x) = log prior(x) + sum_i w_i log p(y_i | x)`` with ``w_i`` from 0 to 1.

    With ``N`` data points in an order, ``w_i = clip(beta N - i, 0, 1)`` for ``i = 0, ..., N - 1``:
    they are added one after the other, and the last one, if need be, in parts. A step costs as
    much as the data that it adds, and a move as much as the data so far.

    Parameters
    ----------
    target : DataPointsTarget
        The model, with its data in an order.

    Notes
    -----
    Chopin (2002); Fraccaro, Paquet and Winther (2016), section 4.
    """

    target: Any

    @property
    def prescribed(self) -> Floats | None:
        """The places at the ends of the batches that the user asks for, from 0 to 1, or None."""
        if self.target.batches is None:
            return None
        return np.cumsum([0, *self.target.batches]) / self.target.n_points

    def place(self, beta: float) -> float:
        """Return the number of data points at ``beta``; that of whole ones is exact."""
        place = beta * self.target.n_points
        whole = round(place)
        return float(whole) if abs(place - whole) < 0.1 * _LEAST_PART else place

    def at_place(self, beta: float) -> GeometricPath:
        """Return the path whose end is the density at ``beta``."""
        return GeometricPath(self.target.having(0.0, self.place(beta)))

    def placed(self, state: Placed, beta: float) -> Placed:
        """Return the population with the log likelihood, and its gradient, at ``beta``."""
        if state.beta == beta:
            return state
        target, x = self.at_place(beta).target, state.particles.x
        if target.discrete.size or target.differentiable is None:
            return Placed(target.evaluate(x), beta)
        return Placed(Particles(x, *target.differentiable.evaluate(x)), beta)

    def reached(self, state: Placed, beta: float, streams: NDArray[np.uint64]) -> Placed:
        """Return the population with the log likelihood at ``beta``; see ``contracts.Growing``."""
        return self.placed(state, beta)

    def part(self, start: float, stop: float) -> str:
        """Return the data points that a step adds, numbered as in the model, for messages."""
        first, last = int(self.place(start)), int(np.ceil(self.place(stop)))
        names = [self.target.name_of(index) for index in self.target.order[first:last]]
        return ", ".join(names[:3]) + (f" and {len(names) - 3} others" if len(names) > 3 else "")

    def draw(self, n: int, seed: np.random.SeedSequence) -> Placed:
        """Return ``n`` independent prior draws."""
        return Placed(self.target.having(0.0, 0.0).draw(n, seed), 0.0)

    def at(self, draws: Floats) -> Placed:
        """Return the population at some points, shape ``(n, n_dim)``, with all data."""
        x = np.array(draws, dtype=float, order="C")
        return Placed(self.at_place(1.0).target.evaluate(x), 1.0)

    def log_ratio(self, state: Placed, start: float, stop: float) -> Floats:
        """Return the log likelihood of the data between two places, shape ``(n,)``, in nats.

        Raises
        ------
        NumericalError
            If it is NaN or infinite at a particle.
        """
        if stop < start:
            return -self.log_ratio(state, stop, start)
        first, last = self.place(start), self.place(stop)
        if first == last:
            return np.zeros(len(state))
        part = self.target.having(first, last)
        found: Floats = part.evaluate(state.particles.x).log_density[:, 1]
        bad = np.isnan(found) | (found == np.inf)
        if bad.any():
            raise NumericalError(
                f"the log likelihood must be finite or -inf, got {found[bad][0]} for "
                f"{self.part(start, stop)} at "
                f"{part.describe(state.particles.x[np.flatnonzero(bad)[0]])}; look for NaN in the "
                "data, or for an overflow in the model at such values."
            )
        return found

    def energy(self, state: Placed, beta: float) -> Floats:
        """Return minus the slope of the log density: that of one data point, in nats."""
        n, place = self.target.n_points, np.floor(self.place(beta))
        place = min(place, n - 1)
        return -n * self.log_ratio(state, place / n, (place + 1.0) / n)

    def order(self, state: Placed) -> NDArray[np.int64]:
        """Return an order along the main direction of the population; see ``GeometricPath``."""
        return GeometricPath(self.target).order(state.particles)

    def posterior(self) -> Posterior | None:
        """Return the density with all data as a function of points in R^d, or None."""
        return self.at_place(1.0).posterior()

    def next_beta(self, state: Placed, beta: float, ess: float) -> float:
        """Return the place at which the weights have a given effective size.

        Data are added in portions, each twice as large as the one before, until the effective
        sample size is too small; the last portion is then halved until the place is found. Each
        data point is evaluated about three times.

        Parameters
        ----------
        state : Placed
            A population at ``beta`` with equal weights.
        beta : float
            Its place on the path.
        ess : float
            Wanted effective sample size, as a share of the particles.
        """
        n, start = self.target.n_points, self.place(beta)
        # where the likelihood is zero for some particles, no step is so short that it keeps them
        alive = ess_share(self.log_ratio(state, beta, (start + _LEAST_PART) / n))
        if alive == 0.0:
            return (start + _LEAST_PART) / n
        low, ratio, portion = start, np.zeros(len(state)), 1.0
        while low < n:
            high = min(np.floor(low) + portion, n)
            further = ratio + self.log_ratio(state, low / n, high / n)
            if ess_share(further) < ess * alive:
                break
            low, ratio, portion = high, further, 2.0 * portion
        else:
            return 1.0
        while high - low > (1.0 if low > start else _LEAST_PART):
            middle = 0.5 * (low + high)
            if high - low > 1.0:  # whole data points, if there is at least one
                middle = np.floor(middle)
            further = ratio + self.log_ratio(state, low / n, middle / n)
            if ess_share(further) >= ess * alive:
                low, ratio = middle, further
            else:
                high = middle
        return float(low if low > start else start + _LEAST_PART) / n
