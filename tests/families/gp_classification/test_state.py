"""Populations of noisy latent values."""

import numpy as np

from pm_evidence.families.gp_classification.state import NoisyValues


def test_members_are_taken_and_joined():
    order, precision = np.array([2, 0, 1]), np.eye(2)
    state = NoisyValues(np.arange(6.0).reshape(3, 2), precision, order)
    assert len(state) == 3 and state.step == 2
    both = state.take(np.array([2, 2])).join([state])
    np.testing.assert_array_equal(both.z[:, 0], [4.0, 4.0, 0.0, 2.0, 4.0])
    assert both.precision is precision


def test_points_that_have_not_been_added_are_zero():
    state = NoisyValues(np.array([[5.0, 7.0]]), np.eye(2), np.array([2, 0, 1]))
    np.testing.assert_array_equal(state.to_draws(), [[7.0, 0.0, 5.0]])
