"""A Student-t density bent by the third derivatives at a peak.

Laplace's method ends at second derivatives. The next term of the log density in the coordinates
``u`` of the curvature, ``sum_ijk T_ijk u_i u_j u_k / 6``, is matched by drawing ``z`` from a
symmetric density and moving it by a map of second order. ``u_i`` depends on ``z_1, ..., z_i``
alone (a Knothe-Rosenblatt map, as in El Moselhy and Marzouk 2012), so that the map is inverted one
coordinate after the other, and its log determinant is a sum. Each term of the expansion is matched
by the coordinate of its largest index. A shift then cancels the terms of first order that the log
determinant has gained.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.shape import Shape
from pm_evidence.references.mixture import StudentFit, student_dof

Floats = NDArray[np.float64]

# A smaller skewness of a coordinate counts as none, because its inverse would lose digits.
_LEAST_SKEW = 1e-4


@dataclass(frozen=True, slots=True)
class CurvedFit:
    """A Student-t density, moved as third derivatives ask for."""

    shape: Shape  # location and scale before it is moved, with a lower Cholesky factor
    dof: float  # degrees of freedom
    shift: Floats  # shape (d,): what is added to each coordinate
    skew: Floats  # shape (d,): s in z + s z**2 / 2 + s**2 z**3 / 6, which rises for all z
    spread: Floats  # shape (d, d): change of the log scale of one coordinate with those before it
    bend: Floats  # shape (d, d, d): change of its location with products of those before it

    @classmethod
    def of(cls, shape: Shape, third: Floats) -> Self:
        """Return the density with third derivatives of shape ``(d, d, d)`` at its peak.

        They are those of the log density in the coordinates in which the curvature is that of a
        standard normal density.
        """
        d = len(third)
        before = np.tril(np.ones((d, d), bool), -1)
        alone = np.einsum("iii->i", third)
        spread = np.where(before, np.einsum("iij->ij", third), 0.0) / 2.0
        bend = np.where(before[:, :, None] & before[:, None, :], third, 0.0) / 2.0
        skew = np.where(np.abs(alone / 3.0) < _LEAST_SKEW, 0.0, alone / 3.0)
        return cls(shape, student_dof(d), alone / 3.0 + spread.sum(axis=0), skew, spread, bend)

    def draw(self, n: int, rng: np.random.Generator) -> Floats:
        """Return ``n`` independent draws, shape ``(n, d)``."""
        z = self._symmetric.draw(n, rng)
        u = np.empty_like(z)
        for i, skew in enumerate(self.skew):
            middle, log_scale = self._given(z[:, :i])
            moved = z[:, i] * (1.0 + skew * z[:, i] / 2.0 + (skew * z[:, i]) ** 2 / 6.0)
            u[:, i] = middle + moved * np.exp(log_scale)
        draws: Floats = self.shape.mean + self.shape.scaled(u)
        return draws

    def log_density(self, x: Floats) -> Floats:
        """Return the normalised log density of every row of ``x`` in nats."""
        u = self.shape.whitened(x)
        z, log_slope = np.empty_like(u), np.full(len(u), self.shape.log_volume)
        with np.errstate(over="ignore", invalid="ignore"):  # far away the density is zero
            for i, skew in enumerate(self.skew):
                middle, log_scale = self._given(z[:, :i])
                moved = (u[:, i] - middle) * np.exp(-log_scale)
                if skew:  # the real root of a cubic equation in 1 + skew z
                    root = 2.0 * np.sinh(np.arcsinh(3.0 * skew * moved + 2.0) / 3.0)
                    moved = (root - 1.0) / skew
                z[:, i] = moved
                log_slope += log_scale + np.log1p(skew * moved + (skew * moved) ** 2 / 2.0)
            log_density = self._symmetric.log_density(z) - log_slope
        return np.where(np.isnan(log_density), -np.inf, log_density)

    @property
    def _symmetric(self) -> StudentFit:
        """The density of ``z``."""
        d = self.skew.size
        return StudentFit(Shape(np.zeros(d), np.ones((d, 1))), self.dof)

    def _given(self, before: Floats) -> tuple[Floats, Floats]:
        """Return location and log scale of a coordinate, given those before it."""
        i = before.shape[1]
        middle = self.shift[i] + ((before @ self.bend[i, :i, :i]) * before).sum(axis=1)
        return middle, np.tanh(before @ self.spread[i, :i])


def variance_of_third(third: Floats) -> float:
    """Return the variance of the log weights that third derivatives cause, in square nats.

    It is that of ``sum_ijk T_ijk u_i u_j u_k / 6`` for a standard normal ``u``.
    """
    trace = np.einsum("ijj->i", third)
    return float((9.0 * (trace @ trace) + 6.0 * (third * third).sum()) / 36.0)
