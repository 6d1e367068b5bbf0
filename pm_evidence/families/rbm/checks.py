"""Checks of what users hand over to a restricted Boltzmann machine."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_choice, described, float_array, plain_array
from pm_evidence.families.rbm.state import Bits

__all__ = ["LARGEST", "checked_base", "checked_parameters", "checked_states"]

Floats = NDArray[np.float64]

_BASES = ("auto", "data", "learnt", "uniform")
_MOST_UNITS = 1_000_000
LARGEST = 1e4  # nats; single precision holds the inputs of units to a thousandth


def checked_parameters(
    weights: Any, visible_bias: Any, hidden_bias: Any
) -> tuple[Floats, Floats, Floats]:
    """Return weights and biases as float64.

    Raises
    ------
    ValueError
        If shapes do not fit, a layer is empty, or a parameter is not finite or too large.
    """
    found = [
        float_array(name, values)
        for name, values in (
            ("W", weights),
            ("visible_bias", visible_bias),
            ("hidden_bias", hidden_bias),
        )
    ]
    shape = found[0].shape
    if len(shape) != 2 or not all(shape) or max(shape) > _MOST_UNITS:
        raise ValueError(
            "W must have the shape (n_visible, n_hidden) with at least one unit in each layer, got "
            f"{shape}; pass a matrix of weights."
        )
    for name, values, n in zip(("visible_bias", "hidden_bias"), found[1:], shape, strict=True):
        if values.shape != (n,):
            layer = name.removesuffix("_bias")
            raise ValueError(
                f"{name} must have one number for each of the {n} {layer} units of W, shape "
                f"({n},), got {values.shape}; transpose W, or pass zeros."
            )
    for name, values in zip(("W", "visible_bias", "hidden_bias"), found, strict=True):
        if not (np.abs(values) <= LARGEST).all():
            wrong = values[~(np.abs(values) <= LARGEST)][0]
            raise ValueError(
                f"{name} must hold finite numbers of at most {LARGEST:g} nats in size, got "
                f"{wrong}; look for NaN, and for a training run that diverged."
            )
    weights, visible_bias, hidden_bias = found
    return weights, visible_bias, hidden_bias


def checked_base(base: Any, n_units: int, has_data: bool) -> Any:
    """Return a name, or base rates as float64.

    Raises
    ------
    ValueError
        If the name is unknown, there are no data for ``"data"``, or the rates do not fit.
    """
    if isinstance(base, str):
        check_choice("base", base, _BASES)
        if base == "data" and not has_data:
            raise ValueError(
                "base='data' needs data, got none; pass data=, the states that the machine was "
                "trained on, or leave base out."
            )
        return base
    rates = float_array("base", base)
    if rates.shape != (n_units,):
        raise ValueError(
            f"base must have one rate for each of the {n_units} units of the reference, got shape "
            f"{rates.shape}; pass such rates, or leave base out."
        )
    if not ((rates > 0.0) & (rates < 1.0)).all():
        wrong = rates[~((rates > 0.0) & (rates < 1.0))][0]
        raise ValueError(
            f"base must hold rates between 0 and 1, got {wrong}: states that the reference never "
            "draws cannot be weighed. Move rates away from 0 and 1, (rate + 0.01) / 1.02 for "
            "instance."
        )
    return rates


def checked_states(name: str, states: Any, n_units: int) -> Bits:
    """Return states of 0 and 1, shape ``(n, n_units)``, as bytes.

    Raises
    ------
    ValueError
        If there are none, or their shape or values are not those of binary units.
    """
    found = plain_array(name, states)
    if found.ndim != 2 or found.shape[1] != n_units or not len(found):
        raise ValueError(
            f"{name} must have the shape (n, {n_units}), one row for each state, got "
            f"{found.shape}; reshape images to rows."
        )
    if found.dtype.kind not in "biuf":
        raise ValueError(
            f"{name} must hold 0 and 1, got {described(found)}; convert them to whole numbers."
        )
    binary = (found == 0) | (found == 1)
    if not binary.all():
        raise ValueError(
            f"{name} must hold 0 and 1 only, got {found[~binary][0]}; binarise them, by x > 127 "
            "for bytes, or by rng.random(x.shape) < x for probabilities."
        )
    return found.astype(np.uint8)
