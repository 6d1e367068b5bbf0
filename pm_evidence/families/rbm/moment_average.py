"""The moment-averaged path of restricted Boltzmann machines, and the kernel that moves along it."""

from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from math import floor
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_count, described
from pm_evidence.core.contracts import MoveInfo, Plan
from pm_evidence.core.digest import kept
from pm_evidence.core.random import streams
from pm_evidence.families.native import OrderedKernel
from pm_evidence.families.rbm.gibbs import (
    BaseRatePath,
    BlockGibbs,
    Layer,
    LogDensities,
    Units,
    blended,
    draw_layers,
    layer_of,
    log_densities,
    pack,
    unpack,
)
from pm_evidence.samplers.smc import SMC

Floats = NDArray[np.float64]


_CHAINS = 512
# The population that ends at the target, and the stages and sweeps that bring it there.
_PARTICLES, _STAGES, _SWEEPS = 1024, 200, 5
# Learning rate of the centred updates. It is constant during the first half of them, and falls to
# zero during the second one.
_RATE = 0.2


@dataclass(frozen=True)
class Machine:
    """The parameters of a machine on a path."""

    W: NDArray[Any]  # shape (n_visible, n_hidden)
    visible_bias: NDArray[Any]  # shape (n_visible,)
    hidden_bias: NDArray[Any]

    @classmethod
    def of(cls, machine: Any, dtype: Any = np.float64) -> Self:
        """Return the parameters of a machine."""
        parameters = machine.W, machine.visible_bias, machine.hidden_bias
        return cls(*(x.astype(dtype) for x in parameters))

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """Weights, visible and hidden biases."""
        return self.W, self.visible_bias, self.hidden_bias

    def plus(self, other: "Machine", factor: float = 1.0) -> "Machine":
        """Return the machine whose parameters are sums with ``factor`` times those of another."""
        pairs = zip(self.arrays, other.arrays, strict=True)
        return Machine(*(own + factor * more for own, more in pairs))

    def between(self, other: "Machine", share: float) -> "Machine":
        """Return the machine at a share of the geometric path to another one."""
        return self.plus(other.plus(self, -1.0), share)

    def layers(self) -> tuple[Layer, Layer]:
        """Return visible and hidden layer, as compiled code reads them."""
        visible, hidden = np.zeros_like(self.visible_bias), np.zeros_like(self.hidden_bias)
        return (
            layer_of(self.W.T, self.visible_bias, visible),
            layer_of(self.W, self.hidden_bias, hidden),
        )

    def log_density(self, draws: NDArray[Any]) -> Floats:
        """Return the unnormalised log density of states of both layers, in nats."""
        v, h = np.split(np.asarray(draws, float), [len(self.visible_bias)], axis=1)
        linear = v @ self.visible_bias + h @ self.hidden_bias
        density: Floats = linear + np.einsum("ij,ij->i", v @ self.W, h)
        return density


def averaged_machines(target: Any, n_knots: int, n_updates: int) -> tuple[Machine, ...]:
    """Return the machines at the knots of a moment-averaged path, both ends included.

    The moments of the knots, means of ``v``, ``h`` and ``v h'``, lie evenly between those of the
    reference and of the target (Grosse, Maddison and Salakhutdinov 2013). Those of the target come
    from a population that is annealed with resampling, so that modes have nearly their shares.
    States from the data would not do: the modes of a machine differ from its data. A mixture of
    draws from both ends has the moments that are wanted. So the chains of each knot are those of
    the knot before, of which some are replaced by states of the target, and its parameters, which
    start as far on the way from that knot to the target, are fitted by persistent contrastive
    divergence. Nothing depends on the seed of a run. Work is exact however well the moments fit.
    """
    rates, split = target.base_rates, target.n_visible
    first = Machine(np.zeros_like(target.W), *np.split(target.base_bias, [split]))
    last = Machine.of(target)
    states = _states_of(target)
    start = Machine(np.outer(rates[:split], rates[split:]), rates[:split], rates[split:])
    end = _moments(states, split)
    draw_seed, chain_seed = np.random.SeedSequence(1).spawn(2)
    rng, chains = np.random.default_rng(draw_seed), streams(chain_seed, _CHAINS)
    population = (rng.random((_CHAINS, len(rates))) < rates).astype(np.uint8)
    knots = [first]
    for k in range(1, n_knots + 1):
        share = 1 / (n_knots + 2 - k)  # of the way from the last knot to the target
        replaced = rng.permutation(_CHAINS)[: round(share * _CHAINS)]
        population[replaced] = states[rng.permutation(_PARTICLES)[: len(replaced)]]
        wanted, nearby = start.between(end, k / (n_knots + 1)), knots[-1].between(last, share)
        machine, population = _fitted(nearby, wanted, population, n_updates, chains)
        knots.append(machine)
    return (*knots, last)


