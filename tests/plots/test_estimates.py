"""plot_estimates: points, intervals and verdicts are those of the run."""

import numpy as np
import pytest
import xarray as xr

from pm_evidence.core.records import LogEvidence
from pm_evidence.plots import plot_estimates
from tests.plots.drawing import (
    BAR,
    drawn,
    make_run,
    only_plot,
)

MINUS = "\N{MINUS SIGN}"
JARZYNSKI = LogEvidence(-31.2, 0.2, "jarzynski", lower=-31.7, upper=-30.9)
CUMULANT = LogEvidence(-31.0, 0.2, "cumulant", "not_normal", lower=-31.4, upper=-30.6)
LOWER = LogEvidence(-32.5, 0.1, "lower_bound", "bound", lower=-32.7, upper=-32.3)
UPPER = LogEvidence(-30.5, 0.1, "upper_bound", "bound", lower=-30.7, upper=-30.3)
FAR = LogEvidence(1.2e7, 1e7, "cumulant_forward", "not_normal", lower=-1e7, upper=3e7)
ALL = (JARZYNSKI, LOWER, BAR, CUMULANT, UPPER)


def run_of(*evidence, recommended="bar"):
    return make_run(evidence=evidence, recommended=recommended)


def rows(target, function):
    """What is drawn in each row, by the label of the row."""
    (ticks,) = drawn(target, "yticks")
    names = dict(zip(ticks["ticks"], ticks["labels"], strict=True))
    return {names[float(np.ravel(e["y"])[0])]: e for e in drawn(target, function)}


def test_rows_are_the_recommended_then_the_others_then_the_bounds():
    target = only_plot(plot_estimates(run_of(*ALL), backend="none"))
    (ticks,) = drawn(target, "yticks")
    assert ticks["labels"] == [
        "bar (recommended)",
        "jarzynski",
        "cumulant (not_normal)",
        "lower_bound",
        "upper_bound",
    ]
    assert list(ticks["ticks"]) == [5.0, 4.0, 3.0, 2.0, 1.0]
    assert drawn(target, "xlabel")[0]["string"] == "log evidence (nats)"


def test_points_and_bars_are_the_estimates_and_their_intervals():
    target = only_plot(plot_estimates(run_of(*ALL), backend="none"))
    points, bars = rows(target, "scatter"), rows(target, "line")
    for estimate in ALL:
        (label,) = (name for name in points if name.split(" ")[0] == estimate.estimator)
        assert float(points[label]["x"][0]) == estimate.value
        assert np.asarray(bars[label]["x"]).tolist() == [estimate.lower, estimate.upper]


def test_looks_tell_what_to_trust():
    target = only_plot(plot_estimates(run_of(*ALL), backend="none"))
    points, bars = rows(target, "scatter"), rows(target, "line")
    recommended, trusted = bars["bar (recommended)"], bars["jarzynski"]
    assert recommended["color"] == trusted["color"]
    assert recommended["width"] > trusted["width"]
    assert bars["cumulant (not_normal)"]["color"] == "B3"  # a grey of arviz-plots
    for name in ("lower_bound", "upper_bound"):
        assert bars[name]["linestyle"] == "C1"
        assert points[name]["facecolor"] == "B0"  # the background
        assert points[name]["edgecolor"] == "B1"
    (band,) = drawn(target, "vspan")
    assert (band["xmin"], band["xmax"]) == (-31.5, -31.1)


def test_an_estimate_with_another_purpose_is_not_distrusted():
    """The value of one long run is sound; its error omits what differs between islands."""
    alone = LogEvidence(-31.3, 0.1, "single_run", "within_islands", lower=-31.5, upper=-31.1)
    target = only_plot(plot_estimates(run_of(BAR, alone), backend="none"))
    bars = rows(target, "line")
    assert bars["single_run (within_islands)"]["color"] == bars["bar (recommended)"]["color"]


