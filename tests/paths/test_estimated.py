"""The path of an estimated posterior: on parameters and random words, and exact on average."""

import numpy as np
import pytest

from pm_evidence.paths.geometric import EstimatedPath
from pm_evidence.references.mixture import StudentFit
from tests.kernels.noisy import NormalNoise, noisy

NOISE = NormalNoise(gamma2=4.0, n_particles=100, n_seeds=3)


@pytest.fixture(scope="module")
def system():
    return noisy("gaussian", NOISE)


def test_populations_are_made_anew_from_their_draws(system):
    """Nothing is estimated again: an estimate belongs to the words that it was made from."""
    state = system.population(0.4, 50, seed=1)
    again = system.path.at(state.to_draws())
    np.testing.assert_array_equal(again.x, state.x)
    np.testing.assert_array_equal(again.seeds, state.seeds)
    np.testing.assert_array_equal(again.log_density, state.log_density)


def test_log_ratio_and_energy_are_those_of_the_estimate(system):
    state, path = system.population(0.4, 50, seed=2), system.path
    assert isinstance(path, EstimatedPath)
    np.testing.assert_allclose(path.log_ratio(state, 0.2, 0.7), 0.5 * state.log_density[:, 1])
    np.testing.assert_array_equal(path.energy(state, 0.3), -state.log_density[:, 1])


def test_a_fitted_density_is_drawn_with_estimates_of_its_own(system):
    """Four times as many as were asked for; the work of the state is that of its own estimates."""
    path, state = system.path, system.population(1.0, 300, seed=4)
    fit = StudentFit.to(state.x)
    forward, reverse = path.bridge_work(fit, state, 200, np.random.default_rng(3))
    assert forward.shape == (800,) and np.isfinite(forward).all()
    expected = fit.log_density(state.x) - state.log_density.sum(axis=1)
    np.testing.assert_allclose(reverse, expected, rtol=1e-12)
