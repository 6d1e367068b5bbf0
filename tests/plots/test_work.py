"""plot_work: the densities are those of the work, and cross where they should."""

import numpy as np
import pytest
import xarray as xr
from scipy import stats

from pm_evidence.core.records import LogEvidence
from pm_evidence.plots import plot_work
from tests.plots.drawing import (
    BAR,
    drawn,
    legend_texts,
    make_run,
    only_plot,
)

MINUS = "\N{MINUS SIGN}"


def normal_work(variance=2.0, n=2000):
    """Quantiles of normal work that obeys Crooks' theorem with log Z = -31.3."""
    level = (np.arange(n) + 0.5) / n
    return [
        stats.norm.ppf(level, 31.3 + shift * variance / 2, np.sqrt(variance)) for shift in (1, -1)
    ]


def run_of(forward, reverse, **arguments):
    return make_run(forward=forward, reverse=reverse, **arguments)


def densities(target):
    """Forward and reverse line, each as x and y."""
    return [(np.asarray(line["x"]), np.asarray(line["y"])) for line in drawn(target, "line")]


def test_densities_are_those_of_the_work_and_cross_at_minus_log_z():
    target = only_plot(plot_work(run_of(*normal_work()), backend="none"))
    (x, forward), (also_x, reverse) = densities(target)
    assert x.tolist() == also_x.tolist()
    sd = np.sqrt(2.0)
    # smoothing widens a density of standard deviation 1.4 by a bandwidth of about 0.3
    np.testing.assert_allclose(forward, stats.norm.pdf(x, 32.3, sd), atol=0.012)
    np.testing.assert_allclose(reverse, stats.norm.pdf(x, 30.3, sd), atol=0.012)
    middle = (x > 30.3) & (x < 32.3)
    crossing = x[middle][np.flatnonzero(np.diff(np.sign((forward - reverse)[middle])))]
    assert crossing == pytest.approx([31.3], abs=0.02)


def test_a_histogram_has_the_counts_of_each_direction_in_common_bins():
    forward, reverse = normal_work()
    target = only_plot(plot_work(run_of(forward, reverse), kind="hist", backend="none"))
    bars = drawn(target, "hist")
    assert len(bars) == len(drawn(target, "step")) == 2
    for bar, work in zip(bars, (forward, reverse), strict=True):
        edges = np.append(np.asarray(bar["l_e"]), np.asarray(bar["r_e"])[-1])
        np.testing.assert_allclose(bar["y"], np.histogram(work, edges, density=True)[0])
    assert np.array_equal(bars[0]["l_e"], bars[1]["l_e"])


def test_lines_stand_at_the_estimate_and_the_means():
    forward, reverse = normal_work()
    target = only_plot(plot_work(run_of(forward, reverse), backend="none"))
    lines = drawn(target, "vline")
    assert [line["x"] for line in lines] == pytest.approx([31.3, 32.3, 30.3])
    estimate, forward_mean, reverse_mean = (line["color"] for line in lines)
    assert [forward_mean, reverse_mean] == [line["color"] for line in drawn(target, "line")]
    assert estimate not in (forward_mean, reverse_mean)
    (band,) = drawn(target, "vspan")
    assert (band["xmin"], band["xmax"]) == (31.1, 31.5)


def test_an_estimate_without_an_interval_gets_one_from_its_error():
    evidence = (LogEvidence(-31.3, 0.1, "bar"),)
    target = only_plot(plot_work(run_of(*normal_work(), evidence=evidence), backend="none"))
    (band,) = drawn(target, "vspan")
    assert [band["xmin"], band["xmax"]] == pytest.approx([31.104, 31.496], abs=1e-3)


def test_an_unknown_estimate_has_no_line():
    evidence = (LogEvidence(np.nan, np.nan, "bar", "no_overlap"),)
    collection = plot_work(run_of(*normal_work(), evidence=evidence), backend="none")
    assert len(drawn(only_plot(collection), "vline")) == 2
    assert not drawn(only_plot(collection), "vspan")


