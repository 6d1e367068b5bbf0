"""Calibration of Bayes factors: right models pass, planted errors are found, seeds count."""

from functools import partial

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from scipy.stats import multivariate_normal

import pm_evidence as pe
from pm_evidence.api import simulated as module
from pm_evidence.core.exceptions import EvidenceWarning, ModelError, NumericalError
from tests.api.refusals import check_refusals

pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")
QUIET = {"progressbar": False, "cores": 1}
N = 20


def mean_model(sd, likelihood=pm.Normal):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, np.float64(sd))
        likelihood("y", mu, 1.0, observed=np.zeros(4))
    return model


def too_dense(name, mu, sigma, observed):
    """A normal likelihood whose density is too large by 1.2 nats in all, as a user may write it."""

    def logp(value, mu):
        return pm.logp(pm.Normal.dist(mu, 1.0), value) + 0.3

    def random(mu, rng=None, size=None):
        return rng.normal(mu, 1.0, size)

    return pm.CustomDist(name, mu, logp=logp, random=random, observed=observed)


@pytest.fixture(scope="module")
def models():
    return {"narrow": mean_model(0.4), "wide": mean_model(2.5)}


@pytest.fixture(scope="module")
def found(models):
    return pe.calibrate(models, N, random_seed=1, **QUIET)


def test_right_models_are_calibrated(found):
    assert found.status == "ok" and found.p_value > 0.01
    assert found.runs.sizes == {"data_set": N, "model": 2}
    assert (found.runs["status"] == "ok").mean() > 0.9
    assert isinstance(found.runs, xr.Dataset)


@pytest.mark.slow
def test_a_shifted_evidence_is_found(models):
    planted = {**models, "wide": mean_model(2.5, too_dense)}
    with pytest.warns(EvidenceWarning, match="The probabilities are not those of the models"):
        wrong = pe.calibrate(planted, 60, random_seed=3, **QUIET)
    assert wrong.p_value < 0.01
    shift = wrong.runs["prob"].mean("data_set").sel(model="wide") - 0.5
    assert shift > 0.05


@pytest.fixture
def exact(monkeypatch):
    """Return a function after whose call `calibrate` computes evidences in closed form."""
    drawn, evidence, data, numbers = module._drawn, module.evidence_of, [], iter(())

    def noted(*arguments):
        nonlocal data, numbers
        data = drawn(*arguments)
        numbers = iter(range(2 * len(data)))
        return data

    def closed_form(*arguments):
        i, k = divmod(next(numbers), 2)
        covariance = np.eye(4) + (0.4, 2.5)[k] ** 2
        value = multivariate_normal(np.zeros(4), covariance).logpdf(data[i]["y"])
        return pe.LogEvidence(float(value), 1e-6, "smc")

    def switch(on):
        monkeypatch.setattr(module, "_drawn", noted if on else drawn)
        monkeypatch.setattr(module, "evidence_of", closed_form if on else evidence)

    return switch


def test_a_wrong_prior_is_found(models, exact):
    """Among exact evidences; those of right models are calibrated."""
    exact(True)
    assert pe.calibrate(models, 40, random_seed=2, **QUIET).p_value > 0.01
    with pytest.warns(EvidenceWarning, match="miscalibrated"):
        wrong = pe.calibrate(
            models, 40, simulators={"narrow": mean_model(2.0)}, random_seed=2, **QUIET
        )
    assert wrong.p_value < 0.01


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pm_evidence.EvidenceWarning")
def test_planted_errors_are_found_in_nearly_all_calibrations(models):
    planted = {
        "shift": {"models": {**models, "wide": mean_model(2.5, too_dense)}},
        "prior": {"models": models, "simulators": {"narrow": mean_model(2.0)}},
    }
    for name, arguments in planted.items():
        found = [
            pe.calibrate(n=150, random_seed=seed, **arguments, **QUIET).p_value < 0.01
            for seed in range(8)
        ]
        print(name, np.mean(found))
        assert np.mean(found) >= 0.75


def test_failed_runs_are_left_out(models, monkeypatch):
    numbers = iter(range(1000))

    def sometimes(*arguments):
        if next(numbers) == 5:
            raise NumericalError("Why.")
        return pe.LogEvidence(-1.0, 0.1, "smc")

    monkeypatch.setattr(module, "evidence_of", sometimes)
    with pytest.warns(EvidenceWarning, match="1 of 20 data sets are left out"):
        found = pe.calibrate(models, 20, random_seed=1, **QUIET)
    assert found.runs.sizes["data_set"] == 19


def test_an_interrupt_keeps_what_there_is(models, monkeypatch):
    numbers = iter(range(1000))

    def until(*arguments):
        if next(numbers) == last:
            raise KeyboardInterrupt
        return pe.LogEvidence(-1.0, 0.1, "smc")

    monkeypatch.setattr(module, "evidence_of", until)
    last = 61
    with pytest.warns(EvidenceWarning, match="Ctrl-C ended the runs after 30 data sets"):
        found = pe.calibrate(models, 50, random_seed=1, **QUIET)
    assert found.runs.sizes["data_set"] == 30
    last, numbers = 10, iter(range(1000))
    with pytest.raises(KeyboardInterrupt):
        pe.calibrate(models, 50, random_seed=1, **QUIET)


def test_what_is_no_model_is_refused(models):
    wide = models["wide"]
    cases = [
        (None, TypeError, "models must be a mapping"),
        ({"a": wide}, ValueError, "at least two models"),
        ({**models, "c": None}, TypeError, r"models\['c'\] must be a pymc.Model, got None"),
        ({**models, 3: wide}, TypeError, "names as keys"),
    ]
    check_refusals(pe.calibrate, [({"models": m, **QUIET}, *said) for m, *said in cases])


def test_other_data_and_models_without_them_are_refused(models):
    with pm.Model() as longer:
        pm.Normal("y", 0.0, 1.0, observed=np.zeros(5))
    with pytest.raises(ValueError, match="models must have the same observed variables"):
        pe.calibrate({**models, "longer": longer}, **QUIET)
    with pm.Model() as whole:
        pm.Poisson("y", 1.0, observed=np.zeros(4, int))
    with pytest.raises(ValueError, match="kinds of numbers"):
        pe.calibrate({**models, "whole": whole}, **QUIET)
    with pm.Model() as unobserved:
        pm.Normal("y")
    with pytest.raises(ModelError, match="no observed variable"):
        pe.calibrate({**models, "c": unobserved}, **QUIET)


def test_other_arguments_are_checked(models):
    cases = [
        ({"n": 5}, "n must be a whole number of at least 20"),
        ({"n": None}, "n must be a whole number"),
        ({"target_mcse": -1}, "target_mcse must be"),
        ({"prior_probs": [1.0]}, "prior_probs must have one entry per model"),
        ({"simulators": {"odd": 1}}, "simulators"),
    ]
    check_refusals(
        partial(pe.calibrate, models, **QUIET),
        [(options, (ValueError, TypeError), message) for options, message in cases],
    )
