"""Whether the local variables of a model are integrated, and how exactly that was done."""

from typing import Any

import numpy as np

from pm_evidence.core.checks import described
from pm_evidence.core.exceptions import ModelError
from pm_evidence.core.records import LogEvidence, RunRecord
from pm_evidence.estimators.of_run import estimates
from pm_evidence.runs.result import PosteriorDraws
from pm_evidence.targets.compile.numpy_graph import NotBatchedError
from pm_evidence.targets.estimated.variable import estimated_variables
from pm_evidence.targets.model.cache import target_of
from pm_evidence.targets.plates.structure import structure_of_model
from pm_evidence.targets.plates.target import PlateTarget

# Number of coordinates up to which the approximations of log-concave posteriors cost as little.
_MOST_APPROXIMATED = 3000
# Posterior draws at which finer nodes are tried.
_CHECKED = 8
# Posterior draws of a model whose variables are all integrated.
_CHAINS, _DRAWS = 4, 500


def check_marginalise(marginalise: Any) -> None:
    """Raise an error unless the argument is ``"auto"``, True or False."""
    if not isinstance(marginalise, bool) and marginalise != "auto":
        raise ValueError(
            f"marginalise must be 'auto', True or False, got {described(marginalise)}; "
            "leave it out."
        )


def plate_target(
    model: Any, marginalise: Any, problem: str | None, *, open_routes: bool
) -> PlateTarget | None:
    """Return the target of a model whose local variables are integrated, or None.

    ``problem`` is why other arguments do not allow it. Discrete variables are summed whenever they
    can be. Where the user leaves the route open, continuous ones are integrated if there are no
    global variables, or more coordinates than an approximation of the whole posterior can have.
    All this is known before the run.
    """
    if marginalise is False:
        return None
    if problem is None and not estimated_variables(model):
        try:
            structure = structure_of_model(model)
            if marginalise is True or _is_worthwhile(structure, open_routes):
                target = target_of(model, marginalise=True, backend="numpy")
                if structure.plates and isinstance(target, PlateTarget):
                    target.differentiable  # noqa: B018  # raises an error if it is not batched
                    return target
            problem = "the model has no such variable"
        except (NotBatchedError, NotImplementedError) as error:
            problem = str(error)
    if marginalise == "auto":
        return None
    raise ModelError(
        "marginalise must be 'auto' or False where no variable can be integrated one element at a "
        f"time, got True: {problem or 'a likelihood is estimated'}. pe.structure(model) says why "
        "of each variable; leave marginalise out."
    )


def _is_worthwhile(structure: Any, open_routes: bool) -> bool:
    """Return whether integrating is known to cost less than sampling all variables."""
    if not structure.plates:
        return False
    of_sums = any(plate.rule != "quadrature" for plate in structure.plates)
    is_hard = not structure.reasons or structure.layout.size > _MOST_APPROXIMATED
    return of_sums or (open_routes and is_hard)


def without_globals(target: Any) -> PosteriorDraws | None:
    """Return draws of no coordinates, beside which all variables of a model are drawn, or None."""
    if not isinstance(target, PlateTarget) or target.n_dim:
        return None
    origin = np.arange(_CHAINS * _DRAWS).reshape(_CHAINS, _DRAWS)
    return PosteriorDraws(np.empty((_CHAINS, _DRAWS, 0)), origin, "integrals")


def with_integration_error(
    target: Any, record: RunRecord, evidence: list[LogEvidence], drawn: PosteriorDraws | None
) -> tuple[RunRecord, list[LogEvidence]]:
    """Return record and estimates with the error of the integrals over local variables."""
    if not isinstance(target, PlateTarget):
        return record, evidence
    if drawn is None:
        return record, evidence
    x = drawn.draws.reshape(drawn.origin.size, target.n_dim)
    x = x if target.n_dim else x[:1]
    chosen = x[np.unique(np.linspace(0, len(x) - 1, _CHECKED).astype(np.int64))]
    error = target.integration_error(chosen)
    record = record.stating(integration_error=error)
    return record, estimates(record)
