"""Covariance functions of Gaussian processes."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["squared_exponential"]

Floats = NDArray[np.float64]


def squared_exponential(inputs: Floats, length_scale: float, amplitude: float) -> Floats:
    """Return ``amplitude**2 * exp(-|x - x'|**2 / (2 length_scale**2))`` for all pairs of inputs.

    Parameters
    ----------
    inputs : ndarray, shape (n, n_features)
        Inputs, in units of ``length_scale``'s own.
    length_scale : float
        Distance over which the process changes.
    amplitude : float
        Standard deviation of the process.

    Returns
    -------
    ndarray, shape (n, n)
        The covariance matrix; its diagonal is exactly ``amplitude**2``.
    """
    scaled = inputs / length_scale
    # inner products of centred inputs lose fewer digits
    scaled = scaled - scaled.mean(axis=0)
    squares = np.einsum("ij,ij->i", scaled, scaled)
    distances = squares[:, None] + squares - 2.0 * (scaled @ scaled.T)
    np.maximum(distances, 0.0, out=distances)
    np.fill_diagonal(distances, 0.0)
    covariance: Floats = amplitude**2 * np.exp(-0.5 * distances)
    return 0.5 * (covariance + covariance.T)