def _states_of(target: Any) -> NDArray[np.uint8]:
    """Return states near the distribution of the target, shape ``(_PARTICLES, n_units)``."""
    beta = np.linspace(0.0, 1.0, _STAGES + 1)
    plan = Plan(beta, (BlockGibbs(_SWEEPS),) * _STAGES)
    sampler = SMC(chain_length=1, resample_below=0.5)
    block = sampler.run_block(BaseRatePath(target), plan, 0, _PARTICLES, seed=0)
    return np.asarray(block.draws, np.uint8)


def _moments(draws: NDArray[Any], split: int) -> Machine:
    """Return means of units and of their products over both layers, in the place of parameters."""
    v, h = np.split(draws.astype(np.float32), [split], axis=1)
    means = (x.mean(axis=0, dtype=np.float64) for x in (v, h))
    return Machine((v.T @ h).astype(np.float64) / len(v), *means)


def _fitted(
    machine: Machine,
    wanted: Machine,
    states: NDArray[np.uint8],
    n_updates: int,
    chains: NDArray[np.uint64],
) -> tuple[Machine, NDArray[np.uint8]]:
    """Return a machine with the moments that are wanted, from one nearby, and its chains."""
    split, n_units = len(machine.visible_bias), sum(machine.W.shape)
    units, found = (pack(states[:, :split]), pack(states[:, split:])), np.empty((1, 2, len(states)))
    for k in range(n_updates):
        draw_layers(machine.layers(), units, np.ones((1, 1)), BlockGibbs(), chains, found)
        states = np.hstack([unpack(units[0], split), unpack(units[1], n_units - split)])
        missing = wanted.plus(_moments(states, split), -1.0)
        rate = _RATE * min(1.0, 2.0 * (1.0 - k / n_updates))
        machine = machine.plus(_centred(missing, wanted), rate)
    return machine, states


def _centred(gradient: Machine, means: Machine) -> Machine:
    """Return the step of parameters that multiply units less their means.

    Melchior, Fischer and Wiskott (2016), "How to center deep Boltzmann machines". Such parameters
    depend less on each other, so that a fit takes fewer updates.
    """
    v, h = means.visible_bias, means.hidden_bias
    W = gradient.W - np.outer(gradient.visible_bias, h) - np.outer(v, gradient.hidden_bias)
    return Machine(W, gradient.visible_bias - W @ h, gradient.hidden_bias - v @ W)


_MOST_KNOTS, _MOST_UPDATES = 1000, 1_000_000


@dataclass(frozen=True, slots=True)
class SegmentUnits(Units):
    """A population with its log densities at both ends of one segment of the path."""

    # Number of the segment; ``log_density.base`` belongs to its first end and
    # ``log_density.target`` to its second one
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
                "target must be a pe.rbm.RBM with latent='full' on a moment-averaged path, got "
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
class SegmentGibbs(OrderedKernel):
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
        units = state.copy().layers
        found = np.empty((1, 2, len(state)))
        draw_layers(layers, units, np.ones((1, 1)), self, streams, found)
        slope = log_densities(path.slopes[segment], units)
        ends = found[0, 0] - share * slope, found[0, 0] + (1.0 - share) * slope
        constant = path.log_base_z if segment == 0 else 0.0
        log_density = LogDensities(ends[1], ends[0] - constant)
        moved = SegmentUnits(units, state.sizes, log_density, segment)
        return moved, MoveInfo(1.0, 2 * len(state) * self.n_sweeps)
