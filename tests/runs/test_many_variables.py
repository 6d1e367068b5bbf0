"""Models of hundreds and thousands of hidden variables that are not groups of a plate."""

import numpy as np
import pymc as pm
import pytest
from scipy import stats
from scipy.special import logsumexp

import pm_evidence as pe


def crossed(n, rows):
    rng = np.random.default_rng(48)
    i, j = rng.integers(n, size=(2, rows))
    return i, j, rng.normal(0.7 * rng.normal(size=n)[i] + 0.5 * rng.normal(size=n)[j], 1.0)


def exact_crossed(n, i, j, y):
    """Return the log evidence: a normal density given two scales, and a quadrature over these."""
    z = np.zeros((len(y), 2 * n))
    z[np.arange(len(y)), i] = z[np.arange(len(y)), n + j] = 1.0
    square, with_data = z.T @ z, z.T @ y

    def given(a, b):
        prior = np.repeat([a**-2.0, b**-2.0], n)
        factor = np.linalg.cholesky(square + np.diag(prior))
        white = np.linalg.solve(factor, with_data)
        log_det = 0.5 * np.log(prior).sum() - np.log(np.diag(factor)).sum()
        return stats.norm.logpdf(y).sum() + log_det + 0.5 * white @ white

    a, b = np.geomspace(0.5, 1.0, 21), np.geomspace(0.35, 0.75, 21)
    prior = [np.log(s) + stats.halfnorm.logpdf(s) for s in (a, b)]
    values = [
        [given(s, t) + p + q for t, q in zip(b, prior[1], strict=True)]
        for s, p in zip(a, prior[0], strict=True)
    ]
    return logsumexp(values) + np.log(np.log(a[1] / a[0]) * np.log(b[1] / b[0]))


def test_crossed_effects_of_many_levels():
    n = 155
    i, j, y = crossed(n, 2000)
    with pm.Model() as model:
        of_i = pm.Normal("of_i", 0, pm.HalfNormal("a", 1), shape=n)
        of_j = pm.Normal("of_j", 0, pm.HalfNormal("b", 1), shape=n)
        pm.Normal("y", of_i[i] + of_j[j], 1, observed=y)
    dt = pe.sample_evidence(model, target_mcse=0.05, random_seed=1, progressbar=False)
    best = pe.log_evidence(dt)
    assert best.status == "ok" and best.mcse < 0.05
    assert best.value == pytest.approx(exact_crossed(n, i, j, y), abs=4.0 * best.mcse)
    facts = dt["log_evidence"].attrs
    assert facts["n_evaluations"] < 20_000 and "marginalised" not in facts


def kalman(y, step):
    """Return the log likelihood of a random walk from N(0, 1) that is observed with unit noise."""
    mean, variance, total = 0.0, 1.0, 0.0
    for value in y:
        spread = variance + 1.0
        total -= 0.5 * (np.log(2.0 * np.pi * spread) + (value - mean) ** 2 / spread)
        gain = variance / spread
        mean, variance = mean + gain * (value - mean), (1.0 - gain) * variance + step**2
    return total


@pytest.mark.slow
def test_a_walk_of_more_states_than_second_derivatives_are_measured_for():
    n = 7000
    rng = np.random.default_rng(7)
    y = np.cumsum(0.2 * rng.normal(size=n)) + rng.normal(size=n)
    with pm.Model() as model:
        start = pm.Normal.dist(0, 1)
        x = pm.GaussianRandomWalk("x", 0, pm.HalfNormal("step", 1), init_dist=start, steps=n - 1)
        pm.Normal("y", x, 1, observed=y)
    steps = np.geomspace(0.16, 0.26, 61)
    values = [kalman(y, s) + stats.halfnorm.logpdf(s) + np.log(s) for s in steps]
    exact = logsumexp(values) + np.log(np.log(steps[1] / steps[0]))
    dt = pe.sample_evidence(model, target_mcse=0.05, random_seed=1, progressbar=False)
    best = pe.log_evidence(dt)
    assert best.status == "ok" and best.mcse < 0.05
    assert best.value == pytest.approx(exact, abs=4.0 * best.mcse)
