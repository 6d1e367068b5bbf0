"""Evidences under other priors: exact values, which rows are sampled, statuses and refusals."""

import numpy as np
import pandas as pd
import pymc as pm
import pytest
from scipy.stats import multivariate_normal

import pm_evidence as pe
from pm_evidence.api import sensitivity as prior_rows
from pm_evidence.api.sensitivity import sample_options, variants_of
from pm_evidence.core.exceptions import EvidenceWarning, NumericalError
from tests.api.refusals import check_refusals
from tests.models import shared

pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")

Y = np.array([1.2, 0.4, 2.1, 1.7, 0.9])  # of the shared model, whose prior has a sd of two
TIMES = "\N{MULTIPLICATION SIGN}"
QUIET = {"random_seed": 1, "progressbar": False}


def exact(sd):
    return multivariate_normal(np.zeros(5), np.eye(5) + sd**2).logpdf(Y)


@pytest.fixture(scope="module")
def model():
    return shared("normal").model


@pytest.fixture(scope="module")
def result(model):
    return pe.sample_evidence(model, **QUIET)


@pytest.fixture(scope="module")
def table(model, result):
    return pe.prior_sensitivity(model, {"mu": [0.5, 4, 1, 2]}, result=result, **QUIET)


def test_every_row_is_the_exact_evidence(table):
    assert isinstance(table, pd.DataFrame) and table.index.names == ["variable", "prior"]
    factors = {f"{TIMES} 0.5": 0.5, "as written": 1.0, f"{TIMES} 2": 2.0, f"{TIMES} 4": 4.0}
    assert list(table.loc["mu"].index) == list(factors)
    for prior, factor in factors.items():
        row = table.loc[("mu", prior)]
        assert abs(row["log_evidence"] - exact(2.0 * factor)) < 4 * row["mcse"]
        difference = exact(2.0 * factor) - exact(2.0)
        assert abs(row["log_bf"] - difference) <= 4 * row["log_bf_mcse"]
        assert row["status"] == "ok" and row["bf"] == pytest.approx(np.exp(row["log_bf"]))


def test_one_new_run_serves_the_priors_that_are_wider(table):
    """Draws under the prior as written do not show what lies beyond it."""
    assert list(table["how"]) == ["reweighted", "as written", "reweighted", "new run"]
    narrow = table.loc[("mu", f"{TIMES} 0.5")]
    assert narrow["log_bf_mcse"] < narrow["mcse"]
    assert narrow["ess"] > 100 and not np.isnan(narrow["pareto_k"])


def test_without_new_runs_a_wider_prior_has_a_status(model, result):
    alone = pe.prior_sensitivity(model, {"mu": [4]}, result=result, new_runs="never", **QUIET)
    row = alone.loc[("mu", f"{TIMES} 4")]
    assert (row["how"], row["status"]) == ("reweighted", "heavy_tail")
    assert "new_runs='never'" in row["warning"]


def test_a_mode_that_the_prior_suppresses_is_found():
    """Reweighted draws alone, the planted fault, would be far too low and show nothing of it."""
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, np.float64(1.0))
        # a likelihood with a narrow mode at 1 and one that is e^8 times as high at 6
        near, far = (pm.logp(pm.Normal.dist(m, 0.2), x) for m in (1.0, 6.0))
        pm.Potential("y", pm.math.logaddexp(near, 8.0 + far))
    options = {"priors": {"x": [3]}, **QUIET}
    fooled = pe.prior_sensitivity(model, new_runs="never", **options).iloc[-1]
    found = pe.prior_sensitivity(model, **options).iloc[-1]
    density = multivariate_normal(0.0, 9.0 + 0.04)
    value = np.logaddexp(density.logpdf(1.0), 8.0 + density.logpdf(6.0))
    assert found["how"] == "new run" and abs(found["log_evidence"] - value) < 4 * found["mcse"]
    assert fooled["status"] == "heavy_tail"


