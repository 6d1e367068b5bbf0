"""A chain of spins that is built spin by spin, with an exact normalising constant."""

from dataclasses import dataclass, replace

import numpy as np

import pm_evidence as pe
from pm_evidence.core.contracts import AnnealingSetup, MoveInfo
from pm_evidence.core.random import uniforms
from pm_evidence.kernels.cycle import Grows
from pm_evidence.paths.growing import GrowingPath


@dataclass(frozen=True)
class Spins:
    """Spins of -1 and 1, shape (n, step)."""

    x: np.ndarray

    @property
    def step(self):
        return self.x.shape[1]

    def __len__(self):
        return len(self.x)

    def take(self, index):
        return Spins(self.x[index])

    def join(self, others):
        return Spins(np.concatenate([self.x, *(other.x for other in others)]))

    def to_draws(self):
        return self.x


@dataclass(frozen=True)
class ChainPath(GrowingPath):
    """``f_k(x) = exp(sum_i field_i x_i + coupling_i x_{i - 1} x_i)`` over the first k spins."""

    target: "Chain"

    @property
    def n_steps(self):
        return len(self.target.field)

    def draw(self, n, seed):
        return Spins(np.empty((n, 0)))

    def at(self, draws):
        return Spins(np.asarray(draws, dtype=float))

    def local(self, state):
        k = state.step
        return self.target.field[k] + (self.target.coupling[k] * state.x[:, -1] if k else 0.0)

    def smoothed(self, state):
        return np.logaddexp(self.local(state), -self.local(state)) + np.zeros(len(state))

    def extended(self, state, streams):
        up = uniforms(streams, 1)[:, 0] < 1.0 / (1.0 + np.exp(-2.0 * self.local(state)))
        return Spins(np.column_stack([state.x, np.where(up, 1.0, -1.0)]))

    def shrunk(self, state):
        return Spins(state.x[:, :-1])


@dataclass(frozen=True)
class Gibbs:
    """One sweep over the spins."""

    backwards: bool = False
    does_nothing: bool = False

    def advance(self, path, state, beta, streams):
        x, k = state.x.copy(), state.step
        field, coupling = path.target.field, path.target.coupling
        for i in range(k)[:: -1 if self.backwards else 1]:
            local = field[i] + (coupling[i] * x[:, i - 1] if i else 0.0)
            local = local + (coupling[i + 1] * x[:, i + 1] if i + 1 < k else 0.0)
            up = uniforms(streams, 1)[:, 0] < 1.0 / (1.0 + np.exp(-2.0 * local))
            x[:, i] = np.where(up, 1.0, -1.0)
        if self.does_nothing:
            x = state.x
        return Spins(x), MoveInfo(1.0, len(x))

    def reversed(self):
        return replace(self, backwards=not self.backwards)

    def settings(self):
        return {}


class Chain(pe.extending.NativeTarget):
    """A chain of spins; ``moves`` are made after every spin that is added."""

    def __init__(self, field, coupling, moves=None):
        self.field, self.coupling = np.asarray(field, float), np.asarray(coupling, float)
        self.n_dim, self.moves = len(self.field), moves or Gibbs()

    def annealing_setup(self, kernel):
        return AnnealingSetup(
            ChainPath(self), Grows(self.moves), n_stages=self.n_dim, stepwise=True
        )

    @property
    def log_z(self):
        """Exact, by the transfer matrix."""
        spins = np.array([-1.0, 1.0])
        message = self.field[0] * spins
        for field, coupling in zip(self.field[1:], self.coupling[1:], strict=True):
            terms = message[:, None] + coupling * spins[:, None] * spins + field * spins
            message = np.logaddexp.reduce(terms, axis=0)
        return float(np.logaddexp.reduce(message))


def chain(n=12, strength=0.8, seed=1, **options):
    rng = np.random.default_rng(seed)
    return Chain(rng.normal(size=n), np.r_[0.0, strength * rng.normal(size=n - 1)], **options)
