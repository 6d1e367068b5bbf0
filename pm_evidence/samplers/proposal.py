"""The density that importance sampling and the bridge draw from."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.numerics import ess_share, log_mean_exp
from pm_evidence.paths.posterior import Posterior
from pm_evidence.references.fitted import StudentFit
from pm_evidence.references.mixture import StudentMixture, fit_components, widened
from pm_evidence.references.stretched import Stretch, StretchedFit, learn_stretch
from pm_evidence.samplers.survey import Survey

__all__ = ["Proposal", "fit_proposal"]

Floats = NDArray[np.float64]
Fit = StudentFit | StretchedFit
Proposal = Fit | StudentMixture

# Numbers of components that are tried in turn, until the effective share of draws is good. The
# share is estimated from draws of the mixture and from this many draws of the population.
_COMPONENTS, _GOOD_SHARE, _JUDGES = (1, 4, 8), 0.6, 500
# In higher dimensions the covariances of several components cannot be learnt from a population.
# Below, each component needs this many draws per dimension; at most this many draws are used.
_MOST_DIMENSIONS, _DRAWS_PER_DIMENSION, _MOST_DRAWS = 60, 10, 3000
# Mixture weights are adapted in this many rounds of this many draws, where the share of a single
# draw is limited.
_ROUNDS, _DRAWS, _LARGEST_SHARE = 3, 1000, 0.02
# Share of the weight that is spread evenly, so that no component is lost by chance, and that of a
# wide component with heavy tails, which bounds the importance weights (Hesterberg 1995).
_EVEN, _WIDE = 0.02, 0.05


def fit_proposal(
    posterior: Posterior,
    draws: Floats,
    found: Survey,
    log_evidence: float,
    rng: np.random.Generator,
) -> tuple[Proposal, int]:
    """Fit a density to a population and to the findings of a survey.

    Parameters
    ----------
    posterior : Posterior
        The density to be covered.
    draws : ndarray, shape (n, d)
        Draws from the posterior.
    found : Survey
        Densities at further peaks and along ridges.
    log_evidence : float
        Approximate log evidence of the region that the population covers, in nats.
    rng : numpy.random.Generator
        Source of the random numbers.

    Returns
    -------
    proposal : StudentFit, StretchedFit or StudentMixture
        A normalised density that can be drawn from.
    n_evaluations : int
        Evaluations of the density.

    Notes
    -----
    Coordinates with heavy tails are stretched before the fit, see ``references.stretched``. The
    weights of the components are adapted by importance sampling to minimise the Kullback-Leibler
    divergence from the posterior (Douc, Guillin, Marin and Robert 2007).
    """
    n, d = draws.shape
    stretch = learn_stretch(draws)
    inward = draws if stretch is None else stretch.inward(draws)
    whole = StudentFit.to(inward)
    if d > _MOST_DIMENSIONS and not found.components:
        return _outward([whole], stretch)[0], 0
    wide = widened(whole)
    judges = draws[rng.permutation(n)[:_JUDGES]]
    at_judges = posterior.log_density(judges)
    best, best_share, spent = None, -1.0, len(judges)
    for k in _COMPONENTS:
        parts: list[StudentFit] = [whole]
        if k > 1:
            if d > _MOST_DIMENSIONS or n < _DRAWS_PER_DIMENSION * k * d:
                break
            some = inward[rng.permutation(n)[:_MOST_DRAWS]]
            parts = fit_components(some, k, rng)
        log_mass = np.concatenate(
            [[log_evidence + np.log(_WIDE)], np.full(k, log_evidence - np.log(k)), found.log_mass]
        )
        fitted = [*_outward([wide, *parts], stretch), *found.components]
        mixture = StudentMixture.of(fitted, log_mass)
        mixture, share, value = _adapted(posterior, mixture, rng)
        # the share estimated from posterior draws, which shows regions that the mixture misses
        log_weight = at_judges - mixture.log_density(judges)
        share = min(share, float(np.exp(min(value - log_mean_exp(log_weight), 0.0))))
        spent += _ROUNDS * _DRAWS
        if share > best_share:
            best, best_share = mixture, share
        if best_share > _GOOD_SHARE:
            break
    assert best is not None
    return best, spent


def _outward(parts: list[StudentFit], stretch: Stretch | None) -> Sequence[Fit]:
    """Return densities fitted in stretched coordinates as densities in the original ones."""
    return parts if stretch is None else [StretchedFit(part, stretch) for part in parts]


def _adapted(
    posterior: Posterior, mixture: StudentMixture, rng: np.random.Generator
) -> tuple[StudentMixture, float, float]:
    """Return the mixture with adapted weights, and results of its last draws.

    The results are the effective share and the estimated log evidence. The first component, which
    is wide, keeps a minimal weight.
    """
    share, value = 0.0, -np.inf
    for _ in range(_ROUNDS):
        x = mixture.draw(_DRAWS, rng)
        log_parts = mixture.log_parts(x)
        log_density = np.logaddexp.reduce(log_parts, axis=0)
        log_weight = posterior.log_density(x) - log_density
        share, value = float(ess_share(log_weight)), log_mean_exp(log_weight)
        if share == 0.0:
            break
        weight = np.exp(log_weight - log_weight.max())
        weight = np.minimum(weight / weight.sum(), _LARGEST_SHARE)
        of_component = np.exp(log_parts - log_density) @ (weight / weight.sum())
        even = _EVEN / len(of_component)
        of_component = (1.0 - _EVEN) * of_component + even
        of_component[0] = max(of_component[0], _WIDE)
        mixture = mixture.reweighted(of_component)
    return mixture, share, value
