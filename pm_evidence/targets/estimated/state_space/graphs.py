"""The graphs of a state-space model: those of one particle from the user, and those of many."""

from dataclasses import dataclass, replace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.distribution import support_point
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace

from pm_evidence.targets.compile.batched import checks_to_minus_infinity, over_particles
from pm_evidence.targets.model.gamma_ratios import with_gamma_ratios

__all__ = ["COMPLETE", "MISSING", "PARTIAL", "FilterGraphs", "StateSpaceGraphs", "row_kinds"]

# kinds of rows of the data
COMPLETE, PARTIAL, MISSING = range(3)


@dataclass(frozen=True, eq=False)
class StateSpaceGraphs:
    """The graphs that the user's functions returned for stand-ins of their arguments.

    Parameters
    ----------
    h, t, y : Variable
        Stand-ins of a particle's state, the time and the observation.
    init, transition, emission : TensorVariable
        Distributions of the first state, of the next one given ``h``, and of ``y`` given ``h``.
    proposal, init_proposal : TensorVariable, optional
        Distributions that a guided filter draws from.
    look_ahead : TensorVariable, optional
        Log weight of ``h`` for ``y`` at the next time, in nats.
    """

    h: Variable
    t: Variable
    y: Variable
    init: Variable
    transition: Variable
    emission: Variable
    proposal: Variable | None = None
    init_proposal: Variable | None = None
    look_ahead: Variable | None = None

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

    Parameters
    ----------
    graphs : StateSpaceGraphs
        Graphs of one particle.

    Attributes
    ----------
    inputs : list of Variable
        Time, number of particles, observation and states.
    """

    def __init__(self, graphs: StateSpaceGraphs) -> None:
        self._one = graphs
        self.n = pt.lscalar("n")
        self.h = pt.TensorType("float64", shape=(None, *graphs.h.type.shape))("states")
        self.y = pt.TensorType("float64", shape=graphs.emission.type.shape)("y")
        self.inputs = [graphs.t, self.n, self.y, self.h]
        self._states = pt.cast(self.h, graphs.h.dtype)

    def start(self, kind: int) -> list[Variable]:
        """Return first states and their log weights, for data of this kind."""
        one = self._one
        if one.init_proposal is not None and kind == COMPLETE:
            return self._proposed(one.init_proposal, one.init, {})
        return self._simulated(one.init, {}, kind)

    def move(self, kind: int) -> list[Variable]:
        """Return next states and their log weights, for data of this kind."""
        one = self._one
        states = {one.h: self._states}
        if one.proposal is not None and kind == COMPLETE:
            return self._proposed(one.proposal, one.transition, states)
        return self._simulated(one.transition, states, kind)

    def look_ahead(self) -> list[Variable]:
        """Return log weights of states for the next observation."""
        one = self._one
        log_weight = one.look_ahead
        if log_weight is None:
            ahead = pt.cast(support_point(one.transition), one.h.dtype)
            log_weight = clone_replace([self._log_emission(COMPLETE)], {one.h: ahead})[0]
        return [self._weights(log_weight, {one.h: self._states})]

    def emit(self, graph: Variable) -> list[Variable]:
        """Return states drawn from ``init`` or ``transition``, and observations drawn there."""
        one = self._one
        states = self._draw(graph, {one.h: self._states})
        return [self._out(states), self._out(over_particles(one.emission, {one.h: states}, self.n))]

    def _simulated(
        self, graph: Variable, given: dict[Variable, Variable], kind: int
    ) -> list[Variable]:
        states = self._draw(graph, given)
        if kind == MISSING:
            return [self._out(states), pt.specify_shape(pt.zeros(self.n), (None,))]
        return [
            self._out(states),
            self._weights(self._log_emission(kind), {self._one.h: states}),
        ]

    def _proposed(
        self, proposal: Variable, model: Variable, given: dict[Variable, Variable]
    ) -> list[Variable]:
        one = self._one
        proposal = clone_replace([proposal], {one.y: pt.cast(self.y, one.y.dtype)})[0]
        drawn = one.h.type("drawn")
        log_emission = clone_replace([self._log_emission(COMPLETE)], {one.h: drawn})[0]
        log_weight = log_emission + _logp(model, drawn).sum() - _logp(proposal, drawn).sum()
        states = self._draw(proposal, given)
        return [self._out(states), self._weights(log_weight, {**given, drawn: states})]

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
        log_weight = over_particles(log_weight, given, self.n)
        return self._out(*with_gamma_ratios([log_weight], [self.y]))

    def _draw(self, graph: Variable, given: dict[Variable, Variable]) -> Variable:
        # a copy, as PyTensor's batched indexing expects an operation with one output
        return pt.cast(over_particles(graph, given, self.n), self._one.h.dtype).copy()

    def _out(self, many: Variable) -> Variable:
        return pt.specify_shape(pt.cast(many, "float64"), (None, *many.type.shape[1:]))


def _logp(distribution: Variable, value: Variable) -> Variable:
    value = pt.cast(value, distribution.dtype)
    return checks_to_minus_infinity(pm.logp(distribution, value, warn_rvs=False))


def row_kinds(observed: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the kind of every row of the data: complete, partly or wholly missing."""
    missing = np.isnan(observed).reshape(len(observed), -1)
    return np.where(missing.all(axis=1), MISSING, np.where(missing.any(axis=1), PARTIAL, COMPLETE))
