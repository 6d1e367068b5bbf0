"""Draws and densities of positive variables and shares by their logarithms.

A gamma variable of shape 0.001 is smaller than the least float64 in half of its draws, and a beta
variable with two such parameters rounds to 0 or 1 in nearly all of them. Their logarithms do not,
so that these are drawn. At a logarithm of -1e20, PyMC's density of the variable and the Jacobian of
its transform are two large numbers of opposite sign, whose sum has no digits. Here this sum is one
expression.
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

__all__ = ["OnLogScale", "on_log_scale"]

type _Shape = tuple[int, ...]


def _drawn(a: Variable, shape: _Shape) -> Variable:
    """Return the log of a gamma variable, by that of the next shape: G(a) = G(a + 1) U^(1 / a)."""
    larger = pm.Gamma.dist(alpha=a + 1.0, beta=1.0, shape=shape)
    return pt.log(larger) - pm.Exponential.dist(1.0, shape=shape) / a


def _log_density(a: Variable, log_gamma: Variable) -> Variable:
    """Return the log density of the log of a gamma variable."""
    return a * log_gamma - pt.exp(log_gamma) - pt.gammaln(a)


def _log_of_number(x: Variable) -> Variable:
    return pt.log(x.astype("float64"))  # PyMC stores 2.0 in single precision


def _draw_gamma(a: Variable, scale: Variable, shape: _Shape) -> Variable:
    return _log_of_number(scale) + _drawn(a, shape)


def _gamma(x: Variable, a: Variable, scale: Variable) -> Variable:
    return _log_density(a, x - _log_of_number(scale))


def _draw_inverse_gamma(a: Variable, scale: Variable, shape: _Shape) -> Variable:
    return _log_of_number(scale) - _drawn(a, shape)


def _inverse_gamma(x: Variable, a: Variable, scale: Variable) -> Variable:
    return _log_density(a, _log_of_number(scale) - x)


def _draw_beta(a: Variable, b: Variable, shape: _Shape) -> Variable:
    return _drawn(a, shape) - _drawn(b, shape)


def _beta(x: Variable, a: Variable, b: Variable) -> Variable:
    log_norm = pt.gammaln(a) + pt.gammaln(b) - pt.gammaln(a + b)
    return -a * pt.softplus(-x) - b * pt.softplus(x) - log_norm


def _draw_dirichlet(a: Variable, shape: _Shape) -> Variable:
    log_share = _drawn(a, shape)
    return (log_share - log_share.mean(axis=-1, keepdims=True))[..., :-1]


def _dirichlet(x: Variable, a: Variable) -> Variable:
    log_ratio = pt.concatenate([x, -x.sum(axis=-1, keepdims=True)], axis=-1)
    log_share = log_ratio - pt.logsumexp(log_ratio, axis=-1, keepdims=True)
    log_norm = pt.gammaln(a).sum(axis=-1) - pt.gammaln(a.sum(axis=-1))
    log_volume = pt.log(a.shape[-1].astype("float64"))
    return (a * log_share).sum(axis=-1) - log_norm + log_volume


@dataclass(frozen=True)
class _Kind:
    """What is known of a distribution on the scale of its transform.

    The draw of the unconstrained value and its log density, in nats, both from the parameters of
    the distribution, the first ``n_shapes`` of which are shape parameters. From shape parameters of
    ``least`` on, draws and density of the distribution itself suffice.
    """

    transform: type
    draw: Callable[..., Variable]
    log_density: Callable[..., Variable]
    n_shapes: int
    least: float


# Gamma variables of shape 0.1 round to zero with a probability of 1e-31. Shares round to one as
# well, where the odds exceed 1e16, which has a probability of 1e-8 for a shape of 0.5.
_KINDS: dict[type, _Kind] = {
    GammaRV: _Kind(LogTransform, _draw_gamma, _gamma, 1, 0.1),
    InvGammaRV: _Kind(LogTransform, _draw_inverse_gamma, _inverse_gamma, 1, 0.1),
    BetaRV: _Kind(LogOddsTransform, _draw_beta, _beta, 2, 0.5),
    DirichletRV: _Kind(SimplexTransform, _draw_dirichlet, _dirichlet, 1, 0.1),
}


@dataclass(frozen=True, eq=False)
class OnLogScale:
    """A variable whose unconstrained value is a logarithm that has its own draws and density.

    Parameters
    ----------
    rv : TensorVariable
        A free variable of a model.
    kind : _Kind
        Its distribution.
    """

    rv: Any
    kind: _Kind

    @property
    def _parameters(self) -> list[Any]:
        return list(self.rv.owner.op.dist_params(self.rv.owner))

    def draw(self) -> Variable:
        """Return the graph of a draw of the unconstrained value."""
        return self.kind.draw(*self._parameters, shape_of(self.rv))

    def log_density(self, value: Variable) -> Variable:
        """Return the graph of the log density of an unconstrained value, in nats."""
        positive = pt.all([pt.all(p > 0) for p in self._parameters])
        return pt.switch(positive, self.kind.log_density(value, *self._parameters), -np.inf)


def on_log_scale(rv: Variable, transform: Any) -> OnLogScale | None:
    """Return a variable as a logarithm with its own draws and density.

    Parameters
    ----------
    rv : TensorVariable
        A free variable of a model.
    transform : Transform or None
        Its transform in the model.

    Returns
    -------
    OnLogScale or None
        None if its values practically never round to an end of the support, or if no such draws
        and density are known.
    """
    node: Any = rv.owner
    kind = _KINDS.get(type(node.op))
    if kind is None or type(transform) is not kind.transform:
        return None
    shapes = node.op.dist_params(node)[: kind.n_shapes]
    folded = constant_fold(shapes, raise_not_constant=False)
    if all(not isinstance(p, Variable) and bool(np.all(p >= kind.least)) for p in folded):
        return None
    return OnLogScale(rv, kind)
