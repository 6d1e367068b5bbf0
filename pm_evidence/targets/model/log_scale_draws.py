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
from pytensor.graph.basic import Constant, Variable
from pytensor.tensor.random.basic import BetaRV, DirichletRV, GammaRV, InvGammaRV, LogNormalRV

from pm_evidence.targets.layout import shape_of

__all__ = ["log_scale_draw"]

type _Shape = tuple[int, ...]


def _log_gamma(shape_parameter: Variable, shape: _Shape) -> Variable:
    """Return the log of a gamma variable, by that of the next shape: G(a) = G(a + 1) U^(1 / a)."""
    larger = pm.Gamma.dist(alpha=shape_parameter + 1.0, beta=1.0, shape=shape)
    return pt.log(larger) - pm.Exponential.dist(1.0, shape=shape) / shape_parameter


def _log_normal(mean: Variable, sigma: Variable, shape: _Shape) -> Variable:
    return pm.Normal.dist(mean, sigma, shape=shape)


def _log_gamma_scaled(a: Variable, scale: Variable, shape: _Shape) -> Variable:
    return pt.log(scale) + _log_gamma(a, shape)


def _log_inverse_gamma(a: Variable, scale: Variable, shape: _Shape) -> Variable:
    return pt.log(scale) - _log_gamma(a, shape)


def _log_odds(a: Variable, b: Variable, shape: _Shape) -> Variable:
    return _log_gamma(a, shape) - _log_gamma(b, shape)


def _log_shares(a: Variable, shape: _Shape) -> Variable:
    log_share = _log_gamma(a, shape)
    return (log_share - log_share.mean(axis=-1, keepdims=True))[..., :-1]


@dataclass(frozen=True)
class _Draw:
    """How the unconstrained value of a distribution is drawn, and when its own draws suffice.

    ``suffices`` takes those parameters of which extreme values make draws round.
    """

    transform: type
    coordinate: Callable[..., Variable]
    parameters: slice
    suffices: Callable[[Any], Any]


# Draws round with a probability below 1e-30 for gamma variables of shape 0.1 and for log-normal
# variables of scale 25. Odds of 1e16 round as well: their probability is 1e-8 for a shape of 0.5.
_DRAWS: dict[type, _Draw] = {
    GammaRV: _Draw(LogTransform, _log_gamma_scaled, slice(0, 1), lambda a: a >= 0.1),
    InvGammaRV: _Draw(LogTransform, _log_inverse_gamma, slice(0, 1), lambda a: a >= 0.1),
    LogNormalRV: _Draw(LogTransform, _log_normal, slice(1, 2), lambda sigma: sigma <= 25.0),
    BetaRV: _Draw(LogOddsTransform, _log_odds, slice(0, 2), lambda a: a >= 0.5),
    DirichletRV: _Draw(SimplexTransform, _log_shares, slice(0, 1), lambda a: a >= 0.1),
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
    extreme = parameters[draw.parameters]
    if all(isinstance(p, Constant) and bool(np.all(draw.suffices(p.data))) for p in extreme):
        return None
    return draw.coordinate(*parameters, shape_of(rv))
