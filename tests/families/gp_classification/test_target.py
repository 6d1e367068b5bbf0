"""Gaussian process classification as a target."""

import pickle

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import pm_evidence as pe
from tests.families.gp_classification.problems import curve, exact_draws, one_factor, triple


def test_the_exact_values_of_the_tests_agree_with_scipy():
    """Closed forms and quadrature against a general program for orthant probabilities."""
    for target, exact in (triple(), one_factor(5)):
        signs = target.signs
        turned = target.noisy_covariance * np.outer(signs, signs)
        found = multivariate_normal.cdf(
            np.zeros(len(signs)), cov=turned, abseps=1e-8, releps=1e-8, maxpts=4_000_000
        )
        assert np.log(found) == pytest.approx(exact, abs=1e-4)


def test_attributes():
    target = curve(5)
    assert target.n_dim == 5 and target.method == "arm" and target.variables == ("z",)
    assert "5 points" in repr(target)
    latent = curve(5, representation="latent")
    assert latent.method == "ais" and latent.variables == ("x",)
    np.testing.assert_allclose(latent.factor @ latent.factor.T, latent.prior_covariance, atol=1e-12)


def test_draws_near_the_posterior_are_those_of_the_approximation():
    target = curve(5, representation="latent")
    found = target.expectation_propagation()
    x = target.near_posterior(100_000, np.random.default_rng(1))
    sd = found.covariance.diagonal() ** 0.5
    np.testing.assert_allclose((x.mean(axis=0) - found.mean) / sd, 0.0, atol=0.02)
    np.testing.assert_allclose(np.cov(x.T) / np.outer(sd, sd), found.covariance / np.outer(sd, sd),
                               atol=0.02)  # fmt: skip


def test_states_of_users_are_checked():
    target = curve(5)
    draws = exact_draws(target, 3)
    np.testing.assert_array_equal(target.check(draws), draws)
    with pytest.raises(ValueError, match=r"signs of the labels, got draws\[0, 0\]"):
        target.check(-draws)
    with pytest.raises(ValueError, match="row of 5"):
        target.check(draws[:, :4])


def test_it_can_be_sent_to_workers():
    target = curve(5)
    again = pickle.loads(pickle.dumps(target))
    np.testing.assert_array_equal(again.whitening, target.whitening)


def test_classes_can_be_exchanged():
    """The evidence of a process with mean zero does not depend on which class is +1."""
    x, y = np.linspace(0.0, 1.0, 5), np.array([1, 0, 0, 1, 1])
    one, other = (pe.GPClassification(x, labels).expectation_propagation() for labels in (y, 1 - y))
    assert one.log_evidence == pytest.approx(other.log_evidence, abs=1e-10)
