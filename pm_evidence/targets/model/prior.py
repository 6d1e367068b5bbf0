"""Exact draws from the prior of a PyMC model, on the unconstrained space."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from math import lgamma
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.transforms import Ordered
from pymc.logprob.utils import ParameterValueError
from pytensor.compile.rebuild import rebuild_collect_shared
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.type import RandomGeneratorType

from pm_evidence.core.exceptions import ModelError
from pm_evidence.targets.compile.draws import compile_draws
from pm_evidence.targets.compile.numpy_draws import numpy_draws
from pm_evidence.targets.compile.numpy_graph import NotBatchedError
from pm_evidence.targets.layout import Layout, shape_of
from pm_evidence.targets.model.car import with_exact_car
from pm_evidence.targets.model.covariance_factors import CovarianceFactor
from pm_evidence.targets.model.index_checks import with_asserted_indices
from pm_evidence.targets.model.location_scale import LocationScale
from pm_evidence.targets.model.log_scale import log_scale_of
from pm_evidence.targets.model.quiet import quietly

__all__ = ["PriorSampler", "prior_sampler", "without_overflow"]

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
    """Joint draws of all free variables of a model.

    Parameters
    ----------
    outputs : sequence of TensorVariable
        Graph of every free variable on the unconstrained scale.
    log_order_mass : float
        Log of the prior mass inside those ordered transforms that sorting accounts for, in nats.
    names, dtypes : sequence of str
        Name and type of every output.

    Attributes
    ----------
    layout : Layout
        Position of every output in a flat vector.
    """

    def __init__(
        self,
        outputs: Sequence[Variable],
        log_order_mass: float,
        names: Sequence[str],
        dtypes: Sequence[str],
    ) -> None:
        self.log_order_mass = log_order_mass
        self._together, self._one_by_one = None, None
        seed = np.random.SeedSequence(0)
        with _drawing():
            try:
                self._together = numpy_draws(outputs)
                shapes = [np.shape(value)[1:] for value in self._together(1, seed)]
            except NotBatchedError:
                self._one_by_one = _OneByOne(outputs)
                shapes = [np.shape(value) for value in self._one_by_one.first()]
        self.layout = Layout.of(shapes, names, dtypes)

    def draw(self, n: int, seed: np.random.SeedSequence) -> Floats:
        """Return ``n`` draws as flat vectors, shape ``(n, n_dim)``.

        Raises
        ------
        ModelError
            If an index lies outside of its array.
        """
        with _drawing():
            return self._drawn(n, seed)

    def _drawn(self, n: int, seed: np.random.SeedSequence) -> Floats:
        out = np.empty((n, self.layout.size))
        if self._together is not None:
            values = self._together(n, seed)
            for variable, value in zip(self.layout.variables, values, strict=True):
                out[:, variable.positions] = value.reshape(n, variable.size)
        elif self._one_by_one is not None:
            self._one_by_one.fill(out, seed, self.layout)
        return out


class _OneByOne:
    """Draws of variables that cannot be drawn together, compiled if there are many variables."""

    def __init__(self, outputs: Sequence[Variable]) -> None:
        self._outputs = outputs
        with quietly():
            self.first = pm.compile([], list(outputs), mode="FAST_COMPILE", random_seed=0)
        self._rngs = [v for v in self.first.get_shared() if isinstance(v.type, RandomGeneratorType)]
        self._lock = threading.Lock()

    def fill(self, out: Floats, seed: np.random.SeedSequence, layout: Layout) -> None:
        """Fill the rows of an array with draws."""
        compiled = self._compiled(layout) if layout.size > _FEW else None
        if compiled is not None:
            compiled(out, np.random.Generator(np.random.PCG64(seed)))
            return
        with self._lock:
            for rng, child in zip(self._rngs, seed.spawn(len(self._rngs)), strict=True):
                rng.set_value(np.random.Generator(np.random.PCG64(child)), borrow=True)
            for row in out:
                row[:] = layout.join(self.first())

    @cache  # noqa: B019  # lives as long as the target does
    def _compiled(self, layout: Layout) -> Any:
        return compile_draws(self._outputs, layout)


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

    Parameters
    ----------
    model : pymc.Model
        The model.
    noises : sequence of LocationScale
        Variables, parents first, that are drawn as their noise, which is what they are in
        non-centred coordinates of unit 1.
    factors : sequence of CovarianceFactor
        Variables that are drawn as standard deviations and correlations.

    Raises
    ------
    ModelError
        If a variable cannot be drawn from its prior.
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
    fgraph = FunctionGraph(outputs=with_exact_car(cloned), clone=False)
    log_order_mass = 0.0
    for rv, clone in zip(model.free_RVs, fgraph.outputs[len(unconstrained) :], strict=True):
        transform = model.rvs_to_transforms[rv]
        if isinstance(transform, Ordered) and _is_exchangeable(rv):
            _sort(fgraph, clone, ascending=transform.ascending)
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
    """Refuse priors of fixed parameters whose draws are not finite, or are of an extreme size.

    Raises
    ------
    ModelError
        The message names the variable, and what is wrong with its parameters.
    """
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
    parameters = [each.eval(mode="FAST_COMPILE") for each in rv.owner.op.dist_params(rv.owner)]
    if all(np.isfinite(each).all() for each in parameters):
        return None
    return f"its parameters are {', '.join(str(np.round(each, 4)) for each in parameters)}"


def without_overflow(x: Floats, kept: NDArray[np.bool_]) -> Floats:
    """Return prior draws with finite values where an overflow made others.

    Parameters
    ----------
    x : ndarray, shape (n, n_dim)
        The draws. An effect whose scale overflows is infinite, or NaN.
    kept : ndarray of bool, shape (n_dim,)
        Coordinates that are finite for every value of their variable. Those that users transform
        may be NaN, because their variable lies outside of the transform, and stay so.
    """
    within = x.copy()
    within[:, kept] = np.nan_to_num(x[:, kept], nan=_LARGEST).clip(-_LARGEST, _LARGEST)
    return within


def _drawn_otherwise(
    model: pm.Model, noises: Sequence[LocationScale], unconstrained: list[Variable]
) -> dict[Variable, Variable]:
    """Put noises and logarithms in the place of unconstrained values that are drawn as such.

    Returns
    -------
    dict
        What takes the place of variables: data, or the value that a noise or a logarithm makes.
        Parents come first.
    """
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
