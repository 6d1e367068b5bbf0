"""Gaussians that approximate the densities of latent values."""

import numpy as np
import pytest

from pm_evidence.families.gp_classification.gaussians import (
    gaussian_of,
    nearest,
    tempered_gaussians,
)
from tests.families.gp_classification.latent import exact, problem
from tests.families.gp_classification.problems import curve


def test_a_gaussian_of_factors_has_the_moments_of_the_product():
    """Against the inverse of the sum of precisions."""
    target = curve(5, representation="latent", jitter=0.1)
    precisions, shifts = np.array([0.0, 1.0, 2.0, 0.5, 3.0]), np.array([0.0, -1.0, 2.0, 1.0, 0.5])
    made = gaussian_of(target.factor, precisions, shifts)
    covariance = np.linalg.inv(np.linalg.inv(target.prior_covariance) + np.diag(precisions))
    np.testing.assert_allclose(made.root @ made.root.T, covariance, atol=1e-10)
    np.testing.assert_allclose(made.mean, covariance @ shifts, atol=1e-10)
    np.testing.assert_allclose(made.inverse @ made.root, np.eye(5), atol=1e-10)
    x = np.arange(10.0).reshape(2, 5)
    expected = [(v * shifts - 0.5 * precisions * v * v).sum() for v in x]
    np.testing.assert_allclose(made.log_factors(x), expected)


def test_the_first_is_the_approximation_of_the_posterior_and_the_last_the_prior():
    target = curve(6, representation="latent", jitter=0.01)
    found, made = target.expectation_propagation(), target.gaussians
    np.testing.assert_allclose(made[1.0].mean, found.mean, atol=1e-8)
    np.testing.assert_allclose(made[1.0].root @ made[1.0].root.T, found.covariance, atol=1e-8)
    np.testing.assert_allclose(
        made[0.0].root @ made[0.0].root.T, target.prior_covariance, atol=1e-10
    )
    parts = target.prior_covariance, target.factor, target.signs, found
    assert tempered_gaussians(*parts, True).keys() == made.keys()
    assert tempered_gaussians(*parts, False).keys() == {0.0, 1.0}


@pytest.mark.parametrize("power", [0.5, 0.125])
def test_those_between_have_the_moments_of_powers_of_the_likelihood(power):
    """Moves would be short if they did not; exact draws by rejection."""
    path = problem("prior", 5)
    made, draws = path.target.gaussians[power], exact(path, power, 50_000).x
    sd = draws.std(axis=0)
    np.testing.assert_allclose(made.mean / sd, draws.mean(axis=0) / sd, atol=0.1)
    np.testing.assert_allclose((made.root**2).sum(axis=1) ** 0.5 / sd, 1.0, atol=0.1)


def test_the_nearest_power_is_taken():
    made = problem("prior").target.gaussians
    assert nearest(made, 1.0) is made[1.0] and nearest(made, 0.8) is made[1.0]
    assert nearest(made, 0.3) is made[0.25] and nearest(made, 0.0) is made[0.0]
    assert nearest(made, 1e-12) is made[0.0]
