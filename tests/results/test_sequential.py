"""Evidence after each data point: exact values, the errors of steps, and what is refused."""

from functools import cache, partial

import numpy as np
import pymc as pm
import pytest
from scipy import stats

import pm_evidence as pe
from tests.api.refusals import check_refusals

Y = np.random.default_rng(1).normal(0.5, 1.0, 12)
QUIET = {"method": "resample_move", "progressbar": False, "cores": 1}


@cache
def model(sd, y=tuple(Y)):
    with pm.Model() as found:
        mu = pm.Normal("mu", 0.0, pm.Data("sd", sd))
        pm.Normal("y", mu, 1.0, observed=np.array(y))
    return found


@cache
def run(sd, seed=1, order="given", batches=1, y=tuple(Y)):
    path = pe.paths.DataPoints(order=order, batches=batches)
    options = {"draws": 2000, "target_mcse": None, "random_seed": seed, "path": path}
    return pe.sample_evidence(model(sd, y), **options, **QUIET)


def exact(sd, n=None, order=None):
    y = Y if order is None else Y[order]
    counts = range(1, Y.size + 1) if n is None else n
    return np.array(
        [stats.multivariate_normal(np.zeros(k), np.eye(k) + sd**2).logpdf(y[:k]) for k in counts]
    )


def test_every_evidence_and_predictive_density():
    table, value = pe.sequential_evidence(run(1.0)), exact(1.0)
    assert list(table.index) == list(range(1, 13)) and list(table["data_point"]) == list(range(12))
    assert (abs(table["log_evidence"] - value) < 4.5 * table["mcse"]).all()
    steps = np.diff(value, prepend=0.0)
    assert (abs(table["log_predictive"] - steps) < 4.5 * table["log_predictive_mcse"]).all()
    # steps are known better than what they add up to
    assert table["log_predictive_mcse"].iloc[-1] < table["mcse"].iloc[-1] < 0.1


def test_the_last_row_is_the_estimate_of_the_run():
    last, found = (
        pe.sequential_evidence(run(1.0)).iloc[-1],
        pe.log_evidence(run(1.0), estimator="smc"),
    )
    assert last["log_evidence"] == pytest.approx(found.value, abs=1e-12)
    assert last["mcse"] == pytest.approx(found.mcse, rel=0.01)


def test_batches_and_another_order():
    dt = run(1.0, order="random", batches=5)
    table = pe.sequential_evidence(dt)
    order = np.array(pe.to_record(dt).facts.data_order)
    assert list(table.index) == [5, 10, 12] and list(table["data_point"]) == list(order[[4, 9, 11]])
    assert (abs(table["log_evidence"] - exact(1.0, [5, 10, 12], order)) < 4.5 * table["mcse"]).all()


def test_it_is_stored(tmp_path):
    run(1.0).to_netcdf(tmp_path / "run.nc")
    import xarray as xr

    with xr.open_datatree(tmp_path / "run.nc") as stored:
        assert pe.sequential_evidence(stored).equals(pe.sequential_evidence(run(1.0)))


@pytest.mark.slow
def test_errors_over_many_seeds():
    """Of a middle row and of a step; a right error fails once in a thousand seeds."""
    z = []
    for seed in range(50):
        row = pe.sequential_evidence(run(1.0, seed)).loc[6]
        value = exact(1.0, [5, 6])
        z.append((row["log_evidence"] - value[1]) / row["mcse"])
        z.append((row["log_predictive"] - np.diff(value)[0]) / row["log_predictive_mcse"])
    for each in np.reshape(z, (50, 2)).T:
        assert abs(each.mean()) < 3.3 * each.std() / np.sqrt(50) and 0.7 < each.std() < 1.5


def test_the_plot_has_the_bayes_factor_and_its_band():
    pytest.importorskip("arviz_plots")
    from pm_evidence.plots.models import _sequence

    data = _sequence(run(1.0), run(3.0))["log_bf"]
    value = np.append(0.0, exact(1.0) - exact(3.0))
    low, high = data.sel(plot_axis="low").values, data.sel(plot_axis="high").values
    assert (data.sel(plot_axis="x") == np.arange(13)).all()
    assert ((low <= value) & (value <= high)).mean() > 0.6 and (high - low)[1:].min() > 0.0
    collection = pe.plot_sequential(run(1.0), run(3.0), names=("a", "b"), backend="matplotlib")
    assert {"line", "band", "point", "ref_line_0"} <= set(collection.viz.children)


def test_bad_input():
    plain = pe.sample_evidence(model(1.0), progressbar=False, cores=1, random_seed=1)
    other = run(1.0, y=(*Y[:-1], 3.0))
    cases = [
        ({"dt": plain}, ValueError, "dt must be a run that adds data points"),
        ({"dt": 3}, TypeError, "dt must be an xarray.DataTree"),
    ]
    check_refusals(pe.sequential_evidence, cases)
    cases = [
        ({"dt2": other}, ValueError, "these differ: {'dt1'} from {'dt2'}"),
        ({"dt2": run(1.0, order="random", batches=5)}, ValueError, "in the same order"),
        ({"dt2": plain}, ValueError, "dt2 must be a run that adds data points"),
        ({"dt2": run(1.0), "names": ("a",)}, ValueError, "names must be two strings"),
        ({"dt2": run(1.0), "visuals": {"lines": False}}, ValueError, "visuals must name some"),
    ]
    check_refusals(partial(pe.plot_sequential, run(1.0), backend="none"), cases)
