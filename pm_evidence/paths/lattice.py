"""The paths of Ising and Potts lattices: straight in beta, and round a phase transition."""

from dataclasses import dataclass
from math import pi
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_positive
from pm_evidence.targets.colours import colours_of, draw_colours
from pm_evidence.targets.lattice import Ising, Potts
from pm_evidence.targets.spins import draw_spins, pack, spins_of

__all__ = ["DetouredPath", "LatticePath"]

Floats = NDArray[np.float64]
Betas = float | NDArray[np.float64]


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

    def fit_peak(self, state: Any) -> None:
        """Return None, as ``fit``."""

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
        counts = visited.counts(self.target)
        log_sum, favoured = _favour(self.field(start), counts)
        change, _ = _favour(self.field(stop), counts, with_mean=False)
        change -= log_sum
        energy = visited.energy(self.target)
        ratio = (start - stop) * energy
        ratio += change
        favoured *= self.height * pi * np.cos(pi * np.asarray(start))
        return energy - favoured, ratio


def _favour(
    field: Floats, counts: NDArray[np.int64], *, with_mean: bool = True
) -> tuple[Floats, Floats]:
    """Return ``log sum_c exp(field n_c)`` of every state, and the mean of ``n_c`` in that sum.

    Colours come first in ``counts``, so that sums over them are sums of whole arrays.
    """
    if len(counts) == 2:
        # of both spins, in a third of the time: half the sum, and log(2 cosh) of half the gap
        half, gap = 0.5 * (counts[0] + counts[1]), np.abs(counts[1] - counts[0]).astype(float)
        rest = gap * -field
        np.exp(rest, out=rest)
        gap *= 0.5
        mean = half + gap * ((1.0 - rest) / (1.0 + rest)) if with_mean else half
        rest += 1.0
        gap += half
        gap *= field
        gap += np.log(rest, out=rest)
        return gap, mean
    most = counts.max(axis=0)
    weight = (counts - most).astype(float)
    weight *= field
    np.exp(weight, out=weight)
    total = weight.sum(axis=0)
    log_sum: Floats = field * most + np.log(total)
    if not with_mean:
        return log_sum, total
    weight *= counts
    return log_sum, weight.sum(axis=0) / total
