"""What a coarse annealing starts from: the prior, or an approximation of the posterior."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pm_evidence.core.blas import one_blas_thread
from pm_evidence.core.random import Phase, generator
from pm_evidence.paths.posterior import Posterior
from pm_evidence.references.target import ReferencedTarget
from pm_evidence.runs.rounds import Run
from pm_evidence.samplers.findings import Survey
from pm_evidence.samplers.lattice import MOST_AXES
from pm_evidence.samplers.nested_laplace import MOST_DENSE, explore
from pm_evidence.targets.model.cache import target_of

__all__ = ["Start", "start_of"]

# Starts of the exploration of hyperparameters, and further ones where the usual error is asked for.
_FEW_STARTS, _STARTS = 2, 22
# Hyperparameters at which narrow peaks are searched for where the posterior is not concave in them,
# and further ones where the usual error is asked for.
_FEW_SEARCHED, _SEARCHED = 3000, 3000


@dataclass(frozen=True)
class Start:
    """What a coarse annealing starts from.

    Parameters
    ----------
    target : Target
        The target, in the coordinates in which it is approximated if it is.
    annealed : Target
        The target with the reference that it is annealed from.
    approximation : Survey, optional
        An approximation of the posterior.
    n_evaluations : int
        Evaluations that this cost.
    """

    target: Any
    annealed: Any
    approximation: Survey | None = None
    n_evaluations: int = 0


def start_of(run: Run, target: Any, share: float) -> Start:
    """Return a start from the prior, or from an approximation if one is known to be complete.

    Parameters
    ----------
    run : Run
        The resolved arguments.
    target : PyMCTarget
        What is annealed, in its first coordinates.
    share : float
        Share of the usual effort that the error needs, from 0 to 1.

    Notes
    -----
    Non-centred coordinates are tried first, then centred ones. If the noise is a variable and may
    be small, so that the data determine the effects, only the latter may be good. Centred ones are
    tried first if hyperparameters are many, because quadratic functions of these describe the
    effects of a group better than their ratios to its scale, if the data determine some effects.
    """
    if target.hyperparameters is None or target.differentiable is None:
        return Start(target, target)
    n_starts, found = _FEW_STARTS + int(share * _STARTS), list[Survey]()
    with one_blas_thread():
        forms = _forms(target)
        positions = _positions(target, forms[0])
        is_concave, spent = target.is_concave_in_hyperparameters, 0
        n_searched = 0 if is_concave else int(_FEW_SEARCHED + share * _SEARCHED)
        for form in forms:
            rng = generator(run.seed, Phase.REFERENCE, len(found))
            given = positions, n_starts, n_searched, rng
            found.append(run.remembered("laplace", partial(explore, Posterior(form), *given)))
            spent += found[-1].n_evaluations
            if found[-1].complete or not is_concave:
                break
    if not found[-1].complete:
        if not found[0].n_peaks:
            return Start(target, target, None, spent)
        return Start(forms[0], forms[0], replace(found[0], complete=False), spent)
    names = ", ".join(variable.name for variable in target.hyperparameters)
    facts = {"reference": "laplace"} | ({"log_concave_given": names} if names else {})
    return Start(form, ReferencedTarget(form, found[-1].reference, facts), found[-1], spent)


def _forms(target: Any) -> list[Any]:
    """Return the target in the coordinates in which it is to be approximated, the first ones first.

    A long random walk is approximated by its states, because most second derivatives are then zero:
    those by its steps are not.
    """
    variables = getattr(target, "variables", ())
    if target.n_dim > MOST_DENSE and any(variable.is_walk for variable in variables):
        options = {"compile_kwargs": target.compile_kwargs, "backend": target.backend}
        return [target_of(target.model, **options)]
    centred = target.centred()
    forms = [target] if centred is target else [target, centred]
    n_given = sum(variable.size for variable in target.hyperparameters)
    return forms[::-1] if n_given > MOST_AXES else forms


def _positions(target: Any, form: Any) -> Any:
    """Return the positions of the hyperparameters of a target in another form of it."""
    names = {variable.name for variable in target.hyperparameters}
    return form.layout.positions_of(v for v in form.layout.variables if v.name in names)
