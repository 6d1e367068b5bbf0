"""The variables of a model whose scale is itself a free variable, such as group effects."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.multivariate import ZeroSumNormalRV
from pymc.distributions.timeseries import AutoRegressiveRV, RandomWalkRV
from pymc.distributions.transforms import ZeroSumTransform
from pymc.logprob.transforms import LogTransform
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.math import Dot
from pytensor.tensor.random.basic import (
    CauchyRV,
    LaplaceRV,
    LogisticRV,
    LogNormalRV,
    MvNormalRV,
    NormalRV,
    StudentTRV,
)

from pm_evidence.targets.layout import shape_of
from pm_evidence.targets.model.log_scale import ModalLogScale, log_scale_of
from pm_evidence.targets.model.multiplied import Multiplied, bare

__all__ = ["LocationScale", "location_scale_variables"]

# The distribution of location 0 and scale 1, from the other parameters of the distribution.
_STANDARD: dict[type, Callable[..., Variable]] = {
    NormalRV: lambda shape: pm.Normal.dist(0.0, 1.0, shape=shape),
    LogNormalRV: lambda shape: pm.Normal.dist(0.0, 1.0, shape=shape),
    StudentTRV: lambda nu, shape: pm.StudentT.dist(nu=nu, mu=0.0, sigma=1.0, shape=shape),
    LaplaceRV: lambda shape: pm.Laplace.dist(0.0, 1.0, shape=shape),
    CauchyRV: lambda shape: pm.Cauchy.dist(0.0, 1.0, shape=shape),
    LogisticRV: lambda shape: pm.Logistic.dist(0.0, 1.0, shape=shape),
    MvNormalRV: lambda shape: pm.Normal.dist(0.0, 1.0, shape=shape),
}
# Transforms under which the unconstrained value has the location and the scale of the parameters.
_TRANSFORM: dict[type, type] = {LogNormalRV: LogTransform, ZeroSumNormalRV: ZeroSumTransform}


@dataclass(frozen=True, eq=False)
class LocationScale:
    """A free variable whose unconstrained value is a location plus a scale times a noise.

    Parameters
    ----------
    rv : TensorVariable
        The variable, of the model.
    location, scale : TensorVariable
        Graphs of random variables of the model. They broadcast to the shape of the unconstrained
        value; of a time series, the location is 0 and the scale is a scalar. Of a gamma or beta
        variable they are nearly the mean and the standard deviation.
    shape : tuple of int
        Shape of the unconstrained value.
    parameters : tuple of TensorVariable
        Parameters of the distribution of the noise.
    transform : Transform, optional
        The transform from the variable to its unconstrained value.
    anchored : bool
        Whether the start of a random walk has another scale than its steps.
    by_hand : bool
        Whether the value of the model is the noise, which the model multiplies by the scale.
    mixing : TensorVariable, shape (k, k), optional
        Unit lower triangular matrix that the scaled noise is multiplied by, along its last axis. It
        and the scale are the factors of the Cholesky factor of a covariance.
    log_scale : ModalLogScale, optional
        Of a gamma or beta variable: its distribution on the scale of its transform.
    """

    rv: Variable
    location: Variable
    scale: Variable
    shape: tuple[int, ...] = ()
    parameters: tuple[Variable, ...] = ()
    transform: Any = None
    anchored: bool = False
    by_hand: bool = False
    mixing: Variable | None = None
    log_scale: ModalLogScale | None = None

    @property
    def size(self) -> int:
        """Number of elements of the unconstrained value."""
        return int(np.prod(self.shape))

    @property
    def graphs(self) -> list[Variable]:
        """Location, scale and other parameters, and the mixing matrix if there is one."""
        mixing = [] if self.mixing is None else [self.mixing]
        return [self.location, self.scale, *self.parameters, *mixing]

    @property
    def n_scaled(self) -> int:
        """Number of elements that are counted in units of the scale."""
        return self.size - int(self.anchored)

    @property
    def is_elementwise(self) -> bool:
        """Whether the noise has a distribution of its own, independent for all elements."""
        return self.log_scale is not None or type(self.rv.owner.op) in _STANDARD

    @property
    def is_walk(self) -> bool:
        """Whether it is a random walk, which is sampled by its steps."""
        return type(self.rv.owner.op) is RandomWalkRV

    @property
    def is_autoregressive(self) -> bool:
        """Whether it is an autoregressive series, whose elements are correlated."""
        return type(self.rv.owner.op) is AutoRegressiveRV

    def draw_noise(self) -> Variable:
        """Return the graph of a draw of the noise of an elementwise variable."""
        if self.log_scale is not None:
            return self.log_scale.draw_noise(self.parameters, self.shape)
        return self._standard(self.parameters)

    def log_density_of_noise(self, noise: Variable, parameters: Sequence[Variable]) -> Variable:
        """Return the log density of the noise of an elementwise variable, in nats.

        Parameters
        ----------
        noise : TensorVariable
            The noise.
        parameters : sequence of TensorVariable
            ``self.parameters``, or graphs that replace them.
        """
        if self.log_scale is not None:
            return self.log_scale.log_density_of_noise(noise, parameters)
        return pm.logp(self._standard(parameters), noise, warn_rvs=False)

    def _standard(self, parameters: Sequence[Variable]) -> Variable:
        """Return a random variable of location 0 and scale 1."""
        return _STANDARD[type(self.rv.owner.op)](*parameters, shape=self.shape)


def location_scale_variables(model: pm.Model) -> tuple[LocationScale, ...]:
    """Return the free variables whose scale depends on other free variables, parents first.

    These are variables of the distributions Normal, StudentT, Laplace, Cauchy, Logistic, LogNormal,
    ZeroSumNormal, and MvNormal with a Cholesky factor, Gamma, InverseGamma and Beta variables whose
    shape parameters are variables, and the series GaussianRandomWalk and AR.
    Standard variables that the model multiplies by a scale, which are non-centred by hand, are
    found as well. Variables with another transform than their usual one are left out, and those
    whose location or scale depends on a discrete variable.
    """
    free = set(model.free_RVs)
    found: list[LocationScale] = []
    multiplied = Multiplied(model)
    usual = [rv for rv in model.free_RVs if _has_usual_transform(model, rv)]
    candidates = [(rv, _described(rv, free)) for rv in usual]
    candidates += [(rv, _by_hand(rv, multiplied)) for rv in usual]
    candidates += [(rv, _as_logarithm(model, rv)) for rv in model.free_RVs]
    for rv, described in candidates:
        if described is None or not _depends(described.scale, free):
            continue
        if _depends_on_discrete(described.graphs, free):
            continue
        transform = model.rvs_to_transforms[rv]
        value = rv if transform is None else transform.forward(rv, *rv.owner.inputs)
        shape = shape_of(value)
        found.append(replace(described, shape=shape, transform=transform))
    return _parents_first(found)


def _parents_first(found: Sequence[LocationScale]) -> tuple[LocationScale, ...]:
    """Return the variables such that each follows those that its location and scale depend on."""
    left = {each.rv: (each, set(ancestors(each.graphs))) for each in found}
    ordered = []
    while left:
        ready = next(rv for rv, (_, above) in left.items() if above.isdisjoint(left.keys() - {rv}))
        ordered.append(left.pop(ready)[0])
    return tuple(ordered)


def _as_logarithm(model: pm.Model, rv: Any) -> LocationScale | None:
    """Return the description of a gamma or beta variable by its logarithm."""
    found = log_scale_of(rv, model.rvs_to_transforms[rv])
    if not isinstance(found, ModalLogScale):
        return None
    parameters = tuple(rv.owner.op.dist_params(rv.owner))
    location, scale = found.location(parameters), found.scale(parameters)
    return LocationScale(rv, location, scale, parameters=parameters, log_scale=found)


def _described(rv: Any, free: set[Variable]) -> LocationScale | None:
    """Return location and scale of a variable; None if it is of another kind."""
    kind, inputs = type(rv.owner.op), rv.owner.inputs
    if kind is MvNormalRV:
        return _multivariate(rv)
    if kind in _STANDARD:
        *others, location, scale = rv.owner.op.dist_params(rv.owner)
        return LocationScale(rv, location, scale, parameters=tuple(others))
    if kind is ZeroSumNormalRV:
        return _of_series(rv, inputs[2])
    if kind is AutoRegressiveRV and rv.type.ndim == 1:
        scale, start = inputs[1], inputs[2]
        return _of_series(rv, scale) if _shares(start, scale, free) else None
    if kind is RandomWalkRV and rv.type.ndim == 1:
        start, innovation = inputs[:2]
        if type(innovation.owner.op) is NormalRV:
            scale = innovation.owner.inputs[-1]
            return _of_series(rv, scale, anchored=not _shares(start, scale, free))
    return None


def _multivariate(rv: Any) -> LocationScale | None:
    """Return the description of vectors whose covariance is given by its Cholesky factor."""
    location, covariance = rv.owner.op.dist_params(rv.owner)
    factor = _cholesky_factor(covariance)
    if factor is None:
        return None
    scale = pt.diagonal(factor)
    return LocationScale(rv, location, scale, mixing=factor / scale)


def _cholesky_factor(covariance: Variable) -> Any:
    """Return the lower triangular matrix whose product with its transpose a matrix is, or None."""
    covariance = bare(covariance)
    node = covariance.owner
    op = node.op.core_op if node is not None and isinstance(node.op, Blockwise) else None
    if covariance.type.ndim != 2 or not isinstance(op, Dot):
        return None
    factor, other = node.inputs
    transposed = other.owner is not None and isinstance(other.owner.op, DimShuffle)
    if not transposed or other.owner.op.new_order != (1, 0) or other.owner.inputs[0] is not factor:
        return None
    return factor if getattr(factor.tag, "lower_triangular", False) else None


def _by_hand(rv: Any, multiplied: Multiplied) -> LocationScale | None:
    """Return the description of a standard variable that the model multiplies by a scale."""
    kind = type(rv.owner.op)
    if kind not in _STANDARD or kind in _TRANSFORM or kind is MvNormalRV:
        return None
    *others, location, scale = rv.owner.op.dist_params(rv.owner)
    if not (_is_constant(location, 0.0) and _is_constant(scale, 1.0)):
        return None
    factor = multiplied.scale_of(rv)
    if factor is None:
        return None
    return LocationScale(rv, pt.constant(0.0), factor, parameters=tuple(others), by_hand=True)


def _is_constant(graph: Variable, value: float) -> bool:
    number = bare(graph)
    return isinstance(number, Constant) and bool(np.all(number.data == value))


def _of_series(rv: Any, scale: Any, *, anchored: bool = False) -> LocationScale | None:
    """Return the description with a scalar scale; None if the scale has several elements."""
    if not all(scale.type.broadcastable):
        return None
    scalar = scale.reshape(()) if scale.type.ndim else scale
    return LocationScale(rv, pt.constant(0.0), scalar, anchored=anchored)


def _has_usual_transform(model: pm.Model, rv: Any) -> bool:
    transform, usual = model.rvs_to_transforms[rv], _TRANSFORM.get(type(rv.owner.op))
    return transform is None if usual is None else type(transform) is usual


def _shares(graph: Variable, other: Variable, free: set[Variable]) -> bool:
    """Return whether two graphs depend on a common free variable directly."""
    parents = free.intersection(ancestors([graph], blockers=free))
    return not parents.isdisjoint(ancestors([other], blockers=free))


def _depends(graph: Variable, free: set[Variable]) -> bool:
    return any(variable in free for variable in ancestors([graph], blockers=free))


def _depends_on_discrete(graphs: Sequence[Variable], free: set[Variable]) -> bool:
    return any(
        variable in free and np.dtype(variable.dtype).kind in "iub"
        for variable in ancestors(list(graphs))
    )
