"""Exact draws from the prior of a PyMC model, and maps between its variables and flat vectors."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from math import lgamma
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.transforms import Ordered
from pymc.logprob.transforms import (
    ChainedTransform,
    IntervalTransform,
    LogOddsTransform,
    LogTransform,
    Transform,
)
from pymc.logprob.utils import ParameterValueError
from pytensor.compile.rebuild import rebuild_collect_shared
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.type import RandomGeneratorType

from pm_evidence.core.codegen.numba import nb
from pm_evidence.core.exceptions import ModelError
from pm_evidence.targets.compile.numba_graph import compile_graph, without_numba_hints
from pm_evidence.targets.compile.numpy_draws import numpy_draws
from pm_evidence.targets.compile.numpy_graph import NotBatchedError
from pm_evidence.targets.compile.rewrite import rewrite
from pm_evidence.targets.layout import Layout, shape_of, value_of
from pm_evidence.targets.model.coordinates import CovarianceFactor, LocationScale
from pm_evidence.targets.model.log_scale import log_scale_of
from pm_evidence.targets.model.upstream import (
    LKJCholeskyCovRV,
    with_asserted_indices,
    with_exact_car,
)
from pm_evidence.targets.model.vectorised import RowFunction, quietly

Floats = NDArray[np.float64]


# The largest value of a coordinate in either direction; sums of its square do not overflow.
_LARGEST = 1e100
# So many draws show that a prior has impossible parameters; fewer where there are many variables.
_LOOKED_AT, _FEWEST, _MOST_NUMBERS = 100, 20, 1_000_000
# Up to so many numbers are drawn in Python: a loop for more is worth compiling.
_FEW = 100
# Exceptions that NumPy and PyTensor raise if a distribution cannot be drawn from.
_UNDRAWABLE = (RuntimeError, TypeError, ValueError, ArithmeticError)


class PriorSampler:
    """Joint draws of all free variables of a model."""

    def __init__(
        self,
        outputs: Sequence[Variable],
        log_order_mass: float,
        names: Sequence[str],
        dtypes: Sequence[str],
    ) -> None:
        self.log_order_mass = log_order_mass
        self._together, self._one_by_one = None, None
        with _drawing():
            try:
                self._together = numpy_draws(outputs)
                first = [value[0] for value in self._together(1, np.random.SeedSequence(0))]
            except NotBatchedError:
                self._one_by_one = _OneByOne(outputs)
                first = self._one_by_one.first()
        self.layout = Layout.of([np.shape(value) for value in first], names, dtypes)

    def draw(self, n: int, seed: np.random.SeedSequence) -> Floats:
        """Return ``n`` draws as flat vectors, shape ``(n, n_dim)``."""
        out = np.empty((n, self.layout.size))
        with _drawing():
            if self._one_by_one is not None:
                self._one_by_one.fill(out, seed, self.layout)
            elif self._together is not None:
                values = self._together(n, seed)
                for variable, value in zip(self.layout.variables, values, strict=True):
                    out[:, variable.positions] = value.reshape(n, variable.size)
        return out


class _OneByOne:
    """Draws of variables that cannot be drawn together, compiled if there are many variables."""

    def __init__(self, outputs: Sequence[Variable]) -> None:
        self._outputs, self._lock = list(outputs), threading.Lock()
        with quietly():
            self.first = pm.compile([], self._outputs, mode="FAST_COMPILE", random_seed=0)

    @cached_property
    def compiled(self) -> Any:
        """The same function in machine code; the one in Python if numba cannot compile it."""
        compiled = compile_graph([], self._outputs, random_seed=0)
        try:
            with without_numba_hints():
                compiled()
        except nb.NumbaError:
            return self.first
        return compiled

    def fill(self, out: Floats, seed: np.random.SeedSequence, layout: Layout) -> None:
        """Fill the rows of an array with draws."""
        with self._lock:
            draw = self.compiled if layout.size > _FEW else self.first
            rngs = [v for v in draw.get_shared() if isinstance(v.type, RandomGeneratorType)]
            for rng, child in zip(rngs, seed.spawn(len(rngs)), strict=True):
                rng.set_value(np.random.Generator(np.random.PCG64(child)), borrow=True)
            for row in out:
                row[:] = layout.join(draw())


@contextmanager
def _drawing() -> Iterator[None]:
    try:
        with quietly():
            yield
    except (AssertionError, IndexError) as error:
        raise ModelError(
            f"indices must lie inside of their arrays, but a draw from the prior failed: {error}. "
            "Indices count from 0, as in NumPy: subtract 1 from indices that count from 1, or "
            "give the index a prior whose support ends where the array does."
        ) from error


def prior_sampler(
    model: pm.Model,
    noises: Sequence[LocationScale] = (),
    factors: Sequence[CovarianceFactor] = (),
) -> PriorSampler:
    """Compile the prior of a model.

    Initial values are not used. Variables that depend on observed ones are drawn given the data.
    Exchangeable variables with an ordered transform are sorted, which draws from their normalised
    ordered prior.
    """
    unconstrained = []
    for rv in model.free_RVs:
        transform = model.rvs_to_transforms[rv]
        unconstrained.append(rv if transform is None else transform.forward(rv, *rv.owner.inputs))
    for factor in factors:
        at = model.free_RVs.index(factor.rv)
        unconstrained[at] = factor.coordinates_of(unconstrained[at])
    replaced = _drawn_otherwise(model, noises, unconstrained)
    # The free variables are cloned as well, so that those to be sorted can be found again. All is
    # cloned in one pass: clone_replace makes two, after which a noise that is an output and the
    # same noise inside of a replacement would be drawn independently.
    _, cloned, _ = rebuild_collect_shared(
        [*unconstrained, *model.free_RVs], replace=replaced, rebuild_strict=False
    )
    fgraph = FunctionGraph(outputs=with_factors_at_once(with_exact_car(cloned)), clone=False)
    log_order_mass = 0.0
    for rv, clone in zip(model.free_RVs, fgraph.outputs[len(unconstrained) :], strict=True):
        order = _order_of(rv, model.rvs_to_transforms[rv])
        if order is not None and _is_exchangeable(rv):
            _sort(fgraph, clone, ascending=order.ascending)
            *batch, n = shape_of(rv)
            log_order_mass -= float(np.prod(batch)) * lgamma(n + 1)
    try:
        outputs = with_asserted_indices(fgraph.outputs[: len(unconstrained)])
        values = model.value_vars
        names = [model.values_to_rvs[value].name for value in values]
        sampler = PriorSampler(outputs, log_order_mass, names, [value.dtype for value in values])
        _refuse_extremes(model, sampler)
        return sampler
    except ModelError:  # a ModelError is a ValueError as well
        raise
    except _UNDRAWABLE as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise ModelError(
            f"every free variable must be drawable from its prior, but drawing {_culprit(model)} "
            f"failed: {reason}. Look for parameters out of range, give a pm.CustomDist its random= "
            "function, or use a distribution that can be drawn."
        ) from error


def _refuse_extremes(model: pm.Model, sampler: PriorSampler) -> None:
    """Refuse priors of fixed parameters whose draws are not finite, or are of an extreme size."""
    n = int(np.clip(_MOST_NUMBERS // max(sampler.layout.size, 1), _FEWEST, _LOOKED_AT))
    drawn = sampler.draw(n, np.random.SeedSequence(n))
    for variable in sampler.layout.variables:
        rv, values = model[variable.name], np.abs(drawn[:, variable.positions])
        if any(other in model.free_RVs for other in ancestors(rv.owner.inputs)):
            continue
        if not np.isfinite(values).any(axis=0).all():
            wrong = _wrong_parameters(rv)
            if wrong is None:  # no draw is inside of its transform
                continue
            raise ModelError(
                f"the prior of {variable.name!r} must have finite draws, but none is: {wrong}. "
                "Look for NaN, infinity and values out of range in what its parameters are "
                "computed from."
            )
        size = np.quantile(np.nan_to_num(values), [0.5, 0.95], axis=0)
        if (size[1] > _LARGEST).any() or ((size[1] > 0.0) & (size[1] < 1.0 / _LARGEST)).any():
            raise ModelError(
                f"the prior of {variable.name!r} must have draws of a size between "
                f"{1.0 / _LARGEST:g} and {_LARGEST:g}, of which squares can be computed, got "
                f"{size[0].max():.1g} as their median; measure the variable in other units."
            )


def _wrong_parameters(rv: Variable) -> str | None:
    """Return in words what is wrong with the parameters of a variable; None if nothing is."""
    try:
        with quietly():
            pm.logp(rv, pt.ones_like(rv)).eval(mode="FAST_COMPILE")
    except (ParameterValueError, AssertionError) as error:
        return f"its parameters must satisfy {' '.join(str(error).split())}"
    parameters = [value_of(each) for each in rv.owner.op.dist_params(rv.owner)]
    if all(np.isfinite(each).all() for each in parameters):
        return None
    return f"its parameters are {', '.join(str(np.round(each, 4)) for each in parameters)}"


def without_overflow(x: Floats, kept: NDArray[np.bool_]) -> Floats:
    """Return prior draws with finite values where an overflow made others."""
    within = x.copy()
    within[:, kept] = np.nan_to_num(x[:, kept], nan=_LARGEST).clip(-_LARGEST, _LARGEST)
    return within


def _drawn_otherwise(
    model: pm.Model, noises: Sequence[LocationScale], unconstrained: list[Variable]
) -> dict[Variable, Variable]:
    """Put noises and logarithms in the place of unconstrained values that are drawn as such."""
    replaced = {rv: model.rvs_to_values[rv] for rv in model.observed_RVs}
    noise_of = {found.rv: found for found in noises}
    for at, rv in enumerate(model.free_RVs):
        transform, value = model.rvs_to_transforms[rv], None
        if rv in noise_of:
            unconstrained[at], value = _noise_of(noise_of[rv], unconstrained[at])
        elif (found := log_scale_of(rv, transform)) is not None:
            unconstrained[at] = found.draw(rv.owner.op.dist_params(rv.owner), shape_of(rv))
            value = transform.backward(unconstrained[at], *rv.owner.inputs)
        if value is not None:
            replaced[rv] = value
    return replaced


def _noise_of(found: LocationScale, unconstrained: Variable) -> tuple[Variable, Variable | None]:
    """Return the noise of a variable, and the graph of it that takes the variable's place."""
    if found.by_hand:
        return unconstrained, None
    if not found.is_elementwise:
        if not found.is_walk:
            return unconstrained / found.scale, None
        start, steps = unconstrained[:1], pt.diff(unconstrained) / found.scale
        start = start if found.anchored else start / found.scale
        return pt.concatenate([start, steps]), None
    noise = found.draw_noise()
    scaled = found.scale * noise
    mixing: Any = found.mixing
    value = found.location + (scaled if mixing is None else scaled @ mixing.T)
    return noise, value if found.transform is None else found.transform.backward(value)


