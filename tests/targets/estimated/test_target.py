"""The target on the space of parameters and seeds, and what it asks of estimators."""

import numpy as np
import pytest

from pm_evidence.core.exceptions import NumericalError
from pm_evidence.targets.estimated.target import (
    EstimatedParticles,
    EstimatedTarget,
)
from tests.kernels.noisy import Broken, Half, NormalNoise, noisy, noisy_target

TWO = NormalNoise(20.0, n_seeds=3), NormalNoise(30.0, n_seeds=2, name="other")


def test_estimates_add_up_and_each_has_its_own_seeds():
    found = noisy("gaussian", *TWO)
    x = found.exact.draw(0.5, 20, np.random.default_rng(1))
    seeds = found.target.draw_seeds(20, np.random.default_rng(2))
    assert seeds.shape == (20, found.target.n_seeds) == (20, 5)
    noise = TWO[0].estimate(x, seeds[:, :3]) + TWO[1].estimate(x, seeds[:, 3:])
    exact = found.exact.path.target.evaluate(x).log_density
    particles = found.target.estimated(x, seeds)
    np.testing.assert_allclose(particles.log_density[:, 0], exact[:, 0])
    np.testing.assert_allclose(particles.log_density[:, 1], exact[:, 1] + noise)


def test_states_come_back_from_their_draws_without_a_new_estimate():
    """Reverse paths start from stored draws: a word that lost a bit would be another state."""
    found = noisy("gaussian", *TWO)
    state = found.target.draw(100, np.random.SeedSequence(1))
    again = found.path.at(state.to_draws())
    assert np.array_equal(again.seeds, state.seeds)
    assert np.array_equal(again.x, state.x)
    np.testing.assert_allclose(again.log_density, state.log_density, rtol=1e-13)
    joined = state.join([again])
    assert len(joined) == 200
    assert np.array_equal(joined.take(np.array([150])).seeds, state.seeds[50:51])


def test_nothing_is_estimated_where_the_prior_is_zero():
    class Strict(NormalNoise):
        def estimate(self, x, seeds):
            assert (x[:, 1] >= 0).all()
            return super().estimate(x, seeds)

    target = noisy_target(noisy("mixed").exact.path.target, Strict())
    x = np.array([[1.0, 2.0, 0.3], [1.0, -1.0, 0.3]])  # the second count is impossible
    found = target.estimated(x, np.zeros((2, 1), np.uint64)).log_density
    assert np.isfinite(found[0]).all()
    assert found[1, 0] == -np.inf


def test_estimates_that_are_no_number_at_prior_draws_raise():
    with pytest.raises(NumericalError, match=r"not finite at \d+ of 100 .* is nan at \{x="):
        noisy("gaussian", Broken()).target.draw(100, np.random.SeedSequence(1))
    zero = noisy("gaussian", Half()).target.draw(100, np.random.SeedSequence(1))
    assert 0.1 < (zero.log_density[:, 1] == -np.inf).mean() < 0.4


def test_posterior_and_statistics_of_draws():
    found = noisy("gaussian", *TWO)
    assert isinstance(found.target, EstimatedTarget)
    state = found.target.draw(7, np.random.SeedSequence(1))
    assert isinstance(state, EstimatedParticles)
    draws = state.to_draws()
    assert draws.shape == (7, found.target.n_dim + 1 + found.target.n_seeds)
    np.testing.assert_array_equal(draws[:, : found.target.n_dim], state.x)
    posterior = found.target.posterior(draws)
    np.testing.assert_allclose(posterior["x"], state.x)
    stats = found.target.sample_stats(draws)
    np.testing.assert_allclose(stats["log_likelihood_estimate"], state.log_density[:, 1])
    np.testing.assert_allclose(stats["lp"], state.log_density.sum(axis=1))
