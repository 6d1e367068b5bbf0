"""Point hypotheses: exact Bayes factors by both routes, what is assumed, and what is refused."""

from functools import cache, partial

import numpy as np
import pymc as pm
import pytest
from scipy import stats

import pm_evidence as pe
from tests.api.refusals import check_refusals
from tests.posteriors import posterior_tree

QUIET = {"random_seed": 1, "progressbar": False, "cores": 1}
NAN = np.nan

# --- a regression with known noise: all is normal ---

rng = np.random.default_rng(0)
X = rng.normal(size=(20, 3))
Y = X @ [0.5, 0.1, -0.4] + rng.normal(size=20)
MEAN, SD = np.array([0.0, 0.2, 0.0]), np.array([1.0, 2.0, 1.5])


@cache
def regression():
    with pm.Model() as model:
        beta = pm.Normal("beta", MEAN, SD, shape=3)
        pm.Deterministic("total", beta.sum())
        pm.Normal("y", X @ beta, 1.0, observed=Y)
    return model


def posterior():
    precision = np.diag(SD**-2.0) + X.T @ X
    covariance = np.linalg.inv(precision)
    return covariance @ (SD**-2.0 * MEAN + X.T @ Y), covariance


def draws(seed, shift=0.0, n=1000):
    mean, covariance = posterior()
    beta = np.random.default_rng(seed).multivariate_normal(mean + shift, covariance, (4, n))
    return posterior_tree(regression(), {"beta": beta})


@cache
def result():
    return pe.sample_evidence(regression(), **QUIET)


def exact(value):
    """The ratio of the normal densities of posterior and prior."""
    value = np.broadcast_to(value, 3).astype(float)
    held = np.flatnonzero(~np.isnan(value))
    mean, covariance = posterior()
    density = stats.multivariate_normal(mean[held], covariance[np.ix_(held, held)])
    prior = stats.norm(MEAN, SD).logpdf(value)[held].sum()
    return density.logpdf(value[held]) - prior


def at(value, dt, **options):
    return pe.bayes_factor(dt, model=regression(), point={"beta": value}, **{**QUIET, **options})


@pytest.mark.parametrize("value", [[NAN, 0.0, NAN], [NAN, NAN, -0.5], [0.5, 0.1, -0.2]])
def test_the_density_at_a_point_among_the_draws(value):
    found = at(value, draws(1))
    assert found.estimator == "savage_dickey" and found.status == "ok" and not found.warning
    assert abs(found.log_bf - exact(value)) < 4 * found.mcse < 0.06
    assert found.lower < found.log_bf < found.upper
    assert found.words.endswith("for the point" if found.log_bf > 0.0 else "against the point")


@pytest.mark.parametrize("value", [0.0, [NAN, 3.0, NAN]])
def test_a_point_in_the_tail_has_a_run_of_its_own(value):
    found = at(value, result())
    assert found.estimator == "two_evidences" and found.status == "ok"
    assert abs(found.log_bf - exact(value)) < 4 * np.hypot(found.mcse, 0.003) < 0.05


def test_in_the_tail_of_given_draws_both_evidences_are_estimated():
    found = at([NAN, 2.0, NAN], draws(2))
    assert found.estimator == "two_evidences" and found.status == "ok"
    assert abs(found.log_bf - exact([NAN, 2.0, NAN])) < 4 * found.mcse < 0.1


def test_draws_that_did_not_converge_have_a_status():
    mean, covariance = posterior()
    beta = np.random.default_rng(3).multivariate_normal(mean, covariance, (4, 1000))
    beta[0] += 2.0
    apart = posterior_tree(regression(), {"beta": beta})
    with pytest.warns(pe.EvidenceWarning, match="R-hat of 'beta'"):
        found = at([NAN, 0.0, NAN], apart, target_mcse=None)
    assert found.status == "doubtful_draws"


# --- priors that depend on other variables ---


@cache
def chain():
    """Normal steps from one variable to the next, so that every density is normal."""
    with pm.Model() as model:
        a = pm.Normal("a", 0.0, 1.0)
        b = pm.Normal("b", a, 1.0)
        c = pm.Normal("c", b, 0.5)
        pm.Normal("y", c, 1.0, observed=np.array([1.0, 2.0]))
    prior = np.array([[1.0, 1.0, 1.0], [1.0, 2.0, 2.0], [1.0, 2.0, 2.25]])
    seen = np.array([[0.0, 0.0, 1.0]] * 2)
    gain = prior @ seen.T @ np.linalg.inv(seen @ prior @ seen.T + np.eye(2))
    mean, covariance = gain @ [1.0, 2.0], prior - gain @ seen @ prior
    values = np.random.default_rng(5).multivariate_normal(mean, covariance, (4, 1000))
    named = {name: values[..., i] for i, name in enumerate("abc")}
    return model, posterior_tree(model, named), (mean, covariance, prior)


@pytest.mark.parametrize("point", [{"a": 0.3, "c": 0.9}, {"c": 1.5}, {"b": 0.5}])
def test_the_prior_density_is_that_of_the_whole_model(point):
    """Where it depends on others, also on some that lie between two that are held."""
    model, dt, (mean, covariance, prior) = chain()
    held, value = ["abc".index(name) for name in point], list(point.values())
    part = np.ix_(held, held)
    density = stats.multivariate_normal(mean[held], covariance[part]).logpdf(value)
    density -= stats.multivariate_normal(np.zeros(len(held)), prior[part]).logpdf(value)
    found = pe.bayes_factor(dt, model=model, point=point, **QUIET)
    assert found.estimator == "savage_dickey" and abs(found.log_bf - density) < 4 * found.mcse < 0.1


