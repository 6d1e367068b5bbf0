"""The machines of Kiwaki (2015): the script trains and saves them, and what it prints is right."""

import numpy as np
import pytest

import pm_evidence as pe
from examples.papers.kiwaki2015 import train as script
from pm_evidence.testing import exact_log_z, sine_rbm


def test_settings_are_those_of_the_paper():
    """Two sizes, each trained in three ways; 250,000 updates of CD1 and PCD with 20 units."""
    kinds = {
        (n_hidden, options.get("algorithm", "cd"), options.get("steps", 1))
        for n_hidden, options in script.SETTINGS.values()
    }
    trainings = (("pcd", 1), ("cd", 1), ("cd", 25))
    assert kinds == {(n, *training) for n in (20, 500) for training in trainings}
    for name in ("pcd20", "cd1_20"):
        assert script.SETTINGS[name][1]["n_updates"] == 250_000
        assert "linear_decay" not in script.SETTINGS[name][1]


def test_base_rate_is_the_likelihood_of_independent_pixels():
    train = np.array([[0, 1], [0, 1], [1, 1]], np.uint8)
    p = np.array([1.5, 3.5]) / 4.0
    wanted = np.log([1 - p[0], p[0]]).mean() + np.log(p[1])
    assert script.base_rate(train, np.array([[0, 1], [1, 1]])) == pytest.approx(wanted)


def test_exact_figures_are_for_small_machines_only():
    rbm = pe.train_rbm([[0, 1], [1, 0]], 2, n_updates=1, random_seed=1, progressbar=False)
    log_z, mean = script.exact_figures(rbm, np.array([[0, 1], [0, 0], [1, 1], [1, 0]]))
    assert log_z == pytest.approx(exact_log_z(rbm.W, rbm.visible_bias, rbm.hidden_bias))
    assert mean == pytest.approx(-2.0 * np.log(2.0), abs=1e-3)
    large = type(rbm)(*sine_rbm(30, 30))
    assert np.isnan(script.exact_figures(large, np.zeros((1, 30)))).all()


def test_script_saves_what_it_prints(data_folder, tmp_path, capsys):
    """Quick, and with one machine: the others take the same way."""
    table = script.main(tmp_path / "rbms", quick=True, names=("cd1_20",), folder=data_folder)
    assert list(table.index) == ["cd1_20"]
    with np.load(tmp_path / "rbms" / "cd1_20.npz") as saved:
        parameters = [saved[name] for name in ("W", "visible_bias", "hidden_bias")]
    assert [x.shape for x in parameters] == [(784, 20), (784,), (20,)]
    assert table["log_z"]["cd1_20"] == pytest.approx(exact_log_z(*parameters), abs=1e-9)
    # 500 updates are better than independent pixels
    assert -205.85 < table["test_log_likelihood"]["cd1_20"] < -150.0
    out = capsys.readouterr().out
    assert "independent pixels: -205.85 nats" in out and "cd1_20: trained in" in out


@pytest.mark.slow
def test_persistent_chains_learn_mnist(data_folder):
    """20 units reach -140 nats per test digit; a wrong gradient stays at -206, or falls below."""
    train, test = script.mnist(data_folder)
    rbm = pe.train_rbm(
        train,
        20,
        algorithm="pcd",
        n_updates=15_000,
        learning_rate=0.02,
        random_seed=1,
        progressbar=False,
    )
    assert script.exact_figures(rbm, test)[1] > -142.0
