"""Normal approximations of a posterior that is log-concave given a few hyperparameters.

Given these, the other variables have one peak, and the normal density there approximates their
conditional density. Divided by it, the posterior gives the density of the hyperparameters, which is
explored on a lattice (Rue, Martino and Chopin 2009, section 3). The normal densities at the points
of the lattice make a mixture, from which annealing and importance sampling start: the evidence does
not depend on how good the approximation is.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import inf

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.shape import Shape, learn_shape
from pm_evidence.paths.posterior import Posterior
from pm_evidence.references.fitted import StudentFit
from pm_evidence.references.mixture import StudentMixture, widened, with_wide
from pm_evidence.samplers.conditional import ConditionalFit, ConditionalFits
from pm_evidence.samplers.findings import Survey

__all__ = ["explore", "is_concave_in"]

Floats = NDArray[np.float64]
Positions = NDArray[np.int64]
Index = tuple[int, ...]

# Least number of prior draws, from which scales are learnt.
_PRIOR_DRAWS = 20
# Spacing of the lattice in prior standard deviations, at first. It is corrected so many times, by
# so much at most.
_FIRST_SPACING, _SPACINGS, _LARGEST_CHANGE = 0.5, 6, 4.0
# Least, usual and largest spacing in posterior standard deviations, for one hyperparameter, two and
# so on, and how many nats below the largest mass points are that have neighbours. A lattice in more
# dimensions is coarser and ends earlier, because its points are many.
_FINE, _COARSE, _COARSEST = (0.5, 1.0, 1.3), (0.9, 1.1, 1.4), (1.0, 1.25, 1.6)
_SPACING, _NEAR = (_FINE, _FINE, _COARSE, _COARSEST), (6.0, 6.0, 5.0, 4.5)
# Points whose mass is so many nats below the largest are left out.
_NEGLIGIBLE = 9.0
# Largest number of points: as many as so many gradients allow, between these bounds.
_GRADIENTS, _FEW_POINTS, _MANY_POINTS = 100_000, 200, 800
# The spacing is halved, so many times at most, if conditional densities at neighbouring points
# differ by more nats, on average, from what these points predict of each other. The approximation
# counts as complete if none differs by more than the next number where the mass is at most the
# last number of nats below the largest.
_HALVINGS, _LARGEST_DIVERGENCE, _WORST_DIVERGENCE, _HEAVY = 3, 4.0, 30.0, 4.0
# Standard deviation of the hyperparameters in each normal density, relative to the spacing: the sum
# of densities with equal weights is then flat to one per cent.
_WIDTH = 0.5
# Number of pairs of prior draws between which the log density is tested, and the relative error
# that is left to rounding.
_PAIRS, _ROUNDING = 12, 1e-9
# Normal densities are moved from the peaks to the means where this gains more nats.
_SKEWED = 0.05
# Largest dimension of a posterior with hyperparameters, whose covariance is stored at all points.
_MOST_DIMENSIONS = 300


def explore(
    posterior: Posterior, hyperparameters: Positions, n_starts: int, rng: np.random.Generator
) -> Survey:
    """Approximate a posterior that is log-concave given its hyperparameters.

    Parameters
    ----------
    posterior : Posterior
        The density, with a gradient.
    hyperparameters : ndarray of int64, shape (k,)
        Positions of the hyperparameters; empty if the density is log-concave.
    n_starts : int
        Number of prior draws at which the exploration of the hyperparameters starts.
    rng : numpy.random.Generator
        Source of the random numbers.

    Returns
    -------
    Survey
        With one component, a mixture of normal densities and of a wide one of 5 % with heavy tails,
        or none if no approximation was found: ascents have not converged because the density has a
        kink or is flat, or the density of the hyperparameters spreads too far. The peaks are those
        of the density of the hyperparameters.
    """
    k = hyperparameters.size
    prior = posterior.draw_prior(max(_PRIOR_DRAWS, n_starts), rng)
    regions = list[_Lattice]()
    shape = learn_shape(prior, dense=False)
    conditional = ConditionalFits(posterior, hyperparameters, shape)
    if k == 0 or prior.shape[1] <= _MOST_DIMENSIONS:
        regions = _regions(conditional, prior[: n_starts if k else 1])
    if not regions:
        return Survey(n_evaluations=conditional.n_evaluations)
    try:
        mixture, log_mass = _mixture(conditional, regions)
        even = all(region.is_even for region in regions)
    except np.linalg.LinAlgError:  # scales differ too much for float64
        return Survey(n_evaluations=conditional.n_evaluations)
    spent = conditional.n_evaluations
    return Survey([mixture], log_mass, len(regions), n_evaluations=spent, complete=even)


def is_concave_in(posterior: Posterior, hyperparameters: Positions) -> tuple[bool, int]:
    """Return whether a log density seems concave in its hyperparameters as well, given the others.

    It is so for the scales of effects and of noise, if the effects are centred and the scales have
    usual priors. The density of frequencies or of length scales may have many narrow peaks instead,
    which an exploration that starts at a few prior draws does not find.

    Parameters
    ----------
    posterior : Posterior
        The density.
    hyperparameters : ndarray of int64, shape (k,)
        Positions of the hyperparameters.

    Returns
    -------
    is_concave : bool
        Whether no pair of draws shows the contrary.
    n_evaluations : int
        Evaluations of the density.

    Notes
    -----
    The log density halfway between the hyperparameters of two prior draws is compared with those at
    both ends: for all hyperparameters together, and for each alone, because a density that is
    concave enough in one of them hides that it is not so in another. The draws are always the same.
    """
    k = hyperparameters.size
    if not k:
        return True, 0
    one = posterior.draw_prior(_PAIRS, np.random.default_rng(_PAIRS))
    ways = [hyperparameters, *(hyperparameters[[i]] for i in range(k) if k > 1)]
    two = np.repeat(one[None], len(ways), axis=0)
    for moved, positions in zip(two, ways, strict=True):
        moved[:, positions] = np.roll(one[:, positions], 1, axis=0)
    points = np.concatenate([one[None], two, 0.5 * (one + two)])
    values = posterior.log_density(points.reshape(-1, one.shape[1])).reshape(points.shape[:2])
    ends, middle = 0.5 * (values[:1] + values[1 : len(ways) + 1]), values[len(ways) + 1 :]
    is_concave = bool((middle >= ends - _ROUNDING * (1.0 + np.abs(ends))).all())
    return is_concave, values.size


def _mixture(
    conditional: ConditionalFits, regions: "Sequence[_Lattice]"
) -> tuple[StudentMixture, Floats]:
    """Return the mixture of all approximations, and their log evidence, shape ``(1,)``."""
    found = [(region, each) for region in regions for each in region.known.values()]
    log_mass = np.array([each.log_mass + region.log_volume for region, each in found])
    kept = np.flatnonzero(log_mass > log_mass.max() - _NEGLIGIBLE)
    found, log_mass = [found[i] for i in kept], log_mass[kept]
    total: Floats = np.logaddexp.reduce(log_mass, keepdims=True)
    _, highest = found[int(np.argmax(log_mass))]
    if conditional.skewness(highest)[1] > _SKEWED:
        found = [(region, _moved(each, conditional.skewness(each)[0])) for region, each in found]
    fits = [region.fit(each) for region, each in found]
    return with_wide(fits, log_mass, widened(_joined(fits, np.exp(log_mass - total)))), total


def _moved(fit: ConditionalFit, shift: Floats) -> ConditionalFit:
    """Return an approximation about another point."""
    return replace(fit, peak=fit.peak + shift) if np.isfinite(shift).all() else fit


def _joined(fits: Sequence[StudentFit], weight: Floats) -> StudentFit:
    """Return the normal density with mean and covariance of a mixture of normal densities."""
    means = np.array([fit.shape.mean for fit in fits])
    mean = weight @ means
    apart = np.sqrt(weight)[:, None] * (means - mean)
    covariance = apart.T @ apart
    for share, fit in zip(weight, fits, strict=True):
        covariance += share * (fit.shape.factor @ fit.shape.factor.T)
    return StudentFit(Shape(mean, np.linalg.cholesky(covariance)), inf)


def _coarse_peaks(conditional: ConditionalFits, draws: Floats) -> list[ConditionalFit]:
    """Return the local maxima on a coarse lattice that steps from prior draws lead to."""
    origin = next((found for x in draws if (found := conditional.first(x)) is not None), None)
    if origin is None:
        return []
    lattice = _Lattice(conditional, origin, _FIRST_SPACING * conditional.scale)
    tops = dict.fromkeys(lattice.top(lattice.nearest(x)) for x in draws)
    return [found for top in tops if (found := lattice.found.get(top)) is not None]


def _regions(conditional: ConditionalFits, draws: Floats) -> "list[_Lattice]":
    """Return a lattice about each peak of the hyperparameters; none if one spreads too far."""
    regions = list[_Lattice]()
    peaks = _coarse_peaks(conditional, draws)
    for peak in sorted(peaks, key=lambda peak: -peak.log_mass):
        if any(region.covers(peak) for region in regions):
            continue
        region = _refined(conditional, peak)
        if any(other.covers(region.highest) for other in regions):
            continue
        if not region.fill():
            return []
        regions.append(_fine(region))
    return regions


def _refined(conditional: ConditionalFits, peak: ConditionalFit) -> "_Lattice":
    """Return a lattice about a peak, whose spacing is about a posterior standard deviation."""
    spacing = _FIRST_SPACING * conditional.scale
    fine, usual, coarse = _SPACING[max(spacing.size, 1) - 1]
    for _ in range(_SPACINGS):
        lattice = _Lattice(conditional, peak, spacing)
        top = lattice.top((0,) * spacing.size)
        peak = lattice.found[top] or peak
        in_deviations = lattice.spacing_in_deviations(top)
        if ((in_deviations > fine) & (in_deviations < coarse)).all():
            break
        spacing = spacing / np.clip(in_deviations / usual, 1.0 / _LARGEST_CHANGE, _LARGEST_CHANGE)
    return lattice


def _fine(region: "_Lattice") -> "_Lattice":
    """Return a lattice whose points are near enough to each other, if these are not too many."""
    for _ in range(_HALVINGS):
        means = np.array([each.mean() for each in region.divergences(region.near)])
        too_far = means > _LARGEST_DIVERGENCE
        if not too_far.any():
            break
        finer = region.halved(too_far)
        if not finer.fill():
            break
        region = finer
    return region


class _Lattice:
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
        self.at_origin = origin.peak[conditional.given]
        self.near = _NEAR[max(spacing.size, 1) - 1]
        affordable = _GRADIENTS // max(conditional.rest.size, 1)
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

    def nearest(self, point: Floats) -> Index:
        """Return the index of the values that are nearest to the hyperparameters of a point."""
        steps = np.rint((point[self.conditional.given] - self.at_origin) / self.spacing)
        return tuple(int(step) for step in steps)

    def covers(self, other: ConditionalFit) -> bool:
        """Return whether the hyperparameters of an approximation lie within this lattice."""
        return self.nearest(other.peak) in self.found

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

    def fill(self) -> bool:
        """Add all points of relevant mass; return False if there are too many."""
        filled = set[Index]()
        while len(self.found) < self.most:
            known = self.known
            least = self.highest.log_mass - self.near
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

    def halved(self, axes: NDArray[np.bool_]) -> "_Lattice":
        """Return a lattice with the same points, and half of the spacing along some axes."""
        factors = 1 + axes.astype(int)
        origin = self.found[(0,) * factors.size]
        assert origin is not None
        finer = _Lattice(self.conditional, origin, self.spacing / factors)
        for index, found in self.found.items():
            finer.found[tuple(int(i) for i in factors * index)] = found
        return finer

    @property
    def log_volume(self) -> float:
        """Log of the volume of the region around each point."""
        return float(np.log(self.spacing).sum())

    def fit(self, found: ConditionalFit) -> StudentFit:
        """Return an approximation as a normal density that is linear in the hyperparameters."""
        along = found.slope * (_WIDTH * self.spacing)
        covariance = found.factor @ found.factor.T + along @ along.T
        return StudentFit(Shape(found.peak, np.linalg.cholesky(covariance)), inf)


def _neighbours(index: Index) -> list[Index]:
    """Return the next indices below and above along each axis."""
    return [
        (*index[:axis], index[axis] + step, *index[axis + 1 :])
        for axis, step in product(range(len(index)), (-1, 1))
    ]


def _distance(a: Index, b: Index) -> int:
    return sum((i - j) ** 2 for i, j in zip(a, b, strict=True))
