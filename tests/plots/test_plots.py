"""Plots: what is drawn is what was computed, in every backend."""

import numpy as np
import pytest
import xarray as xr

from pm_evidence.core.records import BlockRecord, LogEvidence, Role, RunRecord, StageTrace
from pm_evidence.plots import plot_compare, plot_schedule
from pm_evidence.results import compare
from tests.plots.drawing import (
    assert_texts_fit,
    drawn,
    horizontal_lines,
    legend_texts,
    stored,
)

MODELS = {
    "pooled": LogEvidence(-1205.0, 0.5, "bar"),
    "hierarchical": LogEvidence(-1201.0, 0.25, "bar"),
    "separate": LogEvidence(-1202.5, 0.04, "bar"),
}


def make_tree(n_stages=5, *, reverse=True, energy=None):
    stage, ones = np.arange(n_stages, dtype=float), np.ones(n_stages)
    mean = np.linspace(40.0, 30.0, n_stages) if energy is None else energy
    trace = StageTrace(mean, ones, 0.9 - stage / 100, 0.3 + stage / 100)
    blocks = [BlockRecord(index, np.ones(2), trace) for index in range(2)]
    return tree_of(*(blocks if reverse else blocks[:1]), power=3)


def tree_of(forward, *reverse, power=1):
    beta = np.linspace(0, 1, len(forward.trace.ess) + 1) ** power
    return stored(RunRecord("ais", beta, {Role.FORWARD: [forward], Role.REVERSE: reverse}))


def compare_target(collection):
    return collection.get_viz("plot")


# plot_compare


def test_compare_draws_points_and_95_percent_intervals_best_on_top():
    collection = plot_compare(MODELS, backend="none")
    target = compare_target(collection)
    points = drawn(target, "scatter")
    assert [float(p["x"][0]) for p in points] == [-1201.0, -1202.5, -1205.0]
    assert [float(p["y"][0]) for p in points] == [3.0, 2.0, 1.0]
    ends = np.array([bar["x"] for bar in drawn(target, "line")])
    half = 1.959964 * np.array([0.25, 0.04, 0.5])
    np.testing.assert_allclose(ends[:, 1] - ends[:, 0], 2 * half, rtol=1e-6)
    np.testing.assert_allclose(ends.mean(axis=1), [-1201.0, -1202.5, -1205.0], rtol=1e-12)


def test_compare_labels_carry_names_units_and_differences():
    target = compare_target(plot_compare(MODELS, backend="none"))
    (ticks,) = drawn(target, "yticks")
    assert list(ticks["labels"]) == ["hierarchical", "separate", "pooled"]
    assert list(ticks["ticks"]) == [3.0, 2.0, 1.0]
    assert drawn(target, "xlabel")[0]["string"] == "log evidence (nats)"
    minus = "\N{MINUS SIGN}"
    # errors of the differences: sqrt(0.25^2 + 0.04^2) = 0.253, sqrt(0.25^2 + 0.5^2) = 0.559
    assert [str(text["string"]) for text in drawn(target, "text")] == [
        f"{minus}1201.00(25), best",
        f"{minus}1202.50(4), 1.50(25) below",
        f"{minus}1205.0(5), 4.0(6) below",
    ]


def test_compare_says_that_points_hide_intervals():
    """Two points alone would look like estimates without errors."""
    said = []
    for last in (0.04, 0.5):
        models = MODELS | {"pooled": LogEvidence(-1205.0, last, "bar")}
        models["hierarchical"] = LogEvidence(-1201.0, 0.01, "bar")
        models["separate"] = LogEvidence(-1190.0, 0.01, "bar")
        said.append(
            drawn(compare_target(plot_compare(models, backend="none")), "title")[0]["string"]
        )
    assert said[0].endswith("(all intervals are narrower than the points)")
    assert said[1].endswith("(some intervals are narrower than the points)")
    (usual,) = drawn(compare_target(plot_compare(MODELS, backend="none")), "title")
    assert "narrower" not in usual["string"]


