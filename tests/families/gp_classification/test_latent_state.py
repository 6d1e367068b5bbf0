"""Populations of latent values."""

import numpy as np

from pm_evidence.families.gp_classification.latent_state import LatentValues


def test_members_are_taken_and_joined():
    state = LatentValues(np.arange(6.0).reshape(3, 2), np.arange(3.0), -np.arange(3.0))
    both = state.take(np.array([2, 2])).join([state])
    assert len(both) == 5
    np.testing.assert_array_equal(both.to_draws()[:, 0], [4.0, 4.0, 0.0, 2.0, 4.0])
    np.testing.assert_array_equal(both.log_likelihood, [2.0, 2.0, 0.0, 1.0, 2.0])
    np.testing.assert_array_equal(both.log_factors, [-2.0, -2.0, 0.0, -1.0, -2.0])