def test_a_huge_interval_does_not_press_the_densities_together():
    evidence = (LogEvidence(-31.3, 1e4, "bar", "no_overlap", lower=-5e4, upper=np.inf),)
    forward, reverse = normal_work()
    run = run_of(forward, reverse, evidence=evidence)
    target = only_plot(plot_work(run, backend="none"))
    low, high = drawn(target, "xlim")[0]["lims"]
    assert low < reverse.min() < forward.max() < high
    assert high - low < 3.5 * (forward.max() - reverse.min())


def test_a_long_tail_is_cut_but_counts():
    """Prior draws can have enormous energies, which would press all else into one line."""
    forward, reverse = normal_work()
    forward = forward.copy()
    forward[:200] = np.geomspace(1e3, 1e7, 200)
    run = run_of(forward, reverse)
    collection = plot_work(run, backend="matplotlib")
    low, high = only_plot(collection).get_xlim()
    assert 20.0 < low < 27.0
    assert 36.0 < high < 45.0
    mean = f"{round(forward.mean(), -3):.0f}"  # its error is about 20,000
    forward_label, mean_label, *others = legend_texts(collection)
    assert forward_label == "forward work (10 % further right)"
    assert mean_label == f"mean forward work = {mean}, further right: minus the lower bound"
    assert others == [
        "reverse work",
        "mean reverse work = 30.300: minus the upper bound",
        f"{MINUS}log Z = 31.30(10) (bar, with 95 % interval)",
    ]
    target = only_plot(plot_work(run, backend="none"))
    areas = [np.trapezoid(y, x) for x, y in densities(target)]
    assert areas == pytest.approx([0.9, 1.0], abs=0.002)
    assert [line["x"] for line in drawn(target, "vline")] == pytest.approx([31.3, 30.3])


def test_paths_of_weight_zero_are_told_and_counted():
    forward, reverse = normal_work()
    forward = np.concatenate([forward, np.full(len(forward), np.inf)])
    run = run_of(forward, reverse)
    collection = plot_work(run, backend="matplotlib")
    assert legend_texts(collection)[:2] == [
        "forward work (50 % of weight zero)",
        "mean forward work is infinite: no lower bound",
    ]
    (x, y), _ = densities(only_plot(plot_work(run, backend="none")))
    assert np.trapezoid(y, x) == pytest.approx(0.5, abs=0.002)


@pytest.mark.parametrize("noise", [0.0, 1e-14])  # rounding must not ask for 1e13 bins
def test_work_that_does_not_vary_can_be_drawn(noise):
    """A constant likelihood, or one stage of perfect moves: a density would be infinite."""
    forward = np.full(50, 31.3)
    reverse = forward + noise * np.arange(50)
    collection = plot_work(run_of(forward, reverse), backend="none")
    bars = drawn(only_plot(collection), "hist")
    assert [bar["y"].max() > 0 for bar in bars] == [True, True]


def test_labels_carry_units():
    target = only_plot(plot_work(run_of(*normal_work()), backend="none"))
    assert drawn(target, "xlabel")[0]["string"] == "work (nats)"
    assert drawn(target, "ylabel")[0]["string"] == "density (per nat)"


def test_what_cannot_be_drawn_is_refused():
    run = run_of(*normal_work())
    with pytest.raises(ValueError, match=r'only forward; sample with method="ais"'):
        plot_work(make_run(reverse=None), backend="none")
    with pytest.raises(ValueError, match=r"finite forward work, got 2 paths without any"):
        plot_work(make_run(forward=(np.inf, np.inf)), backend="none")
    with pytest.raises(ValueError, match=r"dt must have the group 'work', got the groups"):
        plot_work(xr.DataTree(), backend="none")
    with pytest.raises(TypeError, match=r"dt must be an xarray\.DataTree, got LogEvidence"):
        plot_work(BAR, backend="none")
    with pytest.raises(ValueError, match=r"kind must be one of .*, got 'ecdf'"):
        plot_work(run, kind="ecdf", backend="none")