def test_a_recommended_estimate_that_is_not_sound_says_so():
    bar = LogEvidence(-31.3, 0.1, "bar", "no_overlap", lower=-31.5, upper=-31.1)
    target = only_plot(plot_estimates(run_of(bar, JARZYNSKI), backend="none"))
    bars = rows(target, "line")
    assert bars["bar (recommended, no_overlap)"]["color"] == "B3"
    assert drawn(target, "vspan")[0]["color"] == "B3"


def test_the_reference_is_a_line_in_the_picture():
    target = only_plot(plot_estimates(run_of(*ALL), reference=-35.0, backend="none"))
    (line,) = drawn(target, "vline")
    assert line["x"] == -35.0
    low, high = drawn(target, "xlim")[0]["lims"]
    assert low < -35.0 < -30.3 < high
    assert not drawn(only_plot(plot_estimates(run_of(*ALL), backend="none")), "vline")


def test_what_lies_far_out_is_a_number_at_the_edge():
    """Cumulants of a long tail are off by millions, and would press all else into a point."""
    low_bound = LogEvidence(-716.0, 380.0, "lower_bound", "bound", lower=-1500.0, upper=30.0)
    run = run_of(BAR, JARZYNSKI, FAR, low_bound)
    target = only_plot(plot_estimates(run, backend="none"))
    left, right = drawn(target, "xlim")[0]["lims"]
    assert -32.0 < left < -31.7
    assert -30.9 < right < -30.6
    texts = rows(target, "text")
    assert {name: str(text["string"]) for name, text in texts.items()} == {
        "cumulant_forward (not_normal)": "1.2e+07 (1.2e+07 nats above) \N{RIGHTWARDS ARROW}",
        "lower_bound": f"\N{LEFTWARDS ARROW} {MINUS}716 (685 nats below)",
    }
    assert set(rows(target, "scatter")) == set(rows(target, "line"))
    assert set(rows(target, "line")) == {"bar (recommended)", "jarzynski"}


def test_bars_end_at_the_edge():
    wide = LogEvidence(-31.0, 50.0, "cumulant", "not_normal", lower=-np.inf, upper=70.0)
    target = only_plot(plot_estimates(run_of(BAR, wide), backend="none"))
    (limits,) = (element["lims"] for element in drawn(target, "xlim"))
    ends = np.asarray(rows(target, "line")["cumulant (not_normal)"]["x"])
    # two widths of the interval of bar, 0.4, to either side, and a margin
    assert limits == pytest.approx((-32.3 - 0.1, -30.3 + 0.1))
    assert ends == pytest.approx(limits)


def test_an_estimate_without_an_interval_gets_one_from_its_error():
    run = run_of(LogEvidence(-31.3, 0.1, "bar"))
    (bar,) = drawn(only_plot(plot_estimates(run, backend="none")), "line")
    assert np.asarray(bar["x"]) == pytest.approx([-31.496, -31.104], abs=1e-3)


@pytest.mark.parametrize("recommended", ["bar", "jarzynski"])
def test_an_unknown_estimate_keeps_its_row(recommended):
    unknown = LogEvidence(np.nan, np.nan, "bar", "no_overlap")
    run = run_of(unknown, JARZYNSKI, recommended=recommended)
    target = only_plot(plot_estimates(run, backend="none"))
    assert [float(point["x"][0]) for point in drawn(target, "scatter")] == [-31.2]
    assert len(drawn(target, "yticks")[0]["labels"]) == 2


def test_a_run_without_any_estimate_can_be_drawn():
    unknown = LogEvidence(np.nan, np.nan, "bar", "no_overlap")
    target = only_plot(plot_estimates(run_of(unknown), backend="none"))
    assert drawn(target, "yticks")[0]["labels"] == ["bar (recommended, no_overlap)"]
    assert not drawn(target, "scatter")


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(ValueError, match=r"dt must have the group 'log_evidence', got"):
        plot_estimates(xr.DataTree(), backend="none")
    with pytest.raises(TypeError, match=r"dt must be an xarray\.DataTree, got LogEvidence"):
        plot_estimates(BAR, backend="none")
    with pytest.raises(ValueError, match=r"reference must be a finite log evidence .* got nan"):
        plot_estimates(run_of(BAR), reference=float("nan"), backend="none")
