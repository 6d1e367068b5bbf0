"""The derivative of the digamma function, which PyTensor does not compile for numba.

It occurs in second derivatives of densities with a shape that varies, such as those of
beta-binomial data with random effects.
"""

from math import floor, inf, pi, sin

from pytensor.scalar.math import TriGamma

from pm_evidence.core.codegen.numba import njit
from pm_evidence.targets.compile.implementations import implement_scalar_by

__all__ = ["implement_trigamma", "trigamma"]

# From here on the asymptotic series with six Bernoulli numbers is exact to rounding.
_LARGE = 15.0


@njit(cache=False)
def trigamma(x: float) -> float:
    """Return the second derivative of ``log G(x)``."""
    if x <= 0.0:
        if x == floor(x):
            return inf
        # reflection, to a positive argument
        return (pi / sin(pi * x)) ** 2 - _of_positive(1.0 - x)
    return _of_positive(x)


@njit(cache=False)
def _of_positive(x: float) -> float:
    below = 0.0
    while x < _LARGE:
        below += 1.0 / (x * x)
        x += 1.0
    inverse = 1.0 / x
    square = inverse * inverse
    series = 1 / 42 - square * (1 / 30 - square * (5 / 66 - square * (691 / 2730)))
    series = 1 / 6 - square * (1 / 30 - square * series)
    return below + inverse * (1.0 + inverse * (0.5 + inverse * series))


def implement_trigamma() -> None:
    """Let numba compile the operation of PyTensor."""
    implement_scalar_by(TriGamma, trigamma, version=1)
