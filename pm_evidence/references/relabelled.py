"""A density averaged over all labellings of components."""

from dataclasses import dataclass
from math import log

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.codegen.numba import njit
from pm_evidence.core.relabelling import Relabelling
from pm_evidence.references.fitted import StudentFit
from pm_evidence.references.mixture import Component

__all__ = ["Relabelled"]

Floats = NDArray[np.float64]

# Labellings whose density is this many nats below that of the densest do not count.
_NEGLIGIBLE = 40.0


@dataclass(frozen=True, slots=True)
class Relabelled:
    """The average of a density over all permutations of labels.

    Parameters
    ----------
    component : Component
        The density, which may be fitted to a single labelling.
    relabelling : Relabelling
        The permutations.

    Notes
    -----
    Dual importance sampling (Lee and Robert 2016) averages a density over labellings in this way.
    """

    component: Component
    relabelling: Relabelling

    def draw(self, n: int, rng: np.random.Generator) -> Floats:
        """Return ``n`` draws, shape ``(n, d)``."""
        return self.relabelling.shuffled(self.component.draw(n, rng), rng)

    def log_density(self, x: Floats) -> Floats:
        """Return the normalised log density of every row of ``x`` in nats."""
        if isinstance(self.component, StudentFit):
            return self._log_density_of_student(x, self.component)
        parts = self._log_densities(self.relabelling.images(x))
        log_density: Floats = np.logaddexp.reduce(parts, axis=0) - log(len(parts))
        return log_density

    def _log_density_of_student(self, x: Floats, fit: StudentFit) -> Floats:
        """Return the same for a Student-t density, many times faster."""
        shape, d = fit.shape, x.shape[1]
        columns = self.relabelling.maps.transpose(0, 2, 1).reshape(-1, d)
        maps = shape.whitened(columns + shape.mean).reshape(-1, d, d).transpose(0, 2, 1)
        shift = shape.whitened(np.zeros((1, d)))[0]
        averaged = _averaged(*map(np.ascontiguousarray, (x, maps, shift)), fit.dof)
        log_density: Floats = fit.log_constant + averaged
        return log_density

    def aligned(self, x: Floats) -> Floats:
        """Return every row of ``x`` in the labelling in which the component is densest."""
        images = self.relabelling.images(x)
        aligned: Floats = images[self._log_densities(images).argmax(axis=0), np.arange(len(x))]
        return aligned

    def _log_densities(self, images: Floats) -> Floats:
        """Return the log density of the component at images of points, shape ``(k!, n)``."""
        n_maps, n, d = images.shape
        return self.component.log_density(images.reshape(-1, d)).reshape(n_maps, n)


@njit
def _averaged(x, maps, shift, dof):
    """Return the log of the mean over maps of a Student-t density relative to its maximum.

    ``maps[i] @ x + shift`` is the image of a point in coordinates in which the density has mean 0
    and scale 1.
    """
    n, d = x.shape
    n_maps = len(maps)
    power = 0.5 * (dof + d)
    square, found = np.empty(n_maps), np.empty(n)
    for row in range(n):
        least = limit = np.inf
        for k in range(n_maps):
            total = 0.0
            for i in range(d):
                z = shift[i]
                for j in range(d):
                    z += maps[k, i, j] * x[row, j]
                total += z * z
                if total > limit:
                    break
            square[k] = total
            if total < least:
                least = total
                if dof == np.inf:
                    limit = least + 2.0 * _NEGLIGIBLE
                else:
                    limit = (dof + least) * np.exp(_NEGLIGIBLE / power) - dof
        height = -0.5 * least if dof == np.inf else -power * np.log1p(least / dof)
        total = 0.0
        for k in range(n_maps):
            if square[k] <= limit:
                part = -0.5 * square[k] if dof == np.inf else -power * np.log1p(square[k] / dof)
                total += np.exp(part - height)
        found[row] = height + np.log(total / n_maps)
    return found
