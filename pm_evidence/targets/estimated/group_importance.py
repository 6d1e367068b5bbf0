"""Importance sampling of the effects of all groups together, compiled once for all models.

Newton's method and the particles treat all groups in parallel: one call of the model's function
gives the joint density of every group at its own effect.
"""

from collections import namedtuple
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import acos, cos, exp, log, log1p, sqrt
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.logprob.utils import CheckParameterValue
from pytensor.gradient import NullTypeGradError, jacobian
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace
from pytensor.tensor.basic import MakeVector, ScalarFromTensor
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.math import All

from pm_evidence.core.codegen.numba import call_frame, njit
from pm_evidence.core.exceptions import ModelError
from pm_evidence.core.random import seed_stream, uniform
from pm_evidence.targets.compile.calls import CompiledCall, compile_call
from pm_evidence.targets.compile.rewrite import rewrite, split_parameters_only
from pm_evidence.targets.estimated.variable import Floats, LikelihoodEstimator, Seeds, frames_of
from pm_evidence.targets.model.log_scale import with_gamma_ratios
from pm_evidence.targets.model.upstream import in_double_precision
from pm_evidence.targets.model.vectorised import quietly

RANDOM, QUASI = range(2)

# First slot of arguments in a frame; those before are for generators (``targets.compile.calls``).
_FIRST = 4

# Newton's method ends one step after the log density can rise by less than half of this. The
# distance from the mode is then a hundredth of the proposal's width before that step, and about the
# square of it after the step.
_LAST_GAIN = 1e-4
_MAX_EVALUATIONS = 100
# A step has to gain this share of the gain that its first derivative predicts (Armijo's rule).
_ARMIJO = 1e-4
_SHORTEST_STEP = 2.0**-40

# With four degrees of freedom of the proposal, the variance of the weights of a normal density is
# smallest, 0.038 per dimension, at a width of 0.87. A slightly larger width costs hardly any
# precision and protects against skewness.
_WIDTH = 0.9
_LOG_PEAK = log(3.0 / 8.0)
_LEAST_PROBABILITY = 2.0**-54


# The functions of a model, those of ``GroupDensity``, by address and frame; and the numbers of its
# parameters, groups, and dimensions of an effect.
Model = namedtuple("Model", ["calls", "frames", "sizes"])

# How particles are drawn, their number for each group, and the generator of their lattice.
Points = namedtuple("Points", ["draws", "n_particles", "lattice"])


@njit
def estimate_rows(x, seeds, model, points, log_likelihood, chosen, n_evaluations):
    """Estimate the log likelihood of every group at every row of ``x``."""
    n_parameters, n_groups, n_effect_dim = model.sizes
    parameters = np.empty(n_parameters)
    mode = np.empty((n_groups, n_effect_dim))
    factor = np.empty((n_groups, n_effect_dim, n_effect_dim))
    nobody = np.empty((0, n_effect_dim))
    frames = model.frames.copy()
    for r in range(x.shape[0]):
        frames[0, _FIRST] = x[r].ctypes.data
        frames[0, _FIRST + 1] = parameters.ctypes.data
        frames[0, _FIRST + 2] = mode.ctypes.data
        frames[1:, _FIRST + 1] = parameters.ctypes.data
        n_evaluations[r] = 0
        if call_frame(model.calls[0], frames[0]) != 0:
            log_likelihood[r] = np.nan
            continue
        n_evaluations[r] = _find_modes(model.calls[1], frames[1], mode, factor)
        picks = chosen[r] if chosen.shape[0] > 0 else nobody
        proposal = mode, factor
        _weigh(model.calls[2], frames[2], proposal, seeds[r], points, log_likelihood[r], picks)


