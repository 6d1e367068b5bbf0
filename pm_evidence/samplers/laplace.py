"""A mixture of normal densities fitted to the peaks of a posterior density."""

from dataclasses import replace
from math import inf

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.exceptions import NumericalError
from pm_evidence.core.shape import Shape, learn_shape
from pm_evidence.kernels.ascent import climb
from pm_evidence.paths.posterior import Posterior
from pm_evidence.references.fitted import StudentFit
from pm_evidence.references.mixture import StudentMixture, widened, with_wide
from pm_evidence.samplers.local_fit import Local, fit_locally

__all__ = ["fit_laplace"]

Floats = NDArray[np.float64]

# Prior draws from which the scale of the prior is learnt, and those at which ascents start.
_PRIOR_DRAWS, _STARTS = 200, 12
# Largest number of gradients of one ascent, and of peaks at which a density is fitted.
_MOST, _MOST_PEAKS = 600, 6
# Components whose log mass is so many nats below the largest are left out.
_NEGLIGIBLE = 14.0


def fit_laplace(
    posterior: Posterior, positions: NDArray[np.int64], rng: np.random.Generator
) -> tuple[StudentMixture, int]:
    """Fit normal densities to the curvature at the peaks that ascents from prior draws end at.

    Parameters
    ----------
    posterior : Posterior
        The density, with a gradient.
    positions : ndarray of int64, shape (d,)
        Positions of the coordinates whose density is wanted; the others are integrated out.
    rng : numpy.random.Generator
        Source of the random numbers.

    Returns
    -------
    reference : StudentMixture
        A normal density at each peak, with a weight in proportion to its mass, and a wide density
        of 5 % with heavy tails at the highest.
    n_evaluations : int
        Evaluations of the density and of its gradient.

    Raises
    ------
    NumericalError
        If no ascent ends at a peak with finite curvature.

    Notes
    -----
    Directions in which the density falls off more slowly than the prior get the prior's scale, see
    ``local_fit.fit_locally``.
    """
    draws = posterior.draw_prior(_PRIOR_DRAWS, rng)
    shape = learn_shape(draws, dense=False)
    found = climb(posterior.target, draws[:_STARTS], shape, _MOST)
    spent, peaks = found.n_evaluations + len(draws), list[Local]()
    order = np.flatnonzero(found.settled)
    order = order[np.argsort(-found.log_density[order], kind="stable")]
    while order.size and len(peaks) < _MOST_PEAKS:
        local = fit_locally(posterior, found.x[order[0]], shape)
        spent += 6 * draws.shape[1] + 1
        order = order[1:]
        if local is not None:
            peaks.append(local)
            order = order[~local.covers(found.x[order], found.log_density[order])]
    if not peaks:
        raise NumericalError(
            f"reference='laplace' needs a peak of the posterior density, got none from {_STARTS} "
            "ascents: the density rises without end, or is not finite. Use reference='fit' or "
            "'prior'."
        )
    highest = max(local.log_mass for local in peaks)
    kept = [local for local in peaks if local.log_mass > highest - _NEGLIGIBLE]
    parts = [_marginal(local, positions) for local in kept]
    log_mass = np.array([local.log_mass for local in kept])
    return with_wide(parts, log_mass, widened(parts[0])), spent


def _marginal(local: Local, positions: NDArray[np.int64]) -> StudentFit:
    """Return the normal density of some of the coordinates."""
    shape = local.shape
    if len(positions) == shape.mean.size:
        return replace(local.fit, dof=inf)
    rows = shape.factor[positions]
    return StudentFit(Shape(shape.mean[positions], np.linalg.cholesky(rows @ rows.T)), inf)
