"""Signs that posterior draws given by a user are not from the posterior."""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pm_evidence.results import schema

__all__ = ["doubt_of_draws"]

# Vehtari et al. (2021) recommend 1.01 for long runs. Among many coordinates of two short chains,
# some exceed that by chance; none of 200 exceeded 1.02 with 500 independent draws in each chain.
_LARGEST_RHAT = 1.05
_LEAST_DRAWS = 4  # per chain, because R-hat compares halves of chains
_MOST_COORDINATES = 500  # each takes some milliseconds


def doubt_of_draws(dt: xr.DataTree, draws: Mapping[str, NDArray[Any]]) -> str:
    """Return why draws may not be from the posterior; empty if there is no sign of it.

    Parameters
    ----------
    dt : DataTree
        The source of the draws; divergences are read from its ``sample_stats``.
    draws : mapping of str to ndarray, shape (n_chains, n_draws, ...)
        The draws of each free variable.

    Notes
    -----
    R-hat is the rank-normalised one of Vehtari et al. (2021), for at most 500 coordinates of each
    variable, evenly spaced. A single chain has no R-hat.
    """
    doubts = []
    n_divergent, n = _divergences(dt)
    if n_divergent:
        doubts.append(f"{n_divergent} of {n} draws ended in a divergence")
    worst = {name: _largest_rhat(values) for name, values in draws.items()}
    worst = {name: value for name, value in worst.items() if value > _LARGEST_RHAT}
    if worst:
        name = max(worst, key=worst.__getitem__)
        doubts.append(f"R-hat of {name!r} is {worst[name]:.2f}, above {_LARGEST_RHAT:g}")
    return ", and ".join(doubts)


def _divergences(dt: xr.DataTree) -> tuple[int, int]:
    """Return the number of divergent draws, and the number of draws for which this is known."""
    if schema.SAMPLE_STATS not in dt.children or "diverging" not in dt[schema.SAMPLE_STATS]:
        return 0, 0
    diverging = dt[schema.SAMPLE_STATS].to_dataset()["diverging"].values
    return int(np.count_nonzero(diverging)), int(diverging.size)


def _largest_rhat(values: NDArray[Any]) -> float:
    """Return the largest R-hat of the coordinates of a variable; 1 if there is none."""
    from arviz_stats.base import array_stats

    n_chains, n_draws = values.shape[:2]
    flat = values.reshape(n_chains, n_draws, -1).astype(np.float64)
    if n_chains < 2 or n_draws < _LEAST_DRAWS or not flat.size:
        return 1.0
    step = -(-flat.shape[2] // _MOST_COORDINATES)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a constant coordinate has no R-hat
        rhat = array_stats.rhat(flat[:, :, ::step], chain_axis=0, draw_axis=1)
    return float(np.nanmax(np.append(rhat, 1.0)))
