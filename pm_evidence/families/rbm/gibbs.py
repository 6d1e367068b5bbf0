"""Block Gibbs sampling of restricted Boltzmann machines: one layer given the other, in turn."""

from dataclasses import dataclass, replace
from typing import Any, Self

import numba as nb
import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_count, check_flag
from pm_evidence.core.codegen.singles import SINGLES, aligned
from pm_evidence.core.contracts import MoveInfo, StageBatch
from pm_evidence.families.rbm.draws import GENERATOR, SUMS, draw_layer, seed_lanes
from pm_evidence.families.rbm.product import COLUMNS, ENTRIES, TABLES, multiply
from pm_evidence.families.rbm.state import LogDensities, Units

__all__ = ["BlockGibbs"]

Floats = NDArray[np.float64]

_MOST_SWEEPS = 1_000_000


@dataclass(frozen=True)
class BlockGibbs:
    """Draws all hidden units given the visible ones, and then all visible units given those.

    Parameters
    ----------
    n_sweeps : int
        Number of times that both layers are drawn at every inverse temperature.
    backwards : bool
        Whether the visible layer is drawn first, which is the time reversal.

    Notes
    -----
    Products of states with weights are sums of single precision, and weights of paths are of double
    precision. Each chain draws from its own stream only.
    """

    n_sweeps: int = 1
    backwards: bool = False

    def __post_init__(self) -> None:
        check_count("n_sweeps", self.n_sweeps, 1, _MOST_SWEEPS)
        check_flag("backwards", self.backwards)

    def reversed(self) -> Self:
        """Return the kernel that draws the layers in the opposite order."""
        return replace(self, backwards=not self.backwards)

    def settings(self) -> dict[str, float]:
        """Return the number of sweeps."""
        return {"n_sweeps": float(self.n_sweeps)}

    def advance(
        self, path: Any, state: Units, beta: float, streams: NDArray[np.uint64]
    ) -> tuple[Units, MoveInfo]:
        """Move every member; see ``contracts.Kernel``."""
        state = replace(state, layers=tuple(words.copy() for words in state.layers))
        batch = self.advance_many(path, state, np.array([beta]), streams)
        return batch.state, MoveInfo(1.0, batch.n_evaluations)

    def advance_many(
        self, path: Any, state: Units, beta: Floats, streams: NDArray[np.uint64]
    ) -> StageBatch:
        """Move every member at every inverse temperature; see ``contracts.BatchedKernel``."""
        target = path.target
        n, n_stages = len(state), len(beta)
        # log densities before the first stage and after each
        found = np.empty((n_stages + 1, 2, n))
        found[0] = state.log_density.target, state.log_density.base
        visible, hidden = zip(target.layers, state.layers, strict=True)
        first, second = (visible, hidden) if self.backwards else (hidden, visible)
        room = (
            aligned((TABLES, ENTRIES, COLUMNS)),
            aligned((n, first[0].bias.size)),
            aligned((n, second[0].bias.size)),
            np.empty((n, 2)),
        )
        layers = tuple(first[0]), tuple(second[0])
        _go(layers, (first[1], second[1]), beta, self.n_sweeps, streams, room, found[1:])
        before = LogDensities(found[:-1, 0], found[:-1, 1])
        after = LogDensities(found[1:, 0], found[1:, 1])
        moved = replace(state, log_density=LogDensities(found[-1, 0], found[-1, 1]))
        n_evaluations = 2 * n * self.n_sweeps * n_stages
        return StageBatch(moved, before, after, np.ones(n_stages), n_evaluations)


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _go(layers, units, beta, n_sweeps, streams, room, found):
    """Draw the first layer given the second, and then the second given the first.

    Parameters
    ----------
    layers : tuple of two tuples
        See ``layers.Layer``.
    units : tuple of two uint64 arrays, each of shape (n, n_words)
        Units of the layers.
    beta : float64 array, shape (n_stages,)
    n_sweeps : int
    streams : uint64 array, shape (n, 4)
    room : tuple of arrays
        For tables, the inputs of both layers, and sums of biases.
    found : float64 array, shape (n_stages, 2, n)
        Receives the log densities of target and reference.
    """
    (first, second), (first_units, second_units) = layers, units
    tables, first_inputs, second_inputs, biases = room
    lanes = np.empty((GENERATOR, SINGLES), np.uint32)
    sums = np.empty((SUMS, SINGLES), np.float32)
    for stage in range(beta.size):
        for _ in range(n_sweeps):
            multiply(second_units, first[0], first[1], tables, first_inputs)
            for m in range(streams.shape[0]):
                seed_lanes(streams[m], lanes)
                _, biases[m, 0], biases[m, 1] = draw_layer(
                    first_inputs[m], first[1:], beta[stage], lanes, sums, first_units[m]
                )
            multiply(first_units, second[0], second[1], tables, second_inputs)
            for m in range(streams.shape[0]):
                seed_lanes(streams[m], lanes)
                # the inputs of the second layer hold its biases and all weights
                total, _, base = draw_layer(
                    second_inputs[m], second[1:], beta[stage], lanes, sums, second_units[m]
                )
                found[stage, 0, m] = total + biases[m, 0]
                found[stage, 1, m] = base + biases[m, 1]
