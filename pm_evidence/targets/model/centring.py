"""How far to centre group effects, from draws of the posterior."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pm_evidence.targets.model.coordinates import Centring, Effects

__all__ = ["best_centring", "divergences"]

Floats = NDArray[np.float64]

AMOUNTS = np.linspace(0.0, 1.0, 21)
# Least gains in nats for which a variable is centred at all, in the divergence from a normal
# distribution: for each draw, and for all of them together.
_GAIN, _GAIN_OF_DRAWS = 0.25, 2.0
# The same for centring it further, if its noise has an exponential tail.
_FURTHER_GAIN = 0.1
# Stands for a divergence that overflows.
_NONE = 1e300


def best_centring(effects: Sequence[Effects]) -> Centring:
    """Return the centring in which draws are nearest to a normal distribution.

    Parameters
    ----------
    effects : sequence of Effects
        Draws of every variable.

    Notes
    -----
    Near the prior, non-centred coordinates are best. A variable is therefore centred only if this
    brings its draws clearly nearer to a normal distribution, and by the same amount for all of its
    elements. Exponential tails of the noise, as those of the logarithm of a gamma variable, are
    best sampled non-centred as well, and draws show little of them: a variable with such a tail is
    centred by the least amount that is nearly best.
    """
    amounts, log_units = [], []
    for found in effects:
        total = divergences(found).sum(axis=1)
        total = np.where(np.isfinite(total), total, _NONE)
        loss, least_gain = total - total.min(), _GAIN_OF_DRAWS / len(found.noise)
        if found.has_exponential_tail:
            best = int(np.argmax(loss <= max(_FURTHER_GAIN, least_gain)))
        else:
            best = int(np.argmin(loss)) if loss[0] > max(_GAIN, least_gain) else 0
        amounts.append(float(AMOUNTS[best]))
        log_units.append(_log_unit(found))
    return Centring(tuple(amounts), tuple(log_units))


def divergences(effects: Effects) -> Floats:
    """Return how far the draws are from a normal distribution, for each amount and element.

    Parameters
    ----------
    effects : Effects
        Draws of a variable.

    Returns
    -------
    ndarray, shape (n_amounts, size)
        Kullback-Leibler divergence in nats up to a constant, for the amounts ``AMOUNTS``.

    Notes
    -----
    The divergence of the joint distribution of ``z``, location and log scale from the normal
    distribution of the same moments is, up to a constant, the log of the standard deviation of
    ``z`` about its best linear prediction from the other two, minus the mean of
    ``log |dz / dx|``. Elements of a series are correlated. ``effects`` holds its increments, which
    have the same volume and are nearly uncorrelated where the prior holds.
    """
    ratio = effects.log_scale - _log_unit(effects)
    basis = _basis(effects.location, ratio)
    found = np.empty((len(AMOUNTS), effects.noise.shape[1]))
    with np.errstate(all="ignore"):  # a divergence that overflows is not the least one
        for row, amount in zip(found, AMOUNTS, strict=True):
            z = effects.at(amount, ratio)
            coefficients = np.einsum("jnk,nj->jk", basis, z)
            rest = z - np.einsum("jnk,jk->nj", basis, coefficients)
            row[:] = 0.5 * np.log((rest**2).mean(axis=0)) - amount * ratio.mean(axis=0)
    return found


def _log_unit(effects: Effects) -> float:
    """Return the log of a typical scale."""
    return float(effects.log_scale.mean())


def _basis(location: Floats, ratio: Floats) -> Floats:
    """Return an orthonormal basis of the predictors of each element, shape ``(size, n, 3)``."""
    predictors = np.stack([np.ones_like(ratio), ratio, location], axis=-1).swapaxes(0, 1)
    scale = np.abs(predictors).max(axis=1, keepdims=True)
    basis, triangle = np.linalg.qr(predictors / np.where(scale > 0, scale, 1.0))
    # a location that is constant, or linear in the log scale, adds no direction
    size = np.abs(np.diagonal(triangle, axis1=1, axis2=2))
    return np.where((size > 1e-9 * np.sqrt(ratio.shape[0]))[:, None, :], basis, 0.0)
