"""Plots of schedules and of tempered chains: every number that is drawn is that of the record."""

import numpy as np
import pytest
import xarray as xr

import pm_evidence as pe
from pm_evidence.core.records import BlockRecord, Facts, Role, RunRecord, StageTrace, TemperedChains
from pm_evidence.plots import plot_schedule, plot_temperatures
from pm_evidence.schedules import rejection_rates
from tests.plots.drawing import (
    assert_texts_fit,
    drawn,
    horizontal_lines,
    make_run,
    need_backend,
    stored,
)

# --- plot_schedule ---


def panel(collection, name):
    return collection.get_target(name, {})


def make_tree(n_stages=5, *, reverse=True, energy=None):
    stage, ones = np.arange(n_stages, dtype=float), np.ones(n_stages)
    mean = np.linspace(40.0, 30.0, n_stages) if energy is None else energy
    trace = StageTrace(mean, ones, 0.9 - stage / 100, 0.3 + stage / 100)
    blocks = [BlockRecord(index, np.ones(2), trace) for index in range(2)]
    return tree_of(*(blocks if reverse else blocks[:1]), power=3)


def tree_of(forward, *reverse, power=1):
    beta = np.linspace(0, 1, len(forward.trace.ess) + 1) ** power
    return stored(RunRecord("ais", beta, {Role.FORWARD: [forward], Role.REVERSE: reverse}))


def test_schedule_draws_each_quantity_against_the_stage():
    collection = plot_schedule(make_tree(reverse=False), backend="none")
    for name, label, first in (
        ("beta", "inverse temperature β", 0.0),
        ("ess", "effective sample size (share)", 0.9),
        ("acceptance", "acceptance probability", 0.3),
        ("energy_mean", "mean energy (nats)", 40.0),
    ):
        target = panel(collection, name)
        (line,) = drawn(target, "line")
        known = np.isfinite(line["y"])
        # stage k ends at k: its size and its acceptance stand there, its energy where it begins
        there = {"beta": range(6), "energy_mean": range(5)}.get(name, range(1, 6))
        assert np.asarray(line["x"])[known].tolist() == list(there)
        assert line["y"][known][0] == first
        assert drawn(target, "title")
        assert drawn(target, "ylabel")[0]["string"] == label
        assert drawn(target, "xlabel")[0]["string"] == "stage"
    beta = drawn(panel(collection, "beta"), "line")[0]
    assert beta["y"].tolist() == (np.linspace(0, 1, 6) ** 3).tolist()


def test_schedule_has_lines_for_good_and_bad():
    collection = plot_schedule(make_tree(), backend="none")
    for name, heights in (("ess", [0.5, 0.1]), ("acceptance", [0.2, 0.05]), ("beta", [])):
        target = panel(collection, name)
        assert horizontal_lines(target) == heights
        title = drawn(target, "title")[0]["string"]
        assert all(f"{height:g}" in title for height in heights)
    off = plot_schedule(make_tree(), backend="none", visuals={"good": False, "bad": False})
    assert not horizontal_lines(panel(off, "ess"))


def test_schedule_puts_energies_where_populations_were_moved():
    """In equilibrium both directions lie on one line, and islands know the end as well."""
    beta = np.linspace(0, 1, 6)

    def block(energy, end=np.nan):
        trace = StageTrace(energy, np.ones(5), np.ones(5), np.ones(5))
        return BlockRecord(0, np.ones(2), trace, end=(end, 1.0))

    there, back = block(50 - 10 * beta[:-1]), block(50 - 10 * beta[1:])
    lines = drawn(panel(plot_schedule(tree_of(there, back), backend="none"), "energy_mean"), "line")
    for line, stages in zip(lines, (range(5), range(1, 6)), strict=True):
        known = np.isfinite(line["y"])
        assert np.asarray(line["x"])[known].tolist() == list(stages)
        np.testing.assert_allclose(line["y"][known], 50 - 10 * beta[known])
    island = tree_of(block(50 - 10 * beta[:-1], end=40.0))
    (line,) = drawn(panel(plot_schedule(island, backend="none"), "energy_mean"), "line")
    np.testing.assert_allclose(line["y"], 50 - 10 * beta)


