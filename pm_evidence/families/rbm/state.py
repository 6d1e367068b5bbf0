"""Populations of restricted Boltzmann machines, one bit per unit."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["WORD", "Bits", "LogDensities", "Units", "Words", "pack", "unpack"]

Bits = NDArray[np.uint8]
Floats = NDArray[np.float64]
Words = NDArray[np.uint64]

WORD = 64  # units of a word


@dataclass(frozen=True, slots=True)
class LogDensities:
    """The two numbers that weights on the geometric path need.

    Parameters
    ----------
    target, base : ndarray, shape (..., n)
        Log of the unnormalised densities of target and reference at every state, in nats.
    """

    target: Floats
    base: Floats

    def take(self, index: NDArray[np.int64]) -> "LogDensities":
        """Return those of the members at ``index``."""
        return LogDensities(self.target[..., index], self.base[..., index])

    @staticmethod
    def joined(parts: Sequence["LogDensities"]) -> "LogDensities":
        """Return those of several populations, one after the other."""
        return LogDensities(
            np.concatenate([part.target for part in parts]),
            np.concatenate([part.base for part in parts]),
        )


@dataclass(frozen=True, slots=True)
class Units:
    """A population of states of one layer or of both, with their log densities.

    Parameters
    ----------
    layers : tuple of ndarray of uint64, each of shape (n, n_words)
        Units of each layer, 64 in a word; bits beyond the last unit are 0.
    sizes : tuple of ints
        Number of units of each layer.
    log_density : LogDensities
        With arrays of shape (n,).
    """

    layers: tuple[Words, ...]
    sizes: tuple[int, ...]
    log_density: LogDensities

    def __len__(self) -> int:
        return len(self.layers[0])

    def take(self, index: NDArray[np.int64]) -> Self:
        """Return the members at ``index`` as a new population."""
        layers = tuple(layer[index] for layer in self.layers)
        return replace(self, layers=layers, log_density=self.log_density.take(index))

    def join(self, others: Sequence[Self]) -> Self:
        """Return this population followed by ``others``."""
        parts = [self, *others]
        layers = tuple(
            np.concatenate(words) for words in zip(*(part.layers for part in parts), strict=True)
        )
        log_density = LogDensities.joined([part.log_density for part in parts])
        return replace(self, layers=layers, log_density=log_density)

    def to_draws(self) -> Bits:
        """Return the units of all layers in their order, shape ``(n, n_units)``."""
        return np.hstack(
            [unpack(words, n) for words, n in zip(self.layers, self.sizes, strict=True)]
        )


def pack(rows: NDArray[Any]) -> Words:
    """Return units of 0 and 1, shape ``(n, n_units)``, as words, shape ``(n, n_words)``."""
    n, n_units = rows.shape
    full = np.zeros((n, -(-n_units // WORD) * WORD), np.uint8)
    full[:, :n_units] = rows
    return np.packbits(full, axis=1, bitorder="little").view("<u8").astype(np.uint64, copy=False)


def unpack(words: Words, n_units: int) -> Bits:
    """Return the units of words, shape ``(n, n_units)``; the inverse of ``pack``."""
    octets = np.ascontiguousarray(words.astype("<u8", copy=False)).view(np.uint8)
    return np.unpackbits(octets, axis=1, count=n_units, bitorder="little")
