"""Expectation propagation."""

import numpy as np
import pytest
from scipy.special import ndtr

import pm_evidence as pe
from examples.real_data import usps
from pm_evidence.families.gp_classification.propagation import expectation_propagation
from tests.families.gp_classification.problems import curve, one_factor, pair

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(200)


def test_one_point_is_exact():
    """One factor has the moments of the posterior: the evidence is 1/2."""
    found = expectation_propagation(np.array([[4.0]]), np.array([1], np.int8))
    assert found.converged and found.log_evidence == pytest.approx(np.log(0.5), abs=1e-12)
    weight = WEIGHTS * ndtr(2.0 * NODES)
    mean = weight @ (2.0 * NODES) / weight.sum()
    assert found.mean[0] == pytest.approx(mean, abs=1e-8)
    variance = weight @ (2.0 * NODES) ** 2 / weight.sum() - mean**2
    assert found.covariance[0, 0] == pytest.approx(variance, abs=1e-8)


@pytest.mark.parametrize("problem", [pair(1.5), one_factor(12)])
def test_it_is_close_to_the_exact_evidence(problem):
    """It is not exact, but the error is known to be small for the probit."""
    target, exact = problem
    found = target.expectation_propagation()
    assert found.converged and abs(found.log_evidence - exact) < 0.1
    assert found is target.expectation_propagation()


def test_moments_match_at_the_fixed_point():
    """The defining property: with any factor exchanged for its likelihood, moments stay."""
    target = curve(8)
    found = target.expectation_propagation()
    variance = found.covariance.diagonal()
    rest = 1.0 / (1.0 / variance - found.precisions)
    centre = rest * (found.mean / variance - found.shifts)
    x = centre[:, None] + np.sqrt(rest)[:, None] * NODES
    weight = WEIGHTS * ndtr(target.signs[:, None] * x)
    weight /= weight.sum(axis=1, keepdims=True)
    mean = (weight * x).sum(axis=1)
    np.testing.assert_allclose(mean, found.mean, atol=1e-6)
    np.testing.assert_allclose((weight * x**2).sum(axis=1) - mean**2, variance, atol=1e-6)


def test_a_singular_covariance_is_allowed():
    """Two copies of a point have the same latent value."""
    found = expectation_propagation(np.full((2, 2), 4.0), np.array([1, 1], np.int8))
    assert found.converged and found.log_evidence > 2.0 * np.log(0.5)


@pytest.mark.parametrize("size", [1e-12, 1e12, 1e60])
def test_extreme_amplitudes(size):
    """Labels that are independent of the inputs, and latent values without noise."""
    covariance = size * np.array([[1.0, 0.5], [0.5, 1.0]])
    found = expectation_propagation(covariance, np.array([1, -1], np.int8))
    exact = np.log(0.25) if size < 1.0 else np.log(1.0 / 6.0)
    assert found.converged and found.log_evidence == pytest.approx(exact, abs=0.05)


@pytest.mark.slow
def test_digits(data_folder):
    """USPS 3 against 5 at the hardest setting of Fraccaro et al. (2016): -106.089."""
    inputs, labels = usps(data_folder)[:2]
    target = pe.gp.GPClassification(
        inputs, labels, length_scale=np.exp(4.85), amplitude=np.exp(5.1)
    )
    assert target.expectation_propagation().log_evidence == pytest.approx(-106.089, abs=1e-3)
