"""Stages of a plan: one by one, or many at a time where a kernel can."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.contracts import BatchedKernel, Kernel, Plan, StageBatch

__all__ = ["move_then_weigh", "stretches", "weigh_then_move"]

Floats = NDArray[np.float64]
Weighed = tuple[StageBatch, Floats, Floats]

# Stages of a stretch times members: progress is told, and energies are held, by the stretch. Larger
# arrays of doubles would be given back to the system each time, which costs more than to fill them.
_LARGEST, _FEWEST = 32_000, 8


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
        Of the population before each stage.
    log_ratio : ndarray, shape (m, n)
        Change of the log density there, from one inverse temperature to the next.
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
        Of the population after each stage's move, at the inverse temperature that it goes on to.
    log_ratio : ndarray, shape (m, n)
        Change of the log density there, from that inverse temperature to the one of the move.
    """
    batch = _passage(kernel.reversed(), path, state, beta[:0:-1], streams)
    return batch, *_weighed(path, batch.after, beta[-2::-1], beta[:0:-1])


def _weighed(path: Any, visited: Any, start: Floats, stop: Floats) -> tuple[Floats, Floats]:
    """Return energies at ``start`` and log ratios from there to ``stop``, a row a stage."""
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
