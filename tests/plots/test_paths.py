"""Work and energy: densities cross where they should, means stand where populations were moved."""

from functools import partial

import numpy as np
import pytest
import xarray as xr
from scipy import stats

from pm_evidence.core.records import LogEvidence
from pm_evidence.estimators.bar import overlap
from pm_evidence.plots import plot_energy, plot_work
from pm_evidence.plots.paths import _largest_variance
from tests.api.refusals import check_refusals
from tests.plots.drawing import (
    BAR,
    drawn,
    horizontal_lines,
    legend_texts,
    make_run,
    only_plot,
)

# --- plot_work ---


MINUS = "\N{MINUS SIGN}"


def normal_work(variance=2.0, n=2000):
    """Quantiles of normal work that obeys Crooks' theorem with log Z = -31.3."""
    level = (np.arange(n) + 0.5) / n
    return [
        stats.norm.ppf(level, 31.3 + shift * variance / 2, np.sqrt(variance)) for shift in (1, -1)
    ]


def densities(target):
    """Forward and reverse line, each as x and y."""
    return [(np.asarray(line["x"]), np.asarray(line["y"])) for line in drawn(target, "line")]


def test_densities_are_those_of_the_work_and_cross_at_minus_log_z():
    target = only_plot(plot_work(make_run(*normal_work()), backend="none"))
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
    target = only_plot(plot_work(make_run(forward, reverse), kind="hist", backend="none"))
    bars = drawn(target, "hist")
    assert len(bars) == len(drawn(target, "step")) == 2
    for bar, work in zip(bars, (forward, reverse), strict=True):
        edges = np.append(np.asarray(bar["l_e"]), np.asarray(bar["r_e"])[-1])
        np.testing.assert_allclose(bar["y"], np.histogram(work, edges, density=True)[0])
    assert np.array_equal(bars[0]["l_e"], bars[1]["l_e"])


def test_lines_stand_at_the_estimate_and_the_means():
    forward, reverse = normal_work()
    target = only_plot(plot_work(make_run(forward, reverse), backend="none"))
    lines = drawn(target, "vline")
    assert [line["x"] for line in lines] == pytest.approx([31.3, 32.3, 30.3])
    estimate, forward_mean, reverse_mean = (line["color"] for line in lines)
    assert [forward_mean, reverse_mean] == [line["color"] for line in drawn(target, "line")]
    assert estimate not in (forward_mean, reverse_mean)
    (band,) = drawn(target, "vspan")
    assert (band["xmin"], band["xmax"]) == (31.1, 31.5)


def test_an_estimate_without_an_interval_gets_one_from_its_error():
    evidence = (LogEvidence(-31.3, 0.1, "bar"),)
    target = only_plot(plot_work(make_run(*normal_work(), evidence=evidence), backend="none"))
    (band,) = drawn(target, "vspan")
    assert [band["xmin"], band["xmax"]] == pytest.approx([31.104, 31.496], abs=1e-3)


def test_an_unknown_estimate_has_no_line():
    evidence = (LogEvidence(np.nan, np.nan, "bar", "no_overlap"),)
    collection = plot_work(make_run(*normal_work(), evidence=evidence), backend="none")
    assert len(drawn(only_plot(collection), "vline")) == 2
    assert not drawn(only_plot(collection), "vspan")


def test_a_huge_interval_does_not_press_the_densities_together():
    evidence = (LogEvidence(-31.3, 1e4, "bar", "no_overlap", lower=-5e4, upper=np.inf),)
    forward, reverse = normal_work()
    run = make_run(forward, reverse, evidence=evidence)
    target = only_plot(plot_work(run, backend="none"))
    low, high = drawn(target, "xlim")[0]["lims"]
    assert low < reverse.min() < forward.max() < high
    assert high - low < 3.5 * (forward.max() - reverse.min())


def test_a_long_tail_is_cut_but_counts():
    """Prior draws can have enormous energies, which would press all else into one line."""
    forward, reverse = normal_work()
    forward = forward.copy()
    forward[:200] = np.geomspace(1e3, 1e7, 200)
    run = make_run(forward, reverse)
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
    run = make_run(forward, reverse)
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
    collection = plot_work(make_run(forward, reverse), backend="none")
    bars = drawn(only_plot(collection), "hist")
    assert [bar["y"].max() > 0 for bar in bars] == [True, True]


def test_labels_carry_units():
    target = only_plot(plot_work(make_run(*normal_work()), backend="none"))
    assert drawn(target, "xlabel")[0]["string"] == "work (nats)"
    assert drawn(target, "ylabel")[0]["string"] == "density (per nat)"


