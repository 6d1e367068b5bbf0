"""The moment-averaged path of restricted Boltzmann machines, and the kernel that moves along it."""

from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from math import floor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_count, described
from pm_evidence.core.contracts import MoveInfo
from pm_evidence.core.kept import kept
from pm_evidence.families.rbm.gibbs import draw_layers, log_densities
from pm_evidence.families.rbm.knots import Machine, averaged_machines
from pm_evidence.families.rbm.layers import Layer, blended
from pm_evidence.families.rbm.path import BaseRatePath
from pm_evidence.families.rbm.state import LogDensities, Units
from pm_evidence.families.sweep_settings import SweepSettings

__all__ = ["MomentAveragedPath", "SegmentGibbs"]

Floats = NDArray[np.float64]

_MOST_KNOTS, _MOST_UPDATES = 1000, 1_000_000


@dataclass(frozen=True, slots=True)
class SegmentUnits(Units):
    """A population with its log densities at both ends of one segment of the path.

    Parameters
    ----------
    segment : int
        Number of the segment; ``log_density.base`` belongs to its first end and
        ``log_density.target`` to its second one.
    """

    segment: int = 0


@dataclass(frozen=True)
class MomentAveragedPath:
    """A path through machines whose moments are averages, geometric between these knots.

    Parameters
    ----------
    target : RBM
        The machine, with ``latent="full"``.
    n_knots : int
        Number of knots between reference and target.
    n_updates : int
        Number of updates with which each of them is fitted.

    Raises
    ------
    ValueError
        If a layer is summed out, or a number is not positive.

    Notes
    -----
    Grosse, Maddison and Salakhutdinov (2013), "Annealing between distributions by averaging
    moments", with a spline of geometric pieces. Knots are evenly spaced in ``beta``. Work is exact
    whatever the parameters of the knots are.
    """

    target: Any
    n_knots: int = 9
    n_updates: int = 300

    def __post_init__(self) -> None:
        check_count("n_knots", self.n_knots, 1, _MOST_KNOTS)
        check_count("n_updates", self.n_updates, 1, _MOST_UPDATES)
        if getattr(self.target, "latent", None) != "full":
            raise ValueError(
                "target must be a pe.RBM with latent='full' on a moment-averaged path, got "
                f"{described(self.target)}; leave path out."
            )

    @cached_property
    def machines(self) -> tuple[Machine, ...]:
        """The machines at the knots, both ends included."""
        fit = partial(averaged_machines, self.target, self.n_knots, self.n_updates)
        found: tuple[Machine, ...] = kept("machines", fit)
        return found

    @cached_property
    def layers(self) -> tuple[tuple[Layer, Layer], ...]:
        """Visible and hidden layer of every machine, as compiled code reads them."""
        return tuple(machine.layers() for machine in self.machines)

    @cached_property
    def slopes(self) -> tuple[tuple[Layer, Layer], ...]:
        """Layers whose parameters are the differences between the ends of each segment."""
        return tuple(last.plus(first, -1.0).layers() for first, last in pairwise(self.machines))

    def learn(self) -> None:
        """Fit the machines, unless that has been done, before several threads ask for them."""
        _ = self.layers, self.slopes

    @property
    def log_base_z(self) -> float:
        """Log of the normalising constant of the reference, in nats."""
        return BaseRatePath(self.target).log_base_z

    def place(self, beta: float) -> tuple[int, float]:
        """Return the segment of an inverse temperature, and its share of the way there."""
        position = beta * (self.n_knots + 1)
        segment = min(floor(position), self.n_knots)
        return segment, position - segment

    def draw(self, n: int, seed: np.random.SeedSequence) -> SegmentUnits:
        """Return ``n`` independent states of independent units."""
        return self.at(BaseRatePath(self.target).draw(n, seed).to_draws())

    def at(self, draws: NDArray[Any], segment: int = 0) -> SegmentUnits:
        """Return the population of some states, shape ``(n, n_visible + n_hidden)``."""
        units = BaseRatePath(self.target).at(draws)
        first, last = (self._log_density(draws, k) for k in (segment, segment + 1))
        return SegmentUnits(units.layers, units.sizes, LogDensities(last, first), segment)

    def log_ratio(self, state: SegmentUnits, start: float, stop: float) -> Floats:
        """Return the change of the log density between two inverse temperatures."""
        return self._at(state, stop) - self._at(state, start)

    def energy(self, state: SegmentUnits, beta: float) -> Floats:
        """Return minus the derivative of the log density by beta, shape ``(n,)``, in nats."""
        ends = self._ends(state, self.place(beta)[0])
        return (self.n_knots + 1) * (ends.base - ends.target)

    def order(self, state: SegmentUnits) -> NDArray[np.int64]:
        """Return the order of the log densities at the end of the segment."""
        return np.argsort(state.log_density.target, kind="stable")

    def _at(self, state: SegmentUnits, beta: float) -> Floats:
        segment, share = self.place(beta)
        ends = self._ends(state, segment)
        return (1.0 - share) * ends.base + share * ends.target

    def _ends(self, state: SegmentUnits, segment: int) -> LogDensities:
        """Return the log densities at both ends of a segment."""
        if segment == state.segment:
            return state.log_density
        return self.at(state.to_draws(), segment).log_density

    def _log_density(self, draws: NDArray[Any], knot: int) -> Floats:
        constant = self.log_base_z if knot == 0 else 0.0
        return self.machines[knot].log_density(draws) - constant


@dataclass(frozen=True)
class SegmentGibbs(SweepSettings):
    """Block Gibbs sampling along a path with knots; see ``BlockGibbs``.

    Weights differ from stage to stage, so that stages are moved through one at a time.
    """

    def advance(
        self, path: MomentAveragedPath, state: SegmentUnits, beta: float, streams: Any
    ) -> tuple[SegmentUnits, MoveInfo]:
        """Move every member; see ``contracts.Kernel``."""
        segment, share = path.place(beta)
        first, last = path.layers[segment : segment + 2]
        layers = blended(first[0], last[0], share), blended(first[1], last[1], share)
        units = tuple(words.copy() for words in state.layers)
        found = np.empty((1, 2, len(state)))
        draw_layers(layers, units, np.ones((1, 1)), self, streams, found)
        slope = log_densities(path.slopes[segment], units)
        ends = found[0, 0] - share * slope, found[0, 0] + (1.0 - share) * slope
        constant = path.log_base_z if segment == 0 else 0.0
        log_density = LogDensities(ends[1], ends[0] - constant)
        moved = SegmentUnits(units, state.sizes, log_density, segment)
        return moved, MoveInfo(1.0, 2 * len(state) * self.n_sweeps)