def _culprit(model: pm.Model) -> str:
    """Return the name of the first free variable that cannot be drawn."""
    for rv in model.free_RVs:
        try:
            pm.draw(rv, random_seed=0, mode="FAST_COMPILE")
        except _UNDRAWABLE:
            return str(rv.name)
    return ", ".join(rv.name for rv in model.free_RVs)


def _sort(fgraph: FunctionGraph, rv: Variable, *, ascending: bool) -> None:
    """Replace ``rv`` by its sorted values in all of its clients, including its children."""
    clients = list(fgraph.clients[rv])
    rising = pt.sort(rv, axis=-1)
    ordered = rising if ascending else rising[..., ::-1]
    for node, position in clients:
        fgraph.change_node_input(node, position, ordered, import_missing=True, check=False)


def _order_of(rv: Variable, transform: Transform | None) -> Ordered | None:
    """Return the ordered transform of a variable, also after others that keep the order."""
    *first, last = (
        transform.transform_list if isinstance(transform, ChainedTransform) else [transform]
    )
    keeps = all(
        isinstance(step, LogTransform | LogOddsTransform)
        or (isinstance(step, IntervalTransform) and step.args_fn(*rv.owner.inputs)[0] is not None)
        for step in first
    )
    return last if keeps and isinstance(last, Ordered) else None


