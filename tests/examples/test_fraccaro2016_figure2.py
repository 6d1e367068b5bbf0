"""Figure 2 of Fraccaro et al. (2016): runs are kept, and tables and pictures are made from them."""

import numpy as np
import pandas as pd
import pytest

from examples.papers.fraccaro2016 import figure2


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
