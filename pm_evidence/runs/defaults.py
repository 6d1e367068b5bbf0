"""How each kind of target is annealed unless the user says otherwise."""

from functools import singledispatch
from typing import Any

from pm_evidence.core.checks import check_choice, check_kind, described, missing_members
from pm_evidence.core.contracts import AnnealingSetup, Kernel, Path
from pm_evidence.families.native import is_native
from pm_evidence.kernels.choose import choose_kernel
from pm_evidence.kernels.pseudo_marginal import PseudoMarginal
from pm_evidence.kernels.suitability import check_moves, checked_kernel
from pm_evidence.paths.estimated import EstimatedPath
from pm_evidence.paths.geometric import GeometricPath
from pm_evidence.targets.estimated.target import EstimatedTarget
from pm_evidence.targets.estimated.variable import estimated_variables
from pm_evidence.targets.model.target import PyMCTarget

__all__ = ["along", "annealing_setup", "default_method"]

# The pilot needs enough particles per dimension to estimate a covariance.
_PILOT_PARTICLES_PER_DIMENSION = 10
_NOISY_PILOT, _NOISY_PATHS = 200, 16


@singledispatch
def annealing_setup(target: Any, kernel: str | Kernel) -> AnnealingSetup:
    """Return how a target is annealed, with the kernel that the user asks for.

    Targets that are not a PyMC model have a method of this name.

    Raises
    ------
    TypeError
        If the target is of an unknown kind.
    ValueError
        If the kernel does not suit the target.
    """
    own = getattr(target, "annealing_setup", None)
    if not callable(own):
        raise TypeError(
            "target must be a pymc.Model or have a method annealing_setup, got "
            f"{type(target).__name__}; see pe.NativeTarget."
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
    return AnnealingSetup(path, chosen, n_pilot=_PILOT_PARTICLES_PER_DIMENSION * target.n_dim)


@annealing_setup.register
def _(target: EstimatedTarget, kernel: str | Kernel) -> AnnealingSetup:
    if isinstance(kernel, str) and kernel in ("auto", "random_walk"):
        kernel = PseudoMarginal()
    if not isinstance(kernel, PseudoMarginal):
        raise ValueError(
            "kernel must be 'auto' or a pe.PseudoMarginal where the likelihood is estimated, got "
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


def along(target: Any, setup: AnnealingSetup, path: str | Path) -> AnnealingSetup:
    """Return the setup along the path that the user asks for.

    Raises
    ------
    ValueError
        If the target has no such path.
    TypeError
        If it is no path.
    """
    if is_native(target):
        found: AnnealingSetup = target.with_path(setup, path)
        return found
    if isinstance(path, str):
        check_choice("path", path, ("auto", "geometric"))
        return setup
    raise ValueError(
        f"path must be 'auto' or 'geometric' for a pymc.Model, got {described(path)}; for a path "
        "of your own derive a target from pe.extending.ModelTarget."
    )


def default_method(given: Any) -> str:
    """Return the name of the method that ``method="auto"`` stands for.

    It is sequential Monte Carlo for PyMC models, whose error was smaller in equal time in a
    comparison of several models.
    """
    if is_native(given):
        return str(given.method)
    return "aisel" if estimated_variables(given) else "smc"