def _is_exchangeable(rv: Variable) -> bool:
    """Whether the elements along the last axis are independent and identically distributed."""
    op = rv.owner.op
    if not isinstance(op, RandomVariable) or op.ndim_supp > 0:
        return False
    return all(_is_constant_along_last(p) for p in op.dist_params(rv.owner))


def _is_constant_along_last(parameter: Variable) -> bool:
    if parameter.type.ndim == 0 or parameter.type.broadcastable[-1]:
        return True
    return isinstance(parameter, Constant) and bool(
        np.all(parameter.data == parameter.data[..., :1])
    )


class ConstrainedSpace:
    """Free variables and deterministics of a model as functions of the flat vector."""

    def __init__(self, model: pm.Model, layout: Layout) -> None:
        self._layout = layout
        variables = [*model.free_RVs, *model.deterministics]
        self.names = [v.name for v in variables]
        outputs = model.replace_rvs_by_values(variables)
        self._function = RowFunction(model.value_vars, outputs, [], compared=True)

    def values(self, x: Floats) -> dict[str, NDArray[Any]]:
        """Return every variable for every row of ``x``."""
        parts = zip(self._layout.split(x), self._layout.variables, strict=True)
        inputs = [part.astype(variable.dtype, copy=False) for part, variable in parts]
        return dict(zip(self.names, self._function(inputs, []), strict=True))


