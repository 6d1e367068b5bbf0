"""Machines whose parameters change: gradients in training, and simulated tempering with log Z."""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.contracts import Path
from pm_evidence.core.exceptions import NumericalError
from pm_evidence.core.numerics import log_sum_exp
from pm_evidence.core.random import streams, uniforms
from pm_evidence.families.rbm.gibbs import BlockGibbs, log_densities
from pm_evidence.families.rbm.moment_average import Machine
from pm_evidence.families.rbm.state import Units, unpack
from pm_evidence.families.rbm.target import LARGEST, RBM

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]


# Standard deviation of the first weights (Hinton 2010, section 8).
_FIRST_SD = 0.01


@dataclass(frozen=True)
class Parameters:
    """Parameters in single precision, which an update overwrites."""

    weights: Singles  # shape (n_visible, n_hidden)
    visible: Singles  # shape (n_visible,)
    hidden: Singles  # shape (n_hidden,)

    @classmethod
    def first(cls, data: NDArray[np.uint8], n_hidden: int, rng: np.random.Generator) -> Self:
        """Return the parameters before the first update."""
        n_rows, n_visible = data.shape
        ones = data.sum(axis=0, dtype=np.int64) + 0.5  # finite log odds of units that never change
        return cls(
            rng.normal(0.0, _FIRST_SD, size=(n_visible, n_hidden)).astype(np.float32),
            np.log(ones / (n_rows + 1.0 - ones)).astype(np.float32),
            np.zeros(n_hidden, np.float32),
        )

    @classmethod
    def of(cls, machine: RBM) -> Self:
        """Return the parameters of a machine."""
        parameters = machine.W, machine.visible_bias, machine.hidden_bias
        return cls(*(x.astype(np.float32) for x in parameters))

    def machine(self, **options: Any) -> RBM:
        """Return a machine with these parameters, in double precision."""
        W, a, b = (x.astype(np.float64) for x in self.arrays)
        return RBM(W, a, b, **options)

    @property
    def arrays(self) -> tuple[Singles, Singles, Singles]:
        """Weights, visible and hidden biases."""
        return self.weights, self.visible, self.hidden

    def hidden_probability(self, v: Singles) -> Singles:
        """Return the probabilities of hidden units, shape ``(n, n_hidden)``."""
        probability: Singles = 1.0 / _inverse_probability(v @ self.weights + self.hidden)
        return probability

    def gibbs(self, v: Singles, steps: int, rng: np.random.Generator) -> Singles:
        """Return visible units after steps that draw all hidden and then all visible units."""
        for _ in range(steps):
            h = bernoulli(v @ self.weights + self.hidden, rng)
            v = bernoulli(h @ self.weights.T + self.visible, rng)
        return v

    def moments(self, v: Singles, weights: Singles | None = None) -> "Parameters":
        """Return means of ``v h'``, ``v`` and ``h``, in the place of the parameters they belong to.

        Hidden units enter with their probabilities.
        """
        h = self.hidden_probability(v)
        if weights is None:
            products: Singles = v.T @ h
            products /= np.float32(len(v))
            return Parameters(products, v.mean(axis=0), h.mean(axis=0))
        weighted: Singles = weights[:, None] * v
        return Parameters(weighted.T @ h, weights @ v, weights @ h)

    def gradient(
        self, batch: Singles, drawn: Singles, weights: Singles | None = None
    ) -> "Parameters":
        """Return the estimated gradient of the mean log likelihood, in nats."""
        data, model = self.moments(batch), self.moments(drawn, weights)
        return Parameters(
            data.weights - model.weights, data.visible - model.visible, data.hidden - model.hidden
        )

    def climb(self, gradient: "Parameters", rate: float, weight_decay: float) -> None:
        """Add a gradient times a step size, and shrink the weights."""
        weights, step = self.weights, np.float32(rate)
        if weight_decay:
            weights *= np.float32(1.0 - rate * weight_decay)
        for own, change in zip(self.arrays, gradient.arrays, strict=True):
            own += step * change

    def check(self, done: int, learning_rate: float) -> None:
        """Raise NumericalError if a parameter is not finite, or too large for a machine."""
        if not all((np.abs(x) <= LARGEST).all() for x in self.arrays):
            raise NumericalError(
                f"learning_rate must be small enough to keep the weights below {LARGEST:g} nats, "
                f"got {learning_rate:g}, with which they are not after {done} updates; pass a "
                "smaller one."
            )


def _inverse_probability(field: Singles) -> Singles:
    """Return ``1 + exp(-field)``, in place; infinite where a probability underflows."""
    np.negative(field, out=field)
    with np.errstate(over="ignore"):
        np.exp(field, out=field)
    field += np.float32(1.0)
    return field


def bernoulli(field: Singles, rng: np.random.Generator) -> Singles:
    """Return units that are 1 with the probabilities ``1 / (1 + exp(-field))``, in place."""
    n = field.size
    # two uniform numbers from 64 bits: four times as fast as random(dtype=float32); their offset
    # keeps an infinite inverse probability from being multiplied by zero
    words = rng.integers(0, 2**64, size=(n + 1) // 2, dtype=np.uint64).view(np.uint32)[:n]
    uniform = words.reshape(field.shape).astype(np.float32)
    uniform += np.float32(0.5)
    uniform *= np.float32(2.0**-32)
    uniform *= _inverse_probability(field)
    np.less(uniform, np.float32(1.0), out=field)
    return field


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
class TemperedChains:
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
        of_mean = log_densities(
            Machine(*(x.astype(np.float64) for x in mean.arrays)).layers(), self.state.layers
        )
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
