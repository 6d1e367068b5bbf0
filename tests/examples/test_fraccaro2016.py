"""Fraccaro et al. (2016): runs are kept, agree with each other, and are tabulated and drawn."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import pm_evidence as pe
from examples.papers.fraccaro2016 import figure2, figure4, figure5, grid, runs
from examples.real_data import usps
from pm_evidence.testing import exact_log_z, sine_rbm

FIGURES = Path(__file__).parents[2] / "docs" / "figures"
KERNELS = "auto", figure2.Still()

# --- Figure 2 ---


@pytest.mark.slow
def test_quick_runs_agree_with_expectation_propagation(data_folder, tmp_path, capsys):
    """90 digits of both classes, on which EP is close; a second call makes no run again."""
    figure2.main([str(tmp_path), "--quick"])
    for end in ("", "_compared", "_runs"):
        name = f"fraccaro2016_figure2{end}.csv"
        assert list(pd.read_csv(tmp_path / name)) == list(pd.read_csv(FIGURES / name))
    found = pd.read_csv(tmp_path / "fraccaro2016_figure2.csv").set_index("setting")
    assert (tmp_path / "fraccaro2016_figure2.png").stat().st_size > 10_000
    inputs, labels = (values[361:451] for values in usps()[:2])
    ep = figure2.target((inputs, labels)).expectation_propagation().log_evidence
    for name in ("ARM", "RM", "AIS rotations*"):
        assert abs(found.log_mean[name] - ep) < 4.0 * found.sd[name] / 2.0 + 0.3
    before = (tmp_path / "fraccaro2016_figure2_runs.csv").read_text()
    figure2.main([str(tmp_path), "--quick"])
    assert (tmp_path / "fraccaro2016_figure2_runs.csv").read_text() == before


def test_runs_go_on_where_they_stopped(tmp_path):
    """An interrupted figure would begin again, or count an estimate twice."""

    def make(seed):
        calls.append(seed)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return {"log_z": [-1.0 * seed, -2.0], "particles": 10.0, "seconds": 0.5}

    calls, file = [], tmp_path / "runs.csv"
    with pytest.raises(KeyboardInterrupt):
        runs.kept(file, {("a", 10): (4, make)})
    found = runs.kept(file, {("a", 10): (4, make)})
    assert calls == [1, 2, 3, 3, 4]
    assert found["seed"].tolist() == [1, 1, 2, 2, 3, 3, 4, 4]
    assert found["log_z"].tolist() == [-1.0, -2.0, -2.0, -2.0, -3.0, -2.0, -4.0, -2.0]


def test_intervals_hold_the_ratio_of_variances():
    """A claim would be called shown that the estimates do not show."""
    rng = np.random.default_rng(1)
    right, verdicts = 0, []
    for _ in range(200):
        parts = [
            pd.DataFrame(
                {
                    "setting": name,
                    "size": 100,
                    "log_z": sd * rng.normal(size=50),
                    "particles": 100.0,
                    "seconds": seconds,
                }
            )
            for name, sd, seconds in (("a", 1.0, 1.0), ("b", 2.0, 0.25))
        ]
        found = runs.comparisons(pd.concat(parts), [("a", "b")]).set_index("cost")
        right += found.low["particles"] < 0.25 < found.high["particles"]
        verdicts.append((found.verdict["particles"], found.verdict["seconds"]))
    assert 176 <= right <= 198  # 88 to 99 %: intervals of 95 % from 50 estimates
    assert verdicts.count(("shown", "not decidable")) > 170


@pytest.mark.parametrize(
    ("name", "compare"),
    [
        ("fraccaro2016_figure2", figure2.compared),
        ("fraccaro2016_figure2_100_points", figure2.compared),
        ("fraccaro2016_figure4", figure4.compared_all),
    ],
)
def test_stored_tables_follow_from_the_stored_runs(name, compare):
    """The page would show numbers that the script does not make."""
    stored = pd.read_csv(FIGURES / f"{name}.csv")
    kept = pd.read_csv(FIGURES / f"{name}_runs.csv")
    pd.testing.assert_frame_equal(stored, runs.summary(kept), rtol=1e-4, check_dtype=False)
    compared = compare(kept)
    stored = pd.read_csv(FIGURES / f"{name}_compared.csv")
    pd.testing.assert_frame_equal(stored, compared, rtol=1e-3, check_dtype=False)


@pytest.mark.slow
def test_particles_that_do_not_move_are_unbiased(data_folder):
    """Sixteen digits of both classes, on which 1000 particles suffice without moves."""
    data = tuple(values[::50] for values in usps()[:2])
    batches = [figure2.by_particles(figure2.PLAIN, "random", 1, kernel) for kernel in KERNELS]
    methods = [figure2.Method("", (1000,), (1,), run, 8) for run in batches]
    plain, still = (figure2.batch_of(method, data, 1000, 1)["log_z"] for method in methods)
    assert abs(still.mean() - plain.mean()) < 4.0 * np.hypot(still.std(), plain.std()) / 8**0.5
    assert still.std() > 0.0


@pytest.mark.slow
def test_the_grid_agrees_with_expectation_propagation(data_folder, tmp_path):
    """Forty digits at the four corners of the grid; a second call makes no run again."""
    grid.main([str(tmp_path), "--quick"])
    found = pd.read_csv(tmp_path / "fraccaro2016_grid.csv")
    assert list(found) == list(pd.read_csv(FIGURES / "fraccaro2016_grid.csv"))
    assert len(found) == 4
    assert (np.abs(found["log_mean"] - found["ep2"]) < 4.0 * found["sd"] / 8**0.5 + 0.1).all()
    assert (tmp_path / "fraccaro2016_grid.png").stat().st_size > 10_000
    before = (tmp_path / "fraccaro2016_grid_runs.csv").read_text()
    grid.main([str(tmp_path), "--quick"])
    assert (tmp_path / "fraccaro2016_grid_runs.csv").read_text() == before


# --- Figures 4 and 5 ---


@pytest.fixture
def small(monkeypatch):
    """Machines of 16 x 12 units in place of those of 784 x 500."""
    parameters = sine_rbm(16, 12)
    data = np.random.default_rng(1).integers(2, size=(20, 16), dtype=np.uint8)
    rbm = pe.rbm.RBM(*parameters, data=data, base="data")
    monkeypatch.setattr(figure4, "machine", lambda *args, **kwargs: rbm)
    return exact_log_z(*parameters)


@pytest.mark.slow
def test_all_methods_find_log_z(small, tmp_path):
    """Runs would be mixed up, or their weights averaged on the log scale."""
    figure4.main([str(tmp_path), "--particles", "100", "--runs", "10", "--quick"])
    table = pd.read_csv(tmp_path / "fraccaro2016_figure4.csv")
    methods = ["rm", "arm", "anticipate", "ais", "mas", "reseed"]
    assert table["setting"].tolist() == [f"{m} {k}" for m in ("cd25", "pcd") for k in methods]
    assert table["estimates"].tolist() == [10, 10, 10, 10, 10, 2] * 2
    annealed = table["setting"].str.contains("ais|mas")
    assert (np.abs(table.loc[~annealed, "log_mean"] - small) < 0.25).all()
    assert (np.abs(table.loc[annealed, "log_mean"] - small) < 2.0).all()  # in ten steps
    assert (table["sd"] < 1.5).all()
    assert (tmp_path / "fraccaro2016_figure4.png").stat().st_size > 1000
    before = (tmp_path / "fraccaro2016_figure4_runs.csv").read_text()
    figure4.main([str(tmp_path), "--particles", "100", "--runs", "10", "--quick"])
    assert (tmp_path / "fraccaro2016_figure4_runs.csv").read_text() == before


def test_settings_are_those_of_the_paper():
    arm = figure4.sampler("anticipate", "cd25", 7)
    assert (arm.generate, arm.max_rounds, arm.islands, arm.ess_threshold) == (
        "anticipate",
        3,
        7,
        0.7,
    )
    assert figure4.sampler("reseed", "pcd", 2).reseed_moves == 3000
    assert figure4.sampler("rm", "pcd", 2).resample_below == 0.7


def test_particles_of_a_part_hold_no_other_units(small, tmp_path):
    """Units that have not been added would be shown as if they had been drawn."""
    images = figure5.particles(figure4.machine("pcd", tmp_path), 6, 5)
    assert images.shape == (5, 16)
    assert (np.isfinite(images).sum(axis=1) == 6).all()
    assert set(images[np.isfinite(images)]) == {0.0, 1.0}
    rates = figure4.machine("pcd", tmp_path).data.mean(axis=0)
    there = np.isfinite(images[0])
    assert np.abs(rates[there] - 0.5).max() <= np.abs(rates[~there] - 0.5).min() + 1e-12
