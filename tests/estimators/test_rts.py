"""Rao-Blackwellized tempered sampling: exact shares, intervals that hold, wrong priors."""

import numpy as np
import pytest

from pm_evidence.estimators import rts, rts_curve, ts
from pm_evidence.estimators.rts import shares_of
from tests.estimators.ladders import (
    BETA,
    DEAD_IN_SHARES,
    DEAD_Z,
    HALVES,
    HALVES_Z,
    IN_SHARES,
    LOG_Z,
    coverage,
    draws,
    log_z,
    tempering,
)

INF = np.inf
PRIOR = np.exp(2.0 * BETA) / np.exp(2.0 * BETA).sum()
GUESS = log_z() + np.array([0.0, 0.3, -0.2, 0.5, -0.4, 0.2])


def independent(rng, n, guess=GUESS, prior=PRIOR):
    """Independent states of simulated tempering: energy and rung."""
    weight = prior * np.exp(log_z() - guess)
    rung = rng.choice(6, n, p=weight / weight.sum())
    return draws(rng, rung), rung


# --- values ---


@pytest.mark.parametrize("name", IN_SHARES)
def test_exact_shares(name):
    """States in the proportions of q(x), which is a sum over three temperatures.

    RTS is a ratio of means that equal their expectations here, so it has to be exact (Carlson et
    al. 2016, Eq. 10 to 12), whatever the constants and the prior.
    """
    assumed, prior, energy = IN_SHARES[name]
    curve = rts_curve(HALVES, energy, assumed, prior=prior)
    np.testing.assert_allclose(curve.log_z, HALVES_Z, atol=1e-13)
    found = rts(HALVES, energy, assumed, prior=prior)
    assert found.value == pytest.approx(HALVES_Z[-1], abs=1e-13) and found.estimator == "rts"


def test_exact_shares_with_zero_likelihood():
    """States of likelihood zero count at beta = 0 alone."""
    curve = rts_curve(HALVES, DEAD_IN_SHARES, np.zeros(3))
    np.testing.assert_allclose(curve.log_z, DEAD_Z, atol=1e-13)


def test_visits():
    """Carlson et al. (2016), Eq. 8, by hand, and their pseudo-count of 0.1."""
    rung = np.repeat([0, 1, 2], [30, 20, 10])
    found = ts(rung, [0.0, -1.0, -3.0], prior=[1.0, 1.0, 2.0], pseudocount=1e-9)
    assert found.value == pytest.approx(-3.0 + np.log(10 / 30 / 2.0), abs=1e-8)
    usual = ts(rung, [0.0, -1.0, -3.0])
    assert usual.value == pytest.approx(-3.0 + np.log(10.1 / 30.1), rel=1e-12)
    # the error of the log of a ratio of two shares of 60 independent visits
    assert usual.mcse == pytest.approx(np.sqrt(1 / 30 + 1 / 10), rel=0.02)


# --- errors, bias ---


@pytest.mark.parametrize("estimator", ["rts", "ts"])
def test_coverage_of_independent_states(estimator):
    """300 repetitions, seed 1; the other prior covers nothing."""
    rng, found, wrong = np.random.default_rng(1), [], []
    for _ in range(300):
        energy, rung = independent(rng, 600)
        if estimator == "rts":
            found.append(rts(BETA, energy, GUESS, prior=PRIOR))
            wrong.append(rts(BETA, energy, GUESS))
        else:
            found.append(ts(rung, GUESS, prior=PRIOR))
            wrong.append(ts(rung, GUESS))
    assert 0.90 <= coverage(found, LOG_Z) <= 0.99
    assert coverage(wrong, LOG_Z) < 0.1
    assert all(e.status == "ok" for e in found)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "m"), [(150, 10), (400, 3), (1500, 1)])
def test_coverage_of_chains(n, m):
    """Correlated chains, 300 repetitions, seed 2: `rts` and `ts`, by groups and by batches."""
    rng, found, visits = np.random.default_rng(2), [], []
    for _ in range(300):
        energy, rung = tempering(rng, n, m, GUESS, PRIOR)
        found.append(rts(BETA, energy, GUESS, prior=PRIOR))
        visits.append(ts(rung, GUESS, prior=PRIOR))
    assert 0.90 <= coverage(found, LOG_Z) <= 0.99
    assert 0.90 <= coverage(visits, LOG_Z) <= 0.99
    spread = [np.std([e.value for e in each]) for each in (found, visits)]
    assert spread[0] < spread[1]


