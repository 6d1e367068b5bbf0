"""Normal approximations of a posterior that is log-concave given a few hyperparameters.

Given these, the other variables have one peak, and the normal density there approximates their
conditional density (`conditional`). Divided by it, the posterior gives the density of the
hyperparameters, which is explored on a lattice about each of its peaks (Rue, Martino and Chopin
2009, section 3). Peaks are found by steps uphill from prior draws, along profiles that go on
beyond each peak, and, unless the posterior is log-concave in the hyperparameters too, by a
comparison of what the approximations predict at thousands of prior draws with the density there.

The normal densities at the points of the lattices make a mixture, from which annealing starts;
importance sampling draws from what is interpolated between them. The evidence does not depend on
how good the approximation is, but its cost does: docs/approximations.md says what each part buys.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import product
from math import inf, log

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.shape import Shape, SparseShape, learn_shape
from pm_evidence.paths.geometric import Posterior
from pm_evidence.references.mixture import Component, StudentFit, joined, widened, with_wide
from pm_evidence.references.nested import MovingLeastSquares, NestedNormal, functions_of
from pm_evidence.samplers.conditional import ConditionalFit, ConditionalFits, KnownSparsity
from pm_evidence.samplers.peaks import Survey

Floats = NDArray[np.float64]
Positions = NDArray[np.int64]
Index = tuple[int, ...]

# --- sizes ---

# Least number of prior draws, from which scales are learnt, and those made at once (memory).
_PRIOR_DRAWS, _ROWS = 20, 256
# Largest dimension in which covariances may be dense if there are hyperparameters, and in which the
# covariance of the mixture is formed; in which second derivatives are measured to see which are
# zero (their matrix takes 290 MB); bounds of the number of normal densities in more dimensions than
# the first, and number of elements of their factors (their gradients would take most of the time).
MOST_DENSE, _MOST_MEASURED, _FEW_SPARSE, _MOST_SPARSE, _ELEMENTS = 300, 6000, 4, 50, 200_000

# --- lattices; where there are several numbers, they are for one hyperparameter, two and so on ---

# How many nats below the largest mass points are that have neighbours. A lattice in more dimensions
# ends earlier and is coarser, because its points are many.
_NEAR = (6.0, 6.0, 5.0, 4.5)
# Least, usual and largest spacing in posterior standard deviations.
_FINE, _COARSE = (0.5, 1.0, 1.3), (1.2, 1.5, 1.9)
_SPACING = (_FINE, _FINE, _COARSE, _COARSE)
# Spacing of a first lattice in prior standard deviations, and of one about a narrow peak. A spacing
# is corrected so many times, by so much at most.
_FIRST_SPACING, _NARROW_SPACING, _SPACINGS, _LARGEST_CHANGE = 0.5, 0.01, 6, 4.0
# Number of points whose neighbours are added at once.
_FILLED = 8
# Largest number of points: as many as so many gradients allow, between these bounds.
_GRADIENTS, _FEW_POINTS, _MANY_POINTS = 100_000, 200, 800
# Standard deviation of the hyperparameters in each normal density, relative to the spacing: the sum
# of densities with equal weights is then flat to one per cent. Distance from a point, in units of
# the spacing, to which the tails of its density reach.
_WIDTH, _TAIL = 0.5, 2.0
# The approximations count as complete if no neighbours differ by more nats from what they predict
# of each other, where the mass is at most the second number of nats below the largest.
_WORST_DIVERGENCE, _HEAVY = 30.0, 4.0
# A lattice whose approximations differ more along an axis is made closer along it, once, so that
# they differ by so much. That is done if the present points are a larger share of the new ones, or
# if variables are many and differ by at most so many nats each.
_AIM, _LEAST_SHARE, _EACH = 15.0, 0.3, 0.1
# A peak is a new one if it is so many nats higher than a lattice that covers it shows; largest
# number of lattices.
_HIGHER, _MOST_LATTICES = 1.0, 8
# Points whose mass is so many nats below the largest are left out.
_NEGLIGIBLE = 9.0
# Normal densities are moved from the peaks to the means where this gains more nats.
_SKEWED = 0.05

# --- profiles ---

# Steps along an axis, in prior standard deviations, or in units of the coordinate if that is
# shorter, and how far the other hyperparameters follow in one: densities of logarithms of scales
# change little within a unit.
_PROFILE_STEPS, _FOLLOW = (1.0,) * 2 + (2.0,) * 7, 2.0
# The density has risen if it is so many nats larger than its minimum. It does not rise again to a
# relevant height if it is so many nats lower than at the peak.
_RISE, _DEEP = 0.1, 1000.0

# --- the search for narrow peaks ---

# Predictions are right if they differ by fewer nats from what is there, or if the density with this
# difference is so many nats below the largest.
_RIGHT, _RELEVANT = 2.0, 7.0
# Distance, in prior standard deviations, within which there must be an approximation, and number of
# approximations that are made side by side.
_REACH, _SIDE_BY_SIDE = 1.0, 16
# Degrees of freedom of the density of prior draws, and the largest exponent of a share.
_DOF, _LARGEST_EXPONENT = 4.0, 700.0
# Least singular value of the distances of approximations, relative to the largest one, along which
# the change of the volume is known.
_RCOND = 1e-6
# Largest mass outside of all lattices, relative to that within them, and largest share of the
# searched points at which no approximation is found.
_OUTSIDE, _UNKNOWN = 0.01, 0.01
# So often may steps from one approximation to the next fail. Where the density has kinks, nearly
# all of them fail, each at the cost of thousands of gradients.
_MOST_UNREACHED = 10
# Largest number of approximations that only improve the estimate of the mass outside.
_MOST_OUTSIDE = 60


def explore(
    posterior: Posterior,
    hyperparameters: Positions,
    n_starts: int,
    n_searched: int,
    rng: np.random.Generator,
) -> Survey:
    """Approximate a posterior that is log-concave given its hyperparameters."""
    k, n_dim = hyperparameters.size, posterior.target.n_dim
    if k > len(_NEAR):
        return Survey()
    curvature = posterior.target.curvature if n_dim > MOST_DENSE else None
    known = None if curvature is None else KnownSparsity.of(curvature)
    if k and known is None and n_dim > _MOST_MEASURED:
        return Survey()
    prior = posterior.draw_prior(max(_PRIOR_DRAWS, n_starts), rng)
    may_be_dense = k == 0 or n_dim <= MOST_DENSE
    shape = learn_shape(prior, dense=False)
    conditional = ConditionalFits(
        posterior, hyperparameters, shape, may_be_dense=may_be_dense, known=known
    )
    found = Survey()
    try:
        n = n_searched if k else 0
        parts = [posterior.draw_prior(min(n - i, _ROWS), rng) for i in range(0, n, _ROWS)]
        searched = np.concatenate([prior[:0], *parts])[:, hyperparameters]
        found = _by_lattices(conditional, prior[: n_starts if k else 1], searched, rng)
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
    found = [(lattice, fit) for lattice in regions.lattices for fit in lattice.known.values()]
    log_mass = _log_mass(found)
    found = [found[i] for i in np.flatnonzero(log_mass >= log_mass.max() - _NEGLIGIBLE)]
    owners = [lattice for lattice, _ in found]
    fits = _skewed(conditional, [fit for _, fit in found])
    log_mass = _log_mass(zip(owners, fits, strict=True))
    total: Floats = np.logaddexp.reduce(log_mass, keepdims=True)
    normal = [lattice.fit(fit) for lattice, fit in zip(owners, fits, strict=True)]
    parts, log_parts = list[Component](), list[float]()
    for lattice in dict.fromkeys(owners) if conditional.given.size else ():
        mine = [i for i, owner in enumerate(owners) if owner is lattice]
        parts.append(lattice.interpolated([fits[i] for i in mine], log_mass[mine]))
        log_parts.append(np.logaddexp.reduce(log_mass[mine]))
    if conditional.prior.mean.size <= MOST_DENSE:
        wide = widened(joined(normal, np.exp(log_mass - total)))
    else:
        most = int(np.clip(_ELEMENTS // _n_elements(normal[0].shape), _FEW_SPARSE, _MOST_SPARSE))
        heaviest = np.argsort(-log_mass, kind="stable")[:most]
        normal, log_mass = [normal[i] for i in heaviest], log_mass[heaviest]
        wide = widened(normal[0])
    reference = with_wide(normal, log_mass, wide)
    nested = with_wide(parts, np.array(log_parts), wide) if parts else reference
    n_peaks = len(regions.lattices)
    return Survey([nested], total, n_peaks, complete=complete, reference=reference)


def _n_elements(shape: Shape | SparseShape) -> int:
    """Return how many elements a factor has."""
    if isinstance(shape, Shape):
        return shape.factor.size
    return shape.diagonal.size + shape.below.size


def _log_mass(found: Iterable[tuple["HyperparameterGrid", ConditionalFit]]) -> Floats:
    """Return the log masses of the cells of points of lattices."""
    return np.array([fit.log_mass + lattice.log_volume for lattice, fit in found])


def _skewed(conditional: ConditionalFits, fits: Sequence[ConditionalFit]) -> list[ConditionalFit]:
    """Return skewed approximations about the means, if these differ much from the peaks.

    All are skewed or none is, because they are interpolated.
    """
    highest = max(fits, key=lambda fit: fit.log_mass)
    if conditional.skewed([highest])[0][1] <= _SKEWED:
        return list(fits)
    skewed = [found for found, _ in conditional.skewed(fits) if found is not None]
    return skewed if len(skewed) == len(fits) else list(fits)


class Regions:
    """HyperparameterGrids about peaks of the hyperparameters."""

    def __init__(self, conditional: ConditionalFits) -> None:
        self.conditional = conditional
        self.lattices = list[HyperparameterGrid]()
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
        coarse = HyperparameterGrid(conditional, origin, _FIRST_SPACING * conditional.scale)
        tops = coarse.tops([coarse.nearest(x[conditional.given]) for x in draws])
        peaks = [found for top in tops if (found := coarse.found.get(top)) is not None]
        for peak in sorted(peaks, key=lambda peak: -peak.log_mass):
            self.add(peak, coarse.spacing)
        for lattice in self.lattices:  # including those that are added
            for peak in beyond(conditional, lattice.highest):
                self.add(peak, coarse.spacing)

    def add(self, peak: ConditionalFit, spacing: Floats) -> "HyperparameterGrid | None":
        """Add the lattice about a peak, unless it is covered; return it if it is added."""
        if self.spread_too_far or self._is_covered(peak):
            return None
        lattice = _refined(self.conditional, peak, spacing)
        if self._is_covered(lattice.highest):
            return None
        if not lattice.fill(self.top):
            self.spread_too_far = True
            return None
        uneven = lattice.unevenness
        share = np.sqrt(_AIM / np.maximum(uneven, _WORST_DIVERGENCE))
        share[uneven < _WORST_DIVERGENCE] = 1.0
        small = uneven.max(initial=0.0) < _EACH * self.conditional.rest.size
        if (uneven >= _WORST_DIVERGENCE).any() and (small or share.prod() > _LEAST_SHARE):
            finer = HyperparameterGrid(self.conditional, lattice.highest, share * lattice.spacing)
            if finer.fill(self.top):
                lattice = finer
        self.lattices.append(lattice)
        return lattice

    def search(self, values: Floats, rng: np.random.Generator) -> bool:
        """Add those about narrow peaks, and return whether they hold all mass, as far as known."""
        n = len(values)
        within = np.concatenate([lattice.draw(n, rng) for lattice in self.lattices])
        within = within[rng.permutation(len(within))[:n]]
        predictions = Predictions(self.conditional, np.concatenate([values, within]), n)
        for lattice in self.lattices:
            predictions.add_lattice(lattice)
        n_outside = n_fitted = 0
        while n_fitted < self.lattices[0].most:
            chosen = predictions.wrong(self.top)
            if not chosen:
                share, chosen = predictions.outside()
                n_outside += 1
                if share < _OUTSIDE:
                    return self.are_even
            if not chosen or n_outside > _MOST_OUTSIDE:
                return False
            n_fitted += len(chosen)
            for fit in predictions.fitted(chosen):
                if fit.log_mass > self.top - self.lattices[0].near:
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


def _refined(
    conditional: ConditionalFits, peak: ConditionalFit, spacing: Floats
) -> "HyperparameterGrid":
    """Return a lattice about a peak, whose spacing is about a posterior standard deviation."""
    fine, usual, coarse = _SPACING[max(spacing.size, 1) - 1]
    for _ in range(_SPACINGS):
        lattice = HyperparameterGrid(conditional, peak, spacing)
        (top,) = lattice.tops([(0,) * spacing.size])
        peak = lattice.found[top] or peak
        in_deviations = lattice.spacing_in_deviations(top)
        if ((in_deviations > fine) & (in_deviations < coarse)).all():
            break
        spacing = spacing / np.clip(in_deviations / usual, 1.0 / _LARGEST_CHANGE, _LARGEST_CHANGE)
    return lattice


class HyperparameterGrid:
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
        found = self.found[index]
        return -inf if found is None else found.log_mass

    def add(self, indices: Iterable[Index]) -> None:
        """Add the approximations at some points, each from that at the nearest point so far."""
        known = self.known
        new = [index for index in dict.fromkeys(indices) if index not in self.found]
        nearest = [min(known, key=lambda other: _distance(other, index)) for index in new]
        values = [self.at_origin + np.array(index) * self.spacing for index in new]
        starts = [(known[other], there) for other, there in zip(nearest, values, strict=True)]
        self.found.update(zip(new, self.conditional.near(starts), strict=True))

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

    def tops(self, starts: Sequence[Index]) -> list[Index]:
        """Return the local maxima to which steps to the best neighbours lead from some points."""
        self.add(starts)
        places, tops = list(dict.fromkeys(starts)), list[Index]()
        while places:
            if len(self.found) >= self.most:
                return list(dict.fromkeys([*tops, *places]))
            self.add(each for index in places for each in _neighbours(index))
            best = {i: max(_neighbours(i), key=self.log_mass, default=i) for i in places}
            is_top = {i: self.log_mass(best[i]) <= self.log_mass(i) for i in places}
            tops += [i for i in places if is_top[i]]
            places = list(dict.fromkeys(best[i] for i in places if not is_top[i]))
        return list(dict.fromkeys(tops))

    def spacing_in_deviations(self, top: Index) -> Floats:
        """Return the spacing in standard deviations, by the curvature at a maximum, shape (k,)."""
        self.add(_neighbours(top))
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
            left.sort(key=lambda index: -known[index].log_mass)
            highest = left[:_FILLED]
            filled.update(highest)
            self.add(each for index in highest for each in _neighbours(index))
        return False

    @property
    def is_even(self) -> bool:
        """Whether approximations of some mass predict their neighbours."""
        return bool((self.unevenness < _WORST_DIVERGENCE).all())

    @property
    def unevenness(self) -> Floats:
        """How far approximations of some mass are from what their neighbours predict, in nats.

        The largest Kullback-Leibler divergence between the conditional density at a point and the
        one that its neighbour along each axis predicts there, shape ``(k,)``.
        """
        least = self.highest.log_mass - _HEAVY
        heavy = {index: each for index, each in self.known.items() if each.log_mass > least}
        found = np.zeros(self.spacing.size)
        for index, here in heavy.items():
            for k, neighbour in enumerate(_neighbours(index)):
                if neighbour in heavy:
                    divergence = self.conditional.divergence(heavy[neighbour], here)
                    found[k // 2] = max(found[k // 2], divergence)
        return found

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


def beyond(conditional: ConditionalFits, peak: ConditionalFit) -> list[ConditionalFit]:
    """Return approximations from which the density of the hyperparameters rises to other peaks."""
    directions = product(range(conditional.given.size), (-1.0, 1.0))
    found = [_after_valley(conditional, peak, axis, sign) for axis, sign in directions]
    return [highest for highest in found if highest is not None]


def _after_valley(
    conditional: ConditionalFits, peak: ConditionalFit, axis: int, sign: float
) -> ConditionalFit | None:
    """Return the highest approximation after a minimum along an axis; None if there is none."""
    unit = np.minimum(conditional.scale, 1.0)
    here, lowest, highest = peak, peak.log_mass, None
    for length in _PROFILE_STEPS:
        move = np.zeros(unit.size)
        move[axis] = sign * length * unit[axis]
        (there,) = conditional.near([(here, here.values + _followed(here, move, unit))])
        if there is None or there.log_mass < peak.log_mass - _DEEP:
            break
        here, lowest = there, min(lowest, there.log_mass)
        if here.log_mass > max(lowest + _RISE, -np.inf if highest is None else highest.log_mass):
            highest = here
    return highest


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

    def add_lattice(self, lattice: HyperparameterGrid) -> None:
        """Add the approximations of a lattice, and the mass within it."""
        fits = list(lattice.known.values())
        self._add(fits)
        self._is_within |= lattice.covers(self._at)
        log_mass = np.array([fit.log_mass for fit in fits]) + lattice.log_volume
        self._log_within = float(np.logaddexp.reduce(log_mass, initial=self._log_within))

    def wrong(self, top: float) -> list[int]:
        """Return where approximations are needed to predict the density, which are not near.

        It is where none is near, or else where the density may be largest and the prediction is
        wrong, if it may be relevant relative to the maximum ``top`` of the lattices, or right and
        higher than this maximum.
        """
        far = np.flatnonzero(~self._is_unknown & (self._distance > _REACH**2))
        if far.size:
            return self._first_apart(far[np.argsort(self._distance[far], kind="stable")])
        self._compare()
        height = self._log_mass + np.maximum(self._excess, 0.0)
        least = np.where(np.abs(self._excess) > _RIGHT, top - _RELEVANT, top + _HIGHER)
        is_fitted = self._distance == 0.0
        height[self._is_unknown | is_fitted | (height < least)] = -inf
        order = np.argsort(-height, kind="stable")
        return self._first_apart(order[height[order] > -inf])

    def _first_apart(self, order: Positions) -> list[int]:
        """Return the first of some hyperparameters, and further ones that are not near these."""
        chosen = list[int]()
        while order.size and len(chosen) < _SIDE_BY_SIDE:
            chosen.append(int(order[0]))
            order = order[self._squares(self._at[order], self._at[chosen[-1]]) > _REACH**2]
        return chosen

    def outside(self) -> tuple[float, list[int]]:
        """Return the mass outside of all lattices, relative to that within them, and where it is.

        It is where the largest part of it may be, if no approximation is there.
        """
        rows = slice(0, self._n_prior)
        log_parts = (self._log_mass + self._excess)[rows] - self._log_prior - self._log_within
        log_parts[self._is_within[rows] | self._is_unknown[rows]] = -inf
        share = float(np.exp(min(np.logaddexp.reduce(log_parts), _LARGEST_EXPONENT)))
        log_parts[self._distance[rows] == 0.0] = -inf
        i = int(np.argmax(log_parts))
        return share, [i] if log_parts[i] > -inf else []

    def fitted(self, chosen: Sequence[int]) -> list[ConditionalFit]:
        """Return the approximations that are found at some hyperparameters, and add them."""
        starts = [(self._fits[self._nearest[i]], self._at[i]) for i in chosen]
        found = list[ConditionalFit]()
        for i, near in zip(chosen, self._conditional.near(starts), strict=True):
            fit = near or self._climbed(self._at[i])
            if fit is None:
                self._is_unknown[i] = True
            else:
                found.append(fit)
        self._add(found)
        return found

    def _climbed(self, values: Floats) -> ConditionalFit | None:
        """Return the approximation that an ascent leads to where a step from another one fails."""
        self.n_unreached += 1
        conditional = self._conditional
        average = conditional.prior.mean[conditional.rest]
        return conditional.first(conditional.placed(values, average))

    def _add(self, fits: Iterable[ConditionalFit]) -> None:
        for fit in fits:
            distance = self._squares(self._at, fit.values)
            nearer = distance < self._distance
            self._distance[nearer], self._nearest[nearer] = distance[nearer], len(self._fits)
            self._is_new[nearer] = True
            self._fits.append(fit)

    def _squares(self, rows: Floats, values: Floats) -> Floats:
        """Return squared distances in prior standard deviations, shape ``(n,)``."""
        squares: Floats = (((rows - values) / self._conditional.scale) ** 2).sum(axis=1)
        return squares

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
        n_near = (scale.size + 1) * (scale.size + 2)
        near = np.argsort((apart**2).sum(axis=1))[1 : n_near + 1]
        volume = np.array([self._fits[i].shape.log_volume for i in near]) - fit.shape.log_volume
        coefficients = np.linalg.lstsq(_powers(apart[near]), volume, rcond=_RCOND)[0]
        change: Floats = _powers(moves / scale) @ coefficients
        return change


def _powers(x: Floats) -> Floats:
    """Return the elements of every row of ``x``, and their products."""
    i, j = np.triu_indices(x.shape[1])
    return np.hstack([x, x[:, i] * x[:, j]])