def test_schedule_draws_sizes_of_accumulated_weights_for_paths_only():
    """Forward paths have theirs at the end of a stage, reverse paths at its beginning."""
    share = np.linspace(0.9, 0.5, 5)

    def block(path_ess):
        ones = np.ones(5)
        return BlockRecord(0, np.ones(2), StageTrace(ones, ones, share, ones, path_ess))

    collection = plot_schedule(tree_of(block(share**2), block(share[::-1] ** 2)), backend="none")
    target = panel(collection, "path_ess")
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
    lines = drawn(panel(collection, "ess"), "line")
    assert len(lines) == 5  # c has no reverse run
    assert len({line["color"] for line in lines}) == 3
    assert len({line["linestyle"] for line in lines}) == 2
    known = [np.isfinite(line["y"]).sum() for line in lines]
    assert known == [3, 3, 6, 6, 4]


def test_schedule_of_one_stage_shows_points():
    target = panel(plot_schedule(make_tree(1, reverse=False), backend="none"), "ess")
    assert len(drawn(target, "scatter")) == 1
    many = panel(plot_schedule(make_tree(60), backend="none"), "ess")
    assert not drawn(many, "scatter")


def test_schedule_puts_a_wide_range_of_energies_on_a_logarithmic_axis():
    wide = np.array([np.inf, 1e6, 500.0, 40.0, 30.0])
    for energy, scales in ((wide, ["log"]), (wide - 100.0, []), (None, [])):
        collection = plot_schedule(make_tree(energy=energy), backend="none")
        target = panel(collection, "energy_mean")
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
    target = panel(plot_schedule(tree, backend="none"), "ess")
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


# --- plot_temperatures ---


BETA = np.array([0.0, 0.2, 1.0])
PANELS = ["occupation", "rejection", "barrier", "trips", "trace"]
PRIOR = [0.5, 0.25, 0.25]


def chains_of(n_ladders, size, n_iterations=4, seed=1, every=1):
    """Chains of some ladders, each with ``size`` of them."""
    rng = np.random.default_rng(seed)
    n = n_ladders * size
    rung = np.concatenate([rng.permutation(n) for _ in range(n_iterations)]) % len(BETA)
    return TemperedChains(
        rng.normal(size=(n_iterations, n)) - rung.reshape(-1, n),
        rung.reshape(-1, n).astype(np.int16),
        np.repeat(np.arange(n_ladders), size),
        rng.integers(5, size=n) + 1,
        rng.integers(5, size=n),
        every,
    )


def run_of(*chains, **info):
    """A stored run of tempering with one block for each group of chains."""
    ones = np.ones(len(BETA) - 1)
    blocks = [
        BlockRecord(i, np.ones(2), StageTrace(ones, ones, ones, ones), tempered=each)
        for i, each in enumerate(chains)
    ]
    facts = Facts(ladders=sum(len(np.unique(each.ladder)) for each in chains), **info)
    record = RunRecord("parallel_tempering", BETA, {Role.FORWARD: blocks}, facts=facts)
    return stored(record)


def values(line):
    return np.asarray(line["x"]), np.asarray(line["y"])


