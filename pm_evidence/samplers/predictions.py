"""What approximations predict at many hyperparameters, and where the predictions are wrong."""

from collections.abc import Iterable
from math import inf, log

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.shape import learn_shape
from pm_evidence.references.fitted import StudentFit
from pm_evidence.references.surfaces import n_coefficients
from pm_evidence.samplers.conditional import ConditionalFit, ConditionalFits
from pm_evidence.samplers.lattice import Lattice

__all__ = ["Predictions"]

Floats = NDArray[np.float64]

# Predictions are right if they differ by fewer nats from what is there, or if the density with this
# difference is so many nats below the largest.
_RIGHT, _RELEVANT = 2.0, 7.0
# They are needed where the density is so many nats larger than a lattice shows.
_HIGHER = 1.0
# Distance, in prior standard deviations, within which there must be an approximation; and numbers
# of steps from one approximation to the next that are tried.
_REACH, _STEPS = 1.0, (1, 4)
# Degrees of freedom of the density of prior draws, and the largest exponent of a share.
_DOF, _LARGEST_EXPONENT = 4.0, 700.0
# Least singular value of the distances of approximations, relative to the largest one, along which
# the change of the volume is known.
_RCOND = 1e-6


class Predictions:
    """What the nearest approximations predict at many hyperparameters.

    Parameters
    ----------
    conditional : ConditionalFits
        Makes approximations.
    at : ndarray, shape (n, k)
        The hyperparameters.
    n_prior : int
        How many of them are prior draws, the first ones.

    Attributes
    ----------
    n_unreached : int
        How often steps from the nearest approximation have failed to make another.
    """

    def __init__(self, conditional: ConditionalFits, at: Floats, n_prior: int) -> None:
        self._conditional, self._at, self._n_prior = conditional, at, n_prior
        self.n_unreached = 0
        self._fits, self._log_within = list[ConditionalFit](), -inf
        n = len(at)
        self._distance, self._nearest = np.full(n, inf), np.zeros(n, np.int64)
        self._log_mass, self._excess = np.full(n, -inf), np.zeros(n)
        self._is_new, self._is_unknown, self._is_within = np.zeros((3, n), bool)
        prior = at[:n_prior]
        shape = learn_shape(prior, dense=True)
        self._log_prior = StudentFit(shape, _DOF).log_density(prior) + log(n_prior)

    @property
    def share_unknown(self) -> float:
        """Share of the hyperparameters at which no approximation is found."""
        return float(self._is_unknown.mean())

    def add_lattice(self, lattice: Lattice) -> None:
        """Add the approximations of a lattice, and the mass within it."""
        fits = list(lattice.known.values())
        self._add(fits)
        self._is_within |= lattice.covers(self._at)
        log_mass = np.array([fit.log_mass for fit in fits]) + lattice.log_volume
        self._log_within = float(np.logaddexp.reduce(log_mass, initial=self._log_within))

    def wrong(self, top: float) -> int | None:
        """Return where an approximation is needed to predict the density; None if nowhere.

        It is where none is near, or else where the density may be largest and the prediction is
        wrong, if it may be relevant relative to the maximum ``top`` of the lattices, or right and
        higher than this maximum.
        """
        far = np.flatnonzero(~self._is_unknown & (self._distance > _REACH**2))
        if far.size:
            return int(far[np.argmin(self._distance[far])])
        self._compare()
        height = self._log_mass + np.maximum(self._excess, 0.0)
        least = np.where(np.abs(self._excess) > _RIGHT, top - _RELEVANT, top + _HIGHER)
        is_fitted = self._distance == 0.0
        height[self._is_unknown | is_fitted | (height < least)] = -inf
        i = int(np.argmax(height))
        return i if height[i] > -inf else None

    def outside(self) -> tuple[float, int | None]:
        """Return the mass outside of all lattices, relative to that within them.

        Returns
        -------
        share : float
            Estimate from the prior draws.
        i : int or None
            Where an approximation would improve the estimate most; None if there is none to make.
        """
        rows = slice(0, self._n_prior)
        log_parts = (self._log_mass + self._excess)[rows] - self._log_prior - self._log_within
        log_parts[self._is_within[rows] | self._is_unknown[rows]] = -inf
        share = float(np.exp(min(np.logaddexp.reduce(log_parts), _LARGEST_EXPONENT)))
        log_parts[self._distance[rows] == 0.0] = -inf
        i = int(np.argmax(log_parts))
        return share, i if log_parts[i] > -inf else None

    def fitted(self, i: int) -> ConditionalFit | None:
        """Return the approximation at one of the hyperparameters, which is added; or None."""
        conditional, values = self._conditional, self._at[i]
        average = conditional.placed(values, conditional.prior.mean[conditional.rest])
        fit = self._reached(self._fits[self._nearest[i]], values)
        if fit is None:
            self.n_unreached += 1
            fit = conditional.first(average)
        if fit is None:
            self._is_unknown[i] = True
        else:
            self._add([fit])
        return fit

    def _reached(self, start: ConditionalFit, values: Floats) -> ConditionalFit | None:
        """Return the approximation at other hyperparameters, by several steps if one fails."""
        for n_steps in _STEPS:
            fit: ConditionalFit | None = start
            for step in np.linspace(0.0, 1.0, n_steps + 1)[1:]:
                if fit is not None:
                    fit = self._conditional.near(fit, start.values + step * (values - start.values))
            if fit is not None:
                return fit
        return None

    def _add(self, fits: Iterable[ConditionalFit]) -> None:
        for fit in fits:
            distance = (((self._at - fit.values) / self._conditional.scale) ** 2).sum(axis=1)
            nearer = distance < self._distance
            self._distance[nearer], self._nearest[nearer] = distance[nearer], len(self._fits)
            self._is_new[nearer] = True
            self._fits.append(fit)

    def _compare(self) -> None:
        """Compare predictions with the density where the nearest approximation is a new one.

        Where the density is not finite, nothing is known of its difference.
        """
        for nearest in np.unique(self._nearest[self._is_new]):
            mine, fit = self._is_new & (self._nearest == nearest), self._fits[nearest]
            values = self._at[mine]
            found = self._conditional.excesses(fit, values)
            self._excess[mine] = np.where(np.isfinite(found), found, inf)
            change = fit.predicted_height(values) - fit.height
            change += self._change_of_volume(fit, values - fit.values)
            self._log_mass[mine] = fit.log_mass + change
        self._is_new[:] = False

    def _change_of_volume(self, fit: ConditionalFit, moves: Floats) -> Floats:
        """Return how the log volume of conditional densities changes from an approximation.

        It is a quadratic function through the nearest other ones, by least squares, shape ``(n,)``.
        """
        scale = self._conditional.scale
        apart = np.array([other.values - fit.values for other in self._fits]) / scale
        n_near = 2 * n_coefficients(scale.size)
        near = np.argsort((apart**2).sum(axis=1))[1 : n_near + 1]
        volume = np.array([self._fits[i].shape.log_volume for i in near]) - fit.shape.log_volume
        coefficients = np.linalg.lstsq(_powers(apart[near]), volume, rcond=_RCOND)[0]
        change: Floats = _powers(moves / scale) @ coefficients
        return change


def _powers(x: Floats) -> Floats:
    """Return the elements of every row of ``x``, and their products."""
    i, j = np.triu_indices(x.shape[1])
    return np.hstack([x, x[:, i] * x[:, j]])
