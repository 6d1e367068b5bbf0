"""Tempered chains on the table of six states, whose distribution at every temperature is known."""

from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from pm_evidence.core.contracts import MoveInfo
from pm_evidence.core.random import streams
from pm_evidence.samplers.simulated_tempering import TemperingPlan
from pm_evidence.samplers.tempering import Chains
from tests.samplers.table import Indices, Step, TablePath, plan_of

BETA = np.array([0.0, 0.3, 0.6, 1.0])
# The largest of some hundred Student statistics with 60 degrees of freedom exceeds this with a
# probability below 1e-4.
MOST_ERRORS = 5.5


def log_z(path=None, beta=BETA):
    """Exact log normalising constants at every temperature."""
    path = path or TablePath()
    return np.array([logsumexp(path.log_density(each)) for each in beta])


def probabilities(path=None, beta=BETA):
    """Probability of every state at every temperature, shape (n_temperatures, n_states)."""
    path = path or TablePath()
    table = np.array([path.log_density(each) for each in beta])
    return np.exp(table - logsumexp(table, axis=1, keepdims=True))


@dataclass(frozen=True)
class EachStep(Step):
    """The step to a neighbour, for members at temperatures of their own."""

    exploring: bool = False

    def advance_each(self, path, state, beta, streams):
        index, n = state.index.copy(), len(state)
        for k in np.unique(beta):
            some = np.flatnonzero(beta == k)
            own = streams[some]
            index[some] = self.advance(path, state.take(some), float(k), own)[0].index
            streams[some] = own
        return Indices(index), MoveInfo(0.5, n, n_nan=1)


class MovesAll(EachStep):
    """One that also moves chains at the reference, as one does that draws independent states."""

    draws_reference = True


@dataclass(frozen=True)
class Stays(Step):
    """A kernel that does nothing."""

    def advance(self, path, state, beta, streams):
        return state, MoveInfo(1.0, len(state))


def energies(state, path=None):
    return (path or TablePath()).energy(state, 1.0)


def stationary(n, seed, path=None, beta=BETA):
    """Exact draws of ``n`` chains at each temperature: their states and temperatures."""
    rng = np.random.default_rng(seed)
    index = [rng.choice(p.size, n, p=p) for p in probabilities(path, beta)]
    rung = np.repeat(np.arange(len(beta)), n).astype(np.int16)
    return Indices(np.concatenate(index)), rung


def chains_of(state, rung, kernel=None, seed=1, path=None, beta=BETA):
    kernels = plan_of(beta, kernel).kernels
    seeds = np.random.SeedSequence(seed).spawn(2)
    own = streams(seeds[0], len(rung))
    return Chains(path or TablePath(), beta, kernels, state, rung.copy(), own, seeds[1])


def tempering_plan(assumed=None, prior=None, kernel=None, beta=BETA):
    """A plan of simulated tempering, with the exact weights by default."""
    n = len(beta)
    return TemperingPlan(
        beta,
        plan_of(beta, kernel).kernels,
        log_z=log_z(beta=beta) if assumed is None else assumed,
        prior=np.full(n, 1.0 / n) if prior is None else prior,
    )


def largest_error(found, expected):
    """Largest distance of the means over rows from what is expected, in standard errors.

    ``found`` has shape ``(n_independent, ...)``. Entries that are equal in all rows must be exact.
    """
    mean, error = found.mean(axis=0), found.std(axis=0, ddof=1) / len(found) ** 0.5
    distance = np.abs(mean - expected)
    assert (distance[error == 0.0] < 1e-12).all()
    return float((distance / np.where(error > 0.0, error, np.inf)).max())
