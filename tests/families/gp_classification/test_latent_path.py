"""Paths of latent values from the prior and from expectation propagation's Gaussian."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from pm_evidence.families.gp_classification.latent_path import LatentPath
from pm_evidence.testing import check_path
from tests.families.gp_classification.latent import exact, problem


def log_density(path, x, beta):
    """The definition: ``(1 - beta) log q + beta log (prior times likelihood)``."""
    target = path.target
    prior = multivariate_normal(np.zeros(target.n_dim), target.prior_covariance).logpdf(x)
    posterior = prior + norm.logcdf(target.signs * x).sum(axis=1)
    if target.reference == "prior":
        return (1.0 - beta) * prior + beta * posterior
    found = target.expectation_propagation()
    q = multivariate_normal(found.mean, found.covariance).logpdf(x)
    return (1.0 - beta) * q + beta * posterior


@pytest.mark.parametrize("reference", ["prior", "ep"])
def test_weights_are_those_of_the_definition(reference):
    """A normalising constant of ``q`` that is wrong would be an error of log Z."""
    path = problem(reference, 5)
    x = 2.0 * np.random.default_rng(1).standard_normal((6, 5))
    state = path.at(x)
    expected = log_density(path, x, 0.9) - log_density(path, x, 0.2)
    np.testing.assert_allclose(path.log_ratio(state, 0.2, 0.9), expected, rtol=1e-8)
    slope = log_density(path, x, 1.0) - log_density(path, x, 0.0)
    np.testing.assert_allclose(path.energy(state, 0.4), -slope, rtol=1e-8)


@pytest.mark.parametrize("reference", ["prior", "ep"])
def test_it_is_a_path(reference):
    path = problem(reference)
    assert isinstance(path, LatentPath)
    check_path(path)


@pytest.mark.parametrize("reference", ["prior", "ep"])
def test_draws_have_the_moments_of_the_reference(reference):
    path = problem(reference)
    target = path.target
    x = path.draw(200_000, np.random.SeedSequence(1)).x
    found = target.expectation_propagation()
    mean, covariance = (
        (found.mean, found.covariance)
        if reference == "ep"
        else (np.zeros(target.n_dim), target.prior_covariance)
    )
    sd = covariance.diagonal() ** 0.5
    np.testing.assert_allclose((x.mean(axis=0) - mean) / sd, 0.0, atol=0.015)
    np.testing.assert_allclose(np.cov(x.T) / np.outer(sd, sd), covariance / np.outer(sd, sd),
                               atol=0.02)  # fmt: skip
    assert len(exact(path, 0.5, 100)) == 100
