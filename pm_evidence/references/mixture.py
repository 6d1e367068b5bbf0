"""Densities fitted to a population: mixtures of Student-t densities, in suitable coordinates."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, lgamma, log, pi
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.resampling import resample
from pm_evidence.core.shape import Shape, SparseShape, learn_shape
from pm_evidence.targets.model.exchangeable import Relabelling

Floats = NDArray[np.float64]


# Quantiles whose distance is compared with that of the quartiles: 3.8 times that for a normal
# density, 6 for a Student-t with four degrees of freedom, 63 for a Cauchy density.
_TAILS, _HEAVY = (0.005, 0.995), 8.0
# Distance of each of these quantiles from the median, compared with that of the quartile on its
# side: 3.8 times that for a normal density, 6.6 for the tail of an exponential one.
_LONG = 5.0
# Coordinates are about linear within so many interquartile ranges of the median.
_LINEAR = 1.5


@dataclass(frozen=True, slots=True)
class Stretch:
    """Coordinates ``z`` with ``x = centre + scale * sinh(z)`` where tails are heavy, else ``x``.

    A tail that falls off as a power of ``x`` falls off exponentially in ``z``.
    """

    heavy: NDArray[np.bool_]  # shape (d,): which coordinates have heavy tails
    centre: Floats  # shape (d,): location and scale of the coordinates
    scale: Floats

    def inward(self, x: Floats) -> Floats:
        """Return ``z`` for every row of ``x``."""
        z = x.copy()
        z[:, self.heavy] = np.arcsinh(self._scaled(x))
        return z

    def outward(self, z: Floats) -> Floats:
        """Return ``x`` for every row of ``z``; infinite if it exceeds the range of float64."""
        x = z.copy()
        with np.errstate(over="ignore"):
            far = self.scale[self.heavy] * np.sinh(z[:, self.heavy])
        x[:, self.heavy] = self.centre[self.heavy] + far
        return x

    def log_slope(self, x: Floats) -> Floats:
        """Return ``log |dx/dz|`` in nats for every row of ``x``."""
        slope: Floats = np.log(self.scale[self.heavy]) + np.log(np.hypot(1.0, self._scaled(x)))
        return slope.sum(axis=1)

    def _scaled(self, x: Floats) -> Floats:
        scaled: Floats = (x[:, self.heavy] - self.centre[self.heavy]) / self.scale[self.heavy]
        return scaled


def learn_stretch(x: Floats) -> Stretch | None:
    """Return coordinates in which a population ``x`` of shape ``(n, d)`` has no heavy tails.

    None is returned if it has none.
    """
    low, first, centre, third, high = _quantiles(x)
    heavy = high - low > _HEAVY * (third - first)
    heavy &= third > first  # copies of one state have no scale
    return Stretch(heavy, centre, _LINEAR * (third - first)) if heavy.any() else None


def learn_tails(x: Floats) -> Stretch | None:
    """Return coordinates in which exponential tails of a population are light.

    The log of a scale has an exponential tail, for example. Draws from a density that falls off
    faster reach it too rarely to show it.
    """
    low, first, centre, third, high = _quantiles(x)
    long = (centre - low > _LONG * (centre - first)) | (high - centre > _LONG * (third - centre))
    long &= (third > centre) & (centre > first)
    return Stretch(long, centre, third - first) if long.any() else None


def _quantiles(x: Floats) -> Floats:
    """Return the ends of the tails, the quartiles and the median of every column, in order."""
    return np.quantile(x, (_TAILS[0], 0.25, 0.5, 0.75, _TAILS[1]), axis=0)


@dataclass(frozen=True, slots=True)
class StudentFit:
    """A multivariate Student-t density, of stretched coordinates where tails are heavy."""

    shape: Shape | SparseShape  # location and scale
    dof: float  # degrees of freedom; infinite for a normal density
    stretch: Stretch | None = None  # the coordinates that it is a density of

    @classmethod
    def to(cls, x: Floats, stretch: Stretch | None = None) -> Self:
        """Fit a population ``x`` of shape ``(n, d)``."""
        z = x if stretch is None else stretch.inward(x)
        return cls(learn_shape(z), student_dof(x.shape[1]), stretch)

    def draw(self, n: int, rng: np.random.Generator) -> Floats:
        """Return ``n`` independent draws, shape ``(n, d)``."""
        noise = rng.standard_normal((n, self.shape.mean.size))
        if self.dof < inf:
            noise *= np.sqrt(self.dof / rng.chisquare(self.dof, n))[:, None]
        draws: Floats = self.shape.mean + self.shape.scaled(noise)
        return draws if self.stretch is None else self.stretch.outward(draws)

    def log_density(self, x: Floats) -> Floats:
        """Return the normalised log density of every row of ``x`` in nats."""
        if self.stretch is None:
            return self.at_distances(self.shape.squared_distances(x))
        squares = self.shape.squared_distances(self.stretch.inward(x))
        return self.at_distances(squares) - self.stretch.log_slope(x)

    def at_distances(self, squares: Floats) -> Floats:
        """Return the log density in nats at squared Mahalanobis distances from the location."""
        d, dof = self.shape.mean.size, self.dof
        if dof == inf:
            return self.log_constant - 0.5 * squares
        return self.log_constant - 0.5 * (dof + d) * np.log1p(squares / dof)

    @property
    def log_constant(self) -> float:
        """The log density at the location, in nats."""
        dof, d = self.dof, self.shape.mean.size
        if dof == inf:
            return -0.5 * d * log(2.0 * pi) - self.shape.log_volume
        constant = lgamma(0.5 * (dof + d)) - lgamma(0.5 * dof) - 0.5 * d * log(dof * pi)
        return constant - self.shape.log_volume


def student_dof(d: int) -> int:
    """Return the degrees of freedom of a density in ``d`` dimensions that others are drawn from."""
    # tails heavier than Gaussian ones, yet nearly all draws at the radius where a Gaussian
    # population of this dimension has its members
    return 5 + 2 * d


_ITERATIONS = 30
# Weight of the population's own covariance in that of a component, as so many draws a dimension.
_PRIOR_DRAWS, _PRIOR_SCALE = 1.0, 0.05
# Share of a wide component, its scale relative to that of a population, and its degrees of freedom.
_WIDE, _SCALE_OF_WIDE, _DOF_OF_WIDE = 0.05, 1.5, 4
# Components of less weight than this are left out.
_LEAST_WEIGHT = 1e-4


class Component(Protocol):
    """A normalised density that can be drawn from, such as ``StudentFit``."""

    def draw(self, n: int, rng: np.random.Generator) -> Floats:
        """Return ``n`` independent draws, shape ``(n, d)``."""
        ...

    def log_density(self, x: Floats) -> Floats:
        """Return the log density of every row of ``x`` in nats."""
        ...


@dataclass(frozen=True, slots=True)
class StudentMixture:
    """A mixture of multivariate Student-t densities."""

    components: tuple[Component, ...]  # the components
    log_weight: Floats  # shape (K,): log of their probabilities, which add up to 1

    @classmethod
    def of(cls, components: Sequence[Component], log_mass: Floats) -> Self:
        """Return the mixture with weights in proportion to ``exp(log_mass)``."""
        log_weight = log_mass - np.logaddexp.reduce(log_mass)
        return cls(tuple(components), log_weight)

    def draw(self, n: int, rng: np.random.Generator) -> Floats:
        """Return ``n`` draws, shape ``(n, d)``.

        The number of draws from each component differs from its expectation by less than one, which
        makes averages over them more precise than those over independent draws.
        """
        chosen = rng.permutation(resample(np.exp(self.log_weight), n, rng, "systematic"))
        order = np.argsort(chosen, kind="stable")
        counts = np.bincount(chosen, minlength=len(self.components))
        parts = [part.draw(int(k), rng) for part, k in zip(self.components, counts, strict=True)]
        draws = np.empty_like(drawn := np.concatenate(parts))
        draws[order] = drawn
        return draws

    def log_parts(self, x: Floats) -> Floats:
        """Return the log density of every component times its weight, shape ``(K, n)``."""
        parts = [component.log_density(x) for component in self.components]
        return np.array(parts) + self.log_weight[:, None]

    def log_density(self, x: Floats) -> Floats:
        """Return the normalised log density of every row of ``x`` in nats."""
        density: Floats = np.logaddexp.reduce(self.log_parts(x), axis=0)
        return density

    def reweighted(self, weight: Floats) -> Self:
        """Return the mixture with other weights; components of next to none are left out."""
        weight = weight / weight.sum()
        kept = np.flatnonzero(weight >= min(_LEAST_WEIGHT, weight.max()))
        log_weight = np.log(weight[kept] / weight[kept].sum())
        components = tuple(self.components[k] for k in kept)
        return replace(self, components=components, log_weight=log_weight)


def with_wide(fits: Sequence[Component], log_mass: Floats, wide: Component) -> StudentMixture:
    """Return a mixture of densities with a wide one of 5 %, which bounds importance weights.

    A defensive mixture (Hesterberg 1995).
    """
    log_mass = log_mass - np.logaddexp.reduce(log_mass) + np.log1p(-_WIDE)
    return StudentMixture.of([*fits, wide], np.append(log_mass, np.log(_WIDE)))


def joined(fits: Sequence[StudentFit], weight: Floats) -> StudentFit:
    """Return the normal density with mean and covariance of a mixture of normal densities."""
    means = np.array([fit.shape.mean for fit in fits])
    mean = weight @ means
    apart = np.sqrt(weight)[:, None] * (means - mean)
    covariance = apart.T @ apart
    for share, fit in zip(weight, fits, strict=True):
        factor = fit.shape.scaled(np.eye(mean.size)).T
        covariance += share * (factor @ factor.T)
    return StudentFit(Shape(mean, np.linalg.cholesky(covariance)), inf)


def widened(fit: StudentFit) -> StudentFit:
    """Return a density of the same location that is wider and has heavy tails."""
    return replace(fit, shape=fit.shape.times(_SCALE_OF_WIDE), dof=_DOF_OF_WIDE)


def fit_components(
    x: Floats, n_components: int, rng: np.random.Generator, stretch: Stretch | None = None
) -> list[StudentFit]:
    """Fit a mixture of Student-t densities with fixed degrees of freedom to a population.

    Expectation and maximisation as in Peel and McLachlan (2000), section 4, from centres that are
    spread out as in k-means++ (Arthur and Vassilvitskii 2007), in coordinates whitened by the
    population. Covariances are shrunk towards a small multiple of the population's own.
    """
    n, d = x.shape
    dof = student_dof(d)
    z = x if stretch is None else stretch.inward(x)
    whole = learn_shape(z, dense=True)
    y = whole.whitened(z)
    means = y[_spread_out(y, n_components, rng)]
    factors = np.array([np.eye(d)] * n_components)
    weight = np.full(n_components, 1.0 / n_components)
    prior = _PRIOR_DRAWS * (d + 1)
    for _ in range(_ITERATIONS):
        parts = [StudentFit(Shape(m, f), dof) for m, f in zip(means, factors, strict=True)]
        squares = np.array([part.shape.squared_distances(y) for part in parts])
        densities = [part.at_distances(each) for part, each in zip(parts, squares, strict=True)]
        log_parts = np.array(densities) + np.log(weight)[:, None]
        share = np.exp(log_parts - np.logaddexp.reduce(log_parts, axis=0))
        count = share.sum(axis=1)
        pull = share * (dof + d) / (dof + squares)
        means = pull @ y / np.maximum(pull.sum(axis=1), 1e-300)[:, None]
        for k in range(n_components):
            apart = y - means[k]
            scatter = (pull[k, :, None] * apart).T @ apart + prior * _PRIOR_SCALE * np.eye(d)
            factors[k] = np.linalg.cholesky(scatter / (count[k] + prior))
        weight = np.maximum(count / n, 1e-12)
    return [
        StudentFit(Shape(whole.mean + whole.factor @ m, whole.factor @ f), dof, stretch)
        for m, f in zip(means, factors, strict=True)
    ]


def _spread_out(y: Floats, n_components: int, rng: np.random.Generator) -> list[int]:
    """Return rows of ``y`` of which each is likely to be far from those before it."""
    chosen = [int(rng.integers(len(y)))]
    nearest = np.full(len(y), np.inf)
    for _ in range(n_components - 1):
        nearest = np.minimum(nearest, ((y - y[chosen[-1]]) ** 2).sum(axis=1))
        total = nearest.sum()
        chosen.append(int(rng.choice(len(y), p=nearest / total if total > 0.0 else None)))
    return chosen


# Numbers that are computed at once: it bounds the memory.
_MOST_NUMBERS = 1_000_000


@dataclass(frozen=True, slots=True)
class Relabelled:
    """The average of a density over all permutations of labels.

    Dual importance sampling (Lee and Robert 2016) averages a density over labellings in this way.
    """

    component: Component  # the density, which may be fitted to a single labelling
    relabelling: Relabelling  # the permutations

    def draw(self, n: int, rng: np.random.Generator) -> Floats:
        """Return ``n`` draws, shape ``(n, d)``."""
        return self.relabelling.shuffled(self.component.draw(n, rng), rng)

    def log_density(self, x: Floats) -> Floats:
        """Return the normalised log density of every row of ``x`` in nats."""
        if isinstance(self.component, StudentFit) and self.component.stretch is None:
            return self._log_density_of_student(x, self.component)
        parts = self._log_densities(self.relabelling.images(x))
        log_density: Floats = np.logaddexp.reduce(parts, axis=0) - log(len(parts))
        return log_density

    def _log_density_of_student(self, x: Floats, fit: StudentFit) -> Floats:
        """Return the same for a Student-t density, ten times faster for six labels."""
        shape, d, n_maps = fit.shape, x.shape[1], len(self.relabelling.maps)
        columns = self.relabelling.maps.transpose(0, 2, 1).reshape(-1, d)
        # images of a point in coordinates in which the density has mean 0 and scale 1
        maps = shape.whitened(columns + shape.mean).reshape(-1, d, d).swapaxes(1, 2).reshape(-1, d)
        shift = np.tile(shape.whitened(np.zeros((1, d)))[0], n_maps)
        found = np.empty(len(x))
        step = max(_MOST_NUMBERS // (n_maps * d), 1)
        for rows in (slice(start, start + step) for start in range(0, len(x), step)):
            images = (x[rows] @ maps.T + shift).reshape(-1, n_maps, d)
            squares = np.einsum("nkd,nkd->nk", images, images)
            found[rows] = np.logaddexp.reduce(fit.at_distances(squares), axis=1)
        return found - log(n_maps)

    def aligned(self, x: Floats) -> Floats:
        """Return every row of ``x`` in the labelling in which the component is densest."""
        images = self.relabelling.images(x)
        aligned: Floats = images[self._log_densities(images).argmax(axis=0), np.arange(len(x))]
        return aligned

    def _log_densities(self, images: Floats) -> Floats:
        """Return the log density of the component at images of points, shape ``(k!, n)``."""
        n_maps, n, d = images.shape
        return self.component.log_density(images.reshape(-1, d)).reshape(n_maps, n)


# Numbers of components that are tried in turn. A mixture needs so many draws for each dimension of
# each component, and no covariances of components are fitted in more dimensions than this.
_COMPONENTS, _DRAWS_PER_DIMENSION, MOST_DIMENSIONS = (2, 4, 8), 10, 60
_MOST_DRAWS = 4000
# A mixture has to raise the mean log density of draws that it was not fitted to by this many nats.
_LEAST_GAIN = 0.02
# Rounds of expectation and maximisation of the weights alone.
_ROUNDS = 30


def fit_population(x: Floats, rng: np.random.Generator) -> StudentMixture:
    """Fit a mixture of Student-t densities to a population.

    Coordinates with heavy tails are stretched, see `learn_stretch`. The number of
    components is that at which the mean log density of the second half of the draws, under a fit to
    the first half, no longer rises.
    """
    x = x[:: -(-len(x) // _MOST_DRAWS)]
    n, d = x.shape
    best = 1

    def score_of(k: int) -> float:
        return float(_fit(x[: n // 2], k, rng).log_density(x[n // 2 :]).mean())

    if d <= MOST_DIMENSIONS:
        score = score_of(1)
        for k in _COMPONENTS:
            if n < 2 * _DRAWS_PER_DIMENSION * k * d:
                break
            new = score_of(k)
            if new < score + _LEAST_GAIN:
                break
            best, score = k, new
    return _fit(x, best, rng)


def _fit(x: Floats, k: int, rng: np.random.Generator) -> StudentMixture:
    """Return a fit with ``k`` components and a wide one."""
    stretch = learn_stretch(x)
    whole = StudentFit.to(x, stretch)
    fits = [whole] if k == 1 else fit_components(x, k, rng, stretch)
    mixture = StudentMixture.of(fits, np.zeros(k))
    for _ in range(_ROUNDS if k > 1 else 0):
        log_parts = mixture.log_parts(x)
        share = np.exp(log_parts - np.logaddexp.reduce(log_parts, axis=0)).mean(axis=1)
        mixture = mixture.reweighted(share)
    return with_wide(mixture.components, mixture.log_weight, widened(whole))
