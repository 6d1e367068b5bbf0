"""How lattices are annealed unless the user says otherwise."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pm_evidence.core.checks import check_choice, described
from pm_evidence.core.contracts import AnnealingSetup, Kernel, Path
from pm_evidence.families.lattice.lattice import Lattice
from pm_evidence.families.lattice.path import DetouredPath, LatticePath
from pm_evidence.families.lattice.sweep import VisitKernel
from pm_evidence.families.native import checked_path
from pm_evidence.kernels.suitability import check_moves

__all__ = ["Detour", "lattice_along", "lattice_setup"]

_LEAST_STAGES, _PATHS = 1000, 512


@dataclass(frozen=True)
class Detour:
    """The path around a phase transition, and its default number of stages.

    Parameters
    ----------
    height : float
        Strength of the field at beta 1/2, in nats per site.
    stages_per_site : int
        Number of stages per site. The variance of the work is proportional to the number of sites
        over that of stages.
    most_moves : int
        Largest default of the number of stages times that of sites.
    """

    height: float
    stages_per_site: int
    most_moves: int


def lattice_setup(
    target: Lattice,
    kernel: str | Kernel,
    kernels: Mapping[str, Callable[..., Any]],
    detour: Detour,
) -> AnnealingSetup:
    """Return path, kernel and number of stages of a lattice.

    Parameters
    ----------
    target : Ising or Potts
        What is annealed.
    kernel : str or Kernel
        The kernel that the user asks for.
    kernels : mapping of str to class
        Kernels of this lattice by name.
    detour : Detour
        The path around a transition.

    Raises
    ------
    ValueError
        If the kernel is not one of this lattice, or does not fit it.
    """
    if isinstance(kernel, str):
        check_choice("kernel", kernel, ("auto", *kernels))
        chosen = kernels["heat_bath" if kernel == "auto" else kernel]()
        # a periodic checkerboard of odd size has neighbours of the same colour at its seam
        odd = target.periodic and any(size % 2 for size in target.sizes)
        if isinstance(chosen, VisitKernel) and odd:
            chosen = replace(chosen, order="sequential")
    elif type(kernel) in kernels.values():
        chosen = kernel
    else:
        raise ValueError(
            f"kernel must be one of auto, {', '.join(kernels)} or such a kernel object, got "
            f"{described(kernel)}."
        )
    check_moves(chosen, target)
    # only attractive lattices without a field have a transition, and cluster moves need no field
    straight = target.field or target.coupling <= 0.0 or not isinstance(chosen, VisitKernel)
    affordable = detour.most_moves // target.n_dim
    return AnnealingSetup(
        LatticePath(target) if straight else DetouredPath(target, detour.height),
        chosen,
        n_stages=max(min(detour.stages_per_site * target.n_dim, affordable), _LEAST_STAGES),
        starts=target.ground_states,
        n_paths=_PATHS,
    )


def lattice_along(
    target: Lattice, setup: AnnealingSetup, path: str | Path, detour: Detour
) -> AnnealingSetup:
    """Return the setup along another path.

    Parameters
    ----------
    target : Ising or Potts
        What is annealed.
    setup : AnnealingSetup
        Its usual setup.
    path : str or Path
        ``"auto"``, ``"geometric"``, ``"detour"``, or a path object of this lattice.
    detour : Detour
        The usual height of the detour.

    Raises
    ------
    ValueError
        If the name is unknown, or the kernel or the target does not allow a detour.
    TypeError
        If it is no path.
    """
    found = path
    if isinstance(path, str):
        check_choice("path", path, ("auto", "geometric", "detour"))
        if path == "auto":
            return setup
        bent = path == "detour"
        found = DetouredPath(target, detour.height) if bent else LatticePath(target)
    if isinstance(found, DetouredPath) and not isinstance(setup.kernel, VisitKernel):
        raise ValueError(
            f"path must be 'geometric' for the kernel {type(setup.kernel).__name__}, which has no "
            "moves in a field, got a detour; use the heat bath."
        )
    return replace(setup, path=checked_path(found, target))