class UnconstrainedSpace:
    """Flat unconstrained vectors as a function of the free variables on their own scale."""

    def __init__(self, model: pm.Model) -> None:
        self._free = model.free_RVs
        given = {rv: rv.type(f"{rv.name}_given") for rv in self._free}
        outputs = []
        for rv in self._free:
            transform = model.rvs_to_transforms[rv]
            value = given[rv]
            outputs.append(
                value if transform is None else transform.forward(value, *rv.owner.inputs)
            )
        # bounds may depend on other free variables
        outputs = clone_replace([pt.as_tensor(o) for o in outputs], given, rebuild_strict=False)
        inputs = list(given.values())
        with quietly():
            self._point = pm.compile(inputs, outputs, mode="FAST_COMPILE", on_unused_input="ignore")

    def prior_rows(self, draws: Mapping[str, NDArray[Any]]) -> Floats:
        """Return prior draws, each of shape ``(n, ...)``, as rows; NaN outside the transforms."""
        return self._rows([np.asarray(draws[rv.name], rv.dtype) for rv in self._free])

    def _rows(self, columns: Sequence[NDArray[Any]]) -> Floats:
        with quietly():
            points = [self._point(*row) for row in zip(*columns, strict=True)]
        return np.array([np.concatenate([np.ravel(v) for v in point]) for point in points], float)

    def values(self, draws: Mapping[str, NDArray[Any]], parameter: str = "reverse_start") -> Floats:
        """Return posterior draws as rows."""
        columns = []
        for rv in self._free:
            shape = shape_of(rv)
            if rv.name not in draws or draws[rv.name].shape[2:] != shape:
                found = f"shape {draws[rv.name].shape[2:]}" if rv.name in draws else "none"
                raise ValueError(
                    f"{parameter} must hold draws of {rv.name!r} of shape {shape}, got {found}: "
                    "they belong to another model. Sample this model with pm.sample."
                )
            columns.append(_as_dtype(draws[rv.name], rv, parameter).reshape(-1, *shape))
        x = self._rows(columns)
        bad = np.flatnonzero(~np.isfinite(x).all(axis=1))
        if bad.size:
            raise ValueError(
                f"{parameter} must lie inside the support of the priors, got {bad.size} of "
                f"{len(x)} draws outside, first draw {bad[0]}: they belong to another model. "
                "Sample this model with pm.sample."
            )
        return x


def _as_dtype(draws: NDArray[Any], rv: Any, parameter: str) -> NDArray[Any]:
    """Return draws in the dtype of a variable; raise ValueError if this would change them."""
    if draws.dtype.kind in "biuf":
        with np.errstate(invalid="ignore"):
            converted = draws.astype(rv.dtype)
        if converted.dtype.kind == "f" or np.array_equal(converted, draws):
            return converted
    raise ValueError(
        f"{parameter} must hold numbers of type {rv.dtype} as draws of {rv.name!r}, got dtype "
        f"{draws.dtype} with other values: they belong to another model. Sample this model with "
        "pm.sample."
    )


class _PackedFactorRV(RandomVariable):
    """Factors of covariances, packed by rows, from ``eta`` and standard deviations.

    The squared length of the first ``i`` elements of row ``i`` of the factor of the correlations
    has a beta distribution, and their direction is uniform (Lewandowski, Kurowicka and Joe 2009,
    the onion method).
    """

    name = "packed_factor"
    signature = "(),(n)->(m)"
    dtype = "float64"

    def _supp_shape_from_params(self, dist_params: Any, param_shapes: Any = None) -> Any:
        n = dist_params[1].type.shape[-1]
        return (n * (n + 1) // 2,)

    @classmethod
    def rng_fn(cls, rng: np.random.Generator, eta: Floats, sd: Floats, size: Any) -> Floats:
        """Return factors, shape ``(*size, n (n + 1) / 2)``."""
        n = sd.shape[-1]
        shape = np.broadcast_shapes(eta.shape, sd.shape[:-1]) if size is None else tuple(size)
        factor = np.zeros((*shape, n, n))
        factor[..., 0, 0] = 1.0
        for i in range(1, n):
            square = rng.beta(0.5 * i, eta + 0.5 * (n - 1 - i), shape)[..., None]
            along = rng.standard_normal((*shape, i))
            along /= np.linalg.norm(along, axis=-1, keepdims=True)
            factor[..., i, :i] = np.sqrt(square) * along
            factor[..., i, i] = np.sqrt(1.0 - square[..., 0])
        return (sd[..., None] * factor)[(..., *np.tril_indices(n))]


_packed_factor = _PackedFactorRV()


def with_factors_at_once(graphs: Sequence[Variable]) -> list[Variable]:
    """Return graphs in which Cholesky factors with an LKJ prior can be drawn many at once.

    PyMC draws the rows of a factor in a loop, one factor after the other: 20,000 of them take as
    long as all the rest of an evidence.
    """
    return rewrite(graphs, _at_once)


def _at_once(node: Any, inputs: list[Variable]) -> tuple[Variable, Variable] | None:
    if not isinstance(node.op, LKJCholeskyCovRV):
        return None
    rng, n, eta, sd = inputs
    if not isinstance(n, Constant):
        return None
    known = sd.type.clone(shape=(*sd.type.shape[:-1], int(n.data)))
    successor, draw = _packed_factor.make_node(rng, None, eta, known.filter_variable(sd)).outputs
    return successor, node.outputs[1].type.filter_variable(draw, allow_convert=True)