@pytest.mark.slow
def test_bias_and_variance():
    """Carlson et al. (2016), Eq. 15 and 16, against 4,000 repetitions of 400 states. Seed 3.

    The prior is steep, so that beta = 0 is rare and the bias large and positive: 0.015 at beta = 1,
    which 4,000 repetitions know to 0.003. Terms of higher order are below a quarter of it.
    """
    rng, prior = np.random.default_rng(3), np.exp(4.0 * BETA)
    prior /= prior.sum()
    curves = []
    for _ in range(4000):
        energy, _ = independent(rng, 400, log_z(), prior)
        curves.append(rts_curve(BETA, energy, log_z(), prior=prior))
    values = np.array([curve.log_z for curve in curves])
    bias = np.mean([curve.bias for curve in curves], axis=0)
    error = values.std(axis=0) / np.sqrt(4000)
    assert bias[-1] > 4.0 * error[-1]
    np.testing.assert_array_less(
        np.abs(values.mean(axis=0) - log_z() - bias)[1:], 4.0 * error[1:] + 0.25 * bias[1:]
    )
    predicted = np.mean([np.diag(curve.covariance) for curve in curves], axis=0)
    np.testing.assert_allclose(predicted[1:], values.var(axis=0)[1:], rtol=0.2)


def test_curve_and_value_agree():
    """One value, one error, by groups and by batches. Seed 5."""
    rng = np.random.default_rng(5)
    for n, m in ((60, 9), (800, 2)):
        energy, _ = tempering(rng, n, m, GUESS, PRIOR)
        curve = rts_curve(BETA, energy, GUESS, prior=PRIOR)
        found = rts(BETA, energy, GUESS, prior=PRIOR)
        assert found.value == curve.log_z[-1]
        assert found.mcse == pytest.approx(curve.mcse[-1], rel=1e-8) and found.dof == curve.dof


# --- what it cannot do ---


def test_chains_that_hardly_reach_an_end():
    """All states at the hot end: the weight of beta = 1 is that of a few. Seed 6."""
    energy = draws(np.random.default_rng(6), np.zeros(300, int), dim=8, strength=60.0)
    found = rts(BETA, energy, log_z(dim=8, strength=60.0))
    assert found.status == "dominated" and "of beta=1 among all states" in found.message


def test_likelihood_zero_everywhere():
    found = rts(HALVES, [INF, INF], np.zeros(3))
    assert found.value == -INF and found.status == "no_support"
    with pytest.raises(ValueError, match=r"^energy must be finite at one state or more"):
        rts_curve(HALVES, [INF, INF], np.zeros(3))
    # one state has no error, and a temperature that was never visited no share
    found = rts(HALVES, [1.0], np.zeros(3))
    assert found.value == pytest.approx(-1.0) and found.status == "no_error"
    assert np.isnan(rts_curve(HALVES, [1.0], np.zeros(3)).mcse).all()
    found = ts([0, 0, 1, 1, 0, 1], [0.0, -1.0, -2.0])
    assert found.status == "no_overlap" and "temperature 2 was never visited" in found.message


def test_arguments():
    with pytest.raises(ValueError, match=r"^log_z must have one value for each temperature"):
        rts(HALVES, [1.0], np.zeros(4))
    with pytest.raises(ValueError, match=r"^groups must have one whole number for each chain"):
        shares_of(HALVES, np.zeros((4, 3)), np.zeros(3), None, [1, 2])
    with pytest.raises(ValueError, match=r"^pseudocount must be a finite number above 0"):
        ts([0, 1], [0.0, 1.0], pseudocount=0.0)
    with pytest.raises(ValueError, match=r"^rung must lie between 0 and 1, got 2"):
        ts([0, 2], [0.0, 1.0])
    with pytest.raises(ValueError, match=r"^rung must have shape \(n,\)"):
        ts(np.zeros((1, 2, 3), int), [0.0, 1.0])
