"""Mixtures of Student-t densities as arrays that compiled code reads."""

from dataclasses import dataclass, replace
from math import log, pi
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.shape import Shape
from pm_evidence.core.sparse_shape import SparseShape
from pm_evidence.references.fitted import StudentFit
from pm_evidence.references.given import Mixture, Normal, StudentT
from pm_evidence.references.mixture import StudentMixture
from pm_evidence.references.stretched import StretchedFit

__all__ = [
    "DENSE",
    "N_OF_COMPONENT",
    "N_OF_MIXTURE",
    "SCALES",
    "SPARSE",
    "Component",
    "Packed",
    "packed",
    "unpacked",
]

Floats = NDArray[np.float64]

# Numbers before the components (their count, a constant that is added to the log density, the log
# of the mass that is taken off the target, the share of the prior), and before the arrays of a
# component (its constant, its degrees of freedom, the form of its factor, and how many numbers that
# has).
N_OF_MIXTURE, N_OF_COMPONENT = 4, 4
# Forms: scales; a lower factor of the covariance; a sparse lower factor of its inverse.
SCALES, DENSE, SPARSE = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Packed:
    """A mixture of Student-t densities over some coordinates of a point.

    Parameters
    ----------
    numbers : ndarray of float64
        Four numbers of the mixture: the number of components, a constant that is added to its log
        density, the log mass of the prior, and its share. Then for each component: its log density
        at the location with its log weight, in nats, its degrees of freedom, the form and the size
        of its factor, and arrays: location, centre and scale of the stretched coordinates, shape
        ``(d,)`` each (scales are 0 where a coordinate is not stretched), and the factor. That is
        the scales, shape ``(d,)``; the lower factor of the covariance, shape ``(d, d)``; or for
        that of its inverse, with ``n`` elements below the diagonal, the order of coordinates,
        shape ``(d,)``, the first elements of columns, ``(d + 1,)``, rows, ``(n,)``, diagonal,
        ``(d,)``, and elements, ``(n,)``. The first three of these hold the bits of integers.
    positions : ndarray of int64, shape (d,)
        Positions of the coordinates in a point.
    """

    numbers: Floats
    positions: NDArray[np.int64]

    def beside_prior(self, log_mass: float, share: float) -> "Packed":
        """Return it with the log mass of the prior, and the share of the prior in the reference."""
        numbers = self.numbers.copy()
        numbers[2:4] = log_mass, share
        return replace(self, numbers=numbers)


@dataclass(frozen=True, slots=True)
class Component:
    """A Student-t density in stretched coordinates, as it is found in ``Packed``.

    Parameters
    ----------
    log_peak : float
        Its log density at the location with its log weight, in nats.
    dof : float
        Degrees of freedom.
    location, centre, scale : ndarray, shape (d,)
        Location, and centre and scale of the stretched coordinates.
    factor : ndarray, shape (d,) or (d, d)
        Scales, or the lower factor of the covariance; empty where ``sparse`` is given.
    sparse : tuple of ndarray, optional
        Order of the coordinates, rows, columns, diagonal and elements of the lower factor of the
        inverse of the covariance.
    """

    log_peak: float
    dof: float
    location: Floats
    centre: Floats
    scale: Floats
    factor: Floats
    sparse: tuple[NDArray[Any], ...] | None


def unpacked(packed: Packed) -> tuple[float, list[Component]]:
    """Return the constant and the components of a mixture."""
    numbers, d = packed.numbers, packed.positions.size
    start, parts = N_OF_MIXTURE, list[Component]()
    for _ in range(int(numbers[0])):
        log_peak, dof, form, size = numbers[start : start + N_OF_COMPONENT]
        start += N_OF_COMPONENT
        arrays, factor = np.split(numbers[start : start + 3 * d + int(size)], [3 * d])
        start += arrays.size + factor.size
        sparse = _sparse(factor, d) if form == SPARSE else None
        factor = factor.reshape(d, d) if form == DENSE else factor
        location, centre, scale = arrays.reshape(3, d)
        head = float(log_peak), float(dof)
        parts.append(Component(*head, location, centre, scale, factor, sparse))
    return float(numbers[1]), parts


def _sparse(factor: Floats, d: int) -> tuple[NDArray[Any], ...]:
    """Return order, rows, columns, diagonal and elements of a sparse factor."""
    n = (factor.size - 3 * d - 1) // 2
    order, start, row = np.split(factor[: 2 * d + 1 + n].view(np.int64), [d, 2 * d + 1])
    diagonal, below = np.split(factor[2 * d + 1 + n :], [d])
    return order, row, np.repeat(np.arange(d), np.diff(start)), diagonal, below


def packed(reference: Any, positions: NDArray[np.int64], n_circular: int = 0) -> Packed | None:
    """Return a reference as arrays, or None if it is none of the densities of this package.

    Parameters
    ----------
    reference : Reference or None
        A density of the coordinates at ``positions``. None stands for a constant.
    positions : ndarray of int64, shape (d,)
        Positions of its coordinates in a point.
    n_circular : int
        Number of further coordinates that are uniform on the circle.
    """
    constant = -n_circular * log(2.0 * pi)
    if reference is None:
        empty = np.array([], np.int64)
        return Packed(np.array([0.0, constant, 0.0, 0.0]), empty)
    fit = reference.fitted if isinstance(reference, Normal | StudentT | Mixture) else reference
    if isinstance(fit, StudentMixture):
        parts, weights = fit.components, fit.log_weight
    else:
        parts, weights = (fit,), np.zeros(1)
    if not all(isinstance(part, StudentFit | StretchedFit) for part in parts):
        return None
    rows = [np.array([len(parts), constant, 0.0, 0.0])]
    for part, log_weight in zip(parts, weights, strict=True):
        rows += _component(part, float(log_weight))
    return Packed(np.concatenate(rows), np.ascontiguousarray(positions, np.int64))


def _component(part: Any, log_weight: float) -> list[Floats]:
    fit = part.fit if isinstance(part, StretchedFit) else part
    mean = fit.shape.mean
    centre, scale = np.zeros(mean.size), np.zeros(mean.size)
    if isinstance(part, StretchedFit):
        heavy = part.stretch.heavy
        centre[heavy], scale[heavy] = part.stretch.centre[heavy], part.stretch.scale[heavy]
    constant = log_weight + fit.log_constant - float(np.log(scale[scale > 0.0]).sum())
    form, factor = _factor(fit.shape)
    head = np.array([constant, fit.dof, form, factor.size])
    return [head, mean, centre, scale, factor]


def _factor(shape: Shape | SparseShape) -> tuple[int, Floats]:
    """Return the form of a factor and its numbers."""
    if isinstance(shape, SparseShape):
        indices = np.concatenate([shape.order, shape.pattern.start, shape.pattern.row])
        return SPARSE, np.concatenate([indices.view(float), shape.diagonal, shape.below])
    return DENSE if shape.mean.size > 1 and shape.is_dense else SCALES, shape.factor.ravel()
