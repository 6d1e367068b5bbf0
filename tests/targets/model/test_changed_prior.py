"""Models with another prior: nothing else changes, and the ratio is that of the densities."""

import numpy as np
import pymc as pm
import pytest
from scipy import stats

from pm_evidence.targets.model.derived import (
    changed_prior,
    free_variable,
)

Y = [1.0, 2.0, 0.5]


@pytest.fixture(scope="module")
def model():
    with pm.Model(coords={"school": list("abc")}) as built:
        mu = pm.Normal("mu", 0.0, 5.0)
        tau = pm.HalfNormal("tau", 5.0, initval=1.0)
        theta = pm.Normal("theta", mu, tau, dims="school")
        pm.Deterministic("twice", 2.0 * theta, dims="school")
        pm.Potential("tie", -((theta.sum()) ** 2))
        pm.Normal("y", theta, 1.0, observed=Y, dims="school")
    return built


def log_densities(model, point):
    rvs = model.basic_RVs
    graphs = [graph.sum() for graph in model.logp(vars=rvs, sum=False)]
    found = model.compile_fn(graphs, mode="FAST_COMPILE")(point)
    return {rv.name: float(value) for rv, value in zip(rvs, found, strict=True)}


def test_only_the_prior_of_the_variable_changes(model):
    changed = changed_prior(model, "tau", pm.HalfCauchy.dist(3.0)).changed
    point = {"mu": 0.3, "tau_log__": np.log(2.0), "theta": np.array([0.1, 0.2, -0.4])}
    old, new = log_densities(model, point), log_densities(changed, point)
    assert {k: v for k, v in old.items() if k != "tau"} == pytest.approx(
        {k: v for k, v in new.items() if k != "tau"}
    )
    expected = stats.halfcauchy.logpdf(2.0, scale=3.0) + np.log(2.0)
    assert new["tau"] == pytest.approx(expected, abs=1e-6)
    assert [rv.name for rv in changed.free_RVs] == ["mu", "tau", "theta"]
    assert changed.named_vars_to_dims == model.named_vars_to_dims
    assert changed["twice"] is not model["twice"]
    assert changed["mu"] is model["mu"]
    assert model["tau"] in model.free_RVs and model["tau"] not in changed.free_RVs


def test_the_ratio_is_that_of_the_densities(model):
    found = changed_prior(model, "theta", lambda m: pm.Laplace.dist(m["mu"], m["tau"]))
    rng = np.random.default_rng(1)
    draws = {"mu": rng.normal(size=5), "tau": rng.gamma(2.0, size=5)}
    draws["theta"] = rng.normal(size=(5, 3))
    new, old = found.log_priors(draws)
    place = (draws["theta"], draws["mu"][:, None], draws["tau"][:, None])
    assert new == pytest.approx(stats.laplace.logpdf(*place).sum(axis=1))
    assert old == pytest.approx(stats.norm.logpdf(*place).sum(axis=1))
    assert found.new.type.shape == (3,)


def test_draws_of_the_new_prior_come_with_its_parents(model):
    found = changed_prior(model, "theta", 0.01)
    draws = found.prior_draws(200, seed=1)
    assert {k: v.shape for k, v in draws.items()} == {
        "mu": (200,),
        "tau": (200,),
        "theta": (200, 3),
    }
    spread = (draws["theta"] - draws["mu"][:, None]) / draws["tau"][:, None]
    assert 0.009 < spread.std() < 0.011
    assert draws["tau"].min() > 0.0


def test_another_support_has_another_transform(model):
    changed = changed_prior(model, "mu", pm.Uniform.dist(-20.0, 20.0)).changed
    assert [v.name for v in changed.value_vars] == ["mu_interval__", "tau_log__", "theta"]
    new, old = changed_prior(model, "mu", pm.Uniform.dist(0.0, 1.0)).log_priors(
        {"mu": np.array([0.5, 2.0]), "tau": np.ones(2), "theta": np.zeros((2, 3))}
    )
    assert new.tolist() == [0.0, -np.inf] and np.isfinite(old).all()


def test_priors_that_a_transform_cuts_have_no_ratio(model):
    assert changed_prior(model, "mu", 2.0).has_ratio
    ordered = pm.distributions.transforms.ordered
    with pm.Model() as cut:
        x = pm.Normal("x", 0.0, 1.0, shape=2, transform=ordered, initval=[-1.0, 1.0])
        pm.HalfNormal("s", 1.0)
        pm.Normal("y", x.sum(), 1.0, observed=0.3)
    assert not changed_prior(cut, "x", 2.0).has_ratio
    assert not changed_prior(cut, "s", 2.0).has_ratio


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("x", "no variable of the model"),
        ("y", "an observed variable"),
        ("twice", "a deterministic"),
        ("tie", "a potential"),
        (None, "no variable"),
    ],
)
def test_names_of_other_things_are_refused(model, name, what):
    with pytest.raises(ValueError, match=rf"priors must name free variables.*{what}"):
        free_variable(model, "priors", name)


@pytest.mark.parametrize(
    ("name", "change", "error", "message"),
    [
        ("tau", lambda m: 3.0, TypeError, "must hold factors or distributions, got 3.0"),
        ("tau", lambda m: m["mu"], ValueError, "got the variable 'mu' of the model"),
        ("tau", lambda m: pm.HalfNormal.dist(m["theta"][0] ** 2), ValueError, "depends on 'tau'"),
        ("tau", lambda m: pm.HalfNormal.dist(m["tau"]), ValueError, "depends on 'tau'"),
        ("tau", pm.Poisson.dist(2.0), ValueError, "of the kind of 'tau'"),
        ("theta", pm.Normal.dist(0.0, 1.0, shape=4), ValueError, r"of shape \(3,\), got shape"),
    ],
)
def test_distributions_that_do_not_fit_are_refused(model, name, change, error, message):
    with pytest.raises(error, match=message):
        changed_prior(model, name, change)
