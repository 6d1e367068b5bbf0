"""A PyMC model as a target over its global variables, with the local ones integrated."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace

from pm_evidence.targets.compile.numpy_density import NumpyDensity, numpy_density
from pm_evidence.targets.compile.numpy_graph import NotBatchedError
from pm_evidence.targets.layout import FlatVariable, Layout
from pm_evidence.targets.model.log_density import DensityGraphs, gradient_graphs
from pm_evidence.targets.model.prior import without_overflow
from pm_evidence.targets.model.target import PyMCTarget, ReparameterisedTarget
from pm_evidence.targets.model.vectorised import quietly
from pm_evidence.targets.plates.integrals import drawn, gradient_of
from pm_evidence.targets.plates.programs import PlateProgram
from pm_evidence.targets.plates.quadrature import rule_of
from pm_evidence.targets.plates.structure import structure_of

Floats = NDArray[np.float64]

# Points are integrated together that have about so many densities at nodes.
_LARGEST = 2**18
# Results of operations that NumPy gives while compiled code reads a number and uses it.
_PER_NUMBER = 4
# Relative difference of log densities that rounding explains.
_ROUNDING = 1e-8
# Prior draws are made in portions of at most so many numbers.
_PORTION = 2**24


class PlateTarget(PyMCTarget):
    """The posterior of the global variables of a PyMC model, whose local ones are integrated.

    The likelihood is that of the global variables: the integral of prior and likelihood of the
    local ones, one element after the other. Draws of the local variables are made from their
    distribution given the global ones when results are asked for.
    """

    def __init__(self, model: pm.Model, *, full: PyMCTarget | None = None) -> None:
        self._full = PyMCTarget(model, backend="numpy") if full is None else full
        super().__init__(model, backend="numpy")
        self.every = self._full.layout
        self._points = _typical(self._full)
        self._point = self.every.split(self._points[0])
        self.structure = structure_of(model, self.every, self._point)
        self._restrict()
        first, self._programs = 0, list[PlateProgram]()
        for plate in self.structure.plates:
            self._programs.append(PlateProgram(model, self.structure, plate, first, self._point))
            first += plate.n_elements

    @cached_property
    def rules(self) -> list[Any]:
        """How each plate is integrated; NotBatchedError if its elements are not independent."""
        found = [rule_of(program, self._points[:4]) for program in self._programs]
        self._check(self._points)
        return found

    def _check(self, points: Floats) -> None:
        """Raise NotBatchedError unless the log density is the sum of that of independent elements.

        Each of a random half of the elements is exchanged for that of another point, or of one five
        times as far out.
        """
        rng, programs = np.random.default_rng(0), self._programs
        first, second = points[: len(points) // 2], points[len(points) // 2 :]
        n = min(len(first), len(second))
        first, second = first[:n], second[:n]
        mixed, predicted = first.copy(), self._rest(first)
        for program in programs:
            at = program.plate.positions
            location = program.places(first)[0]
            other = second[:, at]
            if program.plate.rule == "quadrature":
                factor = np.where(np.arange(n) % 2 == 0, 1.0, 5.0)[:, None, None]
                other = location + factor * (other - location)
            nodes = np.stack([first[:, at], other], axis=1)
            values, chosen = program.values(first, nodes), rng.random((n, len(at))) < 0.5
            with np.errstate(invalid="ignore"):
                predicted = predicted + np.where(chosen, values[:, 1], values[:, 0]).sum(axis=1)
            mixed[:, at] = np.where(chosen[..., None], other, first[:, at])
        right = self._full.density.values(mixed).sum(axis=1)
        known = np.isfinite(right) & np.isfinite(predicted)
        if not np.allclose(right[known], predicted[known], rtol=_ROUNDING, atol=_ROUNDING):
            raise NotBatchedError("the elements of its plates are not independent")

    def _rest(self, x: Floats) -> Floats:
        """Return the log density of the terms without local variables at points of all."""
        graphs = self.graphs()
        density = numpy_density(graphs.parts, graphs.log_density, None)
        return density.values(x[:, self.positions]).sum(axis=1)

    def _restrict(self) -> None:
        """Keep the positions of the global variables alone."""
        local = set(self.structure.local)
        kept = [v for v in self.every.variables if v.name not in local]
        self.positions = self.every.positions_of(kept)
        self.layout = Layout.of(
            [v.shape for v in kept], [v.name for v in kept], [v.dtype for v in kept]
        )
        self.n_dim = self.layout.size
        full = self._full
        self._keeps_support = full._keeps_support[self.positions]
        discrete = np.isin(self.positions, full.discrete)
        self.continuous, self.discrete = np.flatnonzero(~discrete), np.flatnonzero(discrete)
        own = np.isin(full.discrete, self.positions)
        self.lower, self.upper = full.lower[own], full.upper[own]
        self.period = full.period[self.positions]

    def _prior_points(self, n: int, seed: np.random.SeedSequence) -> Floats:
        size = max(_PORTION // max(self.every.size, 1), 1)
        numbers = [min(size, n - k) for k in range(0, max(n, 1), size)]
        seeds = [seed] if len(numbers) == 1 else seed.spawn(len(numbers))
        parts = [
            self._prior.draw(m, s)[:, self.positions] for m, s in zip(numbers, seeds, strict=True)
        ]
        return np.concatenate(parts)

    def prior_points(self, n: int, seed: np.random.SeedSequence) -> Floats:
        """Return ``n`` prior draws of the global variables; see ``PyMCTarget``."""
        return without_overflow(self._prior_points(n, seed), self._keeps_support)

    @property
    def is_cheap(self) -> bool:
        """Whether all elements are integrated in closed form or have nodes in common."""
        return all(each.is_normal or each.has_common_nodes for each in self._programs)

    @cached_property
    def n_numbers(self) -> int:
        """Number of data and constants that compiled code would read in the same time."""
        return self._n_results // _PER_NUMBER

    @cached_property
    def _n_results(self) -> int:
        """How many numbers the operations of all elements give at all nodes."""
        return sum(rule.n_nodes * rule.program.n_numbers for rule in self.rules)

    # densities ------------------------------------------------------------------------------

    @cached_property
    def _graphs(self) -> DensityGraphs:
        """Return log prior and log likelihood of terms without local variables, as graphs."""
        local = set(self.structure.local)
        parts, fixed = list[Variable](), dict[Variable, Variable]()
        terms = self.structure.terms
        for part, variable, value in zip(
            terms.parts, self.every.variables, self._point, strict=True
        ):
            if variable.name in local:
                fixed[part] = pt.constant(value)
            else:
                parts.append(part)
        sums = {True: pt.constant(0.0), False: pt.constant(0.0)}
        for term, labels in zip(terms.terms, self.structure.labels, strict=True):
            rest = np.flatnonzero(labels.ravel() < 0)
            if not rest.size:
                continue
            graph = term.graph if rest.size == labels.size else term.graph.ravel()[rest]
            sums[term.is_prior] = sums[term.is_prior] + graph.sum()
        graphs = clone_replace([sums[True], sums[False]], fixed, rebuild_strict=False)
        return DensityGraphs(parts, graphs, [])

    @cached_property
    def differentiable(self) -> NumpyDensity | None:
        """Log prior and log likelihood of the global variables, with gradients."""
        if not self.n_dim:
            return None
        graphs = self.graphs()
        gradient = gradient_graphs(graphs)
        if gradient is None:
            return None
        return self._with_plates(numpy_density(graphs.parts, graphs.log_density, gradient))

    @cached_property
    def density(self) -> NumpyDensity:
        """Log prior and log likelihood of the global variables, without gradients."""
        graphs = self.graphs()
        return self._with_plates(numpy_density(graphs.parts, graphs.log_density, None))

    def _with_plates(self, of_rest: NumpyDensity) -> NumpyDensity:
        """Return a density with the log integrals of all elements added to the log likelihood."""
        evaluated = _WithPlates(of_rest.function, self.rules, self.positions, self.every.size)
        return replace(
            of_rest,
            function=evaluated,
            n_rows=self._n_rows,
            n_numbers=of_rest.n_numbers + self._n_results,
        )

    @property
    def _n_rows(self) -> int:
        sizes = (rule.n_nodes * rule.n_elements for rule in self.rules)
        return max(_LARGEST // max(sizes), 1)

    @cached_property
    def is_log_concave(self) -> bool:
        """Whether the density of all variables is log-concave: then so are its marginals."""
        return not self._full.discrete.size and self._full.is_log_concave

    @cached_property
    def hyperparameters(self) -> tuple[FlatVariable, ...] | None:
        """Global variables given which the density of the others is log-concave; see above.

        A marginal of a log-concave density is log-concave (Prekopa 1973).
        """
        if self._full.discrete.size or self._full.period.any():
            return None
        form = self._reparameterised
        found = None if form.factors else form.hyperparameters
        names = {v.name for v in self.layout.variables}
        if found is None or not names.issuperset(v.name for v in found):
            return None
        chosen = {v.name for v in found}
        return tuple(v for v in self.layout.variables if v.name in chosen)

    @cached_property
    def is_concave_in_hyperparameters(self) -> bool:
        """Whether the density of all variables is log-concave in them, with centred effects."""
        return self._reparameterised.is_concave_in_hyperparameters

    @cached_property
    def _reparameterised(self) -> ReparameterisedTarget:
        return ReparameterisedTarget(self.model, backend="numpy")

    def compiled_for(self) -> dict[str, str]:
        """Return what evaluates the densities, and which variables are integrated."""
        return {"backend": "numpy", "marginalised": ", ".join(self.structure.local)}

    # results --------------------------------------------------------------------------------

    def rows_of(self, draws: Mapping[str, NDArray[Any]], parameter: str) -> Floats:
        """Return posterior draws as points of the global variables; see ``PyMCTarget``."""
        return self._full.rows_of(draws, parameter)[:, self.positions]

    def posterior(self, draws: Floats) -> dict[str, NDArray[Any]]:
        """Return free variables and deterministics by name, each of shape ``(n, ...)``.

        The local ones are drawn given the global ones; the same points give the same draws.
        """
        return self._full.posterior(self.with_local(draws))

    def with_local(self, draws: Floats) -> Floats:
        """Return points of all variables, with draws of the local ones given the global ones."""
        x = _completed(draws, self.positions, self.every.size)
        digest = hashlib.sha256(np.ascontiguousarray(draws).tobytes()).digest()
        rng = np.random.default_rng(int.from_bytes(digest[:8], "little"))
        for k in range(0, len(x), self._n_rows):
            block = x[k : k + self._n_rows]
            for rule in self.rules:
                # without global variables, the integrals of all rows are the same
                given = block if self.n_dim else block[:1]
                for rows, found in rule.integrate(given):
                    rows, found = (
                        (rows, found)
                        if self.n_dim
                        else (np.arange(len(block)), found.repeated(len(block)))
                    )
                    values = drawn(found, rule, rng)
                    block[rows[:, None, None], rule.program.plate.positions] = values
        return x

    def integration_error(self, x: Floats) -> float:
        """Return the largest change of the log likelihood by finer nodes, in nats."""
        every, total = _completed(x, self.positions, self.every.size), np.zeros(len(x))
        for rule in self.rules:
            found = rule.integrate(every)
            usual, error = np.zeros(len(x)), np.zeros(len(x))
            for rows, each in found:
                usual[rows], error[rows] = each.totals()
            change = rule.finer(len(x)).integrate(every)
            for rows, each in change:
                error[rows] += np.abs(each.totals()[0] - usual[rows])
            total += error
        return float(total.max())

    def describe(self, x: Floats, limit: int = 6) -> str:
        """Return a point as text, on the constrained scale, for messages."""
        values = self._full.constrained.values(
            _completed(x[None, :], self.positions, self.every.size, self._point)
        )
        names = [v.name for v in self.layout.variables]
        shown = [f"{name}={np.round(values[name][0], 4).tolist()}" for name in names[:limit]]
        return "{" + ", ".join(shown) + (", ..." if len(names) > limit else "") + "}"


@dataclass(frozen=True, eq=False)
class _WithPlates:
    """The log densities of the rest, and the log integrals of all elements, as a function."""

    rest: Any
    rules: list[Any]
    positions: NDArray[np.int64]
    size: int

    def __call__(self, x: Floats, arrays: Any, with_gradient: bool) -> tuple[Floats, Floats | None]:
        values, gradient = self.rest(x, arrays, with_gradient)
        values = np.array(values)
        possible = np.flatnonzero(np.isfinite(values).all(axis=1))
        every = _completed(x[possible], self.positions, self.size)
        with np.errstate(all="ignore"):
            for rule in self.rules:
                for rows, found in rule.integrate(every) if len(every) else []:
                    values[possible[rows], 1] += found.totals()[0]
                    if gradient is not None:
                        slope = gradient_of(rule.program, every[rows], found)
                        gradient[possible[rows], 1] += slope[:, self.positions]
        return values, gradient


def _completed(x: Floats, positions: NDArray[np.int64], size: int, point: Any = None) -> Floats:
    """Return points of all variables from those of the global ones."""
    every = np.zeros((len(x), size))
    if point is not None:
        every[:] = np.concatenate([np.ravel(value) for value in point])
    every[:, positions] = x
    return every


def _typical(target: PyMCTarget) -> Floats:
    """Return prior draws with a finite density where there are some, shape ``(n, n_dim)``."""
    with quietly():
        x = target.finite_prior_points(16, np.random.SeedSequence(16))
    return x