def test_occupation_rates_and_barrier_are_those_of_the_record():
    """A panel that drew other numbers would hide a temperature that chains cannot pass."""
    chains = chains_of(2, 3), chains_of(3, 3, 5, seed=2)
    collection = plot_temperatures(run_of(*chains), backend="none")
    assert list(collection.data) == PANELS
    energy = np.concatenate([each.energy.ravel() for each in chains])
    rung = np.concatenate([each.rung.ravel() for each in chains])
    rates = rejection_rates(BETA, energy, rung)
    wanted = {
        "occupation": ([0, 1, 2], np.bincount(rung) / rung.size),
        "rejection": ([0, 1], rates),
        "barrier": (BETA, [0.0, rates[0], rates.sum()]),
    }
    for name, (x, y) in wanted.items():
        line = drawn(panel(collection, name), "line")[-1]
        np.testing.assert_allclose(values(line), [np.asarray(x, float), y])
        np.testing.assert_allclose(values(drawn(panel(collection, name), "scatter")[0]), [x, y])
    title = drawn(panel(collection, "barrier"), "title")[0]["string"]
    assert title == f"Communication barrier: {rates.sum():.3g}"


def test_dashed_lines_are_the_prior_and_equal_rates():
    """Without its prior, simulated tempering with an exponential one would seem to fail."""
    simulated = run_of(chains_of(6, 1), tempering_prior=PRIOR, tempering_log_z=[0.0, 0.1, 0.2])
    parallel = run_of(chains_of(2, 3))
    for dt, wanted, word in ((simulated, PRIOR, "prior"), (parallel, [1 / 3] * 3, "equal shares")):
        collection = plot_temperatures(dt, backend="none")
        target = panel(collection, "occupation")
        np.testing.assert_allclose(values(drawn(target, "line")[0])[1], wanted)
        assert drawn(target, "title")[0]["string"] == f"Occupation (dashed: {word})"
        goal, rates = (values(line)[1] for line in drawn(panel(collection, "rejection"), "line"))
        np.testing.assert_allclose(goal, rates.mean())
        off = plot_temperatures(dt, backend="none", visuals={"goal": False, "point": False})
        assert len(drawn(panel(off, "occupation"), "line")) == 1
        assert not drawn(panel(off, "occupation"), "scatter")


@pytest.mark.parametrize(("size", "group"), [(3, "ladders"), (1, "chains")])
def test_trips_are_counted_by_ladder(size, group):
    """Chains of a ladder go on trips together: bars of single chains would be too low."""
    chains = [chains_of(n, size, seed=n) for n in (6, 9)]
    target = panel(plot_temperatures(run_of(*chains), backend="none"), "trips")
    (bars,) = drawn(target, "hist")
    sums = np.concatenate([each.round_trips.reshape(-1, size).sum(axis=1) for each in chains])
    edges = np.append(bars["l_e"], bars["r_e"][-1])
    np.testing.assert_array_equal(bars["y"], np.histogram(sums, edges)[0])
    assert bars["y"].sum() == 15 and (np.diff(edges) == 1.0).all()
    restarts = sum(each.restarts.sum() for each in chains)
    assert drawn(target, "title")[0]["string"] == f"{sums.sum()} round trips, {restarts} restarts"
    assert drawn(target, "ylabel")[0]["string"] == f"number of {group}"


def test_many_trips_have_few_bars_of_whole_width():
    chains = chains_of(40, 1)
    trips = np.arange(40) * 25
    chains = TemperedChains(chains.energy, chains.rung, chains.ladder, trips, trips)
    target = panel(plot_temperatures(run_of(chains), backend="none"), "trips")
    (bars,) = drawn(target, "hist")
    width = np.unique(np.asarray(bars["r_e"]) - np.asarray(bars["l_e"]))
    assert len(bars["y"]) <= 30 and width.size == 1 and width[0] == int(width[0])
    assert bars["y"].sum() == 40


def test_the_trace_is_that_of_the_chain_that_is_asked_for():
    """Chains are numbered over all blocks, and iterations as they were made."""
    chains = chains_of(2, 3), chains_of(3, 3, 5, seed=2, every=7)
    collection = plot_temperatures(run_of(*chains), chain=8, backend="none")
    (line,) = drawn(panel(collection, "trace"), "line")
    x, y = values(line)
    assert x.tolist() == [0, 7, 14, 21, 28] and y.tolist() == chains[1].rung[:, 2].tolist()
    title = drawn(panel(collection, "trace"), "title")[0]["string"]
    assert title == "Temperatures of chain 8"
    long = plot_temperatures(run_of(chains_of(1, 3, 1500)), backend="none")
    assert len(values(drawn(panel(long, "trace"), "line")[0])[0]) == 1000
    title = drawn(panel(long, "trace"), "title")[0]["string"]
    assert title == "Temperatures of chain 0, 1,000 of 1,500 iterations"


