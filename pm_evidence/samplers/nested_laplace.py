"""Normal approximations of a posterior that is log-concave given a few hyperparameters.

Given these, the other variables have one peak, and the normal density there approximates their
conditional density. Divided by it, the posterior gives the density of the hyperparameters, which is
explored on a lattice (Rue, Martino and Chopin 2009, section 3), or at points about its peak if
there are more than four. The normal densities at these points make a mixture, from which annealing
starts, and importance sampling draws from what is interpolated between them: the evidence does not
depend on how good the approximation is.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import inf, log

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.shape import Shape, learn_shape
from pm_evidence.paths.geometric import Posterior
from pm_evidence.references.mixture import Component, StudentFit, joined, widened, with_wide
from pm_evidence.references.nested import (
    MovingLeastSquares,
    NestedNormal,
    QuadraticSurface,
    functions_of,
    n_coefficients,
)
from pm_evidence.samplers.conditional import ConditionalFit, ConditionalFits
from pm_evidence.samplers.peaks import Survey

Floats = NDArray[np.float64]
Positions = NDArray[np.int64]
_NEGLIGIBLE = 9.0
_HIGHER = 1.0


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
    """Approximations at the points of a lattice of hyperparameters."""

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


# Predictions are right if they differ by fewer nats from what is there, or if the density with this
# difference is so many nats below the largest.
_RIGHT, _RELEVANT = 2.0, 7.0
# They are needed where the density is so many nats larger than a lattice shows.
# Distance, in prior standard deviations, within which there must be an approximation; and numbers
# of steps from one approximation to the next that are tried.
_REACH, _STEPS = 1.0, (1, 4)
# Degrees of freedom of the density of prior draws, and the largest exponent of a share.
_DOF, _LARGEST_EXPONENT = 4.0, 700.0
# Least singular value of the distances of approximations, relative to the largest one, along which
# the change of the volume is known.
_RCOND = 1e-6


class Predictions:
    """What the nearest approximations predict at many hyperparameters."""

    def __init__(self, conditional: ConditionalFits, at: Floats, n_prior: int) -> None:
        self._conditional, self._at, self._n_prior = conditional, at, n_prior
        self.n_unreached = 0
        self._fits, self._log_within = list[ConditionalFit](), -inf
        n = len(at)
        self._distance, self._nearest = np.full(n, inf), np.zeros(n, np.int64)
        self._log_mass, self._excess = np.full(n, -inf), np.zeros(n)
        self._is_new, self._is_unknown, self._is_within = np.zeros((3, n), bool)
        prior = at[:n_prior]
        shape = learn_shape(prior, dense=True)
        self._log_prior = StudentFit(shape, _DOF).log_density(prior) + log(n_prior)

    @property
    def share_unknown(self) -> float:
        """Share of the hyperparameters at which no approximation is found."""
        return float(self._is_unknown.mean())

    def add_lattice(self, lattice: Lattice) -> None:
        """Add the approximations of a lattice, and the mass within it."""
        fits = list(lattice.known.values())
        self._add(fits)
        self._is_within |= lattice.covers(self._at)
        log_mass = np.array([fit.log_mass for fit in fits]) + lattice.log_volume
        self._log_within = float(np.logaddexp.reduce(log_mass, initial=self._log_within))

    def wrong(self, top: float) -> int | None:
        """Return where an approximation is needed to predict the density; None if nowhere.

        It is where none is near, or else where the density may be largest and the prediction is
        wrong, if it may be relevant relative to the maximum ``top`` of the lattices, or right and
        higher than this maximum.
        """
        far = np.flatnonzero(~self._is_unknown & (self._distance > _REACH**2))
        if far.size:
            return int(far[np.argmin(self._distance[far])])
        self._compare()
        height = self._log_mass + np.maximum(self._excess, 0.0)
        least = np.where(np.abs(self._excess) > _RIGHT, top - _RELEVANT, top + _HIGHER)
        is_fitted = self._distance == 0.0
        height[self._is_unknown | is_fitted | (height < least)] = -inf
        i = int(np.argmax(height))
        return i if height[i] > -inf else None

    def outside(self) -> tuple[float, int | None]:
        """Return the mass outside of all lattices, relative to that within them."""
        rows = slice(0, self._n_prior)
        log_parts = (self._log_mass + self._excess)[rows] - self._log_prior - self._log_within
        log_parts[self._is_within[rows] | self._is_unknown[rows]] = -inf
        share = float(np.exp(min(np.logaddexp.reduce(log_parts), _LARGEST_EXPONENT)))
        log_parts[self._distance[rows] == 0.0] = -inf
        i = int(np.argmax(log_parts))
        return share, i if log_parts[i] > -inf else None

    def fitted(self, i: int) -> ConditionalFit | None:
        """Return the approximation at one of the hyperparameters, which is added; or None."""
        conditional, values = self._conditional, self._at[i]
        average = conditional.placed(values, conditional.prior.mean[conditional.rest])
        fit = self._reached(self._fits[self._nearest[i]], values)
        if fit is None:
            self.n_unreached += 1
            fit = conditional.first(average)
        if fit is None:
            self._is_unknown[i] = True
        else:
            self._add([fit])
        return fit

    def _reached(self, start: ConditionalFit, values: Floats) -> ConditionalFit | None:
        """Return the approximation at other hyperparameters, by several steps if one fails."""
        for n_steps in _STEPS:
            fit: ConditionalFit | None = start
            for step in np.linspace(0.0, 1.0, n_steps + 1)[1:]:
                if fit is not None:
                    fit = self._conditional.near(fit, start.values + step * (values - start.values))
            if fit is not None:
                return fit
        return None

    def _add(self, fits: Iterable[ConditionalFit]) -> None:
        for fit in fits:
            distance = (((self._at - fit.values) / self._conditional.scale) ** 2).sum(axis=1)
            nearer = distance < self._distance
            self._distance[nearer], self._nearest[nearer] = distance[nearer], len(self._fits)
            self._is_new[nearer] = True
            self._fits.append(fit)

    def _compare(self) -> None:
        """Compare predictions with the density where the nearest approximation is a new one.

        Where the density is not finite, nothing is known of its difference.
        """
        for nearest in np.unique(self._nearest[self._is_new]):
            mine, fit = self._is_new & (self._nearest == nearest), self._fits[nearest]
            values = self._at[mine]
            found = self._conditional.excesses(fit, values)
            self._excess[mine] = np.where(np.isfinite(found), found, inf)
            change = fit.predicted_height(values) - fit.height
            change += self._change_of_volume(fit, values - fit.values)
            self._log_mass[mine] = fit.log_mass + change
        self._is_new[:] = False

    def _change_of_volume(self, fit: ConditionalFit, moves: Floats) -> Floats:
        """Return how the log volume of conditional densities changes from an approximation.

        It is a quadratic function through the nearest other ones, by least squares, shape ``(n,)``.
        """
        scale = self._conditional.scale
        apart = np.array([other.values - fit.values for other in self._fits]) / scale
        n_near = 2 * n_coefficients(scale.size)
        near = np.argsort((apart**2).sum(axis=1))[1 : n_near + 1]
        volume = np.array([self._fits[i].shape.log_volume for i in near]) - fit.shape.log_volume
        coefficients = np.linalg.lstsq(_powers(apart[near]), volume, rcond=_RCOND)[0]
        change: Floats = _powers(moves / scale) @ coefficients
        return change


def _powers(x: Floats) -> Floats:
    """Return the elements of every row of ``x``, and their products."""
    i, j = np.triu_indices(x.shape[1])
    return np.hstack([x, x[:, i] * x[:, j]])


# Steps along an axis, in prior standard deviations, or in units of the coordinate if that is
# shorter. Densities of logarithms of scales change little within a unit.
_PROFILE_STEPS = (1.0,) * 8 + (2.0,) * 4
# How far the other hyperparameters follow in one step, in the same units.
_FOLLOW = 2.0
# The density has risen if it is so many nats larger than its minimum. It does not rise again to a
# relevant height if it is so many nats lower than at the peak.
_RISE, _DEEP = 0.1, 1000.0


def beyond(conditional: ConditionalFits, peak: ConditionalFit) -> list[ConditionalFit]:
    """Return approximations from which the density of the hyperparameters rises to other peaks."""
    found = list[ConditionalFit]()
    for axis in range(conditional.given.size):
        for sign in (-1.0, 1.0):
            highest = _after_valley(conditional, peak, axis, sign)
            if highest is not None:
                found.append(highest)
    return found


def _after_valley(
    conditional: ConditionalFits, peak: ConditionalFit, axis: int, sign: float
) -> ConditionalFit | None:
    """Return the highest approximation after a minimum along an axis; None if there is none."""
    unit = np.minimum(conditional.scale, 1.0)
    here, lowest, highest = peak, peak.log_mass, None
    for length in _PROFILE_STEPS:
        move = np.zeros(unit.size)
        move[axis] = sign * length * unit[axis]
        there = _best_of(conditional, here, (move, _followed(here, move, unit)))
        if there is None or there.log_mass < peak.log_mass - _DEEP:
            break
        here, lowest = there, min(lowest, there.log_mass)
        if here.log_mass > max(lowest + _RISE, -np.inf if highest is None else highest.log_mass):
            highest = here
    return highest


def _best_of(
    conditional: ConditionalFits, here: ConditionalFit, moves: tuple[Floats, Floats]
) -> ConditionalFit | None:
    """Return the approximation after the better one of two moves; None if none is found."""
    straight, followed = moves
    different = not np.array_equal(straight, followed)
    chosen = moves if different else (straight,)
    fits = [conditional.near(here, here.values + move) for move in chosen]
    return max((fit for fit in fits if fit), key=lambda fit: fit.log_mass, default=None)


def _followed(here: ConditionalFit, move: Floats, unit: Floats) -> Floats:
    """Return a move along an axis with which the others go to the maximum of the height."""
    others = move == 0.0
    followed = move.copy()
    curvature = -here.bend[np.ix_(others, others)]
    slope = (here.rise + here.bend @ move)[others]
    values, vectors = np.linalg.eigh(curvature * np.outer(unit[others], unit[others]))
    if (values > 0.0).all():
        newton = vectors @ (vectors.T @ (slope * unit[others]) / values)
        followed[others] = np.clip(newton, -_FOLLOW, _FOLLOW) * unit[others]
    return followed


# Spacing of a coarse lattice in prior standard deviations, and the first spacing about a narrow
# peak. A spacing is corrected so many times, by so much at most.
_FIRST_SPACING, _NARROW_SPACING, _SPACINGS, _LARGEST_CHANGE = 0.5, 0.01, 6, 4.0
# Least, usual and largest spacing in posterior standard deviations, for one hyperparameter, two and
# so on. A lattice in more dimensions is coarser, because its points are many.
_FINE, _COARSE = (0.5, 1.0, 1.3), (1.2, 1.5, 1.9)
_SPACING = (_FINE, _FINE, _COARSE, _COARSE)
# The spacing is halved, so many times at most, if conditional densities at neighbouring points
# differ by more nats, on average, from what these points predict of each other.
_HALVINGS, _LARGEST_DIVERGENCE = 3, 8.0
# Largest mass outside of all lattices, relative to that within them, and largest share of the
# searched points at which no approximation is found.
_OUTSIDE, _UNKNOWN = 0.01, 0.01
# So often may steps from one approximation to the next fail. Where the density has kinks, nearly
# all of them fail, each at the cost of thousands of gradients.
_MOST_UNREACHED = 10
# Largest number of approximations that only improve the estimate of the mass outside, and of
# lattices.
_MOST_OUTSIDE, _MOST_LATTICES = 60, 8
# A peak is a new one if it is so many nats higher than a lattice that covers it shows.


class Regions:
    """Lattices about peaks of the hyperparameters."""

    def __init__(self, conditional: ConditionalFits) -> None:
        self.conditional = conditional
        self.lattices = list[Lattice]()
        self.spread_too_far = False

    @property
    def top(self) -> float:
        """Largest log density of the hyperparameters."""
        return max((lattice.highest.log_mass for lattice in self.lattices), default=-inf)

    @property
    def are_even(self) -> bool:
        """Whether approximations predict their neighbours in all lattices."""
        return all(lattice.is_even for lattice in self.lattices)

    def climb(self, draws: Floats) -> None:
        """Add those about peaks to which steps on a coarse lattice lead from prior draws."""
        conditional = self.conditional
        origin = next((found for x in draws if (found := conditional.first(x)) is not None), None)
        if origin is None:
            return
        coarse = Lattice(conditional, origin, _FIRST_SPACING * conditional.scale)
        tops = dict.fromkeys(coarse.top(coarse.nearest(x[conditional.given])) for x in draws)
        peaks = [found for top in tops if (found := coarse.found.get(top)) is not None]
        for peak in sorted(peaks, key=lambda peak: -peak.log_mass):
            self.add(peak, coarse.spacing)
        for lattice in self.lattices:  # including those that are added
            for peak in beyond(conditional, lattice.highest):
                self.add(peak, coarse.spacing)

    def add(self, peak: ConditionalFit, spacing: Floats) -> Lattice | None:
        """Add the lattice about a peak, unless it is covered; return it if it is added."""
        if self.spread_too_far or self._is_covered(peak):
            return None
        lattice = _refined(self.conditional, peak, spacing)
        if self._is_covered(lattice.highest):
            return None
        if not lattice.fill(self.top):
            self.spread_too_far = True
            return None
        self.lattices.append(_fine(lattice, self.top))
        return self.lattices[-1]

    def search(self, values: Floats, rng: np.random.Generator) -> bool:
        """Add those about narrow peaks, and return whether they hold all mass, as far as known."""
        n = len(values)
        within = np.concatenate([lattice.draw(n, rng) for lattice in self.lattices])
        within = within[rng.permutation(len(within))[:n]]
        predictions = Predictions(self.conditional, np.concatenate([values, within]), n)
        for lattice in self.lattices:
            predictions.add_lattice(lattice)
        n_outside = 0
        for _ in range(self.lattices[0].most):
            i = predictions.wrong(self.top)
            if i is None:
                share, i = predictions.outside()
                n_outside += 1
                if share < _OUTSIDE:
                    return self.are_even
            if i is None or n_outside > _MOST_OUTSIDE:
                return False
            fit = predictions.fitted(i)
            if fit is not None and fit.log_mass > self.top - self.lattices[0].near:
                added = self.add(fit, _NARROW_SPACING * self.conditional.scale)
                if added is not None:
                    predictions.add_lattice(added)
            too_many = self.spread_too_far or len(self.lattices) > _MOST_LATTICES
            fails = predictions.n_unreached > _MOST_UNREACHED
            if too_many or fails or predictions.share_unknown > _UNKNOWN:
                return False
        return False

    def _is_covered(self, fit: ConditionalFit) -> bool:
        """Return whether a lattice shows a density that is about as large."""
        return any(fit.log_mass < each.height_near(fit) + _HIGHER for each in self.lattices)


def _refined(conditional: ConditionalFits, peak: ConditionalFit, spacing: Floats) -> Lattice:
    """Return a lattice about a peak, whose spacing is about a posterior standard deviation."""
    fine, usual, coarse = _SPACING[max(spacing.size, 1) - 1]
    for _ in range(_SPACINGS):
        lattice = Lattice(conditional, peak, spacing)
        top = lattice.top((0,) * spacing.size)
        peak = lattice.found[top] or peak
        in_deviations = lattice.spacing_in_deviations(top)
        if ((in_deviations > fine) & (in_deviations < coarse)).all():
            break
        spacing = spacing / np.clip(in_deviations / usual, 1.0 / _LARGEST_CHANGE, _LARGEST_CHANGE)
    return lattice


def _fine(region: Lattice, top: float) -> Lattice:
    """Return a lattice whose points are near enough to each other, if these are not too many."""
    for _ in range(_HALVINGS):
        means = np.array([each.mean() for each in region.divergences(region.near)])
        too_far = means > _LARGEST_DIVERGENCE
        if not too_far.any():
            break
        finer = region.halved(too_far)
        if not finer.fill(top):
            break
        region = finer
    return region


# Steps of an ascent: distance of the first differences, in prior standard deviations; largest
# number of steps, and length of one in prior standard deviations; usual distance of differences in
# posterior standard deviations, by which factor it may be wrong at the peak, and by which it is
# corrected at most; and the distance, in posterior standard deviations, at which an ascent ends.
_FIRST_STEP, _ASCENT_STEPS, _LARGEST_MOVE = 0.5, 20, 1.0
_USUAL_STEP, _WRONG, _LARGEST_DESIGN_CHANGE, _DESIGN_NEAR = 1.0, 2.0, 4.0, 0.3
# Peaks are the same if they are so many deviations, and so many nats, apart at most.
_SAME = 1.5
# Points for each coefficient of a quadratic function, and their standard deviation relative to the
# curvature at the peak; number of further points, which test what the functions predict; and the
# least share of the points at which an approximation must be found.
_POINTS, _SPREAD, _DESIGN_TESTS, _FOUND = 3.0, 1.2, 8, 0.8
# Largest divergence of conditional densities from what is predicted, in nats, at points whose mass
# is at most so many nats below the largest.
_WORST_DESIGN_DIVERGENCE, _HEAVY_DESIGN = 30.0, 4.0
# Log mass where no approximation is found.
_NOT_FOUND = -1e12
# Least and largest curvature of the log mass, in units of the step.
_LEAST, _MOST = 0.1, 4.0
# Distances in posterior standard deviations at which the tails are tested. There, the log of the
# weight of a draw may exceed that of others by as much as the log mass is below the largest, and by
# this number of nats. Models with and without a long tail were 1 nat or more from this bound.
_FAR, _LARGEST_EXCESS = (2.0, 4.0, 6.0), 0.0
# The mass is negligible if it is so many nats below the largest.
# Draws from which the density of the hyperparameters is learnt, and its degrees of freedom.
_DRAWS, _DESIGN_DOF = 4000, 5.0
# Standard deviation of the hyperparameters in each normal density of the mixture.
_DESIGN_WIDTH = 0.6


@dataclass(frozen=True)
class Design:
    """Approximations at points that are spread about a peak of the hyperparameters."""

    conditional: ConditionalFits  # has made them
    shape: Shape  # location and scale of the points
    fits: Sequence[ConditionalFit]  # the approximations
    tests: Sequence[ConditionalFit]  # approximations at further points
    # Approximations far from the peak along each axis; None if some are not known
    tails: Sequence[ConditionalFit] | None

    @property
    def at(self) -> Floats:
        """The points, shape ``(m, k)``."""
        return np.array([fit.values for fit in self.fits])

    @property
    def log_mass(self) -> Floats:
        """Log density of the hyperparameters at the points, up to a constant, shape ``(m,)``."""
        return np.array([fit.log_mass for fit in self.fits])

    @property
    def log_weight(self) -> Floats:
        """Log mass that each approximation stands for, shape ``(m,)``."""
        log_density = StudentFit(self.shape, inf).log_density(self.at)
        found: Floats = self.log_mass - log_density - np.log(len(self.fits))
        return found

    def mixed(self) -> list[StudentFit]:
        """Return normal densities that are linear in the hyperparameters, one for each point."""
        return [self.conditional.joint(fit, _DESIGN_WIDTH * self.shape.factor) for fit in self.fits]

    def nested(self) -> NestedNormal:
        """Return the density that the approximations determine."""
        fits = self.fits
        skewness = [fit.skewness for fit in fits if fit.skewness is not None]
        functions, pattern = functions_of([fit.shape for fit in fits], skewness)
        surface = QuadraticSurface.through(self.shape, self.at, functions)
        given, rest = self.conditional.given, self.conditional.rest
        hyper = self._hyper()
        return NestedNormal(given, rest, hyper, surface, pattern, is_skewed=bool(skewness))

    @property
    def is_even(self) -> bool:
        """Whether quadratic functions predict the approximations at further points."""
        predicted = self.nested()
        least = max(fit.log_mass for fit in (*self.fits, *self.tests)) - _HEAVY_DESIGN
        for fit in self.tests:
            there = replace(fit, shape=predicted.shape_at(fit.values))
            divergence = self.conditional.divergence(fit, there)
            if fit.log_mass > least and not divergence < _WORST_DESIGN_DIVERGENCE:
                return False
        return True

    @property
    def covers_tails(self) -> bool:
        """Whether the density of the hyperparameters falls as the fitted one does, or faster.

        A scale that may be zero has a long tail, in which the fitted density would have few draws.
        """
        if self.tails is None:
            return False
        far = np.array([fit.values for fit in self.tails])
        height = np.array([fit.log_mass for fit in self.tails])
        hyper, log_weight = self._hyper(), self.log_weight
        weight = np.exp(log_weight - log_weight.max())
        usual = np.average(self.log_mass - hyper.log_density(self.at), weights=weight)
        # log of the weight of a draw there, and of the probability that it has
        excess = height - hyper.log_density(far) - usual
        return bool((excess + height - self.log_mass.max() < _LARGEST_EXCESS).all())

    def _hyper(self) -> StudentFit:
        """Return a density of the hyperparameters, which has the moments of a fitted one.

        The log mass minus that of the normal density of the points is a quadratic function near
        them, and bounded far from them.
        """
        normal = StudentFit(self.shape, inf)
        excess = (self.log_mass - normal.log_density(self.at))[:, None]
        surface = QuadraticSurface.through(self.shape, self.at, excess)
        draws = normal.draw(_DRAWS, np.random.default_rng(_DRAWS))
        log_weight = surface(draws)[:, 0]
        weight = np.exp(log_weight - log_weight.max())
        weight /= weight.sum()
        mean = weight @ draws
        apart = draws - mean
        covariance = (apart * weight[:, None]).T @ apart
        return StudentFit(Shape(mean, np.linalg.cholesky(covariance)), _DESIGN_DOF)


def ascended(conditional: ConditionalFits, start: ConditionalFit) -> tuple[ConditionalFit, Floats]:
    """Return the approximation at a peak of the hyperparameters, and steps of about a deviation."""
    here, scale = start, conditional.scale
    step = _FIRST_STEP * scale
    for _ in range(_ASCENT_STEPS):
        beside = _beside(conditional, here, step)
        mass = np.array([_mass(each) for each in beside]).reshape(-1, 2)
        slope = 0.5 * np.clip(mass[:, 1] - mass[:, 0], -1e6, 1e6)
        bend = np.clip(2.0 * here.log_mass - mass.sum(axis=1), 1e-3, 1e6)
        move = np.clip(step * slope / bend, -_LARGEST_MOVE * scale, _LARGEST_MOVE * scale)
        deviations = np.sqrt(bend) / _USUAL_STEP
        is_near = (np.abs(move / step) * deviations < _DESIGN_NEAR).all()
        if is_near and (np.abs(np.log(deviations)) < np.log(_WRONG)).all():
            break
        best = max([here, *(each for each in beside if each)], key=lambda fit: fit.log_mass)
        for shorter in (1.0, 0.5, 0.25):
            values = here.values + shorter * move
            there = conditional.near(here, values)
            if there is not None and there.log_mass > best.log_mass:
                best = there
                break
        here = best
        step = step / np.clip(deviations, 1.0 / _LARGEST_DESIGN_CHANGE, _LARGEST_DESIGN_CHANGE)
    return here, step


def is_same_peak(one: ConditionalFit, other: ConditionalFit, step: Floats) -> bool:
    """Return whether two ascents have ended at the same peak, with steps of about a deviation."""
    apart = np.abs(one.values - other.values) / step
    return bool((apart < _SAME).all()) and abs(one.log_mass - other.log_mass) < _SAME


def designed(conditional: ConditionalFits, peak: ConditionalFit, step: Floats) -> Design | None:
    """Return approximations about a peak; None if too many are not found.

    The points are a Halton sequence of a normal density, which is a little wider than the curvature
    at the peak says. They are always the same.
    """
    from scipy.stats import qmc  # importing SciPy takes as long as the package

    k = step.size
    n = int(_POINTS * n_coefficients(k))
    narrow = _curvature(conditional, peak, step)
    shape = Shape(narrow.mean, _SPREAD * narrow.factor)
    sequence = qmc.Halton(k, scramble=True, rng=np.random.default_rng(k))
    normal = qmc.MultivariateNormalQMC(np.zeros(k), engine=sequence).random(n + _DESIGN_TESTS)
    found, tests = [peak], list[ConditionalFit]()
    for i, point in enumerate(normal):
        places = shape.whitened(np.array([fit.values for fit in found]))
        nearest = found[int(np.argmin(((places - point) ** 2).sum(axis=1)))]
        fit = conditional.near(nearest, shape.mean + shape.scaled(point[None])[0])
        if fit is not None:
            (found if i < n else tests).append(fit)
    if len(found) < _FOUND * n or len(tests) < _FOUND * _DESIGN_TESTS:
        return None
    return Design(conditional, shape, found[1:], tests, _tails(conditional, peak, narrow))


def _tails(
    conditional: ConditionalFits, peak: ConditionalFit, shape: Shape
) -> list[ConditionalFit] | None:
    """Return approximations ever farther from a peak, below and above along each axis.

    The result is None if one is not found where the mass need not be negligible.
    """
    found = list[ConditionalFit]()
    deviations = np.sqrt((shape.factor**2).sum(axis=1))
    for move in np.vstack([np.diag(deviations), -np.diag(deviations)]):
        last = peak
        for distance in _FAR:
            fit = conditional.near(last, shape.mean + distance * move)
            if fit is None and last.log_mass > peak.log_mass - _NEGLIGIBLE:
                return None
            if fit is None:
                break
            found.append(fit)
            last = fit
    return found


def _curvature(conditional: ConditionalFits, peak: ConditionalFit, step: Floats) -> Shape:
    """Return location and scale by the second differences at a peak."""
    k = step.size
    beside = np.array([_mass(each) for each in _beside(conditional, peak, step)]).reshape(-1, 2)
    diagonal = 2.0 * peak.log_mass - beside.sum(axis=1)
    curvature = np.diag(diagonal)
    at = peak.values
    for i in range(k):
        for j in range(i):
            both = np.zeros(k)
            both[[i, j]] = step[[i, j]]
            mass = _mass(conditional.near(peak, at + both))
            mixed = mass - beside[i, 1] - beside[j, 1] + peak.log_mass
            curvature[i, j] = curvature[j, i] = -mixed
    curvature = np.where(np.abs(curvature) < _MOST, curvature, 0.0)
    np.fill_diagonal(curvature, np.clip(diagonal, _LEAST, _MOST))
    values, vectors = np.linalg.eigh(curvature)
    covariance = (vectors / np.maximum(values, _LEAST)) @ vectors.T
    return Shape(at, step[:, None] * np.linalg.cholesky(covariance))


def _beside(
    conditional: ConditionalFits, here: ConditionalFit, step: Floats
) -> list[ConditionalFit | None]:
    """Return the approximations below and above along each axis."""
    at = here.values
    moves = np.eye(step.size) * step
    return [conditional.near(here, at + sign * move) for move in moves for sign in (-1.0, 1.0)]


def _mass(fit: ConditionalFit | None) -> float:
    return _NOT_FOUND if fit is None else fit.log_mass


# Least number of prior draws, from which scales are learnt.
_PRIOR_DRAWS = 20
# Points whose mass is so many nats below the largest are left out.
# Normal densities are moved from the peaks to the means where this gains more nats.
_SKEWED = 0.05
# Prior draws that are made at once: it bounds the memory.
_ROWS = 256
# Most prior draws from which many hyperparameters are explored, and most peaks that these may have.
_MOST_STARTS, _MOST_PEAKS = 3, 8
# Largest dimension in which the covariances at all points may be dense if there are
# hyperparameters, and in which the covariance of the mixture is formed.
MOST_DENSE = 300
# Largest number of normal densities in more dimensions that annealing starts from: their gradients
# would take most of the time.
_MOST_SPARSE = 50
# Largest dimension in which second derivatives are measured to see which of them are zero, if there
# are hyperparameters: their matrix takes 72 MB.
_MOST_MEASURED = 3000


def explore(
    posterior: Posterior,
    hyperparameters: Positions,
    n_starts: int,
    n_searched: int,
    rng: np.random.Generator,
) -> Survey:
    """Approximate a posterior that is log-concave given its hyperparameters."""
    k, n_dim = hyperparameters.size, posterior.target.n_dim
    if k and n_dim > _MOST_MEASURED:
        return Survey()
    prior = posterior.draw_prior(max(_PRIOR_DRAWS, n_starts), rng)
    may_be_dense = k == 0 or n_dim <= MOST_DENSE
    shape = learn_shape(prior, dense=False)
    conditional = ConditionalFits(posterior, hyperparameters, shape, may_be_dense=may_be_dense)
    found = Survey()
    try:
        if k > MOST_AXES:
            found = _by_design(conditional, prior[: min(n_starts, _MOST_STARTS)])
            found = replace(found, complete=found.complete and not n_searched)
        else:
            draws, n = prior[: n_starts if k else 1], n_searched if k else 0
            found = _by_lattices(conditional, draws, _hyperparameters(conditional, n, rng), rng)
    except np.linalg.LinAlgError:  # scales differ too much for float64
        pass
    return replace(found, n_evaluations=conditional.n_evaluations)


def _by_lattices(
    conditional: ConditionalFits, draws: Floats, searched: Floats, rng: np.random.Generator
) -> Survey:
    """Return what is known from a lattice about each peak of the hyperparameters."""
    regions = Regions(conditional)
    regions.climb(draws)
    if regions.spread_too_far or not regions.lattices:
        return Survey()
    complete = regions.are_even and (not len(searched) or regions.search(searched, rng))
    lattices = regions.lattices
    found = [(lattice, each) for lattice in lattices for each in lattice.known.values()]
    log_mass = np.array([each.log_mass + lattice.log_volume for lattice, each in found])
    found = [found[i] for i in np.flatnonzero(log_mass >= log_mass.max() - _NEGLIGIBLE)]
    moved = _skewed(conditional, [each for _, each in found])
    found = [(lattice, each) for (lattice, _), each in zip(found, moved, strict=True)]
    log_mass = np.array([each.log_mass + lattice.log_volume for lattice, each in found])
    fits = [lattice.fit(each) for lattice, each in found]
    parts, log_parts = list[Component](), list[float]()
    for lattice in lattices if conditional.given.size else ():
        mine = [i for i, (other, _) in enumerate(found) if other is lattice]
        if mine:
            parts.append(lattice.interpolated([found[i][1] for i in mine], log_mass[mine]))
            log_parts.append(np.logaddexp.reduce(log_mass[mine]))
    survey = _survey(fits, log_mass, parts, np.array(log_parts), complete=complete)
    return replace(survey, n_peaks=len(lattices))


def _hyperparameters(conditional: ConditionalFits, n: int, rng: np.random.Generator) -> Floats:
    """Return the hyperparameters of ``n`` prior draws, shape ``(n, k)``."""
    posterior, given = conditional.posterior, conditional.given
    parts = [posterior.draw_prior(min(n - i, _ROWS), rng)[:, given] for i in range(0, n, _ROWS)]
    return np.concatenate([np.empty((0, given.size)), *parts])


def _by_design(conditional: ConditionalFits, draws: Floats) -> Survey:
    """Return what is known from points about each peak of many hyperparameters."""
    firsts = [found for x in draws if (found := conditional.first(x)) is not None]
    every = _peaks(conditional, firsts)
    top = max((peak.log_mass for peak, _ in every), default=0.0)
    peaks = [each for each in every if each[0].log_mass > top - _NEGLIGIBLE]
    designs = [made for each in peaks if (made := designed(conditional, *each)) is not None]
    good = [each for each in designs if each.covers_tails and each.is_even]
    complete = len(good) == len(peaks) and len(every) <= _MOST_PEAKS
    if not designs or not (complete or len(every) > 1):
        return Survey()
    designs = [replace(each, fits=_skewed(conditional, each.fits)) for each in designs]
    log_mass = np.concatenate([each.log_weight for each in designs])
    log_parts = np.array([np.logaddexp.reduce(each.log_weight) for each in designs])
    fits = [fit for each in designs for fit in each.mixed()]
    parts = [each.nested() for each in designs]
    survey = _survey(fits, log_mass, parts, log_parts, complete=complete)
    return replace(survey, n_peaks=len(designs))


def _peaks(
    conditional: ConditionalFits, firsts: Sequence[ConditionalFit]
) -> list[tuple[ConditionalFit, Floats]]:
    """Return peaks of the hyperparameters, and steps of about a deviation at each.

    Ascents start at the given approximations, and where the density rises beyond a peak.
    """
    found, left = list[tuple[ConditionalFit, Floats]](), list(firsts)
    while left and len(found) <= _MOST_PEAKS:
        peak, step = ascended(conditional, left.pop(0))
        if not any(is_same_peak(each, peak, length) for each, length in found):
            found.append((peak, step))
            left += beyond(conditional, peak)
    return found


def _survey(
    fits: Sequence[StudentFit],
    log_mass: Floats,
    parts: Sequence[Component],
    log_parts: Floats,
    *,
    complete: bool,
) -> Survey:
    """Return normal densities as the reference, and further densities, or the same, as a fit."""
    total: Floats = np.logaddexp.reduce(log_mass, keepdims=True)
    if fits[0].shape.mean.size <= MOST_DENSE:
        wide = widened(joined(fits, np.exp(log_mass - total)))
    else:
        heaviest = np.argsort(-log_mass, kind="stable")[:_MOST_SPARSE]
        wide = widened(fits[heaviest[0]])
        fits, log_mass = [fits[i] for i in heaviest], log_mass[heaviest]
    mixture = with_wide(fits, log_mass, wide)
    nested = with_wide(parts, log_parts, wide) if parts else mixture
    return Survey([nested], total, 1, complete=complete, reference=mixture)


def _skewed(conditional: ConditionalFits, fits: Sequence[ConditionalFit]) -> list[ConditionalFit]:
    """Return skewed approximations about the means, if these differ much from the peaks.

    All are skewed or none is, because they are interpolated.
    """
    highest = max(fits, key=lambda fit: fit.log_mass)
    if conditional.skewed(highest)[1] <= _SKEWED:
        return list(fits)
    skewed = [found for fit in fits if (found := conditional.skewed(fit)[0]) is not None]
    return skewed if len(skewed) == len(fits) else list(fits)
