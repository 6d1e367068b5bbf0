"""The parts of importance sampling: points, the proposal, and the steps of Newton's method."""

import numpy as np
import pytest
from scipy import stats

from pm_evidence.core.random import seed_stream
from pm_evidence.targets.estimated import group_importance as importance
from pm_evidence.targets.estimated.group_importance import (
    QUASI,
    RANDOM,
    Points,
    lattice_generator,
)


def test_quantiles_and_density_of_the_proposal():
    """The weights divide by this density: an error in it is a bias of every estimate."""
    factor = np.array([[2.0, 0.0], [0.3, 0.5]])
    mode = np.array([1.0, -1.0])
    for share in np.random.default_rng(1).random((20, 2)):
        point = share.copy()
        log_density = importance._propose(mode, factor, point)
        z = factor.T @ (point - mode) / importance._WIDTH
        np.testing.assert_allclose(stats.t(4).cdf(z), share, rtol=1e-10)
        np.testing.assert_allclose(log_density, stats.t(4).logpdf(z).sum(), rtol=1e-10)


@pytest.mark.parametrize("draws", [RANDOM, QUASI])
def test_each_point_alone_is_uniform(draws):
    """Which makes the estimate unbiased. False-alarm rate 1e-4 for each coordinate and point."""
    n, how = 4, Points(draws, 4, np.array(lattice_generator(4, 2)))
    points, stream = np.empty((2000, n, 2)), np.empty(4, np.uint64)
    for seed in range(len(points)):
        seed_stream(stream, np.uint64(seed), 0)
        start = np.empty(2)
        for k in range(n):
            importance._fill_probabilities(stream, k, how, start, points[seed, k])
    for column in points.reshape(len(points), -1).T:
        assert stats.kstest(column, "uniform").pvalue > 1e-4


def test_newton_steps_lead_to_the_mode_of_a_parabola():
    """And the factor is that of the precision, from either triangle of the Hessian."""
    precision = np.array([[2.0, 0.6], [0.6, 1.0]])
    gradient = np.array([1.0, -2.0])
    factor, step = np.zeros((2, 2)), np.zeros(2)
    gain = importance._newton_step(gradient, -precision, factor, step)
    np.testing.assert_allclose(np.tril(factor), np.linalg.cholesky(precision))
    np.testing.assert_allclose(step, np.linalg.solve(precision, gradient))
    assert gain == pytest.approx(gradient @ step)