@njit
def _find_modes(address, frame, mode, factor):
    """Move ``mode`` uphill in every group; ``factor`` is the Cholesky factor of its precision."""
    n_groups, n_dim = mode.shape
    trial = mode.copy()
    value = np.empty(n_groups)
    gradient = np.empty((n_groups, n_dim))
    hessian = np.empty((n_dim, n_groups, n_dim))
    frame[_FIRST] = trial.ctypes.data
    frame[_FIRST + 2] = value.ctypes.data
    frame[_FIRST + 3] = gradient.ctypes.data
    frame[_FIRST + 4] = hessian.ctypes.data
    best = np.full(n_groups, -np.inf)
    step = np.zeros((n_groups, n_dim))
    gain = np.zeros(n_groups)
    share = np.ones(n_groups)
    active = np.ones(n_groups, np.bool_)
    for g in range(n_groups):
        factor[g] = np.eye(n_dim)
    for evaluation in range(1, _MAX_EVALUATIONS + 1):
        if call_frame(address, frame) != 0:
            break
        n_active = 0
        for g in range(n_groups):
            if not active[g]:
                continue
            if evaluation == 1 or value[g] >= best[g] + _ARMIJO * share[g] * gain[g]:
                mode[g] = trial[g]
                best[g] = value[g]
                share[g] = 1.0
                gain[g] = _newton_step(gradient[g], hessian[:, g], factor[g], step[g])
                active[g] = gain[g] > _LAST_GAIN
                if not active[g]:
                    mode[g] += step[g]
            else:
                share[g] *= 0.5
                active[g] = share[g] > _SHORTEST_STEP
            trial[g] = mode[g]
            if active[g]:
                n_active += 1
                trial[g] += share[g] * step[g]
        if n_active == 0:
            break
    return evaluation


@njit
def _newton_step(gradient, hessian, factor, step):
    """Fill ``factor`` and ``step``; return twice the gain that the step predicts.

    If the density is not concave, the absolute second derivatives along the coordinates replace its
    precision. Steps then still go uphill, and the proposal has the corresponding width.
    """
    n_dim = gradient.size
    if not _factorise(hessian, factor):
        for i in range(n_dim):
            factor[i] = 0.0
            size = abs(hessian[i, i])
            factor[i, i] = sqrt(size) if 0.0 < size < np.inf else 1.0
    for i in range(n_dim):
        total = gradient[i]
        for k in range(i):
            total -= factor[i, k] * step[k]
        step[i] = total / factor[i, i]
    _solve_transposed(factor, step)
    gain = 0.0
    for i in range(n_dim):
        gain += gradient[i] * step[i]
    if not gain < np.inf:
        step[:] = 0.0
        return 0.0
    return gain


@njit
def _factorise(hessian, factor):
    """Fill ``factor`` with the Cholesky factor of minus ``hessian``; return whether it has one."""
    n_dim = factor.shape[0]
    for i in range(n_dim):
        for j in range(i + 1):
            total = -0.5 * (hessian[i, j] + hessian[j, i])
            for k in range(j):
                total -= factor[i, k] * factor[j, k]
            if i != j:
                factor[i, j] = total / factor[j, j]
            elif 0.0 < total < np.inf:
                factor[i, i] = sqrt(total)
            else:
                return False
    return True


@njit
def _solve_transposed(factor, vector):
    """Replace ``vector`` by the solution of ``factor.T @ solution = vector``."""
    for i in range(vector.size - 1, -1, -1):
        total = vector[i]
        for k in range(i + 1, vector.size):
            total -= factor[k, i] * vector[k]
        vector[i] = total / factor[i, i]


