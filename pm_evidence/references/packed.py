"""Mixtures of Student-t densities as arrays that compiled code reads."""

from dataclasses import dataclass, replace
from math import log, pi
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.references.fitted import StudentFit
from pm_evidence.references.given import Mixture, Normal, StudentT
from pm_evidence.references.mixture import StudentMixture
from pm_evidence.references.stretched import StretchedFit

__all__ = ["N_OF_COMPONENT", "N_OF_MIXTURE", "Packed", "packed"]

Floats = NDArray[np.float64]

# Numbers before the components (their count, a constant that is added to the log density, the log
# of the mass that is taken off the target, the share of the prior), and before the arrays of a
# component (its constant, its degrees of freedom, and whether its factor is dense).
N_OF_MIXTURE, N_OF_COMPONENT = 4, 3


@dataclass(frozen=True, slots=True)
class Packed:
    """A mixture of Student-t densities over some coordinates of a point.

    Parameters
    ----------
    numbers : ndarray of float64
        Four numbers of the mixture: the number of components, a constant that is added to its log
        density, the log mass of the prior, and its share. Then for each component: its log density
        at the location with its log weight, in nats, its degrees of freedom, 1 if its factor is
        dense and else 0, and arrays: location, centre and scale of the stretched coordinates, shape
        ``(d,)`` each (scales are 0 where a coordinate is not stretched), and the lower factor,
        shape ``(d, d)``, or the scales, shape ``(d,)``.
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
    mean, factor = fit.shape.mean, fit.shape.factor
    centre, scale = np.zeros(mean.size), np.zeros(mean.size)
    if isinstance(part, StretchedFit):
        heavy = part.stretch.heavy
        centre[heavy], scale[heavy] = part.stretch.centre[heavy], part.stretch.scale[heavy]
    constant = log_weight + fit.log_constant - float(np.log(scale[scale > 0.0]).sum())
    dense = mean.size > 1 and fit.shape.is_dense
    head = np.array([constant, fit.dof, float(dense)])
    return [head, mean, centre, scale, factor.ravel()]
