"""The density that annealing starts from, from what the user gives as ``reference``."""

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.blas import one_blas_thread
from pm_evidence.core.checks import check_choice, described
from pm_evidence.core.contracts import Kernel, Reference, Target
from pm_evidence.core.exceptions import ModelError, NumericalError, warn
from pm_evidence.core.random import Phase, generator
from pm_evidence.execution.display import Display
from pm_evidence.paths.posterior import Posterior
from pm_evidence.references.in_python import check_reference
from pm_evidence.references.packed import packed
from pm_evidence.references.population import fit_population
from pm_evidence.references.target import ReferencedTarget, coordinates_of
from pm_evidence.runs.rounds import Run
from pm_evidence.runs.starts import given_rows
from pm_evidence.runs.trial import Trial, small_annealing
from pm_evidence.samplers.laplace import fit_laplace
from pm_evidence.targets.model.data_points import DataPointsTarget
from pm_evidence.targets.model.target import PyMCTarget

__all__ = ["check_reference_argument", "in_own_coordinates", "with_reference"]

Floats = NDArray[np.float64]

_NAMES = ("prior", "laplace", "fit")
_PRIOR = "prior"
# A density is not fitted to fewer posterior draws than this.
_LEAST_DRAWS = 50


def check_reference_argument(reference: Any) -> None:
    """Raise an error unless an argument can be a reference.

    Raises
    ------
    ValueError
        If a name is unknown.
    TypeError
        If it is neither a name, nor a DataTree, nor an object that draws and has a log density.
    """
    if isinstance(reference, str):
        check_choice("reference", reference, _NAMES)
        return
    is_object = isinstance(reference, Reference) and not isinstance(reference, type)
    if not is_object and not hasattr(reference, "children"):
        raise TypeError(
            f"reference must be {', '.join(map(repr, _NAMES))}, a DataTree with posterior draws or "
            "an object with the methods draw(n, rng) and log_density(x), got "
            f"{described(reference)}; pass for example pe.references.Normal(mean, covariance)."
        )


def in_own_coordinates(reference: Any) -> bool:
    """Return whether a reference is a density of the model's own coordinates: a user's object."""
    return not isinstance(reference, str) and not hasattr(reference, "children")


def with_reference(
    run: Run, target: Target, reference: Any, kernel: str | Kernel, display: Display
) -> Any:
    """Return what is annealed: the target itself, or the model from another reference.

    Parameters
    ----------
    run : Run
        The resolved arguments.
    target : Target
        What was asked for.
    reference : str, DataTree or Reference
        What the user gives, after `check_reference_argument`.
    kernel : str or Kernel
        What moves the particles of the small annealing that a density is fitted to.
    display : Display
        Shows progress.

    Raises
    ------
    ValueError
        If the target cannot be annealed from another reference than its own, or the reference does
        not fit the model.
    ModelError
        If the model does not permit it.
    NumericalError
        If no density can be fitted.

    Warns
    -----
    EvidenceWarning
        If the small annealing from the prior that checks a reference does not reach the posterior.
    """
    if isinstance(reference, str) and reference == _PRIOR:
        return target
    if not isinstance(target, PyMCTarget) or isinstance(target, DataPointsTarget):
        raise ValueError(
            "reference must be 'prior' for native targets, for models with pe.StateSpace or "
            "pe.RandomEffects, and along data points, got "
            f"{described(reference)} for {_kind_of(target)}; leave reference out."
        )
    positions = coordinates_of(target)
    if isinstance(reference, str) and not positions.size:
        return target  # all variables keep their prior, or are uniform on circles
    _check_reference(target, reference, positions)
    with one_blas_thread():
        trial = _trial(run, target, reference, kernel, display)
        known, n_evaluations, facts = None, 0, dict[str, Any]()
        if trial is not None:
            x = trial.draws[:, positions]
            fit = partial(fit_population, x, generator(run.seed, Phase.REFERENCE, 1))
            known = run.remembered("fit", fit)
            facts, n_evaluations = trial.facts(), trial.n_evaluations
        name, density, spent = _density(run, target, reference, positions, known)
    facts = {"reference": name, **facts}
    return ReferencedTarget(target, density, facts, n_evaluations + spent, known)


def _trial(
    run: Run, target: PyMCTarget, reference: Any, kernel: str | Kernel, display: Display
) -> Trial | None:
    """Return the small annealing from the prior; None, with a warning, if it does not arrive."""
    try:
        return small_annealing(run, target, kernel, display)
    except NumericalError as error:
        if isinstance(reference, str) and reference == "fit":
            raise
        warn(
            "the small annealing from the prior that checks the reference did not reach the "
            f"posterior, so that a mode which the reference misses may stay unknown: {error}"
        )
        return None


def _density(
    run: Run, target: PyMCTarget, reference: Any, positions: NDArray[np.int64], known: Any
) -> tuple[str, Any, int]:
    """Return the kind of a reference, its density, and the evaluations that it cost."""
    rng = generator(run.seed, Phase.REFERENCE, 0)
    if isinstance(reference, str):
        if reference == "fit":
            return "fit", known, 0
        peaks = partial(fit_laplace, Posterior(target), positions, rng)
        return "laplace", *run.remembered("laplace", peaks)
    if not hasattr(reference, "children"):
        return "given", reference, 0
    x = given_rows(target, reference, "reference")[:, positions]
    if len(x) < _LEAST_DRAWS:
        raise ValueError(
            f"reference must hold at least {_LEAST_DRAWS} posterior draws, got {len(x)}; pass "
            "more draws."
        )
    return "posterior", run.remembered("fit", partial(fit_population, x, rng)), 0


def _check_reference(target: PyMCTarget, reference: Any, positions: NDArray[np.int64]) -> None:
    """Raise an error if a model cannot be annealed from a reference, before this costs time."""
    ReferencedTarget(target, reference)
    if target.discrete.size:
        target.discrete_prior  # noqa: B018  # raises the error
    if isinstance(reference, str):
        if reference == "laplace" and (target.discrete.size or target.differentiable is None):
            lack = "discrete variables" if target.discrete.size else "no gradient"
            raise ModelError(
                "reference='laplace' needs a gradient and continuous variables only, got a model "
                f"with {lack}; use reference='fit'."
            )
        return
    _check_positions(target, positions)
    if not hasattr(reference, "children"):
        _check_dimension(target, reference, positions)


def _check_positions(target: PyMCTarget, positions: NDArray[np.int64]) -> None:
    if not positions.size:
        raise ValueError(
            "reference must be 'prior' for a model whose variables are all discrete or circular, "
            f"got one with {target.n_dim} of them: they keep their prior, or are uniform on the "
            "circle. Leave reference out."
        )


def _check_dimension(target: PyMCTarget, reference: Any, positions: NDArray[np.int64]) -> None:
    """Raise ValueError unless a user's density is one of the coordinates of a model."""
    arrays, d = packed(reference, positions), len(positions)
    if arrays is None:
        check_reference(reference, d)
        return
    found = reference.draw(1, np.random.default_rng(0)).shape[1]
    if found != d:
        sizes = [
            f"{v.name} ({v.size})"
            for v in target.layout.variables
            if np.isin(np.arange(v.start, v.start + v.size), positions).all()
        ]
        raise ValueError(
            f"reference must be a density of {d} coordinates, the unconstrained values of "
            f"{', '.join(sizes[:10])}, got one of {found}; pass a mean of length {d}."
        )


def _kind_of(target: Any) -> str:
    return "a model along data points" if isinstance(target, DataPointsTarget) else repr(target)
