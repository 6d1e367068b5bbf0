"""The log densities of a PyMC model as graphs, in which equal terms are stacked."""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.multivariate import ZeroSumNormalRV
from pymc.distributions.transforms import ZeroSumTransform
from pymc.logprob.basic import transformed_conditional_logp
from pymc.logprob.transforms import CircularTransform
from pytensor.gradient import NullTypeGradError
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.graph.replace import clone_replace, vectorize_graph
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

from pm_evidence.core.exceptions import ModelError
from pm_evidence.targets.compile.rewrite import without_traces
from pm_evidence.targets.layout import Layout
from pm_evidence.targets.model import upstream
from pm_evidence.targets.model.coordinates import PartlyCentred
from pm_evidence.targets.model.log_scale import log_scale_of, with_gamma_ratios
from pm_evidence.targets.model.vectorised import quietly

# Below and above these, the exponential in double precision is 0 and infinite.
_LEAST_EXPONENT, _GREATEST_EXPONENT = -745.1332191019412, 709.782712893384

# Fewest equal terms that are stacked. Fewer cost little, and small models keep their last digits.
FEWEST = 8

# Returns the graphs of a model's values, given the inputs that hold other coordinates.
Change = Callable[[Mapping[Variable, Variable]], PartlyCentred]


@dataclass(frozen=True, eq=False)
class DensityGraphs:
    """Log prior and log likelihood as graphs."""

    parts: list[Variable]  # inputs: the unconstrained values of the free variables, float64
    usual: list[Variable]  # log prior with Jacobians, and log likelihood, in nats
    guards: list[upstream.Guard]  # indices that depend on the free variables
    # Whether the free variables are beyond double precision, where NaN stands for minus infinity
    beyond: Variable | None = None

    @cached_property
    def log_density(self) -> list[Variable]:
        """Log prior with Jacobians, and log likelihood, in nats."""
        return [self._where_defined(graph, graph, -np.inf) for graph in self.usual]

    def gradient(self) -> list[list[Variable]]:
        """Return the derivatives of both with respect to each part."""
        found = []
        for graph in self.usual:
            smooth = pm.pytensorf.rewrite_pregrad(graph)
            slopes = pt.grad(smooth, self.parts, disconnected_inputs="ignore")
            found.append([self._where_defined(graph, slope, 0.0) for slope in slopes])
        return found

    def _where_defined(self, graph: Variable, result: Variable, otherwise: float) -> Variable:
        """Return a result, and another one where the graph it is of should be minus infinity.

        Far out on a transformed scale the variable itself is 0 or infinite in double precision,
        which is outside of its support. Not all densities check this: that of ``pm.ZeroSumNormal``
        is ``-inf + inf`` at ``sigma=0``, where its limit is minus infinity.
        """
        if self.beyond is None:
            return result
        return pt.switch(pt.isnan(graph) & self.beyond, otherwise, result)

    def wrong_index(self, values: Sequence[NDArray[np.float64]]) -> str | None:
        """Return the error of an index at these values of ``parts``; None if all are valid."""
        problems = (guard.why(self.parts, values) for guard in self.guards)
        return next((problem for problem in problems if problem is not None), None)


@without_traces()
def density_graphs(
    model: pm.Model,
    layout: Layout,
    *,
    potentials_only: bool = False,
    left_out: Collection[Variable] = (),
    log_likelihood: Variable | None = None,
    coordinates: Change | None = None,
) -> DensityGraphs:
    """Return the graphs of a model's log prior and log likelihood."""
    # one input per variable: slices of a single input would take seconds to compile
    parts, values = [], {}
    for value_var, variable in zip(model.value_vars, layout.variables, strict=True):
        part = pt.TensorType("float64", shape=variable.shape)(variable.name)
        parts.append(part)
        values[value_var] = part.astype(value_var.dtype)
        values[value_var].name = part.name
    changed = None if coordinates is None else coordinates(values)
    replaced = () if changed is None else changed.replaced
    try:
        with quietly():
            priors = [rv for rv in model.free_RVs if rv not in replaced]
            observed = [rv for rv in model.observed_RVs if rv not in left_out]
            if log_likelihood is not None or potentials_only:
                observed = []
            elif not left_out and len(observed) < FEWEST:
                log_likelihood, observed = _whole_log_likelihood(model), []
            log_prior, of_observed = _sums_of(model, (priors, observed), left_out)
            if log_likelihood is None:
                log_likelihood = model.potentiallogp + of_observed
    except NotImplementedError as error:
        _refuse_without_density(model, error)
        raise
    graphs = [pt.as_tensor(g).sum() for g in (log_prior, log_likelihood)]
    if changed is not None:
        values = changed.values
    graphs = clone_replace(graphs, values, rebuild_strict=False)
    if changed is not None:
        graphs[0] = graphs[0] + changed.log_prior
    graphs = upstream.in_double_precision(with_gamma_ratios(graphs))
    graphs, guards = upstream.with_guarded_indices(graphs)
    return DensityGraphs(parts, graphs, guards, _beyond_doubles(model, values))


