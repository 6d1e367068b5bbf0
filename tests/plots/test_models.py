"""Plots of models, of other priors and of calibration: what is drawn is what was computed."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy.stats import t

from pm_evidence.core.records import LogEvidence
from pm_evidence.plots import plot_calibration, plot_compare, plot_sensitivity
from pm_evidence.results import compare
from pm_evidence.results.table import AS_WRITTEN, Row, sensitivity_table
from tests.api.refusals import check_refusals
from tests.plots.drawing import assert_texts_fit, drawn, legend_texts, only_plot
from tests.results.test_calibration import found, runs

# --- plot_compare ---


MODELS = {
    "pooled": LogEvidence(-1205.0, 0.5, "bar"),
    "hierarchical": LogEvidence(-1201.0, 0.25, "bar"),
    "separate": LogEvidence(-1202.5, 0.04, "bar"),
}


def test_compare_draws_points_and_95_percent_intervals_best_on_top():
    collection = plot_compare(MODELS, backend="none")
    target = only_plot(collection)
    points = drawn(target, "scatter")
    assert [float(p["x"][0]) for p in points] == [-1201.0, -1202.5, -1205.0]
    assert [float(p["y"][0]) for p in points] == [3.0, 2.0, 1.0]
    ends = np.array([bar["x"] for bar in drawn(target, "line")])
    half = 1.959964 * np.array([0.25, 0.04, 0.5])
    np.testing.assert_allclose(ends[:, 1] - ends[:, 0], 2 * half, rtol=1e-6)
    np.testing.assert_allclose(ends.mean(axis=1), [-1201.0, -1202.5, -1205.0], rtol=1e-12)


def test_compare_labels_carry_names_units_and_differences():
    target = only_plot(plot_compare(MODELS, backend="none"))
    (ticks,) = drawn(target, "yticks")
    assert list(ticks["labels"]) == ["hierarchical", "separate", "pooled"]
    assert list(ticks["ticks"]) == [3.0, 2.0, 1.0]
    assert drawn(target, "xlabel")[0]["string"] == "log evidence (nats)"
    minus = "\N{MINUS SIGN}"
    # errors of the differences: sqrt(0.25^2 + 0.04^2) = 0.253, sqrt(0.25^2 + 0.5^2) = 0.559
    assert [str(text["string"]) for text in drawn(target, "text")] == [
        f"{minus}1201.00(25), best",
        f"{minus}1202.50(4), 1.50(25) below",
        f"{minus}1205.0(5), 4.0(6) below",
    ]


def test_compare_says_that_points_hide_intervals():
    """Two points alone would look like estimates without errors."""
    said = []
    for last in (0.04, 0.5):
        models = MODELS | {"pooled": LogEvidence(-1205.0, last, "bar")}
        models["hierarchical"] = LogEvidence(-1201.0, 0.01, "bar")
        models["separate"] = LogEvidence(-1190.0, 0.01, "bar")
        said.append(drawn(only_plot(plot_compare(models, backend="none")), "title")[0]["string"])
    assert said[0].endswith("(all intervals are narrower than the points)")
    assert said[1].endswith("(some intervals are narrower than the points)")
    (usual,) = drawn(only_plot(plot_compare(MODELS, backend="none")), "title")
    assert "narrower" not in usual["string"]


def test_compare_takes_the_degrees_of_freedom_from_models_and_table():
    """Four islands know their error badly; a normal interval would be 40 % too short."""
    models = {"a": LogEvidence(-1.0, 0.1, "smc", dof=3.0), "b": LogEvidence(-9.0, 0.1, "smc")}
    for given in (models, compare(models), compare(models).iloc[::-1]):
        bars = drawn(only_plot(plot_compare(given, backend="none")), "line")
        lengths = [bar["x"][1] - bar["x"][0] for bar in bars]
        np.testing.assert_allclose(lengths, [0.2 * 3.182446, 0.2 * 1.959964], rtol=1e-6)


def test_compare_marks_what_is_not_to_be_trusted():
    models = MODELS | {"doubtful": LogEvidence(-1202.0, 0.1, "smc", "dominated")}
    collection = plot_compare(models, backend="matplotlib")
    assert legend_texts(collection) == ["ok", "cannot be trusted: see the status"]
    target = only_plot(plot_compare(models, backend="none"))
    (open_point,) = [point for point in drawn(target, "scatter") if point["facecolor"] == "B0"]
    assert float(open_point["x"][0]) == -1202.0
    sound = plot_compare(MODELS, backend="matplotlib")
    assert not sound.get_viz("figure").legends


def test_compare_draws_posterior_probabilities():
    """Points and labels are those of the table; intervals stay within 0 and 1."""
    table = compare(MODELS)
    target = only_plot(plot_compare(table, quantity="probability", backend="none"))
    points = [float(point["x"][0]) for point in drawn(target, "scatter")]
    np.testing.assert_allclose(points, table["prob"])
    ends = np.array([bar["x"] for bar in drawn(target, "line")])
    assert (ends >= 0.0).all()
    assert (ends <= 1.0).all()
    half = 1.959964 * table["prob_mcse"].iloc[1]
    np.testing.assert_allclose(ends[1], table["prob"].iloc[1] + half * np.array([-1.0, 1.0]))
    assert drawn(target, "xlabel")[0]["string"] == "posterior probability"
    assert "log" not in str(drawn(target, "text"))
    assert "quantity" not in table.attrs
    with pytest.raises(ValueError, match="quantity must be one of 'evidence', 'probability'"):
        plot_compare(table, quantity="bayes_factor", backend="none")
    with pytest.raises(ValueError, match=r"no column \['prob'\]"):
        plot_compare(table.drop(columns="prob"), quantity="probability", backend="none")


def test_compare_shows_a_status_and_no_point_for_an_unknown_evidence():
    models = MODELS | {"broken": LogEvidence(np.nan, np.nan, "bar", "no_overlap")}
    target = only_plot(plot_compare(models, backend="none"))
    assert len(drawn(target, "scatter")) == 3
    (ticks,) = drawn(target, "yticks")
    assert ticks["labels"][-1] == "broken (no_overlap, no value to draw)"


def test_compare_refuses_what_it_cannot_draw():
    with pytest.raises(ValueError, match=r"visuals must name some of .*, got \['points'\]"):
        plot_compare(MODELS, backend="none", visuals={"points": False})
    with pytest.raises(ValueError, match=r"no column \['log_bf_mcse'\]; pass the table"):
        plot_compare(compare(MODELS).drop(columns="log_bf_mcse"), backend="none")


def test_compare_in_matplotlib_keeps_every_text_inside_and_apart(tmp_path):
    """Labels that overlap or run out of the picture cannot be read."""
    models = {
        f"a model with a long name {i}": LogEvidence(-1200.0 - 0.7 * i, 0.2, "bar")
        for i in range(4)
    }
    collection = plot_compare(models, backend="matplotlib")
    collection.savefig(tmp_path / "compare.png")
    assert (tmp_path / "compare.png").stat().st_size > 5000
    figure, axes = collection.get_viz("figure"), only_plot(collection)
    assert_texts_fit(figure, [*axes.texts, axes.title, axes.xaxis.label, *axes.get_yticklabels()])
    low, high = axes.get_xlim()
    ticks = [tick for tick in axes.get_xticklabels() if low <= tick.get_position()[0] <= high]
    assert_texts_fit(figure, [*ticks, axes.xaxis.label])
    assert axes.xaxis.get_offset_text().get_text() == ""


# --- other priors, and calibration ---


GOOD = LogEvidence(-31.0, 0.01, "bridge")
ROWS = [
    Row("tau", "\N{MULTIPLICATION SIGN} 0.5", 0.5, GOOD, 0.4, 0.01, 15.0, "reweighted"),
    Row("tau", AS_WRITTEN, 1.0, GOOD, 0.0, 0.0),
    Row("mu", AS_WRITTEN, 1.0, GOOD, 0.0, 0.0),
    Row("mu", "wide", np.nan, GOOD, -1.2, 0.02, how="new run"),
]
DOUBTFUL = Row("mu", "odd", np.nan, LogEvidence(-32.0, 0.1, "bridge", "heavy_tail"), -1.0, 0.1)
MISSING = Row("mu", "none", np.nan, LogEvidence(np.nan, np.nan, "", "failed"), np.nan, np.nan)


def test_sensitivity_draws_factors_with_their_intervals():
    target = only_plot(plot_sensitivity(sensitivity_table(ROWS), backend="none"))
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
    labels = [label.get_text() for label in only_plot(collection).get_yticklabels()]
    assert labels[-2:] == ["mu: odd (heavy_tail)", "mu: none (failed)"]
    assert len(drawn(only_plot(plot_sensitivity(table, backend="none")), "scatter")) == 5


def test_calibration_draws_frequencies_of_the_bins():
    calibration = found(runs())
    target = plot_calibration(calibration, bins=5, backend="none").get_viz("plot", "narrow")
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
