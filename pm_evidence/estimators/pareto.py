"""The tail of importance weights: its Pareto shape, and whether it is too heavy."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["is_heavy", "pareto_k"]

_FEWEST_WEIGHTS, _FEWEST_VALUES = 30, 5


def pareto_k(log_weight: NDArray[np.float64]) -> float:
    """Return the shape of the generalised Pareto tail of some weights.

    Parameters
    ----------
    log_weight : ndarray, shape (n,)
        Log weights in nats; ``-inf`` is legal.

    Notes
    -----
    Vehtari, Simpson, Gelman, Yao and Gabry (2024), from arviz-stats. NaN for fewer than 30 weights
    above zero, and if the largest weights take five different values or fewer, which is no tail
    that a density could be fitted to.
    """
    # ArviZ is imported where it is used: estimators otherwise need NumPy alone
    from arviz_stats.base import array_stats

    alive = log_weight[np.isfinite(log_weight)]
    if alive.size < _FEWEST_WEIGHTS:
        return float("nan")
    n_tail = int(min(0.2 * alive.size, 3.0 * np.sqrt(alive.size)))
    if len(np.unique(np.sort(alive)[-n_tail - 1 :])) <= _FEWEST_VALUES:
        return float("nan")
    smoothed: Any = array_stats.psislw
    return float(smoothed(-alive)[1])  # it takes minus log weights


def is_heavy(k: float, n: int) -> bool:
    """Return whether ``n`` weights with this tail are too few for their mean to be known.

    The threshold is that of Vehtari et al. (2024), section 3.2.3: ``min(1 - 1 / log10(n), 0.7)``.
    """
    return not np.isnan(k) and bool(k > min(1.0 - 1.0 / np.log10(n), 0.7))