def test_work_that_cannot_be_drawn_is_refused():
    run = make_run(*normal_work())
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


# --- plot_energy ---


FALLING = ((1e5, 500.0, 20.0), (3e4, 200.0, 10.0))  # over four decades
CHANGING = ((5000.0, 60.0, -20.0), (900.0, 30.0, -40.0))  # below zero at the end


def test_forward_stands_where_a_stage_begins_and_reverse_where_it_ends():
    target = only_plot(plot_energy(make_run(), backend="none"))
    forward, reverse = drawn(target, "line")
    assert np.asarray(forward["x"]).tolist() == [0.0, 0.25, 0.5]
    assert np.asarray(reverse["x"]).tolist() == [0.25, 0.5, 1.0]
    assert np.asarray(forward["y"]).tolist() == [40.0, 35.0, 32.0]
    assert np.asarray(reverse["y"]).tolist() == [37.0, 33.0, 30.0]
    assert forward["color"] != reverse["color"]
    assert forward["linestyle"] != reverse["linestyle"]
    assert drawn(target, "xlabel")[0]["string"] == "inverse temperature β"
    assert drawn(target, "ylabel")[0]["string"] == "mean energy (nats)"


def test_in_equilibrium_both_directions_lie_on_one_line():
    """A population is at equilibrium where it was moved; a shift by a stage would fake a gap."""
    beta = np.linspace(0, 1, 6)
    run = make_run(beta=beta, energy=(50 - 10 * beta[:-1], 50 - 10 * beta[1:]))
    for line in drawn(only_plot(plot_energy(run, backend="none")), "line"):
        np.testing.assert_allclose(line["y"], 50 - 10 * np.asarray(line["x"]))


def test_the_band_is_one_standard_deviation_and_drawn_on_demand():
    assert not drawn(only_plot(plot_energy(make_run(), backend="none")), "fill_between_y")
    collection = plot_energy(make_run(sd=3.0), backend="none", visuals={"band": {"alpha": 0.5}})
    forward, reverse = drawn(only_plot(collection), "fill_between_y")
    assert np.asarray(forward["y_bottom"]).tolist() == [37.0, 32.0, 29.0]
    assert np.asarray(reverse["y_top"]).tolist() == [40.0, 36.0, 33.0]
    assert forward["alpha"] == 0.5


@pytest.mark.parametrize(
    ("energy", "scales"),
    [
        (FALLING, ["log"]),
        (CHANGING, ["symlog"]),
        ((np.negative(FALLING[0]), np.negative(FALLING[1])), ["symlog"]),
        (((40.0, 35.0, 32.0), (37.0, 33.0, 30.0)), []),
        (((1e6 + 50, 1e6 + 20, 1e6), (1e6, 1e6, 1e6)), []),
        (((4.0, 1.0, -3.0), (3.0, 0.0, -4.0)), []),
        (((4.0, 0.02, -0.03), (0.03, 0.0, -0.04)), []),
        (((0.0, 0.0, 0.0), (0.0, 0.0, 0.0)), []),
    ],
    ids=["falling", "changing", "negative", "level", "offset", "around zero", "small", "zero"],
)
def test_energies_that_span_decades_get_another_axis(energy, scales):
    target = only_plot(plot_energy(make_run(energy=energy), backend="none"))
    assert [element["scale"] for element in drawn(target, "yscale")] == scales


def test_the_axis_is_linear_up_to_the_usual_size():
    axes = only_plot(plot_energy(make_run(energy=CHANGING), backend="matplotlib"))
    assert axes.get_yscale() == "symlog"
    assert axes.yaxis.get_transform().linthresh == 10.0


def test_a_band_that_reaches_below_zero_keeps_a_logarithmic_axis_readable():
    run = make_run(energy=FALLING, sd=1e6)
    axes = only_plot(plot_energy(run, backend="matplotlib", visuals={"band": True}))
    assert axes.get_yscale() == "log"
    assert axes.get_ylim() == pytest.approx((5.0, 2.2e6))


def test_crowded_inverse_temperatures_are_spread():
    crowded = make_run(beta=(0.0, 0.001, 0.01, 1.0))
    target = only_plot(plot_energy(crowded, backend="none"))
    assert drawn(target, "xscale")[0]["scale"] == "sqrt"
    assert drawn(target, "xticks")[0]["labels"][:3] == ["0", "0.01", "0.05"]
    assert not drawn(only_plot(plot_energy(make_run(), backend="none")), "xscale")


