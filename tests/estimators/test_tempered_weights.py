"""Shares of states among temperatures, and verdicts on weights."""

import numpy as np
from scipy.special import logsumexp, softmax

from pm_evidence.estimators.rts import (
    LIGHT,
    JointShares,
    Shares,
    checked_log_z,
    checked_prior,
    of_states,
)
from tests.estimators.ladders import BETA, draws, log_z
from tests.estimators.refusals import check_refused

INF = np.inf


def test_shares_by_hand():
    """Carlson et al. (2016), Eq. 7, and sums over states. Seed 1."""
    rung = np.tile(np.arange(6), 30)
    energy, log_weight = draws(np.random.default_rng(1), rung), np.linspace(0.0, 3.0, 6)
    shares = Shares(BETA, energy, log_weight)
    logs = log_weight[:, None] - np.outer(BETA, energy)
    np.testing.assert_allclose(shares.log_density, logsumexp(logs, axis=0), rtol=1e-12)
    q = softmax(logs, axis=0)
    np.testing.assert_allclose(
        np.exp(shares.log_sums + log_weight), q.sum(axis=1), rtol=1e-11, atol=1e-14
    )
    for k in (0, 3, 5):
        expected = q[k] / q[k].sum()
        np.testing.assert_allclose(np.exp(shares.relative(k)), expected, rtol=1e-10)


def test_verdicts():
    """Equal weights are fine, a single one dominates, and a Pareto tail of shape 1 is heavy."""
    assert not list(of_states(np.zeros(100), "here"))
    one = np.append(np.log(100.0) - 1e-9, np.full(99, -30.0))
    status, message = next(of_states(one, "of beta=1"))
    assert status == "dominated" and "of beta=1 (effective number 1.0 of 100)" in message
    tail = np.random.default_rng(2).pareto(1.0, 5000) + 1.0
    tail = np.log(tail / tail.mean())
    assert tail.max() > np.log(LIGHT)
    assert next(of_states(tail, "here"))[0] == "heavy_tail"
    assert not list(of_states(tail, "here", bounded=True))


def test_probabilities_near_one_have_no_tail():
    """Few of many temperatures have large shares, but none exceeds 1. Seed 3."""
    beta = np.linspace(0.0, 1.0, 60) ** 2
    rung = np.random.default_rng(3).integers(0, 60, 3000)
    energy = draws(np.random.default_rng(4), rung, beta)
    shares = Shares(beta, energy, -log_z(beta))
    assert not list(JointShares((shares,)).verdicts())
    far = Shares(np.array([0.0, 1.0]), np.linspace(500.0, 600.0, 40), np.array([0.0, 300.0]))
    assert next(JointShares((far,)).verdicts())[0] == "dominated"


def test_constants_and_priors_that_are_refused():
    """Another prior than the sampler's gives another value, without a sign."""
    constants = [
        ([1.0], "log_z must have one value for each temperature"),
        (np.zeros((2, 2)), "log_z must have one value for each temperature"),
        ([0.0, 1.0], r"log_z must have one value for each temperature, shape \(3,\), got shape"),
        ([0.0, np.nan, 1.0], "log_z must be finite, got nan at temperature 1"),
        ([0.0, 1.0, -INF], "log_z must be finite, got -inf at temperature 2"),
        ([0.0, 1.0, 1e300], "log_z must be infinite or between"),
    ]
    check_refused(checked_log_z, [((log_z, 3), f"^{text}") for log_z, text in constants])
    priors = [
        ([0.5, 0.5], r"prior must have one probability for each temperature, shape \(3,\)"),
        ([0.5, 0.0, 0.5], "prior must be positive and finite, got 0.0 at temperature 1"),
        ([0.5, 0.7, -0.2], "prior must be positive and finite, got -0.2 at temperature 2"),
        ([np.nan, 0.7, 0.2], "prior must be positive and finite, got nan"),
        ([INF, 0.7, 0.2], "prior must be positive and finite, got inf"),
        ("abc", "prior must hold real numbers"),
    ]
    check_refused(checked_prior, [((prior, 3), f"^{text}") for prior, text in priors])
    np.testing.assert_allclose(np.exp(checked_prior([2, 1, 1], 3)), [0.5, 0.25, 0.25])
    np.testing.assert_allclose(np.exp(checked_prior(None, 4)), 0.25)
