"""Calibration of model probabilities: exact false alarms, planted errors, and intervals."""

import numpy as np
import pytest
from scipy.stats import binom

from pm_evidence.estimators.calibration import (
    calibration_test,
    model_probabilities,
    reliability,
    wrong_models,
)

SDS = np.array([0.3, 1.0, 3.0])


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
    monkeypatch.setattr("pm_evidence.estimators.calibration._SHUFFLES", 199)
    rejected = int((p_values(200, seed=1, n_models=n_models) <= 0.1).sum())
    low, high = binom(200, 0.1).ppf([0.0005, 0.9995])
    assert low <= rejected <= high


@pytest.mark.parametrize("planted", [{"shift": 1.5}, {"shift": -1.5}, {"spread": 3.0}])
def test_a_planted_error_is_found(planted, monkeypatch):
    monkeypatch.setattr("pm_evidence.estimators.calibration._SHUFFLES", 199)
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
    monkeypatch.setattr("pm_evidence.estimators.calibration._SHUFFLES", 999)
    rng = np.random.default_rng(4)
    for shift, right in ((0.0, True), (1.0, False)):
        log_evidence, label = simulated(1500, rng, shift=shift)
        probability = model_probabilities(log_evidence, np.array([0.5, 0.5]))
        # the narrow model is the wrong one: its Bayes factors are bounded
        pair = next(w for w in wrong_models(log_evidence, probability, label, rng) if w.wrong == 0)
        assert not pair.heavy
        assert (abs(pair.mean_bf - 1.0) < 3.3 * pair.mcse) == right
        assert (pair.p_value > 0.01) == right


def test_a_mean_that_few_data_sets_carry_proves_nothing():
    rng = np.random.default_rng(5)
    log_evidence, label = simulated(100, rng, n_models=3)
    log_evidence, label = log_evidence[label != 1][:, [0, 2]], label[label != 1] // 2
    probability = model_probabilities(log_evidence, np.array([0.5, 0.5]))
    pairs = wrong_models(log_evidence, probability, label, rng)
    wide = next(pair for pair in pairs if pair.wrong == 1)
    assert wide.heavy and wide.unseen > 0.3 and wide.mean_bf < 0.8


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
