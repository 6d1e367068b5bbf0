"""Plots of other priors and of calibration: what is drawn is what was computed."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy.stats import t

from pm_evidence.core.records import LogEvidence
from pm_evidence.plots import plot_calibration, plot_sensitivity
from pm_evidence.results.sensitivity import AS_WRITTEN, Row, sensitivity_table
from tests.api.refusals import check_refusals
from tests.plots.drawing import drawn, legend_texts
from tests.results.test_calibration import found, runs

GOOD = LogEvidence(-31.0, 0.01, "bridge")
ROWS = [
    Row("tau", "\N{MULTIPLICATION SIGN} 0.5", 0.5, GOOD, 0.4, 0.01, 15.0, "reweighted"),
    Row("tau", AS_WRITTEN, 1.0, GOOD, 0.0, 0.0),
    Row("mu", AS_WRITTEN, 1.0, GOOD, 0.0, 0.0),
    Row("mu", "wide", np.nan, GOOD, -1.2, 0.02, how="new run"),
]
DOUBTFUL = Row("mu", "odd", np.nan, LogEvidence(-32.0, 0.1, "bridge", "heavy_tail"), -1.0, 0.1)
MISSING = Row("mu", "none", np.nan, LogEvidence(np.nan, np.nan, "", "failed"), np.nan, np.nan)


def plot_of(collection, name="plot"):
    return collection.get_viz("plot", name) if name != "plot" else collection.get_viz("plot")


def test_sensitivity_draws_factors_with_their_intervals():
    target = plot_of(plot_sensitivity(sensitivity_table(ROWS), backend="none"))
    points = drawn(target, "scatter")
    assert [float(p["x"][0]) for p in points] == [0.4, 0.0, 0.0, -1.2]
    heights = [float(np.ravel(p["y"])[0]) for p in points]
    assert np.diff(heights).tolist() == pytest.approx([-1.0, -1.7, -1.0])
    first = drawn(target, "line")[0]["x"]
    reach = t.ppf(0.975, 15.0) * 0.01
    assert list(first) == pytest.approx([0.4 - reach, 0.4 + reach])
    texts = [str(text["string"]) for text in drawn(target, "text")]
    assert texts == ["0.400(10)", "\N{MINUS SIGN}1.200(20)"]


def test_doubtful_priors_look_different_and_missing_ones_have_a_label():
    table = sensitivity_table([*ROWS, DOUBTFUL, MISSING])
    collection = plot_sensitivity(table, backend="matplotlib")
    assert legend_texts(collection) == ["ok", "cannot be trusted: see the status"]
    labels = [label.get_text() for label in plot_of(collection).get_yticklabels()]
    assert labels[-2:] == ["mu: odd (heavy_tail)", "mu: none (failed)"]
    assert len(drawn(plot_of(plot_sensitivity(table, backend="none")), "scatter")) == 5


def test_calibration_draws_frequencies_of_the_bins():
    calibration = found(runs())
    target = plot_of(plot_calibration(calibration, bins=5, backend="none"), "narrow")
    (points,) = drawn(target, "scatter")
    hit = (calibration.runs["drawn_from"] == "narrow").values
    assert np.mean(points["y"]) == pytest.approx(hit.mean())
    assert np.mean(points["x"]) == pytest.approx(
        float(calibration.runs["prob"].sel(model="narrow").mean())
    )
    assert len(drawn(target, "line")) == 6  # the diagonal, and five intervals
    assert "narrow" in calibration.models.index


def test_three_models_have_three_plots():
    data = runs(60)
    third = data.isel(model=[1]).assign_coords(model=["third"])
    third["log_evidence"] = third["log_evidence"] - 1.0
    stacked = [data.drop_vars("drawn_from"), third.drop_vars("drawn_from")]
    joined = xr.concat(stacked, "model").transpose("data_set", "model")
    calibration = found(joined.assign(drawn_from=data["drawn_from"]))
    collection = plot_calibration(calibration, backend="none")
    assert list(collection.data) == ["narrow", "wide", "third"]


def test_what_cannot_be_drawn_is_refused():
    other = pd.DataFrame({"log_bf": [1.0]})
    cases = [
        ({"table": None}, TypeError, "table must be of type DataFrame"),
        ({"table": other}, ValueError, "prior_sensitivity, got 1"),
    ]
    check_refusals(partial(plot_sensitivity, backend="none"), cases)
    bins = {"calibration": found(runs(40)), "bins": 0}
    cases = [
        ({"calibration": None}, TypeError, "calibration must be of type Calibration"),
        (bins, ValueError, "bins must be"),
    ]
    check_refusals(partial(plot_calibration, backend="none"), cases)
