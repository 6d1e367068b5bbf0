"""The variance of the energy along a path, from the populations of a pilot."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.numerics import ess_share, normalised
from pm_evidence.core.schedule import PathVariance

__all__ = ["PilotVariance"]

Floats = NDArray[np.float64]

# Pieces of a pilot's stage. The first stage is divided by halves instead, because the variance
# under a vague prior falls by many decades as soon as the likelihood counts at all.
_PIECES, _HALVES = 8, 40
_LARGEST = 1e300  # of a variance


@dataclass
class PilotVariance:
    """Collects the variance of the energy along a path from the populations of a pilot.

    On a path whose log density is linear in beta, such as ``prior * likelihood**beta``, the
    populations at both ends of a stage are also reweighted to the inverse temperatures in between,
    which costs no evaluation. On other paths the variances at both ends are interpolated.
    """

    _ends: list[Floats] = field(default_factory=lambda: [np.zeros(1)])
    _variances: list[Floats] = field(default_factory=list)

    def add(
        self, start: float, stop: float, before: Floats, after: Floats, log_weight: Floats
    ) -> None:
        """Add a stage.

        Parameters
        ----------
        start, stop : float
            Its inverse temperatures.
        before, after : ndarray, shape (n_before,), (n_after,)
            Energies of the populations at both.
        log_weight : ndarray, shape (n_before,)
            Incremental log weights of the first population.
        """
        if start == 0.0:
            ends = stop * np.append(0.0, 0.5 ** np.arange(_HALVES, -1, -1.0))
        else:
            ends = np.linspace(start, stop, _PIECES + 1)
        if _is_linear(before, stop - start, log_weight):
            found = [_between(before, after, at - start, at - stop) for at in ends]
        else:
            sides = [
                _weighted_variance(energy, np.zeros(energy.size)) for energy in (before, after)
            ]
            found = list(np.interp(ends, [start, stop], sides))
        root = np.sqrt(np.array(found))
        # the geometric mean of both ends, because variances fall like a power of beta
        self._variances.append(root[1:] * root[:-1])
        self._ends.append(ends[1:])

    def result(self) -> PathVariance:
        """Return the variances of all stages so far, which must have reached 1."""
        ends, values = np.concatenate(self._ends), np.concatenate(self._variances)
        ends, kept = np.unique(ends, return_index=True)
        # under a vague prior the square of an energy may overflow
        values = np.nan_to_num(values, nan=0.0, posinf=_LARGEST)[kept[1:] - 1]
        return PathVariance(ends, values)


def _weighted_variance(energy: Floats, log_weight: Floats) -> float:
    """Return the variance of finite energies with weights; NaN if no weight is finite."""
    fine = np.isfinite(energy) & (log_weight > -np.inf)
    if not fine.any():
        return float("nan")
    weight, energy = normalised(log_weight[fine]), energy[fine]
    some = weight > 0.0  # the square of an energy without weight may overflow
    weight, energy = weight[some], energy[some]
    with np.errstate(over="ignore"):
        return float(weight @ (energy - weight @ energy) ** 2)


def _is_linear(energy: Floats, step: float, log_weight: Floats) -> bool:
    """Return whether log weights are minus the step times the energies."""
    fine = np.isfinite(energy) & np.isfinite(log_weight)
    return bool(np.allclose(log_weight[fine], -step * energy[fine], rtol=1e-6, atol=1e-9))


def _between(before: Floats, after: Floats, forward: float, back: float) -> float:
    """Return the variance at a point between two populations, from both of them reweighted.

    ``forward`` and ``back`` are the distances from them. Each counts as its effective size.
    """
    found: list[tuple[float, float]] = []
    for energy, step in ((before, forward), (after, back)):
        fine = energy[np.isfinite(energy)]
        if fine.size:
            log_weight = -step * fine
            size: Any = fine.size * ess_share(log_weight)
            found.append((float(size), _weighted_variance(fine, log_weight)))
    total = sum(size for size, _ in found)
    return sum(size * variance for size, variance in found) / total if total > 0.0 else 0.0
