"""The paths of Ising and Potts lattices: straight in beta, and around a phase transition."""

from dataclasses import dataclass
from math import pi
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_kind, check_positive
from pm_evidence.core.codegen.numba import njit
from pm_evidence.core.codegen.vectors import fast_exp, fast_log
from pm_evidence.families.lattice.lattice import Lattice

Floats = NDArray[np.float64]


Betas = float | NDArray[np.float64]


@dataclass(frozen=True)
class LatticePath:
    """``log f_beta(x) = -beta E(x)``, from the uniform distribution to the target.

    Parameters
    ----------
    target : Ising or Potts
        Defines the energy.
    """

    target: Lattice

    @property
    def needs_counts(self) -> bool:
        """Whether weights depend on how many sites have each colour."""
        return self.target.field != 0.0

    def field(self, beta: Betas) -> Any:
        """Return the strength of the detour: none."""
        return np.zeros(np.shape(beta))[()]

    def draw(self, n: int, seed: np.random.SeedSequence) -> Any:
        """Return ``n`` independent states in which all sites are uniform and independent."""
        return self.target.draw_uniform(n, seed)

    def at(self, draws: NDArray[Any]) -> Any:
        """Return the population of some states, shape ``(n, *sizes)``."""
        draws = self.target.check(draws)
        return self.target.population(draws.reshape(len(draws), self.target.n_dim))

    def log_ratio(self, state: Any, start: Betas, stop: Betas) -> Floats:
        """Return the change of the log density between two inverse temperatures.

        For the populations that a kernel visited in ``m`` stages, inverse temperatures have shape
        ``(m, 1)``, and the change has shape ``(m, n)``. The same holds for ``energy``.
        """
        return (start - stop) * state.energy(self.target)

    def energy(self, state: Any, beta: Betas) -> Floats:
        """Return minus the derivative of the log density by beta, shape ``(n,)``, in nats."""
        energy: Floats = state.energy(self.target)
        return energy

    def weigh(self, visited: Any, start: Betas, stop: Betas) -> tuple[Floats, Floats]:
        """Return ``energy`` at ``start`` and ``log_ratio``, which costs less than two calls."""
        energy: Floats = visited.energy(self.target)
        return energy, (start - stop) * energy

    def order(self, state: Any) -> NDArray[np.int64]:
        """Return the order of the energies."""
        return np.argsort(state.energy(self.target), kind="stable")


@dataclass(frozen=True)
class DetouredPath(LatticePath):
    """A path around a phase transition, with a field that favours each of the colours.

    ``log f_beta(x) = -beta E(x) + log sum_c exp(h n_c(x)) - log q``, where ``n_c`` is the number of
    sites of colour ``c`` and ``h = height sin(pi beta)``. The field rises from 0 and falls back
    to 0, so both ends are those of the straight path, and all weights are exact.

    Parameters
    ----------
    target : Ising or Potts
        An Ising lattice must have no field of its own.
    height : float
        Strength of the field at beta 1/2, in nats per site.

    Raises
    ------
    ValueError
        If the height is not a finite number above 0, or the target has a field.

    Notes
    -----
    In the field the transition from disorder to order is smooth, which would otherwise be of first
    order. On Habeck's Potts model, forward and reverse work differ by a few nats with it, and by
    about 50 without. Kernels draw a favoured colour ``c`` with probability ``exp(h n_c) / sum`` and
    then move the lattice in the field ``h`` towards ``c``. This leaves ``f_beta`` exactly
    invariant, because both steps leave the joint density ``exp(-beta E + h n_c)`` of state and
    colour invariant.
    """

    height: float = 0.4

    def __post_init__(self) -> None:
        check_positive("height", self.height)
        check_kind("target", self.target, Lattice, "pass the pe.Ising or pe.Potts that is annealed")
        if self.target.field != 0.0:
            raise ValueError(
                "target must have no field of its own on a detour, which is symmetric in the "
                f"colours, got field={self.target.field}; use LatticePath."
            )

    @property
    def needs_counts(self) -> bool:
        """Whether weights depend on how many sites have each colour: yes."""
        return True

    def field(self, beta: Betas) -> Any:
        """Return the strength of the detour, exactly 0 at both ends."""
        beta = np.asarray(beta)
        return np.where((beta > 0.0) & (beta < 1.0), self.height * np.sin(pi * beta), 0.0)[()]

    def log_ratio(self, state: Any, start: Betas, stop: Betas) -> Floats:
        """Return the change of the log density between two inverse temperatures."""
        return self.weigh(state, start, stop)[1]

    def energy(self, state: Any, beta: Betas) -> Floats:
        """Return minus the derivative of the log density by beta, shape ``(n,)``, in nats."""
        return self.weigh(state, beta, beta)[0]

    def weigh(self, visited: Any, start: Betas, stop: Betas) -> tuple[Floats, Floats]:
        """Return ``energy`` at ``start`` and ``log_ratio``, which costs less than two calls."""
        energy = visited.energy(self.target)
        ratio = (start - stop) * energy
        # a row for every pair of inverse temperatures
        fields = self.field(np.array([np.ravel(start), np.ravel(stop)]))
        slope = self.height * pi * np.cos(pi * np.ravel(start))
        rows = energy.reshape(len(slope), -1), ratio.reshape(len(slope), -1)
        self.target.favour(visited, fields, slope, *rows)
        return energy, ratio


_NEGLIGIBLE = 40.0  # a term that is so many nats smaller than another changes no digit of the sum


@njit
def favour_spins(n_sites, up, fields, slope, energy, ratio):
    """Add the contributions of fields in favour of either spin to energies and log ratios."""
    for k in range(up.shape[0]):
        own, before, after, least = up[k], fields[0, k], fields[1, k], n_sites
        for c in range(own.size):
            gap = abs(2 * own[c] - n_sites)
            least = min(least, gap)
            larger = 0.5 * (n_sites + gap)
            energy[k, c] -= slope[k] * larger
            ratio[k, c] += (after - before) * larger
        if min(before, after) * least > _NEGLIGIBLE:
            continue
        for c in range(own.size):
            gap = abs(2 * own[c] - n_sites)
            # the smaller of the two terms, over the larger
            first, second = fast_exp(-before * gap), fast_exp(-after * gap)
            share = 1.0 / (1.0 + first)
            energy[k, c] += slope[k] * gap * first * share
            ratio[k, c] += fast_log((1.0 + second) * share)


@njit
def favour_colours(counts, fields, slope, energy, ratio):
    """Add the contributions of fields in favour of every colour; see ``favour_spins``.

    ``counts`` has shape (m, q, n), so that sums over colours are sums of whole rows.
    """
    n = counts.shape[2]
    most, first, second, weighted = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    for k in range(len(counts)):
        before, after = fields[0, k], fields[1, k]
        most[:] = 0.0
        for colour in range(counts.shape[1]):
            own = counts[k, colour]
            for c in range(n):
                most[c] = max(most[c], own[c])
        first[:] = 0.0
        second[:] = 0.0
        weighted[:] = 0.0
        for colour in range(counts.shape[1]):
            own = counts[k, colour]
            for c in range(n):
                gap = own[c] - most[c]
                weight = fast_exp(before * gap)
                first[c] += weight
                weighted[c] += weight * gap
                second[c] += fast_exp(after * gap)
        for c in range(n):
            energy[k, c] -= slope[k] * (most[c] + weighted[c] / first[c])
            ratio[k, c] += (after - before) * most[c] + fast_log(second[c] / first[c])
