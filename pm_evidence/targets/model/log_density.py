"""The log densities of a PyMC model as graphs."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.multivariate import ZeroSumNormalRV
from pymc.distributions.transforms import ZeroSumTransform
from pymc.logprob.basic import transformed_conditional_logp
from pymc.logprob.transforms import CircularTransform
from pytensor.gradient import NullTypeGradError
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors

from pm_evidence.core.exceptions import ModelError
from pm_evidence.targets.compile.rewrite import without_traces
from pm_evidence.targets.layout import Layout
from pm_evidence.targets.model import upstream
from pm_evidence.targets.model.coordinates import PartlyCentred
from pm_evidence.targets.model.equal_terms import FEWEST, joined
from pm_evidence.targets.model.log_scale import log_scale_of, with_gamma_ratios
from pm_evidence.targets.model.vectorised import quietly

# Below and above these, the exponential in double precision is 0 and infinite.
_LEAST_EXPONENT, _GREATEST_EXPONENT = -745.1332191019412, 709.782712893384

# Returns the graphs of a model's values, given the inputs that hold other coordinates.
Change = Callable[[Mapping[Variable, Variable]], PartlyCentred]


@dataclass(frozen=True, eq=False)
class DensityGraphs:
    """Log prior and log likelihood as graphs."""

    parts: list[Variable]  # inputs: the unconstrained values of the free variables, float64
    log_density: list[Variable]  # log prior with Jacobians, and log likelihood, in nats
    guards: list[upstream.Guard]  # indices that depend on the free variables

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
            log_prior = _log_prior(model, replaced, left_out)
            if log_likelihood is None:
                log_likelihood = (
                    model.potentiallogp if potentials_only else _log_likelihood(model, left_out)
                )
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
    return DensityGraphs(parts, _impossible_beyond_doubles(model, graphs, values), guards)


def discrete_prior_graph(model: pm.Model, layout: Layout) -> tuple[list[Variable], Variable]:
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
        log_prior = _sum_of(model, discrete, ())
    graphs = density_graphs(model, layout, log_likelihood=log_prior)
    return graphs.parts, graphs.log_density[1]


@without_traces()
def gradient_graphs(graphs: DensityGraphs) -> list[list[Variable]] | None:
    """Return the gradients of both log densities with respect to every part, or None."""
    try:
        with quietly():
            return [
                pt.grad(
                    pm.pytensorf.rewrite_pregrad(term), graphs.parts, disconnected_inputs="ignore"
                )
                for term in graphs.log_density
            ]
    except (NotImplementedError, NullTypeGradError):
        return None


def _log_prior(
    model: pm.Model, replaced: Collection[Variable], left_out: Collection[Variable]
) -> Variable:
    """Return the log prior of all but some variables as a graph of the model's value variables."""
    usual, terms = [], list[Variable]()
    for rv in model.free_RVs:
        if rv in replaced:
            continue
        value, transform = model.rvs_to_values[rv], model.rvs_to_transforms[rv]
        if (found := log_scale_of(rv, transform)) is not None:
            parameters = rv.owner.op.dist_params(rv.owner)
            terms.append(found.log_density(value, parameters).sum())
        elif isinstance(rv.owner.op, ZeroSumNormalRV) and isinstance(transform, ZeroSumTransform):
            # PyMC's density compares the sum with zero, from which rounding of large values differs
            terms.append(pm.logp(pm.Normal.dist(0.0, rv.owner.inputs[2]), value).sum())
        else:
            usual.append(rv)
    return sum(model.replace_rvs_by_values(terms), _sum_of(model, usual, left_out))


def _log_likelihood(model: pm.Model, left_out: Collection[Variable]) -> Variable:
    """Return the log likelihood as a graph of the model's value variables."""
    if left_out or len(model.observed_RVs) >= FEWEST:
        evaluated = [rv for rv in model.observed_RVs if rv not in left_out]
        return model.potentiallogp + _sum_of(model, evaluated, left_out)
    missing = upstream.missing_constant(model, model.observed_RVs)
    return model.datalogp if missing is None else model.datalogp + missing


def _sum_of(model: pm.Model, rvs: Sequence[Variable], left_out: Collection[Variable]) -> Variable:
    """Return the summed log density of some variables with Jacobians, as ``Model.logp`` does.

    ``Model.logp`` itself would need the densities of all variables, including those that have none.
    Constants that PyMC leaves out of a density are restored.
    """
    known = {rv: v for rv, v in model.rvs_to_values.items() if rv not in left_out}
    transforms = {rv: model.rvs_to_transforms[rv] for rv in known}
    terms = transformed_conditional_logp(
        list(rvs), rvs_to_values=known, rvs_to_transforms=transforms, jacobian=True
    )
    total = sum((term.sum() for term in joined(terms)), pt.constant(0.0))
    missing = upstream.missing_constant(model, rvs)
    return total if missing is None else total + missing


def _impossible_beyond_doubles(
    model: pm.Model, graphs: list[Variable], values: Mapping[Variable, Variable]
) -> list[Variable]:
    """Return log densities that are minus infinity where a scale of 0 made them NaN.

    Far out on a transformed scale the variable itself is 0 or infinite in double precision, which
    is outside of its support. Not all densities check this: that of ``pm.ZeroSumNormal`` is
    ``-inf + inf`` at ``sigma=0``, where its limit is minus infinity.
    """
    far = [
        ((values[value] < _LEAST_EXPONENT) | (values[value] > _GREATEST_EXPONENT)).any()
        for rv, value in zip(model.free_RVs, model.value_vars, strict=True)
        if model.rvs_to_transforms[rv] is not None
        and not isinstance(model.rvs_to_transforms[rv], CircularTransform)
    ]
    if not far:
        return graphs
    beyond = pt.any(pt.stack(far))
    return [pt.switch(pt.isnan(graph) & beyond, -np.inf, graph) for graph in graphs]


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