def test_runs_that_fail_or_are_interrupted_leave_the_other_rows(model, result, monkeypatch):
    for error, status in ((NumericalError("Why."), "failed"), (KeyboardInterrupt, "interrupted")):

        def fail(*arguments, error=error, **options):
            raise error

        monkeypatch.setattr(prior_rows, "sample_evidence", fail)
        with pytest.warns(EvidenceWarning):
            table = pe.prior_sensitivity(model, {"mu": [0.5, 2, 4]}, result=result, **QUIET)
        assert list(table["status"]) == ["ok", "ok", status, status]
        assert np.isnan(table["log_evidence"].iloc[-1])


def test_what_is_no_prior_is_refused():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 2.0)
        pm.Deterministic("square", mu**2)
        pm.Normal("y", mu, 1.0, observed=Y)
    cases = [
        (None, TypeError, "priors must be a mapping"),
        ({}, ValueError, "priors must name at least one"),
        ({"nu": [2]}, ValueError, "'nu', which is no variable"),
        ({"y": [2]}, ValueError, "observed variable"),
        ({"square": [2]}, ValueError, "deterministic"),
        ({"mu": []}, ValueError, "at least one prior"),
        ({"mu": None}, TypeError, "must be a list of factors"),
        ({"mu": "wide"}, TypeError, "must be a list of factors"),
        ({"mu": [0.0]}, ValueError, "factors above 0, got 0"),
        ({"mu": [-1.0]}, ValueError, "factors above 0"),
        ({"mu": [np.nan]}, ValueError, "factors above 0"),
        ({"mu": [None]}, TypeError, "list of factors, got None"),
        ({"mu": {1: 2.0}}, TypeError, "names as keys"),
        ({"mu": {"a": "b"}}, TypeError, "factors or distributions"),
    ]
    check_refusals(
        lambda priors: variants_of(model, priors),
        [({"priors": priors}, *said) for priors, *said in cases],
    )


def test_other_arguments_are_checked(model):
    cases = [
        ({"result": 3}, TypeError, "result must be an xarray.DataTree"),
        ({"new_runs": "some"}, ValueError, "new_runs must be one of"),
        ({"target_mcse": 0}, ValueError, "target_mcse must be"),
        ({"progressbar": None}, ValueError, "progressbar must be"),
        ({"sample_kwargs": {"random_seed": 1}}, ValueError, "pass it directly"),
        ({"sample_kwargs": {"odd": 1}}, ValueError, "leave it out"),
        ({"sample_kwargs": 3}, TypeError, "sample_kwargs must be a dict"),
        ({"model": None}, TypeError, "model must be a pymc.Model"),
    ]
    good = {"model": model, "priors": {"mu": [2]}, **QUIET}
    check_refusals(pe.prior_sensitivity, [({**good, **options}, *said) for options, *said in cases])
    assert sample_options("sample_kwargs", {"cores": 2}) == {"cores": 2}


def test_results_of_other_models_and_data_are_refused(model, result):
    with pm.Model() as other:
        nu = pm.Normal("nu", 0.0, 1.0)
        pm.Normal("y", nu, 1.0, observed=Y)
    with pytest.raises(ValueError, match="result must hold draws of 'nu'"):
        pe.prior_sensitivity(other, {"nu": [2]}, result=result, **QUIET)
    with pm.Model() as moved:
        mu = pm.Normal("mu", 0.0, 1.0)
        pm.Normal("y", mu, 1.0, observed=Y + 1.0)
    with pytest.raises(ValueError, match="result must hold the posterior given the data"):
        pe.prior_sensitivity(moved, {"mu": [2]}, result=result, **QUIET)
    with pm.Model() as positive:
        mu = pm.Uniform("mu", 1.2, 1.3)
        pm.Normal("y", mu, 1.0, observed=Y)
    with pytest.raises(ValueError, match="result must hold draws inside the support"):
        pe.prior_sensitivity(positive, {"mu": [0.5]}, result=result, **QUIET)
