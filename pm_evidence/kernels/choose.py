"""The default kernel of a target."""

from typing import Any

import numpy as np

from pm_evidence.core.checks import check_choice
from pm_evidence.core.contracts import Kernel
from pm_evidence.kernels.cycle import Cycle
from pm_evidence.kernels.discrete import MAX_GIBBS_SUPPORT, DiscreteGibbs, IntegerWalk
from pm_evidence.kernels.hmc import HMC
from pm_evidence.kernels.random_walk import RandomWalk
from pm_evidence.kernels.suitability import check_moves, checked_kernel, moved_by

__all__ = ["KERNELS", "choose_kernel"]

KERNELS = ("auto", "hmc", "random_walk")


def choose_kernel(target: Any, kernel: str | Kernel = "auto") -> Kernel:
    """Return a kernel that moves all coordinates of a target.

    Parameters
    ----------
    target : PyMCTarget
        What is to be sampled.
    kernel : str or Kernel
        The kernel for the continuous coordinates: ``"auto"`` (HMC if there is a gradient),
        ``"hmc"``, ``"random_walk"``, or a kernel object whose method ``check`` returns the
        continuous coordinates. Discrete coordinates are added: those of small support are drawn
        from their full conditional distributions, and others are moved by a random walk. Any other
        kernel object has to move all coordinates, and is returned unchanged.

    Raises
    ------
    ValueError
        If the name is unknown, the object is not a kernel or does not fit the target, or HMC is
        requested although there is no gradient.
    """
    if not isinstance(kernel, str):
        kernel = checked_kernel("kernel", kernel, KERNELS)
        if not isinstance(kernel, HMC | RandomWalk) and not _completed(kernel, target):
            check_moves(kernel, target)
            return kernel
    else:
        check_choice("kernel", kernel, KERNELS)
    wants_gradient = isinstance(kernel, HMC) or kernel == "hmc"
    if wants_gradient and target.differentiable is None:
        raise ValueError(
            "kernel='hmc' needs a gradient, and this model has none; use kernel='random_walk'."
        )
    if not isinstance(kernel, str) and target.continuous.size:
        check_moves(kernel, target, all_of=target.continuous)
    parts = [_mover(target, kernel)] if target.continuous.size else []
    parts += _discrete_parts(target)
    return parts[0] if len(parts) == 1 else Cycle(tuple(parts))


def _completed(kernel: Kernel, target: Any) -> bool:
    """Return whether a kernel has to be completed by moves of the discrete coordinates.

    This is so if it moves exactly the continuous coordinates and there are others. A cycle is never
    completed: its parts have to move all coordinates.
    """
    if isinstance(kernel, Cycle):
        return False
    moved = moved_by(kernel, target)
    return bool(
        target.discrete.size
        and target.continuous.size
        and moved is not None
        and np.array_equal(np.sort(moved), target.continuous)
    )


def _mover(target: Any, kernel: str | Kernel) -> Kernel:
    """Return the kernel of the continuous coordinates."""
    if not isinstance(kernel, str):
        return kernel
    smooth = kernel != "random_walk" and target.differentiable is not None
    return HMC(exploring=True) if smooth else RandomWalk()


def _discrete_parts(target: Any) -> list[Kernel]:
    small = target.upper - target.lower < MAX_GIBBS_SUPPORT
    parts: list[Kernel] = []
    if small.any():
        parts.append(
            DiscreteGibbs(target.discrete[small], target.lower[small], target.upper[small])
        )
    if not small.all():
        walked = target.discrete[~small]
        parts.append(IntegerWalk(walked, np.ones(len(walked))))
    return parts
