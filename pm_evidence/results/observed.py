"""Fingerprints of observed data, to tell whether two models have the same data."""

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pm_evidence.results import schema


def fingerprint(observed: Mapping[str, NDArray[Any]]) -> str:
    """Return a fingerprint of observed data, to tell whether two models have the same data.

    Parameters
    ----------
    observed : mapping of str to ndarray
        Observed arrays, any shape, numeric; masked entries and NaN count as missing. Names and
        order do not matter, so models that name their likelihood differently still match.

    Returns
    -------
    str
        SHA-256 in hexadecimal, over the multiset of arrays as float64 with their shapes; empty
        if nothing is observed (no array, or only empty arrays).

    Raises
    ------
    ValueError
        If an array is not numeric.

    Notes
    -----
    Integers, booleans and floats of equal value match; float32 data match float64 data only
    if they are exactly equal. Arrays of shape ``(n,)`` and ``(n, 1)`` do not match.

    Examples
    --------
    >>> import numpy as np
    >>> fingerprint({"y": np.array([1, 2])}) == fingerprint({"obs": np.array([1.0, 2.0])})
    True
    >>> fingerprint({})
    ''
    """
    digests = sorted(_digest(name, values) for name, values in observed.items() if np.size(values))
    return hashlib.sha256(b"".join(digests)).hexdigest() if digests else ""


def observed_fingerprint(dt: xr.DataTree) -> str:
    """Return the fingerprint of the group ``observed_data``; empty if there is none."""
    if schema.OBSERVED_DATA not in dt.children:
        return ""
    group = dt[schema.OBSERVED_DATA]
    return fingerprint({str(name): var.values for name, var in group.data_vars.items()})


def describe_observed(dt: xr.DataTree) -> str:
    """Return names and shapes of the observed variables, for messages."""
    if schema.OBSERVED_DATA not in dt.children:
        return "no group observed_data"
    variables = dt[schema.OBSERVED_DATA].data_vars.items()
    return ", ".join(f"{name} {var.shape}" for name, var in variables) or "no observed variable"


def posterior_of(
    dt: Any, observed: Mapping[str, NDArray[Any]], parameter: str = "reverse_start"
) -> dict[str, NDArray[Any]]:
    """Return the posterior draws of a DataTree, after checking their observed data."""
    if not isinstance(dt, xr.DataTree):
        raise TypeError(
            f"{parameter} must be a DataTree with posterior draws, got {type(dt).__name__}; pass "
            "what pm.sample returned."
        )
    if schema.POSTERIOR not in dt.children:
        groups = ", ".join(dt.children) or "(none)"
        raise ValueError(
            f"{parameter} must have the group 'posterior', got the groups {groups}; pass what "
            "pm.sample returned."
        )
    if schema.OBSERVED_DATA not in dt.children and fingerprint(observed):
        raise ValueError(
            f"{parameter} must have the group 'observed_data', which shows whether it belongs to "
            f"the data of this model, got the groups {', '.join(dt.children)}; pass the whole "
            "result of pm.sample."
        )
    if observed_fingerprint(dt) != fingerprint(observed):
        raise ValueError(
            f"{parameter} must hold the posterior given the data of this model, got draws given "
            f"{describe_observed(dt)}, whose values or shapes differ; sample this model with "
            "pm.sample, and pass the whole result."
        )
    group = dt[schema.POSTERIOR].to_dataset()
    draws = {
        str(name): group[name].transpose(*schema.SAMPLE_DIMS, ...).values
        for name in group.data_vars
        if set(schema.SAMPLE_DIMS) <= set(group[name].dims)
    }
    if not any(values.size for values in draws.values()):
        raise ValueError(
            f"{parameter} must hold draws with the dimensions {' and '.join(schema.SAMPLE_DIMS)} "
            "in its group 'posterior', got none; pass what pm.sample returned."
        )
    return draws


def check_constants(dt: xr.DataTree, constants: Mapping[str, NDArray[Any]], parameter: str) -> None:
    """Raise ValueError if a DataTree was sampled with other constant data than a model has."""
    if schema.CONSTANT_DATA not in dt.children:
        return
    stored = dt[schema.CONSTANT_DATA].to_dataset()
    for name, values in constants.items():
        found = stored[name].values if name in stored else values
        same = found.shape == values.shape and np.array_equal(
            found, values, equal_nan=values.dtype.kind == "f" and found.dtype.kind == "f"
        )
        if not same:
            raise ValueError(
                f"{parameter} must hold the posterior given the data of this model, got draws with "
                f"other values of {name!r}, shape {found.shape}, in the group constant_data; "
                "sample this model with pm.sample, and pass the whole result."
            )


def _digest(name: str, values: Any) -> bytes:
    array: Any = np.ma.asarray(values)
    if array.dtype.kind not in "biuf":
        raise ValueError(
            f"observed data must be numeric, got dtype {array.dtype} for {name!r}; "
            "encode it as numbers."
        )
    plain = array.astype("<f8").filled(np.nan)
    # One bit pattern for every NaN, and for both zeros.
    plain = np.where(np.isnan(plain), np.nan, plain + 0.0)
    return hashlib.sha256(repr(array.shape).encode() + plain.tobytes()).digest()
