"""The groups of ArviZ's own schema, built as PyMC builds them, and their attributes."""

import json
import warnings
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from pm_evidence.results import schema

__all__ = ["Named", "data_groups", "library_attrs", "made_attrs", "sample_groups"]

Arrays = Mapping[str, NDArray[Any]]

_INT64 = np.iinfo(np.int64)


@dataclass(frozen=True, slots=True)
class Named:
    """Names that a model gives to its dimensions.

    Parameters
    ----------
    coords : mapping of str to sequence
        Labels of each dimension.
    dims : mapping of str to sequence of str or None
        Dimensions of each variable, without chain and draw.
    """

    coords: Mapping[str, Sequence[Any]]
    dims: Mapping[str, Sequence[str | None]]


def sample_groups(
    groups: Mapping[str, Arrays], named: Named, attrs: Mapping[str, Any]
) -> dict[str, xr.Dataset]:
    """Return the groups of arrays of shape ``(n_chains, n_draws, ...)`` that have content.

    Raises
    ------
    ValueError
        If arrays differ in their numbers of chains and draws, or have an object dtype.
    """
    _check_samples(groups)
    return _groups(groups, schema.SAMPLE_DIMS, named, attrs)


def data_groups(
    groups: Mapping[str, Arrays], named: Named, attrs: Mapping[str, Any]
) -> dict[str, xr.Dataset]:
    """Return the groups of arrays of any shape that have content.

    Raises
    ------
    ValueError
        If an array has an object dtype.
    """
    return _groups(groups, (), named, attrs)


def library_attrs(versions: Mapping[str, str]) -> dict[str, Any]:
    """Return the attributes that name the library that wrote a group."""
    attrs = {"inference_library": schema.INFERENCE_LIBRARY}
    if schema.INFERENCE_LIBRARY in versions:
        attrs["inference_library_version"] = versions[schema.INFERENCE_LIBRARY]
    return attrs


def made_attrs(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``attrs`` in plain types, with those that ArviZ adds to every group."""
    from arviz_base import make_attrs  # imported late, as in PyMC

    return dict(make_attrs(attrs={str(name): _plain(value) for name, value in attrs.items()}))


def _groups(
    groups: Mapping[str, Arrays],
    sample_dims: tuple[str, ...],
    named: Named,
    attrs: Mapping[str, Any],
) -> dict[str, xr.Dataset]:
    """Build the groups that have content as ``pm.sample`` does."""
    from arviz_base import dict_to_dataset

    coords: dict[Any, Any] = {str(name): _labels(values) for name, values in named.coords.items()}
    plain = {str(name): _plain(value) for name, value in attrs.items()}
    out = {}
    for group, arrays in groups.items():
        _check_plain(group, arrays)
        if arrays:
            out[group] = dict_to_dataset(
                arrays,
                coords=coords,
                dims=_fitting_dims(arrays, len(sample_dims), coords, named.dims),
                sample_dims=list(sample_dims),
                attrs=plain,
                check_conventions=False,  # there may be more chains than draws
            )
    return out


def _check_plain(group: str, arrays: Arrays) -> None:
    for name, values in arrays.items():
        if np.asarray(values).dtype == object:
            raise ValueError(
                f"{group}[{name!r}] must have a plain dtype, got object, which cannot be "
                "saved; convert it to numbers or strings of one shape."
            )


def _check_samples(samples: Mapping[str, Arrays]) -> None:
    """Raise ValueError for arrays that xarray would align by padding with NaN."""
    first: tuple[str, tuple[int, ...]] | None = None
    for group, arrays in samples.items():
        for name, values in arrays.items():
            shape = np.shape(values)[:2]
            if len(shape) < 2:
                raise ValueError(
                    f"{group}[{name!r}] must have shape (n_chains, n_draws, ...), got "
                    f"{np.shape(values)}; add the missing dimensions in front."
                )
            first = first or (f"{group}[{name!r}]", shape)
            if shape != first[1]:
                raise ValueError(
                    f"{group}[{name!r}] must have as many chains and draws as {first[0]}, "
                    f"{first[1]}, got {shape}; cut them to the same draws."
                )


def _fitting_dims(
    arrays: Arrays,
    n_leading: int,
    coords: Mapping[str, NDArray[Any]],
    dims: Mapping[str, Sequence[str | None]],
) -> dict[Hashable, Sequence[Hashable]]:
    """Drop dimension names that do not fit the array, which would be padded with NaN."""
    sizes = {name: len(values) for name, values in coords.items()}
    out: dict[Hashable, Sequence[Hashable]] = {}
    for variable, values in arrays.items():
        lengths = np.shape(values)[n_leading:]
        pairs = list(zip(dims.get(variable, ()), lengths, strict=False))
        misfits = {
            dim: length
            for dim, length in pairs
            if dim is not None and sizes.setdefault(dim, length) != length
        }
        for dim, length in misfits.items():
            warnings.warn(
                f"dims of {variable!r} must fit its shape, but {dim!r} has {sizes[dim]} entries "
                f"elsewhere and {length} here; it is stored under a generic dimension name. "
                "Give it a dimension of its own.",
                UserWarning,
                stacklevel=2,
            )
        out[variable] = [None if dim in misfits else dim for dim, _ in pairs]
    return out


def _labels(values: Sequence[Any]) -> NDArray[Any]:
    """Return coordinate labels with a plain dtype."""
    array = np.asarray(values)
    if array.dtype == object:
        array = pd.Index(list(values)).to_numpy()  # recovers dates
    return array.astype(np.str_) if array.dtype == object else array


def _plain(value: Any) -> Any:
    """Return an attribute as both netCDF and Zarr can hold it."""
    value = value.item() if isinstance(value, np.generic) else value
    if value is None:
        return ""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int):
        return value if _INT64.min <= value <= _INT64.max else str(value)
    if isinstance(value, float):
        return value if np.isfinite(value) else str(value)
    if isinstance(value, str):
        return value
    if isinstance(value, np.ndarray):
        value = value.tolist()
    return json.dumps(value, default=str)
