"""Stages of a plan: one by one, or many at a time where a kernel can."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.contracts import Kernel, Passage, Plan, StageKernel

__all__ = ["move_then_weigh", "stretches", "weigh_then_move"]

Floats = NDArray[np.float64]
Weighed = tuple[Passage, Floats, Floats]

# Stages of a stretch: progress is told, and energies are held, by the stretch. Arrays of 31 by 512
# doubles are just small enough for memory to be used again, and not given back to the system.
_LONGEST = 31


def stretches(plan: Plan) -> Iterator[tuple[Kernel, Floats]]:
    """Cut a plan into stretches of stages that one call of a kernel goes through.

    Yields
    ------
    kernel : Kernel
    beta : ndarray, shape (m + 1,)
        Inverse temperatures from before the first stage to the last.
    """
    first = 0
    while first < plan.n_stages:
        kernel, stop = plan.kernels[first], first + 1
        if isinstance(kernel, StageKernel):
            longest = min(first + _LONGEST, plan.n_stages)
            while stop < longest and plan.kernels[stop] is kernel:
                stop += 1
        yield kernel, plan.beta[first : stop + 1]
        first = stop


def weigh_then_move(
    kernel: Kernel, path: Any, state: Any, beta: Floats, streams: NDArray[np.uint64]
) -> Weighed:
    """Go forward through the ``m`` stages of a stretch.

    Returns
    -------
    passage : Passage
    energy : ndarray, shape (m, n)
        Of the population before each stage.
    log_ratio : ndarray, shape (m, n)
        Change of the log density there, from one inverse temperature to the next.
    """
    energy, ratio = path.energy(state, beta[0]), path.log_ratio(state, beta[0], beta[1])
    passage = _passage(kernel, path, state, beta[1:], streams)
    if len(beta) == 2:
        return passage, energy[None], ratio[None]
    # what was visited last is weighed in the next stretch
    start, stop = beta[1:, None], np.append(beta[2:], beta[-1])[:, None]
    energies, ratios = (
        path.energy(passage.visited, start),
        path.log_ratio(passage.visited, start, stop),
    )
    return passage, np.vstack([energy, energies[:-1]]), np.vstack([ratio, ratios[:-1]])


def move_then_weigh(
    kernel: Kernel, path: Any, state: Any, beta: Floats, streams: NDArray[np.uint64]
) -> Weighed:
    """Go back through the ``m`` stages of a stretch, by the reversed kernel.

    Returns
    -------
    passage : Passage
    energy : ndarray, shape (m, n)
        Of the population after each stage's move, at the inverse temperature that it goes on to.
    log_ratio : ndarray, shape (m, n)
        Change of the log density there, from that inverse temperature to the one of the move.
    """
    passage = _passage(kernel.reversed(), path, state, beta[:0:-1], streams)
    if len(beta) == 2:
        state, start, stop = passage.state, beta[0], beta[1]
        return passage, path.energy(state, start)[None], path.log_ratio(state, start, stop)[None]
    start, stop = beta[-2::-1, None], beta[:0:-1, None]
    visited = passage.visited
    return passage, path.energy(visited, start), path.log_ratio(visited, start, stop)


def _passage(
    kernel: Kernel, path: Any, state: Any, beta: Floats, streams: NDArray[np.uint64]
) -> Passage:
    if len(beta) > 1:
        assert isinstance(kernel, StageKernel)
        return kernel.pass_through(path, state, beta, streams)
    state, info = kernel.advance(path, state, float(beta[0]), streams)
    return Passage(state, state, np.array([info.acceptance]), info.n_evaluations, info.n_nan)
