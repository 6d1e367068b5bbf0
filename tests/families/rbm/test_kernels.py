"""Block Gibbs and Metropolis leave the path invariant, and their reversals reverse them."""

from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import chisquare

from pm_evidence.core.random import streams
from pm_evidence.families.rbm.gibbs import BaseRatePath, BlockGibbs, UnitMetropolis
from pm_evidence.testing import check_kernel
from tests.families.rbm.machines import bits, sine

KINDS = {"full": BlockGibbs, "marginal": UnitMetropolis, "visible": UnitMetropolis}


def rates(latent, low=0.2):
    return np.linspace(low, 1.0 - low, 12 if latent == "marginal" else 16)


@pytest.mark.parametrize("latent", KINDS)
def test_it_is_a_kernel(latent):
    """Invariance, reversal and streams, by the checks that users have for theirs."""
    path = BaseRatePath(sine(base=rates(latent), latent=latent))
    check_kernel(KINDS[latent](n_sweeps=2), path)


@dataclass(frozen=True)
class Misled(BlockGibbs):
    """A planted error: units are drawn at another inverse temperature."""

    def advance_many(self, path, state, beta, chains):
        return super().advance_many(path, state, 0.8 * beta, chains)


@dataclass(frozen=True)
class NotReversed(BlockGibbs):
    """A planted error: the layers of a reversed move are drawn in the same order."""

    def reversed(self):
        return self


@pytest.mark.parametrize("kernel", [Misled(), NotReversed()])
def test_planted_errors_are_found(kernel):
    with pytest.raises(AssertionError):
        check_kernel(kernel, BaseRatePath(sine(4, 3, base=np.full(4, 0.5))), n=20_000)


@pytest.mark.parametrize("latent", KINDS)
@pytest.mark.parametrize("backwards", [False, True])
def test_many_stages_are_stages_one_by_one(latent, backwards):
    """States, densities and acceptance; another seeding in batches would change the numbers."""
    path = BaseRatePath(sine(base=rates(latent), latent=latent))
    kernel = KINDS[latent](backwards=backwards)
    beta, seed = np.array([0.1, 0.5, 0.9]), np.random.SeedSequence(1)
    one, ones = path.draw(50, np.random.SeedSequence(2)), streams(seed, 50)
    acceptance = []
    for value in beta:
        one, info = kernel.advance(path, one, float(value), ones)
        acceptance.append(info.acceptance)
    many = streams(seed, 50)
    batch = kernel.advance_many(path, path.draw(50, np.random.SeedSequence(2)), beta, many)
    np.testing.assert_array_equal(batch.state.to_draws(), one.to_draws())
    np.testing.assert_array_equal(batch.acceptance, acceptance)
    np.testing.assert_array_equal(many, ones)
    np.testing.assert_array_equal(batch.after.target[-1], one.log_density.target)
    np.testing.assert_array_equal(batch.before.target[1:], batch.after.target[:-1])


@pytest.mark.parametrize("latent", KINDS)
@pytest.mark.parametrize("backwards", [False, True])
def test_equal_temperatures_of_all_members_are_one_temperature(latent, backwards):
    """Bit for bit; otherwise tempering and annealing would follow different code."""
    path = BaseRatePath(sine(base=rates(latent), latent=latent))
    kernel = KINDS[latent](n_sweeps=2, backwards=backwards)
    start, seed = path.draw(50, np.random.SeedSequence(2)), np.random.SeedSequence(1)
    shared, own = streams(seed, 50), streams(seed, 50)
    one, info = kernel.advance(path, start, 0.7, shared)
    each, of_each = kernel.advance_each(path, start, np.full(50, 0.7), own)
    np.testing.assert_array_equal(each.to_draws(), one.to_draws())
    np.testing.assert_array_equal(each.log_density.target, one.log_density.target)
    np.testing.assert_array_equal(own, shared)
    assert of_each == info


@pytest.mark.parametrize("latent", KINDS)
@pytest.mark.parametrize("misplaced", [False, True])
def test_members_stay_distributed_as_their_own_temperature_says(latent, misplaced):
    """Exact draws at three temperatures, against the probabilities of all states after a move.

    Misplaced temperatures are the planted error. The false-alarm rate is 1e-6 for each case.
    """
    machine = sine(4, 3, base=np.full(3 if latent == "marginal" else 4, 0.3), latent=latent)
    path, n = BaseRatePath(machine), 20_000
    states = np.array(list(product([0, 1], repeat=machine.n_dim)), np.uint8)
    beta, rng = np.array([0.1, 0.5, 1.0]), np.random.default_rng(3)
    every = path.at(states).log_density
    log_p = np.outer(beta, every.target) + np.outer(1.0 - beta, every.base)
    p = np.exp(log_p - logsumexp(log_p, axis=1, keepdims=True))
    rows = np.concatenate([rng.choice(len(states), n, p=row) for row in p])
    order = rng.permutation(3 * n)
    own = np.repeat(beta, n)[order]
    moved, _ = KINDS[latent](n_sweeps=2).advance_each(
        path,
        path.at(states[rows[order]]),
        np.roll(own, 1) if misplaced else own,
        streams(np.random.SeedSequence(4), 3 * n),
    )
    found = moved.to_draws() @ (1 << np.arange(machine.n_dim)[::-1])
    for value, row in zip(beta, p, strict=True):
        counts = np.bincount(found[own == value], minlength=len(states))
        frequent = n * row >= 5.0  # cells of a chi-squared test; the others make one cell
        cells = np.append(counts[frequent], counts[~frequent].sum())
        expected = n * np.append(row[frequent], row[~frequent].sum())
        kept = expected > 0.0
        p_value = chisquare(cells[kept], expected[kept]).pvalue
        assert (p_value < 1e-9) if misplaced else (p_value > 1e-6 / 3.0)


@pytest.mark.parametrize("latent", KINDS)
def test_one_temperature_for_each_member_is_asked_for(latent):
    """Compiled loops would read beyond the end of the array."""
    path, kernel = BaseRatePath(sine(base="uniform", latent=latent)), KINDS[latent]()
    state, chains = path.draw(6, np.random.SeedSequence(1)), streams(np.random.SeedSequence(2), 6)
    with pytest.raises(ValueError, match="beta must have one inverse temperature for each"):
        kernel.advance_each(path, state, np.ones(5), chains)
    with pytest.raises(ValueError, match="beta must have one column for each of the 6"):
        kernel.advance_many(path, state, np.ones((2, 5)), chains)


@pytest.mark.parametrize("latent", KINDS)
def test_densities_that_are_carried_along(latent):
    """Of a machine with several words of units; drift in single precision would show."""
    machine = sine(150, 70, latent=latent, base="uniform")
    path = BaseRatePath(machine)
    state = path.draw(20, np.random.SeedSequence(1))
    chains = streams(np.random.SeedSequence(2), 20)
    for kernel in (KINDS[latent](), KINDS[latent](backwards=True)):
        state, _ = kernel.advance(path, state, 0.9, chains)
        fresh = path.at(state.to_draws()).log_density
        np.testing.assert_allclose(state.log_density.target, fresh.target, atol=1e-4)
        np.testing.assert_allclose(state.log_density.base, fresh.base, atol=1e-4)


def test_a_population_that_is_given_stays_as_it_is():
    path = BaseRatePath(sine(base="uniform"))
    draws = bits(6, 28)
    state = path.at(draws)
    BlockGibbs().advance(path, state, 0.5, streams(np.random.SeedSequence(1), 6))
    np.testing.assert_array_equal(state.to_draws(), draws)


# --- what kernels that move through many stages share ---
