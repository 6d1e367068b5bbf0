"""Two models as one target: the posterior of the first is the reference for that of the second."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log, pi
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.shape import Shape, learn_shape
from pm_evidence.references.density import MixtureDensity
from pm_evidence.references.mixture import StudentFit, student_dof
from pm_evidence.targets.compile.numba_density import log_densities, write_densities
from pm_evidence.targets.compile.numpy_density import NumpyDensity
from pm_evidence.targets.layout import PairLayout, Particles

Floats = NDArray[np.float64]
Positions = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class LinkingDensity:
    """A normalised density of some coordinates given others: Student-t around a linear prediction.

    It is fitted to the posterior of the model that has the coordinates (the linking density, or
    pseudo-prior, of Carlin and Chib 1995). Any normalised density leaves the evidence of the other
    model unchanged; one near the posterior makes the two models alike.
    """

    own: Positions  # shape (d,): positions of the coordinates
    given: Positions  # shape (g,): positions of the coordinates that they are predicted from
    # Positions of further coordinates, which are uniform on circles of circumference 2 pi
    circular: Positions
    location: Floats  # shape (d,): prediction where the given coordinates are zero
    slope: Floats  # shape (d, g): change of the prediction with each given coordinate
    rest: StudentFit  # density of the coordinates minus their prediction

    @classmethod
    def to(cls, x: Floats, own: Positions, given: Positions, circular: Positions) -> Self:
        """Fit it to points ``x`` of shape ``(n, n_dim)``, whose other coordinates are not read."""
        g, d = given.size, own.size
        joint = Shape(np.zeros(g), np.ones((g, 1)))  # with nothing to predict
        if d:
            joint = learn_shape(np.column_stack([x[:, given], x[:, own]]))
        slope, factor = np.zeros((d, g)), joint.factor[g:]
        if joint.is_dense:
            # rows of the factor that belong to ``own`` hold their regression on the given ones
            slope = np.linalg.solve(joint.factor[:g, :g].T, joint.factor[g:, :g].T).T
            factor = joint.factor[g:, g:]
        location = joint.mean[g:] - slope @ joint.mean[:g]
        rest = StudentFit(Shape(np.zeros(d), factor), student_dof(d))
        return cls(own, given, circular, location, slope, rest)

    def draw_into(self, x: Floats, rng: np.random.Generator) -> None:
        """Draw the coordinates of every row of ``x``, shape ``(n, n_dim)``, in place."""
        n = len(x)
        if self.own.size:
            predicted = self.location + x[:, self.given] @ self.slope.T
            x[:, self.own] = predicted + self.rest.draw(n, rng)
        x[:, self.circular] = rng.uniform(-pi, pi, (n, self.circular.size))

    @cached_property
    def _of_rest(self) -> MixtureDensity:
        return MixtureDensity.of([(self.rest, 0.0)])

    def add_to(self, log_density: Floats, gradient: Floats | None, x: Floats) -> None:
        """Add its log at the rows of ``x``, shape ``(n, n_dim)``, and its gradient if asked for."""
        log_density -= self.circular.size * log(2.0 * pi)
        if not self.own.size:
            return
        rest = x[:, self.own] - (self.location + x[:, self.given] @ self.slope.T)
        value, slope = self._of_rest(rest, gradient is not None)
        log_density += value
        if gradient is not None and slope is not None:
            gradient[:, self.own] += slope
            gradient[:, self.given] -= slope @ self.slope


# Most numbers of the points that are evaluated together.
_MOST_NUMBERS = 2**22
# What the map makes equal: nothing, location and scale of every coordinate, or all covariances.
ALIGNMENTS = ("none", "scales", "covariances")


@dataclass(frozen=True, eq=False)
class Alignment:
    """The map ``T(z) = location + matrix (z - origin)``, and its inverse."""

    origin: Floats  # shape (d,): a point, and where it is mapped to
    location: Floats
    # shape (d, d) or (d, 1): a lower triangular matrix, or the diagonal of a diagonal one
    matrix: Floats

    @classmethod
    def of(cls, kind: str, reference: Floats, target: Floats) -> Self:
        """Return the map that gives draws the moments of others."""
        d = reference.shape[1]
        if kind == "none" or d == 0:
            return cls(np.zeros(d), np.zeros(d), np.ones((d, 1)))
        dense = None if kind == "covariances" else False
        one, other = (learn_shape(x, dense) for x in (reference, target))
        if one.is_dense and other.is_dense:
            matrix = np.linalg.solve(one.factor.T, other.factor.T).T
        else:
            one, other = (learn_shape(x, dense=False) for x in (reference, target))
            matrix = other.factor / one.factor
        return cls(one.mean, other.mean, matrix)

    @property
    def is_dense(self) -> bool:
        """Whether the matrix has entries beside the diagonal."""
        return self.matrix.shape[1] == self.matrix.shape[0] > 1

    @property
    def log_volume(self) -> float:
        """Log of the determinant of the matrix."""
        scales = np.diag(self.matrix) if self.is_dense else self.matrix[:, 0]
        return float(np.log(scales).sum())

    def back(self, y: Floats) -> Floats:
        """Return the points that are mapped to the rows of ``y``, shape ``(n, d)``."""
        apart = y - self.location
        if self.is_dense:
            return self.origin + np.linalg.solve(self.matrix, apart.T).T
        return self.origin + apart / self.matrix[:, 0]

    def moved(self, x: Floats) -> Floats:
        """Return the points that the rows of ``x``, shape ``(n, d)``, are mapped to."""
        apart = x - self.origin
        return self.location + (apart @ self.matrix.T if self.is_dense else apart * self.matrix.T)

    def pulled_back(self, gradient: Floats) -> Floats:
        """Return gradients at the points ``x`` from those at the points that they are mapped to."""
        return gradient @ self.matrix if self.is_dense else gradient * self.matrix.T


@dataclass(eq=False, repr=False)
class PairTarget:
    """Two models whose two log densities are ``log f_a`` and ``log f_b - log f_a``.

    ``f`` is prior times likelihood of a model, times the linking density of the coordinates that
    only the other model has. Both are densities of all coordinates, and their integrals are the
    evidences of the models. Shared coordinates are those of the first model; an affine map gives
    those of the second one, which aligns the two posteriors (targeted free energy perturbation,
    Jarzynski 2002; warp bridges, Meng and Schilling 2002).
    """

    models: Sequence[Any]
    layout: PairLayout
    linking: Sequence[LinkingDensity]
    alignment: Alignment

    def __post_init__(self) -> None:
        self.n_dim, self.period = self.layout.n_dim, self.layout.period
        self.continuous, self.discrete = np.arange(self.n_dim), np.array([], np.int64)
        self.lower = self.upper = np.empty(0)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.models, self.layout, self.linking, self.alignment)

    @cached_property
    def density(self) -> NumpyDensity:
        """Both log densities, without gradients."""
        return self._both("density")

    @cached_property
    def differentiable(self) -> NumpyDensity | None:
        """Both log densities with gradients; None if a model has none."""
        has_none = any(model.differentiable is None for model in self.models)
        return None if has_none else self._both("differentiable")

    def _both(self, name: str) -> NumpyDensity:
        densities = [getattr(model, name) for model in self.models]

        def both(x: Floats, arrays: Any, with_gradient: bool) -> tuple[Floats, Floats | None]:
            values = np.empty((len(x), 2))
            gradients = np.empty((len(x), 2, self.n_dim)) if with_gradient else None
            for k in (0, 1):
                values[:, k], slope = self._side(k, name, x, with_gradient)
                if gradients is not None:
                    gradients[:, k] = slope
            with np.errstate(invalid="ignore"):
                values[:, 1] -= values[:, 0]
                if gradients is not None:
                    gradients[:, 1] -= gradients[:, 0]
            return values, gradients

        has_gradient = all(density.has_gradient for density in densities)
        slow_ops = tuple(op for density in densities for op in density.slow_ops)
        n_rows = max(_MOST_NUMBERS // self.n_dim, 1)
        return NumpyDensity(both, self.n_dim, (), has_gradient, n_rows, slow_ops=slow_ops)

    def _side(
        self, k: int, name: str, x: Floats, with_gradient: bool
    ) -> tuple[Floats, Floats | None]:
        """Return the log density of a model at points of both, and its gradient."""
        model, positions, mapped = (
            self.models[k],
            self.layout.of_model[k],
            self.layout.aligned_of(k),
        )
        own = x[:, positions]
        if k == 1:
            own[:, mapped] = self.alignment.moved(own[:, mapped])
        found = [np.empty((len(x), 2))]
        found += [np.empty((len(x), 2, own.shape[1]))] if with_gradient else []
        write_densities(model, name, own, *found)
        log_density, gradient = found[0].sum(axis=1) - model.log_order_mass, None
        if k == 1:  # the volume of the map belongs to the density
            log_density += self.alignment.log_volume
        if with_gradient:
            slope, gradient = found[1].sum(axis=1), np.zeros(x.shape)
            if k == 1:
                slope[:, mapped] = self.alignment.pulled_back(slope[:, mapped])
            gradient[:, positions] = slope
        self.linking[k].add_to(log_density, gradient, x)
        return log_density, gradient

    def evaluate(self, x: Floats) -> Particles:
        """Return the points ``x``, shape ``(n, n_dim)``, with both log densities."""
        return Particles(x, log_densities(self, x), None)

    def completed(self, x: Floats, side: int, rng: np.random.Generator) -> Floats:
        """Return points of one model as points of both."""
        points = np.zeros((len(x), self.n_dim))
        points[:, self.layout.of_model[side]] = x
        if side == 1:
            aligned = self.layout.aligned
            points[:, aligned] = self.alignment.back(points[:, aligned])
        self.linking[side].draw_into(points, rng)
        return points

    def wrap(self, x: Floats) -> Floats:
        """Return ``x`` with circular coordinates brought back to one period."""
        circular = self.period > 0
        if circular.any():
            x[:, circular] -= self.period[circular] * np.round(
                x[:, circular] / self.period[circular]
            )
        return x
