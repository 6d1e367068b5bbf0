"""Fraccaro et al. (2016): runs are kept, agree with each other, and are tabulated and drawn."""

import numpy as np
import pandas as pd
import pytest

import pm_evidence as pe
from examples.papers.fraccaro2016 import figure2, figure4
from pm_evidence.testing import exact_log_z, sine_rbm

# --- Figure 2 ---


@pytest.mark.slow
def test_quick_runs_agree_with_expectation_propagation(data_folder, tmp_path, capsys):
    """90 digits of both classes, on which EP is close; a second call makes no run again."""
    figure2.main([str(tmp_path), "--quick"])
    found = pd.read_csv(tmp_path / "fraccaro2016_figure2.csv").set_index("method")
    assert (tmp_path / "fraccaro2016_figure2.png").stat().st_size > 10_000
    ep = found.log_mean["EP"]
    for name in ("ARM", "RM", "AIS rotations*"):
        assert abs(found.log_mean[name] - ep) < 4.0 * found.sd[name] / 2.0 + 0.3
    before = {file: file.stat().st_mtime_ns for file in tmp_path.glob("*.npz")}
    figure2.main([str(tmp_path), "--quick"])
    assert {file: file.stat().st_mtime_ns for file in tmp_path.glob("*.npz")} == before


def test_estimates_are_kept(tmp_path, monkeypatch):
    """An interrupted figure goes on where it stopped."""
    monkeypatch.setattr(figure2, "estimates", np.asarray)
    made = [figure2.kept(tmp_path / "run.npz", lambda: [-1.0, -2.0]) for _ in range(2)]
    np.testing.assert_array_equal(made[0][0], made[1][0])
    assert made[0][1] == made[1][1]


# --- Figure 4 ---


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
    assert table["method"].tolist() == ["rm", "arm", "anticipate", "ais", "reseed"] * 2
    assert table["runs"].tolist() == [10, 10, 10, 10, 2] * 2
    annealed = table["method"] == "ais"  # in ten steps
    assert (np.abs(table.loc[~annealed, "log_mean"] - small) < 0.25).all()
    assert (np.abs(table.loc[annealed, "log_mean"] - small) < 2.0).all()
    assert (table["sd"] < 1.5).all()
    assert (tmp_path / "fraccaro2016_figure4.png").stat().st_size > 1000
    files = sorted(tmp_path.glob("figure4_*.npz"))
    assert len(files) == 10
    before = [file.stat().st_mtime_ns for file in files]
    figure4.main([str(tmp_path), "--particles", "100", "--runs", "10", "--quick"])
    assert [file.stat().st_mtime_ns for file in files] == before


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