@njit
def _weigh(address, frame, proposal, seeds, points, out, picks):
    """Fill ``out`` with the log mean weight of every group's particles."""
    mode, factor = proposal
    n_groups, n_dim = mode.shape
    n_seeds = seeds.size
    streams = np.empty((2, n_seeds, 4), np.uint64)
    for b in range(n_seeds):
        seed_stream(streams[0, b], seeds[b], 0)
        seed_stream(streams[1, b], seeds[b], 1)  # for the choice of a particle
    effects = np.empty((n_groups, n_dim))
    value = np.empty(n_groups)
    start = np.empty((n_groups, n_dim))
    log_proposal = np.empty(n_groups)
    top = np.full(n_groups, -np.inf)
    total = np.zeros(n_groups)
    frame[_FIRST] = effects.ctypes.data
    frame[_FIRST + 2] = value.ctypes.data
    for k in range(points.n_particles):
        for g in range(n_groups):
            stream = streams[0, g * n_seeds // n_groups]
            _fill_probabilities(stream, k, points, start[g], effects[g])
            log_proposal[g] = _propose(mode[g], factor[g], effects[g])
        if call_frame(address, frame) != 0:
            out[:] = np.nan
            return
        for g in range(n_groups):
            log_weight = value[g] - log_proposal[g]
            total[g], top[g], share = _add(total[g], top[g], log_weight)
            if picks.size > 0 and uniform(streams[1, g * n_seeds // n_groups]) < share:
                picks[g] = effects[g]
    for g in range(n_groups):
        out[g] = top[g] + log(total[g] / points.n_particles)
        for j in range(n_dim):
            out[g] -= log(factor[g, j, j] / _WIDTH)


@njit
def _add(total, top, log_weight):
    """Add a weight to the running sum ``total * exp(top)``; return also its share of the sum."""
    if log_weight == -np.inf:
        return total, top, 0.0
    if not log_weight < np.inf:  # NaN and infinity make the estimate NaN
        return np.nan, np.nan, 0.0
    if log_weight > top:
        total = total * exp(top - log_weight) + 1.0
        return total, log_weight, 1.0 / total
    weight = exp(log_weight - top)
    return total + weight, top, weight / (total + weight)


@njit
def _fill_probabilities(stream, k, points, start, out):
    """Fill ``out`` with the ``k``-th point of the unit cube, in which every point is uniform."""
    for j in range(out.size):
        if points.draws == RANDOM:
            out[j] = uniform(stream)
        else:
            if k == 0:
                start[j] = uniform(stream)
            n = points.n_particles
            shifted = start[j] + ((k * points.lattice[j]) % n) / n
            out[j] = max(shifted - np.floor(shifted), _LEAST_PROBABILITY)


@njit
def _propose(mode, factor, point):
    """Turn a point of the unit cube into a draw from the proposal.

    Returns its log density, up to terms that are the same for all draws.

    Along the axes that ``factor`` makes independent, the draws are Student-t with four degrees of
    freedom, whose quantiles have a closed form (Shaw 2006, "Sampling Student's T distribution").
    """
    log_density = 0.0
    for j in range(point.size):
        alpha = sqrt(4.0 * point[j] * (1.0 - point[j]))
        square = 4.0 * (cos(acos(min(alpha, 1.0)) / 3.0) / alpha - 1.0)
        draw = sqrt(max(square, 0.0))
        log_density += _LOG_PEAK - 2.5 * log1p(0.25 * draw * draw)
        point[j] = _WIDTH * (draw if point[j] > 0.5 else -draw)
    _solve_transposed(factor, point)
    for j in range(point.size):
        point[j] += mode[j]
    return log_density


@lru_cache(maxsize=256)
def lattice_generator(n_points: int, n_dim: int) -> tuple[int, ...]:
    """Return the generating vector of a good rank-1 lattice.

    It is a Korobov vector, ``a**j mod n_points``, with the ``a`` of the smallest worst-case error
    for smooth periodic functions (Sloan and Joe 1994, criterion P_2) among at most 200. The
    integrands are periodic, because the weights fall to zero towards the faces of the cube.
    """
    if n_dim == 1:
        return (1,)
    tried = np.unique(np.linspace(1, max(n_points // 2, 1), 200).astype(np.int64))
    error = [_worst_case_error(int(a), n_points, n_dim) for a in tried]
    best = int(tried[np.argmin(error)])
    return tuple(pow(best, j, n_points) for j in range(n_dim))


def _worst_case_error(a: int, n_points: int, n_dim: int) -> float:
    k = np.arange(n_points)
    product: NDArray[np.float64] = np.ones(n_points)
    for j in range(n_dim):
        u = (k * pow(a, j, n_points)) % n_points / n_points
        product *= 1.0 + 2.0 * np.pi**2 * (u * u - u + 1.0 / 6.0)
    return float(product.mean())


# Up to this dimension the rows of the Hessian are separate graphs, which PyTensor optimises best.
_MOST_ROWS = 3


@dataclass(frozen=True)
class GroupDensity:
    """Joint log densities of data and effects, of all groups, in machine code."""

    # Parameters of the others and the start of Newton's method, from the flat vector; and, from
    # effects and parameters, log densities, gradients and Hessians, or log densities alone
    calls: tuple[CompiledCall, ...]
    sizes: tuple[int, int, int]  # numbers of parameters, of groups, and of dimensions of an effect


def compile_groups(x: Variable, z: Variable, joint: Variable, start: Variable) -> GroupDensity:
    """Compile the densities of groups as functions of parameters and effects."""
    n_groups, n_dim = z.type.shape
    graphs = in_double_precision(with_gamma_ratios(_check_each([joint], z)))
    (joint,), parameters, precomputed = split_parameters_only(graphs, [z])
    joint = pt.specify_shape(joint, (n_groups,))
    precomputed = pt.specify_shape(precomputed, parameters.type.shape)
    (start,) = in_double_precision([start])
    gradient, hessian = _derivatives(joint, z)
    calls = (
        compile_call([x], [precomputed, pt.specify_shape(start, (n_groups, n_dim))]),
        compile_call([z, parameters], [joint, gradient, hessian]),
        compile_call([z, parameters], [joint]),
    )
    return GroupDensity(calls, (parameters.type.shape[0], n_groups, n_dim))


def _derivatives(joint: Variable, z: Variable) -> tuple[Variable, Variable]:
    """Return gradients ``(n_groups, n_dim)`` and Hessians ``(n_dim, n_groups, n_dim)``.

    A group depends only on its own effect, so derivatives of sums over groups are those of groups.
    """
    n_groups, n_dim = z.type.shape
    try:
        smooth = pm.pytensorf.rewrite_pregrad(joint.sum())
        gradient = pt.grad(smooth, z, disconnected_inputs="ignore")
        columns = gradient.sum(axis=0)
        if n_dim <= _MOST_ROWS:
            rows = [pt.grad(columns[k], z, disconnected_inputs="ignore") for k in range(n_dim)]
            hessian = pt.stack(rows)
        else:
            hessian = jacobian(columns, z, vectorize=True, disconnected_inputs="ignore")
    except (NotImplementedError, NullTypeGradError) as error:
        raise ModelError(
            "effects and emission must have log densities with second derivatives with respect "
            f"to the effects, but: {error}. Write the effects as ordinary variables of the model, "
            "or use pe.StateSpace, which needs no derivatives."
        ) from error
    return (
        pt.specify_shape(gradient, (n_groups, n_dim)),
        pt.specify_shape(hessian, (n_dim, n_groups, n_dim)),
    )


def _check_each(graphs: Sequence[Variable], z: Variable) -> list[Variable]:
    """Make checks of parameters that depend on effects apply to each element by itself.

    PyMC makes the whole density ``-inf`` if any element has parameters out of range. Here a
    particle of one group must not change the weights of other groups.
    """
    varying = {z}

    def by_element(node: Any, inputs: list[Variable]) -> list[Variable] | None:
        if not varying.intersection(node.inputs):
            return None
        varying.update(node.outputs)
        if not (isinstance(node.op, CheckParameterValue) and node.op.can_be_replaced_by_ninf):
            return None
        expression, *checks = inputs
        for condition in (c for check in checks for c in _conditions(check)):
            extra = range(expression.type.ndim, condition.type.ndim)
            fulfilled = condition.all(axis=tuple(extra)) if extra else condition
            expression = pt.switch(fulfilled, expression, -np.inf)
        return [expression]

    return rewrite(graphs, by_element)


def _conditions(check: Variable) -> Iterator[Variable]:
    """Yield the elementwise conditions that a check reduces to one truth value."""
    node: Any = check.owner
    if node is not None and isinstance(node.op, All | MakeVector | ScalarFromTensor):
        for v in node.inputs:
            yield from _conditions(v)
    elif node is not None and isinstance(node.op, DimShuffle) and node.inputs[0].type.ndim == 0:
        yield from _conditions(node.inputs[0])
    else:
        yield check


DRAWS = {"quasi": QUASI, "random": RANDOM}
# Number of points at which evaluations are counted: the origin, and standard normal draws.
_N_COUNTED = 16


@dataclass(frozen=True)
class GroupEstimator(LikelihoodEstimator):
    """Estimates the likelihood of grouped data, without bias."""

    name: str  # name of the observed variable
    density: GroupDensity  # the model in machine code
    labels: NDArray[Any]  # shape (n_groups,): labels of the groups
    # The flat vector, unconstrained effects, and the effects as a graph of both
    graphs: tuple[Variable, Variable, Variable]
    n_particles: int  # number of particles of every group
    draws: str = "quasi"  # how particles are drawn
    auto: bool = False  # whether the sampler chooses the number of particles
    # Number of seeds of an estimate: the groups, in the order of their labels, are divided into as
    # many blocks of equal length
    n_seeds: int = 1

    def estimate(self, x: Floats, seeds: Seeds) -> Floats:
        """Return the log of an unbiased estimate of the likelihood."""
        total: Floats = self.estimate_groups(x, seeds).sum(axis=1)
        return total

    def estimate_groups(self, x: Floats, seeds: Seeds) -> Floats:
        """Return the log estimate of every group by itself, shape ``(n, n_groups)``, in nats."""
        return self._run(x, seeds, with_effects=False)[0]

    def effects(self, x: Floats, seeds: Seeds) -> Floats:
        """Return draws of the effects of all groups, for their posterior."""
        log_likelihood, z, _ = self._run(x, seeds, with_effects=True)
        z[~np.isfinite(log_likelihood)] = np.nan
        return np.array([self._value(*row) for row in zip(x, z, strict=True)])

    def why_impossible(self, x: Floats, seeds: Any, parameters: str = "") -> str:
        """Return why an estimate is zero or not a number, and in which group."""
        row = np.asarray(x, float)[None]
        each = self.estimate_groups(row, np.atleast_1d(seeds).astype(np.uint64)[None])[0]
        if np.isfinite(each).all():
            return ""
        k = int(np.flatnonzero(~np.isfinite(each))[0])
        what = "not a number" if np.isnan(each[k]) else "zero"
        where = parameters or f"x={np.round(row[0], 4).tolist()}"
        return (
            f"the likelihood of {self.name!r} is {what} at {where} in group {self.labels[k]!r}. "
            "Look for data outside the emission's support, or for an overflow there."
        )

    def latent(
        self, x: Floats, seeds: Seeds
    ) -> tuple[dict[str, tuple[tuple[str, ...], NDArray[Any]]], dict[str, Any]]:
        """Draw the effects for every row of ``x``; see ``LikelihoodEstimator``."""
        effects = self.effects(x, seeds)
        group = f"{self.name}_group"
        axes = tuple(f"{self.name}_effect_dim_{k}" for k in range(effects.ndim - 2))
        return {f"{self.name}_effects": ((group, *axes), effects)}, {group: self.labels}

    @property
    def most_seeds(self) -> int:
        """One for each group."""
        return len(self.labels)

    @cached_property
    def fixed_cost(self) -> float:
        """Cost of an estimate without its particles, in passes over the densities of all groups.

        A particle is one of them, and so is every evaluation by Newton's method, whose derivatives
        take about as long as drawing a particle (within a third, for effects of one and two
        dimensions). The evaluations are counted at fixed points.
        """
        rng = np.random.Generator(np.random.PCG64(0))
        x = rng.standard_normal((_N_COUNTED, *self.graphs[0].type.shape))
        x[0] = 0.0
        seeds = np.zeros((_N_COUNTED, self.n_seeds), np.uint64)
        _, _, n_evaluations = self.with_particles(2)._run(x, seeds, with_effects=False)
        return float(n_evaluations.mean())

    def _run(
        self, x: Floats, seeds: Seeds, *, with_effects: bool
    ) -> tuple[Floats, Floats, NDArray[np.int64]]:
        x, seeds = self.checked(x, seeds)
        _, n_groups, n_dim = self.density.sizes
        log_likelihood = np.empty((len(x), n_groups))
        chosen = np.full((len(x) if with_effects else 0, n_groups, n_dim), np.nan)
        n_evaluations = np.empty(len(x), np.int64)
        lattice = np.array(lattice_generator(self.n_particles, n_dim))
        points = Points(DRAWS[self.draws], self.n_particles, lattice)
        model = Model(*frames_of(self.density.calls), self.density.sizes)
        estimate_rows(x, seeds, model, points, log_likelihood, chosen, n_evaluations)
        return log_likelihood, chosen, n_evaluations

    @cached_property
    def _value(self) -> Any:
        x, z, value = self.graphs
        return pm.compile([x, z], value, mode="FAST_COMPILE", on_unused_input="ignore")


def check_groups_are_separate(
    name: str, x: Variable, z: Variable, joint: Variable, start: Variable
) -> None:
    """Check that the density of each group depends only on the effect of that group."""
    (near,) = clone_replace(_check_each([joint], z), {z: start + z}, rebuild_strict=False)
    moved = np.zeros((3, *z.type.shape))
    moved[1, ::2] = moved[2, 1::2] = 0.5
    with quietly():
        evaluate = pm.compile([x, z], near, mode="FAST_COMPILE", on_unused_input="ignore")
        at_start, even, odd = (evaluate(np.zeros(x.type.shape), each) for each in moved)
    others = np.where(np.arange(len(at_start)) % 2 == 0, odd, even)
    if not np.allclose(others, at_start, rtol=1e-9, atol=1e-9, equal_nan=True):
        raise ModelError(
            f"an observation of {name!r} may depend on the effect of its own group only, but the "
            "density of one group changes with another group's effect; use u in emission as the "
            "effects of the observations i, element by element."
        )
