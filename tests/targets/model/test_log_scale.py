"""Draws and densities of variables that round to an end of their support."""

from functools import cache

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats
from scipy.integrate import cumulative_simpson
from scipy.special import betaln
from scipy.stats import kstest

from pm_evidence.targets.model.log_scale import log_scale_of
from pm_evidence.targets.model.target import ReparameterisedTarget
from tests.targets.values import in_python

SEED = np.random.SeedSequence(1)
N = 1500
# Of these tests 1 in 10,000 fails for a right sampler.
LEAST_P = 1e-4
ZERO = pt.constant(0.0)

EXTREME = {
    "Gamma": lambda: pm.Gamma("x", 1e-3, 1e-3),
    "InverseGamma": lambda: pm.InverseGamma("x", 1e-3, 2.0),
    "ChiSquared": lambda: pm.ChiSquared("x", 2e-3),
    "Beta": lambda: pm.Beta("x", 0.01, 0.02),
    "Beta, mean and concentration": lambda: pm.Beta("x", mu=0.3, nu=0.01),
}


def model_of(build):
    with pm.Model() as model:
        build()
        pm.Potential("zero", ZERO)
    return model


def cdf_of(log_density):
    """Return the distribution function of a single coordinate, by its density."""
    # steps of 0.003 at zero, where densities bend, and of 240 far out, where they decay slowly
    grid = 40_000.0 * np.sinh(np.linspace(-12.0, 12.0, 4001)) / np.sinh(12.0)
    density = np.exp(log_density(grid))
    integral = np.concatenate([[0.0], cumulative_simpson(density, x=grid)])
    assert integral[-1] == pytest.approx(1.0, abs=1e-3)
    return lambda x: np.interp(x, grid, integral / integral[-1])


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if "Beta" in n else []) for n in EXTREME]
)
def test_coordinates_are_drawn_from_their_density(name):
    model = model_of(EXTREME[name])
    target = in_python(model)
    drawn = target.draw(N, SEED).x[:, 0]
    cdf = cdf_of(lambda x: target.evaluate(x[:, None]).log_density[:, 0])
    assert kstest(drawn, cdf).pvalue > LEAST_P
    # The usual draws round to an end of the support: this is what the test has to find.
    with np.errstate(divide="ignore", over="ignore"):
        if name == "InverseGamma":  # PyMC's draws divide by zero
            usual = 2.0 / pm.draw(pm.Gamma.dist(1e-3, 1.0), N, random_seed=1)
        else:
            usual = pm.draw(model["x"], N, random_seed=1)
        values = np.log(usual) - (np.log1p(-usual) if name.startswith("Beta") else 0.0)
    assert not np.isfinite(values).all()
    assert kstest(values, cdf).pvalue < LEAST_P


def test_shares_are_drawn_from_their_density():
    """The log ratio of two shares is that of two gamma variables."""
    a = np.array([0.01, 0.02, 0.03])
    shares = in_python(model_of(lambda: pm.Dirichlet("x", a)))
    x = shares.draw(N, SEED).x
    log_share = np.column_stack([x, -x.sum(axis=1)])
    for i, j in ((0, 1), (0, 2), (1, 2)):
        # the density of the log odds of a beta variable

        def of_log_odds(x, i=i, j=j):
            return -a[i] * np.logaddexp(0, -x) - a[j] * np.logaddexp(0, x) - betaln(a[i], a[j])

        assert kstest(log_share[:, i] - log_share[:, j], cdf_of(of_log_odds)).pvalue > LEAST_P


@pytest.mark.parametrize(
    "build",
    [
        lambda: pm.Gamma("x", [0.5, 2.0], 1e-3),
        lambda: pm.Gamma("x", 2.0, 1.0, shape=3),
        lambda: pm.Gamma("x", mu=2.0, sigma=1.0),
        lambda: pm.InverseGamma("x", 3.0, 1.0),
        lambda: pm.Beta("x", 0.5, 0.5),
        lambda: pm.Dirichlet("x", [0.5, 0.5, 0.5]),
        lambda: pm.HalfCauchy("x", 1.0),
        lambda: pm.Gamma("x", 1e-3, 1e-3, default_transform=None),
    ],
)
def test_the_usual_draws_suffice(build):
    model = model_of(build)
    assert log_scale_of(model["x"], model.rvs_to_transforms[model["x"]]) is None


def test_a_random_shape_may_be_small():
    with pm.Model() as model:
        a = pm.Exponential("a", 1.0)
        x = pm.Gamma("x", a, 1.0)
    assert log_scale_of(x, model.rvs_to_transforms[x]) is not None


RANDOM = {
    "Gamma": lambda t: pm.Gamma("x", t, 2.5 * t, shape=2),
    "InverseGamma": lambda t: pm.InverseGamma("x", 2 * t, t, shape=2),
    "Beta": lambda t: pm.Beta("x", t, 2 * t, shape=2),
    "Dirichlet": lambda t: pm.Dirichlet("x", t * np.array([1.0, 2.0, 3.0])),
}


