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
from pm_evidence.samplers.lattice import MOST_AXES, Lattice

__all__ = ["MOST_DENSE", "explore", "is_concave_in"]

Floats = NDArray[np.float64]
Positions = NDArray[np.int64]

# Least number of prior draws, from which scales are learnt.
_PRIOR_DRAWS = 20
# Spacing of the lattice in prior standard deviations, at first. It is corrected so many times, by
# so much at most.
_FIRST_SPACING, _SPACINGS, _LARGEST_CHANGE = 0.5, 6, 4.0
# Least, usual and largest spacing in posterior standard deviations, for one hyperparameter, two and
# so on. A lattice in more dimensions is coarser, because its points are many.
_FINE, _COARSE = (0.5, 1.0, 1.3), (1.2, 1.5, 1.9)
_SPACING = (_FINE, _FINE, _COARSE, _COARSE)
# Points whose mass is so many nats below the largest are left out.
_NEGLIGIBLE = 9.0
# The spacing is halved, so many times at most, if conditional densities at neighbouring points
# differ by more nats, on average, from what these points predict of each other.
_HALVINGS, _LARGEST_DIVERGENCE = 3, 8.0
# Number of pairs of prior draws between which the log density is tested, and the relative error
# that is left to rounding.
_PAIRS, _ROUNDING = 12, 1e-9
# Normal densities are moved from the peaks to the means where this gains more nats.
_SKEWED = 0.05
# Most prior draws from which many hyperparameters are explored.
_MOST_STARTS = 3
# Largest dimension in which the covariances at all points may be dense if there are
# hyperparameters, and in which the covariance of the mixture is formed.
MOST_DENSE = 300
# Largest dimension in which second derivatives are measured to see which of them are zero, if there
# are hyperparameters: their matrix takes 72 MB.
_MOST_MEASURED = 3000


