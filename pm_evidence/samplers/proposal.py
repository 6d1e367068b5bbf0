"""The density that importance sampling and the bridge draw from."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.numerics import ess_share, log_mean_exp
from pm_evidence.paths.posterior import Posterior
from pm_evidence.references.fitted import StudentFit
from pm_evidence.references.mixture import Component, StudentMixture, fit_components, widened
from pm_evidence.references.stretched import Stretch, StretchedFit, learn_stretch, learn_tails
from pm_evidence.samplers.findings import Survey

__all__ = ["TRIAL_DRAWS", "Proposal", "fit_proposal"]

Floats = NDArray[np.float64]
Fit = StudentFit | StretchedFit
Proposal = Fit | StudentMixture

# Numbers of components that are tried in turn, until the effective share of draws is good. The
# share is estimated from draws of the mixture and from this many draws of the population.
_COMPONENTS, _GOOD_SHARE, _JUDGES = (1, 4, 8), 0.6, 500
# In higher dimensions the covariances of several components cannot be learnt from a population.
# Below, each component needs this many draws per dimension; at most this many draws are used.
_MOST_DIMENSIONS, _DRAWS_PER_DIMENSION, _MOST_DRAWS = 60, 10, 3000
# Mixture weights are adapted in at most this many rounds of this many draws, in which one draw
# counts for no more than this many of average weight.
_ROUNDS, TRIAL_DRAWS, _LARGEST_WEIGHT = 3, 1000, 20.0
# Share of the weight that is spread evenly, so that no component is lost by chance, and that of
# each component with heavy or long tails, which bound the importance weights (Hesterberg 1995).
_EVEN, _WIDE = 0.02, 0.05


def fit_proposal(
    posterior: Posterior,
    draws: Floats,
    found: Survey,
    log_evidence: float,
    rng: np.random.Generator,
    n_trial: int = TRIAL_DRAWS,
) -> tuple[Proposal, int]:
    """Fit a density to a population and to the findings of a survey.

    Parameters
    ----------
    posterior : Posterior
        The density to be covered.
    draws : ndarray, shape (n, d)
        Draws from the posterior, in one labelling if the posterior does not change with labels.
    found : Survey
        Densities at further peaks and along ridges.
    log_evidence : float
        Approximate log evidence of the region that the population covers, in nats.
    rng : numpy.random.Generator
        Source of the random numbers.
    n_trial : int
        Number of draws in each round of adapting the weights of a mixture.

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
    kept: list[Component] = [*_outward([widened(whole)], stretch)]
    tails = learn_tails(draws)
    if tails is not None:
        kept.append(StretchedFit(StudentFit.to(tails.inward(draws)), tails))
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
            [
                np.full(len(kept), log_evidence + np.log(_WIDE)),
                np.full(k, log_evidence - np.log(k)),
                found.log_mass,
            ]
        )
        fitted = found.relabelled([*kept, *_outward(parts, stretch)])
        mixture = StudentMixture.of([*fitted, *found.components], log_mass)
        mixture, share, value, used = _adapted(posterior, mixture, len(kept), n_trial, rng)
        # the share estimated from posterior draws, which shows regions that the mixture misses
        log_weight = at_judges - mixture.log_density(judges)
        share = min(share, float(np.exp(min(value - log_mean_exp(log_weight), 0.0))))
        spent += used
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
    posterior: Posterior,
    mixture: StudentMixture,
    n_kept: int,
    n_draws: int,
    rng: np.random.Generator,
) -> tuple[StudentMixture, float, float, int]:
    """Return the mixture with adapted weights, results of its last draws, and the number of draws.

    The results are the effective share and the estimated log evidence. The first components, which
    are wide or have long tails, keep a minimal weight.
    """
    share, value, spent = 0.0, -np.inf, 0
    for _ in range(_ROUNDS):
        x = mixture.draw(n_draws, rng)
        spent += n_draws
        log_parts = mixture.log_parts(x)
        log_density = np.logaddexp.reduce(log_parts, axis=0)
        log_weight = posterior.log_density(x) - log_density
        share, value = float(ess_share(log_weight)), log_mean_exp(log_weight)
        if share == 0.0:
            break
        weight = np.exp(log_weight - log_weight.max())
        weight = np.minimum(weight / weight.sum(), _LARGEST_WEIGHT / n_draws)
        of_component = np.exp(log_parts - log_density) @ (weight / weight.sum())
        even = _EVEN / len(of_component)
        of_component = (1.0 - _EVEN) * of_component + even
        of_component[:n_kept] = np.maximum(of_component[:n_kept], _WIDE)
        mixture = mixture.reweighted(of_component)
        if share > _GOOD_SHARE:
            break
    return mixture, share, value, spent
