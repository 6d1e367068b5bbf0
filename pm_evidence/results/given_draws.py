"""Signs that posterior draws given by a user are not from the posterior."""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pm_evidence.results import schema

__all__ = ["doubt_of_draws", "doubt_of_few", "n_divergent"]

# Vehtari et al. (2021) recommend 1.01 for long runs. Among many coordinates of two short chains,
# some exceed that by chance; none of 200 exceeded 1.02 with 500 independent draws in each chain.
_LARGEST_RHAT = 1.05
_LEAST_DRAWS = 4  # per chain, because R-hat compares halves of chains
_MOST_COORDINATES = 500  # each takes some milliseconds
# Vehtari et al. (2021): with fewer effective draws neither R-hat nor this number can be relied on.
_LEAST_EFFECTIVE = 400
_KINDS: tuple[dict[str, Any], ...] = ({"method": "bulk"}, {"method": "tail", "prob": (0.05, 0.95)})


def doubt_of_draws(
    dt: xr.DataTree, draws: Mapping[str, NDArray[Any]], tolerated: float = 0.0
) -> str:
    """Return why draws may not be from the posterior; empty if there is no sign of it.

    Parameters
    ----------
    dt : DataTree
        The source of the draws; divergences are read from its ``sample_stats``.
    draws : mapping of str to ndarray, shape (n_chains, n_draws, ...)
        The draws of each free variable.
    tolerated : float
        Share of divergent draws that is no sign.

    Notes
    -----
    R-hat is the rank-normalised one of Vehtari et al. (2021), for at most 500 coordinates of each
    variable, evenly spaced. A single chain has no R-hat.
    """
    doubts = []
    n_tuning = _flagged(dt, "tune", "tuning")[0]
    if n_tuning:
        doubts.append(f"{n_tuning} draws belong to the warm-up")
    divergent, n = n_divergent(dt)
    if divergent > tolerated * n:
        doubts.append(f"{divergent} of {n} draws ended in a divergence")
    worst = {name: _largest_rhat(values) for name, values in draws.items()}
    worst = {name: value for name, value in worst.items() if value > _LARGEST_RHAT}
    if worst:
        name = max(worst, key=worst.__getitem__)
        doubts.append(f"R-hat of {name!r} is {worst[name]:.2f}, above {_LARGEST_RHAT:g}")
    return ", and ".join(doubts)


def n_divergent(dt: xr.DataTree) -> tuple[int, int]:
    """Return the number of divergent draws, and the number of draws for which this is known."""
    return _flagged(dt, "diverging")


def doubt_of_few(draws: Mapping[str, NDArray[Any]]) -> str:
    """Return why draws may be too few; empty if there is no sign of it.

    Parameters
    ----------
    draws : mapping of str to ndarray, shape (n_chains, n_draws, ...)
        The draws of each free variable.

    Notes
    -----
    The effective number is the smaller of the two of Vehtari et al. (2021), for the bulk and for
    the tails, of the same coordinates as in `doubt_of_draws`.
    """
    doubts = []
    n_chains = next(iter(draws.values())).shape[0]
    if n_chains < 2:
        doubts.append("a single chain does not show whether it has converged")
    found = {name: _least_ess(values) for name, values in draws.items()}
    name = min(found, key=found.__getitem__)
    if found[name] < _LEAST_EFFECTIVE:
        doubts.append(
            f"the effective number of draws of {name!r} is {found[name]:.0f}, below "
            f"{_LEAST_EFFECTIVE}"
        )
    return ", and ".join(doubts)


def _flagged(dt: xr.DataTree, *names: str) -> tuple[int, int]:
    """Return the number of draws with a flag of ``sample_stats``, and of those that may have it."""
    if schema.SAMPLE_STATS not in dt.children:
        return 0, 0
    stats = dt[schema.SAMPLE_STATS].to_dataset()
    flags = [stats[name].values for name in names if name in stats]
    return int(sum(np.count_nonzero(f) for f in flags)), int(sum(f.size for f in flags))


def _least_ess(values: NDArray[Any]) -> float:
    """Return the least effective number of draws of the coordinates of a variable."""
    from arviz_stats.base import array_stats

    flat = _coordinates(values)
    if values.shape[1] < _LEAST_DRAWS:
        return float(values.shape[0] * values.shape[1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        found = [array_stats.ess(flat, chain_axis=0, draw_axis=1, **kind) for kind in _KINDS]
    return float(np.nanmin(np.append(np.ravel(found), np.inf)))


def _largest_rhat(values: NDArray[Any]) -> float:
    """Return the largest R-hat of the coordinates of a variable; 1 if there is none."""
    from arviz_stats.base import array_stats

    flat = _coordinates(values)
    if len(flat) < 2 or flat.shape[1] < _LEAST_DRAWS or not flat.size:
        return 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a constant coordinate has no R-hat
        rhat = array_stats.rhat(flat, chain_axis=0, draw_axis=1)
    return float(np.nanmax(np.append(rhat, 1.0)))


def _coordinates(values: NDArray[Any]) -> NDArray[np.float64]:
    """Return coordinates of a variable at equal distances, shape ``(n_chains, n_draws, m)``."""
    flat = values.reshape(*values.shape[:2], -1).astype(np.float64)
    return flat[:, :, :: max(-(-flat.shape[2] // _MOST_COORDINATES), 1)]