def given_shape(name):
    with pm.Model() as model:
        t = pm.HalfNormal("t", 1.0)
        RANDOM[name](t)
        pm.Potential("zero", ZERO)
    return model


@pytest.mark.parametrize("name", RANDOM)
def test_densities_are_those_of_the_model(name):
    """Also zero where a shape rounds to zero."""
    model = given_shape(name)
    x = np.random.default_rng(2).normal(size=(20, 3))
    target = in_python(model)
    assert target.evaluate(np.array([[-800.0, 0.3, -0.2]])).log_density[0, 0] == -np.inf
    log_prior = target.evaluate(x).log_density[:, 0]
    logp, (t, value) = model.compile_logp(mode="FAST_COMPILE"), model.value_vars
    expected = [logp({t.name: row[0], value.name: row[1:]}) for row in x]
    np.testing.assert_allclose(log_prior, expected, rtol=1e-12)


@pytest.mark.parametrize("name", RANDOM)
def test_densities_keep_their_digits_far_out(name):
    """Where a shape t tends to zero, the density of t times the logarithm has a limit.

    PyMC's density and its Jacobian are of the size of the logarithm, and cancel.
    """
    target = in_python(given_shape(name), rewritten=True)
    log_t = np.array([-30.0, -60.0, -120.0])
    towards = 1.0 if name == "InverseGamma" else -1.0  # small gamma variables, odds and shares
    x = np.column_stack([log_t, towards * np.exp(-log_t), 0.4 * np.exp(-log_t)])
    if name != "Dirichlet":
        x[:, 2] = 2 * x[:, 1]
    log_prior = target.evaluate(x).log_density[:, 0] + 0.5 * np.exp(2 * log_t)
    # one log from the Jacobian of t, and one from the scale of each of two logarithms
    np.testing.assert_allclose(log_prior - 3 * log_t, log_prior[0] - 3 * log_t[0], rtol=1e-9)


LARGE = {
    "Gamma": lambda t: pm.Gamma("x", t**-2, 2.5, shape=2),
    "Gamma, mean and deviation": lambda t: pm.Gamma("x", mu=2.0, sigma=t, shape=2),
    "InverseGamma": lambda t: pm.InverseGamma("x", t**-2, 2.5, shape=2),
    "Beta": lambda t: pm.Beta("x", t**-2, 3 * t**-2, shape=2),
    "Beta, one of them": lambda t: pm.Beta("x", 0.3, t**-2, shape=2),
}


EXACT = {
    "Gamma": lambda t: stats.gamma(t**-2, scale=1 / 2.5),
    "Gamma, mean and deviation": lambda t: stats.gamma(4 / t**2, scale=t**2 / 2),
    "InverseGamma": lambda t: stats.invgamma(t**-2, scale=2.5),
    "Beta": lambda t: stats.beta(t**-2, 3 * t**-2),
    "Beta, one of them": lambda t: stats.beta(0.3, t**-2),
}


def with_large_shape(name, **kwargs):
    with pm.Model() as model:
        LARGE[name](pm.HalfNormal("t", 1.0))
        pm.Potential("zero", ZERO)
    return in_python(model, ReparameterisedTarget, **kwargs)


@pytest.mark.parametrize("name", LARGE)
def test_noises_of_large_shapes_have_a_limit(name):
    """Terms of 1e80 would cancel, and what is left would look like a peak."""
    target = with_large_shape(name, rewritten=True)
    log_t = np.array([-20.0, -40.0, -90.0])
    x = np.column_stack([log_t, np.full(3, 0.7), np.full(3, -3.0)])
    log_prior = target.evaluate(x).log_density[:, 0] - log_t
    np.testing.assert_allclose(log_prior, log_prior[0], rtol=1e-6)
    if not name.startswith("Beta, one"):  # normal in the limit
        normal = np.log(2 / np.pi) / 2 - np.log(2 * np.pi) - (0.7**2 + 3.0**2) / 2
        assert log_prior[0] == pytest.approx(normal, abs=1e-5)


@cache
def shares_of_any_concentration():
    with pm.Model() as model:
        k = pm.HalfCauchy("k", 1.0)
        pm.Dirichlet("x", k * np.array([1.0, 2.0, 3.0]))
        pm.Potential("zero", ZERO)
    return in_python(model, rewritten=True)


