"""Small models whose evidence is a sum or an integral, with and without couplings."""

from itertools import product

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats
from scipy.special import logsumexp

import pm_evidence as pe
from pm_evidence.targets.plates.target import PlateTarget

Y = np.array([0.3, 1.2, -0.4, 2.0])
FINE = np.linspace(-9.0, 9.0, 200_001)


def coupled(couple):
    """Four labels, each with an observation, and a term that may read several of them."""
    with pm.Model() as model:
        z = pm.Bernoulli("z", 0.4, shape=4)
        pm.Normal("y", z, 1, observed=Y)
        couple(z)
    return model


@pytest.mark.parametrize(
    "couple",
    [
        lambda z: pm.Potential("chain", 0.8 * (z[1:] * z[:-1]).sum()),
        lambda z: pm.Normal("total", z.sum(), 0.5, observed=2.2),
        lambda z: pm.Normal("path", pt.cumsum(z), 1, observed=Y),
        lambda z: pm.Potential("product", pt.prod(1.0 + z)),
    ],
    ids=["chain", "total", "path", "product"],
)
def test_elements_that_meet_are_not_independent(couple):
    """A sum for each of them alone would be another evidence."""
    row = pe.structure(coupled(couple)).loc["z"]
    assert row["kind"] == "global" and row["reason"]


def test_two_that_meet_are_one_element():
    model = coupled(lambda z: pm.Normal("pair", z[0] - z[1], 1, observed=1.0))
    row = pe.structure(model).loc["z"]
    assert (row["kind"], row["elements"], row["coordinates"]) == ("local", 3, 2)
    log_density = [
        np.log(np.where(z, 0.4, 0.6)).sum()
        + stats.norm.logpdf(Y, z).sum()
        + stats.norm.logpdf(1.0, z[0] - z[1])
        for z in map(np.array, product((0, 1), repeat=4))
    ]
    best = pe.log_evidence(pe.sample_evidence(model, random_seed=1, progressbar=False))
    assert best.status == "ok" and best.value == pytest.approx(logsumexp(log_density), abs=1e-9)


def integral(log_density):
    """Return the log of the integral over the fine grid."""
    return logsumexp(log_density) + np.log(FINE[1] - FINE[0])


def reversed_labels():
    model = coupled(lambda z: pm.Normal("back", z[::-1], 1, observed=Y))
    value = np.array([[0.0], [1.0]])
    terms = np.log([[0.6], [0.4]]) + stats.norm.logpdf(Y, value) + stats.norm.logpdf(Y[::-1], value)
    return model, logsumexp(terms, axis=0).sum()


def thinned_counts():
    """A binomial share of a Poisson number is a Poisson number."""
    with pm.Model() as model:
        pm.Binomial("k", pm.Poisson("n", 3.0, shape=3), 0.4, observed=[0, 1, 4])
    return model, stats.poisson.logpmf([0, 1, 4], 1.2).sum()


def squares():
    """Two modes in each element, and heavy tails."""
    with pm.Model() as model:
        x = pm.Normal("x", 0, 1, shape=4)
        pm.StudentT("y", nu=3, mu=x**2, sigma=0.3, observed=Y)
    log_f = [stats.norm.logpdf(FINE) + stats.t.logpdf(y, 3, FINE**2, 0.3) for y in Y]
    return model, sum(map(integral, log_f))


def narrow_in_a_wide_prior():
    """Data a thousand times as precise as the prior, one of them two thousand scales away."""
    with pm.Model() as model:
        pm.Normal("y", pm.Cauchy("x", 0, 1, shape=3), 1e-3, observed=[0.0, 30.0, -2000.0])
    at = [stats.cauchy.logpdf(y + 1e-3 * FINE) for y in (0.0, 30.0, -2000.0)]
    return model, sum(integral(stats.norm.logpdf(FINE) + log_prior) for log_prior in at)


@pytest.mark.parametrize(
    "build", [reversed_labels, thinned_counts, squares, narrow_in_a_wide_prior]
)
def test_independent_elements_are_exact(build):
    model, exact = build()
    dt = pe.sample_evidence(model, random_seed=1, progressbar=False)
    best = pe.log_evidence(dt)
    assert best.status == "ok" and best.mcse < 1e-4
    assert best.value == pytest.approx(exact, abs=4.0 * best.mcse + 1e-7)
    assert dt["log_evidence"].attrs["marginalised"]


@pytest.mark.parametrize(("beyond", "penalty"), [(-0.6, np.inf), (0.1, np.inf), (-0.3, 35.0)])
def test_an_element_may_end_anywhere(beyond, penalty):
    """A density that ends between two nodes, with much of its mass beside the end."""
    sd, mean = 0.3, 0.9
    noise = np.sqrt(1.0 / (1.0 / sd**2 - 1.0))
    y = np.full(3, mean / (1.0 - sd**2))
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1, shape=3)
        pm.Normal("y", mu, noise, observed=y)
        pm.Potential("end", pt.switch(mu[2] < beyond, 0.0, -penalty))
    (rule,) = PlateTarget(model).rules
    z = (beyond - mean) / sd
    last = np.logaddexp(stats.norm.logcdf(z), stats.norm.logsf(z) - penalty)
    exact = stats.norm.logpdf(y, 0.0, np.hypot(1.0, noise)) + np.array([0.0, 0.0, last])
    ((_, found),) = rule.integrate(np.zeros((1, 3)))
    np.testing.assert_allclose(found.log_integral[0], exact, atol=3e-6)
