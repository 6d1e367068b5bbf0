"""A model as a target in partly centred coordinates."""

import pickle
from functools import cache

import numpy as np
import pymc as pm
import pytensor
import pytest

from pm_evidence.targets.model.cache import target_of
from pm_evidence.targets.model.coordinates import Centring
from pm_evidence.targets.model.log_density import gradient_graphs
from pm_evidence.targets.model.target import PyMCTarget, ReparameterisedTarget
from tests.models import shared
from tests.targets.values import evaluated_in_python, in_python

AMOUNTS = (0.0, 0.3, 1.0)
every_amount = pytest.mark.parametrize(
    "amount", [pytest.param(a, marks=pytest.mark.slow if a == 1.0 else []) for a in AMOUNTS]
)


def build():
    """Effects of every distribution that can be partly centred, all in one model."""
    with pm.Model() as model:
        m, t = pm.Normal("m", 0, 1), pm.HalfNormal("t", 1)
        a = pm.Normal("a", m, t, shape=3)
        b = pm.LogNormal("b", a[:2], 0.5 * t)
        c = pm.StudentT("c", nu=2 + pm.math.exp(m), mu=m, sigma=t)
        d = pm.Laplace("d", m, t, shape=2)
        e = pm.Cauchy("e", m, t)
        f = pm.Logistic("f", m, t)
        g = pm.ZeroSumNormal("g", sigma=t, shape=3)
        h = pm.GaussianRandomWalk("h", sigma=t, init_dist=pm.Normal.dist(0, 5), steps=2)
        i = pm.AR("i", [0.5], sigma=t, init_dist=pm.Normal.dist(0, t), steps=2)
        j = pm.Normal("j", 0, 1, shape=3)
        own = pm.Deterministic("own", m + t * j)
        k = pm.Normal("k", own[:2], t)
        u = pm.StudentT("u", nu=4, mu=0, sigma=1, shape=2)
        v = pm.Gamma("v", 1 + t, pm.math.exp(m), shape=2)
        w = pm.InverseGamma("w", 3 + t, 2.0)
        x = pm.Beta("x", 1 + t, 1 + v, shape=2)
        pm.Deterministic("twice", 2 * a)
        total = k.sum() + own[2] + (u[[0, 1, 1]] * pm.math.exp(m)).sum()
        total += a.sum() + b.sum() + c + d.sum() + 0.01 * e + f + g[0] + h.sum() + i[-1]
        total += v.sum() + w + x.sum()
        pm.Normal("y", total, 3.0, observed=1.5)
    return model


@pytest.fixture(scope="module")
def model():
    return build()


@pytest.fixture(scope="module")
def plain(model):
    return in_python(model)


@pytest.fixture(scope="module")
def target(model):
    return in_python(model, ReparameterisedTarget)


@cache
def at(target, amount, log_unit=-0.7):
    n = len(target.variables)
    return evaluated_in_python(target.centred_by(Centring((amount,) * n, (log_unit,) * n)))


def test_every_distribution_is_covered(target):
    """The tests below would pass without the distribution that is missing."""
    assert [v.rv.name for v in target.variables] == list("abcdefghijkuvwx")


