"""Distributions whose spread about their location is multiplied by a factor."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytensor
from pymc.distributions.continuous import (
    HalfCauchyRV,
    HalfStudentTRV,
    MoyalRV,
    SkewNormalRV,
    WeibullBetaRV,
)
from pymc.distributions.multivariate import MvNormalRV, ZeroSumNormalRV
from pytensor.graph.basic import Variable
from pytensor.tensor.random.basic import (
    CauchyRV,
    ExponentialRV,
    GammaRV,
    GumbelRV,
    HalfNormalRV,
    InvGammaRV,
    LaplaceRV,
    LogisticRV,
    LogNormalRV,
    NormalRV,
    StudentTRV,
    UniformRV,
)
from pytensor.tensor.random.op import RandomVariable

from pm_evidence.core.exceptions import ModelError

__all__ = ["SCALABLE", "scaled_prior"]

Parameters = list[Variable]


def _multiplied(position: int) -> Callable[[Parameters, Variable], Parameters]:
    """Return the rule that multiplies one parameter, the scale, by the factor."""

    def rule(parameters: Parameters, factor: Variable) -> Parameters:
        before, scale, after = (
            parameters[:position],
            parameters[position],
            parameters[position + 1 :],
        )
        return [*before, scale * factor, *after]

    return rule


def _uniform(parameters: Parameters, factor: Variable) -> Parameters:
    lower, upper = parameters
    middle, half = 0.5 * (lower + upper), 0.5 * (upper - lower)
    return [middle - factor * half, middle + factor * half]


def _covariance(parameters: Parameters, factor: Variable) -> Parameters:
    mean, covariance = parameters
    return [mean, covariance * factor**2]


# The rule for the parameters of each distribution, in the order of its operation.
_RULES: Mapping[type, Callable[[Parameters, Variable], Parameters]] = {
    NormalRV: _multiplied(1),
    HalfNormalRV: _multiplied(1),
    StudentTRV: _multiplied(2),
    HalfStudentTRV: _multiplied(1),
    CauchyRV: _multiplied(1),
    HalfCauchyRV: _multiplied(0),
    LaplaceRV: _multiplied(1),
    LogisticRV: _multiplied(1),
    GumbelRV: _multiplied(1),
    MoyalRV: _multiplied(1),
    SkewNormalRV: _multiplied(1),
    ExponentialRV: _multiplied(0),
    GammaRV: _multiplied(1),
    InvGammaRV: _multiplied(1),
    WeibullBetaRV: _multiplied(1),
    LogNormalRV: _multiplied(1),
    UniformRV: _uniform,
    MvNormalRV: _covariance,
    ZeroSumNormalRV: _multiplied(0),
}

SCALABLE = (
    "Normal, HalfNormal, StudentT, HalfStudentT, Cauchy, HalfCauchy, Laplace, Logistic, Gumbel, "
    "Moyal, SkewNormal, Exponential, Gamma, InverseGamma, Weibull, LogNormal (the spread of its "
    "logarithm), Uniform, MvNormal and ZeroSumNormal"
)


def scaled_prior(rv: Any, factor: float) -> Variable:
    """Return the distribution of a variable with its spread multiplied by a factor.

    Parameters
    ----------
    rv : TensorVariable
        A free variable of a model, whose distribution is one of `SCALABLE`.
    factor : float
        What the scale parameter is multiplied by. It is a shared variable of the new graph, so that
        compiled code serves all factors.

    Raises
    ------
    ModelError
        If the distribution has no scale about a location that is known here.
    """
    node, shared = rv.owner, pytensor.shared(np.asarray(float(factor)), name=f"{rv.name}_factor")
    rule = _RULES.get(type(node.op))
    if rule is None:
        kind = getattr(node.op, "_print_name", (type(node.op).__name__,))[0]
        raise ModelError(
            f"priors[{rv.name!r}] must hold distributions instead of factors, got a factor for "
            f"{rv.name!r}, which is {kind}: it has no scale about a location. Pass for example "
            f"{{'wider': pm.Beta.dist(1, 1)}}; factors are for {SCALABLE}."
        )
    if isinstance(node.op, RandomVariable):
        n_before = len(node.inputs) - len(node.op.dist_params(node))
        parameters = rule(list(node.inputs[n_before:]), shared)
        return node.op.make_node(*node.inputs[:n_before], *parameters).default_output()
    rng, size, *parameters = node.inputs
    scaled: Variable = type(node.op).rv_op(*rule(parameters, shared), size=size, rng=rng)
    return scaled