@pytest.mark.parametrize("log_size", [7.0, 12.0, 16.0, 30.0])
def test_shares_of_a_large_concentration(log_size):
    """At the mode and beside it, the density is that of a normal distribution in the limit."""
    size = np.exp(log_size)
    a = size * np.array([1.0, 2.0, 3.0])
    mode = np.log(a) - np.log(a).mean()
    step = 0.0 if log_size > 20 else 1.0 / np.sqrt(size)  # beyond, rounding moves the log ratios
    moved = mode + step * np.array([1.0, -2.0, 1.0])
    x = np.array([[log_size, *mode[:2]], [log_size, *moved[:2]]])
    log_prior = shares_of_any_concentration().evaluate(x).log_density[:, 0]
    log_prior -= np.log(2 / np.pi) - np.log1p(size**2) + log_size
    normal = 0.5 * (np.log(a / (2 * np.pi)).sum() - np.log(a.sum() / (2 * np.pi))) + np.log(3)
    share = a / a.sum()
    shift = moved - mode
    below = 0.5 * a.sum() * (share @ shift**2 - (share @ shift) ** 2)
    assert log_prior[0] == pytest.approx(normal, abs=0.2 / np.sqrt(size) + 1e-5)
    assert log_prior[1] == pytest.approx(normal - below, abs=10.0 / np.sqrt(size) + 1e-5)


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[] if n == "Gamma" else pytest.mark.slow) for n in LARGE],
)
def test_draws_and_densities_of_noises_agree(name):
    """The mean of exp(log density of others - own) over own draws is one.

    The values that the noises make have their distribution: scales 25 % off would be seen.
    """
    target = with_large_shape(name)
    x = target.draw(2000, SEED).x
    shifted = x + np.array([0.0, 0.7, -0.7])
    ratio = np.exp(
        target.evaluate(shifted).log_density[:, 0] - target.evaluate(x).log_density[:, 0]
    )
    assert ratio.mean() == pytest.approx(1.0, abs=5 * ratio.std() / np.sqrt(len(x)))
    values = target.posterior(x)
    share = EXACT[name](values["t"][:, None]).cdf(values["x"])
    assert kstest(share.ravel(), "uniform").pvalue > LEAST_P


def test_what_depends_on_them_is_drawn_given_the_same_draw():
    with pm.Model() as model:
        shape = pm.Gamma("shape", 0.05, 1.0)
        share = pm.Beta("share", 0.05, 0.05)
        pm.Normal("near_shape", shape, 1e-9)
        pm.Normal("near_share", share, 1e-9)
        pm.Potential("zero", ZERO)
    x = in_python(model).draw(200, SEED).x
    np.testing.assert_allclose(x[:, 2], np.exp(x[:, 0]), atol=1e-8)
    np.testing.assert_allclose(x[:, 3], 1 / (1 + np.exp(-x[:, 1])), atol=1e-8)
    assert np.ptp(x[:, 2]) > 1e-3


def test_what_depends_on_an_effect_is_drawn_given_the_same_effect():
    """The effect is drawn as its noise, and the rate given the effect that this noise makes."""
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", 1.0)
        effect = pm.Normal("effect", 0.0, scale, shape=3)
        pm.Gamma("rate", 1e10, 1e10 / pm.math.exp(effect), shape=3)
        pm.Potential("zero", ZERO)
    target = in_python(model, ReparameterisedTarget)
    assert [found.rv.name for found in target.variables] == ["effect"]
    drawn = target.posterior(target.draw(200, SEED).x)
    np.testing.assert_allclose(drawn["rate"], np.exp(drawn["effect"]), rtol=1e-3)
    assert np.ptp(drawn["rate"]) > 1.0


@pytest.mark.parametrize("form", ["tau", "inverse root", "power"])
def test_effects_of_a_precision_that_rounds_to_zero(form):
    """At a precision of exp(-2000) the scale is exp(1000), and the prior of the noise is known."""
    with pm.Model() as model:
        precision = pm.Gamma("precision", 1e-3, 1e-3)
        if form == "tau":
            pm.Normal("effect", 0.0, tau=precision, shape=2)
        else:
            root = 1 / pm.math.sqrt(precision) if form == "inverse root" else precision**-0.5
            pm.Normal("effect", 0.0, root, shape=2)
        pm.Potential("zero", ZERO)
    target = in_python(model, ReparameterisedTarget, rewritten=True)
    x = np.array([[-2000.0, 0.5, -1.0], [0.0, 0.5, -1.0]])
    log_prior = target.evaluate(x).log_density[:, 0]
    rate = -1e-3 * 2000.0 + 1e-3  # log of the ratio of the gamma densities, with Jacobians
    assert log_prior[0] - log_prior[1] == pytest.approx(rate, rel=1e-9)


def test_effects_of_an_infinite_scale_are_draws_without_likelihood():
    with pm.Model() as model:
        precision = pm.Gamma("precision", 1e-3, 1e-3)
        effect = pm.Normal("effect", 0.0, tau=precision, shape=2)
        pm.Normal("y", effect, 1.0, observed=[0.3, -0.2])
    target = in_python(model)
    particles = target.draw(1000, SEED)
    assert np.isfinite(particles.x).all()
    assert target.prior_acceptance == 1.0
    infinite = particles.x[:, 0] < -745.0
    assert 0.4 < infinite.mean() < 0.6
    assert (particles.log_density[infinite, 1] < -1e100).all()
