"""Normal approximations of a posterior that is log-concave given a few hyperparameters.

Given these, the other variables have one peak, and the normal density there approximates their
conditional density. Divided by it, the posterior gives the density of the hyperparameters, which is
explored on a lattice (Rue, Martino and Chopin 2009, section 3), or at points about its peak if
there are more than four. The normal densities at these points make a mixture, from which annealing
starts, and importance sampling draws from what is interpolated between them: the evidence does not
depend on how good the approximation is.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.shape import learn_shape
from pm_evidence.paths.posterior import Posterior
from pm_evidence.references.fitted import StudentFit
from pm_evidence.references.mixture import (
    Component,
    joined,
    widened,
    with_wide,
)
from pm_evidence.samplers.conditional import ConditionalFit, ConditionalFits
from pm_evidence.samplers.design import ascended, designed, is_same_peak
from pm_evidence.samplers.findings import Survey
from pm_evidence.samplers.lattice import MOST_AXES
from pm_evidence.samplers.profiles import beyond
from pm_evidence.samplers.regions import Regions

__all__ = ["MOST_DENSE", "explore"]

Floats = NDArray[np.float64]
Positions = NDArray[np.int64]

# Least number of prior draws, from which scales are learnt.
_PRIOR_DRAWS = 20
# Those at which it is tested which second derivatives are zero.
_TESTS = 5
# Points whose mass is so many nats below the largest are left out.
_NEGLIGIBLE = 9.0
# Normal densities are moved from the peaks to the means where this gains more nats.
_SKEWED = 0.05
# Prior draws that are made at once: it bounds the memory.
_ROWS = 256
# Most prior draws from which many hyperparameters are explored, and most peaks that these may have.
_MOST_STARTS, _MOST_PEAKS = 3, 8
# Largest dimension in which the covariances at all points may be dense if there are
# hyperparameters, and in which the covariance of the mixture is formed.
MOST_DENSE = 300
# Largest number of normal densities in more dimensions that annealing starts from: their gradients
# would take most of the time.
_MOST_SPARSE = 50
# Largest dimension in which second derivatives are measured to see which of them are zero, if there
# are hyperparameters: their matrix takes 72 MB.
_MOST_MEASURED = 3000


def explore(
    posterior: Posterior,
    hyperparameters: Positions,
    n_starts: int,
    n_searched: int,
    rng: np.random.Generator,
) -> Survey:
    """Approximate a posterior that is log-concave given its hyperparameters.

    Parameters
    ----------
    posterior : Posterior
        The density, with a gradient.
    hyperparameters : ndarray of int64, shape (k,)
        Positions of the hyperparameters; empty if the density is log-concave.
    n_starts : int
        Number of prior draws at which the exploration of the hyperparameters starts.
    n_searched : int
        Number of prior draws at which narrow peaks of the hyperparameters are searched for; 0 if
        there can be none.
    rng : numpy.random.Generator
        Source of the random numbers.

    Returns
    -------
    Survey
        With one component, the interpolated density with a wide one of 5 % with heavy tails, and
        the mixture of normal densities as reference, or none if no approximation was found: ascents
        have not converged because the density has a kink or is flat, or the density of the
        hyperparameters spreads too far. The peaks are those of the density of the hyperparameters.
    """
    k, n_dim = hyperparameters.size, posterior.target.n_dim
    if k and n_dim > _MOST_MEASURED:
        return Survey()
    prior = posterior.draw_prior(max(_PRIOR_DRAWS, n_starts), rng)
    may_be_dense = k == 0 or n_dim <= MOST_DENSE
    shape = learn_shape(prior, dense=False)
    conditional = ConditionalFits(
        posterior, hyperparameters, shape, prior[:_TESTS], may_be_dense=may_be_dense
    )
    found = Survey()
    try:
        if k > MOST_AXES:
            found = _by_design(conditional, prior[: min(n_starts, _MOST_STARTS)])
            found = replace(found, complete=found.complete and not n_searched)
        else:
            draws, n = prior[: n_starts if k else 1], n_searched if k else 0
            found = _by_lattices(conditional, draws, _hyperparameters(conditional, n, rng), rng)
    except np.linalg.LinAlgError:  # scales differ too much for float64
        pass
    return replace(found, n_evaluations=conditional.n_evaluations)


def _by_lattices(
    conditional: ConditionalFits, draws: Floats, searched: Floats, rng: np.random.Generator
) -> Survey:
    """Return what is known from a lattice about each peak of the hyperparameters."""
    regions = Regions(conditional)
    regions.climb(draws)
    if regions.spread_too_far or not regions.lattices:
        return Survey()
    complete = regions.are_even and (not len(searched) or regions.search(searched, rng))
    lattices = regions.lattices
    found = [(lattice, each) for lattice in lattices for each in lattice.known.values()]
    log_mass = np.array([each.log_mass + lattice.log_volume for lattice, each in found])
    found = [found[i] for i in np.flatnonzero(log_mass >= log_mass.max() - _NEGLIGIBLE)]
    moved = _skewed(conditional, [each for _, each in found])
    found = [(lattice, each) for (lattice, _), each in zip(found, moved, strict=True)]
    log_mass = np.array([each.log_mass + lattice.log_volume for lattice, each in found])
    fits = [lattice.fit(each) for lattice, each in found]
    parts, log_parts = list[Component](), list[float]()
    for lattice in lattices if conditional.given.size else ():
        mine = [i for i, (other, _) in enumerate(found) if other is lattice]
        if mine:
            parts.append(lattice.interpolated([found[i][1] for i in mine], log_mass[mine]))
            log_parts.append(np.logaddexp.reduce(log_mass[mine]))
    survey = _survey(fits, log_mass, parts, np.array(log_parts), complete=complete)
    return replace(survey, n_peaks=len(lattices))


def _hyperparameters(conditional: ConditionalFits, n: int, rng: np.random.Generator) -> Floats:
    """Return the hyperparameters of ``n`` prior draws, shape ``(n, k)``."""
    posterior, given = conditional.posterior, conditional.given
    parts = [posterior.draw_prior(min(n - i, _ROWS), rng)[:, given] for i in range(0, n, _ROWS)]
    return np.concatenate([np.empty((0, given.size)), *parts])


def _by_design(conditional: ConditionalFits, draws: Floats) -> Survey:
    """Return what is known from points about each peak of many hyperparameters."""
    firsts = [found for x in draws if (found := conditional.first(x)) is not None]
    every = _peaks(conditional, firsts)
    top = max((peak.log_mass for peak, _ in every), default=0.0)
    peaks = [each for each in every if each[0].log_mass > top - _NEGLIGIBLE]
    designs = [made for each in peaks if (made := designed(conditional, *each)) is not None]
    good = [each for each in designs if each.covers_tails and each.is_even]
    complete = len(good) == len(peaks) and len(every) <= _MOST_PEAKS
    if not designs or not (complete or len(every) > 1):
        return Survey()
    designs = [replace(each, fits=_skewed(conditional, each.fits)) for each in designs]
    log_mass = np.concatenate([each.log_weight for each in designs])
    log_parts = np.array([np.logaddexp.reduce(each.log_weight) for each in designs])
    fits = [fit for each in designs for fit in each.mixed()]
    parts = [each.nested() for each in designs]
    survey = _survey(fits, log_mass, parts, log_parts, complete=complete)
    return replace(survey, n_peaks=len(designs))


def _peaks(
    conditional: ConditionalFits, firsts: Sequence[ConditionalFit]
) -> list[tuple[ConditionalFit, Floats]]:
    """Return peaks of the hyperparameters, and steps of about a deviation at each.

    Ascents start at the given approximations, and where the density rises beyond a peak.
    """
    found, left = list[tuple[ConditionalFit, Floats]](), list(firsts)
    while left and len(found) <= _MOST_PEAKS:
        peak, step = ascended(conditional, left.pop(0))
        if not any(is_same_peak(each, peak, length) for each, length in found):
            found.append((peak, step))
            left += beyond(conditional, peak)
    return found


def _survey(
    fits: Sequence[StudentFit],
    log_mass: Floats,
    parts: Sequence[Component],
    log_parts: Floats,
    *,
    complete: bool,
) -> Survey:
    """Return normal densities as the reference, and further densities, or the same, as a fit."""
    total: Floats = np.logaddexp.reduce(log_mass, keepdims=True)
    if fits[0].shape.mean.size <= MOST_DENSE:
        wide = widened(joined(fits, np.exp(log_mass - total)))
    else:
        heaviest = np.argsort(-log_mass, kind="stable")[:_MOST_SPARSE]
        wide = widened(fits[heaviest[0]])
        fits, log_mass = [fits[i] for i in heaviest], log_mass[heaviest]
    mixture = with_wide(fits, log_mass, wide)
    nested = with_wide(parts, log_parts, wide) if parts else mixture
    return Survey([nested], total, 1, complete=complete, reference=mixture)


def _skewed(conditional: ConditionalFits, fits: Sequence[ConditionalFit]) -> list[ConditionalFit]:
    """Return skewed approximations about the means, if these differ much from the peaks.

    All are skewed or none is, because they are interpolated.
    """
    highest = max(fits, key=lambda fit: fit.log_mass)
    if conditional.skewed(highest)[1] <= _SKEWED:
        return list(fits)
    skewed = [found for fit in fits if (found := conditional.skewed(fit)[0]) is not None]
    return skewed if len(skewed) == len(fits) else list(fits)
