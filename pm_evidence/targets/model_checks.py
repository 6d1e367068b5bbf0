"""Models that have no evidence, or not one that can be annealed to, are refused here."""

from collections.abc import Iterator

import pymc as pm
from pymc.data import MinibatchOp
from pymc.distributions.continuous import FlatRV, HalfFlatRV
from pymc.distributions.distribution import PartialObservedRV
from pymc.distributions.multivariate import CARRV, ICARRV
from pymc.distributions.simulator import SimulatorRV
from pymc.variational.minibatch_rv import MinibatchRandomVariable
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors

from pm_evidence.core.errors import ModelError

__all__ = ["check_model"]

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
        Naming the variable, the reason and the remedy.
    """
    _check_names(model)
    if not model.observed_RVs and not model.potentials:
        raise ModelError(
            "model must have at least one observed variable or pm.Potential, got none: there are "
            "no data whose evidence could be computed. Pass observed=... to the likelihood."
        )
    for rv in model.free_RVs:
        _check_proper(rv)
    for term in [*model.basic_RVs, *model.potentials]:
        _check_likelihood(term)
    for rv in model.observed_RVs:
        _check_normalised(rv)


def _check_names(model: pm.Model) -> None:
    """Refuse names that posterior draws cannot be stored under."""
    for name in (variable.name for variable in (*model.free_RVs, *model.deterministics)):
        if name in _DIMENSIONS_OF_DRAWS:
            raise ModelError(
                f"no variable must be called {name!r}, which is a dimension of all posterior "
                f"draws, got one of this name; call it '{name}_' or otherwise."
            )


def _check_proper(rv: Variable) -> None:
    op = rv.owner.op
    for improper, (name, instead) in _IMPROPER.items():
        if isinstance(op, improper):
            raise ModelError(
                f"every free variable must have a proper prior, got {rv.name} ~ {name}, which "
                "does not integrate to one: the evidence would be known only up to an arbitrary "
                f"factor. Give {rv.name!r} a proper prior, for example {instead}."
            )
    if isinstance(op, PartialObservedRV) and op.ndim_supp > 0:
        raise ModelError(
            f"missing values must belong to a variable whose components are independent, got "
            f"{rv.name} of a multivariate distribution: PyMC leaves its prior inside the "
            "likelihood. Give the observed components their marginal distribution, or write the "
            "missing ones as a free variable of their own."
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


def _check_normalised(rv: Variable) -> None:
    if isinstance(rv.owner.op, CARRV):
        raise ModelError(
            f"observed variables must have a normalised density, got {rv.name} ~ pm.CAR, whose "
            "logp leaves out -n/2 log(2 pi) + 1/2 sum(log(W.sum(0))). Write it as pm.MvNormal with "
            "tau=tau * (diag(W.sum(0)) - alpha * W)."
        )


def _nodes(rv: Variable) -> Iterator:
    return (v.owner for v in ancestors([rv]) if v.owner is not None)
