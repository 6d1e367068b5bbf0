"""The posterior draws of a result, and the independent source that each of them comes from."""

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pm_evidence.results import schema
from pm_evidence.results.stored import not_a_tree

__all__ = ["drawn_with_origin", "origin_of"]

# Batches that chains of a Markov chain are cut into, in all.
_BATCHES = 16


def origin_of(dt: xr.DataTree, parameter: str) -> NDArray[np.int64]:
    """Return the source of each posterior draw of a result, chain after chain.

    Draws of other samplers, to which an evidence was added, belong to batches of neighbouring
    draws: 16 in all, or one for each chain if there are more chains.

    Parameters
    ----------
    dt : DataTree
        A stored result.
    parameter : str
        Name of the argument, for the error.

    Returns
    -------
    ndarray of int64, shape (n_chains * n_draws,)
        Draws of different origin are taken as independent.

    Raises
    ------
    TypeError, ValueError
        As `drawn_with_origin`, for draws of this package.
    """
    if schema.POSTERIOR in dt.children:
        posterior = dt[schema.POSTERIOR]
        if schema.DRAWN_FROM not in posterior.attrs:
            n_chains, n_draws = (posterior.sizes[name] for name in schema.SAMPLE_DIMS)
            n = -(-_BATCHES // max(n_chains, 1))
            batch = np.arange(n_draws) * n // max(n_draws, 1)
            return (np.arange(n_chains)[:, None] * n + batch).ravel()
    _, origin = drawn_with_origin(dt, parameter)
    flat: NDArray[np.int64] = origin.transpose(*schema.SAMPLE_DIMS).to_numpy().ravel()
    return flat.astype(np.int64)


def drawn_with_origin(dt: Any, parameter: str) -> tuple[xr.Dataset, xr.DataArray]:
    """Return the posterior of a result, and the origin of each draw.

    Parameters
    ----------
    dt : DataTree
        A stored result.
    parameter : str
        Name of the argument, for the error.

    Raises
    ------
    TypeError
        If ``dt`` is not a DataTree.
    ValueError
        If it has no posterior, or does not hold the origin of its draws.
    """
    if not isinstance(dt, xr.DataTree):
        raise TypeError(not_a_tree(parameter, dt))
    if schema.POSTERIOR not in dt.children:
        raise ValueError(
            f"{parameter} must have the group {schema.POSTERIOR!r}, got the groups "
            f"{', '.join(dt.children) or '(none)'}; make it with sample_evidence, for a model with "
            "free variables."
        )
    posterior = dt[schema.POSTERIOR].to_dataset()
    stats = dt[schema.SAMPLE_STATS].to_dataset() if schema.SAMPLE_STATS in dt.children else {}
    if schema.DRAWN_FROM not in posterior.attrs or schema.DRAW_ORIGIN not in stats:
        raise ValueError(
            f"{parameter} must hold the origin of its posterior draws "
            f"(sample_stats[{schema.DRAW_ORIGIN!r}], and the attribute "
            f"{schema.DRAWN_FROM!r} of the posterior), got draws of another sampler or of an "
            "earlier version of this package; use arviz.summary for draws of pm.sample, or "
            "sample again with sample_evidence."
        )
    origin = stats[schema.DRAW_ORIGIN]
    _check_draws(posterior, origin, parameter)
    return posterior.drop_attrs(), origin


def _check_draws(posterior: xr.Dataset, origin: xr.DataArray, parameter: str) -> None:
    """Raise ValueError if draws are not numbers, or if any of them has no origin."""
    of_draws = {
        str(name): values
        for name, values in posterior.data_vars.items()
        if set(schema.SAMPLE_DIMS) <= set(values.dims)
    }
    kinds = {name: values.dtype.kind for name, values in of_draws.items()}
    if origin.dtype.kind not in "iu" or set(origin.dims) != set(schema.SAMPLE_DIMS):
        raise ValueError(
            f"{parameter} must hold one whole number for each draw as "
            f"sample_stats[{schema.DRAW_ORIGIN!r}], got dtype {origin.dtype} and "
            f"{origin.dims}; read the original file that sample_evidence wrote."
        )
    if (
        len(of_draws) < len(posterior.data_vars)
        or not of_draws
        or not set(kinds.values()) <= set("biuf")
    ):
        raise ValueError(
            f"{parameter} must hold numbers for each chain and draw in its group "
            f"{schema.POSTERIOR!r}, got dtypes {kinds}; read the original file that "
            "sample_evidence wrote."
        )
    if not origin.size:
        raise ValueError(
            f"{parameter} must hold at least one posterior draw, got none; select more draws."
        )
    for name in schema.SAMPLE_DIMS:
        if origin.sizes.get(name) != posterior.sizes.get(name):
            raise ValueError(
                f"{parameter} must hold the origin of each of its {posterior.sizes.get(name)} "
                f"entries along {name!r}, got {origin.sizes.get(name)}; make the same "
                "selection in all groups."
            )
