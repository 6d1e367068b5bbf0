"""Temperatures are drawn with the right probabilities given a state."""

import numpy as np
import pytest

from pm_evidence.samplers.simulated_tempering import (
    Redraw,
    checked_weights,
    log_probabilities,
    prior_over,
)
from tests.estimators.refusals import check_refused
from tests.samplers.ladders import BETA, log_z, probabilities, tempering_plan
from tests.samplers.table import LOG_LIKELIHOOD

PRIOR = np.array([0.4, 0.1, 0.2, 0.3])


class Grid:
    """In place of a generator: equidistant numbers between 0 and 1 instead of random ones."""

    def random(self, n):
        return (np.arange(n) + 0.5) / n


def direct(energy, log_weight):
    """Eq. 7 of Carlson et al. (2016) as it is written, for one state."""
    likelihood = np.array([np.exp(-beta * energy) if beta else 1.0 for beta in BETA])
    weight = np.exp(log_weight) * likelihood
    return weight / weight.sum()


@pytest.mark.parametrize("energy", [-3.0, 0.0, 7.5, 400.0, np.inf])
def test_probabilities_are_those_of_the_paper(energy):
    """A state without likelihood can only be of the reference."""
    log_weight = np.log(PRIOR) - log_z()
    found = log_probabilities(BETA, log_weight, np.array([energy, 0.0]))
    assert found.shape == (2, 4)
    np.testing.assert_allclose(np.exp(found[0]), direct(energy, log_weight), atol=1e-14)
    if energy == np.inf:
        assert np.exp(found[0]).tolist() == [1.0, 0.0, 0.0, 0.0]


def test_probabilities_of_far_apart_weights_do_not_overflow():
    """Log normalising constants of large models differ by thousands of nats."""
    found = log_probabilities(BETA, np.array([0.0, 3e3, -5e3, 2e4]), np.array([-1e5, 1e5, 0.0]))
    assert np.isfinite(found).all()
    np.testing.assert_allclose(np.exp(found).sum(axis=1), 1.0)
    assert found.argmax(axis=1).tolist() == [3, 0, 3]


@pytest.mark.parametrize("energy", [-2.0, 1.0, np.inf])
def test_temperatures_are_drawn_with_these_probabilities(energy):
    """On a grid of uniform numbers shares are exact up to its spacing."""
    log_weight, n = np.log(PRIOR) - log_z(), 20_000
    redraw = Redraw(BETA, log_weight, Grid())
    rung = redraw.changed(np.zeros(n, np.int16), np.full(n, energy))
    assert rung.dtype == np.int16
    share = np.bincount(rung, minlength=4) / n
    np.testing.assert_allclose(share, direct(energy, log_weight), atol=2.0 / n)


def test_redraws_leave_the_joint_distribution_of_state_and_temperature_invariant():
    """The joint probability is the prior over temperatures times that of the state given it."""
    joint = PRIOR[:, None] * probabilities()
    plan = tempering_plan(prior=PRIOR)
    np.testing.assert_allclose(plan.log_weight, np.log(PRIOR) - log_z())
    given = np.exp(log_probabilities(BETA, plan.log_weight, -LOG_LIKELIHOOD))
    np.testing.assert_allclose(joint.sum(axis=0)[:, None] * given, joint.T, atol=1e-15)
    # a prior that is left out is found: this is no property of any weights
    wrong = np.exp(log_probabilities(BETA, -log_z(), -LOG_LIKELIHOOD))
    assert np.abs(joint.sum(axis=0)[:, None] * wrong - joint.T).max() > 0.01


def test_priors_by_name():
    np.testing.assert_allclose(prior_over("uniform", BETA), 0.25)
    np.testing.assert_allclose(
        prior_over("exponential", BETA), np.exp(2 * BETA) / np.exp(2 * BETA).sum()
    )
    np.testing.assert_allclose(prior_over([2, 6, 1, 1], BETA), [0.2, 0.6, 0.1, 0.1])
    np.testing.assert_allclose(prior_over(np.full(4, 1e308), BETA), 0.25)


def test_priors_that_are_refused():
    """Temperatures that are never visited have no estimate."""
    cases = [
        ([1.0, 2.0, 3.0], "one weight for each of the 4 temperatures, got 3 weights; pass n_temp"),
        ([1.0, 2.0, -3.0, 1.0], r"^prior must be positive and finite, got prior\[2\]=-3.0; leave"),
        ([1.0, 0.0, 3.0, 1.0], r"got prior\[1\]=0.0"),
        ([np.nan, 1.0, 3.0, 1.0], r"got prior\[0\]=nan"),
        ([1.0, 1.0, 3.0, np.inf], r"got prior\[3\]=inf"),
        ([1.0, 1.0, 3.0, 1e-13], r"differ by a factor of at most 1e\+12, got weights from 1e-13"),
        (np.ones((2, 2)), r"or a row of at least two weights, got shape \(2, 2\); pass one weight"),
        ([1.0], r"got shape \(1,\)"),
        (3.0, r"got shape \(\)"),
        (["a", "b"], "^prior must hold real numbers"),
        (None, "^prior must hold real numbers"),
    ]
    check_refused(prior_over, [((prior, BETA), message) for prior, message in cases])


def test_weights_are_scaled_without_overflow():
    assert checked_weights([1e-300, 1e-299]).tolist() == pytest.approx([0.1, 1.0])
