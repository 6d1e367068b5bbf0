"""The comparison of Tran et al.: exact moments, the theory where it holds, and who is robust.

Squared errors are means over some hundred repetitions at fixed seeds; bounds are wide enough for
four of their standard errors.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from examples.papers.stored import FIGURES
from examples.papers.tran_aisel import efficiency
from pm_evidence.core.contracts import Plan
from pm_evidence.samplers.aisel import tau_of
from pm_evidence.testing.systems import log_integral

# PyTensor compiles pieces in C even in FAST_COMPILE, and installed by pip it finds no BLAS to link.
pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")

NILE = -643.426185


@pytest.fixture(scope="module")
def setting():
    return efficiency.prepared(efficiency.normal_problem(), 2000, 30, 150)


@pytest.fixture(scope="module")
def table(setting):
    found = efficiency.measured(setting, levels=(1.0, 8.0))
    return found.pivot(index="sigma2", columns="way", values="relative")


# --- exact parts ---


@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
def test_normal_problem_is_drawn_exactly(beta):
    problem = efficiency.normal_problem()
    path = problem.noisy(2.0)
    state = problem.exact(path, beta, 40_000, np.random.default_rng(1))
    variance = 1.0 / (1.0 + beta / 0.01)
    noise = state.log_density[:, 1] - stats.norm.logpdf([0.5, -0.3, 0.8], state.x, 0.1).sum(axis=1)
    for values, mean, sd in (
        (state.x[:, 0], beta * 0.5 / 0.01 * variance, variance**0.5),
        (noise, -1.0 + 2.0 * beta, 2.0**0.5),
    ):
        assert abs(values.mean() - mean) < 4.5 * sd / 200
        assert values.std() == pytest.approx(sd, rel=0.02)
    if beta == 1.0:
        np.testing.assert_allclose([problem.mean[0], problem.sd[0]], [0.5 / 1.01, 1.01**-0.5 / 10])


@pytest.mark.slow
def test_nile_problem_has_its_exact_moments(data_folder):
    """The same recursion and prior give the published evidence; moments by another rule."""
    problem = efficiency.nile_problem(data_folder)
    y = problem.known.target.estimators[0].y

    def log_density(a, b):
        eps, eta = np.exp(a), np.exp(b)
        prior = stats.halfnorm.logpdf(eps, scale=200) + stats.halfnorm.logpdf(eta, scale=100)
        return prior + a + b + efficiency.kalman(y, eps, eta)

    bounds = (3.5, 6.0), (-12.0, 6.0)
    assert log_integral(log_density, *bounds, tolerance=1e-6) == pytest.approx(NILE, abs=1e-4)
    a, b = (np.linspace(*bound, 300) for bound in ((4.0, 5.5), (-8.0, 5.5)))
    p = np.exp(log_density(a[:, None], b) - NILE)
    p /= p.sum()
    np.testing.assert_allclose(problem.mean, [p.sum(1) @ a, p.sum(0) @ b], atol=0.01)
    x = np.array([[4.8, 3.6], [5.0, 3.0]])
    known = problem.known.target.estimated(x, np.zeros((2, 1), np.uint64)).log_density
    np.testing.assert_allclose(known.sum(axis=1), log_density(*x.T))
    noisy = problem.noisy(5000).target.estimated(x, np.array([[1], [2]], np.uint64)).log_density
    np.testing.assert_allclose(noisy, known, atol=1.0)


# --- theory ---


def test_importance_sampling_loses_exp_of_the_variance(table):
    assert table["is2"][1.0] == pytest.approx(np.exp(-1.0), rel=0.25)


def test_perfect_moves_lose_what_theorem_1_says(setting, table):
    tau = tau_of(setting.fine.beta)
    assert 0.02 < tau < 0.1
    for variance in (1.0, 8.0):
        assert table["perfect"][variance] == pytest.approx(np.exp(-tau * variance), rel=0.35)


def test_without_stages_between_annealing_loses_as_much(setting):
    """One stage: tau is 1. A test of robustness that this would pass could not see it."""
    one = Plan(np.array([0.0, 1.0]), (efficiency.Perfect(setting.problem.exact),))
    coarse = replace(setting, n_estimates=40_000)
    errors = []
    for path in (setting.problem.known, setting.problem.noisy(1.0)):
        means = []
        for seed in range(4):
            n = 20_000
            record = efficiency.pe.methods.AIS().run_block(path, one, 0, n, seed)
            weight = np.exp(record.log_weight - record.log_weight.max())
            means.append(weight.sum() ** 2 / (weight**2).sum() / n)
        errors.append(np.mean(means))
    assert coarse.n_estimates == 40_000
    assert errors[1] / errors[0] == pytest.approx(np.exp(-1.0), rel=0.3)


def test_independent_paths_are_the_most_robust(table):
    """Relative to their own efficiency with the likelihood known, and where noise is large."""
    assert table["paths"][8.0] > 5.0 * table["is2"][8.0]
    assert table["paths"][8.0] > 3.0 * table["pmmh"][8.0]
    assert table["islands"][8.0] > table["is2"][8.0]
    assert table["perfect"][8.0] > table["paths"][8.0]  # moves are not perfect


def test_every_way_finds_the_posterior_mean(setting):
    """With the likelihood known and with noise; a squared error of 1 is that of a single draw."""
    for path in (setting.problem.known, setting.problem.noisy(1.0)):
        for way in efficiency.WAYS:
            means = efficiency.FUNCTIONS[way](replace(setting, n_repeats=60), path, 3)
            z = (means.mean(axis=0) - setting.problem.mean) / (means.std(axis=0) / np.sqrt(60))
            bias = np.abs(means.mean(axis=0) - setting.problem.mean) / setting.problem.sd
            assert (np.abs(z) < 5.0).all() or bias.max() < 0.25, (way, z, bias)


# --- the script ---


def test_nile_has_a_row_for_every_level(data_folder):
    problem = efficiency.nile_problem(data_folder)
    setting = efficiency.prepared(problem, 200, 10, 5)
    found = efficiency.measured(setting, levels=(28,), ways=["is2", "paths"])
    assert found["n_particles"].tolist() == [1, 1, 28, 28]
    assert found["sigma2"][0] == 0.0
    assert 2.0 < found["sigma2"][2] < 8.0
    assert np.isfinite(found[["effective", "relative"]]).all(axis=None)


def test_script_prints_and_draws(tmp_path, capsys):
    tables = efficiency.main(tmp_path, quick=True, problems=("normal",))
    assert (tmp_path / "tran_efficiency.png").stat().st_size > 10_000
    out = capsys.readouterr().out
    assert "tau = 0.0" in out and "relative" in out
    assert set(tables["normal"]["way"]) == set(efficiency.WAYS)
    stored = pd.read_csv(tmp_path / "tran_efficiency.csv")
    assert list(stored) == list(pd.read_csv(FIGURES / "tran_efficiency.csv"))
    assert stored["relative"].to_numpy() == pytest.approx(
        tables["normal"]["relative"].to_numpy(), rel=1e-3
    )
    assert (stored["low"] <= stored["relative"]).all()
    assert (stored["relative"] <= stored["high"]).all()


def test_the_interval_of_a_ratio():
    """Of means of many normal squares, 15 % wide; it holds the ratio in 90 to 99 % of 200 cases."""
    rng, inside = np.random.default_rng(5), 0
    for _ in range(200):
        above, below = 3.0 * rng.chisquare(3, 60), rng.chisquare(3, 60)
        low, high = efficiency.interval_of_ratio(above, below, n=500)
        inside += low <= 3.0 <= high
    assert 0.90 <= inside / 200 <= 0.99


def test_the_page_shows_the_stored_tables():
    folder = Path(__file__).resolve().parents[2] / "docs"
    stored = pd.read_csv(folder / "figures" / "tran_efficiency.csv")
    text = (folder / "tran_aisel.md").read_text(encoding="utf-8")
    for name in ("normal", "nile"):
        assert efficiency.markdown(stored, name) in text
