"""Thermodynamic integration: rules, gaps, errors of the rule, and intervals that hold."""

from functools import partial

import numpy as np
import pytest

from pm_evidence.estimators import rts, ti, ti_rb
from tests.estimators.ladders import (
    DEAD_IN_SHARES,
    HALVES,
    IN_SHARES,
    coverage,
    draws,
    in_proportion,
    log_z,
    tempering,
)

INF, HIGH = np.inf, 2.0 * np.log(2.0)
BETA = np.linspace(0.0, 1.0, 21) ** 2
LOG_Z = float(log_z(BETA)[-1])
RULES = ["riemann", "trapezoid", "corrected"]
NAMES = {"riemann": "_riemann", "trapezoid": "_trapezoid", "corrected": ""}
every_rule = pytest.mark.parametrize("rule", RULES)


def by_hand(rule, shares):
    """The rule on three temperatures, from the probabilities of the higher energy."""
    mean, variance = HIGH * shares, HIGH**2 * shares * (1.0 - shares)
    if rule == "riemann":
        return -0.5 * (mean[1] + mean[2])
    value = -0.25 * (mean[0] + 2.0 * mean[1] + mean[2])
    return value - (rule == "corrected") * 0.25 / 12.0 * (variance[2] - variance[0])


# --- values ---


@every_rule
@pytest.mark.parametrize("name", IN_SHARES)
def test_rules_by_hand(rule, name):
    """States in exact proportions have exact means; the rest is the rule."""
    exact = by_hand(rule, np.array([1 / 2, 1 / 3, 1 / 5]))
    assumed, prior, energy = IN_SHARES[name]
    found = ti_rb(HALVES, energy, assumed, prior=prior, rule=rule)
    assert found.value == pytest.approx(exact, abs=1e-13)
    assert found.estimator == "ti_rb" + NAMES[rule]
    # many repetitions, because variances of drawn states are divided by n - 1
    drawn = ti(HALVES, *in_proportion((5000, 5000, 5000)), rule=rule)
    assert drawn.value == pytest.approx(exact, abs=1e-5) and drawn.estimator == "ti" + NAMES[rule]


def test_the_correction_takes_variances_of_few_states_without_bias():
    """Of drawn states they are divided by ``n - 1``; with ``n``, it would be 0.01 nats off."""
    energy = np.array([[1.0, 4.0, 2.5], [0.5, 1.0, 3.0], [0.0, 1.5, 0.2]])
    mean, variance = energy.mean(axis=1), energy.var(axis=1, ddof=1)
    exact = -0.25 * (mean[0] + 2.0 * mean[1] + mean[2]) - 0.25 / 12.0 * (variance[2] - variance[0])
    found = ti(HALVES, energy.ravel(), np.repeat([0, 1, 2], 3))
    assert found.value == pytest.approx(exact, abs=1e-12)


@every_rule
def test_zero_likelihood(rule):
    """Log Z jumps at beta = 0 by the log of the share that is left."""
    exact = by_hand(rule, np.array([1 / 3, 1 / 5, 1 / 9])) + np.log(3.0 / 4.0)
    drawn = ti(HALVES, *in_proportion((5000, 5000, 5000), dead=True), rule=rule)
    assert drawn.value == pytest.approx(exact, abs=1e-5)
    found = ti_rb(HALVES, DEAD_IN_SHARES, np.zeros(3), rule=rule)
    assert found.value == pytest.approx(exact, abs=1e-12)


def test_on_many_temperatures_rts_is_ti_rb():
    """Carlson et al. (2016), Eq. 22, for the same states; on few temperatures they differ. Seed 8.

    The difference falls with the square of the step, as the error of the trapezoidal rule does.
    """
    rng = np.random.default_rng(8)
    energy = rng.gamma(2.0, 1.5, size=400)
    differences = []
    for size in (6, 51, 501):
        beta = np.linspace(0.0, 1.0, size)
        assumed, prior = -1.3 * np.sqrt(beta), np.exp(beta)
        curve = rts(beta, energy, assumed, prior=prior).value
        rule = ti_rb(beta, energy, assumed, prior=prior, rule="trapezoid").value
        differences.append(abs(curve - rule))
    assert differences[0] > 1e-3 and differences[2] < 1e-5
    assert differences[0] / differences[1] == pytest.approx(100.0, rel=0.3)
    assert differences[1] / differences[2] == pytest.approx(100.0, rel=0.05)


