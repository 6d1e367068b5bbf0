"""Bayes factors of two models: exact values, statuses, and what is refused."""

from functools import cache, partial

import numpy as np
import pymc as pm
import pytest
from scipy import stats

import pm_evidence as pe
from pm_evidence.core.records import Role
from pm_evidence.runs import pair
from tests.api.refusals import check_refusals
from tests.posteriors import posterior_tree

Y = np.array([0.5, 1.5])
QUIET = {"progressbar": False, "cores": 1}


@cache
def normal(sd, y=tuple(Y)):
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, pm.Data("sd", sd))  # so that all of them have the same code
        pm.Normal("y", x, 1.0, observed=np.array(y))
    return model


def log_evidence(sd):
    return stats.multivariate_normal.logpdf(Y, np.zeros(2), np.eye(2) + sd**2)


@cache
def factor():
    return pe.bayes_factor(normal(1.0), normal(2.0), random_seed=1, **QUIET)


def draws(sd, rng, mean=None, n=1000):
    """Exact posterior draws, unless another mean is given."""
    precision = 2.0 + sd**-2.0
    centre = Y.sum() / precision if mean is None else mean
    x = rng.normal(centre, precision**-0.5, (4, n))
    return posterior_tree(normal(sd), {"x": x})


def test_the_exact_value():
    exact = log_evidence(1.0) - log_evidence(2.0)
    found = factor()
    assert found.status == "ok" and found.estimator == "bar" and not found.warning
    assert abs(found.log_bf - exact) < 4 * found.mcse < 0.01
    assert found.lower < found.log_bf < found.upper
    assert found.words == "weak evidence for the first model"


def test_the_record_gives_the_same_estimates_again():
    found = pe.estimate(factor().record)["bar"]
    assert (found.value, found.mcse) == (factor().log_bf, factor().mcse)
    assert factor().n_evaluations == factor().record.facts.n_evaluations > 1000


def test_given_posterior_draws():
    """Of pm.sample for one model, and none for the other."""
    idata = draws(1.0, np.random.default_rng(1)), None
    found = pe.bayes_factor(normal(1.0), normal(2.0), idata=idata, random_seed=3, **QUIET)
    exact = log_evidence(1.0) - log_evidence(2.0)
    assert found.status == "ok" and abs(found.log_bf - exact) < 4 * found.mcse < 0.02


def test_given_results():
    idata = tuple(pe.sample_evidence(normal(sd), random_seed=4, **QUIET) for sd in (1.0, 2.0))
    found = pe.bayes_factor(normal(1.0), normal(2.0), idata=idata, random_seed=4, **QUIET)
    exact = log_evidence(1.0) - log_evidence(2.0)
    rounding = 1e-12  # the densities that are fitted to the draws are exact
    assert found.status == "ok" and abs(found.log_bf - exact) < 4 * found.mcse + rounding < 0.05


def test_draws_of_another_posterior_are_noticed():
    idata = draws(1.0, np.random.default_rng(1), mean=1.2), None
    with pytest.warns(pe.EvidenceWarning):
        found = pe.bayes_factor(normal(1.0), normal(2.0), idata=idata, random_seed=5, **QUIET)
    assert found.status != "ok" and found.warning


@cache
def squares(d):
    """A posterior with two modes in each coordinate."""
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, 2.0, shape=d)
        pm.Normal("y", x**2, 0.5, observed=np.full(d, 4.0))
    return model


def test_a_missed_mode_is_noticed():
    """Draws from one of two modes, beside a model that has both."""
    target, rng = squares(1), np.random.default_rng(6)
    with pm.Model() as wider:
        x = pm.Normal("x", 0.0, 3.0, shape=1)
        pm.Normal("y", x**2, 0.5, observed=np.full(1, 4.0))
    one_mode = posterior_tree(target, {"x": rng.normal(2.0, 0.124, (4, 1000, 1))})
    with pytest.warns(pe.EvidenceWarning):
        found = pe.bayes_factor(target, wider, idata=(one_mode, None), random_seed=6, **QUIET)
    assert found.status != "ok"


def test_annealed_paths(monkeypatch):
    """The same Bayes factor from paths, which are used where posteriors overlap too little."""
    monkeypatch.setattr(pair, "_is_enough", lambda *given: False)
    found = pe.bayes_factor(normal(1.0), normal(2.0), target_mcse=None, random_seed=7, **QUIET)
    forward = found.record.of(Role.FORWARD)
    assert found.record.beta.size > 10 and sum(block.work.size for block in forward) == 512
    exact = log_evidence(1.0) - log_evidence(2.0)
    bar = pe.estimate(found.record)["bar"]
    assert bar.status == "ok" and abs(bar.value - exact) < 4 * bar.mcse < 0.02


def test_other_data_are_refused():
    with pytest.raises(ValueError, match=r"these differ: {'dt1'} from {'dt2'}"):
        pe.bayes_factor(normal(1.0), normal(1.0, (0.5, 2.5)), **QUIET)


def test_supports_that_differ_are_refused():
    """A likelihood that is zero where the other one is not."""
    with pm.Model() as bounded:
        x = pm.Normal("x", 0.0, 1.0)
        pm.Uniform("y", x - 1.0, x + 1.0, observed=Y)
    with pytest.raises(pe.ModelError, match="zero in different regions"):
        pe.bayes_factor(normal(1.0), bounded, random_seed=1, **QUIET)


def test_bad_input():
    one, other, result = normal(1.0), normal(2.0), pe.LogEvidence(-1.0, 0.1, "bar")
    cases = [
        (one, None, {}, TypeError, "two models or two results"),
        (None, None, {}, TypeError, "dt1 must be an xarray.DataTree"),
        (one, one, {}, pe.ModelError, "the same model twice"),
        (one, other, {"idata": 3}, TypeError, "idata must be a pair"),
        (one, other, {"target_mcse": 0.0}, ValueError, "target_mcse"),
        (one, other, {"cores": 0}, ValueError, "cores"),
        (result, result, {"idata": (None, None)}, ValueError, "idata must be left out"),
    ]
    for first, second, options, *said in cases:
        call = partial(pe.bayes_factor, first, second)
        check_refusals(call, [({**QUIET, **options}, *said)])
