"""Likelihoods of state-space models, estimated without bias by particle filters."""

from collections import namedtuple
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.distribution import support_point
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace, graph_replace

from pm_evidence.core.codegen.numba import call_frame, njit
from pm_evidence.core.codegen.vectors import fast_exp
from pm_evidence.core.exceptions import ModelError
from pm_evidence.core.numerics import dot, total
from pm_evidence.core.random import generator_functions, seed_stream, uniform
from pm_evidence.core.resampling import CODES, count_uniforms, resample_into
from pm_evidence.targets.compile import rewrite
from pm_evidence.targets.compile.calls import (
    GENERATOR_SLOTS,
    CompiledCall,
    compile_call,
    on_one_generator,
    with_fast_normals,
)
from pm_evidence.targets.estimated.variable import Floats, LikelihoodEstimator, Seeds, frames_of
from pm_evidence.targets.model.log_scale import with_gamma_ratios
from pm_evidence.targets.model.upstream import in_double_precision

_BITS = 62  # of a position along the curve


@njit
def order_along_curve(points):
    """Return the order of points, shape ``(n, d)``, by value or along a Hilbert curve.

    The curve fills the box of three standard deviations around the points (Skilling 2004,
    "Programming the Hilbert curve").
    """
    n, d = points.shape
    if d == 1:
        return np.argsort(points[:, 0], kind="mergesort")
    bits = max(1, min(16, _BITS // d))
    used = min(d, _BITS)
    side = 2**bits - 1
    cell = np.empty((n, used), np.int64)
    for k in range(used):
        centre, spread = points[:, k].mean(), points[:, k].std()
        low = centre - 3.0 * spread
        for i in range(n):
            share = (points[i, k] - low) / (6.0 * spread) if spread > 0.0 else 0.5
            cell[i, k] = int(min(max(share, 0.0), 1.0) * side) if share == share else 0
    position = np.empty(n, np.int64)
    for i in range(n):
        position[i] = _along(cell[i], bits)
    return np.argsort(position, kind="mergesort")


@njit
def _along(cell, bits):
    """Return the position on the curve of a cell, whose coordinates are overwritten."""
    d = cell.size
    top = 1 << (bits - 1)
    bit = top
    while bit > 1:
        low = bit - 1
        for k in range(d):
            if cell[k] & bit:
                cell[0] ^= low
            else:
                swap = (cell[0] ^ cell[k]) & low
                cell[0] ^= swap
                cell[k] ^= swap
        bit >>= 1
    for k in range(1, d):
        cell[k] ^= cell[k - 1]
    flip = 0
    bit = top
    while bit > 1:
        if cell[d - 1] & bit:
            flip ^= bit - 1
        bit >>= 1
    position = 0
    for level in range(bits - 1, -1, -1):
        for k in range(d):
            position = (position << 1) | (((cell[k] ^ flip) >> level) & 1)
    return position


# A model's functions: parameters; first states for each kind of row; next ones; look-ahead.
SETUP, START, MOVE, LOOK_AHEAD = 0, 1, 4, 7
N_CALLS = 8

# Slots of their frames. Those of SETUP are the flat vector and the precomputed parameters.
T, N, Y, H, PARAMETERS, H_OUT, WEIGHT = range(GENERATOR_SLOTS, GENERATOR_SLOTS + 7)
_X, _PRECOMPUTED = GENERATOR_SLOTS, GENERATOR_SLOTS + 1

# results of ``_choose``: what was done with the particles before a time
_FAILED, _KEPT, _RESAMPLED = range(3)

# Share of the filter's own weights in resampling weights, so that no particle is lost because of
# its look-ahead alone.
_DEFENSIVE = 0.05

# ``scheme`` is None for systematic resampling, and ``in_order`` None for particles that are not
# sorted before: what is None is not compiled.
Options = namedtuple("Options", ["n_particles", "n_precomputed", "scheme", "share", "in_order"])

# Of every time: particles, shape (n_times, n_particles, ...), their normalised weights given the
# data up to then, and the index of the particle before that each comes from; log of the estimated
# density of the observation given those before, in nats, and effective sample size.
Record = namedtuple("Record", ["states", "weights", "ancestors", "increments", "ess"])

# Normalised weights; weights carried into a time; resampling weights; new log weights; ancestors.
Weights = namedtuple("Weights", ["normalised", "carried", "v", "log_weight", "index"])


@njit
def filter_rows(x, seeds, model, options, increments):
    """Write the log of each factor of an estimated likelihood for every row of ``x``.

    Factors after one of zero are left as they are.
    """
    precomputed = np.empty(options.n_precomputed)
    for i in range(x.shape[0]):
        record = Record(
            np.empty((0, 0, 0)),
            np.empty((0, 0)),
            np.empty((0, 0), np.int64),
            increments[i],
            np.empty(0),
        )
        run(x[i], seeds[i], model, options, precomputed, record)


@njit
def run(x, seeds, model, options, precomputed, record):
    """Run one filter; increments are NaN from where the model's functions fail."""
    calls, frames, y, kinds, d = model
    n, n_times = options.n_particles, kinds.size
    frames = frames.copy()
    frames[SETUP, _X] = x.ctypes.data
    frames[SETUP, _PRECOMPUTED] = precomputed.ctypes.data
    if call_frame(calls[SETUP], frames[SETUP]) != 0:
        record.increments[:] = np.nan
        return
    h, other, stream = np.empty((n, d)), np.empty((n, d)), np.empty(4, np.uint64)
    normalised, carried, v, log_weight = np.empty(n), np.full(n, 1.0 / n), np.empty(n), np.empty(n)
    weights = Weights(normalised, carried, v, log_weight, np.empty(n, np.int64))
    frames[START:, 0] = stream.ctypes.data
    frames[START:, N] = n
    frames[START:, PARAMETERS] = precomputed.ctypes.data
    frames[START:, WEIGHT] = weights.log_weight.ctypes.data
    ess = float(n)
    for t in range(n_times):
        seed = seeds[t * seeds.size // n_times]
        frames[START:, T] = t
        frames[START:, Y] = y[t].ctypes.data
        if t > 0:
            ahead = calls[LOOK_AHEAD] if kinds[t] == 0 else 0
            source = stream, seed, 2 * t
            done = _choose(h, other, weights, ess, ahead, frames, source, options)
            if done == _FAILED:
                record.increments[t:] = np.nan
                return
            if done == _RESAMPLED:
                h, other = other, h
        seed_stream(stream, seed, 2 * t + 1)
        function = (START if t == 0 else MOVE) + kinds[t]
        frames[function, H] = h.ctypes.data
        frames[function, H_OUT] = other.ctypes.data
        if call_frame(calls[function], frames[function]) != 0:
            record.increments[t:] = np.nan
            return
        h, other = other, h
        record.increments[t], ess = _weigh(weights)
        if record.ess.size:
            _keep(t, h, weights, ess, record)
        if not record.increments[t] > -np.inf:  # impossible, or NaN
            return


@njit
def _choose(h, out, weights, ess, ahead, frames, source, options):
    """Choose the particles that enter a time; return whether they were resampled, into ``out``.

    ``ahead`` is the address of the look-ahead function, or 0 if there is none; ``source`` is a
    random stream with the seed and the position that it starts from.
    """
    if ahead != 0:
        frames[LOOK_AHEAD, H] = h.ctypes.data
        # written where the new weights will be
        frames[LOOK_AHEAD, H_OUT] = weights.log_weight.ctypes.data
        if call_frame(ahead, frames[LOOK_AHEAD]) != 0:
            return _FAILED
        ess = _tilt(weights)
    else:
        weights.v[:] = weights.normalised
    if ess < options.share * h.shape[0]:
        stream, seed, position = source
        seed_stream(stream, seed, position)
        _resample(h, weights, stream, options.in_order, options.scheme)
        _gather(h, weights, ahead != 0, out)
        return _RESAMPLED
    weights.carried[:] = weights.normalised
    weights.index[:] = np.arange(h.shape[0])
    return _KEPT


@njit
def _gather(h, weights, tilted, out):
    """Copy the chosen particles, and set the weights that they carry."""
    n, d = h.shape
    for i in range(n):
        chosen = weights.index[i]
        for k in range(d):
            out[i, k] = h[chosen, k]
        weights.carried[i] = 1.0 / n
        if tilted:
            weights.carried[i] *= weights.normalised[chosen] / weights.v[chosen]


@njit
def _keep(t, h, weights, ess, record):
    record.states[t] = h
    record.weights[t] = weights.normalised
    record.ancestors[t] = weights.index
    record.ess[t] = ess


@njit
def _weigh(weights):
    """Normalise new weights; return the log of their sum, and their effective sample size."""
    weight, carried, log_weight = weights.normalised, weights.carried, weights.log_weight
    n = weight.size
    top = -np.inf
    for i in range(n):
        top = max(top, log_weight[i])
    if not top > -np.inf or top == np.inf:
        undefined = top == np.inf or np.isnan(log_weight).any()
        return (np.nan if undefined else -np.inf), 0.0
    for i in range(n):
        weight[i] = carried[i] * fast_exp(log_weight[i] - top)
    sum_of_weights, squares = total(weight), dot(weight, weight)
    for i in range(n):
        weight[i] /= sum_of_weights
    # the sum is 0 if all particles with new weight carried none before
    ess = sum_of_weights**2 / squares if sum_of_weights > 0.0 else 0.0
    return top + np.log(sum_of_weights), ess


@njit
def _tilt(weights):
    """Write normalised resampling weights into ``v``; return their effective sample size."""
    weight, log_tilt, v = weights.normalised, weights.log_weight, weights.v
    n = weight.size
    top = -np.inf
    for i in range(n):
        if weight[i] > 0.0:
            top = max(top, log_tilt[i])
    tilted = 0.0
    if -np.inf < top < np.inf:
        for i in range(n):
            tilt = fast_exp(log_tilt[i] - top)
            # a look-ahead that is NaN counts as zero
            v[i] = weight[i] * tilt if tilt >= 0.0 else 0.0
        tilted = total(v)
    for i in range(n):
        share = v[i] / tilted if tilted > 0.0 else weight[i]
        v[i] = (1.0 - _DEFENSIVE) * share + _DEFENSIVE * weight[i]
    return 1.0 / dot(v, v)


@njit
def _resample(h, weights, stream, in_order, scheme):
    """Draw ancestors with probabilities ``v``, in the order of a space-filling curve if asked."""
    v, index = weights.v, weights.index
    n = v.size
    if in_order is not None:
        order = order_along_curve(h)
        v = v[order]
    uniforms = np.empty(count_uniforms(scheme, v, n))
    for k in range(uniforms.size):
        uniforms[k] = uniform(stream)
    resample_into(scheme, v, uniforms, index)
    if in_order is not None:
        for i in range(n):
            index[i] = order[index[i]]


# kinds of rows of the data
COMPLETE, PARTIAL, MISSING = range(3)


@dataclass(frozen=True, eq=False)
class StateSpaceGraphs:
    """The graphs that the user's functions returned for stand-ins of their arguments."""

    h: Variable  # stand-ins of a particle's state, the time and the observation
    t: Variable
    y: Variable
    # Distributions of the first state, of the next one given ``h``, and of ``y`` given ``h``
    init: Variable
    transition: Variable
    emission: Variable
    proposal: Variable | None = None  # distributions that a guided filter draws from
    init_proposal: Variable | None = None
    look_ahead: Variable | None = None  # log weight of ``h`` for ``y`` at the next time, in nats

    _NAMES = ("init", "transition", "emission", "proposal", "init_proposal", "look_ahead")

    def named(self) -> dict[str, Variable]:
        """Return the graphs that are not None, by name."""
        graphs = {name: getattr(self, name) for name in self._NAMES}
        return {name: graph for name, graph in graphs.items() if graph is not None}

    def given(self, values: dict[Variable, Variable]) -> "StateSpaceGraphs":
        """Return the graphs with variables replaced."""
        named = self.named()
        graphs = clone_replace(list(named.values()), values, rebuild_strict=False)
        return replace(self, **dict(zip(named, graphs, strict=True)))


class FilterGraphs:
    """Graphs of ``n`` particles at once.

    States, observations and weights are float64 whatever the model's own types are, so that one
    compiled loop serves all models.
    """

    def __init__(self, graphs: StateSpaceGraphs) -> None:
        self._one = graphs
        self.n = pt.lscalar("n")
        self.h = pt.TensorType("float64", shape=(None, *graphs.h.type.shape))("states")
        self.y = pt.TensorType("float64", shape=graphs.emission.type.shape)("y")
        self.inputs = [graphs.t, self.n, self.y, self.h]
        self._states = pt.cast(self.h, graphs.h.dtype)

    def step(self, kind: int, *, first: bool) -> list[Variable]:
        """Return states at a time and their log weights, for data of this kind."""
        one, drawn = self._one, self._one.h.type("drawn")
        model, proposal = (one.init, one.init_proposal) if first else (one.transition, one.proposal)
        given = {} if first else {one.h: self._states}
        source = model
        if proposal is not None and kind == COMPLETE:
            (source,) = clone_replace([proposal], {one.y: pt.cast(self.y, one.y.dtype)})
        states = self._draw(source, given)
        if kind == MISSING:
            return [self._out(states), pt.specify_shape(pt.zeros(self.n), (None,))]
        (log_weight,) = clone_replace([self._log_emission(kind)], {one.h: drawn})
        if source is not model:
            log_weight = log_weight + _logp(model, drawn).sum() - _logp(source, drawn).sum()
        return [self._out(states), self._weights(log_weight, {**given, drawn: states})]

    def look_ahead(self) -> list[Variable]:
        """Return log weights of states for the next observation."""
        one = self._one
        log_weight = one.look_ahead
        if log_weight is None:
            ahead = pt.cast(support_point(one.transition), one.h.dtype)
            log_weight = clone_replace([self._log_emission(COMPLETE)], {one.h: ahead})[0]
        return [self._weights(log_weight, {one.h: self._states})]

    def _log_emission(self, kind: int) -> Variable:
        """Return the log density of the observed part of ``y`` at one particle."""
        emission = self._one.emission
        missing = pt.isnan(self.y)
        known = self.y if kind == COMPLETE else pt.switch(missing, 0.0, self.y)
        terms = _logp(emission, known)
        return (terms if kind == COMPLETE else pt.switch(missing, 0.0, terms)).sum()

    def _weights(self, log_weight: Variable, given: dict[Variable, Variable]) -> Variable:
        y = {self._one.y: pt.cast(self.y, self._one.y.dtype)}
        (log_weight,) = clone_replace([log_weight], y)
        log_weight = rewrite.over_particles(log_weight, given, self.n)
        return self._out(*with_gamma_ratios([log_weight], [self.y]))

    def _draw(self, graph: Variable, given: dict[Variable, Variable]) -> Variable:
        # a copy, as PyTensor's batched indexing expects an operation with one output
        return pt.cast(rewrite.over_particles(graph, given, self.n), self._one.h.dtype).copy()

    def _out(self, many: Variable) -> Variable:
        return pt.specify_shape(pt.cast(many, "float64"), (None, *many.type.shape[1:]))


def _logp(distribution: Variable, value: Variable) -> Variable:
    value = pt.cast(value, distribution.dtype)
    return rewrite.checks_to_minus_infinity(pm.logp(distribution, value, warn_rvs=False))


def row_kinds(observed: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the kind of every row of the data: complete, partly or wholly missing."""
    missing = np.isnan(observed).reshape(len(observed), -1)
    return np.where(missing.all(axis=1), MISSING, np.where(missing.any(axis=1), PARTIAL, COMPLETE))


@dataclass(frozen=True, eq=False)
class FilterCode:
    """The compiled functions of a state-space model."""

    # shape (n_calls,): addresses of the functions, 0 for those that are not needed
    calls: NDArray[np.int64]
    frames: NDArray[np.int64]  # shape (n_calls, n_slots): their frames
    n_precomputed: int  # length of the vector of values that do not vary within a filter
    functions: tuple[CompiledCall, ...]  # the functions themselves


def _compiled(
    functions: Mapping[int, Sequence[Variable]], inputs: Sequence[Variable], *, fast: bool
) -> tuple[dict[int, CompiledCall], Variable]:
    """Compile functions of the same inputs, and return what does not depend on these."""
    graphs = rewrite.inline_symbolic([graph for outputs in functions.values() for graph in outputs])
    graphs = in_double_precision(with_fast_normals(graphs) if fast else graphs)
    graphs, parameters, precomputed = rewrite.split_parameters_only(graphs, inputs)
    calls = {}
    for number, outputs in functions.items():
        own, graphs = graphs[: len(outputs)], graphs[len(outputs) :]
        own, generator, last = on_generator(own)
        drawn = (generator, last) if last is not generator else ()
        calls[number] = compile_call([*inputs, parameters], own, *drawn)
    return calls, pt.specify_shape(precomputed, parameters.type.shape)


def on_generator(graphs: Sequence[Variable]) -> tuple[list[Variable], Variable, Variable]:
    """Return graphs whose draws use one random generator, it, and its state after them."""
    found = on_one_generator(graphs)
    if found is None:
        raise ModelError(
            "distributions of a state-space model must draw with one random generator each, got an "
            "operation that holds several; write it with PyMC's own distributions."
        )
    return found


def simulated(graphs: StateSpaceGraphs, n_times: Any) -> Variable:
    """Return the graph of a data set that is drawn from the model."""

    def drawn(distribution: Variable) -> tuple[list[Variable], Variable, Variable]:
        """Return a state and the observation there, drawn with one generator."""
        state = pt.cast(distribution, graphs.h.dtype)
        # in the place of ``h``, and not as a copy, which would be another draw
        (row,) = graph_replace([graphs.emission], {graphs.h: state}, strict=False)
        return on_generator(rewrite.inline_symbolic([state, row]))

    first, generator, after = drawn(graphs.init)
    start = {graphs.t: pt.constant(0, dtype="int64"), generator: pt.random.shared_rng(seed=None)}
    state, row, after = clone_replace([*first, after], start, rebuild_strict=False)
    (following, emitted), own, last = drawn(graphs.transition)

    def step(t: Variable, h: Variable, rng: Variable) -> list[Variable]:
        given = {graphs.t: t, graphs.h: h, own: rng}
        return clone_replace([following, last, emitted], given, rebuild_strict=False)

    _, _, rows = pytensor.scan(
        step,
        sequences=[pt.arange(1, n_times)],
        outputs_info=[state, after, None],
        return_updates=False,
    )
    return pt.concatenate([row[None], rows])


def compile_filter(
    graphs: StateSpaceGraphs, kinds: NDArray[np.int64], x: Variable, *, look_ahead: bool
) -> FilterCode:
    """Compile the functions that a filter needs."""
    many = FilterGraphs(graphs)
    first = int(kinds[0])
    functions = {START + first: many.step(first, first=True)}
    for kind in map(int, np.unique(kinds[1:])):
        functions[MOVE + kind] = many.step(kind, first=False)
    if look_ahead and COMPLETE in kinds[1:]:
        functions[LOOK_AHEAD] = many.look_ahead()
    calls, precomputed = _compiled(functions, many.inputs, fast=True)
    if any(call.slow_ops for call in calls.values()):
        # operations in Python need a NumPy generator, which the fast draws do not support
        calls, precomputed = _compiled(functions, many.inputs, fast=False)
    calls[SETUP] = compile_call([x], [precomputed])
    addresses, frames = frames_of([calls.get(number) for number in range(N_CALLS)])
    frames[START:, 1:4] = generator_functions()
    return FilterCode(addresses, frames, precomputed.type.shape[0], tuple(calls.values()))


# Cost of a time without its particles (calls, allocations and a stream), in units of the work on
# one particle. It was measured on a stochastic volatility model.
_PARTICLES_A_STEP = 30.0


@dataclass(frozen=True, eq=False)
class ParticleFilter(LikelihoodEstimator):
    """Estimates the likelihood of a state-space model, without bias."""

    name: str  # name of the observed variable
    code: FilterCode  # the model in machine code
    observed: Floats  # shape (n_times,) or (n_times, k): the data, NaN where missing
    kinds: NDArray[np.int64]  # shape (n_times,): which rows are complete
    state_shape: tuple[int, ...]  # shape of a state
    n_particles: int  # number of particles
    resampling: str = "systematic"  # one of ``core.resampling.SCHEMES``
    # Particles are resampled when their effective sample size falls below this share
    ess: float = 0.5
    auto: bool = False  # whether the sampler chooses the number of particles
    # Number of seeds of an estimate: times are divided into as many blocks of equal length. With
    # more than one, particles are sorted before they are resampled, so that a block whose seed is
    # kept changes little.
    n_seeds: int = 1

    def estimate(self, x: Floats, seeds: Seeds) -> Floats:
        """Return the log of an unbiased estimate of the likelihood."""
        # one after the other, as a sum in pairs would round otherwise
        log_likelihood: Floats = np.cumsum(self.steps(x, seeds), axis=1)[:, -1]
        return log_likelihood

    def steps(self, x: Floats, seeds: Seeds) -> Floats:
        """Return the log of each factor of an estimate, shape ``(n, n_times)``, in nats.

        A factor is the density of an observation given those before it. The product of the first
        ones is an unbiased estimate of the likelihood of the data up to a time.
        """
        x, seeds = self.checked(x, seeds)
        log_density = np.full((len(x), len(self.observed)), -np.inf)
        filter_rows(x, seeds, *self._model, log_density)
        return log_density

    @property
    def most_seeds(self) -> int:
        """One for each time."""
        return len(self.observed)

    @property
    def fixed_cost(self) -> float:
        """Cost of an estimate without its particles, in units of one particle over all times."""
        return _PARTICLES_A_STEP

    # states -----------------------------------------------------------------------------------

    def _run(self, x: Floats, seeds: Any) -> Record:
        """Run one filter and keep all its particles.

        If a run ends because no particle has any weight, all is NaN from that time on, except the
        log increment, which is ``-inf`` at that time.
        """
        rows, checked = self.checked(np.asarray(x)[None], np.atleast_1d(seeds)[None])
        shape = len(self.observed), self.n_particles
        record = Record(
            np.full((*shape, int(np.prod(self.state_shape))), np.nan),
            np.full(shape, np.nan),
            np.zeros(shape, np.int64),
            *np.full((2, shape[0]), np.nan),
        )
        precomputed = np.empty(self.code.n_precomputed)
        run(rows[0], checked[0], *self._model, precomputed, record)
        return Record(record.states.reshape(*shape, *self.state_shape), *record[1:])

    def _path(self, done: Record, seeds: Any) -> Floats:
        """Return one path of the state given all data, shape ``(n_times, ...)``."""
        path = np.full((len(self.observed), *self.state_shape), np.nan)
        if not np.isfinite(done.increments).all():
            return path
        entropy = [int(seed) for seed in np.atleast_1d(seeds)]
        draw = np.random.default_rng(entropy).random()
        edges = np.cumsum(done.weights[-1])
        chosen = int(np.searchsorted(edges, draw * edges[-1], side="right"))
        for t in range(len(path) - 1, -1, -1):
            path[t] = done.states[t, chosen]
            chosen = done.ancestors[t, chosen]
        return path

    def latent(
        self, x: Floats, seeds: Seeds
    ) -> tuple[dict[str, tuple[tuple[str, ...], NDArray[Any]]], dict[str, Any]]:
        """Draw a path for every row of ``x``; see ``LikelihoodEstimator``.

        Also returned are the effective sample size of the filters, as a share of the particles, and
        the log density of each observation given those before.
        """
        time = f"{self.name}_time"
        axes = tuple(f"{self.name}_state_dim_{k}" for k in range(len(self.state_shape)))
        paths, shares, increments = [], [], []
        for row, own in zip(x, seeds, strict=True):
            done = self._run(row, own)
            paths.append(self._path(done, own))
            shares.append(done.ess / self.n_particles)
            increments.append(done.increments)
        variables = {
            f"{self.name}_states": ((time, *axes), np.array(paths)),
            f"{self.name}_ess": ((time,), np.array(shares)),
            f"{self.name}_log_density": ((time,), np.array(increments)),
        }
        return variables, {}

    def why_impossible(self, x: Floats, seeds: Any, parameters: str = "") -> str:
        """Return why an estimate is zero or not a number: time, data and states there."""
        done = self._run(x, seeds)
        failed = np.flatnonzero(~np.isfinite(done.increments))
        if not failed.size:
            return ""
        where, t = parameters or f"x={np.round(np.asarray(x), 4).tolist()}", int(failed[0])
        if np.isnan(done.increments[t]):
            return (
                f"the likelihood of {self.name!r} is not a number at {where}, at time {t}: a "
                "density is NaN there, or a parameter is out of range."
            )
        finite = done.states[t][np.isfinite(done.states[t])]
        span = f"between {finite.min():.4g} and {finite.max():.4g}" if finite.size else "not finite"
        return (
            f"the likelihood of {self.name!r} is zero at {where}: no particle can have emitted "
            f"{np.round(self.observed[t], 4).tolist()} at time {t}, where their states are {span}. "
            "Look at the emission's support, or use more particles or a guided filter."
        )

    @property
    def _model(self) -> tuple[tuple[Any, ...], Options]:
        """The model and the options, as compiled loops take them."""
        code, rows = self.code, self.observed.reshape(len(self.observed), -1)
        size, scheme = int(np.prod(self.state_shape)), CODES[self.resampling]
        in_order = None if self.n_seeds == 1 else True
        options = Options(self.n_particles, code.n_precomputed, scheme, self.ess, in_order)
        return (code.calls, code.frames, rows, self.kinds, size), options
