"""Chains of moves between two reweightings."""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.contracts import Kernel, MoveInfo, Path
from pm_evidence.core.growing import Growing

__all__ = ["MovesRepeatedly", "grow_chains", "summed"]

Watch = Callable[[Kernel, MoveInfo], Kernel]


@runtime_checkable
class MovesRepeatedly(Protocol):
    """A kernel that moves a population several times in one call, which takes less time."""

    def advance_repeatedly(
        self, path: Any, state: Any, beta: float, n_moves: int, streams: NDArray[np.uint64]
    ) -> tuple[Any, MoveInfo]:
        """Move every member as ``n_moves`` calls of `Kernel.advance` would.

        The first result holds the given states, those after the first move, and so on, as one
        population; the second is the report of all moves together.
        """
        ...


def grow_chains(
    path: Path,
    kernel: Kernel,
    start: Any,
    beta: float,
    length: int,
    streams: NDArray[np.uint64],
    watch: Watch | None = None,
) -> tuple[Any, MoveInfo]:
    """Run every member of ``start`` as a chain and keep all its states.

    Parameters
    ----------
    path, kernel, beta
        The kernel that moves the chains, and the density that it leaves invariant.
    start : State
        First states of the chains, ``n`` of them.
    length : int
        States per chain, the first included.
    streams : ndarray of uint64, shape (n, 4)
        One stream per chain.
    watch : callable, optional
        Called with the kernel and its report after every move; returns the kernel of the next.

    Returns
    -------
    state : State
        ``n * length`` states: the first states of all chains, then the second ones, and so on. A
        chain of length 1 is moved once, and only its last state is kept.
    info : MoveInfo
        Report of all moves together.
    """
    if isinstance(path, Growing):
        start = path.reached(start, beta, streams)
    if watch is None and isinstance(kernel, MovesRepeatedly):
        chains, info = kernel.advance_repeatedly(path, start, beta, max(length - 1, 1), streams)
        return chains.take(np.arange(len(start) if length == 1 else 0, len(chains))), info
    states, infos = [start], []
    for _ in range(max(length - 1, 1)):
        state, info = kernel.advance(path, states[-1], beta, streams)
        states.append(state)
        infos.append(info)
        if watch is not None:
            kernel = watch(kernel, info)
    kept = states[-length:] if length == 1 else states
    return kept[0].join(kept[1:]), summed(infos)


def summed(infos: list[MoveInfo]) -> MoveInfo:
    """Return the report of several moves together."""
    return MoveInfo(
        acceptance=float(np.mean([info.acceptance for info in infos])),
        n_evaluations=sum(info.n_evaluations for info in infos),
        n_nan=sum(info.n_nan for info in infos),
    )
