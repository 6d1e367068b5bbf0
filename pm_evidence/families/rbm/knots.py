"""Machines between independent units and a target whose moments are averages of those of both."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.random import streams
from pm_evidence.families.rbm.gibbs import BlockGibbs, draw_layers
from pm_evidence.families.rbm.layers import Layer, layer_of
from pm_evidence.families.rbm.path import BaseRatePath
from pm_evidence.families.rbm.state import pack, unpack

__all__ = ["Machine", "averaged_machines"]

Floats = NDArray[np.float64]

_CHAINS = 256
_SWEEPS, _STAGES = 100, 1000  # that bring states of data, or of the reference, to the target
_RATE = 0.05  # of the first update; it falls linearly to zero


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
    from the training data after some Gibbs sampling, or from a short annealing run. The parameters
    of each knot are fitted by persistent contrastive divergence, and do not depend on the seed of a
    run. Work is exact however well the moments fit.
    """
    rates, split = target.base_rates, target.n_visible
    first = Machine(np.zeros_like(target.W), *np.split(target.base_bias, [split]))
    last = Machine(target.W, target.visible_bias, target.hidden_bias)
    start = Machine(np.outer(rates[:split], rates[split:]), rates[:split], rates[split:])
    end = _moments(_states_of(target), split)
    knots = [first]
    for k in range(1, n_knots + 1):
        share = k / (n_knots + 1)
        wanted = start.between(end, share)
        knots.append(_fitted(first.between(last, share), wanted, n_updates, seed=k))
    return (*knots, last)


def _states_of(target: Any) -> NDArray[np.uint8]:
    """Return states near the distribution of the target, one for each chain."""
    draw_seed, chain_seed = np.random.SeedSequence(0).spawn(2)
    path, chains = BaseRatePath(target), streams(chain_seed, _CHAINS)
    if target.data is not None:
        state = path.at(target.states_from_data(_CHAINS, np.random.default_rng(draw_seed)))
        beta = np.ones(_SWEEPS)
    else:
        state = path.draw(_CHAINS, draw_seed)
        beta = np.linspace(0.0, 1.0, _STAGES + 1)[1:]
    return BlockGibbs().advance_many(path, state, beta, chains).state.to_draws()


def _moments(draws: NDArray[Any], split: int) -> Machine:
    """Return means of units and of their products over both layers, in the place of parameters."""
    v, h = np.split(draws.astype(np.float32), [split], axis=1)
    means = (x.mean(axis=0, dtype=np.float64) for x in (v, h))
    return Machine((v.T @ h).astype(np.float64) / len(v), *means)


def _fitted(machine: Machine, wanted: Machine, n_updates: int, seed: int) -> Machine:
    """Return a machine with the moments that are wanted, from one nearby."""
    draw_seed, chain_seed = np.random.SeedSequence(seed).spawn(2)
    split, n_units = len(machine.visible_bias), sum(machine.W.shape)
    rates = np.append(wanted.visible_bias, wanted.hidden_bias)
    draws = np.random.default_rng(draw_seed).random((_CHAINS, n_units)) < rates
    units = pack(draws[:, :split]), pack(draws[:, split:])
    chains, found = streams(chain_seed, _CHAINS), np.empty((1, 2, _CHAINS))
    for rate in _rates(n_updates):
        draw_layers(machine.layers(), units, np.ones((1, 1)), BlockGibbs(), chains, found)
        states = np.hstack([unpack(units[0], split), unpack(units[1], n_units - split)])
        machine = machine.plus(wanted.plus(_moments(states, split), -1.0), rate)
    return machine


def _rates(n_updates: int) -> Iterator[float]:
    """Yield the learning rates of the updates."""
    for k in range(n_updates):
        yield _RATE * (1.0 - k / n_updates)
