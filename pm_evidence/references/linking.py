"""The density that variables of one model have under another model, which lacks them."""

from dataclasses import dataclass
from math import log, pi
from typing import Self

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.shape import Shape, learn_shape
from pm_evidence.references.fitted import StudentFit, student_dof
from pm_evidence.references.packed import packed

__all__ = ["LinkingDensity"]

Floats = NDArray[np.float64]
Positions = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class LinkingDensity:
    """A normalised density of some coordinates given others: Student-t around a linear prediction.

    It is fitted to the posterior of the model that has the coordinates (the linking density, or
    pseudo-prior, of Carlin and Chib 1995). Any normalised density leaves the evidence of the other
    model unchanged; one near the posterior makes the two models alike.

    Parameters
    ----------
    own : ndarray of int64, shape (d,)
        Positions of the coordinates.
    given : ndarray of int64, shape (g,)
        Positions of the coordinates that they are predicted from.
    circular : ndarray of int64
        Positions of further coordinates, which are uniform on circles of circumference 2 pi.
    location : ndarray, shape (d,)
        Prediction where the given coordinates are zero.
    slope : ndarray, shape (d, g)
        Change of the prediction with each given coordinate.
    rest : StudentFit
        Density of the coordinates minus their prediction.
    """

    own: Positions
    given: Positions
    circular: Positions
    location: Floats
    slope: Floats
    rest: StudentFit

    @classmethod
    def to(cls, x: Floats, own: Positions, given: Positions, circular: Positions) -> Self:
        """Fit it to points ``x`` of shape ``(n, n_dim)``, whose other coordinates are not read."""
        g, d = given.size, own.size
        joint = learn_shape(np.column_stack([x[:, given], x[:, own]])) if d else _nothing(g)
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
        """Return it as arrays that compiled code reads.

        Returns
        -------
        numbers : ndarray of float64
            A constant in nats, ``location``, ``slope`` row by row, and the numbers of ``rest``.
        positions : ndarray of int64
            The number of coordinates, that of the given ones, and the positions of both.
        """
        d, g = self.slope.shape
        constant = np.array([-self.circular.size * log(2.0 * pi)])
        parts = [constant, self.location, self.slope.ravel()]
        if d:
            fitted = packed(self.rest, self.own)
            assert fitted is not None
            parts.append(fitted.numbers)
        positions = np.concatenate([[d, g], self.own, self.given])
        return np.concatenate(parts), np.ascontiguousarray(positions, np.int64)


def _nothing(g: int) -> Shape:
    """Return the shape of given coordinates alone, which nothing is predicted from."""
    return Shape(np.zeros(g), np.ones((g, 1)))
