"""How each kind of target is annealed unless the user says otherwise."""

from dataclasses import replace
from functools import singledispatch
from typing import Any

import numpy as np

from pm_evidence.core.checks import check_choice, check_kind, described, missing_members
from pm_evidence.core.contracts import AnnealingSetup, Kernel, Path
from pm_evidence.families.native import is_native
from pm_evidence.kernels.cycle import choose_kernel
from pm_evidence.kernels.growing import OnDataPoints
from pm_evidence.kernels.pseudo_marginal import PseudoMarginal
from pm_evidence.kernels.suitability import check_moves, checked_kernel
from pm_evidence.paths.data_points import DataPoints, DataPointsPath, TimesPath
from pm_evidence.paths.geometric import EstimatedPath, GeometricPath, ReferencedPath
from pm_evidence.references.target import ReferencedTarget
from pm_evidence.samplers.sampler import Sampler
from pm_evidence.targets.estimated.target import EstimatedTarget, TimesTarget
from pm_evidence.targets.estimated.variable import estimated_variables
from pm_evidence.targets.model.data_points import DataPointsTarget
from pm_evidence.targets.model.target import PyMCTarget

# The pilot needs enough particles per dimension to estimate a covariance. Largest number of their
# coordinates: in very many dimensions, standard deviations have to be enough.
_PILOT_PARTICLES_PER_DIMENSION, _MOST_COORDINATES = 10, 1_600_000
# A density is cheap that reads and makes at most so many numbers; least effort where these are many
# more.
_CHEAP, _LEAST_EFFORT = 10_000, 0.1
_NOISY_PILOT, _NOISY_PATHS = 200, 16


@singledispatch
def annealing_setup(target: Any, kernel: str | Kernel) -> AnnealingSetup:
    """Return how a target is annealed, with the kernel that the user asks for.

    Targets that are not a PyMC model have a method of this name.
    """
    own = getattr(target, "annealing_setup", None)
    if not callable(own):
        raise TypeError(
            "target must be a pymc.Model or have a method annealing_setup, got "
            f"{type(target).__name__}; see pe.extending.NativeTarget."
        )
    setup = own(kernel)
    source = f"{type(target).__name__}.annealing_setup"
    check_kind(source, setup, AnnealingSetup, "return a pe.extending.AnnealingSetup")
    missing = missing_members(setup.path, Path)
    if missing:
        raise TypeError(
            f"the path of {source} must have the methods of a path, got {described(setup.path)} "
            f"without {', '.join(missing)}; define them."
        )
    checked_kernel(f"the kernel of {source}", setup.kernel)
    checked: AnnealingSetup = setup
    return checked


@annealing_setup.register
def _(target: PyMCTarget, kernel: str | Kernel) -> AnnealingSetup:
    path, chosen = GeometricPath(target), choose_kernel(target, kernel)
    n_pilot, facts = _n_pilot(target.n_dim), _known_of(target)
    return AnnealingSetup(path, chosen, n_pilot=n_pilot, effort=effort_of(target), facts=facts)


@annealing_setup.register
def _(target: ReferencedTarget, kernel: str | Kernel) -> AnnealingSetup:
    return AnnealingSetup(
        ReferencedPath(target),
        choose_kernel(target, kernel),
        n_pilot=_n_pilot(target.n_dim),
        effort=effort_of(target.model),
        n_evaluations=target.n_evaluations,
        facts=_known_of(target.model) | target.facts,
    )


@annealing_setup.register
def _(target: DataPointsTarget, kernel: str | Kernel) -> AnnealingSetup:
    return AnnealingSetup(
        DataPointsPath(target),
        OnDataPoints(choose_kernel(target, kernel)),
        n_pilot=_n_pilot(target.n_dim),
        facts={"stepwise": True, "data_order": tuple(target.order.tolist())},
    )


@annealing_setup.register
def _(target: TimesTarget, kernel: str | Kernel) -> AnnealingSetup:
    whole = annealing_setup.dispatch(EstimatedTarget)(target, kernel)
    return replace(
        whole,
        path=TimesPath(target),
        kernel=OnDataPoints(whole.kernel),
        facts={**whole.facts, "stepwise": True, "data_order": tuple(target.order.tolist())},
    )


