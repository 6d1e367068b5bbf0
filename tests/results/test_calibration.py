"""Calibration of model probabilities: exact false alarms, planted errors, what is reported."""

import numpy as np
import pytest
import xarray as xr
from scipy.stats import binom

from pm_evidence.core.exceptions import NumericalError
from pm_evidence.results.calibration import (
    calibration_of,
    calibration_test,
    model_probabilities,
    reliability,
    wrong_models,
)

SDS = np.array([0.3, 1.0, 3.0])
NAMES = ["narrow", "wide"]


def simulated(n, rng, *, n_models=2, shift=0.0, spread=1.0):
    """Exact log evidences of N(mean, 1) data, mean ~ N(0, sd), and the model of each data set.

    Planted errors: ``shift`` of the evidence of the first model; data from a prior that is
    ``spread`` times as wide.
    """
    sds = SDS[-n_models:]
    label = rng.integers(n_models, size=n)
    total = rng.normal(size=(n, 4)) + spread * (sds[label] * rng.normal(size=n))[:, None]
    variance = 1.0 + 4 * sds**2
    reduced = total.sum(axis=1)[:, None] ** 2 * sds**2 / variance
    log_evidence = -0.5 * ((total**2).sum(axis=1)[:, None] - reduced) - 0.5 * np.log(variance)
    log_evidence[:, 0] += shift
    return log_evidence, label


def p_values(repeats, seed, **planted):
    rng, found = np.random.default_rng(seed), []
    n_models = planted.get("n_models", 2)
    for _ in range(repeats):
        log_evidence, label = simulated(60, rng, **planted)
        probability = model_probabilities(log_evidence, np.full(n_models, 1.0 / n_models))
        found.append(calibration_test(probability, label, rng).p_value)
    return np.array(found)


@pytest.mark.parametrize("n_models", [2, 3])
def test_right_probabilities_are_rejected_at_the_level(n_models, monkeypatch):
    """200 calibrations at a level of 10 %: 8 to 35 rejections with a probability of 99.9 %."""
    monkeypatch.setattr("pm_evidence.results.calibration._SHUFFLES", 199)
    rejected = int((p_values(200, seed=1, n_models=n_models) <= 0.1).sum())
    low, high = binom(200, 0.1).ppf([0.0005, 0.9995])
    assert low <= rejected <= high


@pytest.mark.parametrize("planted", [{"shift": 1.5}, {"shift": -1.5}, {"spread": 3.0}])
def test_a_planted_error_is_found(planted, monkeypatch):
    monkeypatch.setattr("pm_evidence.results.calibration._SHUFFLES", 199)
    assert (p_values(30, seed=2, **planted) <= 0.01).mean() > 0.8


def test_the_score_is_what_calibration_makes_it():
    rng = np.random.default_rng(3)
    log_evidence, label = simulated(1000, rng)
    probability = model_probabilities(log_evidence, np.array([0.5, 0.5]))
    found = calibration_test(probability, label, rng)
    assert abs(found.log_score - found.expected_log_score) < 3.3 * found.log_score_sd
    own = -np.log(probability[np.arange(1000), label]).mean()
    assert found.log_score == pytest.approx(own)


def test_bayes_factors_of_wrong_models_are_one_on_average(monkeypatch):
    monkeypatch.setattr("pm_evidence.results.calibration._SHUFFLES", 999)
    rng = np.random.default_rng(4)
    for shift, right in ((0.0, True), (1.0, False)):
        log_evidence, label = simulated(1500, rng, shift=shift)
        probability = model_probabilities(log_evidence, np.array([0.5, 0.5]))
        # the narrow model is the wrong one: its Bayes factors are bounded
        pair = wrong_models(NAMES, log_evidence, probability, label, rng).loc["wide", "narrow"]
        assert pair.status == "ok"
        assert (abs(pair.mean_bf - 1.0) < 3.3 * pair.mcse) == right
        assert (pair.p_value > 0.01) == right


def test_a_mean_that_few_data_sets_carry_proves_nothing():
    rng = np.random.default_rng(5)
    log_evidence, label = simulated(100, rng, n_models=3)
    log_evidence, label = log_evidence[label != 1][:, [0, 2]], label[label != 1] // 2
    probability = model_probabilities(log_evidence, np.array([0.5, 0.5]))
    wide = wrong_models(NAMES, log_evidence, probability, label, rng).loc["narrow", "wide"]
    assert wide.status == "heavy_tail" and wide.unseen > 0.3 and wide.mean_bf < 0.8


def test_reliability_has_bins_of_equal_size_with_exact_intervals():
    probability = np.linspace(0.05, 0.95, 20)
    hit = np.arange(20) >= 15
    found = reliability(probability, hit, 4)
    assert found["count"].tolist() == [5.0] * 4
    assert found["frequency"].tolist() == [0.0, 0.0, 0.0, 1.0]
    assert found["upper"][0] == pytest.approx(1.0 - 0.025 ** (1 / 5))
    assert found["lower"][3] == pytest.approx(0.025 ** (1 / 5))
    assert (found["lower"][0], found["upper"][3]) == (0.0, 1.0)
    assert len(reliability(probability[:3], hit[:3], 10)["count"]) == 3


# --- what is reported ---


def runs(n=100, seed=1, **planted):
    """Runs with exact evidences."""
    log_evidence, label = simulated(n, np.random.default_rng(seed), **planted)
    names = np.array(NAMES)
    dims = ("data_set", "model")
    return xr.Dataset(
        {
            "log_evidence": (dims, log_evidence),
            "mcse": (dims, np.full((n, 2), 0.05)),
            "status": (dims, np.full((n, 2), "ok")),
            "drawn_from": ("data_set", names[label]),
            "prior_prob": ("model", np.full(2, 0.5)),
        },
        coords={"model": names, "data_set": np.arange(n)},
    )


def found(data, **options):
    return calibration_of(data, np.random.default_rng(2), **options)


def test_right_and_wrong_evidences():
    right, wrong = found(runs()), found(runs(shift=2.0))
    assert right.status == "ok" and right.message == ""
    assert wrong.status == "miscalibrated" and wrong.p_value < 0.01
    assert "p value of calibration" in str(wrong) and "statuses.md#miscalibrated" in str(wrong)
    assert "miscalibrated" in wrong._repr_html_() and "miscalibrated" in repr(wrong)
    assert right.models.loc["narrow", "n_drawn"] == (right.runs["drawn_from"] == "narrow").sum()
    assert right.models["mean_prob"].sum() == pytest.approx(1.0)
    assert list(right.bayes_factors.index) == [("narrow", "wide"), ("wide", "narrow")]


def test_failed_runs_are_left_out_and_named():
    data = runs()
    data["log_evidence"][3, 1] = np.nan
    data["status"][3, 1] = "failed"
    calibration = found(data)
    assert calibration.status == "failed"
    assert "1 of 100 data sets are left out" in calibration.message
    assert calibration.runs.sizes["data_set"] == 99
    data["log_evidence"][:] = np.nan
    with pytest.raises(NumericalError, match="every data set"):
        found(data)


def test_interrupts_and_doubtful_runs_are_named():
    data = runs()
    data["status"] = data["status"].astype("<U20")
    data["status"][:10] = "high_variance"
    calibration = found(data, interrupted=True)
    assert calibration.status == "interrupted"
    assert "10% of the runs are not ok (high_variance 20)" in calibration.message
