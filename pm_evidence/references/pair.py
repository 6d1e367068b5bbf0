"""Two models as one target: the posterior of the first is the reference for that of the second."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from math import log, pi
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.codegen.numba import call_density, cfunc, density_signature, nb, njit
from pm_evidence.core.numerics import dot
from pm_evidence.core.shape import Shape, learn_shape
from pm_evidence.references.compiled import (
    component_density,
    doubles,
    integers,
    numbers_of,
    pointers,
)
from pm_evidence.references.mixture import StudentFit, student_dof
from pm_evidence.targets.compile.numba_density import CompiledDensity, log_densities
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

    def arrays(self) -> tuple[Floats, Positions]:
        """Return it as arrays that compiled code reads."""
        d, g = self.slope.shape
        constant = np.array([-self.circular.size * log(2.0 * pi)])
        parts = [constant, self.location, self.slope.ravel()]
        if d:
            parts.append(numbers_of(self.rest))
        positions = np.concatenate([[d, g], self.own, self.given])
        return np.concatenate(parts), np.ascontiguousarray(positions, np.int64)


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


# Words of each side, after the number of coordinates and whether there is a gradient.
_N_HEAD, _N_OF_SIDE = 2, 19


@njit
def _add_linking(numbers, positions, x, gradient, with_gradient):
    """Return the log of a linking density and add its gradient."""
    d, g = positions[0], positions[1]
    if d == 0:
        return numbers[0]
    own, given = positions[2 : 2 + d], positions[2 + d : 2 + d + g]
    location, slopes = numbers[1 : 1 + d], numbers[1 + d : 1 + d + d * g]
    rest, pull, here = np.empty(d), np.empty(d), np.empty(g)
    for k in range(g):
        here[k] = x[given[k]]
    for j in range(d):
        rest[j] = x[own[j]] - location[j] - dot(slopes[j * g : (j + 1) * g], here)
    part = numbers[1 + d + d * g :]
    log_density = component_density(part, rest, np.arange(d), with_gradient, pull)
    if with_gradient:
        for j in range(d):
            gradient[own[j]] += pull[j]
            for k in range(g):
                gradient[given[k]] -= slopes[j * g + k] * pull[j]
    return numbers[0] + log_density


@njit
def _map(mapped, origin, location, matrix, own):
    """Map some of the coordinates of a model, in place."""
    m = mapped.size
    dense, apart = matrix.size > m, np.empty(m)
    for i in range(m):
        apart[i] = own[mapped[i]] - origin[i]
    for i in range(m):
        moved = (
            dot(matrix[i * m : i * m + i + 1], apart[: i + 1]) if dense else matrix[i] * apart[i]
        )
        own[mapped[i]] = location[i] + moved


@njit
def _map_gradient(mapped, matrix, slope):
    """Replace the gradient at mapped coordinates by that at the coordinates before, in place."""
    m = mapped.size
    dense, before = matrix.size > m, np.zeros(m)
    for i in range(m):
        pull = slope[mapped[i]]
        if dense:
            for j in range(i + 1):
                before[j] += matrix[i * m + j] * pull
        else:
            before[i] = matrix[i] * pull
    for i in range(m):
        slope[mapped[i]] = before[i]


@njit
def _side(words, x, gradient, with_gradient):
    """Return whether a model failed, and its log density; ``gradient`` receives its gradient."""
    positions, log_mass, mapped = integers(words, 3), doubles(words, 5), integers(words, 7)
    matrix, numbers, linked = doubles(words, 13), doubles(words, 15), integers(words, 17)
    n = positions.size
    own, out, slopes = np.empty(n), np.empty(2), np.empty((2, n))
    for j in range(own.size):
        own[j] = x[positions[j]]
    _map(mapped, doubles(words, 9), doubles(words, 11), matrix, own)
    status = call_density(words[0], own, out, slopes, integers(words, 1))
    if status != 0:
        return status, np.nan
    gradient[:] = 0.0
    if with_gradient:
        for j in range(own.size):
            slopes[0, j] += slopes[1, j]
        _map_gradient(mapped, matrix, slopes[0])
        for j in range(own.size):
            gradient[positions[j]] = slopes[0, j]
    linking = _add_linking(numbers, linked, x, gradient, with_gradient)
    return status, out[0] + out[1] - log_mass[0] + linking


@njit
def _evaluate(words, x, out, gradient):
    with_gradient = words[1] != 0
    slopes, first = np.empty((2, x.size)), words[_N_HEAD : _N_HEAD + _N_OF_SIDE]
    status, of_first = _side(first, x, slopes[0], with_gradient)
    if status != 0:
        return status
    status, of_second = _side(words[_N_HEAD + _N_OF_SIDE :], x, slopes[1], with_gradient)
    if status != 0:
        return status
    out[0], out[1] = of_first, of_second - of_first
    if with_gradient:
        for j in range(x.size):
            gradient[0, j] = slopes[0, j]
            gradient[1, j] = slopes[1, j] - slopes[0, j]
    return status


def _density(x_: Any, out_: Any, gradient_: Any, data_: Any) -> Any:
    words = nb.carray(data_, (_N_HEAD + 2 * _N_OF_SIDE,))
    x, out = nb.carray(x_, (words[0],)), nb.carray(out_, (2,))
    return _evaluate(words, x, out, nb.carray(gradient_, (2, words[0])))


@cache
def _c_function() -> Any:
    return cfunc(density_signature(), _density)


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
    def density(self) -> CompiledDensity:
        """Both log densities, without gradients."""
        return self._both([model.density for model in self.models])

    @cached_property
    def differentiable(self) -> CompiledDensity | None:
        """Both log densities with gradients; None if a model has none."""
        densities = [model.differentiable for model in self.models]
        return None if None in densities else self._both(densities)

    def _both(self, densities: Sequence[Any]) -> CompiledDensity:
        has_gradient = all(density.has_gradient for density in densities)
        nothing = np.array([], np.int64), Alignment.of("none", *np.empty((2, 0, 0)))
        maps = nothing, (self.layout.aligned_of(1), self.alignment)
        words, kept = [self.n_dim, int(has_gradient)], []
        sides = zip(densities, self.layout.of_model, self.models, self.linking, maps, strict=True)
        for density, positions, model, linking, (mapped, along) in sides:
            # the volume of the map belongs to the density
            log_mass = np.array([model.log_order_mass - along.log_volume])
            matrix = np.ascontiguousarray(along.matrix)
            arrays = [density.data, positions, log_mass, mapped, along.origin, along.location]
            arrays += [matrix, *linking.arrays()]
            words += [density.address, *pointers(*arrays)]
            # what the words point to has to outlive the density
            kept.append((density, arrays))
        return CompiledDensity(
            _c_function().address,
            np.array(words, np.int64),
            has_gradient,
            tuple(op for density in densities for op in density.slow_ops),
            (_c_function(), kept),
        )

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