@pytest.mark.parametrize(
    ("energy", "label", "heights"),
    [
        (FALLING, "mean energy (nats, logarithmic scale)", []),
        (CHANGING, "mean energy (nats, logarithmic beyond ± 10)", [-10.0, 10.0]),
    ],
)
def test_a_change_of_scale_is_marked(energy, label, heights):
    """Equal distances that stand for unequal differences mislead unless something says so."""
    run = make_run(energy=energy, beta=(0.0, 0.001, 0.01, 1.0))
    target = only_plot(plot_energy(run, backend="none"))
    assert drawn(target, "ylabel")[0]["string"] == label
    assert drawn(target, "xlabel")[0]["string"] == "inverse temperature β, square-root scale"
    assert horizontal_lines(target) == heights
    off = only_plot(plot_energy(run, backend="none", visuals={"linear_part": False}))
    assert not horizontal_lines(off)


def test_the_title_tells_the_gap_and_how_large_it_may_be():
    """The area between the lines is the difference of the mean works, here 3, 2 and 2 nats."""
    rng = np.random.default_rng(1)
    # 3 / 4 + 2 / 4 + 2 / 2 nats of energy
    for gap, verdict in ((2.25, "not too large"), (40.0, "too large")):
        work = (rng.normal(31 + side * gap / 2, np.sqrt(gap), 400) for side in (1, -1))
        run = make_run(**dict(zip(("forward", "reverse"), work, strict=True)))
        title = drawn(only_plot(plot_energy(run, backend="none")), "title")[0]["string"]
        assert "its area: 2.25 nats; " in title
        assert f"of 400 paths overlap: {verdict}\n" in title
        assert "(too large: fewer than 10, or normal work with 18 nats)" in title


def test_a_few_paths_far_out_do_not_make_a_gap_too_large():
    """Stuck prior draws of a heavy-tailed model carry no weight, and most of the area."""
    rng = np.random.default_rng(1)
    forward, reverse = rng.normal(31.5, 1, 200), rng.normal(30.5, 1, 200)
    forward[:15] = 5000.0
    run = make_run(forward=forward, reverse=reverse, energy=(3 * (400.0,), 3 * (30.0,)))
    title = drawn(only_plot(plot_energy(run, backend="none")), "title")[0]["string"]
    assert "its area: 370 nats" in title
    assert "paths overlap: not too large" in title


@pytest.mark.parametrize("n", [100, 1000])
def test_what_is_too_large_leaves_ten_common_paths(n):
    """Normal work of that variance, 100 runs with seed 1: their mean is known to 2 %."""
    rng = np.random.default_rng(1)
    variance = _largest_variance(n)
    sd = np.sqrt(variance)
    common = [
        overlap(rng.normal(variance / 2, sd, n), rng.normal(-variance / 2, sd, n)).n_common
        for _ in range(100)
    ]
    assert np.mean(common) == pytest.approx(10.0, rel=0.1)


def test_a_run_in_one_direction_has_one_line():
    collection = plot_energy(make_run(reverse=None), backend="none")
    assert len(drawn(only_plot(collection), "line")) == 1
    assert drawn(only_plot(collection), "title")[0]["string"] == "Mean energy along the path"


def test_points_mark_few_stages():
    assert len(drawn(only_plot(plot_energy(make_run(), backend="none")), "scatter")) == 2
    many = make_run(beta=np.linspace(0, 1, 61), energy=2 * [np.linspace(9, 1, 60)])
    assert not drawn(only_plot(plot_energy(many, backend="none")), "scatter")


def test_an_infinite_mean_is_left_out():
    """A prior draw of likelihood zero makes the energy of the first stage infinite."""
    run = make_run(energy=((np.inf, 35.0, 32.0), (37.0, 33.0, 30.0)))
    forward, _ = drawn(only_plot(plot_energy(run, backend="none")), "line")
    assert np.isnan(np.asarray(forward["y"])).tolist() == [True, False, False]


def test_energies_that_cannot_be_drawn_are_refused():
    """Errors name the argument, and the variable that is missing."""
    unknown = make_run(energy=2 * (3 * (np.nan,),))
    cases = [
        (xr.DataTree(), ValueError, r"dt must have the group 'annealing', got the groups"),
        ({"a": make_run()}, TypeError, r"dt must be an xarray\.DataTree, got dict"),
        (unknown, ValueError, r"dt must hold a finite mean energy, got none"),
    ]
    for direction in ("forward", "reverse"):
        dt = make_run()
        dt["work"] = xr.DataTree(dt["work"].to_dataset().drop_vars(direction))
        cases += [(dt, ValueError, rf"^dt must have .*'{direction}'.* in its group 'work'")]
    check_refusals(partial(plot_energy, backend="none"), [({"dt": dt}, *e) for dt, *e in cases])
