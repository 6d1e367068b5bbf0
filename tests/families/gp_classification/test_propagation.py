"""Expectation propagation."""

import numpy as np
import pytest
from scipy.special import log_ndtr, ndtr

import pm_evidence as pe
from examples.real_data import usps
from pm_evidence.families.gp_classification.propagation import (
    _higher_derivatives,
    expectation_propagation,
)
from tests.families.gp_classification.problems import curve, one_factor, pair, triple

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


# --- the second order ---


@pytest.mark.parametrize("problem", [pair(1.5), pair(-2.0), triple(), one_factor(12)])
def test_the_second_order_is_closer_to_the_exact_evidence(problem):
    """By 20 to 1000 times; without its fourth cumulants, or with another sign, it is not."""
    target, exact = problem
    found = target.expectation_propagation()
    assert abs(found.second_order - exact) < abs(found.log_evidence - exact) / 20.0 < 2e-4


def test_one_point_and_independent_points_need_no_second_order():
    found = expectation_propagation(np.diag([4.0, 9.0]), np.array([1, -1], np.int8))
    assert found.second_order == found.log_evidence == pytest.approx(2.0 * np.log(0.5), abs=1e-12)


def test_higher_derivatives_of_the_log_probit():
    """Those of the third derivative are the fourth; both are continuous where the series begins."""
    b, step = np.array([-100.0, -19.0, -5.0, -1.0, 0.0, 3.0]), 1e-3
    (third, fourth), (above, _), (below, _) = map(_higher_derivatives, (b, b + step, b - step))
    np.testing.assert_allclose((above - below) / (2.0 * step), fourth, rtol=1e-3)
    wide = 1e-2
    ends = log_ndtr(b[2:, None] + wide * np.array([2.0, 1.0, -1.0, -2.0]))
    np.testing.assert_allclose(ends @ [1, -2, 2, -1] / (2.0 * wide**3), third[2:], rtol=2e-3)
    edge = np.array(_higher_derivatives(np.array([-20.0 - 1e-9, -20.0 + 1e-9])))
    np.testing.assert_allclose(edge[:, 0], edge[:, 1], rtol=1e-3)


@pytest.mark.parametrize("size", [1e-12, 1e12, 1e60])
def test_extreme_amplitudes(size):
    """Labels that are independent of the inputs, and latent values without noise."""
    covariance = size * np.array([[1.0, 0.5], [0.5, 1.0]])
    found = expectation_propagation(covariance, np.array([1, -1], np.int8))
    exact = np.log(0.25) if size < 1.0 else np.log(1.0 / 6.0)
    assert found.converged and found.log_evidence == pytest.approx(exact, abs=0.05)
    assert found.second_order == pytest.approx(exact, abs=1e-6)


@pytest.mark.slow
def test_digits(data_folder):
    """USPS 3 against 5 at the hardest setting of Fraccaro et al. (2016): -106.089."""
    inputs, labels = usps(data_folder)[:2]
    target = pe.gp.GPClassification(
        inputs, labels, length_scale=np.exp(4.85), amplitude=np.exp(5.1)
    )
    found = target.expectation_propagation()
    assert found.log_evidence == pytest.approx(-106.089, abs=1e-3)
    assert found.second_order == pytest.approx(-105.817, abs=1e-3)
