"""How Gaussian process classification is annealed unless the user says otherwise."""

from collections.abc import Mapping
from typing import Any

from pm_evidence.core.checks import check_choice, described
from pm_evidence.core.contracts import AnnealingSetup, Kernel
from pm_evidence.families.gp_classification.elliptical import EllipticalSlice
from pm_evidence.families.gp_classification.gibbs import SliceGibbs
from pm_evidence.families.gp_classification.hamiltonian import LatentHMC
from pm_evidence.families.gp_classification.latent_path import LatentPath
from pm_evidence.families.gp_classification.path import DataPointPath
from pm_evidence.families.gp_classification.riemannian import RiemannianHMC
from pm_evidence.kernels.growing import Grows

__all__ = ["gp_setup"]

_LATENT: Mapping[str, type[Any]] = {
    "elliptical_slice": EllipticalSlice,
    "hmc": LatentHMC,
    "riemannian_hmc": RiemannianHMC,
}
_PILOT, _PATHS = 128, 64


def gp_setup(target: Any, kernel: str | Kernel) -> AnnealingSetup:
    """Return path, kernel and number of stages.

    Parameters
    ----------
    target : GPClassification
        What is annealed.
    kernel : str or Kernel
        The kernel that the user asks for.

    Raises
    ------
    ValueError
        If the kernel is not one of the representation.
    """
    if target.representation == "sequence":
        return _sequence(target, kernel)
    return _latent(target, kernel)


def _sequence(target: Any, kernel: str | Kernel) -> AnnealingSetup:
    if isinstance(kernel, str):
        check_choice("kernel", kernel, ("auto", "slice_gibbs"))
        moves = SliceGibbs()
    elif isinstance(kernel, SliceGibbs):
        moves = kernel
    elif isinstance(kernel, Grows) and isinstance(kernel.moves, SliceGibbs):
        moves = kernel.moves
    else:
        raise ValueError(
            "kernel must be 'auto', 'slice_gibbs' or a SliceGibbs for "
            f"representation='sequence', got {described(kernel)}; leave it out."
        )
    growing: Any = Grows(moves)  # its reversal is of another class
    return AnnealingSetup(DataPointPath(target), growing, n_stages=target.n_dim, stepwise=True)


def _latent(target: Any, kernel: str | Kernel) -> AnnealingSetup:
    if isinstance(kernel, str):
        check_choice("kernel", kernel, ("auto", *_LATENT))
        chosen: Any = _LATENT.get(kernel, LatentHMC)()
    elif isinstance(kernel, tuple(_LATENT.values())):
        chosen = kernel
    else:
        named = ", ".join(map(repr, _LATENT))
        raise ValueError(
            f"kernel must be 'auto', {named}, or one of these kernels for representation='latent', "
            f"got {described(kernel)}; leave it out."
        )
    _ = target.gaussians  # before several threads ask for it
    # a pilot finds the schedule: from the prior, the first steps are millions of times smaller than
    # the last ones
    return AnnealingSetup(
        LatentPath(target), chosen, n_pilot=_PILOT, n_paths=_PATHS, starts=target.near_posterior
    )
