"""Schedules on the machines of Kiwaki (2015): the tables hold what runs gave."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from examples.papers.kiwaki2015 import page
from examples.papers.kiwaki2015 import schedules as script
from pm_evidence.testing import exact_log_z, sine_rbm

ROOT = Path(__file__).resolve().parents[2]
STAGES = 150


@pytest.fixture
def machines(tmp_path):
    """Files of two small machines with as many visible units as MNIST has pixels."""
    for k, name in enumerate(("pcd20", "cd1_20")):
        w, a, b = sine_rbm(784, 4)
        np.savez(tmp_path / f"{name}.npz", W=w * 0.1 * (k + 1), visible_bias=a, hidden_bias=b)
    return tmp_path


def test_sample_size_is_that_of_the_paper():
    """Eq. 5 by hand: equal weights give all paths, and one path of two gives 1 / (1 + 2)."""
    assert script.sample_size(np.full(10, 300.0)) == pytest.approx(1.0)
    assert script.sample_size(np.array([0.0, -800.0])) == pytest.approx(1.0 / 3.0)


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
    assert (table.ess.between(1.0 / 65.0, 1.0)).all()
    assert table.set_index("schedule").largest_step["VAROPT 0.009"] <= 0.009 * (1.0 + 1e-4)
    shares = pd.read_csv(out / "kiwaki2015_path_ess.csv")
    last = shares[shares.beta == 1.0].set_index("schedule").share
    # a share of ESS without Eq. 5's one more path
    assert (last > 0.9 * table.set_index("schedule").ess).all()


def test_a_second_machine_does_not_remove_the_first(machines, data_folder, tmp_path):
    options = {"runs": 32, "stages": (40,), "data": data_folder}
    script.main(machines, tmp_path / "out", names=("pcd20",), **options)
    table = script.main(machines, tmp_path / "out", names=("cd1_20",), **options)
    assert set(table.machine) == {"pcd20", "cd1_20"}
    again = script.main(machines, tmp_path / "out", names=("cd1_20",), **options)
    assert len(again) == len(table)


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
    runs, shares = page.tables()
    counts = runs.groupby("machine").schedule.nunique()
    assert counts.to_dict() == dict.fromkeys(script.MACHINES, len(script.SCHEDULES))
    text = (ROOT / "docs" / "kiwaki2015.md").read_text(encoding="utf-8")
    assert page.sample_sizes(runs) in text
    assert page.log_z(runs) in text
    assert page.draw(runs, shares, tmp_path / "figure.png").stat().st_size > 10_000
