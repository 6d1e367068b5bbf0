"""A mixture of Student-t densities fitted to a population: exact draws, and its own log density."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.resampling import resample
from pm_evidence.core.shape import Shape, learn_shape
from pm_evidence.references.fitted import StudentFit, student_dof

__all__ = ["Component", "StudentMixture", "fit_components", "joined", "widened", "with_wide"]

Floats = NDArray[np.float64]

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
    """A mixture of multivariate Student-t densities.

    Parameters
    ----------
    components : tuple of Component, length K
        The components.
    log_weight : ndarray, shape (K,)
        Log of their probabilities, which add up to 1.
    """

    components: tuple[Component, ...]
    log_weight: Floats

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

    Parameters
    ----------
    fits : sequence of Component, length K
        The densities.
    log_mass : ndarray, shape (K,)
        Logs of their weights, up to a constant.
    wide : Component
        The wide density, see `widened`.

    Notes
    -----
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
    return StudentFit(fit.shape.times(_SCALE_OF_WIDE), _DOF_OF_WIDE)


def fit_components(x: Floats, n_components: int, rng: np.random.Generator) -> list[StudentFit]:
    """Fit a mixture of Student-t densities with fixed degrees of freedom to a population.

    Parameters
    ----------
    x : ndarray, shape (n, d)
        Population of equal weights.
    n_components : int
        Number of components, at least 2.
    rng : numpy.random.Generator
        Chooses where the components start.

    Returns
    -------
    list of StudentFit
        The components; their weights are left to importance sampling.

    Notes
    -----
    Expectation and maximisation as in Peel and McLachlan (2000), section 4, from centres that are
    spread out as in k-means++ (Arthur and Vassilvitskii 2007), in coordinates whitened by the
    population. Covariances are shrunk towards a small multiple of the population's own.
    """
    n, d = x.shape
    dof = student_dof(d)
    whole = learn_shape(x, dense=True)
    y = whole.whitened(x)
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
        StudentFit(Shape(whole.mean + whole.factor @ m, whole.factor @ f), dof)
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
