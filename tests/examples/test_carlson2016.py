"""Carlson et al. (2016): procedures are right, and the page shows the files."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import pm_evidence as pe
from examples.papers.carlson2016 import (
    algorithm1,
    figure1,
    figure2,
    figure3,
    figure4,
    machines,
    page,
)
from examples.papers.carlson2016 import tracking as script
from pm_evidence.testing import exact_log_z, sine_rbm

# --- Figures 1 to 4 ---


ROOT = Path(__file__).resolve().parents[2]
BETA = np.linspace(0.0, 1.0, 12)


@pytest.fixture(scope="module")
def small():
    """A machine of 16 x 12 units, and its exact log Z."""
    parameters = sine_rbm(16, 12)
    base = 0.2 + 0.6 * np.random.default_rng(1).random(16)
    return pe.rbm.RBM(*parameters, base=base), exact_log_z(*parameters)


def all_states(n):
    return (np.arange(2**n)[:, None] >> np.arange(n)) & 1


def test_hidden_units_are_summed_out_as_by_enumeration():
    """Temperatures that were drawn with other densities would have other shares than Eq. 7 says."""
    rbm = pe.rbm.RBM(*sine_rbm(6, 4), base=np.full(6, 0.3))
    chains = algorithm1.new_chains(rbm, BETA, 5, [1])
    visible = chains.state.to_draws()[:, :6]
    hidden = all_states(4)
    energy = np.array([rbm.joint_energy(np.tile(v, (len(hidden), 1)), hidden) for v in visible])
    reference = visible @ rbm.base_bias[:6] - np.logaddexp(0.0, rbm.base_bias[:6]).sum()
    found = algorithm1.hidden_summed_out(chains)
    for k, beta in enumerate(BETA):
        # log sum over h of (p1(v) 2^-4)^(1 - beta) exp(-beta E), less that at beta = 0
        terms = np.exp(-beta * energy + (1.0 - beta) * (reference[:, None] - 4 * np.log(2.0)))
        wanted = np.log(terms.sum(axis=1)) - reference
        np.testing.assert_allclose(found[:, k], wanted, atol=1e-6)


def test_log_densities_of_both_layers_are_those_of_the_path(small):
    chains = algorithm1.new_chains(small[0], BETA, 7, [1])
    found = algorithm1.both_layers(chains)
    for k, beta in enumerate(BETA):
        wanted = chains.path.log_ratio(chains.state, 0.0, beta)
        np.testing.assert_allclose(found[:, k], wanted, atol=1e-9)


@pytest.mark.parametrize("variant", [v for v in figure1.VARIANTS if v != "stochastic_mbar"])
def test_initial_iterations_find_log_z(small, variant):
    """Twelve iterations of 40 sweeps of 100 chains; a wrong density is off by nats."""
    rbm, exact = small
    chains = algorithm1.new_chains(rbm, BETA, 100, [1])
    rng = np.random.default_rng(1)
    options = figure1.VARIANTS[variant]
    found = list(algorithm1.initial_iterations(chains, rng, 12, 40, **options))
    assert len(found) == 12 and found[0].deviation > found[-1].deviation
    assert abs(found[-1].log_z[-1] - exact) < 0.3
    np.testing.assert_allclose(np.exp([each.log_share for each in found]).sum(axis=1), 1.0)
    curve = figure1.exact_curve(rbm, BETA)
    assert curve[0] == pytest.approx(0.0, abs=1e-9) and curve[-1] == pytest.approx(exact)
    np.testing.assert_allclose(found[-1].log_z, curve, atol=0.3)


def test_steps_of_stochastic_mbar_need_a_start_nearby(small):
    """The paper's finding on Eq. 19: from zeros it is nats off, where Eq. 12 is right."""
    rbm, exact = small
    curve, options = figure1.exact_curve(rbm, BETA), figure1.VARIANTS["stochastic_mbar"]
    for start, near in ((curve + 0.5 * BETA, True), (np.zeros(len(BETA)), False)):
        chains = algorithm1.new_chains(rbm, BETA, 100, [1])
        rng = np.random.default_rng(1)
        *_, last = algorithm1.initial_iterations(chains, rng, 12, 40, log_z=start, **options)
        assert (abs(last.log_z[-1] - exact) < 0.3) == near


