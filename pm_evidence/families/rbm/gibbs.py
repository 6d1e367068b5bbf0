"""Block Gibbs sampling of restricted Boltzmann machines: one layer given the other, in turn."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.codegen.numba import nb, njit
from pm_evidence.core.codegen.singles import SINGLES, aligned
from pm_evidence.core.contracts import StageBatch
from pm_evidence.families.rbm.draws import GENERATOR, SUMS, draw_layer, seed_lanes
from pm_evidence.families.rbm.layers import Layer
from pm_evidence.families.rbm.product import COLUMNS, ENTRIES, TABLES, multiply
from pm_evidence.families.rbm.state import WORD, LogDensities, Units
from pm_evidence.families.rbm.sweeps import Sweeps
from pm_evidence.families.sweep_settings import SweepSettings

__all__ = ["BlockGibbs", "draw_layers", "log_densities"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class BlockGibbs(Sweeps):
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

    draws_reference = True  # the units of the reference are independent of each other

    def advance_many(
        self, path: Any, state: Units, beta: Floats, streams: NDArray[np.uint64]
    ) -> StageBatch:
        """Move every member at every inverse temperature; see ``contracts.BatchedKernel``."""
        target, n, n_stages = path.target, len(state), len(beta)
        columns = self._columns(beta, n)
        # log densities before the first stage and after each
        found = np.empty((n_stages + 1, 2, n))
        found[0] = state.log_density.target, state.log_density.base
        draw_layers(target.layers, state.layers, columns, self, streams, found[1:])
        before = LogDensities(found[:-1, 0], found[:-1, 1])
        after = LogDensities(found[1:, 0], found[1:, 1])
        moved = replace(state, log_density=LogDensities(found[-1, 0], found[-1, 1]))
        n_evaluations = 2 * n * self.n_sweeps * n_stages
        return StageBatch(moved, before, after, np.ones(n_stages), n_evaluations)


def draw_layers(
    layers: tuple[Layer, Layer],
    units: tuple[NDArray[np.uint64], ...],
    beta: Floats,
    kernel: SweepSettings,
    streams: NDArray[np.uint64],
    found: Floats,
) -> None:
    """Draw both layers in place, in the order and as often as a kernel says.

    Parameters
    ----------
    layers : tuple of two layers
        Visible and hidden.
    units : tuple of two ndarray, each of shape (n, n_words)
        Units of both layers; they are overwritten.
    beta : ndarray, shape (n_stages, 1) or (n_stages, n)
        Inverse temperatures of all chains, or of each.
    kernel : SweepSettings
        Its settings.
    streams : ndarray, shape (n, 4)
        Streams of the chains.
    found : ndarray, shape (n_stages, 2, n)
        Receives the log densities of target and reference after each stage, in nats.
    """
    n, steps = len(streams), -1 if not kernel.backwards else 1
    (first, second), ordered = layers[::steps], units[::steps]
    room = (
        aligned((TABLES, ENTRIES, COLUMNS)),
        aligned((n, first.bias.size)),
        aligned((n, second.bias.size)),
        np.empty((n, 2)),
    )
    _go((tuple(first), tuple(second)), ordered, beta, kernel.n_sweeps, streams, room, found)


def log_densities(layers: tuple[Layer, Layer], units: tuple[NDArray[np.uint64], ...]) -> Floats:
    """Return ``a'v + b'h + v'Wh`` of states, shape ``(n,)``; see ``draw_layers``."""
    (visible, hidden), (v, h) = layers, units
    out = np.empty(len(v))
    room = aligned((TABLES, ENTRIES, COLUMNS)), aligned((len(v), visible.bias.size))
    _add_up(visible.weights, visible.bias, hidden.bias, v, h, room, out)
    return out


@njit
def _add_up(weights, visible_bias, hidden_bias, v, h, room, out):
    tables, inputs = room
    multiply(h, weights, visible_bias, tables, inputs)
    for m in range(out.size):
        out[m] = _sum_of(inputs[m], v[m]) + _sum_of(hidden_bias, h[m])


@njit
def _sum_of(numbers, words):
    """Return the sum of the numbers of the units that are on."""
    total = 0.0
    for word in range(words.size):
        bits = words[word]
        for k in range(WORD):
            if (bits >> nb.uint64(k)) & nb.uint64(1):
                total += nb.float64(numbers[word * WORD + k])
    return total


@njit
def _go(layers, units, beta, n_sweeps, streams, room, found):
    """Draw the first layer given the second, and then the second given the first.

    Parameters
    ----------
    layers : tuple of two tuples
        See ``layers.Layer``.
    units : tuple of two uint64 arrays, each of shape (n, n_words)
        Units of the layers.
    beta : float64 array, shape (n_stages, 1) or (n_stages, n)
        Inverse temperatures of all chains, or of each.
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
    own = 1 if beta.shape[1] > 1 else 0  # steps along a row of beta from chain to chain
    for stage in range(beta.shape[0]):
        for _ in range(n_sweeps):
            multiply(second_units, first[0], first[1], tables, first_inputs)
            for m in range(streams.shape[0]):
                seed_lanes(streams[m], lanes)
                _, biases[m, 0], biases[m, 1] = draw_layer(
                    first_inputs[m], first[1:], beta[stage, own * m], lanes, sums, first_units[m]
                )
            multiply(first_units, second[0], second[1], tables, second_inputs)
            for m in range(streams.shape[0]):
                seed_lanes(streams[m], lanes)
                # the inputs of the second layer hold its biases and all weights
                total, _, base = draw_layer(
                    second_inputs[m], second[1:], beta[stage, own * m], lanes, sums, second_units[m]
                )
                found[stage, 0, m] = total + biases[m, 0]
                found[stage, 1, m] = base + biases[m, 1]
