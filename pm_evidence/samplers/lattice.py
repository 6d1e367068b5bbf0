"""A lattice of hyperparameters, with a normal approximation of the posterior at each point."""

from collections.abc import Sequence
from itertools import product
from math import inf

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.shape import Shape
from pm_evidence.references.fitted import StudentFit
from pm_evidence.references.mixture import joined, widened, with_wide
from pm_evidence.references.nested import NestedNormal, functions_of
from pm_evidence.references.surfaces import MovingLeastSquares
from pm_evidence.samplers.conditional import ConditionalFit, ConditionalFits

__all__ = ["MOST_AXES", "Lattice"]

Floats = NDArray[np.float64]
Index = tuple[int, ...]

# How many nats below the largest mass points are that have neighbours, for one hyperparameter, two
# and so on. A lattice in more dimensions ends earlier, because its points are many.
_NEAR = (6.0, 6.0, 5.0, 4.5)
MOST_AXES = len(_NEAR)
# Largest number of points: as many as so many gradients allow, between these bounds.
_GRADIENTS, _FEW_POINTS, _MANY_POINTS = 100_000, 200, 800
# The approximations count as complete if no neighbours differ by more nats from what they predict
# of each other, where the mass is at most the second number of nats below the largest.
_WORST_DIVERGENCE, _HEAVY = 30.0, 4.0
# Standard deviation of the hyperparameters in each normal density, relative to the spacing: the sum
# of densities with equal weights is then flat to one per cent.
_WIDTH = 0.5
# Distance from a point, in units of the spacing, to which the tails of its density reach.
_TAIL = 2.0


