"""By how much convex functions exceed their tangents, without cancellation near these.

Densities of gamma and beta variables with large shape parameters are differences of terms that are
many orders of magnitude larger than their sum. These functions are that sum.
"""

from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.symbolic import FusibleSymbolicOp

__all__ = ["BinomialExcess", "ExponentialExcess", "binomial_excess", "exponential_excess"]

_NEAR = 1e-3  # nearer to the tangent, the first terms of a series are exact


class ExponentialExcess(FusibleSymbolicOp):
    """The operation of `exponential_excess`."""

    def build_inner_graph(self, w: Any) -> list[Variable]:
        """Return the graph of the result."""
        series = _near(w, 1.0, 1.0)
        return [pt.switch(pt.abs(w) < _NEAR, series, pt.expm1(w) - w)]


class BinomialExcess(FusibleSymbolicOp):
    """The operation of `binomial_excess`."""

    def build_inner_graph(self, w: Any, a: Any, b: Any) -> list[Variable]:
        """Return the graph of the result."""
        share = a / (a + b)
        spread = share * (b / (a + b))
        series = (a + b) * spread * _near(w, 1.0 - 2.0 * share, 1.0 - 6.0 * spread)
        tangent = pt.log(a) - pt.log(b)
        to_zero = pt.softplus(-tangent - w) - pt.softplus(-tangent)
        to_one = pt.softplus(tangent + w) - pt.softplus(tangent)
        return [pt.switch(pt.abs(w) < _NEAR, series, a * to_zero + b * to_one)]


def exponential_excess(w: Variable) -> Variable:
    """Return ``exp(w) - 1 - w``, which is convex and at least zero."""
    return ExponentialExcess()(w)


def binomial_excess(w: Variable, a: Variable, b: Variable) -> Variable:
    """Return ``n log(1 + m (exp(w) - 1)) - a w`` with ``n = a + b`` and ``m = a / n``.

    It is ``n`` times the Kullback-Leibler divergence of a Bernoulli variable of probability ``m``
    from one whose log odds are larger by ``w``, in nats. It is convex in ``w``, and at least zero.

    Parameters
    ----------
    w : TensorVariable
        Difference of log odds.
    a, b : TensorVariable
        Positive numbers.
    """
    return BinomialExcess()(w, a, b)


def _near(w: Any, third: Any, fourth: Any) -> Any:
    """Return the series to fourth order, with these ratios of cumulants to the variance."""
    w = pt.clip(w, -_NEAR, _NEAR)  # the gradient of the series has to be finite everywhere
    return w**2 * (0.5 + w * (third / 6.0 + w * fourth / 24.0))