def test_a_long_run_gives_log_z(small):
    """Within 5 standard errors: a false alarm in 1e5 seeds."""
    rbm, exact = small
    chains, log_z, n_sweeps = algorithm1.annealed_chains(rbm, BETA, 60, [1])
    assert n_sweeps == 2 * 11 and np.bincount(chains.rung).tolist() == [5] * 12
    assert abs(log_z[-1] - exact) < 1.5
    energy, rung = algorithm1.long_run(chains, log_z, 400, np.random.default_rng(1))
    found = pe.estimators.rts(BETA, energy, log_z)
    assert found.status == "ok" and found.mcse < 0.05
    assert abs(found.value - exact) < 5.0 * found.mcse
    log_p = -np.multiply.outer(energy.ravel(), BETA) - log_z
    share = np.exp(log_p - np.logaddexp.reduce(log_p, axis=1)[:, None]).mean(axis=0)
    np.testing.assert_allclose(np.bincount(rung.ravel()) / rung.size, share, atol=0.03)


def test_machines_are_trained_once(tmp_path, data_folder):
    rbm = machines.machine("cd1_10", tmp_path, quick=True, data=data_folder)
    assert rbm.W.shape == (784, 10) and rbm.base == "data"
    written = (tmp_path / "cd1_10_quick.npz").stat().st_mtime_ns
    again = machines.machine("cd1_10", tmp_path, quick=True, data=data_folder)
    np.testing.assert_array_equal(again.W, rbm.W)
    assert (tmp_path / "cd1_10_quick.npz").stat().st_mtime_ns == written
    assert machines.test_images(3, data_folder).shape == (3, 784)


def test_figure_1_in_its_quick_mode(tmp_path, data_folder, capsys):
    figure1.main([str(tmp_path), "--quick", "--data", str(data_folder)])
    table = pd.read_csv(tmp_path / "carlson2016_figure1.csv")
    assert list(table) == list(pd.read_csv(page.TABLES / "carlson2016_figure1.csv"))
    assert set(table.variant) == set(figure1.VARIANTS) and table.k.max() == 20
    assert "exact log Z" in capsys.readouterr().out
    assert page.of_iterations(table).count("\n") == 1 + figure1.N_ITERATIONS


@pytest.mark.slow
def test_figure_2_in_its_quick_mode(tmp_path, capsys):
    """MBAR and RTS find that log Z is 0; the Riemann sum with ten temperatures is nats off."""
    figure2.main([str(tmp_path), "--quick"])
    table = pd.read_csv(tmp_path / "carlson2016_figure2.csv")
    assert list(table) == list(pd.read_csv(page.TABLES / "carlson2016_figure2.csv"))
    last = table[table.n_samples == 4000].set_index("estimator").rmse
    assert last[["RTS", "MBAR"]].max() < 0.5 < 1.0 < last["TI Riemann"]
    printed = capsys.readouterr().out
    figure2.main([str(tmp_path), "--quick"])  # from the files
    assert capsys.readouterr().out == printed


def test_the_estimators_of_figure_2_agree_on_many_temperatures():
    """Exact states of a Gaussian at 40 temperatures: all rules are right to 0.1 nats."""
    rng, beta = np.random.default_rng(1), np.linspace(0.0, 1.0, 40)
    log_z = -0.5 * np.log(1.0 + 9.0 * beta)
    rung = rng.integers(40, size=(400, figure2.N_CHAINS))
    energy = 4.5 * rng.normal(size=rung.shape) ** 2 / (1.0 + 9.0 * beta[rung])
    found = {"beta": beta, "energy": energy, "rung": rung, "log_z": log_z}
    for name, value in figure2.estimates(found, 400 * figure2.N_CHAINS).items():
        assert abs(value - log_z[-1]) < 0.1, name


@pytest.mark.slow
def test_figure_3_in_its_quick_mode(tmp_path, data_folder, capsys):
    """AIS, RAISE and RTS agree on a machine that is hardly trained; runs are made once."""
    arguments = [str(tmp_path), "--quick", "--data", str(data_folder)]
    figure3.main(arguments)
    table = pd.read_csv(tmp_path / "carlson2016_figure3.csv")
    assert list(table) == list(pd.read_csv(page.TABLES / "carlson2016_figure3.csv"))
    assert set(table.method) == {"ais", "raise", "rts", "rts_all"}
    far = table.machine.str.endswith("uniform")  # from the machine: short runs do not suffice
    assert (table.truth_error < 0.1).all() and (table.rmse[~far] < 0.2).all()
    assert set(table.method[far]) == {"ais", "rts", "rts_all"} and (table.rmse[far] < 4.0).all()
    printed = capsys.readouterr().out.splitlines()
    figure3.main(arguments)
    again = capsys.readouterr().out.splitlines()
    assert again == [line for line in printed if not line.startswith("figure3_")]


