"""Metropolis sampling of one layer of a restricted Boltzmann machine; the other is summed out."""

from dataclasses import dataclass, replace
from math import log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.codegen.numba import nb, njit
from pm_evidence.core.codegen.singles import aligned
from pm_evidence.core.contracts import StageBatch
from pm_evidence.core.random import uniform
from pm_evidence.families.rbm.flips import factor_of_flip, flip, log_sum
from pm_evidence.families.rbm.product import COLUMNS, ENTRIES, TABLES, multiply
from pm_evidence.families.rbm.state import WORD, LogDensities, Units
from pm_evidence.families.rbm.sweeps import Sweeps

__all__ = ["UnitMetropolis"]

Floats = NDArray[np.float64]

_TOGETHER = 8  # chains whose probabilities stay in the fastest cache


@dataclass(frozen=True)
class UnitMetropolis(Sweeps):
    """Proposes to flip each unit of the layer in turn, and accepts by Metropolis' rule.

    Parameters
    ----------
    n_sweeps : int
        Number of times that every unit is visited at every inverse temperature.
    backwards : bool
        Whether units are visited in the opposite order, which is the time reversal.

    Notes
    -----
    Habeck (2017), section 6.3. The inputs of the units that are summed out are computed anew after
    every sweep, so that rounding errors of single precision do not accumulate.
    """

    def advance_many(
        self, path: Any, state: Units, beta: Floats, streams: NDArray[np.uint64]
    ) -> StageBatch:
        """Move every member at every inverse temperature; see ``contracts.BatchedKernel``."""
        target, n, n_stages = path.target, len(state), len(beta)
        # log densities before the first stage and after each
        found = np.empty((n_stages + 1, 2, n))
        found[0] = state.log_density.target, state.log_density.base
        biases = np.stack([target.kept_bias, target.base_bias])
        order = np.arange(biases.shape[1])[:: -1 if self.backwards else 1]
        size = target.summed_layer.bias.size
        room = (
            aligned((TABLES, ENTRIES, COLUMNS)),
            aligned((n, size)),
            aligned((n, size)),
        )
        accepted = np.zeros(n_stages)
        _go(
            tuple(target.summed_layer)[:2],
            target.gains,
            biases,
            order,
            state.layers[0],
            self._columns(beta, n),
            self.n_sweeps,
            streams,
            room,
            found[1:],
            accepted,
        )
        before = LogDensities(found[:-1, 0], found[:-1, 1])
        after = LogDensities(found[1:, 0], found[1:, 1])
        moved = replace(state, log_density=LogDensities(found[-1, 0], found[-1, 1]))
        attempts = n * len(order) * self.n_sweeps
        return StageBatch(moved, before, after, accepted / attempts, attempts * n_stages)


@njit
def _go(summed, gains, biases, order, words, beta, n_sweeps, streams, room, found, accepted):
    """Move all chains in place through some stages.

    Parameters
    ----------
    summed : tuple
        Weights and biases of the units that are summed out, see ``layers.Layer``.
    gains : tuple
        ``exp(w) - 1`` for every weight and for minus every weight, float32 arrays of shape
        (n_units, n_summed), and 1 for the summed units that exist, shape (n_summed,).
    biases : float64 array, shape (2, n_units)
        Biases of the layer in the target and in the reference.
    order : int64 array, shape (n_units,)
        Order of the visits.
    words : uint64 array, shape (n, n_words)
        Units of the layer.
    beta : float64 array, shape (n_stages, 1) or (n_stages, n)
        Inverse temperatures of all chains, or of each.
    n_sweeps : int
    streams : uint64 array, shape (n, 4)
    room : tuple of arrays
        For tables, inputs and probabilities.
    found : float64 array, shape (n_stages, 2, n)
        Receives the log densities of target and reference.
    accepted : float64 array, shape (n_stages,)
        Receives the number of flips.
    """
    weights, bias = summed
    on_gains, off_gains, there = gains
    tables, inputs, likely = room
    n = streams.shape[0]
    own = 1 if beta.shape[1] > 1 else 0  # steps along a row of beta from chain to chain
    multiply(words, weights, bias, tables, inputs)
    for m in range(n):
        log_sum(inputs[m], likely[m], there)
    for stage in range(beta.shape[0]):
        for _ in range(n_sweeps):
            for first in range(0, n, _TOGETHER):
                for unit in order:
                    word, bit = unit // WORD, nb.uint64(1) << nb.uint64(unit % WORD)
                    for m in range(first, min(first + _TOGETHER, n)):
                        on = words[m, word] & bit != nb.uint64(0)
                        table, sign = (off_gains, -1.0) if on else (on_gains, 1.0)
                        hot = beta[stage, own * m]
                        change = (
                            hot
                            * (log(factor_of_flip(likely[m], table, unit)) + sign * biases[0, unit])
                            + (1.0 - hot) * sign * biases[1, unit]
                        )
                        if change >= 0.0 or log(uniform(streams[m])) < change:
                            flip(likely[m], table, unit)
                            words[m, word] ^= bit
                            accepted[stage] += 1.0
            multiply(words, weights, bias, tables, inputs)
            for m in range(n):
                found[stage, 0, m] = log_sum(inputs[m], likely[m], there)
        for m in range(n):
            found[stage, 1, m] = 0.0
            for unit in range(order.size):
                bit = (words[m, unit // WORD] >> nb.uint64(unit % WORD)) & nb.uint64(1)
                if bit != nb.uint64(0):
                    found[stage, 0, m] += biases[0, unit]
                    found[stage, 1, m] += biases[1, unit]
