"""Lattices about the peaks of the density of a few hyperparameters.

Steps on a coarse lattice lead from prior draws to peaks. Narrow peaks lie between its points. They
are searched for, where this is asked for, by what approximations predict: at many prior draws of
the hyperparameters, the density at the predicted values of the other variables is compared with the
predicted one, which costs one gradient each. Where they differ so much that a peak of relevant mass
may be there, an approximation is made, until all predictions are right.
"""

from math import inf

import numpy as np
from numpy.typing import NDArray

from pm_evidence.samplers.conditional import ConditionalFit, ConditionalFits
from pm_evidence.samplers.lattice import Lattice
from pm_evidence.samplers.predictions import Predictions
from pm_evidence.samplers.profiles import beyond

__all__ = ["Regions"]

Floats = NDArray[np.float64]

# Spacing of a coarse lattice in prior standard deviations, and the first spacing about a narrow
# peak. A spacing is corrected so many times, by so much at most.
_FIRST_SPACING, _NARROW_SPACING, _SPACINGS, _LARGEST_CHANGE = 0.5, 0.01, 6, 4.0
# Least, usual and largest spacing in posterior standard deviations, for one hyperparameter, two and
# so on. A lattice in more dimensions is coarser, because its points are many.
_FINE, _COARSE = (0.5, 1.0, 1.3), (1.2, 1.5, 1.9)
_SPACING = (_FINE, _FINE, _COARSE, _COARSE)
# The spacing is halved, so many times at most, if conditional densities at neighbouring points
# differ by more nats, on average, from what these points predict of each other.
_HALVINGS, _LARGEST_DIVERGENCE = 3, 8.0
# Largest mass outside of all lattices, relative to that within them, and largest share of the
# searched points at which no approximation is found.
_OUTSIDE, _UNKNOWN = 0.01, 0.01
# So often may steps from one approximation to the next fail. Where the density has kinks, nearly
# all of them fail, each at the cost of thousands of gradients.
_MOST_UNREACHED = 10
# Largest number of approximations that only improve the estimate of the mass outside, and of
# lattices.
_MOST_OUTSIDE, _MOST_LATTICES = 60, 8
# A peak is a new one if it is so many nats higher than a lattice that covers it shows.
_HIGHER = 1.0


class Regions:
    """Lattices about peaks of the hyperparameters.

    Parameters
    ----------
    conditional : ConditionalFits
        Makes approximations given the hyperparameters.

    Attributes
    ----------
    lattices : list of Lattice
        The lattices so far.
    spread_too_far : bool
        Whether a region of relevant mass has too many points.
    """

    def __init__(self, conditional: ConditionalFits) -> None:
        self.conditional = conditional
        self.lattices = list[Lattice]()
        self.spread_too_far = False

    @property
    def top(self) -> float:
        """Largest log density of the hyperparameters."""
        return max((lattice.highest.log_mass for lattice in self.lattices), default=-inf)

    @property
    def are_even(self) -> bool:
        """Whether approximations predict their neighbours in all lattices."""
        return all(lattice.is_even for lattice in self.lattices)

    def climb(self, draws: Floats) -> None:
        """Add those about peaks to which steps on a coarse lattice lead from prior draws."""
        conditional = self.conditional
        origin = next((found for x in draws if (found := conditional.first(x)) is not None), None)
        if origin is None:
            return
        coarse = Lattice(conditional, origin, _FIRST_SPACING * conditional.scale)
        tops = dict.fromkeys(coarse.top(coarse.nearest(x[conditional.given])) for x in draws)
        peaks = [found for top in tops if (found := coarse.found.get(top)) is not None]
        for peak in sorted(peaks, key=lambda peak: -peak.log_mass):
            self.add(peak, coarse.spacing)
        for lattice in self.lattices:  # including those that are added
            for peak in beyond(conditional, lattice.highest):
                self.add(peak, coarse.spacing)

    def add(self, peak: ConditionalFit, spacing: Floats) -> Lattice | None:
        """Add the lattice about a peak, unless it is covered; return it if it is added."""
        if self.spread_too_far or self._is_covered(peak):
            return None
        lattice = _refined(self.conditional, peak, spacing)
        if self._is_covered(lattice.highest):
            return None
        if not lattice.fill(self.top):
            self.spread_too_far = True
            return None
        self.lattices.append(_fine(lattice, self.top))
        return self.lattices[-1]

    def search(self, values: Floats, rng: np.random.Generator) -> bool:
        """Add those about narrow peaks, and return whether they hold all mass, as far as known.

        Parameters
        ----------
        values : ndarray, shape (n, k)
            Prior draws of the hyperparameters. As many points within the lattices are added.
        rng : numpy.random.Generator
            Source of the random numbers.
        """
        n = len(values)
        within = np.concatenate([lattice.draw(n, rng) for lattice in self.lattices])
        within = within[rng.permutation(len(within))[:n]]
        predictions = Predictions(self.conditional, np.concatenate([values, within]), n)
        for lattice in self.lattices:
            predictions.add_lattice(lattice)
        n_outside = 0
        for _ in range(self.lattices[0].most):
            i = predictions.wrong(self.top)
            if i is None:
                share, i = predictions.outside()
                n_outside += 1
                if share < _OUTSIDE:
                    return self.are_even
            if i is None or n_outside > _MOST_OUTSIDE:
                return False
            fit = predictions.fitted(i)
            if fit is not None and fit.log_mass > self.top - self.lattices[0].near:
                added = self.add(fit, _NARROW_SPACING * self.conditional.scale)
                if added is not None:
                    predictions.add_lattice(added)
            too_many = self.spread_too_far or len(self.lattices) > _MOST_LATTICES
            fails = predictions.n_unreached > _MOST_UNREACHED
            if too_many or fails or predictions.share_unknown > _UNKNOWN:
                return False
        return False

    def _is_covered(self, fit: ConditionalFit) -> bool:
        """Return whether a lattice shows a density that is about as large."""
        return any(fit.log_mass < each.height_near(fit) + _HIGHER for each in self.lattices)


def _refined(conditional: ConditionalFits, peak: ConditionalFit, spacing: Floats) -> Lattice:
    """Return a lattice about a peak, whose spacing is about a posterior standard deviation."""
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


def _fine(region: Lattice, top: float) -> Lattice:
    """Return a lattice whose points are near enough to each other, if these are not too many."""
    for _ in range(_HALVINGS):
        means = np.array([each.mean() for each in region.divergences(region.near)])
        too_far = means > _LARGEST_DIVERGENCE
        if not too_far.any():
            break
        finer = region.halved(too_far)
        if not finer.fill(top):
            break
        region = finer
    return region