@pytest.mark.slow
def test_figure_4_in_its_quick_mode(tmp_path, data_folder):
    figure4.main([str(tmp_path), "--quick", "--data", str(data_folder)])
    table = pd.read_csv(tmp_path / "carlson2016_figure4.csv")
    assert list(table) == list(pd.read_csv(page.TABLES / "carlson2016_figure4.csv"))
    assert set(table.n_temperatures) == set(figure4.QUICK.n_temperatures)
    assert np.ptp(table.whole) < 0.5  # both numbers of temperatures give the same log Z
    rmse = table.set_index(["n_temperatures", "estimator"]).rmse
    assert rmse[100, "RTS"] < rmse[100, "TS"]


@pytest.fixture(scope="module")
def tables():
    """The tables of all figures of the page, by number."""
    return page.tables()


def test_the_page_shows_the_stored_tables(tables):
    """Tables in docs/carlson2016.md are those of the files beside its figures, all five of them."""
    assert sorted(tables) == [1, 2, 3, 4, 5]
    text = (ROOT / "docs" / "carlson2016.md").read_text(encoding="utf-8")
    iterations, *others = page.texts(tables)
    rows = iterations.splitlines()
    for row in (rows[0], *(rows[1 + i] for i in (1, 2, 4, 6, 8, 10, 12))):
        assert row in text
    assert len(others) == 7  # Figure 3 has two machines, with two references each
    for table in others:
        assert table in text
    for number in tables:
        name = f"carlson2016_figure{number}.png"
        assert f"](figures/{name})" in text and (page.TABLES / name).stat().st_size > 10_000


def test_all_figures_are_drawn(tables, tmp_path):
    files = page.draw(tables, tmp_path)
    assert [file.name for file in files] == [f"carlson2016_figure{n}.png" for n in range(1, 6)]
    assert all(file.stat().st_size > 10_000 for file in files)


def test_what_the_page_says_follows_from_the_tables(tables):
    """The statements on Figures 3 to 5, which are written by hand beside the tables."""
    methods = tables[3].set_index(["machine", "method", "sweeps"]).sort_index()
    for machine in page.MACHINES:
        rmse = methods.rmse[machine]
        assert all(rmse["rts", n] < rmse["ais", n] for n in (5000, 10_000))
        assert (methods.bias[machine, "raise"] > 0.0).all()  # log Z too high
    by_size = tables[4].set_index(["estimator", "n_temperatures"]).rmse
    growth = {name: by_size[name, 1000] / by_size[name, 100] for name in ("RTS", "TS", "TI")}
    assert growth["RTS"] < 1.1 and growth["TI"] < 1.1 and growth["TS"] > 2.5
    assert by_size["TI", 1000] > 3.0 * by_size["TI-RB", 1000]
    checked = tables[5].dropna()
    error = np.hypot(checked.mcse, checked.ais_mcse)
    assert len(checked) == 7 and (np.abs(checked.log_z - checked.ais) < 4.0 * error).all()


# --- Figure 5 ---


def test_rows_are_divided_without_overlap(data_folder):
    train, validation, test = script.split(data_folder)
    assert (train.shape, validation.shape, test.shape) == ((1400, 180), (600, 180), (1186, 180))
    both, given = np.vstack([train, validation]), script.dna(data_folder)[0]
    order, original = (np.lexsort(rows.T) for rows in (both, given))
    np.testing.assert_array_equal(both[order], given[original])


@pytest.mark.slow
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
    assert list(points) == list(pd.read_csv(page.TABLES / "carlson2016_figure5.csv"))
    table = points.dropna()
    np.testing.assert_array_equal(table["update"], [0, 20, 40])
    assert page.of_tracking(points).count("\n") == 4
    assert np.abs(table["log_z"] - table["ais"]).max() < 0.3
    difference = (table["train"] - table["ais_train"]) + (table["log_z"] - table["ais"])
    assert np.abs(difference).max() == pytest.approx(0.0, abs=1e-6)
    assert stored["validation"].max() == stored["validation"][stored["update"] == stored["best"]]
