"""What sample_evidence returns can be drawn as it is, also from a file."""

import numpy as np
import pytest
import xarray as xr

import pm_evidence as pe
from pm_evidence.testing import exact_systems
from tests.plots.drawing import assert_readable, drawn, only_plot

HEAVY = "eight_schools_half_cauchy_noncentred"  # prior draws have enormous energies


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs in both directions, the second of which went through a file."""
    options = {"method": "ais", "draws": 200, "random_seed": 1, "progressbar": False}
    bimodal, heavy = (
        pe.sample_evidence(exact_systems()[name].build(), **options) for name in ("bimodal", HEAVY)
    )
    path = tmp_path_factory.mktemp("runs") / "heavy.nc"
    heavy.to_netcdf(path)
    return {"bimodal": bimodal, HEAVY: xr.load_datatree(path)}


@pytest.mark.parametrize("name", ["bimodal", HEAVY])
@pytest.mark.parametrize("plot", [pe.plot_work, pe.plot_energy, pe.plot_estimates])
def test_every_picture_is_readable(runs, name, plot):
    assert_readable(plot(runs[name], backend="matplotlib"))


@pytest.mark.parametrize("name", ["bimodal", HEAVY])
def test_the_picture_of_work_shows_where_the_directions_meet(runs, name):
    """The upper half of forward work may lie anywhere; what decides log Z must stay visible."""
    target = only_plot(pe.plot_work(runs[name], backend="none"))
    low, high = drawn(target, "xlim")[0]["lims"]
    estimate = pe.log_evidence(runs[name])
    assert low < -estimate.value < high
    for direction in ("forward", "reverse"):
        work = runs[name]["work"][direction].values
        assert low < np.median(work) < high
    assert high - low < 40.0


def test_islands_have_no_picture_of_work():
    model = exact_systems()["bimodal"].build()
    run = pe.sample_evidence(
        model, method="smc", draws=800, target_mcse=None, random_seed=1, progressbar=False
    )
    with pytest.raises(ValueError, match=r'only forward; sample with method="ais"'):
        pe.plot_work(run, backend="none")
    assert len(drawn(only_plot(pe.plot_energy(run, backend="none")), "line")) == 1
    assert drawn(only_plot(pe.plot_estimates(run, backend="none")), "scatter")
