"""Rao-Blackwellized tempered sampling as in Carlson et al. (2016): Algorithm 1 and section 2.4.

The figures of the paper compare methods at a given number of sweeps, of which every one counts.
``pe.methods.SimulatedTempering`` has its own rules for the length of the initial iterations and of
the burn-in. This module is the procedure of the paper, with given numbers, on the chains and
kernels of the package. The prior over temperatures is uniform.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

import pm_evidence as pe
from pm_evidence.core.contracts import Plan
from pm_evidence.core.random import streams
from pm_evidence.samplers.simulated_tempering import Redraw
from pm_evidence.samplers.tempering import START_MOVES, Chains, annealed_start

Floats = NDArray[np.float64]
Rungs = NDArray[np.int16]
# Returns log f_k(x) - log f_1(x) of the chains, shape (n_chains, n_temperatures), in nats.
LogDensities = Callable[[Chains], Floats]

_PSEUDO_COUNT = 0.1  # of the shares without Rao-Blackwellization: the paper's Fig. 1


@dataclass(frozen=True)
class Iteration:
    """The result of an initial iteration.

    Parameters
    ----------
    log_z : ndarray, shape (n_temperatures,)
        Log normalising constants after the iteration relative to the reference, in nats (Eq. 12).
    log_share : ndarray, shape (n_temperatures,)
        Log of the shares of the temperatures that they come from.
    """

    log_z: Floats
    log_share: Floats

    @property
    def deviation(self) -> float:
        """Largest difference between the shares and the prior, as a multiple of 1 / K."""
        return float(np.abs(np.exp(self.log_share) * len(self.log_share) - 1.0).max())


def new_chains(machine: pe.rbm.RBM, beta: Floats, n_chains: int, seed: Sequence[int]) -> Chains:
    """Return chains that start at draws of the reference."""
    draws, moves, pool = np.random.SeedSequence(seed).spawn(3)
    setup = machine.annealing_setup("auto")
    state = setup.path.draw(n_chains, draws)
    rung = np.zeros(n_chains, np.int16)
    kernels = (setup.kernel,) * (len(beta) - 1)
    return Chains(setup.path, beta, kernels, state, rung, streams(moves, n_chains), pool)


def annealed_chains(
    machine: pe.rbm.RBM, beta: Floats, n_chains: int, seed: Sequence[int]
) -> tuple[Chains, Floats, int]:
    """Return chains that start at states of annealed paths, which are resampled on their way.

    Returns
    -------
    chains : Chains
    log_z : ndarray, shape (n_temperatures,)
        Log normalising constants as the paths estimate them, in nats.
    n_sweeps : int
        Sweeps that every chain has made.
    """
    seeds = tuple(np.random.SeedSequence([*seed, 1]).spawn(2))
    chains = new_chains(machine, beta, n_chains, [*seed, 0])
    plan = Plan(beta, tuple(chains.kernels))
    rung = (np.arange(n_chains) * len(beta) // n_chains).astype(np.int16)
    chosen = [np.zeros((rung == k).sum(), np.int64) for k in range(len(beta))]
    start = annealed_start(chains.path, plan, chosen, 1, n_chains, seeds)
    chains.state, chains.rung = start.state, rung
    return chains, start.log_z[:, 0], START_MOVES * plan.n_stages


def both_layers(chains: Chains) -> Floats:
    """Return log densities of the states of both layers, as the package tempers them."""
    return np.multiply.outer(-chains.energy, chains.beta)


def hidden_summed_out(chains: Chains) -> Floats:
    """Return log densities of the visible units, with the hidden ones summed out.

    Temperatures may be drawn given the visible units alone, if hidden units are drawn next: this is
    what a sweep of block Gibbs sampling begins with.
    """
    path: Any = chains.path
    machine = path.target
    visible = chains.state.to_draws()[:, : machine.n_visible].astype(float)
    inputs = machine.hidden_bias + visible @ machine.W
    out = np.empty((len(visible), len(chains.beta)))
    for k, beta in enumerate(chains.beta):
        out[:, k] = np.logaddexp(0.0, beta * inputs).sum(axis=1)
    out -= out[:, :1]
    slope = visible @ (machine.visible_bias - machine.base_bias[: machine.n_visible])
    return out + np.multiply.outer(slope + path.log_base_z, chains.beta)


def initial_iterations(
    chains: Chains,
    rng: np.random.Generator,
    n_iterations: int = 10,
    n_sweeps: int = 50,
    *,
    log_z: Floats | None = None,
    rao_blackwell: bool = True,
    stochastic: bool = False,
    densities: LogDensities = both_layers,
) -> Iterator[Iteration]:
    """Run the initial iterations of section 2.4, and yield the weights after each.

    In every iteration, chains start at fresh uniform temperatures, with the states that they have.

    Parameters
    ----------
    chains : Chains
        The chains, which move on.
    rng : numpy.random.Generator
        Draws temperatures.
    n_iterations, n_sweeps : int
        Number of iterations, and of sweeps in each.
    log_z : ndarray, shape (n_temperatures,), optional
        Weights before the first iteration; zeros by default, as in the paper.
    rao_blackwell : bool
        Whether the shares of the temperatures are means of their probabilities (Eq. 9), or counts,
        to each of which 0.1 is added.
    stochastic : bool
        Whether iteration ``t`` adds shares over the prior, times ``1 / t`` (stochastic MBAR, Eq.
        19), in place of their logs.
    densities : callable
        The densities that the temperatures are drawn with.
    """
    n = len(chains.beta)
    log_z = np.zeros(n) if log_z is None else log_z
    for t in range(1, n_iterations + 1):
        uniform_temperatures(chains, rng)
        found, counts = [], np.full(n, _PSEUDO_COUNT)
        for _ in range(n_sweeps):
            chains.move()
            log_p = densities(chains) - log_z
            log_p -= logsumexp(log_p, axis=1, keepdims=True)
            found.append(logsumexp(log_p, axis=0))
            cumulative = np.cumsum(np.exp(log_p), axis=1)
            bound = rng.random((len(log_p), 1)) * cumulative[:, -1:]
            chains.rung = (cumulative <= bound).sum(axis=1).astype(np.int16)
            counts += np.bincount(chains.rung, minlength=n)
        log_share = logsumexp(found, axis=0) if rao_blackwell else np.log(counts)
        log_share = log_share - logsumexp(log_share)
        change = np.exp(log_share) * n / t if stochastic else log_share
        log_z = log_z + change - change[0]
        yield Iteration(log_z, log_share)


def uniform_temperatures(chains: Chains, rng: np.random.Generator) -> None:
    """Give every chain a new temperature."""
    chains.rung = rng.integers(len(chains.beta), size=len(chains.rung)).astype(np.int16)


def long_run(
    chains: Chains, log_z: Floats, n_sweeps: int, rng: np.random.Generator
) -> tuple[Floats, Rungs]:
    """Run chains with fixed weights: the loop of Algorithm 1.

    Returns
    -------
    energy : ndarray, shape (n_sweeps, n_chains)
        Energies after each move, in nats.
    rung : ndarray of int16, shape (n_sweeps, n_chains)
        Index of the temperature that is drawn after the move.
    """
    energy = np.empty((n_sweeps, len(chains.rung)))
    rung = np.empty(energy.shape, np.int16)
    redraw = Redraw(chains.beta, -log_z, rng)
    for i in range(n_sweeps):
        chains.move()
        energy[i] = chains.energy
        chains.rung = rung[i] = redraw.changed(chains.rung, energy[i])
    return energy, rung