def test_a_vector_with_a_transform():
    """A Dirichlet prior, held at a point of the simplex."""
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.array([1.0, 2.0, 1.5]))
        pm.Multinomial("k", 10, p, observed=np.array([3, 5, 2]))
    after = stats.dirichlet([4.0, 7.0, 3.5])
    values = np.random.default_rng(6).dirichlet(after.alpha, (4, 1000))
    value = [0.3, 0.4, 0.3]
    dt = posterior_tree(model, {"p": values})
    found = pe.bayes_factor(dt, model=model, point={"p": value}, **QUIET)
    difference = after.logpdf(value) - stats.dirichlet([1.0, 2.0, 1.5]).logpdf(value)
    assert abs(found.log_bf - difference) < 4 * found.mcse < 0.1


def test_elements_with_bounds_that_depend_on_another_variable():
    """Both transforms move with what is held."""
    with pm.Model() as model:
        top = pm.Uniform("top", 1.0, 2.0)
        x = pm.Uniform("x", 0.0, top, shape=2)
        pm.Normal("y", x, 0.2, observed=np.array([0.5, 0.6]))
    rng = np.random.default_rng(7)
    top_drawn = rng.uniform(1.0, 2.0, 400_000)
    x_drawn = rng.uniform(0.0, top_drawn, (2, 400_000)).T
    height = np.exp(-0.5 * ((x_drawn - [0.5, 0.6]) ** 2).sum(axis=1) / 0.04)
    kept = np.flatnonzero(rng.random(400_000) < height)[:4000]  # exact posterior draws
    values = {"top": top_drawn[kept].reshape(4, -1), "x": x_drawn[kept].reshape(4, -1, 2)}
    dt = posterior_tree(model, values)
    found = pe.bayes_factor(dt, model=model, point={"x": [0.4, NAN]}, **QUIET)
    tops = np.linspace(1.0, 2.0, 4001)

    def share(where, mean):  # of a normal likelihood over a uniform prior
        return np.diff(stats.norm(mean, 0.2).cdf([0.0 * tops, where]), axis=0)[0] / where

    likelihood = stats.norm(0.4, 0.2).pdf(0.5)
    posterior_density = np.mean(likelihood / tops * share(tops, 0.6))
    posterior_density /= np.mean(share(tops, 0.5) * share(tops, 0.6))
    difference = np.log(posterior_density / np.mean(1.0 / tops))
    assert abs(found.log_bf - difference) < 4 * found.mcse < 0.1


@pytest.mark.slow
def test_errors_over_many_seeds():
    """A right error fails once in a thousand seeds."""
    value, z = [NAN, 0.3, NAN], []
    for seed in range(50):
        found = at(value, draws(100 + seed, n=250), random_seed=seed)
        z.append((found.log_bf - exact(value)) / found.mcse)
    z = np.array(z)
    assert abs(z.mean()) < 3.3 * z.std() / np.sqrt(z.size) and 0.7 < z.std() < 1.45


def test_bad_input():
    with pm.Model() as model:
        k = pm.Poisson("k", 3.0)
        s = pm.HalfNormal("s", 1.0)
        v = pm.MvNormal("v", np.zeros(2), np.eye(2))
        order = pm.Normal("order", 0, 1, shape=2, transform=pm.distributions.transforms.ordered)
        pm.Deterministic("sum", s + k)
        pm.Normal("y", v[0] + order[0], s + k, observed=np.array([1.0, 2.0]))
    values = {"k": np.ones((4, 100), int), "s": np.ones((4, 100))}
    values |= {"v": np.zeros((4, 100, 2)), "order": np.broadcast_to([0.0, 1.0], (4, 100, 2))}
    dt, point = posterior_tree(model, values), {"s": 1.0}
    cases = [
        ({"point": 0.0}, TypeError, "point must be a mapping of names"),
        ({"point": {}}, ValueError, "point must name at least one variable"),
        ({"point": {"z": 0.0}}, ValueError, "'z', which is no variable of the model"),
        ({"point": {"sum": 0.0}}, ValueError, "deterministic variable, whose prior density"),
        ({"point": {"k": 2}}, ValueError, r"constraint=lambda v: v\['k'\] == 2"),
        ({"point": {"s": [1.0, 2.0]}}, ValueError, r"have the shape \(\) of the variable"),
        ({"point": {"s": "one"}}, TypeError, "must be a number or an array of numbers"),
        ({"point": {"s": np.inf}}, ValueError, "must be finite"),
        ({"point": {"s": -1.0}}, ValueError, "point must lie where the prior of 's'"),
        ({"point": {"v": [0.0, NAN]}}, ValueError, "all elements of a multivariate variable"),
        ({"point": {"order": 0.0}}, pe.ModelError, "cut by a transform"),
        ({"point": point, "model": 3}, TypeError, "model must be a pymc.Model"),
        ({"point": point, "model": None}, TypeError, "model must be given outside"),
        ({"point": point, "target_mcse": -1.0}, ValueError, "target_mcse"),
        ({"point": point, "idata": (None, None)}, ValueError, "idata must be left out unless"),
        ({"point": point, "dt2": dt}, ValueError, "one of dt2, point and constraint"),
        ({"point": None}, ValueError, "one of dt2, point and constraint must be given, got none"),
        ({"point": point, "dt1": 3}, TypeError, "dt1 must be an xarray.DataTree"),
    ]
    usual = {"dt1": dt, "model": model, **QUIET}
    check_refusals(pe.bayes_factor, [({**usual, **given}, *said) for given, *said in cases])
    call = partial(pe.bayes_factor, dt, dt, model=model)
    check_refusals(call, [({}, ValueError, "model must be left out unless there is a point")])
