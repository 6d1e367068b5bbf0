"""What sample_evidence returns can be drawn as it is, also from a file."""

import tempfile
from functools import cache

import numpy as np
import pytest
import xarray as xr

import pm_evidence as pe
from tests.models import NAMES, shared
from tests.plots.drawing import assert_readable, drawn, only_plot
from tests.systems.exact import exact_systems

HEAVY = "eight_schools_half_cauchy_noncentred"  # prior draws have enormous energies
both = pytest.mark.parametrize("name", ["modes", pytest.param(HEAVY, marks=pytest.mark.slow)])


@cache
def result(name):
    """A run in both directions, which went through a file."""
    model = shared(name).model if name in NAMES else exact_systems()[name].build()
    dt = pe.sample_evidence(model, method="ais", draws=200, random_seed=1, progressbar=False)
    with tempfile.TemporaryDirectory() as folder:
        dt.to_netcdf(f"{folder}/run.nc")
        return xr.load_datatree(f"{folder}/run.nc")


@both
@pytest.mark.parametrize("plot", [pe.plot_work, pe.plot_energy, pe.plot_estimates])
def test_every_picture_is_readable(name, plot):
    assert_readable(plot(result(name), backend="matplotlib"))


@both
def test_the_picture_of_work_shows_where_the_directions_meet(name):
    """The upper half of forward work may lie anywhere; what decides log Z must stay visible."""
    target = only_plot(pe.plot_work(result(name), backend="none"))
    low, high = drawn(target, "xlim")[0]["lims"]
    estimate = pe.log_evidence(result(name))
    assert low < -estimate.value < high
    for direction in ("forward", "reverse"):
        work = result(name)["work"][direction].values
        assert low < np.median(work) < high
    assert high - low < 40.0


@both
def test_points_and_lines_are_the_numbers_of_the_result(name):
    """Every number that is drawn stands in the file, and what is not ok says so."""
    run = result(name)
    target = only_plot(pe.plot_estimates(run, backend="none"))
    low, high = drawn(target, "xlim")[0]["lims"]
    names = run["log_evidence"]["estimator"].values
    stored = [pe.log_evidence(run, estimator=str(estimator)) for estimator in names]
    inside = sorted(e.value for e in stored if low <= e.value <= high)
    assert sorted(float(p["x"][0]) for p in drawn(target, "scatter")) == inside
    (ticks,) = drawn(target, "yticks")
    recommended = pe.log_evidence(run).estimator
    for estimate in stored:
        (label,) = (text for text in ticks["labels"] if text.split(" ")[0] == estimate.estimator)
        notes = ["recommended"] * (estimate.estimator == recommended)
        notes += [estimate.status] * (estimate.status not in ("ok", "bound"))
        assert label == estimate.estimator + (f" ({', '.join(notes)})" if notes else "")

    annealing = run["annealing"]
    beta, energy = annealing["beta"].values, annealing["energy_mean"]
    forward, reverse = drawn(only_plot(pe.plot_energy(run, backend="none")), "line")
    for line, direction, where in ((forward, "forward", beta[:-1]), (reverse, "reverse", beta[1:])):
        known = np.isfinite(line["y"])
        np.testing.assert_array_equal(np.asarray(line["x"])[known], where[known])
        values = energy.sel(direction=direction).values
        np.testing.assert_array_equal(np.asarray(line["y"])[known], values[known])
    schedule = pe.plot_schedule(run, backend="none")
    (line, *_) = drawn(schedule.get_target("beta", {}), "line")
    np.testing.assert_array_equal(np.asarray(line["y"]), beta)


def test_islands_have_no_picture_of_work():
    model = shared("modes").model
    run = pe.sample_evidence(
        model, method="smc", draws=800, target_mcse=None, random_seed=1, progressbar=False
    )
    with pytest.raises(ValueError, match=r'only forward; sample with method="ais"'):
        pe.plot_work(run, backend="none")
    assert len(drawn(only_plot(pe.plot_energy(run, backend="none")), "line")) == 1
    assert drawn(only_plot(pe.plot_estimates(run, backend="none")), "scatter")
