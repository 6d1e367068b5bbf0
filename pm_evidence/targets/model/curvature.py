"""Convexity of functions, known by rules from the functions that they are composed of.

These are the rules of disciplined convex programming (Grant, Boyd and Ye 2006) with those for
log-convex and log-concave functions (Boyd and Vandenberghe 2004, sections 3.2 and 3.5). They are
sufficient and not necessary: what they do not cover is unknown.
"""

from dataclasses import dataclass, replace
from math import inf, isinf, isnan
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "AFFINE",
    "CONCAVE",
    "CONVEX",
    "NOTHING",
    "UNKNOWN",
    "Curvature",
    "Function",
    "composed",
]


class Curvature(NamedTuple):
    """Whether a function is known to be convex, and whether it is known to be concave."""

    is_convex: bool
    is_concave: bool

    def __and__(self, other: "Curvature") -> "Curvature":
        """Return the curvature of the sum of two functions."""
        convex = self.is_convex and other.is_convex
        return Curvature(convex, self.is_concave and other.is_concave)

    def __neg__(self) -> "Curvature":
        return Curvature(self.is_concave, self.is_convex)


AFFINE, CONVEX = Curvature(True, True), Curvature(True, False)
CONCAVE, UNKNOWN = Curvature(False, True), Curvature(False, False)


def composed(
    outer: Curvature, inner: Curvature, *, rises: bool = False, falls: bool = False
) -> Curvature:
    """Return the curvature of ``outer(inner(x))``, where the outer function rises or falls."""
    flat = inner == AFFINE
    along, against = flat or rises, flat or falls
    return Curvature(
        outer.is_convex and ((along and inner.is_convex) or (against and inner.is_concave)),
        outer.is_concave and ((along and inner.is_concave) or (against and inner.is_convex)),
    )


