"""The stages of a plan, run one at a time, or several at a time if the kernel supports it."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.contracts import BatchedKernel, Kernel, Plan, StageBatch

__all__ = ["kernels_along", "move_then_weigh", "stretches", "weigh_then_move"]

Floats = NDArray[np.float64]
Weighed = tuple[StageBatch, Floats, Floats]

# Largest number of stages of a stretch times members; 8 stages are always allowed. Progress is
# reported, and energies are kept in memory, for one stretch at a time. Larger arrays of doubles
# would be returned to the operating system each time, which costs more than filling them.
_LARGEST, _FEWEST = 32_000, 8


def kernels_along(plan: Plan, beta: Floats) -> tuple[Kernel, ...]:
    """Return kernels for a finer schedule: those of the plan's stages in which its stages end.

    Parameters
    ----------
    plan : Plan
        The plan of a pilot.
    beta : ndarray, shape (n_stages + 1,)
        Inverse temperatures from 0 to 1.

    Returns
    -------
    tuple of Kernel, length n_stages
    """
    stage = np.searchsorted(plan.beta[1:-1], beta[1:])
    return tuple(plan.kernels[k] for k in stage)


def stretches(plan: Plan, n: int) -> Iterator[tuple[Kernel, Floats]]:
    """Cut a plan into stretches of stages that one call of a kernel moves ``n`` members through.

    Yields
    ------
    kernel : Kernel
    beta : ndarray, shape (m + 1,)
        Inverse temperatures from before the first stage to the last.
    """
    most, first = max(_LARGEST // n, _FEWEST), 0
    while first < plan.n_stages:
        kernel, stop = plan.kernels[first], first + 1
        if isinstance(kernel, BatchedKernel):
            longest = min(first + most, plan.n_stages)
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
    batch : StageBatch
    energy : ndarray, shape (m, n)
        Energies of the population before each stage.
    log_ratio : ndarray, shape (m, n)
        Change of its log density, from one inverse temperature to the next.
    """
    batch = _passage(kernel, path, state, beta[1:], streams)
    return batch, *_weighed(path, batch.before, beta[:-1], beta[1:])


def move_then_weigh(
    kernel: Kernel, path: Any, state: Any, beta: Floats, streams: NDArray[np.uint64]
) -> Weighed:
    """Go back through the ``m`` stages of a stretch, by the reversed kernel.

    Returns
    -------
    batch : StageBatch
    energy : ndarray, shape (m, n)
        Energies of the population after the move of each stage, at the next inverse temperature.
    log_ratio : ndarray, shape (m, n)
        Change of its log density, from that inverse temperature to the one of the move.
    """
    batch = _passage(kernel.reversed(), path, state, beta[:0:-1], streams)
    return batch, *_weighed(path, batch.after, beta[-2::-1], beta[:0:-1])


def _weighed(path: Any, visited: Any, start: Floats, stop: Floats) -> tuple[Floats, Floats]:
    """Return energies at ``start`` and log ratios from there to ``stop``, one row per stage."""
    if len(start) == 1:
        first, last = float(start[0]), float(stop[0])
        return path.energy(visited, first)[None], path.log_ratio(visited, first, last)[None]
    energy, ratio = path.weigh(visited, start[:, None], stop[:, None])
    return energy, ratio


def _passage(
    kernel: Kernel, path: Any, state: Any, beta: Floats, streams: NDArray[np.uint64]
) -> StageBatch:
    if len(beta) > 1:
        assert isinstance(kernel, BatchedKernel)
        return kernel.advance_many(path, state, beta, streams)
    after, info = kernel.advance(path, state, float(beta[0]), streams)
    acceptance = np.array([info.acceptance])
    return StageBatch(after, state, after, acceptance, info.n_evaluations, info.n_nan)
