"""What the plots share: sizes, labels, intervals, and what is refused before anything is drawn."""

import re
from ast import literal_eval
from functools import partial

import numpy as np
import pytest
from scipy import stats

import pm_evidence as pe
from pm_evidence.plots.layout import (
    MINUS,
    backend_name,
    check_mapping,
    checked_visuals,
    figure_arguments,
    half_widths,
    number,
    plot_backend,
    visual_arguments,
    with_error,
)
from pm_evidence.results.table import sensitivity_table
from tests.api.refusals import check_refusals
from tests.plots.drawing import make_run, need_backend
from tests.results import test_calibration as calibration
from tests.results.test_sensitivity import ROWS

PARTS = ("point", "line")


def test_the_backend_is_arvizs_default_unless_one_is_asked_for(monkeypatch):
    from arviz_base import rcParams

    monkeypatch.setitem(rcParams, "plot.backend", "none")
    assert backend_name(None) == "none"
    assert backend_name("matplotlib") == "matplotlib"
    with pytest.raises(ValueError, match=r"backend must be one of 'matplotlib', .* got 'gnuplot'"):
        backend_name("gnuplot")


def test_a_backend_that_is_not_installed_is_named(monkeypatch):
    def missing(name):
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr("pm_evidence.plots.layout.plot_backend", missing)
    with pytest.raises(ValueError, match=r"got 'bokeh' \(No module .*; install bokeh, or pass"):
        backend_name("bokeh")


def test_parts_are_switched_off_or_given_other_looks():
    visuals = checked_visuals({"point": False, "line": {"color": "C3"}}, PARTS)
    assert visual_arguments(visuals, "point", color="C0") is None
    assert visual_arguments(visuals, "line", color="C0", width=2) == {"color": "C3", "width": 2}
    assert visual_arguments({}, "line", color="C0") == {"color": "C0"}
    assert visual_arguments({"line": True}, "line", color="C0") == {"color": "C0"}
    assert checked_visuals(None, PARTS) == {}


def test_what_is_no_part_of_a_plot():
    parts = r"must name some of \['point', 'line'\], got \['points'\]"
    cases = [
        ({"points": False}, ValueError, parts),
        ({"point": "red"}, TypeError, r"visuals\['point'\] must be a mapping .* got 'red'"),
        ([("point", False)], TypeError, "visuals must be a mapping, got"),
        ({1: False}, TypeError, "visuals must have names as keys, got 1"),
    ]
    check_refusals(
        partial(checked_visuals, valid=PARTS), [({"visuals": v}, *said) for v, *said in cases]
    )


def test_only_mappings_of_names_are_arguments():
    check_mapping("figure_kwargs", None)
    check_mapping("figure_kwargs", {"figsize": (3, 4)})
    with pytest.raises(TypeError, match="figure_kwargs must be a mapping, got 3"):
        check_mapping("figure_kwargs", 3)


def test_figures_grow_with_their_panels_unless_a_size_is_given():
    one = figure_arguments(None, "matplotlib", 1, 1)["figsize"]
    four = figure_arguments(None, "matplotlib", 2, 2)["figsize"]
    assert four[0] > one[0] and four[1] > one[1]
    given = {"figsize": (9, 6), "figsize_units": "inches"}
    found = figure_arguments(given, "matplotlib", 1, 1)
    size = plot_backend("matplotlib").scale_fig_size((9, 6), figsize_units="inches")
    assert found["figsize"] == size and found["figsize_units"] == "dots"
    assert found["layout"] == "constrained"
    assert "layout" not in figure_arguments(None, "none", 1, 1)
    assert given == {"figsize": (9, 6), "figsize_units": "inches"}


@pytest.mark.parametrize(
    ("value", "error", "alone", "together"),
    [
        (-31.0364, 0.0081, f"{MINUS}31.036", f"{MINUS}31.036(8)"),
        (-1234.5, 345.0, f"{MINUS}1230", f"{MINUS}1230(340)"),
        (2.25, 0.5, "2.2", "2.2(5)"),
    ],
)
def test_numbers_have_the_digits_of_their_errors_and_a_minus_sign(value, error, alone, together):
    assert number(value, error) == alone
    assert with_error(value, error) == together


def test_half_the_lengths_of_intervals():
    """Student's for few degrees of freedom, normal for infinitely many."""
    found = half_widths([0.1, 0.1, np.nan], [3.0, np.inf, np.inf])
    expected = [0.1 * stats.t.ppf(0.975, 3), 0.1 * stats.norm.ppf(0.975), np.nan]
    np.testing.assert_allclose(found, expected, rtol=1e-9)


RUN = make_run(energy=((5000.0, 60.0, -20.0), (900.0, 30.0, -40.0)))
PLOTS = {
    "work": partial(pe.plot_work, RUN),
    "histogram of work": partial(pe.plot_work, RUN, kind="hist"),
    "energy": partial(pe.plot_energy, RUN, visuals={"band": True}),
    "estimates": partial(pe.plot_estimates, RUN, reference=-31.0),
    "schedule": partial(pe.plot_schedule, {"a": RUN, "b": RUN}),
    "models": partial(pe.plot_compare, {"a": RUN, "b": RUN}),
    "calibration": partial(pe.plot_calibration, calibration.found(calibration.runs(40))),
    "sensitivity": partial(pe.plot_sensitivity, sensitivity_table(ROWS)),
}


@pytest.mark.parametrize("backend", ["none", "matplotlib", "bokeh", "plotly"])
def test_every_backend_draws_every_plot(backend):
    """And a part that a plot does not have is refused by all."""
    if backend not in ("none", "matplotlib"):
        need_backend(backend)
    for name, plot in PLOTS.items():
        assert plot(backend=backend).backend == backend, name
        with pytest.raises(ValueError, match=r"visuals must name some of .* got \['parts'\]"):
            plot(backend=backend, **{"visuals": {"parts": False}})


@pytest.mark.parametrize("name", PLOTS)
def test_every_part_can_be_left_out(name):
    """None is drawn whose name is given as False, and others are drawn as before."""

    def n_drawn(visuals):
        panels = PLOTS[name](backend="none", visuals=visuals).viz["plot"]
        arrays = panels.data_vars.values() if hasattr(panels, "data_vars") else [panels]
        return sum(len(panel) for array in arrays for panel in np.ravel(array.values).tolist())

    with pytest.raises(ValueError, match="visuals must name some of") as refused:
        PLOTS[name](visuals={"parts": False})
    parts = literal_eval(re.search(r"\[.*?\]", str(refused.value))[0])
    everything = n_drawn({"band": True} if "band" in parts else {})
    for part in set(parts) - {"legend", "out_of_range", "linear_part"}:
        off = {"band": True, part: False} if "band" in parts else {part: False}
        assert n_drawn(off) < everything, part
