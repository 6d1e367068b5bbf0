"""The geometric path from independent units to a restricted Boltzmann machine."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.families.rbm.state import LogDensities, Units, pack

__all__ = ["BaseRatePath"]

Floats = NDArray[np.float64]
Betas = float | NDArray[np.float64]


@dataclass(frozen=True)
class BaseRatePath:
    """``log f_beta(x) = (1 - beta) (c'x - log Z_0) + beta log f(x)``.

    The state ``x`` consists of the units of both layers, ``log f(x) = a'v + b'h + v'Wh``, or of one
    layer alone, where the other is summed out. The units of the reference are independent, and
    their biases ``c`` give its base rates (Salakhutdinov and Murray 2008). The reference is
    normalised, so that the work of paths gives log Z itself.

    Parameters
    ----------
    target : RBM
        The machine.
    """

    target: Any

    @property
    def log_base_z(self) -> float:
        """Log of the normalising constant ``Z_0`` of the reference, in nats."""
        return float(np.logaddexp(0.0, self.target.base_bias).sum())

    def draw(self, n: int, seed: np.random.SeedSequence) -> Units:
        """Return ``n`` independent states of independent units."""
        rates = 1.0 / (1.0 + np.exp(-self.target.base_bias))
        draws = np.random.default_rng(seed).random((n, len(rates))) < rates
        return self.at(draws.astype(np.uint8))

    def at(self, draws: NDArray[Any]) -> Units:
        """Return the population of some states, shape ``(n, n_units)``, layer after layer."""
        target = self.target
        ends = np.cumsum(target.sizes)[:-1]
        layers = tuple(pack(rows) for rows in np.split(draws, ends, axis=1))
        log_density = LogDensities(target.log_density(draws), draws @ target.base_bias)
        return Units(layers, target.sizes, log_density)

    def log_ratio(self, state: Any, start: Betas, stop: Betas) -> Floats:
        """Return the change of the log density between two inverse temperatures.

        For the populations that a kernel visited in ``m`` stages, inverse temperatures have shape
        ``(m, 1)``, and the change has shape ``(m, n)``. The same holds for ``energy``.
        """
        return (start - stop) * self.energy(state, start)

    def energy(self, state: Any, beta: Betas) -> Floats:
        """Return minus the derivative of the log density by beta, shape ``(n,)``, in nats."""
        found = state.log_density if isinstance(state, Units) else state
        energy: Floats = found.base - self.log_base_z - found.target
        return energy

    def weigh(self, visited: Any, start: Betas, stop: Betas) -> tuple[Floats, Floats]:
        """Return ``energy`` at ``start`` and ``log_ratio``, which costs less than two calls."""
        energy = self.energy(visited, start)
        return energy, (start - stop) * energy

    def order(self, state: Units) -> NDArray[np.int64]:
        """Return the order of the log densities of the target."""
        return np.argsort(state.log_density.target, kind="stable")
