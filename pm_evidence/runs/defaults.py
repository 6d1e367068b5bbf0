"""The line of each kind of target, and the method that suits it."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial, singledispatch
from typing import Any

from pm_evidence.core.checks import check_choice, described
from pm_evidence.core.contracts import Kernel, Line
from pm_evidence.families.gaussian.kernel import Autoregression
from pm_evidence.families.gaussian.path import MovingGaussian
from pm_evidence.families.gaussian.target import Gaussian
from pm_evidence.families.lattice.cluster_kernels import SwendsenWang, Wolff
from pm_evidence.families.lattice.ground_states import ground_states
from pm_evidence.families.lattice.ising_kernels import SpinHeatBath, SpinMetropolis
from pm_evidence.families.lattice.path import DetouredPath, LatticePath
from pm_evidence.families.lattice.potts_kernels import ColourHeatBath
from pm_evidence.families.lattice.sweep import VisitKernel
from pm_evidence.families.lattice.target import Ising, Potts
from pm_evidence.families.native import NativeTarget
from pm_evidence.kernels.choose import choose_kernel
from pm_evidence.kernels.pseudo_marginal import PseudoMarginal
from pm_evidence.kernels.suitability import check_moves
from pm_evidence.paths.estimated import EstimatedPath
from pm_evidence.paths.geometric import GeometricPath
from pm_evidence.samplers.ais import AIS
from pm_evidence.samplers.aisel import AISEL
from pm_evidence.samplers.smc import SMC
from pm_evidence.targets.estimated.target import EstimatedTarget
from pm_evidence.targets.estimated.variable import estimated_variables
from pm_evidence.targets.model.target import PyMCTarget

__all__ = ["line_of", "method_of"]

# The pilot wants enough particles per dimension to learn a covariance from.
_PILOT_PARTICLES_PER_DIMENSION = 10
_NOISY_PILOT, _NOISY_PATHS = 200, 16
_LEAST_STAGES, _LATTICE_PATHS = 1000, 512
# Height of the field on the way round a transition; stages per site, as the variance of the work is
# in proportion to sites over stages; and the stages times sites that the default stops at.
_SPIN_DETOUR, _COLOUR_DETOUR = (0.5, 64, 67_000_000), (0.8, 3, 12_000_000)
_CLUSTERS = {"swendsen_wang": SwendsenWang, "wolff": Wolff}
_SPIN_KERNELS = {"heat_bath": SpinHeatBath, "metropolis": SpinMetropolis, **_CLUSTERS}
_COLOUR_KERNELS = {"heat_bath": ColourHeatBath, **_CLUSTERS}


@singledispatch
def line_of(target: Any, kernel: str | Kernel) -> Line:
    """Return what belongs to a target, with the kernel that the user asks for.

    Raises
    ------
    TypeError
        If the target is of no known kind.
    ValueError
        If the kernel does not suit the target.
    """
    raise TypeError(
        f"target must be a pymc.Model or a target of pm_evidence, got {type(target).__name__}."
    )


@line_of.register
def _(target: PyMCTarget, kernel: str | Kernel) -> Line:
    path, chosen = GeometricPath(target), choose_kernel(target, kernel)
    return Line(path, chosen, n_pilot=_PILOT_PARTICLES_PER_DIMENSION * target.n_dim)


@line_of.register
def _(target: EstimatedTarget, kernel: str | Kernel) -> Line:
    if isinstance(kernel, str) and kernel in ("auto", "random_walk"):
        kernel = PseudoMarginal()
    if not isinstance(kernel, PseudoMarginal):
        raise ValueError(
            "kernel must be 'auto' or a pe.PseudoMarginal where the likelihood is estimated, got "
            f"{described(kernel)}: estimates have no gradient."
        )
    check_moves(kernel, target)
    n_pilot = max(_NOISY_PILOT, _PILOT_PARTICLES_PER_DIMENSION * target.n_dim)
    return Line(EstimatedPath(target), kernel, n_pilot=n_pilot, n_paths=_NOISY_PATHS)


@line_of.register
def _(target: Gaussian, kernel: str | Kernel) -> Line:
    if not (isinstance(kernel, Autoregression) or (isinstance(kernel, str) and kernel == "auto")):
        raise ValueError(
            f"kernel must be 'auto' for a Gaussian, got {described(kernel)}; set its tau."
        )
    return Line(MovingGaussian(target), Autoregression())


@line_of.register
def _(target: Ising, kernel: str | Kernel) -> Line:
    return _lattice(target, kernel, _SPIN_KERNELS)


@line_of.register
def _(target: Potts, kernel: str | Kernel) -> Line:
    return _lattice(target, kernel, _COLOUR_KERNELS)


def _lattice(
    target: Ising | Potts, kernel: str | Kernel, kernels: Mapping[str, Callable[..., Any]]
) -> Line:
    if isinstance(kernel, str):
        check_choice("kernel", kernel, ("auto", *kernels))
        chosen = kernels["heat_bath" if kernel == "auto" else kernel]()
        # a periodic checkerboard of odd size has neighbours of one colour at its seam
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
    # a straight path meets a phase transition; clusters grow in no field
    spins = isinstance(target, Ising)
    field = target.field if isinstance(target, Ising) else 0.0
    straight = field or target.coupling <= 0.0 or not isinstance(chosen, VisitKernel)
    height, per_site, budget = _SPIN_DETOUR if spins else _COLOUR_DETOUR
    return Line(
        LatticePath(target) if straight else DetouredPath(target, height),
        chosen,
        n_stages=max(min(per_site * target.n_dim, budget // target.n_dim), _LEAST_STAGES),
        starts=partial(ground_states, target),
        n_paths=_LATTICE_PATHS,
    )


def method_of(given: Any) -> type[SMC] | type[AIS] | type[AISEL]:
    """Return the method that ``method="auto"`` stands for.

    Sequential Monte Carlo for PyMC models: its error was smaller at like time in those compared.
    Native kernels move independent chains faster than resampling could keep up with.
    """
    if isinstance(given, NativeTarget):
        return AIS
    return AISEL if estimated_variables(given) else SMC