# --- gaps ---


def test_means_of_empty_temperatures_are_interpolated():
    """Linear in beta, as in Carlson et al. (2016), section 4.3, and told. Seed 3."""
    rung = np.tile(np.arange(21), 50)
    energy = draws(np.random.default_rng(3), rung, BETA)
    kept = ~np.isin(rung, [4, 5, 11])
    found = ti(BETA, energy[kept], rung[kept], rule="trapezoid")
    assert found.status == "ok"
    assert "no state of finite energy was drawn at 3 of 21 temperatures" in found.message
    mean = np.array([energy[rung == k].mean() for k in range(21)])
    left = np.setdiff1d(np.arange(21), [4, 5, 11])
    mean = np.interp(BETA, BETA[left], mean[left])
    assert found.value == pytest.approx(-np.trapezoid(mean, BETA), rel=1e-12)
    riemann = ti(BETA, energy[kept], rung[kept], rule="riemann")
    assert riemann.value == pytest.approx(-np.diff(BETA) @ mean[1:], rel=1e-12)
    corrected = ti(BETA, energy[kept], rung[kept])
    assert abs(corrected.value - LOG_Z) < 4.0 * corrected.mcse


# --- errors ---


@every_rule
def test_the_error_of_the_rule_is_told(rule):
    """On few temperatures with many states, the message has the error to 40 %. Seed 5."""
    beta = np.linspace(0.0, 1.0, 4 if rule == "corrected" else 7) ** 2
    rung = np.tile(np.arange(len(beta)), 100_000)
    found = ti(beta, draws(np.random.default_rng(5), rung, beta), rung, rule=rule)
    assert found.status == "coarse_schedule"
    told = float(found.message.split("about ")[1].split(" nats")[0])
    assert told == pytest.approx(found.value - LOG_Z, rel=0.4)


@pytest.mark.parametrize("rule", ["trapezoid", "corrected"])
def test_coverage_of_independent_states(rule):
    """200 repetitions of 50 states at each temperature, seed 6."""
    rng, rung = np.random.default_rng(6), np.tile(np.arange(21), 50)
    energies = [draws(rng, rung, BETA) for _ in range(200)]
    found = [ti(BETA, energy, rung, rule=rule) for energy in energies]
    assert 0.90 <= coverage(found, LOG_Z) <= 0.99
    assert np.mean([e.status == "ok" for e in found]) > 0.95


@pytest.mark.slow
@pytest.mark.parametrize(("n", "m"), [(150, 10), (1500, 1)])
def test_coverage_of_chains(n, m):
    """Simulated tempering, 300 repetitions, seed 7: both means of the energy."""
    rng, guess, prior = np.random.default_rng(7), log_z(BETA), np.full(21, 1.0)
    found, shared = [], []
    for _ in range(300):
        energy, rung = tempering(rng, n, m, guess, prior, beta=BETA)
        found.append(ti(BETA, energy, rung))
        shared.append(ti_rb(BETA, energy, guess))
    assert 0.90 <= coverage(found, LOG_Z) <= 0.99
    assert 0.90 <= coverage(shared, LOG_Z) <= 0.99


# --- what it cannot do ---


def test_likelihood_zero_everywhere():
    for energy, rung in (([INF, INF], [0, 0]), ([INF, 1.0, 2.0], [0, 1, 2])):
        found = ti(HALVES, energy, rung)
        assert found.value == -INF and found.status == "no_support"
    assert ti_rb(HALVES, [INF, INF], np.zeros(3)).status == "no_support"
    # nor states that do not reach an end, or another rule
    far = ti_rb([0.0, 1.0], np.linspace(500.0, 600.0, 40), [0.0, -300.0])
    assert far.status == "dominated"
    for call in (partial(ti, HALVES, [1.0], [0]), partial(ti_rb, HALVES, [1.0], np.zeros(3))):
        with pytest.raises(ValueError, match=r"^rule must be one of 'riemann', 'trapezoid'"):
            call(rule="simpson")