class Lattice:
    """Approximations at the points of a lattice of hyperparameters.

    Parameters
    ----------
    conditional : ConditionalFits
        Makes them.
    origin : ConditionalFit
        The one at the origin.
    spacing : ndarray, shape (k,)
        Distances of neighbours.
    """

    def __init__(
        self, conditional: ConditionalFits, origin: ConditionalFit, spacing: Floats
    ) -> None:
        self.conditional, self.spacing = conditional, spacing
        self.at_origin = origin.values
        self.near = _NEAR[max(spacing.size, 1) - 1]
        affordable = _GRADIENTS // max(conditional.cost, 1)
        self.most = int(np.clip(affordable, _FEW_POINTS, _MANY_POINTS))
        self.found: dict[Index, ConditionalFit | None] = {(0,) * spacing.size: origin}

    @property
    def known(self) -> dict[Index, ConditionalFit]:
        """The approximations that were found, by their indices."""
        return {index: found for index, found in self.found.items() if found is not None}

    @property
    def highest(self) -> ConditionalFit:
        """The approximation where the density of hyperparameters is largest."""
        return max(self.known.values(), key=lambda found: found.log_mass)

    def log_mass(self, index: Index) -> float:
        """Return the log density of hyperparameters; ``-inf`` where no approximation is found."""
        if index not in self.found:
            nearest = min(self.known.items(), key=lambda item: _distance(item[0], index))[1]
            values = self.at_origin + np.array(index) * self.spacing
            self.found[index] = self.conditional.near(nearest, values)
        found = self.found[index]
        return -inf if found is None else found.log_mass

    def nearest(self, values: Floats) -> Index:
        """Return the index of the point that is nearest to some hyperparameters."""
        steps = np.rint((values - self.at_origin) / self.spacing)
        return tuple(int(step) for step in steps)

    def height_near(self, other: ConditionalFit) -> float:
        """Return the largest log density at the next points to an approximation, or ``-inf``."""
        index = self.nearest(other.values)
        if index not in self.found:
            return -inf
        near = [found for i in (index, *_neighbours(index)) if (found := self.found.get(i))]
        return max((found.log_mass for found in near), default=-inf)

    def covers(self, values: Floats) -> NDArray[np.bool_]:
        """Return which rows of hyperparameters are so near a point that its tails cover them."""
        at = np.array([found.values for found in self.known.values()])
        apart = [np.abs((values - each) / self.spacing).max(axis=1) for each in at]
        covered: NDArray[np.bool_] = np.min(apart, axis=0) < _TAIL
        return covered

    def draw(self, n: int, rng: np.random.Generator) -> Floats:
        """Return hyperparameters that are uniform in the cells of all points, shape ``(n, k)``."""
        at = np.array([found.values for found in self.known.values()])
        chosen = at[rng.integers(len(at), size=n)]
        return chosen + self.spacing * rng.uniform(-0.5, 0.5, chosen.shape)

    def top(self, index: Index) -> Index:
        """Return the local maximum that steps to the best neighbour lead to."""
        while len(self.found) < self.most:
            best = max(_neighbours(index), key=self.log_mass, default=index)
            if self.log_mass(best) <= self.log_mass(index):
                break
            index = best
        return index

    def spacing_in_deviations(self, top: Index) -> Floats:
        """Return the spacing in standard deviations, by the curvature at a maximum, shape (k,)."""
        beside = np.array([self.log_mass(index) for index in _neighbours(top)]).reshape(-1, 2)
        found: Floats = np.sqrt(np.maximum(2.0 * self.log_mass(top) - beside.sum(axis=1), 0.0))
        return found

    def fill(self, top: float) -> bool:
        """Add all points of relevant mass; return False if there are too many.

        The mass is relevant relative to the largest one here, or to ``top`` if that is larger.
        """
        filled = set[Index]()
        while len(self.found) < self.most:
            known = self.known
            least = max(self.highest.log_mass, top) - self.near
            left = [i for i in known if i not in filled and known[i].log_mass > least]
            if not left:
                return True
            highest = max(left, key=lambda index: known[index].log_mass)
            filled.add(highest)
            for index in _neighbours(highest):
                self.log_mass(index)
        return False

    def divergences(self, near: float) -> list[Floats]:
        """Return how badly approximations predict their neighbours along each axis.

        These are Kullback-Leibler divergences, in nats, between the conditional density at a point
        and the one that its neighbour predicts there, for all neighbours whose mass is at most
        ``near`` nats below the largest.
        """
        least = self.highest.log_mass - near
        known = {index: each for index, each in self.known.items() if each.log_mass > least}
        found: list[list[float]] = [[0.0] for _ in self.spacing]
        for index, here in known.items():
            for place, neighbour in enumerate(_neighbours(index)):
                if neighbour in known:
                    divergence = self.conditional.divergence(known[neighbour], here)
                    found[place // 2].append(divergence)
        return [np.array(each) for each in found]

    @property
    def is_even(self) -> bool:
        """Whether all approximations of some mass predict their neighbours."""
        return all(each.max() < _WORST_DIVERGENCE for each in self.divergences(_HEAVY))

    def halved(self, axes: NDArray[np.bool_]) -> "Lattice":
        """Return a lattice with the same points, and half of the spacing along some axes."""
        factors = 1 + axes.astype(int)
        origin = self.found[(0,) * factors.size]
        assert origin is not None
        finer = Lattice(self.conditional, origin, self.spacing / factors)
        for index, found in self.found.items():
            finer.found[tuple(int(i) for i in factors * index)] = found
        return finer

    @property
    def log_volume(self) -> float:
        """Log of the volume of the region around each point."""
        return float(np.log(self.spacing).sum())

    def fit(self, found: ConditionalFit) -> StudentFit:
        """Return an approximation as a normal density that is linear in the hyperparameters."""
        return self.conditional.joint(found, np.diag(_WIDTH * self.spacing))

    def interpolated(self, fits: Sequence[ConditionalFit], log_mass: Floats) -> NestedNormal:
        """Return the density that is interpolated between approximations of this lattice."""
        at = np.array([fit.values for fit in fits])
        width = (_WIDTH * self.spacing)[:, None]
        kernels = [StudentFit(Shape(each, width), inf) for each in at]
        weight = np.exp(log_mass - np.logaddexp.reduce(log_mass))
        hyper = with_wide(kernels, log_mass, widened(joined(kernels, weight)))
        skewness = [fit.skewness for fit in fits if fit.skewness is not None]
        functions, pattern = functions_of([fit.shape for fit in fits], skewness)
        slopes = np.array([fit.slope.T for fit in fits])
        surface = MovingLeastSquares(at, self.spacing, functions, slopes)
        given, rest = self.conditional.given, self.conditional.rest
        return NestedNormal(given, rest, hyper, surface, pattern, is_skewed=bool(skewness))


def _neighbours(index: Index) -> list[Index]:
    """Return the next indices below and above along each axis."""
    return [
        (*index[:axis], index[axis] + step, *index[axis + 1 :])
        for axis, step in product(range(len(index)), (-1, 1))
    ]


def _distance(a: Index, b: Index) -> int:
    return sum((i - j) ** 2 for i, j in zip(a, b, strict=True))
