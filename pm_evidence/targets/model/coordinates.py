"""Coordinates of a model in which group effects are centred, non-centred, or something between.

A variable with unconstrained value ``x = location + scale * noise`` is sampled as

    z = c * location + unit * (scale / unit)**c * noise,
    x = location + (scale / unit)**(1 - c) * (z - c * location).

With a centring ``c`` of 1, ``z`` is ``x`` itself; with 0 it is the noise times ``unit``, which is
independent of location and scale. A random walk is sampled by its steps, each of which is such a
variable of location 0; its start is left as it is unless it has the same scale. Where the model
itself multiplies a noise by the scale, its value is the noise, and ``z`` is the same as above.

A normal vector is ``x = location + N (scale * noise)``: ``scale`` is the diagonal of the Cholesky
factor of its covariance, and ``N`` is this factor with each column divided by its element there.
With ``N_c = (1 - c) I + c N``, it is sampled as

    z = c * location + N_c (unit * (scale / unit)**c * noise).

This is the transformation of Gorinova, Moore and Hoffman (2020), "Automatic reparameterisation of
probabilistic programs", section 4, whose ``lambda`` is ``c``, with scales counted in units of a
typical scale: otherwise ``c`` would depend on the units of the data.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pymc as pm
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytensor.tensor.random.basic as ptr
from numpy.typing import NDArray
from pymc.distributions.multivariate import ZeroSumNormalRV
from pymc.distributions.timeseries import AutoRegressiveRV, RandomWalkRV
from pymc.distributions.transforms import CholeskyCovPacked, ZeroSumTransform
from pymc.logprob.transforms import LogTransform
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.math import Dot
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

from pm_evidence.targets.layout import Layout, shape_of
from pm_evidence.targets.model.concavity import known_functions
from pm_evidence.targets.model.log_scale import (
    LogGamma,
    bare,
    is_elementwise,
    log_of,
    log_scale_of,
)
from pm_evidence.targets.model.upstream import LKJCholeskyCovRV
from pm_evidence.targets.model.vectorised import RowFunction, quietly

Floats = NDArray[np.float64]


_SELECTIONS = (DimShuffle, Subtensor, AdvancedSubtensor)
# The distribution of location 0 and scale 1, from the other parameters of the distribution.
_STANDARD: dict[type, Callable[..., Variable]] = {
    ptr.NormalRV: lambda shape: pm.Normal.dist(0.0, 1.0, shape=shape),
    ptr.LogNormalRV: lambda shape: pm.Normal.dist(0.0, 1.0, shape=shape),
    ptr.StudentTRV: lambda nu, shape: pm.StudentT.dist(nu=nu, mu=0.0, sigma=1.0, shape=shape),
    ptr.LaplaceRV: lambda shape: pm.Laplace.dist(0.0, 1.0, shape=shape),
    ptr.CauchyRV: lambda shape: pm.Cauchy.dist(0.0, 1.0, shape=shape),
    ptr.LogisticRV: lambda shape: pm.Logistic.dist(0.0, 1.0, shape=shape),
    ptr.MvNormalRV: lambda shape: pm.Normal.dist(0.0, 1.0, shape=shape),
}
# Transforms under which the unconstrained value has the location and the scale of the parameters.
_TRANSFORM: dict[type, type] = {ptr.LogNormalRV: LogTransform, ZeroSumNormalRV: ZeroSumTransform}


@dataclass(frozen=True, eq=False)
class LocationScale:
    """A free variable whose unconstrained value is a location plus a scale times a noise."""

    rv: Variable  # the variable, of the model
    # Graphs of random variables of the model. They broadcast to the shape of the unconstrained
    # value; of a time series, the location is 0 and the scale is a scalar. Of a gamma or beta
    # variable they are nearly the mean and the standard deviation.
    location: Variable
    scale: Variable
    shape: tuple[int, ...] = ()  # shape of the unconstrained value
    parameters: tuple[Variable, ...] = ()  # parameters of the distribution of the noise
    transform: Any = None  # the transform from the variable to its unconstrained value
    anchored: bool = False  # whether the start of a random walk has another scale than its steps
    # Whether the value of the model is the noise, which the model multiplies by the scale
    by_hand: bool = False
    # shape (k, k): unit lower triangular matrix that the scaled noise is multiplied by, along its
    # last axis. It and the scale are the factors of the Cholesky factor of a covariance.
    mixing: Variable | None = None
    # Of a gamma or beta variable: its distribution on the scale of its transform
    log_scale: LogGamma | None = None

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
        """Return the log density of the noise of an elementwise variable, in nats."""
        if self.log_scale is not None:
            return self.log_scale.log_density_of_noise(noise, parameters)
        return pm.logp(self._standard(parameters), noise, warn_rvs=False)

    def _standard(self, parameters: Sequence[Variable]) -> Variable:
        """Return a random variable of location 0 and scale 1."""
        return _STANDARD[type(self.rv.owner.op)](*parameters, shape=self.shape)


class Multiplied:
    """What the free variables of a model are multiplied by."""

    def __init__(self, model: pm.Model) -> None:
        self._model, self._free = model, set(model.free_RVs)
        outputs = [*model.basic_RVs, *model.potentials, *model.deterministics]
        nodes = {v.owner for v in ancestors(outputs) if v.owner is not None}
        self._clients: dict[Variable, list[Apply]] = defaultdict(list)
        for node in nodes:
            for variable in dict.fromkeys(node.inputs):
                self._clients[variable].append(node)

    def scale_of(self, rv: Variable) -> Variable | None:
        """Return the scale that a variable is multiplied by wherever the model uses it."""
        found: set[Variable | None] = set()
        left = [rv]
        while left:
            for node in self._clients[left.pop()]:
                if isinstance(node.op, _SELECTIONS) or is_elementwise(node.op, ps.Identity):
                    left += node.outputs
                else:
                    found.add(self._factor(node, rv))
        scale = found.pop() if len(found) == 1 else None
        if scale is None or not all(scale.type.broadcastable):
            return None
        return scale.reshape(()) if scale.type.ndim else scale

    def _factor(self, node: Apply, rv: Variable) -> Variable | None:
        """Return the positive factor of a product with a variable; None if there is none."""
        if not is_elementwise(node.op, ps.Mul):
            return None
        varying = [bare(v) for v in node.inputs if self._varies(v)]
        others = [v for v in varying if rv not in ancestors([v])]
        if len(others) != 1 or len(varying) != 2:
            return None
        return others[0] if self._is_positive(others[0]) else None

    def _varies(self, variable: Variable) -> bool:
        return any(v in self._free for v in ancestors([variable], blockers=self._free))

    def _is_positive(self, variable: Variable) -> bool:
        graphs = self._model.replace_rvs_by_values([variable])
        (known,) = known_functions(self._model.value_vars, graphs)
        return known.log is not None


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
    if not isinstance(found, LogGamma):
        return None
    parameters = tuple(rv.owner.op.dist_params(rv.owner))
    location, scale = found.location(parameters), found.scale(parameters)
    return LocationScale(rv, location, scale, parameters=parameters, log_scale=found)


def _described(rv: Any, free: set[Variable]) -> LocationScale | None:
    """Return location and scale of a variable; None if it is of another kind."""
    kind, inputs = type(rv.owner.op), rv.owner.inputs
    if kind is ptr.MvNormalRV:
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
        if type(innovation.owner.op) is ptr.NormalRV:
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
    if kind not in _STANDARD or kind in _TRANSFORM or kind is ptr.MvNormalRV:
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


@dataclass(frozen=True, eq=False)
class CovarianceFactor:
    """A Cholesky factor of a covariance with an LKJ prior, packed by rows."""

    rv: Variable  # the variable, of the model
    n: int  # number of rows of the factor

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the unconstrained value."""
        return (self.n * (self.n + 1) // 2,)

    @cached_property
    def _row(self) -> NDArray[np.int64]:
        return np.tril_indices(self.n)[0]

    @cached_property
    def _column(self) -> NDArray[np.int64]:
        return np.tril_indices(self.n)[1]

    @property
    def _on_diagonal(self) -> NDArray[np.bool_]:
        return self._row == self._column

    @cached_property
    def _same_row(self) -> NDArray[np.bool_]:
        return self._row[:, None] == self._row

    def value_of(self, z: Any) -> tuple[Any, Any]:
        """Return PyMC's unconstrained value as a graph of the coordinates, and its log Jacobian."""
        terms = pt.switch(self._on_diagonal, z, _log_sech(z))
        before = self._column < self._column[:, None]
        log_factor = (self._same_row & (before | self._on_diagonal)).astype(float) @ terms
        value = pt.switch(self._on_diagonal, log_factor, pt.exp(log_factor) * pt.tanh(z))
        return value, log_factor[np.flatnonzero(~self._on_diagonal)].sum()

    def log_prior(self, z: Any) -> Any:
        """Return the log density of the coordinates as a graph, in nats, a scalar.

        That of PyMC takes differences of sums of squares, and is infinite where a standard
        deviation is 1e8 times smaller than the one before.
        """
        _, _, eta, sd_dist = self.rv.owner.inputs
        log_sd, partial = z[np.flatnonzero(self._on_diagonal)], ~self._on_diagonal
        # the partial correlations have beta distributions between -1 and 1 with both shapes equal
        shape = eta + 0.5 * (self.n - 2 - self._column[partial])
        log_beta = 2.0 * pt.gammaln(shape) - pt.gammaln(2.0 * shape)
        of_partial = 2.0 * shape * _log_sech(z[np.flatnonzero(partial)])
        of_partial -= (2.0 * shape - 1.0) * np.log(2.0) + log_beta
        of_sd = pm.logp(sd_dist, pt.exp(log_sd), warn_rvs=False).sum() + log_sd.sum()
        return of_sd + of_partial.sum()

    def coordinates_of(self, value: Any) -> Any:
        """Return the coordinates as a graph of PyMC's unconstrained value."""
        squares = pt.switch(self._on_diagonal, pt.exp(2.0 * value), value**2)
        after = self._column > self._column[:, None]
        rest = (self._same_row & (after | self._on_diagonal[:, None])).astype(float) @ squares
        return pt.switch(
            self._on_diagonal, 0.5 * pt.log(rest), pt.arcsinh(value * pt.exp(-0.5 * pt.log(rest)))
        )

    @cached_property
    def _from_model(self) -> RowFunction:
        value = pt.vector("value")
        return RowFunction([value], [self.coordinates_of(value)], [])

    def from_model(self, value: Floats) -> Floats:
        """Return rows of coordinates of rows of values, shape ``(n, size)``."""
        return self._from_model([value], [])[0]


def _log_sech(z: Any) -> Any:
    size = pt.abs(z)
    return np.log(2.0) - size - pt.log1p(pt.exp(-2.0 * size))


def covariance_factors(model: pm.Model) -> tuple[CovarianceFactor, ...]:
    """Return the free variables ``pm.LKJCholeskyCov`` of a model that have their usual transform.

    A factor of one row has no correlation, and is left out.
    """
    found = []
    for rv in model.free_RVs:
        usual = isinstance(model.rvs_to_transforms[rv], CholeskyCovPacked)
        if usual and isinstance(rv.owner.op, LKJCholeskyCovRV) and rv.type.ndim == 1:
            (size,) = shape_of(rv)
            n = int(np.sqrt(2 * size))
            found += [CovarianceFactor(rv, n)] if n > 1 else []
    return tuple(found)


@dataclass(frozen=True)
class Centring:
    """How far each variable is centred, and the unit of its scale."""

    # Of each variable: 0 if it is non-centred, 1 if it is centred, or between
    amount: tuple[float, ...]
    log_unit: tuple[float, ...]  # log of the typical scale of each variable

    @classmethod
    def common(cls, amount: float, n: int) -> "Centring":
        """Return the same amount for ``n`` variables, in units of 1."""
        return cls((amount,) * n, (0.0,) * n)

    def arrays(self) -> tuple[Floats, Floats]:
        """Return amounts and log units as new arrays, each of shape ``(n_variables,)``."""
        return np.array(self.amount, float), np.array(self.log_unit, float)


@dataclass(frozen=True, eq=False)
class PartlyCentred:
    """Graphs of a model's density in partly centred coordinates."""

    # For every value variable of the model, its graph of the new coordinates
    values: dict[Variable, Variable]
    # Terms of the log prior that take the place of those of ``replaced``, in nats: of the noise,
    # and log Jacobians. A scalar.
    log_prior: Variable
    log_jacobian: Variable  # of the values with respect to the coordinates, in nats, a scalar
    # Random variables whose own log densities do not belong to the log prior
    replaced: tuple[Variable, ...]
    location: tuple[Variable, ...]  # of each partly centred variable
    log_scale: tuple[Variable, ...]
    mixing: tuple[Variable, ...] = ()  # of those that have one


def partly_centred(
    model: pm.Model,
    variables: Sequence[LocationScale],
    values: Mapping[Variable, Variable],
    amount: Variable,
    log_unit: Variable,
    factors: Sequence[CovarianceFactor] = (),
) -> PartlyCentred:
    """Return the graphs of a density in partly centred coordinates.

    The density of an elementwise variable is written as that of its noise, because the difference
    ``x - location`` loses all digits where the scale is tiny beside the location.
    """
    values = dict(values)
    terms, replaced, log_scales, locations = [pt.constant(0.0)], [], [], []
    mixings, priors, log_jacobian = list[Variable](), list[Variable](), pt.constant(0.0)
    for factor in factors:
        value_var = model.rvs_to_values[factor.rv]
        priors.append(factor.log_prior(values[value_var]))
        value, log_slope = factor.value_of(values[value_var])
        values[value_var] = value.astype(value_var.dtype)
        log_jacobian += log_slope
        replaced.append(factor.rv)
    for i, found in enumerate(variables):
        graphs = model.replace_rvs_by_values(found.graphs)
        location, scale, *others = clone_replace(graphs, values, rebuild_strict=False)
        parameters = others[: len(found.parameters)]
        mixing = others[-1] if found.mixing is not None else None
        value_var = model.rvs_to_values[found.rv]
        z, c = values[value_var], amount[i]
        log_scale = log_of(scale)
        ratio = log_scale - log_unit[i]
        shift = _unmixed(mixing, c, z - c * location)
        value = location + _mixed(mixing, pt.exp((1.0 - c) * ratio) * shift)
        if found.is_walk:
            value, location = _walk(found, z, pt.exp((1.0 - c) * ratio))
        log_slope = _summed((1.0 - c) * ratio, found)
        if found.is_elementwise:
            noise = shift * pt.exp(-(log_unit[i] + c * ratio))
            slope_of_noise = -_summed(log_unit[i] + c * ratio, found)
            terms += [found.log_density_of_noise(noise, parameters).sum(), slope_of_noise]
            replaced.append(found.rv)
            if found.by_hand:
                value, log_slope = noise, slope_of_noise
        else:
            terms.append(log_slope)
        log_jacobian += log_slope
        values[value_var] = value.astype(value_var.dtype)
        log_scales.append(log_scale)
        locations.append(location)
        mixings += [] if mixing is None else [mixing]
    # their parameters may depend on variables that were transformed after them
    priors = clone_replace(model.replace_rvs_by_values(priors), values, rebuild_strict=False)
    log_prior = sum([*terms[1:], *priors], terms[0])
    found_graphs = (tuple(each) for each in (replaced, locations, log_scales, mixings))
    return PartlyCentred(values, log_prior, log_jacobian, *found_graphs)


def _mixed(mixing: Any, x: Any) -> Variable:
    """Return vectors along the last axis, multiplied by a matrix if there is one."""
    return x if mixing is None else x @ mixing.T


def _unmixed(mixing: Any, amount: Variable, x: Any) -> Variable:
    """Return the solution of ``((1 - amount) I + amount N) y = x`` along the last axis."""
    if mixing is None:
        return x
    k = x.shape[-1]
    partly = pt.eye(k) + amount * (mixing - pt.eye(k))
    columns = x.reshape((-1, k)).T
    solution = pt.linalg.solve_triangular(partly, columns, lower=True, unit_diagonal=True)
    return solution.T.reshape(x.shape)


def _walk(found: LocationScale, z: Variable, spread: Variable) -> tuple[Variable, Variable]:
    """Return a random walk whose steps are ``z`` times ``spread``, and the origin of ``z``."""
    steps = spread * z
    if not found.anchored:
        return pt.cumsum(steps), pt.zeros(found.shape)
    start = z[:1]
    origin = pt.concatenate([start, pt.zeros(found.size - 1)])
    return pt.cumsum(pt.concatenate([start, steps[1:]])), origin


def _summed(graph: Variable, found: LocationScale) -> Variable:
    """Return the sum over the elements of a variable of a graph that broadcasts to its shape."""
    if graph.type.ndim == 0:
        return found.n_scaled * graph
    return pt.broadcast_to(graph, found.shape).sum()


@dataclass(frozen=True, eq=False)
class Effects:
    """Draws of a partly centred variable, with what they depend on."""

    # shape (n, size): ``(x - location) / scale`` of every element; of a series, its increments
    noise: Floats
    location: Floats  # shape (n, size): location and log scale of every element
    log_scale: Floats
    mixing: Floats | None = None  # shape (n, k, k): matrix that the scaled noise is multiplied by
    # Whether the prior density of the noise falls exponentially on one side
    has_exponential_tail: bool = False

    def at(self, amount: float, ratio: Floats) -> Floats:
        """Return ``z`` for an amount of centring, from the log scale in a unit."""
        return amount * self.location + mixed(
            self.mixing, amount, np.exp(amount * ratio) * self.noise
        )


def mixed(mixing: Floats | None, amount: float, x: Floats) -> Floats:
    """Return rows of vectors multiplied by ``(1 - amount) I + amount N``, if there is an ``N``."""
    if mixing is None:
        return x
    k = mixing.shape[-1]
    y = x.reshape(len(x), -1, k)
    y = y + amount * (y @ (mixing - np.eye(k)).swapaxes(1, 2))
    return y.reshape(x.shape)


def unmixed(mixing: Floats | None, amount: float, x: Floats) -> Floats:
    """Return the rows of vectors that `mixed` maps to ``x``."""
    if mixing is None:
        return x
    k = mixing.shape[-1]
    partly = np.eye(k) + amount * (mixing - np.eye(k))
    y = np.linalg.solve(partly, x.reshape(len(x), -1, k).swapaxes(1, 2))
    return y.swapaxes(1, 2).reshape(x.shape)


class Coordinates:
    """The maps between flat vectors in partly centred coordinates and in those of the model."""

    def __init__(
        self,
        model: pm.Model,
        variables: Sequence[LocationScale],
        layout: Layout,
        factors: Sequence[CovarianceFactor] = (),
    ) -> None:
        self.variables, self._layout = tuple(variables), layout
        self._changed: list[LocationScale | CovarianceFactor] = [*variables, *factors]
        at = {rv.name: v.positions for rv, v in zip(model.free_RVs, layout.variables, strict=True)}
        self._positions = [at[found.rv.name] for found in self._changed]
        # pt.tensor refuses names that NumPy cannot parse as a dtype, such as Bambi's "1|group"
        inputs = [pt.TensorType("float64", shape=v.shape)(name=v.name) for v in layout.variables]
        amount, log_unit = pt.vectors("amount", "log_unit")
        values = {
            value: part.astype(value.dtype)
            for value, part in zip(model.value_vars, inputs, strict=True)
        }
        with quietly():
            graphs = partly_centred(model, self.variables, values, amount, log_unit, factors)
        changed = [graphs.values[model.rvs_to_values[found.rv]] for found in self._changed]
        known = [*graphs.location, *graphs.log_scale, *graphs.mixing]
        self._function = RowFunction(
            inputs, [*changed, graphs.log_jacobian, *known], [amount, log_unit]
        )

    def _evaluated(self, z: Floats, centring: Centring) -> tuple[Any, ...]:
        """Return what has been changed, the log Jacobian, and locations, log scales and mixings."""
        left = iter(self._function(self._layout.split(z), list(centring.arrays())))
        changed = [_of_elements(next(left), found.shape) for found in self._changed]
        log_jacobian = next(left)
        locations, log_scales = (
            [_of_elements(next(left), variable.shape) for variable in self.variables]
            for _ in range(2)
        )
        mixings = [None if v.mixing is None else next(left) for v in self.variables]
        return changed, log_jacobian, locations, log_scales, mixings

    def to_model(self, z: Floats, centring: Centring) -> Floats:
        """Return points in the coordinates of the model, shape ``(n, n_dim)``."""
        x = z.copy()
        for positions, value in zip(self._positions, self._evaluated(z, centring)[0], strict=True):
            x[:, positions] = value
        return x

    def log_jacobian(self, z: Floats, centring: Centring) -> Floats:
        """Return ``log |dx / dz|`` at every row, shape ``(n,)``, in nats."""
        found: Floats = self._evaluated(z, centring)[1]
        return found

    def from_model(self, x: Floats, centring: Centring) -> Floats:
        """Return points in the coordinates of the model in those of a centring."""
        centred = x.copy()
        for positions, found in zip(self._positions, self._changed, strict=True):
            if isinstance(found, CovarianceFactor):
                centred[:, positions] = found.from_model(x[:, positions])
            elif found.is_walk:
                centred[:, positions] = np.diff(x[:, positions], axis=1, prepend=0.0)
        amount = tuple(0.0 if variable.by_hand else 1.0 for variable in self.variables)
        return self.converted(centred, Centring(amount, (0.0,) * len(amount)), centring)

    def converted(self, z: Floats, old: Centring, new: Centring) -> Floats:
        """Return points of one centring in the coordinates of another, shape ``(n, n_dim)``."""
        out = z.copy()
        for i, (positions, noise, location, log_scale, mixing) in enumerate(self._noises(z, old)):
            origin, log_spread = self._origin_and_log_spread(location, log_scale, new, i)
            out[:, positions] = origin + mixed(mixing, new.amount[i], np.exp(log_spread) * noise)
        return out

    def effects(self, z: Floats, centring: Centring) -> list[Effects]:
        """Return the noise, the location and the scale of every variable at points ``z``."""
        found = zip(self.variables, self._noises(z, centring), strict=True)
        return [
            replace(_effects_of(variable, *arrays), mixing=mixing)
            for variable, (_, *arrays, mixing) in found
        ]

    def _noises(self, z: Floats, centring: Centring) -> Iterator[tuple[Any, ...]]:
        """Yield positions, noise, location, log scale and mixing of every variable."""
        *_, locations, log_scales, mixings = self._evaluated(z, centring)
        known = zip(locations, log_scales, mixings, strict=True)
        for i, (location, log_scale, mixing) in enumerate(known):
            positions = self._positions[i]
            origin, log_spread = self._origin_and_log_spread(location, log_scale, centring, i)
            scaled = unmixed(mixing, centring.amount[i], z[:, positions] - origin)
            yield positions, scaled * np.exp(-log_spread), location, log_scale, mixing

    def _origin_and_log_spread(
        self, location: Floats, log_scale: Floats, centring: Centring, i: int
    ) -> tuple[Floats, Floats]:
        """Return what ``z`` is the sum of: an origin, and the noise times a spread."""
        c, log_unit = centring.amount[i], centring.log_unit[i]
        origin = location if self.variables[i].anchored else c * location
        return origin, log_unit + c * (log_scale - log_unit)


def _of_elements(value: Floats, shape: tuple[int, ...]) -> Floats:
    """Return rows of arrays that broadcast to a shape as rows of all of its elements."""
    n, own = len(value), value.shape[1:]
    aligned = value.reshape(n, *(1,) * (len(shape) - len(own)), *own)
    return np.broadcast_to(aligned, (n, *shape)).reshape(n, -1)


def _effects_of(
    variable: LocationScale, noise: Floats, location: Floats, log_scale: Floats
) -> Effects:
    """Return the effects of a variable; of a series, its increments."""
    if variable.anchored:
        return Effects(noise[:, 1:], location[:, 1:], log_scale[:, 1:])
    if variable.is_autoregressive:
        return Effects(np.diff(noise, axis=1, prepend=0.0), location, log_scale)
    has_exponential_tail = variable.log_scale is not None
    return Effects(noise, location, log_scale, has_exponential_tail=has_exponential_tail)


AMOUNTS = np.linspace(0.0, 1.0, 21)
# Least gains in nats for which a variable is centred at all, in the divergence from a normal
# distribution: for each draw, and for all of them together.
_GAIN, _GAIN_OF_DRAWS = 0.25, 2.0
# The same for centring it further, if its noise has an exponential tail.
_FURTHER_GAIN = 0.1
# Stands for a divergence that overflows.
_NONE = 1e300


def best_centring(effects: Sequence[Effects]) -> Centring:
    """Return the centring in which draws are nearest to a normal distribution.

    Near the prior, non-centred coordinates are best. A variable is therefore centred only if this
    brings its draws clearly nearer to a normal distribution, and by the same amount for all of its
    elements. Exponential tails of the noise, as those of the logarithm of a gamma variable, are
    best sampled non-centred as well, and draws show little of them: a variable with such a tail is
    centred by the least amount that is nearly best.
    """
    amounts, log_units = [], []
    for found in effects:
        total = divergences(found).sum(axis=1)
        total = np.where(np.isfinite(total), total, _NONE)
        loss, least_gain = total - total.min(), _GAIN_OF_DRAWS / len(found.noise)
        if found.has_exponential_tail:
            best = int(np.argmax(loss <= max(_FURTHER_GAIN, least_gain)))
        else:
            best = int(np.argmin(loss)) if loss[0] > max(_GAIN, least_gain) else 0
        amounts.append(float(AMOUNTS[best]))
        log_units.append(_log_unit(found))
    return Centring(tuple(amounts), tuple(log_units))


def divergences(effects: Effects) -> Floats:
    """Return how far the draws are from a normal distribution, for each amount and element.

    The divergence of the joint distribution of ``z``, location and log scale from the normal
    distribution of the same moments is, up to a constant, the log of the standard deviation of
    ``z`` about its best linear prediction from the other two, minus the mean of
    ``log |dz / dx|``. Elements of a series are correlated. ``effects`` holds its increments, which
    have the same volume and are nearly uncorrelated where the prior holds.
    """
    ratio = effects.log_scale - _log_unit(effects)
    basis = _basis(effects.location, ratio)
    found = np.empty((len(AMOUNTS), effects.noise.shape[1]))
    with np.errstate(all="ignore"):  # a divergence that overflows is not the least one
        for row, amount in zip(found, AMOUNTS, strict=True):
            z = effects.at(amount, ratio)
            coefficients = np.einsum("jnk,nj->jk", basis, z)
            rest = z - np.einsum("jnk,jk->nj", basis, coefficients)
            row[:] = 0.5 * np.log((rest**2).mean(axis=0)) - amount * ratio.mean(axis=0)
    return found


def _log_unit(effects: Effects) -> float:
    """Return the log of a typical scale."""
    return float(effects.log_scale.mean())


def _basis(location: Floats, ratio: Floats) -> Floats:
    """Return an orthonormal basis of the predictors of each element, shape ``(size, n, 3)``."""
    predictors = np.stack([np.ones_like(ratio), ratio, location], axis=-1).swapaxes(0, 1)
    scale = np.abs(predictors).max(axis=1, keepdims=True)
    basis, triangle = np.linalg.qr(predictors / np.where(scale > 0, scale, 1.0))
    # a location that is constant, or linear in the log scale, adds no direction
    size = np.abs(np.diagonal(triangle, axis1=1, axis2=2))
    return np.where((size > 1e-9 * np.sqrt(ratio.shape[0]))[:, None, :], basis, 0.0)
