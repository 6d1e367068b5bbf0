"""The squared exponential covariance."""

import numpy as np

from pm_evidence.families.gp_classification.covariance import squared_exponential


def test_against_its_formula():
    """Far from the origin too, where products of inputs lose digits."""
    x = np.random.default_rng(1).standard_normal((7, 3)) + 1000.0
    found = squared_exponential(x, 1.5, 2.0)
    square = ((x[:, None] - x) ** 2).sum(axis=2)
    np.testing.assert_allclose(found, 4.0 * np.exp(-0.5 * square / 1.5**2), rtol=1e-9)
    assert (found.diagonal() == 4.0).all() and np.array_equal(found, found.T)
