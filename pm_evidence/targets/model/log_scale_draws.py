"""Draws of positive variables and shares by their logarithms, which do not round to zero.

A gamma variable of shape 0.001 is smaller than the least float64 in half of its draws, and a beta
variable with two such parameters rounds to 0 or 1 in nearly all of them. The densities of their
logarithms are well-behaved there, so that the logarithms themselves are drawn.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.transforms import SimplexTransform
from pymc.logprob.transforms import LogOddsTransform, LogTransform
from pymc.pytensorf import constant_fold
from pytensor.graph.basic import Variable
from pytensor.tensor.random.basic import BetaRV, DirichletRV, GammaRV, InvGammaRV

from pm_evidence.targets.layout import shape_of

__all__ = ["log_scale_draw"]

type _Shape = tuple[int, ...]


def _log_gamma(shape_parameter: Variable, shape: _Shape) -> Variable:
    """Return the log of a gamma variable, by that of the next shape: G(a) = G(a + 1) U^(1 / a)."""
    larger = pm.Gamma.dist(alpha=shape_parameter + 1.0, beta=1.0, shape=shape)
    return pt.log(larger) - pm.Exponential.dist(1.0, shape=shape) / shape_parameter


def _log_scaled_gamma(a: Variable, scale: Variable, shape: _Shape) -> Variable:
    return _log_of_number(scale) + _log_gamma(a, shape)


def _log_inverse_gamma(a: Variable, scale: Variable, shape: _Shape) -> Variable:
    return _log_of_number(scale) - _log_gamma(a, shape)


def _log_of_number(x: Variable) -> Variable:
    return pt.log(x.astype("float64"))  # PyMC stores 2.0 in single precision


def _log_odds(a: Variable, b: Variable, shape: _Shape) -> Variable:
    return _log_gamma(a, shape) - _log_gamma(b, shape)


def _log_shares(a: Variable, shape: _Shape) -> Variable:
    log_share = _log_gamma(a, shape)
    return (log_share - log_share.mean(axis=-1, keepdims=True))[..., :-1]


@dataclass(frozen=True)
class _Draw:
    """How the unconstrained value of a distribution is drawn.

    From shape parameters of ``least`` on, the draws of the distribution itself suffice. The shape
    parameters are the first ``n_shapes`` parameters.
    """

    transform: type
    coordinate: Callable[..., Variable]
    n_shapes: int
    least: float


# Gamma variables of shape 0.1 round to zero with a probability of 1e-31. Shares round to one as
# well, where the odds exceed 1e16, which has a probability of 1e-8 for a shape of 0.5.
_DRAWS: dict[type, _Draw] = {
    GammaRV: _Draw(LogTransform, _log_scaled_gamma, 1, 0.1),
    InvGammaRV: _Draw(LogTransform, _log_inverse_gamma, 1, 0.1),
    BetaRV: _Draw(LogOddsTransform, _log_odds, 2, 0.5),
    DirichletRV: _Draw(SimplexTransform, _log_shares, 1, 0.1),
}


def log_scale_draw(rv: Variable, transform: Any) -> Variable | None:
    """Return the graph of an unconstrained value that is drawn as a logarithm.

    Parameters
    ----------
    rv : TensorVariable
        A free variable of a model.
    transform : Transform or None
        Its transform in the model.

    Returns
    -------
    TensorVariable or None
        None if the draws of the distribution itself practically never round to an end of the
        support, or if no such graph is known.
    """
    node: Any = rv.owner
    draw = _DRAWS.get(type(node.op))
    if draw is None or type(transform) is not draw.transform:
        return None
    parameters = node.op.dist_params(node)
    shapes = constant_fold(parameters[: draw.n_shapes], raise_not_constant=False)
    if all(not isinstance(p, Variable) and bool(np.all(p >= draw.least)) for p in shapes):
        return None
    return draw.coordinate(*parameters, shape_of(rv))