def explore(
    posterior: Posterior, hyperparameters: Positions, n_starts: int, rng: np.random.Generator
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
    conditional = ConditionalFits(posterior, hyperparameters, shape, may_be_dense=may_be_dense)
    found = Survey()
    try:
        if k > MOST_AXES:
            found = _by_design(conditional, prior[: min(n_starts, _MOST_STARTS)])
        else:
            found = _by_lattices(conditional, prior[: n_starts if k else 1])
    except np.linalg.LinAlgError:  # scales differ too much for float64
        pass
    return replace(found, n_evaluations=conditional.n_evaluations)


def is_concave_in(posterior: Posterior, hyperparameters: Positions) -> tuple[bool, int]:
    """Return whether a log density seems concave in its hyperparameters as well, given the others.

    It is so for the scales of effects and of noise, if the effects are centred and the scales have
    usual priors. The density of frequencies or of length scales may have many narrow peaks instead,
    which an exploration that starts at a few prior draws does not find.

    Parameters
    ----------
    posterior : Posterior
        The density.
    hyperparameters : ndarray of int64, shape (k,)
        Positions of the hyperparameters.

    Returns
    -------
    is_concave : bool
        Whether no pair of draws shows the contrary.
    n_evaluations : int
        Evaluations of the density.

    Notes
    -----
    The log density halfway between the hyperparameters of two prior draws is compared with those at
    both ends: for all hyperparameters together, and for each alone, because a density that is
    concave enough in one of them hides that it is not so in another. The draws are always the same.
    """
    k = hyperparameters.size
    if not k:
        return True, 0
    one = posterior.draw_prior(_PAIRS, np.random.default_rng(_PAIRS))
    ways = [hyperparameters, *(hyperparameters[[i]] for i in range(k) if k > 1)]
    two = np.repeat(one[None], len(ways), axis=0)
    for moved, positions in zip(two, ways, strict=True):
        moved[:, positions] = np.roll(one[:, positions], 1, axis=0)
    points = np.concatenate([one[None], two, 0.5 * (one + two)])
    values = posterior.log_density(points.reshape(-1, one.shape[1])).reshape(points.shape[:2])
    ends, middle = 0.5 * (values[:1] + values[1 : len(ways) + 1]), values[len(ways) + 1 :]
    is_concave = bool((middle >= ends - _ROUNDING * (1.0 + np.abs(ends))).all())
    return is_concave, values.size


def _by_lattices(conditional: ConditionalFits, draws: Floats) -> Survey:
    """Return what is known from a lattice about each peak of the hyperparameters."""
    regions = _regions(conditional, draws)
    if not regions:
        return Survey()
    found = [(region, each) for region in regions for each in region.known.values()]
    log_mass = np.array([each.log_mass + region.log_volume for region, each in found])
    found = [found[i] for i in np.flatnonzero(log_mass > log_mass.max() - _NEGLIGIBLE)]
    moved = _skewed(conditional, [each for _, each in found])
    found = [(region, each) for (region, _), each in zip(found, moved, strict=True)]
    log_mass = np.array([each.log_mass + region.log_volume for region, each in found])
    fits = [region.fit(each) for region, each in found]
    parts, log_parts = list[Component](), list[float]()
    for region in regions if conditional.given.size else ():
        mine = [i for i, (other, _) in enumerate(found) if other is region]
        if mine:
            parts.append(region.interpolated([found[i][1] for i in mine], log_mass[mine]))
            log_parts.append(np.logaddexp.reduce(log_mass[mine]))
    even = all(region.is_even for region in regions)
    survey = _survey(fits, log_mass, parts, np.array(log_parts), complete=even)
    return replace(survey, n_peaks=len(regions))


def _by_design(conditional: ConditionalFits, draws: Floats) -> Survey:
    """Return what is known from points about the only peak of many hyperparameters."""
    firsts = [found for x in draws if (found := conditional.first(x)) is not None]
    tops = [ascended(conditional, first) for first in firsts]
    if not tops:
        return Survey()
    peak, step = max(tops, key=lambda top: top[0].log_mass)
    design = designed(conditional, peak, step)
    single = all(is_same_peak(peak, other, step) for other, _ in tops)
    if design is None or not (single and design.covers_tails and design.is_even):
        return Survey()
    design = replace(design, fits=_skewed(conditional, design.fits))
    log_mass = design.log_weight
    total: Floats = np.logaddexp.reduce(log_mass, keepdims=True)
    return _survey(design.mixed(), log_mass, [design.nested()], total, complete=True)


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
        wide = widened(fits[int(np.argmax(log_mass))])
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


def _coarse_peaks(conditional: ConditionalFits, draws: Floats) -> list[ConditionalFit]:
    """Return the local maxima on a coarse lattice that steps from prior draws lead to."""
    origin = next((found for x in draws if (found := conditional.first(x)) is not None), None)
    if origin is None:
        return []
    lattice = Lattice(conditional, origin, _FIRST_SPACING * conditional.scale)
    tops = dict.fromkeys(lattice.top(lattice.nearest(x[conditional.given])) for x in draws)
    return [found for top in tops if (found := lattice.found.get(top)) is not None]


def _regions(conditional: ConditionalFits, draws: Floats) -> list[Lattice]:
    """Return a lattice about each peak of the hyperparameters; none if one spreads too far."""
    regions = list[Lattice]()
    peaks = _coarse_peaks(conditional, draws)
    for peak in sorted(peaks, key=lambda peak: -peak.log_mass):
        if any(region.covers(peak) for region in regions):
            continue
        region = _refined(conditional, peak)
        if any(other.covers(region.highest) for other in regions):
            continue
        if not region.fill():
            return []
        regions.append(_fine(region))
    return regions


def _refined(conditional: ConditionalFits, peak: ConditionalFit) -> Lattice:
    """Return a lattice about a peak, whose spacing is about a posterior standard deviation."""
    spacing = _FIRST_SPACING * conditional.scale
    fine, usual, coarse = _SPACING[max(spacing.size, 1) - 1]
    for _ in range(_SPACINGS):
        lattice = Lattice(conditional, peak, spacing)
        top = lattice.top((0,) * spacing.size)
        peak = lattice.found[top] or peak
        in_deviations = lattice.spacing_in_deviations(top)
        if ((in_deviations > fine) & (in_deviations < coarse)).all():
            break
        spacing = spacing / np.clip(in_deviations / usual, 1.0 / _LARGEST_CHANGE, _LARGEST_CHANGE)
    return lattice


def _fine(region: Lattice) -> Lattice:
    """Return a lattice whose points are near enough to each other, if these are not too many."""
    for _ in range(_HALVINGS):
        means = np.array([each.mean() for each in region.divergences(region.near)])
        too_far = means > _LARGEST_DIVERGENCE
        if not too_far.any():
            break
        finer = region.halved(too_far)
        if not finer.fill():
            break
        region = finer
    return region