@dataclass(frozen=True, eq=False)
class Function:
    """What is known of all elements of an array, as functions of the inputs.

    Parameters
    ----------
    curvature : Curvature
        That of every element.
    log : Curvature, optional
        That of the logarithm; None unless all elements are known to be positive.
    log_rest : Curvature, optional
        That of the logarithm of ``high`` minus the element; None unless this is known to be
        positive.
    low, high : float
        Bounds of all elements. Of truth values, 0 is false and 1 is true.
    value : ndarray, optional
        The array itself, if it does not depend on the inputs.
    minus : Function, optional
        What this is the negative of.
    square : Function, optional
        Its square, where more is known of that than follows from the rest.
    is_finite : bool
        Whether all elements are finite numbers at all inputs. Otherwise, neither a curvature nor a
        sign is known.
    """

    curvature: Curvature = UNKNOWN
    log: Curvature | None = None
    log_rest: Curvature | None = None
    low: float = -inf
    high: float = inf
    value: NDArray[Any] | None = None
    minus: "Function | None" = None
    square: "Function | None" = None
    is_finite: bool = True

    @classmethod
    def constant(cls, value: Any) -> "Function":
        """Return an array that does not depend on the inputs."""
        value = np.asarray(value)
        if value.dtype.kind not in "biuf" or not value.size:
            return cls(value=value, is_finite=False)
        low, high = float(value.min()), float(value.max())
        if isnan(low):
            return cls(value=value, is_finite=False)
        if isinf(low) or isinf(high):
            return cls(low=low, high=high, value=value, is_finite=False)
        return cls(AFFINE, AFFINE if low > 0.0 else None, None, low, high, value)

    @classmethod
    def positive(cls, log: Curvature, high: float = inf) -> "Function":
        """Return a positive function, of which the curvature of its logarithm is known."""
        convex = Curvature(log.is_convex, False)
        return cls(convex, log, None, 0.0, high)

    @property
    def is_true(self) -> bool:
        """Whether a truth value is true at all inputs."""
        return self.low >= 1.0

    @property
    def is_false(self) -> bool:
        """Whether a truth value is false at all inputs."""
        return self.high <= 0.0

    def is_number(self, number: float) -> bool:
        """Return whether all elements are data, and one number."""
        return self.value is not None and self.low == self.high == number

    def __neg__(self) -> "Function":
        if self.value is not None and self.is_finite:
            return Function.constant(-self.value.astype(float))  # truth values have no negative
        return Function(
            -self.curvature,
            low=-self.high,
            high=-self.low,
            minus=self,
            square=self.square,
            is_finite=self.is_finite,
        )

    def __add__(self, other: "Function") -> "Function":
        if not (self.is_finite and other.is_finite):
            return NOTHING
        for constant, function in ((self, other), (other, self)):
            if constant.is_number(0.0):
                return function
            if function.minus is not None and constant.is_number(function.minus.high):
                return function.minus.rest()
        log = None
        if self.log is not None and other.log is not None:  # sums of log-convex functions are so
            log = Curvature((self.log & other.log).is_convex, False)
        curvature = self.curvature & other.curvature
        return Function(curvature, log, None, self.low + other.low, self.high + other.high)

    def __mul__(self, other: "Function") -> "Function":
        if not (self.is_finite and other.is_finite):
            return NOTHING
        for constant, function in ((self, other), (other, self)):
            if constant.value is not None:
                return function._scaled(constant)
        if self.log is None or other.log is None:
            one, two = self._squared(), other._squared()
            square = None if one is None or two is None else one * two
            return Function(low=0.0 if self.low >= 0.0 <= other.low else -inf, square=square)
        return Function.positive(self.log & other.log)

    def _squared(self) -> "Function | None":
        """Return the square of a function that has no zeros; None if it may have some."""
        return self.square if self.log is None else self.to_power(2.0)

    @property
    def is_exponential(self) -> bool:
        """Whether it is plus or minus the exponential of an affine function."""
        square = self._squared()
        return square is not None and square.log == AFFINE

    def _scaled(self, constant: "Function") -> "Function":
        """Return the products with an array of constants."""
        if constant.is_number(1.0):
            return self
        if constant.is_number(0.0):
            return Function.constant(0.0)
        ends = [0.0 if 0.0 in (a, b) else a * b for a in _ends(self) for b in _ends(constant)]
        same = constant.low == constant.high > 0.0
        log = None if constant.log is None else self.log
        square = None
        if self.log is not None and constant.value is not None and constant.low < 0.0:
            with np.errstate(over="ignore"):
                square = self.to_power(2.0) * Function.constant(constant.value**2.0)
        log_rest = self.log_rest if same else None
        found = Function(UNKNOWN, log, log_rest, min(ends), max(ends), square=square)
        if constant.low >= 0.0:
            return replace(found, curvature=self.curvature)
        if constant.high <= 0.0:
            return replace(found, curvature=-self.curvature)
        return replace(found, curvature=AFFINE) if self.curvature == AFFINE else found

    def rest(self) -> "Function":
        """Return the upper bound, which is finite, minus the function."""
        log_rest = self.log if self.low == 0.0 else None
        return Function(-self.curvature, self.log_rest, log_rest, 0.0, self.high - self.low)

    def reciprocal(self) -> "Function":
        """Return one over the function."""
        if self.log is None:
            return NOTHING
        found = Function.positive(-self.log)
        curvature = composed(CONVEX, self.curvature, falls=True)
        convex = curvature.is_convex or found.curvature.is_convex
        return replace(found, curvature=Curvature(convex, False))

    def to_power(self, power: float) -> "Function":
        """Return the function to a constant power."""
        if power == 1.0:
            return self
        even = power >= 2.0 and power % 2.0 == 0.0
        if self.log is None:
            if self.square is not None and even:
                return self.square.to_power(0.5 * power)
            if not even:
                return NOTHING
            rises, falls = self.low >= 0.0, self.high <= 0.0
            return Function(composed(CONVEX, self.curvature, rises=rises, falls=falls), low=0.0)
        log = self.log if power >= 0.0 else -self.log
        outer = CONCAVE if 0.0 < power < 1.0 else CONVEX
        curvature = composed(outer, self.curvature, rises=power >= 0.0, falls=power <= 0.0)
        found = Function.positive(log)
        convex = curvature.is_convex or found.curvature.is_convex
        return replace(found, curvature=Curvature(convex, curvature.is_concave))

    def chosen(self, other: "Function", mask: NDArray[np.bool_] | None = None) -> "Function":
        """Return an array whose elements are those of one array or another.

        Parameters
        ----------
        other : Function
            The other array.
        mask : ndarray of bool, optional
            Which elements are taken from the first; not known if left out.
        """
        if mask is not None and not mask.any():
            return other
        if mask is not None and mask.all():
            return self
        one, two = (self, other) if mask is None else (self._where(mask), other._where(~mask))
        log = None if one.log is None or two.log is None else one.log & two.log
        low, high = min(one.low, two.low), max(one.high, two.high)
        if not (one.is_finite and two.is_finite):
            return NOTHING
        return Function(one.curvature & two.curvature, log, None, low, high)

    def _where(self, mask: NDArray[np.bool_]) -> "Function":
        """Return the elements that are chosen."""
        if self.value is None:
            return self
        value, chosen = np.broadcast_arrays(self.value, mask)
        return Function.constant(value[chosen])


NOTHING = Function(is_finite=False)


def _ends(function: Function) -> tuple[float, float]:
    return function.low, function.high