@annealing_setup.register
def _(target: EstimatedTarget, kernel: str | Kernel) -> AnnealingSetup:
    if isinstance(kernel, str) and kernel in ("auto", "random_walk"):
        kernel = PseudoMarginal()
    if not isinstance(kernel, PseudoMarginal):
        raise ValueError(
            "kernel must be 'auto' or a pe.kernels.PseudoMarginal where the likelihood is "
            "estimated, got "
            f"{described(kernel)}: estimates have no gradient."
        )
    check_moves(kernel, target)
    n_pilot = max(_NOISY_PILOT, _PILOT_PARTICLES_PER_DIMENSION * target.n_dim)
    return AnnealingSetup(
        EstimatedPath(target),
        kernel,
        n_pilot=n_pilot,
        n_paths=_NOISY_PATHS,
        facts={"estimated_likelihood": True},
    )


def effort_of(target: Any) -> float:
    """Return the share of the usual effort that a run begins with: little for dear densities.

    Rounds add draws until the error is small enough, so that this changes the cost and not the
    error. A model that is evaluated in microseconds begins with more draws than the error needs,
    because they find more modes.
    """
    if not isinstance(target, PyMCTarget):
        return 1.0
    return float(np.clip(_CHEAP / max(target.n_numbers, 1), _LEAST_EFFORT, 1.0))


def _known_of(target: PyMCTarget) -> dict[str, bool]:
    """Return what is known of a posterior density, for the record of a run."""
    return {"log_concave": True} if target.is_log_concave else {}


def _n_pilot(n_dim: int) -> int:
    return min(_PILOT_PARTICLES_PER_DIMENSION * n_dim, _MOST_COORDINATES // n_dim)


def with_path(target: Any, sampler: Sampler, path: Any) -> tuple[Any, Any]:
    """Return target and path with the sampler's usual path, and with the data in an order."""
    if isinstance(path, str) and path == "auto":
        path = sampler.usual_path
    if isinstance(path, str) and path == "growing":
        path = getattr(target, "growing_path", "auto" if is_native(target) else "data_points")
    if isinstance(path, str) and path == "data_points":
        path = DataPoints()
    if not isinstance(path, DataPoints):
        return target, path
    if not isinstance(target, PyMCTarget | EstimatedTarget):
        raise ValueError(
            f"path='data_points' needs a pymc.Model, got {described(target)}; leave path out."
        )
    return (path.of(target), "auto") if target.n_dim else (target, "auto")


def adds_data_points(sampler: Sampler, path: Any) -> bool:
    """Return whether the data of a model are added one by one, by the path or by the sampler."""
    if isinstance(path, str) and path == "auto":
        path = sampler.usual_path
    return isinstance(path, DataPoints) or path in ("growing", "data_points")


def along(target: Any, setup: AnnealingSetup, path: str | Path) -> AnnealingSetup:
    """Return the setup along the path that the user asks for."""
    if is_native(target):
        found: AnnealingSetup = target.with_path(setup, path)
        return found
    if isinstance(path, str):
        check_choice("path", path, ("auto", "geometric", "data_points"))
        return setup
    raise ValueError(
        "path must be 'auto', 'geometric', 'data_points' or a pe.paths.DataPoints for a "
        "pymc.Model, got "
        f"{described(path)}; for a path of your own derive a target from pe.extending.ModelTarget."
    )


def default_method(given: Any) -> str:
    """Return the name of the method that ``method="auto"`` stands for.

    It is sequential Monte Carlo for PyMC models, whose error was smaller in equal time in a
    comparison of several models.
    """
    if is_native(given):
        return str(given.method)
    return "aisel" if estimated_variables(given) else "smc"


def lacking(target: Any) -> str:
    """Return what keeps a density from being fitted to the posterior of a model; empty if nothing.

    That of a model whose likelihood is estimated or changes along the path is no density to fit.
    """
    if not isinstance(target, PyMCTarget) or isinstance(target, DataPointsTarget):
        return "a likelihood that cannot be evaluated as a whole"
    if not target.n_dim:
        return "no free variable"
    if target.discrete.size:
        names = [v.name for v in target.layout.variables if np.dtype(v.dtype).kind in "iub"]
        return f"the discrete variables {', '.join(map(repr, names))}"
    if target.prior_acceptance != 1.0:
        return "a transform that cuts off a part of the prior, whose mass is not known exactly"
    return ""