def test_a_temperature_that_was_never_visited_has_no_rates():
    """A rate of zero there would look like a perfect overlap."""
    chains = chains_of(4, 1)
    stuck = TemperedChains(
        chains.energy,
        np.minimum(chains.rung, 1).astype(np.int16),
        chains.ladder,
        0 * chains.restarts,
        0 * chains.round_trips,
    )
    collection = plot_temperatures(run_of(stuck), backend="none")
    rates = values(drawn(panel(collection, "rejection"), "line")[-1])[1]
    assert np.isfinite(rates[0]) and np.isnan(rates[1])
    assert "1 unknown" in drawn(panel(collection, "rejection"), "title")[0]["string"]
    assert np.isnan(values(drawn(panel(collection, "barrier"), "line")[-1])[1][-1])


@pytest.fixture(scope="module")
def real_runs(tmp_path_factory):
    """A run of each method, the first of them read from a file."""
    file = tmp_path_factory.mktemp("runs") / "parallel.nc"
    options = {"draws": 1200, "target_mcse": None, "random_seed": 1, "progressbar": False}
    methods = (
        pe.methods.ParallelTempering(ladders=16),
        pe.methods.SimulatedTempering(n_temperatures=20),
    )
    runs = [pe.sample_evidence(pe.mixtures.Gaussian(), method=each, **options) for each in methods]
    runs[0].to_netcdf(file)
    return xr.load_datatree(file), runs[1]


@pytest.mark.parametrize("backend", ["matplotlib", "bokeh", "plotly"])
def test_real_runs_are_drawn_by_every_backend(real_runs, backend):
    """Texts of the panels do not cover each other, and counts have whole numbers on their axis."""
    need_backend(backend)
    for dt in real_runs:
        collection = plot_temperatures(dt, backend=backend)
        assert collection.backend == backend
        if backend == "matplotlib":
            figure = collection.get_viz("figure")
            figure.draw_without_rendering()
            texts = [axis.label for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)]
            assert_texts_fit(figure, texts + [axes.title for axes in figure.axes])
            ticks = figure.axes[PANELS.index("trips")].get_yticks()
            assert (ticks == ticks.astype(int)).all()


def test_what_cannot_be_drawn_is_refused():
    """The message says how to get a result that can."""
    with pytest.raises(ValueError, match=r"got a run of method='ais'; sample with method='paral"):
        plot_temperatures(make_run(), backend="none")
    with pytest.raises(TypeError, match=r"dt must be of type DataTree, got 5; pass what sample"):
        plot_temperatures(5, backend="none")
    with pytest.raises(ValueError, match=r"dt must have the group 'log_evidence'"):
        plot_temperatures(xr.DataTree(), backend="none")
    run = run_of(chains_of(2, 3))
    with pytest.raises(ValueError, match=r"chain must be at most 5, got 6"):
        plot_temperatures(run, chain=6, backend="none")
    with pytest.raises(ValueError, match=r"chain must be a whole number of at least 0, got -1"):
        plot_temperatures(run, chain=-1, backend="none")
    with pytest.raises(ValueError, match=r"visuals must name some of \['line', .*got \['density'"):
        plot_temperatures(run, backend="none", visuals={"density": False})
    with pytest.raises(ValueError, match=r"backend must be one of 'matplotlib', .*got 'gnuplot'"):
        plot_temperatures(run, backend="gnuplot")
    with pytest.raises(TypeError, match=r"figure_kwargs must be a mapping, got 'wide'"):
        plot_temperatures(run, backend="none", figure_kwargs="wide")
