"""Densities with heavy tails: Student-t fits in coordinates in which the tails are light."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pm_evidence.references.fitted import StudentFit

__all__ = ["Stretch", "StretchedFit", "learn_stretch", "learn_tails"]

Floats = NDArray[np.float64]

# Quantiles whose distance is compared with that of the quartiles: 3.8 times that for a normal
# density, 6 for a Student-t with four degrees of freedom, 63 for a Cauchy density.
_TAILS, _HEAVY = (0.005, 0.995), 8.0
# Distance of each of these quantiles from the median, compared with that of the quartile on its
# side: 3.8 times that for a normal density, 6.6 for the tail of an exponential one.
_LONG = 5.0
# Coordinates are about linear within so many interquartile ranges of the median.
_LINEAR = 1.5


@dataclass(frozen=True, slots=True)
class Stretch:
    """Coordinates ``z`` with ``x = centre + scale * sinh(z)`` where tails are heavy, else ``x``.

    A tail that falls off as a power of ``x`` falls off exponentially in ``z``.

    Parameters
    ----------
    heavy : ndarray of bool, shape (d,)
        Which coordinates have heavy tails.
    centre, scale : ndarray, shape (d,)
        Location and scale of the coordinates.
    """

    heavy: NDArray[np.bool_]
    centre: Floats
    scale: Floats

    def inward(self, x: Floats) -> Floats:
        """Return ``z`` for every row of ``x``."""
        z = x.copy()
        z[:, self.heavy] = np.arcsinh(self._scaled(x))
        return z

    def outward(self, z: Floats) -> Floats:
        """Return ``x`` for every row of ``z``; infinite if it exceeds the range of float64."""
        x = z.copy()
        with np.errstate(over="ignore"):
            far = self.scale[self.heavy] * np.sinh(z[:, self.heavy])
        x[:, self.heavy] = self.centre[self.heavy] + far
        return x

    def log_slope(self, x: Floats) -> Floats:
        """Return ``log |dx/dz|`` in nats for every row of ``x``."""
        slope: Floats = np.log(self.scale[self.heavy]) + np.log(np.hypot(1.0, self._scaled(x)))
        return slope.sum(axis=1)

    def _scaled(self, x: Floats) -> Floats:
        scaled: Floats = (x[:, self.heavy] - self.centre[self.heavy]) / self.scale[self.heavy]
        return scaled


@dataclass(frozen=True, slots=True)
class StretchedFit:
    """A Student-t density in stretched coordinates.

    Parameters
    ----------
    fit : StudentFit
        The density of ``z``.
    stretch : Stretch
        The coordinates.
    """

    fit: StudentFit
    stretch: Stretch

    def draw(self, n: int, rng: np.random.Generator) -> Floats:
        """Return ``n`` independent draws, shape ``(n, d)``."""
        return self.stretch.outward(self.fit.draw(n, rng))

    def log_density(self, x: Floats) -> Floats:
        """Return the normalised log density of every row of ``x`` in nats."""
        return self.fit.log_density(self.stretch.inward(x)) - self.stretch.log_slope(x)


def learn_stretch(x: Floats) -> Stretch | None:
    """Return coordinates in which a population ``x`` of shape ``(n, d)`` has no heavy tails.

    None is returned if it has none.
    """
    low, first, centre, third, high = np.quantile(
        x, (_TAILS[0], 0.25, 0.5, 0.75, _TAILS[1]), axis=0
    )
    heavy = high - low > _HEAVY * (third - first)
    heavy &= third > first  # copies of one state have no scale
    return Stretch(heavy, centre, _LINEAR * (third - first)) if heavy.any() else None


def learn_tails(x: Floats) -> Stretch | None:
    """Return coordinates in which exponential tails of a population are light.

    The log of a scale has an exponential tail, for example. Draws from a density that falls off
    faster reach it too rarely to show it.

    Parameters
    ----------
    x : ndarray, shape (n, d)
        The population.

    Returns
    -------
    Stretch or None
        None if no coordinate has a long tail on either side.
    """
    low, first, centre, third, high = np.quantile(
        x, (_TAILS[0], 0.25, 0.5, 0.75, _TAILS[1]), axis=0
    )
    long = (centre - low > _LONG * (centre - first)) | (high - centre > _LONG * (third - centre))
    long &= (third > centre) & (centre > first)
    return Stretch(long, centre, third - first) if long.any() else None
