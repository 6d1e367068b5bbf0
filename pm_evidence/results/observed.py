"""Fingerprints of observed data, to tell whether two models saw the same."""

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pm_evidence.results import schema

__all__ = ["describe_observed", "fingerprint", "observed_fingerprint"]


def fingerprint(observed: Mapping[str, NDArray[Any]]) -> str:
    """Return a fingerprint of observed data, to tell whether two models saw the same.

    Parameters
    ----------
    observed : mapping of str to ndarray
        Observed arrays, any shape, numeric; masked entries and NaN count as missing. Names and
        order play no part, so models that name their likelihood differently still match.

    Returns
    -------
    str
        SHA-256 in hexadecimal, over the multiset of arrays as float64 with their shapes; empty
        when there is nothing observed (no array, or arrays of no entries only).

    Raises
    ------
    ValueError
        If an array is not numeric.

    Notes
    -----
    Integers, booleans and floats of equal value match; float32 data match float64 data only
    where they are exactly equal. Arrays of shape ``(n,)`` and ``(n, 1)`` do not match.

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
    """Return the fingerprint of the group ``observed_data``; empty where there is none."""
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
