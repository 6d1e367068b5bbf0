"""Hidden states and random effects given all data, against closed forms."""

import json

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pm_evidence as pe

Y = np.array([0.3, 1.2, 0.7, 2.1, 2.6, 2.0])
NOISE = 0.5
GRID = np.linspace(0.005, 6.0, 1200)


def walk():
    with pm.Model() as model:
        step = pm.HalfNormal("step", 1.0)
        pe.StateSpace(
            "y",
            init=lambda: pm.Normal.dist(0.0, 1.0),
            transition=lambda level, t: pm.Normal.dist(level, step),
            emission=lambda level, t: pm.Normal.dist(level, NOISE),
            observed=Y,
        )
    return model


def exact_walk():
    """Mean and standard deviation of every level, by quadrature over the step."""
    earlier = np.minimum.outer(np.arange(len(Y)), np.arange(len(Y)))
    log_weight, means, squares = [], [], []
    for step in GRID:
        prior = 1.0 + step**2 * earlier
        covariance = prior + NOISE**2 * np.eye(len(Y))
        gain = np.linalg.solve(covariance, prior).T
        mean = gain @ Y
        means.append(mean)
        squares.append(mean**2 + np.diag(prior - gain @ prior))
        distance = Y @ np.linalg.solve(covariance, Y)
        log_weight.append(-0.5 * (np.linalg.slogdet(covariance)[1] + distance + step**2))
    weight = np.exp(np.array(log_weight) - max(log_weight))
    mean, square = (np.average(rows, axis=0, weights=weight) for rows in (means, squares))
    return mean, np.sqrt(square - mean**2)


def test_states_of_a_random_walk():
    model = walk()
    dt = pe.sample_evidence(model, draws=4000, target_mcse=None, random_seed=1, progressbar=False)
    latent = pe.sample_latent(dt, model, draws=3000, random_seed=2)
    assert latent["y_states"].dims == ("chain", "draw", "y_time")
    states = latent["y_states"].values[0]
    mean, deviation = exact_walk()
    # posterior draws are correlated: a third of them counts as independent
    assert (np.abs(states.mean(axis=0) - mean) < 5.0 * deviation / np.sqrt(1000)).all()
    np.testing.assert_allclose(states.std(axis=0), deviation, rtol=0.1)


def test_effects_of_groups():
    """Normal groups: the effect given all else is normal."""
    rng = np.random.default_rng(3)
    groups = np.repeat([10, 20, 30, 40], 6)
    y = rng.normal(np.repeat([0.5, -1.0, 0.0, 1.5], 6), 1.0)
    with pm.Model():
        spread = pm.HalfNormal("spread", 1.0)
        pe.RandomEffects(
            "y",
            effects=lambda: pm.Normal.dist(0.0, spread),
            emission=lambda u, i: pm.Normal.dist(u, 1.0),
            groups=groups,
            observed=y,
        )
        dt = pe.sample_evidence(draws=4000, target_mcse=None, random_seed=1, progressbar=False)
        latent = pe.sample_latent(dt, draws=3000, random_seed=2)
    assert list(latent["y_group"].values) == [10, 20, 30, 40]
    effects, variance = latent["y_effects"].values[0], latent["spread"].values[0] ** 2
    share = 6.0 * variance / (6.0 * variance + 1.0)
    for k, group in enumerate((10, 20, 30, 40)):
        centred = (effects[:, k] - share * y[groups == group].mean()) / np.sqrt(share / 6.0)
        assert abs(centred.mean()) < 5.0 / np.sqrt(1000)
        assert centred.std() == pytest.approx(1.0, abs=0.1)


def test_words_may_be_many():
    """With words renewed in part there are many for each draw."""
    model = walk()
    method = pe.AISEL(renewal=0.3)
    dt = pe.sample_evidence(model, method=method, random_seed=1, progressbar=False)
    latent = pe.sample_latent(dt, model, draws=20, random_seed=2)
    assert np.isfinite(latent["y_states"].values).all()


def test_models_without_an_estimate_are_refused():
    with pm.Model() as plain:
        mu = pm.Normal("mu")
        pm.Normal("y", mu, 1.0, observed=[0.1, 0.2])
        dt = pe.sample_evidence(draws=50, target_mcse=None, random_seed=1, progressbar=False)
    for model in (plain, walk()):
        with pytest.raises(ValueError, match="dt must hold estimates of the likelihood"):
            pe.sample_latent(dt, model)


def test_results_that_are_not_whole_are_refused():
    """Estimators would read as many words as the model says, and not as many as there are."""
    model = walk()
    dt = pe.sample_evidence(model, draws=50, target_mcse=None, random_seed=1, progressbar=False)
    stats, facts = dt["sample_stats"].to_dataset(), dt["log_evidence"].attrs
    words = next(name for name in stats if "word" in name)
    cases = [
        ({"sample_stats": stats.isel(draw=slice(5))}, f"dt must hold 1 whole numbers .*'{words}'"),
        ({"sample_stats": stats.drop_vars(words)}, "dt must hold estimates of the likelihood"),
        ({"posterior": dt["posterior"].to_dataset() * np.nan}, "dt must lie inside the support"),
        ({"posterior": dt["posterior"].to_dataset().isel(draw=slice(0))}, "dt must hold draws"),
    ]
    for groups, message in cases:
        broken = dt.copy()
        for name, group in groups.items():
            broken[name] = xr.DataTree(group)
        with pytest.raises(ValueError, match=message):
            pe.sample_latent(broken, model)
    for value in ("x", "[]", "[1, 2]", json.dumps([10**13]), "[-1]"):
        broken = dt.copy()
        broken["log_evidence"].attrs = {**facts, "n_particles": value}
        with pytest.raises(
            ValueError, match=r"n_particles.* in dt must|dt must hold 'n_particles'"
        ):
            pe.sample_latent(broken, model)
