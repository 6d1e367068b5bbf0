"""Checks that refuse models whose evidence is not defined or cannot be found by annealing."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.data import MinibatchOp
from pymc.distributions.continuous import FlatRV, HalfFlatRV
from pymc.distributions.distribution import PartialObservedRV, SymbolicRandomVariable
from pymc.distributions.multivariate import CARRV, ICARRV
from pymc.distributions.simulator import SimulatorRV
from pymc.variational.minibatch_rv import MinibatchRandomVariable
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors

from pm_evidence.core.checks import check_dimensions, described
from pm_evidence.core.exceptions import ModelError
from pm_evidence.targets.model.atoms import Measure, adds_probability_to_density, measure_of
from pm_evidence.targets.model.index_checks import check_known_indices

__all__ = ["check_model", "no_density"]

_DIMENSIONS_OF_DRAWS = ("chain", "draw")
_IMPROPER = {  # and what to use instead
    FlatRV: ("pm.Flat", "pm.Normal with a wide sigma"),
    HalfFlatRV: ("pm.HalfFlat", "pm.HalfNormal with a wide sigma"),
    ICARRV: ("pm.ICAR", "pm.CAR with alpha below 1"),
}


def check_model(model: pm.Model) -> None:
    """Refuse a model whose evidence is not defined.

    Raises
    ------
    ModelError
        The message names the variable, the reason and the remedy.
    """
    _check_names(model)
    if not model.observed_RVs and not model.potentials:
        raise ModelError(
            "model must have at least one observed variable or pm.Potential, got none: there are "
            "no data whose evidence could be computed. Pass observed=... to the likelihood."
        )
    for rv in model.basic_RVs:
        others = [v for v in model.basic_RVs if v is not rv]
        _check_proper(rv, others, "likelihood" if rv in model.observed_RVs else "prior")
        if rv in model.free_RVs:
            _check_missing(rv)
            _check_density(rv, others)
    for term in [*model.basic_RVs, *model.potentials]:
        _check_likelihood(term)
    for rv in model.observed_RVs:
        _check_mixture(rv)
    _check_indices(model)


def _check_names(model: pm.Model) -> None:
    """Refuse names that posterior draws cannot be stored under."""
    for name in (variable.name for variable in (*model.free_RVs, *model.deterministics)):
        if name in _DIMENSIONS_OF_DRAWS:
            raise ModelError(
                f"no variable may be called {name!r}, which is a dimension of all posterior "
                f"draws, got one of this name; rename it, for example to '{name}_'."
            )
    dims = [*model.coords, *(dim for dims in model.named_vars_to_dims.values() for dim in dims)]
    check_dimensions("names of dimensions", [dim for dim in dims if dim is not None])
    for name, labels in model.coords.items():
        wrong = next((label for label in labels or () if isinstance(label, tuple)), None)
        if wrong is not None:
            raise ModelError(
                f"labels of dimensions must be single values, got the tuple {described(wrong)} for "
                f"the dimension {name!r}, which results cannot be stored with; join its parts to a "
                "text."
            )


def _check_proper(rv: Variable, others: Sequence[Variable], what: str) -> None:
    for node in _nodes(rv, others):
        for improper, (name, instead) in _IMPROPER.items():
            if isinstance(node.op, improper):
                raise ModelError(
                    f"every variable must have a proper {what}, got {rv.name} ~ {name}, which "
                    "does not integrate to one: the evidence would be known only up to an "
                    f"arbitrary factor. Give {rv.name!r} a proper {what}, for example {instead}."
                )
        if isinstance(node.op, CARRV) and node is not rv.owner:
            raise ModelError(
                f"pm.CAR must be a separate variable, got one inside of {rv.name}: its log density "
                "in PyMC lacks a constant, which can be restored only for a separate variable. "
                "Write it as pm.MvNormal with tau=tau * (diag(W.sum(0)) - alpha * W)."
            )


def _check_density(rv: Variable, others: Iterable[Variable]) -> None:
    """Refuse a continuous variable that takes some value with positive probability."""
    continuous = np.dtype(rv.dtype).kind == "f"
    if not continuous or measure_of(rv, others) == Measure.CONTINUOUS:
        return
    name = getattr(rv.owner.op, "_print_name", (type(rv.owner.op).__name__,))[0]
    raise ModelError(no_density(f"{rv.name} ~ {name}", rv.name))


def no_density(what: str, name: str) -> str:
    """Return the message that refuses a variable with an atom."""
    return (
        f"every free variable of type float must have a density, got {what}, which takes some "
        "value with positive probability: annealing would treat that probability as a density. "
        "Write an explicit Bernoulli indicator, for example "
        f'at_atom = pm.Bernoulli("at_atom", p), a continuous variable for the other values, and '
        f"pm.math.switch(at_atom, value, continuous) wherever the model uses {name!r}; for a "
        "censored or rounded variable, draw the variable itself and clip or round it where it is "
        "used; for whole numbers, use a distribution of integers (and integer bounds)."
    )


def _check_missing(rv: Variable) -> None:
    op = rv.owner.op
    if isinstance(op, PartialObservedRV) and op.ndim_supp > 0:
        raise ModelError(
            f"missing values must belong to a variable whose components are independent, got "
            f"{rv.name} of a multivariate distribution: PyMC counts the prior of the missing "
            "values as likelihood. Give the observed components their marginal distribution, or "
            "write the missing ones as a separate free variable."
        )


def _check_likelihood(rv: Variable) -> None:
    for node in _nodes(rv):
        if isinstance(node.op, MinibatchRandomVariable):
            raise ModelError(
                f"observed variables must not use total_size, got one on {rv.name}: a rescaled "
                "likelihood is not a likelihood of the data. Drop total_size and pass all data."
            )
        if isinstance(node.op, MinibatchOp):
            raise ModelError(
                f"data must not be a pm.Minibatch, got one in {rv.name}: the evidence is that of "
                "all the data. Pass the whole array."
            )
        if isinstance(node.op, SimulatorRV):
            raise ModelError(
                f"every variable must have a density, got {rv.name} ~ pm.Simulator, which has "
                "none. Use pm.sample_smc for approximate Bayesian computation, or write the "
                "likelihood."
            )


def _check_indices(model: pm.Model) -> None:
    """Refuse indices that are known to lie outside of the arrays that they belong to."""
    data = {rv: model.rvs_to_values[rv] for rv in model.observed_RVs}
    parameters = [
        v for rv in model.basic_RVs for v in rv.owner.inputs if isinstance(v.type, pt.TensorType)
    ]
    terms = [*parameters, *model.potentials, *model.deterministics]
    check_known_indices(terms, data)


def _check_mixture(rv: Variable) -> None:
    for node in _nodes(rv):
        if any(adds_probability_to_density(output) for output in node.outputs[-1:]):
            raise ModelError(
                f"observed variables must have a density, got {rv.name} ~ pm.Mixture of "
                "distributions with and without an atom (such as pm.DiracDelta): PyMC adds the "
                "probability of the atom to a density at the same value. Use pm.HurdleGamma or "
                "pm.HurdleLogNormal, or write the observations at the atom and the others as two "
                "observed variables, a pm.Bernoulli and the continuous one."
            )


def _nodes(rv: Variable, given: Iterable[Variable] = ()) -> Iterator:
    """Yield the nodes that a variable is made of, including those inside distributions."""
    given = frozenset(given)
    for variable in ancestors([rv], blockers=given):
        if variable.owner is not None and variable not in given:
            yield variable.owner
            if isinstance(variable.owner.op, SymbolicRandomVariable):
                for output in variable.owner.op.fgraph.outputs:
                    yield from _nodes(output)
