"""Damped Newton steps: they reach the maximum from anywhere, also where states hardly overlap."""

import numpy as np
import pytest

from pm_evidence.estimators.mbar import laplacian, minimise


def problem(potential, counts):
    """The equations of MBAR for a small table, in NumPy."""

    def expected(log_z):
        calls.append(log_z)
        logs = np.log(counts)[:, None] - log_z[:, None] - potential
        p = np.exp(logs - logs.max(axis=0))
        p /= p.sum(axis=0)
        return p.sum(axis=1), p @ p.T

    calls = []
    return expected, calls


def gaussians(sd, n, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=len(sd) * n) * np.repeat(sd, n)
    return 0.5 * (x / sd[:, None]) ** 2, np.full(len(sd), float(n))


@pytest.mark.parametrize("start", [0.0, 10.0, 1000.0])
def test_any_start(start):
    """The likelihood is concave: there is one maximum, whatever the start. Seed 1."""
    potential, counts = gaussians(np.array([1.0, 0.5, 0.2, 0.1]), 50, 1)
    expected, calls = problem(potential, counts)
    begin = start * np.array([0.0, 1.0, -1.0, 0.5])
    log_z, products = minimise(expected, counts, begin)
    np.testing.assert_allclose(expected(log_z)[0], counts, rtol=1e-11)
    plain, _ = minimise(expected, counts, np.zeros(4))
    np.testing.assert_allclose(log_z - log_z[0], plain - plain[0], atol=1e-10)
    np.testing.assert_allclose(products, expected(log_z)[1], rtol=1e-6)
    assert len(calls) < 200


def test_quadratic_convergence():
    """From close by, six evaluations are enough. Seed 2."""
    potential, counts = gaussians(np.array([1.0, 0.7, 0.5]), 200, 2)
    expected, calls = problem(potential, counts)
    minimise(expected, counts, np.log([1.0, 0.7, 0.5]))
    assert len(calls) <= 6


def test_states_that_hardly_overlap():
    """Two states of which one sample in thousands could be of the other. Seed 3."""
    potential, counts = gaussians(np.array([1.0, 1e-3]), 5, 3)
    expected, _ = problem(potential, counts)
    log_z, _ = minimise(expected, counts, np.zeros(2))
    np.testing.assert_allclose(expected(log_z)[0], counts, rtol=1e-9)


def test_states_without_any_overlap_end():
    """Samples that are of one state for certain leave the start, without a warning."""
    potential = np.array([[0.0, 0.0, 1e6, 1e6], [1e6, 1e6, 0.0, 0.0]])
    expected, calls = problem(potential, np.array([2.0, 2.0]))
    log_z, _ = minimise(expected, np.array([2.0, 2.0]), np.array([0.0, 3.0]))
    assert np.isfinite(log_z).all() and len(calls) <= 501


def test_a_singular_matrix_is_no_end():
    """Where all samples are in one state at the start, an iteration without the matrix follows."""
    potential, counts = gaussians(np.array([1.0, 0.5]), 20, 4)
    expected, _ = problem(potential, counts)
    log_z, _ = minimise(expected, counts, np.array([0.0, -2000.0]))
    np.testing.assert_allclose(expected(log_z)[0], counts, rtol=1e-10)


def test_laplacian():
    """Rows add up to zero without cancellation, whatever stands on the diagonal."""
    products = np.array([[9e20, 1.0, 2.0], [1.0, 5.0, 3.0], [2.0, 3.0, 7.0]])
    expected = np.array([[3.0, -1.0, -2.0], [-1.0, 4.0, -3.0], [-2.0, -3.0, 5.0]])
    np.testing.assert_array_equal(laplacian(products), expected)
