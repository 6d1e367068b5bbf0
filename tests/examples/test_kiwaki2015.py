"""Kiwaki (2015): machines that are trained and saved, and schedules on them."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import pm_evidence as pe
from examples.papers.kiwaki2015 import page, summed_out
from examples.papers.kiwaki2015 import schedules as script
from examples.papers.kiwaki2015 import train as training
from pm_evidence.testing import exact_log_z, sine_rbm

# --- machines ---


def test_machines_are_those_of_the_paper():
    """Two sizes, each trained in three ways; 250,000 updates of CD1 and PCD with 20 units."""
    kinds = {
        (n_hidden, options.get("algorithm", "cd"), options.get("steps", 1))
        for n_hidden, options in training.SETTINGS.values()
    }
    trainings = (("pcd", 1), ("cd", 1), ("cd", 25))
    assert kinds == {(n, *each) for n in (20, 500) for each in trainings}
    for name in ("pcd20", "cd1_20"):
        assert training.SETTINGS[name][1]["n_updates"] == 250_000
        assert "linear_decay" not in training.SETTINGS[name][1]


def test_base_rate_is_the_likelihood_of_independent_pixels():
    train = np.array([[0, 1], [0, 1], [1, 1]], np.uint8)
    p = np.array([1.5, 3.5]) / 4.0
    wanted = np.log([1 - p[0], p[0]]).mean() + np.log(p[1])
    assert training.base_rate(train, np.array([[0, 1], [1, 1]])) == pytest.approx(wanted)


def test_exact_figures_are_for_small_machines_only():
    rbm = pe.rbm.train_rbm([[0, 1], [1, 0]], 2, n_updates=1, random_seed=1, progressbar=False)
    log_z, mean = training.exact_figures(rbm, np.array([[0, 1], [0, 0], [1, 1], [1, 0]]))
    assert log_z == pytest.approx(exact_log_z(rbm.W, rbm.visible_bias, rbm.hidden_bias))
    assert mean == pytest.approx(-2.0 * np.log(2.0), abs=1e-3)
    large = type(rbm)(*sine_rbm(30, 30))
    assert np.isnan(training.exact_figures(large, np.zeros((1, 30)))).all()


@pytest.mark.slow
def test_script_saves_what_it_prints(data_folder, tmp_path, capsys):
    """Quick, and with one machine: the others take the same way."""
    table = training.main(tmp_path / "rbms", quick=True, names=("cd1_20",), folder=data_folder)
    assert list(table.index) == ["cd1_20"]
    with np.load(tmp_path / "rbms" / "cd1_20.npz") as saved:
        parameters = [saved[name] for name in ("W", "visible_bias", "hidden_bias")]
    assert [x.shape for x in parameters] == [(784, 20), (784,), (20,)]
    assert table["log_z"]["cd1_20"] == pytest.approx(exact_log_z(*parameters), abs=1e-9)
    # 500 updates are better than independent pixels
    assert -205.85 < table["test_log_likelihood"]["cd1_20"] < -150.0
    out = capsys.readouterr().out
    assert "independent pixels: -205.85 nats" in out and "cd1_20: trained in" in out


@pytest.mark.slow
def test_persistent_chains_learn_mnist(data_folder):
    """20 units reach -140 nats per test digit; a wrong gradient stays at -206, or falls below."""
    train, test = training.mnist(data_folder)
    rbm = pe.rbm.train_rbm(
        train,
        20,
        algorithm="pcd",
        n_updates=15_000,
        learning_rate=0.02,
        random_seed=1,
        progressbar=False,
    )
    assert training.exact_figures(rbm, test)[1] > -142.0


# --- schedules ---


ROOT = Path(__file__).resolve().parents[2]
STAGES = 150


@pytest.fixture
def machines(tmp_path):
    """Files of two small machines with as many visible units as MNIST has pixels."""
    for k, name in enumerate(("pcd20", "cd1_20")):
        w, a, b = sine_rbm(784, 4)
        np.savez(tmp_path / f"{name}.npz", W=w * 0.1 * (k + 1), visible_bias=a, hidden_bias=b)
    return tmp_path


def test_the_settings_are_those_of_the_paper():
    bounds = [s.largest_step for name, s in script.SCHEDULES.items() if name.startswith("VAROPT ")]
    assert bounds == [0.009, 0.006, 0.003]
    assert script.SCHEDULES["GMS13"].n_knots == 10
    assert {"LINEAR", "SM08", "GMS13", "VAROPT"} < set(script.SCHEDULES)


def test_tables_hold_every_schedule_with_right_figures(machines, data_folder, tmp_path):
    """Log Z within 5 standard errors of the exact one: a false alarm in 1e5 runs, at fixed seed."""
    out = tmp_path / "results"
    table = script.main(
        machines, out, names=("pcd20",), runs=64, stages=(STAGES,), data=data_folder
    )
    with np.load(machines / "pcd20.npz") as found:
        exact = exact_log_z(found["W"], found["visible_bias"], found["hidden_bias"])
    # a bound of 0.003 does not reach 1 in so few stages, and 0.006 does not either
    assert set(table.schedule) == set(script.SCHEDULES) - {"VAROPT 0.003", "VAROPT 0.006"}
    assert table.exact.to_numpy() == pytest.approx(exact, rel=1e-4)
    plain = table[table.schedule != "SM08"]
    assert (abs(plain.log_z - plain.exact) < 5.0 * plain.mcse).all()
    assert (table.ess.between(1.0 / 64.0, 1.0)).all()
    assert table.set_index("schedule").largest_step["VAROPT 0.009"] <= 0.009 * (1.0 + 1e-4)
    shares, beta = (pd.read_csv(out / f"kiwaki2015_{x}.csv") for x in ("path_ess", "beta"))
    for made, kind in ((table, "schedules"), (shares, "path_ess"), (beta, "beta")):
        assert list(made) == list(pd.read_csv(page.TABLES / f"kiwaki2015_{kind}.csv"))
    last = shares[shares.beta == 1.0].set_index("schedule").share
    assert last.to_numpy() == pytest.approx(table.set_index("schedule").ess.to_numpy(), rel=1e-3)
    curves = beta.pivot(index="stage", columns="schedule", values="beta")
    np.testing.assert_allclose(curves["LINEAR"], curves.index, atol=1e-4)
    assert (curves.loc[0.0] == 0.0).all() and (curves.loc[1.0] == 1.0).all()
    assert (np.diff(curves, axis=0) > 0.0).all()
    assert curves["SM08"][0.1] == pytest.approx(0.595, abs=2e-3)


@pytest.mark.slow
def test_runs_go_on_where_they_stopped(machines, data_folder, tmp_path):
    """Machines and seeds are added to those that are there, which are not run again."""
    options = {"runs": 32, "stages": (40,), "data": data_folder}
    first = script.main(machines, tmp_path / "out", names=("pcd20",), **options)
    table = script.main(machines, tmp_path / "out", names=("pcd20", "cd1_20"), seeds=2, **options)
    pd.testing.assert_frame_equal(table.iloc[: len(first)], first)
    keys = ["machine", "n_stages", "schedule", "seed"]
    assert len(table) == 4 * len(first) and not table.duplicated(keys).any()
    assert not np.allclose(*(table.log_z[table.seed == seed].to_numpy() for seed in (0, 1)))
    again = script.main(machines, tmp_path / "out", names=("cd1_20",), seeds=2, **options)
    pd.testing.assert_frame_equal(again, table)
    shares = pd.read_csv(tmp_path / "out" / "kiwaki2015_path_ess.csv")
    assert len(shares) == 2 * len(first) * len(script._POINTS)


@pytest.mark.slow
def test_a_bound_that_no_step_exceeds_is_not_run_again(machines, data_folder, monkeypatch):
    calls = []
    original = script.annealed
    monkeypatch.setattr(script, "annealed", lambda *a: (calls.append(a[1]), original(*a))[1])
    train, _ = script.mnist(data_folder)
    rbm = script.machine(machines / "pcd20.npz", train)
    found = {name: figures for name, figures, _ in script.schedules_of(rbm, 2000, 16)}
    assert len(calls) == 4  # steps are shorter than 0.003 throughout
    assert found["VAROPT"] == found["VAROPT 0.003"]


def test_the_page_shows_the_stored_tables(tmp_path):
    """Tables in docs/kiwaki2015.md are those of the files beside its figure, for all machines."""
    runs, shares, beta = page.tables()
    counts = runs.groupby("machine").schedule.nunique()
    names = script.MACHINES + script.MIXING
    assert counts.to_dict() == dict.fromkeys(names, len(script.SCHEDULES))
    text = (ROOT / "docs" / "kiwaki2015.md").read_text(encoding="utf-8")
    assert page.sample_sizes(runs) in text
    assert page.log_z(runs) in text
    assert page.differences(runs) in text
    for file in page.draw(runs, shares, beta, tmp_path):
        assert file.stat().st_size > 10_000
        assert f"](figures/{file.name})" in text


def test_sums_over_hidden_units_are_those_of_the_path():
    """Both kinds of weights estimate the exact log Z, and sums have the smaller variance."""
    rbm = pe.rbm.RBM(*sine_rbm(12, 8), base=np.linspace(0.3, 0.7, 12))
    exact = exact_log_z(rbm.W, rbm.visible_bias, rbm.hidden_bias)
    found = summed_out.log_weights(rbm, 60, 2000)
    for weight in found:
        error = np.exp(weight - weight.max()).std() / np.exp(weight - weight.max()).mean()
        log_z = np.logaddexp.reduce(weight) - np.log(2000)
        assert abs(log_z - exact) < 5.0 * error / 2000**0.5
    assert found[1].std() < found[0].std()
