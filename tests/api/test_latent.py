"""Hidden states and random effects given all data, against closed forms."""

import json

import numpy as np
import pytest
import xarray as xr

import pm_evidence as pe
from tests.models import GROUPS, LEVELS, shared


def sample(model, **options):
    options = {"target_mcse": None, "random_seed": 1, "progressbar": False, **options}
    return pe.sample_evidence(model, **options)


def test_states_of_a_random_walk():
    """Level and states have a joint normal distribution."""
    model = shared("states").model
    latent = pe.gp.sample_latent(sample(model, draws=4000), model, draws=3000, random_seed=2)
    assert latent["y_states"].dims == ("chain", "draw", "y_time")
    states = latent["y_states"].values[0]
    times = np.arange(1, 1 + LEVELS.size)
    prior = np.minimum.outer(times, times) + 1.0
    gain = np.linalg.solve(prior + np.eye(LEVELS.size), prior).T
    deviation = np.sqrt(np.diag(prior - gain @ prior))
    # posterior draws are correlated: a third of them counts as independent
    error = np.abs(states.mean(axis=0) - gain @ LEVELS)
    assert (error < 5.0 * deviation / np.sqrt(1000)).all()
    np.testing.assert_allclose(states.std(axis=0), deviation, rtol=0.1)


def test_effects_of_groups():
    """Normal groups: the effect given all else is normal."""
    with shared("groups").model as model:
        latent = pe.gp.sample_latent(sample(model, draws=4000), draws=3000, random_seed=2)
    assert list(latent["y_group"].values) == [0, 1, 2]
    effects, mu = latent["y_effects"].values[0], latent["mu"].values[0]
    for k, y in enumerate(GROUPS):
        centred = (effects[:, k] - 0.5 * (y - mu)) / 0.5**0.5
        assert abs(centred.mean()) < 5.0 / np.sqrt(1000)
        assert centred.std() == pytest.approx(1.0, abs=0.1)


def test_models_without_an_estimate_are_refused():
    plain = shared("normal").model
    dt = sample(plain, draws=50)
    for model in (plain, shared("states").model):
        with pytest.raises(ValueError, match="dt must hold estimates of the likelihood"):
            pe.gp.sample_latent(dt, model)


def test_results_that_are_not_whole_are_refused():
    """Estimators would read as many words as the model says, and not as many as there are."""
    model = shared("states").model
    dt = sample(model, draws=50)
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
            pe.gp.sample_latent(broken, model)
    for value in ("x", "[]", "[1, 2]", json.dumps([10**13]), "[-1]"):
        broken = dt.copy()
        broken["log_evidence"].attrs = {**facts, "n_particles": value}
        with pytest.raises(
            ValueError, match=r"n_particles.* in dt must|dt must hold 'n_particles'"
        ):
            pe.gp.sample_latent(broken, model)