@every_amount
def test_density_is_that_of_the_model(target, plain, amount):
    """Log Z would be that of another prior: a missing Jacobian, for instance."""
    moved = at(target, amount)
    z = moved.draw(20, np.random.SeedSequence(1)).x
    x = moved.coordinates.to_model(z, moved.centring)
    expected = plain.evaluate(x).log_density
    expected[:, 0] += moved.coordinates.log_jacobian(z, moved.centring)
    assert np.allclose(moved.evaluate(z).log_density, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_gradient(target):
    """Trajectories would bend the wrong way, so that nearly all proposals are rejected."""
    moved = at(target, 0.3)
    graphs = moved.graphs()
    of_prior, of_likelihood = gradient_graphs(graphs)
    function = pytensor.function(
        graphs.parts, [*of_prior, *of_likelihood], mode="FAST_COMPILE", on_unused_input="ignore"
    )
    z = moved.draw(4, np.random.SeedSequence(2)).x
    steps = 1e-6 * np.eye(moved.n_dim)
    for row in z:
        found = function(*moved.layout.split(row))
        flat = np.concatenate([np.ravel(part) for part in found]).reshape(2, moved.n_dim)
        slope = (moved.density.values(row + steps) - moved.density.values(row - steps)) / 2e-6
        assert np.allclose(flat, slope.T, rtol=1e-5, atol=1e-5)


def test_prior_draws_are_those_of_the_model(target, plain):
    """Annealing would start from another distribution than the prior.

    Each marginal is compared by a two-sample Kolmogorov-Smirnov test with 400 draws; of the 33
    tests, one would fail falsely in 5,000 seeds.
    """
    from scipy.stats import ks_2samp

    moved = at(target, 0.3)
    z = moved.draw(400, np.random.SeedSequence(3)).x
    x = moved.coordinates.to_model(z, moved.centring)
    other = plain.draw(400, np.random.SeedSequence(4)).x
    p = [ks_2samp(x[:, k], other[:, k]).pvalue for k in range(moved.n_dim)]
    assert min(p) > 1e-5


def test_likelihood_of_prior_draws_is_the_same_in_all_coordinates(target):
    """The schedule would depend on coordinates that must not change the evidence."""
    energies = [
        at(target, amount).draw(50, np.random.SeedSequence(5)).log_density[:, 1]
        for amount in AMOUNTS[:2]
    ]
    assert np.allclose(*energies, rtol=1e-9)


@every_amount
def test_users_see_the_variables_of_the_model(target, plain, amount):
    """The posterior of a run would hold values of coordinates that the user never wrote."""
    moved = at(target, amount)
    z = moved.draw(10, np.random.SeedSequence(6)).x
    x = moved.coordinates.to_model(z, moved.centring)
    found, expected = moved.posterior(z), plain.posterior(x)
    assert list(found) == list(expected)
    assert all(np.allclose(found[name], expected[name]) for name in found)
    lp, expected = (t.sample_stats(d)["lp"] for t, d in ((moved, z), (plain, x)))
    assert np.allclose(lp, expected, rtol=1e-9, atol=1e-9)
    assert moved.describe(z[0]) == plain.describe(x[0])


@every_amount
def test_posterior_draws_of_users(target, plain, amount):
    """Reverse paths would start far from the draws that the user gave."""
    moved = at(target, amount)
    z = moved.draw(10, np.random.SeedSequence(7)).x
    draws = {name: value[None] for name, value in moved.posterior(z).items()}
    assert np.allclose(moved.rows_of(draws, "reverse_start"), z, rtol=1e-7, atol=1e-7)


def test_nothing_is_compiled_again():
    """Every choice of coordinates would cost the compilation of the model.

    Other coordinates are other arrays: those of another target would give a wrong evidence.
    """
    target = target_of(shared("schools").model, reparameterise=True)
    x = target.draw(5, np.random.SeedSequence(9)).x
    before, moved = target.differentiable.values(x), target.centred_by(Centring.common(0.7, 1))
    assert moved.differentiable.address == target.differentiable.address
    assert not np.allclose(moved.differentiable.values(x), before)
    for same in (moved.centred_by(target.centring), target):
        np.testing.assert_array_equal(same.differentiable.values(x), before)
    assert target.centring.amount == (0.0,)


def test_workers_get_the_same_coordinates():
    """A worker would run its blocks in other coordinates than the pilot tuned the kernels for."""
    target = target_of(shared("schools").model, reparameterise=True)
    moved = target.centred_by(Centring.common(0.3, 1))
    copy = pickle.loads(pickle.dumps(moved))
    z = moved.draw(5, np.random.SeedSequence(8)).x
    assert copy.centring == moved.centring
    assert np.array_equal(copy.evaluate(z).log_density, moved.evaluate(z).log_density)
    assert np.array_equal(copy.draw(5, np.random.SeedSequence(8)).x, z)


def test_other_models_keep_their_target():
    """The compiled code of models without such variables would change."""
    with pm.Model() as model:  # of its own: others would find the target without machine code
        pm.Normal("y", pm.Normal("x", 0, 1), 1, observed=0.5)
    assert type(in_python(model, target_of, reparameterise=True)) is PyMCTarget
