"""Machines between independent units and a target whose moments are averages of those of both."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.contracts import Plan
from pm_evidence.core.random import streams
from pm_evidence.families.rbm.gibbs import BlockGibbs, draw_layers
from pm_evidence.families.rbm.layers import Layer, layer_of
from pm_evidence.families.rbm.path import BaseRatePath
from pm_evidence.families.rbm.state import pack, unpack
from pm_evidence.samplers.smc import SMC

__all__ = ["Machine", "averaged_machines"]

Floats = NDArray[np.float64]

_CHAINS = 512
# The population that ends at the target, and the stages and sweeps that bring it there.
_PARTICLES, _STAGES, _SWEEPS = 1024, 200, 5
# Learning rate of the centred updates. It is constant during the first half of them, and falls to
# zero during the second one.
_RATE = 0.2


@dataclass(frozen=True)
class Machine:
    """The parameters of a machine on a path.

    Parameters
    ----------
    W : ndarray, shape (n_visible, n_hidden)
    visible_bias, hidden_bias : ndarray, shape (n_visible,) and (n_hidden,)
    """

    W: Floats
    visible_bias: Floats
    hidden_bias: Floats

    def plus(self, other: "Machine", factor: float = 1.0) -> "Machine":
        """Return the machine whose parameters are sums with ``factor`` times those of another."""
        return Machine(
            self.W + factor * other.W,
            self.visible_bias + factor * other.visible_bias,
            self.hidden_bias + factor * other.hidden_bias,
        )

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

    Parameters
    ----------
    target : RBM
        The machine at the end; its reference is the first one.
    n_knots : int
        Number of knots between the ends.
    n_updates : int
        Updates of the parameters of each knot.

    Notes
    -----
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
    last = Machine(target.W, target.visible_bias, target.hidden_bias)
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
    for rate in _rates(n_updates):
        draw_layers(machine.layers(), units, np.ones((1, 1)), BlockGibbs(), chains, found)
        states = np.hstack([unpack(units[0], split), unpack(units[1], n_units - split)])
        missing = wanted.plus(_moments(states, split), -1.0)
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


def _rates(n_updates: int) -> Iterator[float]:
    """Yield the learning rates of the updates."""
    for k in range(n_updates):
        yield _RATE * min(1.0, 2.0 * (1.0 - k / n_updates))