def test_compare_takes_the_degrees_of_freedom_from_models_and_table():
    """Four islands know their error badly; a normal interval would be 40 % too short."""
    models = {"a": LogEvidence(-1.0, 0.1, "smc", dof=3.0), "b": LogEvidence(-9.0, 0.1, "smc")}
    for given in (models, compare(models), compare(models).iloc[::-1]):
        bars = drawn(compare_target(plot_compare(given, backend="none")), "line")
        lengths = [bar["x"][1] - bar["x"][0] for bar in bars]
        np.testing.assert_allclose(lengths, [0.2 * 3.182446, 0.2 * 1.959964], rtol=1e-6)


def test_compare_marks_what_is_not_to_be_trusted():
    models = MODELS | {"doubtful": LogEvidence(-1202.0, 0.1, "smc", "dominated")}
    collection = plot_compare(models, backend="matplotlib")
    assert legend_texts(collection) == ["ok", "cannot be trusted: see the status"]
    target = compare_target(plot_compare(models, backend="none"))
    (open_point,) = [point for point in drawn(target, "scatter") if point["facecolor"] == "B0"]
    assert float(open_point["x"][0]) == -1202.0
    sound = plot_compare(MODELS, backend="matplotlib")
    assert not sound.get_viz("figure").legends


def test_compare_draws_posterior_probabilities():
    """Points and labels are those of the table; intervals stay within 0 and 1."""
    table = compare(MODELS)
    target = compare_target(plot_compare(table, quantity="probability", backend="none"))
    points = [float(point["x"][0]) for point in drawn(target, "scatter")]
    np.testing.assert_allclose(points, table["prob"])
    ends = np.array([bar["x"] for bar in drawn(target, "line")])
    assert (ends >= 0.0).all()
    assert (ends <= 1.0).all()
    half = 1.959964 * table["prob_mcse"].iloc[1]
    np.testing.assert_allclose(ends[1], table["prob"].iloc[1] + half * np.array([-1.0, 1.0]))
    assert drawn(target, "xlabel")[0]["string"] == "posterior probability"
    assert "log" not in str(drawn(target, "text"))
    assert "quantity" not in table.attrs
    with pytest.raises(ValueError, match="quantity must be one of 'evidence', 'probability'"):
        plot_compare(table, quantity="bayes_factor", backend="none")
    with pytest.raises(ValueError, match=r"no column \['prob'\]"):
        plot_compare(table.drop(columns="prob"), quantity="probability", backend="none")


def test_compare_shows_a_status_and_no_point_for_an_unknown_evidence():
    models = MODELS | {"broken": LogEvidence(np.nan, np.nan, "bar", "no_overlap")}
    target = compare_target(plot_compare(models, backend="none"))
    assert len(drawn(target, "scatter")) == 3
    (ticks,) = drawn(target, "yticks")
    assert ticks["labels"][-1] == "broken (no_overlap, no value to draw)"


def test_compare_refuses_what_it_cannot_draw():
    with pytest.raises(ValueError, match=r"visuals must name some of .*, got \['points'\]"):
        plot_compare(MODELS, backend="none", visuals={"points": False})
    with pytest.raises(ValueError, match=r"no column \['log_bf_mcse'\]; pass the table"):
        plot_compare(compare(MODELS).drop(columns="log_bf_mcse"), backend="none")


def test_compare_in_matplotlib_keeps_every_text_inside_and_apart(tmp_path):
    """Labels that overlap or run out of the picture cannot be read."""
    models = {
        f"a model with a long name {i}": LogEvidence(-1200.0 - 0.7 * i, 0.2, "bar")
        for i in range(4)
    }
    collection = plot_compare(models, backend="matplotlib")
    collection.savefig(tmp_path / "compare.png")
    assert (tmp_path / "compare.png").stat().st_size > 5000
    figure, axes = collection.get_viz("figure"), compare_target(collection)
    assert_texts_fit(figure, [*axes.texts, axes.title, axes.xaxis.label, *axes.get_yticklabels()])
    low, high = axes.get_xlim()
    ticks = [tick for tick in axes.get_xticklabels() if low <= tick.get_position()[0] <= high]
    assert_texts_fit(figure, [*ticks, axes.xaxis.label])
    assert axes.xaxis.get_offset_text().get_text() == ""


