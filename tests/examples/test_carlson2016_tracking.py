"""Figure 5 of Carlson et al. (2016): settings, and what the script compares and draws."""

import numpy as np
import pytest

import pm_evidence as pe
from examples.papers.carlson2016 import page
from examples.papers.carlson2016 import tracking as script


def test_settings_are_those_of_the_paper():
    """What differs, the optimiser and its step size, is said on the page."""
    full = script.FULL
    assert (full.n_temperatures, full.n_chains, full.n_sweeps) == (100, 2000, 25)
    assert (full.n_paths, full.n_stages, script.N_HIDDEN) == (100, 10_000, 500)
    assert pe.TrackLogZ().alpha == 0.2 and pe.TrackLogZ().slope == 2.0


def test_rows_are_divided_without_overlap(data_folder):
    train, validation, test = script.split(data_folder)
    assert (train.shape, validation.shape, test.shape) == ((1400, 180), (600, 180), (1186, 180))
    both, given = np.vstack([train, validation]), script.dna(data_folder)[0]
    order, original = (np.lexsort(rows.T) for rows in (both, given))
    np.testing.assert_array_equal(both[order], given[original])


def test_script_compares_and_the_page_draws(data_folder, tmp_path, capsys):
    """Quick: tracked log Z is within 0.3 nats of annealing, and a second run trains no more."""
    script.main([str(tmp_path), "--quick"])
    out = capsys.readouterr().out
    assert "of processor time" in out and "by RAISE" in out
    (figure,) = page.draw(page.tables(tmp_path), tmp_path)
    assert figure.name == "carlson2016_figure5.png" and figure.stat().st_size > 10_000
    train, validation, _ = script.split(data_folder)
    stored = script.saved(tmp_path / "tracking_quick.npz", None, None, script.QUICK)
    points = script.comparison(stored, train, validation, script.QUICK)
    np.testing.assert_array_equal(points["update"], stored["update"])
    table = points.dropna()
    np.testing.assert_array_equal(table["update"], [0, 20, 40])
    assert page.of_tracking(points).count("\n") == 4
    assert np.abs(table["log_z"] - table["ais"]).max() < 0.3
    difference = (table["train"] - table["ais_train"]) + (table["log_z"] - table["ais"])
    assert np.abs(difference).max() == pytest.approx(0.0, abs=1e-6)
    assert stored["validation"].max() == stored["validation"][stored["update"] == stored["best"]]
