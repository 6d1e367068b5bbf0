"""The path on which data points are added, and those of latent values."""

import numpy as np
import pytest
from scipy.stats import kstest, multivariate_normal, norm, truncnorm

from pm_evidence.core.random import streams
from pm_evidence.families.gp_classification.latent import LatentPath
from pm_evidence.families.gp_classification.noisy import DataPointPath
from pm_evidence.testing import check_path
from tests.families.gp_classification.latent import exact, problem
from tests.families.gp_classification.problems import exact_draws, one_factor

# --- data points are added one by one ---


def grown(path, n, seed=0):
    """Populations at steps 0 to N, extended without moves."""
    chains = streams(np.random.SeedSequence(seed), n)
    states = [path.draw(n, np.random.SeedSequence(seed))]
    for _ in range(path.n_steps):
        states.append(path.extended(states[-1], chains))
    return states


def test_smoothed_ratios_and_draws_are_those_of_the_conditional_normal():
    """Mean and variance from the textbook formula; far in the tail the draws stay exact."""
    target, _ = one_factor(6, order="given")
    path = DataPointPath(target)
    for state in grown(path, 5)[:-1]:
        k = state.step
        given = np.linalg.solve(target.noisy_covariance[:k, :k], target.noisy_covariance[:k, k])
        mean = state.z @ given
        sd = np.sqrt(target.noisy_covariance[k, k] - target.noisy_covariance[:k, k] @ given)
        y = target.signs[k]
        np.testing.assert_allclose(path.smoothed(state), norm.logcdf(y * mean / sd), rtol=1e-10)
        many = path.extended(
            state.take(np.zeros(20_000, int)), streams(np.random.SeedSequence(k), 20_000)
        )
        bounds = sorted((-mean[0] / sd, y * np.inf))
        law = truncnorm(*bounds, loc=mean[0], scale=sd)
        assert kstest(many.z[:, -1], law.cdf).pvalue > 1e-6
        np.testing.assert_array_equal(np.sign(many.z[:, -1]), y)


@pytest.mark.parametrize("order", ["given", "informative", "random"])
def test_precisions_grow_and_shrink_to_the_inverse_of_the_covariance(order):
    """Rounding errors of updates must not add up; reverse paths shrink what forward paths grew."""
    target, _ = one_factor(40, order=order)
    path = DataPointPath(target)
    states = grown(path, 2)
    state = states[-1]
    for k in range(40, 0, -1):
        points = target.points[:k]
        exact = np.linalg.inv(target.noisy_covariance[np.ix_(points, points)])
        np.testing.assert_allclose(states[k].precision, exact, atol=1e-12)
        np.testing.assert_allclose(state.precision, exact, atol=1e-12)
        assert np.array_equal(state.z, states[k].z)
        state = path.shrunk(state)


def test_draws_come_back_in_the_order_of_the_data():
    target, _ = one_factor(5, order=[3, 0, 4, 1, 2])
    path = DataPointPath(target)
    draws = exact_draws(target, 10)
    state = path.at(draws)
    np.testing.assert_array_equal(state.to_draws(), draws)
    np.testing.assert_array_equal(np.sign(state.z), np.tile(target.signs[[3, 0, 4, 1, 2]], (10, 1)))
    assert path.n_steps == state.step == 5


def test_members_do_not_depend_on_each_other():
    """The same digits alone and in a large population."""
    path = DataPointPath(one_factor(20)[0])
    many, one = grown(path, 70, 3), streams(np.random.SeedSequence(3), 70)[68:69]
    state = path.draw(1, np.random.SeedSequence(3))
    for k in range(20):
        np.testing.assert_array_equal(path.smoothed(state), path.smoothed(many[k])[68:69])
        state = path.extended(state, one)
        np.testing.assert_array_equal(state.z, many[k + 1].z[68:69])


# --- latent values, from the prior and from expectation propagation's Gaussian ---


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
