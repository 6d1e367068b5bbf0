"""Data far more precise than the prior, and priors far wider than the data: exact by conjugacy.

With steps of at least 1e-14, which keep a single particle, runs ended 1e13 nats off.
"""

import math
from fractions import Fraction

import numpy as np
import pymc as pm
import pytest
from scipy import stats

import pm_evidence as pe


def line(sd, n):
    """Return a straight line with a known error, and its log evidence in rational numbers."""
    rng = np.random.default_rng(468)
    x = np.linspace(0, 1, n)
    y = 0.3 + 0.7 * x + sd * rng.normal(size=n)
    with pm.Model() as model:
        a, b = pm.Normal("a", 0, 1), pm.Normal("b", 0, 1)
        pm.Normal("y", a + b * x, sd, observed=y)
    variance = Fraction(float(sd)) ** 2
    u, v = [Fraction(float(each)) for each in x], [Fraction(float(each)) for each in y]
    precision = [1 + n / variance, sum(u) / variance, 1 + sum(p * p for p in u) / variance]
    linear = sum(v) / variance, sum(p * q for p, q in zip(u, v, strict=True)) / variance
    det = precision[0] * precision[2] - precision[1] ** 2
    explained = precision[2] * linear[0] ** 2 - 2 * precision[1] * linear[0] * linear[1]
    explained = (explained + precision[0] * linear[1] ** 2) / det
    misfit = sum(q * q for q in v) / variance - explained
    log_det = math.log(det.numerator) - math.log(det.denominator)
    constant = n * (math.log(sd) + 0.5 * math.log(2 * math.pi))
    return model, -float(misfit) / 2 - log_det / 2 - constant


def mean(y, prior_sd, sd):
    """Return the mean of one value, and its log evidence."""
    with pm.Model() as model:
        x = pm.Normal("x", 0, prior_sd)
        pm.Normal("y", x, sd, observed=y)
    return model, float(stats.norm.logpdf(y, 0, np.hypot(prior_sd, sd)))


def check(model, right, seed=1, **options):
    dt = pe.sample_evidence(model, random_seed=seed, progressbar=False, cores=1, **options)
    found = pe.log_evidence(dt)
    assert found.status == "ok" and abs(found.value - right) < 5.0 * found.mcse, found


def test_a_line_with_an_error_of_1e_8():
    model, right = line(1e-8, 300)
    assert right == pytest.approx(5057.3585, abs=1e-3)
    check(model, right)


@pytest.mark.parametrize(
    ("prior_sd", "sd"), [(1e12, 1.0), pytest.param(1e30, 1.0, marks=pytest.mark.slow), (1.0, 1e-12)]
)
def test_a_prior_may_be_as_wide_as_it_likes(prior_sd, sd):
    check(*mean(0.5, prior_sd, sd))


@pytest.mark.parametrize("y", [1e100, pytest.param(1e12, marks=pytest.mark.slow)])
def test_log_densities_without_digits_are_refused(y):
    """The evidence is finite here, but no log density differs from the next one."""
    with pytest.raises(pe.NumericalError, match="the prior is very far from the data"):
        check(*mean(y, 1.0, 1.0))
