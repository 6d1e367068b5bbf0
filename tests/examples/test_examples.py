"""The examples: their models have the evidences that they print, and their scripts run.

Estimates are held to 4 standard errors of the exact value. The seeds are fixed; over seeds, 16
islands (15 degrees of freedom) would fail a right estimate in about one of 900 cases. With few
draws it is more: the evidences of small islands are skewed.
"""

import numpy as np
import pytest
from real_data import radiata_pine as load_pine
from scipy.stats import gamma, norm

import pm_evidence as pe
from examples import eight_schools, radiata_pine
from tests.systems.exact import exact_systems

# Friel and Wyse (2012), and the closed form.
PINE_EXACT = {"x": -310.12829, "z": -301.70460}
MCSES = 4.0
SEED = 1


def off_by(estimate, exact):
    """Return the error in standard errors."""
    assert estimate.status == "ok"
    assert 0 < estimate.mcse < 0.3
    return abs(estimate.value - exact) / estimate.mcse


def test_the_exact_values_of_the_demo_are_right():
    systems = exact_systems()
    schools = "eight_schools"
    no_pooling = norm.logpdf(eight_schools.Y, 0, np.hypot(eight_schools.SIGMA, 25.0)).sum()
    exact = {
        "complete pooling": systems[f"{schools}_pooled"].log_evidence,
        "half-normal": systems[f"{schools}_half_normal_centred"].log_evidence,
        "half-Cauchy": systems[f"{schools}_half_cauchy_centred"].log_evidence,
        "no pooling": no_pooling,
    }
    assert exact == pytest.approx(eight_schools.EXACT, abs=6e-5)


def log_joint(model, rows):
    """Log densities of a model, without Jacobians, at rows of standard normal numbers."""
    logp, found = model.compile_logp(jacobian=False), []
    shapes = {
        var.name: np.shape(value)
        for var, value in zip(model.value_vars, model.initial_point().values(), strict=True)
    }
    for row in rows:
        point, start = {}, 0
        for name, shape in shapes.items():
            stop = start + int(np.prod(shape))
            point[name], start = row[start:stop].reshape(shape), stop
        found.append(float(logp(point)))
    return np.array(found)


def test_models_of_the_demo_are_the_systems_of_these_values():
    """Their joint densities are equal, so that their evidences are.

    Up to the rounding of logs of literals, which PyTensor takes in single precision.
    """
    systems, rows = exact_systems(), np.random.default_rng(1).normal(size=(5, 10))
    for name, system in (
        ("complete pooling", "pooled"),
        ("half-normal", "half_normal_centred"),
        ("half-Cauchy", "half_cauchy_centred"),
    ):
        found = log_joint(eight_schools.MODELS[name](), rows)
        same = log_joint(systems[f"eight_schools_{system}"].build(), rows)
        np.testing.assert_allclose(found, same, rtol=0, atol=1e-6, err_msg=name)
    theta = rows[:, :8]
    expected = norm.logpdf(theta, 0, 25) + norm.logpdf(eight_schools.Y, theta, eight_schools.SIGMA)
    found = log_joint(eight_schools.no_pooling(), theta)
    np.testing.assert_allclose(found, expected.sum(axis=1), rtol=0, atol=1e-6)


def test_a_run_of_the_demo_tells_its_models_apart():
    dt = pe.sample_evidence(
        eight_schools.half_cauchy(), draws=500, random_seed=SEED, progressbar=False
    )
    assert off_by(pe.log_evidence(dt), eight_schools.EXACT["half-Cauchy"]) < MCSES
    # The planted error: one model's estimate held against the value of the next.
    assert off_by(pe.log_evidence(dt), eight_schools.EXACT["half-normal"]) > MCSES


@pytest.mark.parametrize("name", PINE_EXACT)
def test_the_closed_form_gives_the_published_evidence(data_folder, name):
    pine = load_pine(data_folder)
    exact = radiata_pine.exact_log_evidence(pine["y"], pine[name])
    assert exact == pytest.approx(PINE_EXACT[name], abs=6e-6)


def test_the_regression_is_that_of_the_closed_form(data_folder):
    """Its joint density against SciPy's."""
    pine = load_pine(data_folder)
    y, x = pine["y"].to_numpy(), (pine["x"] - pine["x"].mean()).to_numpy()
    rows = np.random.default_rng(1).normal([-11.0, 3000.0, 180.0], [0.5, 100.0, 10.0], (5, 3))
    expected = []
    for log_tau, alpha, beta in rows:
        tau = np.exp(log_tau)
        sd = (np.append(radiata_pine.PRIOR_PRECISION, 1.0) * tau) ** -0.5
        coefficients = norm.logpdf([alpha, beta], radiata_pine.PRIOR_MEAN, sd[:2]).sum()
        prior = gamma.logpdf(tau, radiata_pine.SHAPE, scale=1.0 / radiata_pine.RATE)
        expected.append(prior + coefficients + norm.logpdf(y, alpha + beta * x, sd[2]).sum())
    found = log_joint(radiata_pine.regression(pine["y"], pine["x"]), rows)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", PINE_EXACT)
def test_regressions_have_their_exact_evidence(data_folder, name):
    pine = load_pine(data_folder)
    model = radiata_pine.regression(pine["y"], pine[name])
    dt = pe.sample_evidence(model, draws=500, random_seed=SEED, progressbar=False)
    assert off_by(pe.log_evidence(dt), PINE_EXACT[name]) < MCSES


def test_without_data_the_pine_example_says_what_it_needs(monkeypatch):
    monkeypatch.delenv("PM_EVIDENCE_DATA", raising=False)
    with pytest.raises(SystemExit, match=r"needs real data.*PM_EVIDENCE_DATA"):
        radiata_pine.main()


@pytest.mark.slow
def test_the_demo_prints_its_tables_and_writes_its_plot(tmp_path, capsys):
    table = eight_schools.main(tmp_path)
    printed = capsys.readouterr().out
    assert list(table.index) == ["complete pooling", "half-normal", "half-Cauchy", "no pooling"]
    assert (table["status"] == "ok").all()
    for name, exact in eight_schools.EXACT.items():
        assert f"{exact:.4f}" in printed
        assert abs(table.loc[name, "log_evidence"] - exact) < MCSES * table.loc[name, "mcse"]
    path = str(tmp_path)
    assert max(len(line.replace(path, "")) for line in printed.splitlines()) <= 100
    assert (tmp_path / "eight_schools.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_the_pine_example_finds_the_better_density(data_folder, capsys):
    table = radiata_pine.main(data_folder)
    printed = capsys.readouterr().out
    assert table.index[0] == "z"
    assert "very strong evidence for the first model" in printed
    assert max(map(len, printed.splitlines())) <= 100