# plot_schedule


def schedule_target(collection, name):
    return collection.get_target(name, {})


def test_schedule_draws_each_quantity_against_the_stage():
    collection = plot_schedule(make_tree(reverse=False), backend="none")
    for name, label, first in (
        ("beta", "inverse temperature β", 0.0),
        ("ess", "effective sample size (share)", 0.9),
        ("acceptance", "acceptance probability", 0.3),
        ("energy_mean", "mean energy (nats)", 40.0),
    ):
        target = schedule_target(collection, name)
        (line,) = drawn(target, "line")
        known = np.isfinite(line["y"])
        # stage k ends at k: its size and its acceptance stand there, its energy where it begins
        there = {"beta": range(6), "energy_mean": range(5)}.get(name, range(1, 6))
        assert np.asarray(line["x"])[known].tolist() == list(there)
        assert line["y"][known][0] == first
        assert drawn(target, "title")
        assert drawn(target, "ylabel")[0]["string"] == label
        assert drawn(target, "xlabel")[0]["string"] == "stage"
    beta = drawn(schedule_target(collection, "beta"), "line")[0]
    assert beta["y"].tolist() == (np.linspace(0, 1, 6) ** 3).tolist()


def test_schedule_has_lines_for_good_and_bad():
    collection = plot_schedule(make_tree(), backend="none")
    for name, heights in (("ess", [0.5, 0.1]), ("acceptance", [0.2, 0.05]), ("beta", [])):
        target = schedule_target(collection, name)
        assert horizontal_lines(target) == heights
        title = drawn(target, "title")[0]["string"]
        assert all(f"{height:g}" in title for height in heights)
    off = plot_schedule(make_tree(), backend="none", visuals={"good": False, "bad": False})
    assert not horizontal_lines(schedule_target(off, "ess"))


def test_schedule_puts_energies_where_populations_were_moved():
    """In equilibrium both directions lie on one line, and islands know the end as well."""
    beta = np.linspace(0, 1, 6)

    def block(energy, end=np.nan):
        trace = StageTrace(energy, np.ones(5), np.ones(5), np.ones(5))
        return BlockRecord(0, np.ones(2), trace, end=(end, 1.0))

    there, back = block(50 - 10 * beta[:-1]), block(50 - 10 * beta[1:])
    lines = drawn(
        schedule_target(plot_schedule(tree_of(there, back), backend="none"), "energy_mean"), "line"
    )
    for line, stages in zip(lines, (range(5), range(1, 6)), strict=True):
        known = np.isfinite(line["y"])
        assert np.asarray(line["x"])[known].tolist() == list(stages)
        np.testing.assert_allclose(line["y"][known], 50 - 10 * beta[known])
    island = tree_of(block(50 - 10 * beta[:-1], end=40.0))
    (line,) = drawn(schedule_target(plot_schedule(island, backend="none"), "energy_mean"), "line")
    np.testing.assert_allclose(line["y"], 50 - 10 * beta)


def test_schedule_draws_sizes_of_accumulated_weights_for_paths_only():
    """Forward paths have theirs at the end of a stage, reverse paths at its beginning."""
    share = np.linspace(0.9, 0.5, 5)

    def block(path_ess):
        ones = np.ones(5)
        return BlockRecord(0, np.ones(2), StageTrace(ones, ones, share, ones, path_ess))

    collection = plot_schedule(tree_of(block(share**2), block(share[::-1] ** 2)), backend="none")
    target = schedule_target(collection, "path_ess")
    assert drawn(target, "title")[0]["string"] == "ESS of all steps so far"
    places = (range(1, 6), range(5))
    for line, stages, sizes in zip(
        drawn(target, "line"), places, (share**2, share[::-1] ** 2), strict=True
    ):
        known = np.isfinite(line["y"])
        assert np.asarray(line["x"])[known].tolist() == list(stages)
        np.testing.assert_allclose(line["y"][known], sizes)
    for same in (share, np.full(5, np.nan)):
        islands = plot_schedule(tree_of(block(same)), backend="none")
        assert "path_ess" not in islands.data


