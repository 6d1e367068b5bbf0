"""Simulated tempering of a machine whose parameters change."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.contracts import Path
from pm_evidence.core.numerics import log_sum_exp
from pm_evidence.core.random import streams, uniforms
from pm_evidence.families.rbm.gibbs import BlockGibbs, log_densities
from pm_evidence.families.rbm.moment_average import Machine
from pm_evidence.families.rbm.state import Units, unpack
from pm_evidence.training.parameters import Parameters

Floats = NDArray[np.float64]


_KERNEL = BlockGibbs()
# Mean probabilities below this are rounded up to it, so that their logs are finite.
_LEAST = 1e-250
# A chain with more weight than this has no other chains to compare with.
_MOST_WEIGHT = 0.9


@dataclass(frozen=True)
class Ladder:
    """Inverse temperatures, and the prior over them."""

    beta: Floats  # shape (n_temperatures,): rising from 0 to 1
    # shape (n_temperatures,): log probabilities ``log r_k`` of the prior, in nats
    log_prior: Floats

    @classmethod
    def even(cls, n_temperatures: int, slope: float) -> Self:
        """Return even steps, and a prior in proportion to ``exp(slope * beta)``."""
        beta = np.linspace(0.0, 1.0, n_temperatures)
        return cls(beta, slope * beta - log_sum_exp(slope * beta))

    def probabilities(self, energy: Floats, log_z: Floats) -> Floats:
        """Return the probabilities of all temperatures given states (Carlson et al., Eq. 7)."""
        found = (self.log_prior - log_z) - energy[:, None] * self.beta
        found -= found.max(axis=1, keepdims=True)
        np.exp(found, out=found)
        found /= found.sum(axis=1, keepdims=True)
        return found


@dataclass(frozen=True)
class Visits:
    """What chains saw in some sweeps."""

    # shape (n_temperatures,): mean probability of every temperature over sweeps and chains: ``c_k``
    # of Carlson et al
    share: Floats
    # shape (n, 2): mean over the sweeps of the probabilities of the first and the last temperature,
    # for each chain
    ends: Floats

    def log_ratio(self, ladder: Ladder) -> Floats:
        """Return ``log(r_1 c_k / (r_k c_1))``, shape (n_temperatures,), in nats: Eq. 12."""
        ratio = np.log(np.maximum(self.share, _LEAST)) - ladder.log_prior
        found: Floats = ratio - ratio[0]
        return found

    def influence(self) -> Floats:
        """Return how much each chain contributes to the last log ratio, shape (n,), in nats.

        The mean is 0. The chains are independent of each other, so that the scatter gives the error
        of the estimate (Carlson et al., Eq. 16), also if the sweeps of a chain are correlated.
        """
        first, last = np.maximum(self.ends, _LEAST).T
        found: Floats = last / last.mean() - first / first.mean()
        return found


@dataclass(frozen=True)
class TrainingChains:
    """Chains that move between temperatures."""

    ladder: Ladder  # inverse temperatures, and the prior over them
    state: Units  # states of both layers, ``n`` of them
    rung: NDArray[np.int64]  # shape (n,): number of the temperature of each chain
    streams: NDArray[np.uint64]  # shape (n, 4): streams of the chains, which advance in place
    # shape (n, n_temperatures): probabilities of all temperatures given the states
    probability: Floats

    @classmethod
    def start(cls, path: Path, ladder: Ladder, n: int, seed: np.random.SeedSequence) -> Self:
        """Return ``n`` chains that start at independent draws of the reference."""
        draw_seed, chain_seed = seed.spawn(2)
        n_temperatures = len(ladder.beta)
        even = np.full((n, n_temperatures), 1.0 / n_temperatures)
        state, rung = path.draw(n, draw_seed), np.zeros(n, np.int64)
        return cls(ladder, state, rung, streams(chain_seed, n), even)

    def at_random(self) -> Self:
        """Return the chains at fresh temperatures, each as probable as any other."""
        draws = uniforms(self.streams, 1)[:, 0]
        return replace(self, rung=(draws * len(self.ladder.beta)).astype(np.int64))

    def moved(
        self, path: Path, log_z: Floats, n_sweeps: int, n_ignored: int = 0
    ) -> tuple[Self, Visits]:
        """Return the chains after some sweeps, and what they saw."""
        state, rung, probability = self.state, self.rung, self.probability
        share, ends = np.zeros(len(log_z)), np.zeros((len(state), 2))
        for sweep in range(-n_ignored, n_sweeps):
            beta = self.ladder.beta[rung]
            state, _ = _KERNEL.advance_each(path, state, beta, self.streams)
            probability = self.ladder.probabilities(path.energy(state, 1.0), log_z)
            rung = _drawn(probability, uniforms(self.streams, 1))
            if sweep >= 0:
                share += probability.mean(axis=0)
                ends += probability[:, [0, -1]]
        chains = replace(self, state=state, rung=rung, probability=probability)
        return chains, Visits(share / n_sweeps, ends / n_sweeps)

    def weights(self) -> Floats:
        """Return weights of the states for averages over the machine; they sum to 1."""
        weight: Floats = self.probability[:, -1] / self.probability[:, -1].sum()
        return weight

    def change(self, step: Machine, of_itself: Floats | float = 0.0) -> tuple[Floats, Floats]:
        """Return how log Z changes with the parameters, by importance sampling."""
        d = log_densities(step.layers(), self.state.layers) - of_itself
        weight = np.maximum(self.probability, _LEAST)
        weight /= weight.sum(axis=0)
        size = float(np.abs(d).max())  # largest exponent
        factor = np.exp(np.outer(d, self.ladder.beta) - size * self.ladder.beta)
        mean = (weight * factor).sum(axis=0)
        change: Floats = np.log(mean) + size * self.ladder.beta
        influence = len(d) * weight[:, -1] * (factor[:, -1] / mean[-1] - 1.0)
        return change, influence

    def own_part(self, parameters: Parameters, rate: float) -> Floats:
        """Return what each state contributed to the change of its own log density in an update.

        An update moves the parameters away from the states that it takes for the model: the log
        density ``x'theta`` of state ``i`` changes by ``-rate * w_i * x_i'g_i`` because of its own
        statistics ``g_i``. Such changes are no part of the change of log Z, to which every state
        would contribute with the same sign. The mean without state ``i`` is ``(g - w_i g_i) / (1 -
        w_i)`` with the mean ``g`` of all, so that the difference is ``rate * w_i / (1 - w_i) *
        x_i'(g - g_i)``.
        """
        visible, weight = self.visible(), self.weights()
        hidden = unpack(self.state.layers[1], self.state.sizes[1])
        both = (parameters.hidden_probability(visible) * hidden).sum(axis=1)
        n_on = visible.sum(axis=1)
        of_own = n_on + both + n_on * both
        mean = parameters.moments(visible, weight.astype(np.float32))
        of_mean = log_densities(mean.layers(), self.state.layers)
        share = np.minimum(weight, _MOST_WEIGHT)
        found: Floats = rate * share / (1.0 - share) * (of_mean - of_own)
        return found

    def visible(self) -> NDArray[np.float32]:
        """Return the visible units of the chains, shape (n, n_visible)."""
        return unpack(self.state.layers[0], self.state.sizes[0]).astype(np.float32)


def _drawn(probability: Floats, uniform: Floats) -> NDArray[np.int64]:
    """Return an index for each row of probabilities, given uniform numbers of shape (n, 1)."""
    reached = np.cumsum(probability, axis=1)
    rung: NDArray[np.int64] = (reached < uniform * reached[:, -1:]).sum(axis=1)
    return rung
