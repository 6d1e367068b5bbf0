"""A path over a handful of states: no PyMC model, and all of it is known exactly."""

from dataclasses import dataclass, field, replace
from typing import Any

import numba as nb
import numpy as np
from scipy.special import logsumexp

from pm_evidence.core.contracts import MoveInfo, Plan
from pm_evidence.core.random import uniform

P = np.array([0.3, 0.25, 0.05, 0.2, 0.15, 0.05])
LOG_LIKELIHOOD = np.array([-4.0, -2.5, 1.5, -1.0, 0.5, -6.0])


@dataclass(frozen=True)
class Indices:
    """A population of states that samplers cannot look into."""

    index: np.ndarray

    def __len__(self):
        return len(self.index)

    def take(self, index):
        return Indices(self.index[index])

    def join(self, others):
        return Indices(np.concatenate([self.index, *(other.index for other in others)]))

    def to_draws(self):
        return self.index.astype(float)[:, None]


@dataclass(frozen=True)
class TablePath:
    p: np.ndarray = field(default_factory=lambda: P)
    log_likelihood: np.ndarray = field(default_factory=lambda: LOG_LIKELIHOOD)

    @property
    def log_evidence(self):
        return float(logsumexp(np.log(self.p) + self.log_likelihood))

    def log_density(self, beta):
        """Prior times likelihood to the power beta, in nats, for every state."""
        return np.log(self.p) + (beta * self.log_likelihood if beta > 0 else 0.0)

    def draw(self, n, seed):
        return Indices(np.random.default_rng(seed).choice(len(self.p), size=n, p=self.p))

    def at(self, x):
        return Indices(np.asarray(x))

    def draw_at(self, beta, n, rng):
        log_f = self.log_density(beta)
        return Indices(rng.choice(len(self.p), size=n, p=np.exp(log_f - logsumexp(log_f))))

    def log_ratio(self, state, start, stop):
        return (stop - start) * self.log_likelihood[state.index]

    def energy(self, state, beta):
        return -self.log_likelihood[state.index]

    def order(self, state):
        return np.argsort(self.log_likelihood[state.index], kind="stable")

    def fit(self, state):
        return None


@nb.njit
def _step(index, log_density, streams):
    n_states, accepted = log_density.size, 0.0
    for i in range(index.size):
        start = log_density[index[i]]
        if not np.isfinite(start):
            continue
        step = 1 if uniform(streams[i]) < 0.5 else -1
        proposal = (index[i] + step) % n_states
        ratio = np.exp(min(log_density[proposal] - start, 0.0))
        accepted += ratio
        if uniform(streams[i]) < ratio:
            index[i] = proposal
    return accepted


@dataclass(frozen=True)
class Step:
    """One Metropolis step to a neighbour on the ring: it mixes slowly, on purpose."""

    scale: float = 1.0
    learnt: int = 0
    exploring: bool = True

    def advance(self, path, state, beta, streams):
        index = state.index.copy()
        accepted = _step(index, path.log_density(beta), streams)
        n = len(index)
        return Indices(index), MoveInfo(accepted / n, n, n_nan=1)

    def learn(self, path, state):
        return replace(self, learnt=self.learnt + 1)

    def adjust(self, info):
        return replace(self, scale=self.scale * 1.5)

    def without_exploration(self):
        return replace(self, exploring=False)

    def reversed(self):
        return self

    def settings(self):
        return {"scale": self.scale}


def plan_of(beta: Any, kernel: Any = None) -> Plan:
    beta = np.asarray(beta, dtype=float)
    return Plan(beta, (kernel or Step(exploring=False),) * (len(beta) - 1))
