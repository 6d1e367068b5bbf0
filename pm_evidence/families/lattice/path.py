"""The paths of Ising and Potts lattices: straight in beta, and round a phase transition."""

from dataclasses import dataclass
from math import pi
from typing import Any

import numba as nb
import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_positive
from pm_evidence.core.codegen.fast_math import fast_exp, fast_log
from pm_evidence.families.lattice.ising_state import draw_spins, pack, spins_of
from pm_evidence.families.lattice.potts_state import colours_of, draw_colours
from pm_evidence.families.lattice.target import Ising, Potts

__all__ = ["DetouredPath", "LatticePath"]

Floats = NDArray[np.float64]
Betas = float | NDArray[np.float64]

_NEGLIGIBLE = 40.0  # a term is smaller than another by so many nats where it changes no digit


@dataclass(frozen=True)
class LatticePath:
    """``log f_beta(x) = -beta E(x)``, from the uniform distribution to the target.

    Parameters
    ----------
    target : Ising or Potts
        Says what the energy is.
    """

    target: Ising | Potts

    @property
    def needs_counts(self) -> bool:
        """Whether weights depend on how many sites have each colour."""
        return isinstance(self.target, Ising) and self.target.field != 0.0

    def field(self, beta: Betas) -> Any:
        """Return the strength of the detour: none."""
        return np.zeros(np.shape(beta))[()]

    def draw(self, n: int, seed: np.random.SeedSequence) -> Any:
        """Return ``n`` independent states in which all sites are uniform and independent."""
        if isinstance(self.target, Ising):
            return draw_spins(self.target, n, seed)
        return draw_colours(self.target, n, seed)

    def at(self, draws: NDArray[Any]) -> Any:
        """Return the population of some states, shape ``(n, *sizes)``."""
        draws = self.target.check(draws)
        rows = draws.reshape(len(draws), self.target.n_dim)
        if isinstance(self.target, Ising):
            return spins_of(pack(rows), len(rows), self.target)
        return colours_of(rows, self.target)

    def log_ratio(self, state: Any, start: Betas, stop: Betas) -> Floats:
        """Return the change of the log density between two inverse temperatures.

        For the populations that a kernel visited in ``m`` stages inverse temperatures have shape
        ``(m, 1)`` and the change has shape ``(m, n)``; likewise for ``energy``.
        """
        return (start - stop) * state.energy(self.target)

    def energy(self, state: Any, beta: Betas) -> Floats:
        """Return minus the derivative of the log density by beta, shape ``(n,)``, in nats."""
        energy: Floats = state.energy(self.target)
        return energy

    def weigh(self, visited: Any, start: Betas, stop: Betas) -> tuple[Floats, Floats]:
        """Return ``energy`` at ``start`` and ``log_ratio`` together, for less than both cost."""
        energy: Floats = visited.energy(self.target)
        return energy, (start - stop) * energy

    def order(self, state: Any) -> NDArray[np.int64]:
        """Return the order of the energies."""
        return np.argsort(state.energy(self.target), kind="stable")

    def fit(self, state: Any) -> None:
        """Return None: no density is fitted to a lattice."""

    def bridge_work(
        self, fit: None, state: Any, n: int, rng: np.random.Generator
    ) -> tuple[Floats, Floats]:
        """Raise NotImplementedError: there is no fitted density."""
        raise NotImplementedError


@dataclass(frozen=True)
class DetouredPath(LatticePath):
    """A path round a phase transition: on the way all colours are favoured in turn.

    ``log f_beta(x) = -beta E(x) + log sum_c exp(h n_c(x)) - log q``, where ``n_c`` is the number of
    sites of colour ``c`` and ``h = height sin(pi beta)``. The field rises from 0 and falls back
    to 0, so both ends are those of the straight path, and all weights are exact.

    Parameters
    ----------
    target : Ising or Potts
        An Ising lattice must have no field of its own.
    height : float
        Strength of the field at beta 1/2, in nats a site.

    Raises
    ------
    ValueError
        If the height is not a finite number above 0, or the target has a field.

    Notes
    -----
    In the field the transition from disorder to order is smooth where it would be of first order:
    on Habeck's Potts model forward and reverse work then differ by a few nats, and by about 50
    without. Kernels draw a favoured colour ``c`` with probability ``exp(h n_c) / sum`` and then
    move the lattice in the field ``h`` towards ``c``, which leaves ``f_beta`` invariant exactly:
    the two steps leave the joint density ``exp(-beta E + h n_c)`` of state and colour invariant.
    """

    height: float = 0.4

    def __post_init__(self) -> None:
        check_positive("height", self.height)
        if isinstance(self.target, Ising) and self.target.field != 0.0:
            raise ValueError(
                "target must have no field of its own on a detour, which is symmetric in the "
                f"colours, got field={self.target.field}; take LatticePath."
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
        """Return ``energy`` at ``start`` and ``log_ratio`` together, for less than both cost."""
        energy = visited.energy(self.target)
        ratio = (start - stop) * energy
        # a row for every pair of inverse temperatures
        fields = self.field(np.array([np.ravel(start), np.ravel(stop)]))
        slope = self.height * pi * np.cos(pi * np.ravel(start))
        rows = energy.reshape(len(slope), -1), ratio.reshape(len(slope), -1)
        if isinstance(self.target, Ising):
            up = visited.n_up().reshape(rows[0].shape)
            _favour_spins(self.target.n_dim, up, fields, slope, *rows)
        else:
            counts = np.moveaxis(visited.counts(self.target), 0, -2)
            counts = np.ascontiguousarray(counts).reshape(len(slope), self.target.q, -1)
            _favour_colours(counts, fields, slope, *rows)
        return energy, ratio


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _favour_spins(n_sites, up, fields, slope, energy, ratio):
    """Add what fields in favour of either spin add to energies and log ratios.

    Parameters
    ----------
    n_sites : int
    up : int32 array, shape (m, n)
        Numbers of spins 1.
    fields : float64 array, shape (2, m)
        Strengths ``h`` before and after.
    slope : float64 array, shape (m,)
        Derivative of ``h`` by beta, before.
    energy, ratio : float64 arrays, shape (m, n)
        Energies lose the derivative of ``log(exp(h up) + exp(h down))`` by beta, and log ratios
        gain its change.
    """
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


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _favour_colours(counts, fields, slope, energy, ratio):
    """Add what fields in favour of every colour add; see ``_favour_spins``.

    ``counts`` has shape (m, q, n): sums over colours are sums of whole rows.
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
