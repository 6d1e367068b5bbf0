"""A density fitted to a population, without evaluations of the target."""

import numpy as np
from numpy.typing import NDArray

from pm_evidence.references.fitted import StudentFit
from pm_evidence.references.mixture import StudentMixture, fit_components, widened, with_wide
from pm_evidence.references.stretched import StretchedFit, learn_stretch

__all__ = ["MOST_DIMENSIONS", "fit_population"]

Floats = NDArray[np.float64]

# Numbers of components that are tried in turn. A mixture needs so many draws for each dimension of
# each component, and no covariances of components are fitted in more dimensions than this.
_COMPONENTS, _DRAWS_PER_DIMENSION, MOST_DIMENSIONS = (2, 4, 8), 10, 60
_MOST_DRAWS = 4000
# A mixture has to raise the mean log density of draws that it was not fitted to by this many nats.
_LEAST_GAIN = 0.02
# Rounds of expectation and maximisation of the weights alone.
_ROUNDS = 30


def fit_population(x: Floats, rng: np.random.Generator) -> StudentMixture:
    """Fit a mixture of Student-t densities to a population.

    Parameters
    ----------
    x : ndarray, shape (n, d)
        Draws of equal weight. Draws that depend on each other should be neighbours.
    rng : numpy.random.Generator
        Source of the random numbers.

    Returns
    -------
    StudentMixture
        One or several components, and a wide one of 5 % with heavy tails.

    Notes
    -----
    Coordinates with heavy tails are stretched, see ``references.stretched``. The number of
    components is that at which the mean log density of the second half of the draws, under a fit to
    the first half, no longer rises.
    """
    x = x[:: -(-len(x) // _MOST_DRAWS)]
    n, d = x.shape
    halves = x[: n // 2], x[n // 2 :]
    best = 1
    if d <= MOST_DIMENSIONS:
        score = _mean_log_density(*halves, 1, rng)
        for k in _COMPONENTS:
            if n < 2 * _DRAWS_PER_DIMENSION * k * d:
                break
            new = _mean_log_density(*halves, k, rng)
            if new < score + _LEAST_GAIN:
                break
            best, score = k, new
    return _fit(x, best, rng)


def _mean_log_density(x: Floats, others: Floats, k: int, rng: np.random.Generator) -> float:
    return float(_fit(x, k, rng).log_density(others).mean())


def _fit(x: Floats, k: int, rng: np.random.Generator) -> StudentMixture:
    """Return a fit with ``k`` components and a wide one."""
    stretch = learn_stretch(x)
    inward = x if stretch is None else stretch.inward(x)
    whole = StudentFit.to(inward)
    parts = [widened(whole), whole] if k == 1 else [widened(whole), *fit_components(inward, k, rng)]
    wide, *fits = parts if stretch is None else [StretchedFit(part, stretch) for part in parts]
    mixture = StudentMixture.of(fits, np.zeros(k))
    for _ in range(_ROUNDS if k > 1 else 0):
        log_parts = mixture.log_parts(x)
        share = np.exp(log_parts - np.logaddexp.reduce(log_parts, axis=0)).mean(axis=1)
        mixture = mixture.reweighted(share)
    return with_wide(mixture.components, mixture.log_weight, wide)
