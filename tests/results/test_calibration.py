"""What a calibration reports: statuses, tables, and data sets that failed."""

import numpy as np
import pytest
import xarray as xr

from pm_evidence.core.exceptions import NumericalError
from pm_evidence.results.sensitivity import calibration_of
from tests.estimators.test_calibration import simulated


def runs(n=100, seed=1, **planted):
    """Runs with exact evidences."""
    log_evidence, label = simulated(n, np.random.default_rng(seed), **planted)
    names = np.array(["narrow", "wide"])
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
