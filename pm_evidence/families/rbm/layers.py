"""The parameters of a machine in the form that compiled code reads."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.codegen.singles import aligned
from pm_evidence.families.rbm.state import WORD, pack

__all__ = ["Layer", "blended", "layer_of"]


class Layer(NamedTuple):
    """How a layer of units depends on the other one.

    Numbers of units are rounded up to multiples of 64; units beyond the last have no weights.

    Parameters
    ----------
    weights : ndarray of float32, shape (n_other, n_units)
        Weights between the units of the other layer and those of this one.
    bias, base : ndarray of float32, shape (n_units,)
        Biases in the target and in the reference.
    there : ndarray of uint64, shape (n_units / 64,)
        Bits of the units that exist.
    """

    weights: NDArray[np.float32]
    bias: NDArray[np.float32]
    base: NDArray[np.float32]
    there: NDArray[np.uint64]


def layer_of(weights: NDArray[Any], bias: NDArray[Any], base: NDArray[Any]) -> Layer:
    """Return a layer with weights of shape ``(n_other, n_units)`` and biases ``(n_units,)``."""
    n_other, n_units = weights.shape
    rows, columns = (-(-n // WORD) * WORD for n in weights.shape)
    full, biases, bases = aligned((rows, columns)), aligned((columns,)), aligned((columns,))
    full[:n_other, :n_units], biases[:n_units], bases[:n_units] = weights, bias, base
    return Layer(full, biases, bases, pack(np.ones((1, n_units), np.uint8))[0])


def blended(first: Layer, last: Layer, share: float) -> Layer:
    """Return the layer whose weights and biases are a share of the way between those of two."""
    weights, bias = aligned(first.weights.shape), aligned(first.bias.shape)
    for out, a, b in ((weights, first.weights, last.weights), (bias, first.bias, last.bias)):
        np.multiply(b - a, np.float32(share), out=out)
        out += a
    return Layer(weights, bias, first.base, first.there)