def discrete_prior_graph(
    model: pm.Model, layout: Layout, left_out: Collection[Variable] = ()
) -> tuple[list[Variable], Variable]:
    """Return the log prior of the discrete variables as a graph of all free variables."""
    discrete = [rv for rv in model.free_RVs if np.dtype(rv.dtype).kind in "iub"]
    continuous = set(model.free_RVs) - set(discrete)
    for rv in discrete:
        parents = [other.name for other in ancestors([rv]) if other in continuous]
        if parents:
            raise ModelError(
                "reference must be 'prior' where the prior of a discrete variable depends on a "
                f"continuous one, got a model in which that of {rv.name!r} depends on "
                f"{parents[0]!r}: discrete variables keep their prior. Sum {rv.name!r} out, for "
                "example by pm.Mixture, or leave reference out."
            )
    with quietly():
        (log_prior,) = _sums_of(model, (discrete,), left_out)
    graphs = density_graphs(model, layout, log_likelihood=log_prior, left_out=left_out)
    return graphs.parts, graphs.log_density[1]


@without_traces()
def gradient_graphs(graphs: DensityGraphs) -> list[list[Variable]] | None:
    """Return the gradients of both log densities with respect to every part, or None."""
    try:
        with quietly():
            return graphs.gradient()
    except (NotImplementedError, NullTypeGradError):
        return None


def _whole_log_likelihood(model: pm.Model) -> Variable:
    """Return the log likelihood as a graph of the model's value variables."""
    missing = upstream.missing_constant(model, model.observed_RVs)
    return model.datalogp if missing is None else model.datalogp + missing


def _sums_of(
    model: pm.Model, groups: Sequence[Sequence[Variable]], left_out: Collection[Variable]
) -> list[Variable]:
    """Return the summed log density of each group of variables, with Jacobians."""
    usual, special = densities_of(model, [rv for group in groups for rv in group], left_out)
    sums = []
    for group in groups:
        mine = [rv for rv in group if rv in usual]
        terms = joined([usual[rv] for rv in mine])
        total = sum((term.sum() for term in terms), pt.constant(0.0))
        missing = upstream.missing_constant(model, mine)
        total = total if missing is None else total + missing
        sums.append(sum((special[rv].sum() for rv in group if rv in special), total))
    return sums


def densities_of(
    model: pm.Model, rvs: Sequence[Variable], left_out: Collection[Variable] = ()
) -> tuple[dict[Variable, Variable], dict[Variable, Variable]]:
    """Return the log densities of variables with Jacobians: those of PyMC, and our own.

    They are arrays, as graphs of the model's value variables, and lack what ``missing_constant``
    gives. ``Model.logp`` would need the densities of all variables, including those that have none.
    PyMC goes through the whole model in each call.
    """
    special = dict[Variable, Variable]()
    for rv in rvs:
        value, transform = model.rvs_to_values[rv], model.rvs_to_transforms[rv]
        if rv not in model.free_RVs:
            continue
        if (found := log_scale_of(rv, transform)) is not None:
            special[rv] = found.log_density(value, rv.owner.op.dist_params(rv.owner))
        elif isinstance(rv.owner.op, ZeroSumNormalRV) and isinstance(transform, ZeroSumTransform):
            # PyMC's density compares the sum with zero, from which rounding of large values differs
            special[rv] = pm.logp(pm.Normal.dist(0.0, rv.owner.inputs[2]), value)
    special = dict(zip(special, model.replace_rvs_by_values(list(special.values())), strict=True))
    usual = [rv for rv in rvs if rv not in special]
    known = {rv: v for rv, v in model.rvs_to_values.items() if rv not in left_out}
    terms = transformed_conditional_logp(
        usual,
        rvs_to_values=known,
        rvs_to_transforms={rv: model.rvs_to_transforms[rv] for rv in known},
        jacobian=True,
    )
    return dict(zip(usual, terms, strict=True)), special


def _beyond_doubles(model: pm.Model, values: Mapping[Variable, Variable]) -> Variable | None:
    """Return whether an exponential of the free variables is 0 or infinite in double precision."""
    far = [
        ((values[value] < _LEAST_EXPONENT) | (values[value] > _GREATEST_EXPONENT)).any()
        for rv, value in zip(model.free_RVs, model.value_vars, strict=True)
        if model.rvs_to_transforms[rv] is not None
        and not isinstance(model.rvs_to_transforms[rv], CircularTransform)
    ]
    return pt.any(pt.stack(far)) if far else None


def _refuse_without_density(model: pm.Model, error: NotImplementedError) -> None:
    """Raise a ModelError that names the variable whose density PyMC does not know."""
    for rv in model.basic_RVs:
        try:
            pm.logp(rv, rv.type(), warn_rvs=False)
        except NotImplementedError as reason:
            raise ModelError(
                f"every variable must have a log density that PyMC knows, but that of "
                f"{rv.name} failed: {' '.join(str(reason).split()).rstrip('.')}. Use a "
                "distribution whose density is known, or write it with pm.CustomDist(logp=...)."
            ) from error


