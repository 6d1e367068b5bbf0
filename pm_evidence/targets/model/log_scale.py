"""Draws, densities and noises of positive variables and shares by their logarithms.

A gamma variable of shape 0.001 is smaller than the least float64 in half of its draws, and a beta
variable with two such parameters rounds to 0 or 1 in nearly all of them. Their logarithms do not
round, so that these are drawn. Where a logarithm or a shape parameter is large, the sum of PyMC's
density of the variable and the Jacobian of its transform has no digits, because they are large
numbers of opposite sign. Here this sum is one expression.

The logarithm of a gamma variable and the log odds of a beta variable are the mode of their density
plus a number ``w``.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.transforms import SimplexTransform
from pymc.logprob.transforms import LogOddsTransform, LogTransform
from pymc.pytensorf import constant_fold
from pytensor.graph.basic import Variable
from pytensor.tensor.random.basic import BetaRV, DirichletRV, GammaRV, InvGammaRV

from pm_evidence.targets.model.excess import binomial_excess, exponential_excess
from pm_evidence.targets.model.gamma_ratios import stirling_series
from pm_evidence.targets.model.logarithms import log_of

__all__ = ["LogScale", "ModalLogScale", "log_scale_of"]

type Shape = tuple[int, ...]
type Parameters = Sequence[Any]

_LEAST_SHAPE = 1e-100
_MANY = 10.0  # from here on Stirling's series is used
# From this sum of shapes on, the density of shares is written by their distance from the mode.
_PEAKED = 1e6


class LogScale(ABC):
    """A distribution on the scale of its usual transform.

    Its parameters are those of the distribution in PyTensor, the first ``n_shapes`` of which are
    shape parameters. If these are at least ``least``, values of the distribution practically never
    round to an end of the support.
    """

    transform: ClassVar[type]
    n_shapes: ClassVar[int] = 1
    least: ClassVar[float] = 0.1  # G(0.1) rounds to zero with a probability of 1e-31

    @abstractmethod
    def draw(self, parameters: Parameters, shape: Shape) -> Variable:
        """Return the graph of a draw of the unconstrained value of a variable of this shape."""

    @abstractmethod
    def log_density(self, x: Variable, parameters: Parameters) -> Variable:
        """Return the graph of the log density of an unconstrained value, in nats."""


class ModalLogScale(LogScale):
    """A distribution whose unconstrained value is its mode plus a number ``w``.

    This is also nearly its mean plus its standard deviation times a noise. Mean and deviation need
    not be exact, because coordinates may have any location and scale.
    """

    @abstractmethod
    def mode(self, parameters: Parameters) -> Variable:
        """Return the mode of the unconstrained value."""

    @abstractmethod
    def mean_of_w(self, parameters: Parameters) -> Variable:
        """Return nearly the mean of ``w``."""

    @abstractmethod
    def scale(self, parameters: Parameters) -> Variable:
        """Return nearly the standard deviation of ``w``."""

    @abstractmethod
    def draw_w(self, parameters: Parameters, shape: Shape) -> Variable:
        """Return the graph of a draw of ``w``."""

    @abstractmethod
    def log_density_of_w(self, w: Variable, parameters: Parameters) -> Variable:
        """Return the log density of ``w``, in nats."""

    def location(self, parameters: Parameters) -> Variable:
        """Return nearly the mean of the unconstrained value."""
        return self.mode(parameters) + self.mean_of_w(parameters)

    def draw(self, parameters: Parameters, shape: Shape) -> Variable:
        """Return the graph of a draw of the unconstrained value of a variable of this shape."""
        return self.mode(parameters) + self.draw_w(parameters, shape)

    def log_density(self, x: Variable, parameters: Parameters) -> Variable:
        """Return the graph of the log density of an unconstrained value, in nats."""
        return _within(parameters, self.log_density_of_w(x - self.mode(parameters), parameters))

    def draw_noise(self, parameters: Parameters, shape: Shape) -> Variable:
        """Return the graph of a draw of the noise."""
        w = self.draw_w(parameters, shape)
        return (w - self.mean_of_w(parameters)) / self.scale(parameters)

    def log_density_of_noise(self, noise: Variable, parameters: Parameters) -> Variable:
        """Return the log density of the noise, in nats.

        It keeps its digits where the scale is tiny beside the location, unlike ``log_density``.
        """
        scale = self.scale(parameters)
        w = self.mean_of_w(parameters) + scale * noise
        return _within(parameters, self.log_density_of_w(w, parameters) + pt.log(scale))


class _Gamma(ModalLogScale):
    transform = LogTransform

    def mode(self, parameters: Parameters) -> Variable:
        a, scale = parameters
        return pt.log(_positive(a)) + log_of(scale)

    def mean_of_w(self, parameters: Parameters) -> Variable:
        return _mean(parameters[0])

    def scale(self, parameters: Parameters) -> Variable:
        return pt.sqrt(_variance(parameters[0]))

    def draw_w(self, parameters: Parameters, shape: Shape) -> Variable:
        return _drawn(parameters[0], shape)

    def log_density_of_w(self, w: Variable, parameters: Parameters) -> Variable:
        a = _positive(parameters[0])
        return _log_height(a) - a * exponential_excess(w)


class _InverseGamma(_Gamma):
    """The logarithm of a gamma variable with the opposite sign."""

    def mode(self, parameters: Parameters) -> Variable:
        a, scale = parameters
        return log_of(scale) - pt.log(_positive(a))

    def mean_of_w(self, parameters: Parameters) -> Variable:
        return -super().mean_of_w(parameters)

    def draw_w(self, parameters: Parameters, shape: Shape) -> Variable:
        return -super().draw_w(parameters, shape)

    def log_density_of_w(self, w: Variable, parameters: Parameters) -> Variable:
        return super().log_density_of_w(-w, parameters)


class _Beta(ModalLogScale):
    """The difference of the logarithms of two gamma variables."""

    transform = LogOddsTransform
    n_shapes = 2
    least = 0.5  # shares round to one where the odds exceed 1e16: with a probability of 1e-8

    def mode(self, parameters: Parameters) -> Variable:
        a, b = parameters
        return pt.log(_positive(a)) - pt.log(_positive(b))

    def mean_of_w(self, parameters: Parameters) -> Variable:
        a, b = parameters
        return _mean(a) - _mean(b)

    def scale(self, parameters: Parameters) -> Variable:
        a, b = parameters
        return pt.sqrt(_variance(a) + _variance(b))

    def draw_w(self, parameters: Parameters, shape: Shape) -> Variable:
        a, b = parameters
        return _drawn(a, shape) - _drawn(b, shape)

    def log_density_of_w(self, w: Variable, parameters: Parameters) -> Variable:
        a, b = (_positive(p) for p in parameters)
        height = _log_height(a) + _log_height(b) - _log_height(a + b)
        return height - binomial_excess(w, a, b)


class _Dirichlet(LogScale):
    """The centred log ratios of the shares of a Dirichlet variable, without the last."""

    transform = SimplexTransform

    def draw(self, parameters: Parameters, shape: Shape) -> Variable:
        """Return the graph of a draw of the unconstrained value of a variable of this shape."""
        (a,) = parameters
        log_gamma = pt.log(_positive(a)) + _drawn(a, shape)
        return (log_gamma - log_gamma.mean(axis=-1, keepdims=True))[..., :-1]

    def log_density(self, x: Variable, parameters: Parameters) -> Variable:
        """Return the graph of the log density of an unconstrained value, in nats."""
        (a,) = parameters
        log_ratio = pt.concatenate([x, -x.sum(axis=-1, keepdims=True)], axis=-1)
        log_share = log_ratio - pt.logsumexp(log_ratio, axis=-1, keepdims=True)
        total = a.sum(axis=-1)
        log_norm = pt.gammaln(a).sum(axis=-1) - pt.gammaln(total)
        usual = (a * log_share).sum(axis=-1) - log_norm
        height = _log_height(a).sum(axis=-1) - _log_height(total)
        above_mean = log_share - pt.log(a / total[..., None])
        peaked = height - (a * exponential_excess(above_mean)).sum(axis=-1)
        log_volume = pt.log(a.shape[-1].astype("float64"))
        return _within(parameters, pt.switch(total < _PEAKED, usual, peaked) + log_volume)


def _within(parameters: Parameters, log_density: Variable) -> Variable:
    """Return a log density that is minus infinity where a parameter is not positive."""
    return pt.switch(pt.all([pt.all(p > 0) for p in parameters]), log_density, -np.inf)


def _positive(a: Any) -> Any:
    """Return a shape parameter whose inverse square is finite."""
    return pt.maximum(a, _LEAST_SHAPE)


def _drawn(a: Any, shape: Shape) -> Any:
    """Return the log of a gamma variable less that of its shape.

    It is drawn by the log of the next shape: G(a) = G(a + 1) U^(1 / a).
    """
    larger = pm.Gamma.dist(alpha=a + 1.0, beta=1.0, shape=shape)
    above = pt.log(larger) - pt.log(_positive(a))
    return above - pm.Exponential.dist(1.0, shape=shape) / _positive(a)


def _mean(a: Any) -> Any:
    """Return nearly the mean of the log of a gamma variable less that of its shape."""
    a = _positive(a)
    return pt.log1p(0.5 / a) - 1.0 / a


def _variance(a: Any) -> Any:
    """Return nearly the variance of the log of a gamma variable."""
    a = _positive(a)
    return 1.0 / (a + 0.5) + 1.0 / a**2


def _log_height(a: Any) -> Any:
    """Return the greatest log density of the log of a gamma variable: ``a log a - a - log G(a)``.

    Of large shapes it is half of ``log(a / 2 pi)``, less the correction of Stirling's formula.
    """
    small, large = pt.minimum(a, _MANY), pt.maximum(a, _MANY)
    by_gamma = small * pt.log(small) - small - pt.gammaln(small)
    by_series = 0.5 * pt.log(large / (2.0 * np.pi)) - stirling_series(large)
    return pt.switch(a < _MANY, by_gamma, by_series)


_OF: dict[type, LogScale] = {
    GammaRV: _Gamma(),
    InvGammaRV: _InverseGamma(),
    BetaRV: _Beta(),
    DirichletRV: _Dirichlet(),
}


def log_scale_of(rv: Variable, transform: Any) -> LogScale | None:
    """Return the distribution of a variable on the scale of its transform.

    Parameters
    ----------
    rv : TensorVariable
        A free variable of a model.
    transform : Transform or None
        Its transform in the model.

    Returns
    -------
    LogScale or None
        None if draws and density of the variable itself are as good, or no others are known.
    """
    node: Any = rv.owner
    found = _OF.get(type(node.op))
    if found is None or type(transform) is not found.transform:
        return None
    shapes = node.op.dist_params(node)[: found.n_shapes]
    shapes = constant_fold(shapes, raise_not_constant=False)
    if all(not isinstance(p, Variable) and bool(np.all(p >= found.least)) for p in shapes):
        return None
    return found