def test_schedule_tells_directions_and_models_apart():
    runs = {"a": make_tree(3), "b": make_tree(6), "c": make_tree(4, reverse=False)}
    collection = plot_schedule(runs, backend="none")
    lines = drawn(schedule_target(collection, "ess"), "line")
    assert len(lines) == 5  # c has no reverse run
    assert len({line["color"] for line in lines}) == 3
    assert len({line["linestyle"] for line in lines}) == 2
    known = [np.isfinite(line["y"]).sum() for line in lines]
    assert known == [3, 3, 6, 6, 4]


def test_schedule_of_one_stage_shows_points():
    target = schedule_target(plot_schedule(make_tree(1, reverse=False), backend="none"), "ess")
    assert len(drawn(target, "scatter")) == 1
    many = schedule_target(plot_schedule(make_tree(60), backend="none"), "ess")
    assert not drawn(many, "scatter")


def test_schedule_puts_a_wide_range_of_energies_on_a_logarithmic_axis():
    wide = np.array([np.inf, 1e6, 500.0, 40.0, 30.0])
    for energy, scales in ((wide, ["log"]), (wide - 100.0, []), (None, [])):
        collection = plot_schedule(make_tree(energy=energy), backend="none")
        target = schedule_target(collection, "energy_mean")
        assert [element["scale"] for element in drawn(target, "yscale")] == scales


def test_schedule_in_matplotlib_has_one_legend_per_distinction(tmp_path):
    runs = {"pooled": make_tree(), "hierarchical": make_tree(8)}
    collection = plot_schedule(runs, backend="matplotlib", figure_kwargs={"figsize": (9, 6)})
    collection.savefig(tmp_path / "schedule.png")
    assert (tmp_path / "schedule.png").stat().st_size > 5000
    figure = collection.get_viz("figure")
    assert figure.get_size_inches().tolist() == [9.0, 6.0]
    entries = [[text.get_text() for text in legend.get_texts()] for legend in figure.legends]
    assert entries == [["pooled", "hierarchical"], ["forward", "reverse"]]
    texts = [axis.label for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)]
    texts += [axes.title for axes in figure.axes]
    texts += [text for legend in figure.legends for text in legend.get_texts()]
    assert_texts_fit(figure, texts)
    assert (
        not plot_schedule(make_tree(reverse=False), backend="matplotlib").get_viz("figure").legends
    )


def test_a_part_of_a_stored_result():
    """Reverse paths can be drawn alone; shares that are texts are refused by name."""
    tree = make_tree()
    annealing = tree["annealing"].to_dataset()
    tree["annealing"] = xr.DataTree(annealing.isel(direction=slice(1, None)))
    target = schedule_target(plot_schedule(tree, backend="none"), "ess")
    assert len(drawn(target, "line")) == 1
    shape = annealing["ess"].shape
    texts = annealing.assign(path_ess=(("direction", "stage"), np.full(shape, "a")))
    tree["annealing"] = xr.DataTree(texts)
    with pytest.raises(ValueError, match=r"^dt must hold numbers .* as 'path_ess'"):
        plot_schedule(tree, backend="none")


def test_schedule_refuses_what_it_cannot_draw():
    with pytest.raises(ValueError, match=r"dt must have the group 'annealing', got the groups"):
        plot_schedule(xr.DataTree(), backend="none")
    with pytest.raises(ValueError, match=r"dt\['b'\] must have the group 'annealing'"):
        plot_schedule({"a": make_tree(), "b": xr.DataTree()}, backend="none")
    with pytest.raises(TypeError, match=r"dt\['b'\] must be an xarray\.DataTree, got int"):
        plot_schedule({"a": make_tree(), "b": 1}, backend="none")
    with pytest.raises(TypeError, match="dt must be a DataTree or a mapping with one or more"):
        plot_schedule({}, backend="none")
    with pytest.raises(ValueError, match=r"got \['lines'\]; rename"):
        plot_schedule(make_tree(), backend="none", visuals={"lines": False})