# equal terms ------------------------------------------------------------------------------------
#
# A model that is written as a loop has a term for each turn, equal to the others but for its
# numbers. Evaluated one by one they take a thousand operations; stacked they take those of a single
# term, and their elements are seen to be elements of one array.


class _DifferError(Exception):
    """Terms differ in more than numbers."""


def joined(terms: Sequence[Variable]) -> list[Variable]:
    """Return arrays with the elements of all terms: one array for many equal terms."""
    groups = defaultdict[int, list[int]](list)
    for index, operations in enumerate(_operations(terms)):
        groups[operations].append(index)
    arrays = dict(enumerate(terms))
    for group in groups.values():
        if len(group) >= FEWEST:
            together = _stacked(tuple(terms[k] for k in group))
            if together is not None:
                arrays = {k: v for k, v in arrays.items() if k not in group}
                arrays[group[0]] = together
    return [arrays[k] for k in sorted(arrays)]


def _stacked(terms: tuple[Variable, ...]) -> Variable | None:
    """Return terms of the same operations as one; None where they differ in more than numbers.

    Terms that do not differ at all have no axis for them either, and remain as they are.
    """
    try:
        together = _Stack().of(terms)
    except (_DifferError, NotImplementedError, ValueError, TypeError, IndexError):
        return None
    return together if together.type.ndim == terms[0].type.ndim + 1 else None


def _operations(terms: Sequence[Variable]) -> list[int]:
    """Return a number for each term, which is the same for terms of the same operations."""
    numbers, found = dict[object, int](), dict[Variable, int]()

    def number(variable: Variable) -> int:
        if variable not in found:
            key = (variable.type, isinstance(variable, Constant))
            found[variable] = numbers.setdefault(key, len(numbers))
        return found[variable]

    for node in toposort(list(terms)):
        inputs = tuple(map(number, node.inputs))
        for k, output in enumerate(node.outputs):
            found[output] = numbers.setdefault((node.op, inputs, k), len(numbers))
    return [number(term) for term in terms]


class _Stack:
    """Variables of the same place in all terms, as one with a first axis for the terms.

    What all terms have in common stays as it is, without that axis.
    """

    def __init__(self) -> None:
        self._found = dict[tuple[Variable, ...], Variable]()

    def of(self, variables: tuple[Variable, ...]) -> Variable:
        """Return what stands in one place of all terms."""
        if variables not in self._found:
            self._found[variables] = self._new(variables)
        return self._found[variables]

    def _new(self, variables: tuple[Variable, ...]) -> Variable:
        first = variables[0]
        if _is_same(variables):
            return first
        if isinstance(first, Constant):
            if not hasattr(first.type, "shape"):  # a number that is no array
                raise _DifferError
            return pt.constant(np.stack([v.data for v in variables]))
        if first.owner is None:
            if None in getattr(first.type, "shape", (None,)):
                raise _DifferError
            return pt.stack(variables)
        nodes = [v.owner for v in variables]
        if not _has_a_stacked_form(first.owner.op):
            raise _DifferError
        columns = list(zip(*(node.inputs for node in nodes), strict=True))
        is_element = isinstance(first.owner.op, Subtensor | AdvancedSubtensor)
        if is_element and (taken := self._taken(first.owner, columns)) is not None:
            return taken
        old, new = first.owner.inputs, [self.of(column) for column in columns]
        # a variable may be the same for all terms in one place, and not in another
        places = [v if v is w else v.type() for v, w in zip(old, new, strict=True)]
        output = first.owner.clone_with_new_inputs(places).outputs[first.index]
        changed = {v: w for v, w in zip(places, new, strict=True) if v is not w}
        return vectorize_graph(output, changed) if changed else output

    def _taken(self, node: Apply, columns: list[tuple[Variable, ...]]) -> Variable | None:
        """Return elements at other places of the same array; None if the places are the same."""
        array, places = self.of(columns[0]), columns[1:]
        if all(map(_is_same, places)):
            return None
        entries = [entry for entry in node.op.idx_list if entry != slice(None)]
        from_first = entries == list(node.op.idx_list[: len(entries)])
        are_numbers = all(isinstance(entry, int) for entry in entries)
        if array is not node.inputs[0] or not (from_first and are_numbers):
            raise _DifferError
        if not all(isinstance(v, Constant) for column in places for v in column):
            raise _DifferError
        index = [np.stack([v.data for v in column]) for column in places]
        # flags choose elements in another way, and give arrays of any length
        if len({place.ndim for place in index}) > 1 or any(i.dtype == bool for i in index):
            raise _DifferError
        return array[tuple(index[entry] for entry in entries)]


def _has_a_stacked_form(op: Op) -> bool:
    """Return whether an operation is one on arrays: no loop, and not a user's own."""
    module = type(getattr(op, "core_op", op)).__module__
    return module.startswith(("pytensor.tensor.", "pytensor.raise_op", "pymc."))


def _is_same(variables: tuple[Variable, ...]) -> bool:
    """Return whether variables are one and the same, or constants of the same numbers."""
    first = variables[0]
    if all(v is first for v in variables):
        return True
    if not all(isinstance(v, Constant) for v in variables):
        return False
    return all(np.array_equal(first.data, v.data) for v in variables)
