"""The tail of importance weights: its Pareto shape, and whether it is too heavy."""

import numpy as np
from numpy.typing import NDArray

_FEWEST_WEIGHTS, _FEWEST_VALUES = 30, 5
# A shape that is taken for larger ones: beyond it the mass of the tail is not known at all.
_LARGEST_SHAPE = 0.9
_LARGEST_LOG = 700.0  # of a number that float64 holds


def pareto_k(log_weight: NDArray[np.float64]) -> float:
    """Return the shape of the generalised Pareto tail of some weights.

    Vehtari, Simpson, Gelman, Yao and Gabry (2024), section 3.2; the same number as in arviz-stats,
    whose import takes longer than many runs. NaN for fewer than 30 weights above zero, and if the
    largest weights take five different values or fewer, which is no tail that a density could be
    fitted to.
    """
    alive = log_weight[np.isfinite(log_weight)]
    if alive.size < _FEWEST_WEIGHTS:
        return float("nan")
    n_tail = int(min(0.2 * alive.size, 3.0 * np.sqrt(alive.size)))
    largest = np.sort(alive)[-n_tail - 1 :]
    if len(np.unique(largest)) <= _FEWEST_VALUES:
        return float("nan")
    weights = np.exp(largest - largest[-1])
    return _shape(weights[1:] - weights[0])


def _shape(excess: NDArray[np.float64]) -> float:
    """Return the shape of a generalised Pareto density of sorted numbers above zero.

    The posterior mean of Zhang and Stephens (2009), shrunk towards 1/2 as if by ten more numbers.
    """
    n = excess.size
    quartile = excess[int(n / 4 + 0.5) - 1]
    if not quartile > excess[0]:
        return float("nan")
    n_grid = 30 + int(np.sqrt(n))
    grid = 1.0 - np.sqrt(n_grid / (np.arange(1, n_grid + 1) - 0.5))
    grid = grid / (3.0 * quartile) + 1.0 / excess[-1]
    with np.errstate(all="ignore"):
        shapes = np.log1p(-grid[:, None] * excess).mean(axis=1)
        log_likelihood = n * (np.log(-grid / shapes) - shapes - 1.0)
        weight = np.exp(log_likelihood - log_likelihood.max())
        weight[weight < 10.0 * np.finfo(float).eps * weight.sum()] = 0.0
        best = (grid * weight).sum() / weight.sum()
        shape = np.log1p(-best * excess).mean()
    shape = (n * shape + 5.0) / (n + 10.0)
    return float("inf") if np.isnan(shape) else float(shape)


def is_heavy(k: float, n: int) -> bool:
    """Return whether ``n`` weights with this tail are too few for their mean to be known.

    The threshold is that of Vehtari et al. (2024), section 3.2.3: ``min(1 - 1 / log10(n), 0.7)``.
    """
    return not np.isnan(k) and bool(k > min(1.0 - 1.0 / np.log10(n), 0.7))


def unseen_tail(log_weight: NDArray[np.float64], log_mean: float) -> float:
    """Return the share of the mean weight that lies beyond the largest of some weights."""
    k = pareto_k(log_weight)
    if np.isnan(k):
        return 0.0
    shape = float(np.clip(k, 0.0, _LARGEST_SHAPE))
    largest = float(np.exp(min(log_weight.max() - log_mean, _LARGEST_LOG)))
    return largest / (len(log_weight) * (1.0 - shape))
