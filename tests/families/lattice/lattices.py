"""Exact checks of lattice kernels on lattices so small that all states can be listed."""

from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp
from scipy.stats import chi2

from pm_evidence.core.random import streams
from pm_evidence.families.lattice.target import Ising
from pm_evidence.testing.lattices import enumeration

FALSE_ALARM = 1e-6
_LEAST_EXPECTED = 10.0


@dataclass(frozen=True)
class Listed:
    """A path over states that can be listed."""

    path: object

    def __post_init__(self):
        object.__setattr__(self, "table", enumeration(self.path.target))

    def probability(self, beta):
        log_f = -beta * self.table.energy
        field = self.path.field(beta)
        if field:
            values = (-1, 1) if isinstance(self.path.target, Ising) else range(self.path.target.q)
            flat = self.table.draws.reshape(len(log_f), -1)
            counts = np.stack([(flat == value).sum(axis=1) for value in values], axis=1)
            log_f = log_f + logsumexp(field * counts, axis=1)
        return np.exp(log_f - logsumexp(log_f))

    def population(self, beta, n, seed):
        probability = self.probability(beta)
        index = np.random.default_rng(seed).choice(len(probability), n, p=probability)
        return self.path.at(self.table.draws[index])

    def index(self, state):
        return self.table.index(state.to_draws())


def plain_energy(target, draws):
    """Energies by sums over the axes of the lattice, for the counts of compiled code."""
    energy = np.zeros(len(draws))
    for axis, size in enumerate(target.sizes, start=1):
        end = size if target.periodic else size - 1
        one = np.take(draws, np.arange(end), axis).astype(int)
        other = np.take(draws, (np.arange(end) + 1) % size, axis)
        bonds = one * other if isinstance(target, Ising) else one == other
        energy -= target.coupling * bonds.reshape(len(draws), -1).sum(axis=1)
    return energy - target.field * draws.reshape(len(draws), -1).sum(axis=1, dtype=int)


def fresh_streams(n, seed=7):
    return streams(np.random.SeedSequence(seed), n)


def invariance_p_value(kernel, path, beta, n, seed=1):
    """Return the probability of states so far from the exact ones, after a move of exact draws."""
    listed = Listed(path)
    state = listed.population(beta, n, seed)
    moved, _ = kernel.advance(path, state, beta, fresh_streams(n))
    expected = n * listed.probability(beta)
    counts = np.bincount(listed.index(moved), minlength=len(expected))
    return _p_value(counts, expected, expected)


def reversal_p_value(kernel, path, beta, n, seed=1, every=1):
    """Return the probability of pairs so different forward and in reverse.

    With ``K`` forward and ``R`` its reversal, ``p(x) K(x, y) = p(y) R(y, x)``. Where chains share
    what they do, only one in ``every`` is looked at.
    """
    listed = Listed(path)
    n_states = len(listed.table.energy)
    tables = []
    for k, one in enumerate((kernel, kernel.reversed())):
        state = listed.population(beta, n, seed + k)
        moved, _ = one.advance(path, state, beta, fresh_streams(n, 7 + k))
        before, after = listed.index(state)[::every], listed.index(moved)[::every]
        first, second = (before, after) if k == 0 else (after, before)
        tables.append(np.bincount(first * n_states + second, minlength=n_states**2))
    both = tables[0] + tables[1]
    return _p_value(tables[0] - tables[1], np.zeros(len(both)), both)


def _p_value(counts, expected, variance):
    """Return the tail probability of the sum of squares, rare cells thrown together."""
    rare = variance < _LEAST_EXPECTED
    counts, expected, variance = (
        np.append(values[~rare], values[rare].sum()) for values in (counts, expected, variance)
    )
    kept = variance >= _LEAST_EXPECTED
    statistic = ((counts - expected)[kept] ** 2 / variance[kept]).sum()
    return chi2.sf(statistic, kept.sum() - 1)


def dependence(values):
    """Return ``M Var(mean) / Var`` of independent repeats, shape (repeats, M), and its error.

    It is 1 if the M chains of a repeat are independent.
    """
    repeats, m = values.shape
    ratio = m * values.mean(axis=1).var(ddof=1) / values.var()
    return ratio, np.sqrt(2.0 / (repeats - 1))
