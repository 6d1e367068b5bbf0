"""State-space models whose data are added in time: exact values on the way, and refusals."""

import pickle
from functools import cache

import numpy as np
import pymc as pm
import pytest
from scipy.special import logsumexp

import pm_evidence as pe
from pm_evidence.targets.estimated.target import EstimatedTarget, FilteredParticles, times_target
from pm_evidence.targets.model.cache import target_of
from tests.api.refusals import check_refusals

N_TIMES, NOISE = 12, 0.5
Y = np.random.default_rng(3).normal(0.0, 0.6, N_TIMES).cumsum()
Y[5] = np.nan


def add_walk(y=Y, **options):
    step = pm.HalfNormal("step", 1.0)
    return pe.StateSpace(
        "y",
        init=lambda: pm.Normal.dist(0.0, 1.0),
        transition=lambda level, t: pm.Normal.dist(level, step),
        emission=lambda level, t: pm.Normal.dist(level, NOISE),
        observed=y,
        **options,
    )


@cache
def walk(**options):
    with pm.Model() as model:
        add_walk(**options)
    return model


@cache
def run(seed, draws=300, **options):
    path = pe.paths.DataPoints(batches=1)
    quiet = {"target_mcse": None, "progressbar": False, "cores": 1}
    model = walk(**options)
    return pe.sample_evidence(
        model, method="resample_move", draws=draws, path=path, random_seed=seed, **quiet
    )


def likelihoods(step):
    """Log likelihood of the data up to each time, by the Kalman filter, for many step sizes."""
    mean, variance, total, found = np.zeros(step.size), np.ones(step.size), 0.0, []
    for t, y in enumerate(Y):
        variance = variance + (t > 0) * step**2
        if np.isfinite(y):
            s = variance + NOISE**2
            total = total - 0.5 * (np.log(2.0 * np.pi * s) + (y - mean) ** 2 / s)
            gain = variance / s
            mean, variance = mean + gain * (y - mean), variance * (1.0 - gain)
        found.append(np.broadcast_to(total, step.shape))
    return np.array(found)


@cache
def exact():
    step = np.linspace(0.0, 6.0, 4001)
    log_weight = -0.5 * step**2 + np.log(2.0 / np.sqrt(2.0 * np.pi) * (step[1] - step[0]))
    log_weight[[0, -1]] -= np.log(2.0)
    return logsumexp(likelihoods(step) + log_weight, axis=1)


def z_of(seed, **options):
    table = pe.sequential_evidence(run(seed, **options))
    steps, value = np.diff(exact(), prepend=0.0), exact()
    known = np.isfinite(Y)  # nothing is added by a missing one
    z = (table["log_evidence"] - value) / table["mcse"]
    of_step = (table["log_predictive"] - steps)[known] / table["log_predictive_mcse"][known]
    return z.to_numpy(), of_step.to_numpy()


def test_steps_add_up_to_the_estimate():
    target = EstimatedTarget.of_model(walk(n_particles=20))
    in_time = times_target(target, None)
    seeds = target.draw_seeds(5, np.random.default_rng(1))
    x = np.linspace(-1.0, 0.5, 5)[:, None]
    whole, steps = target.estimated(x, seeds), in_time.estimated(x, seeds)
    np.testing.assert_allclose(steps.log_density, whole.log_density, rtol=1e-13)
    np.testing.assert_allclose(steps.steps[:, 5], 0.0, atol=1e-15)
    half = in_time.up_to(2.5).estimated(x, seeds).log_density[:, 1]
    expected = steps.steps[:, :2].sum(axis=1) + 0.5 * steps.steps[:, 2]
    np.testing.assert_allclose(half, expected, rtol=1e-13)
    np.testing.assert_allclose(steps.between(1.5, 2.5) + steps.between(0.0, 1.5), half, rtol=1e-13)
    assert (in_time.at(steps.to_draws()).steps == steps.steps).all()


def test_changes_and_copies_are_targets_of_their_own():
    """A target is sent to workers as its model and settings, not with addresses of machine code."""
    target = target_of(walk(n_particles=20))
    in_time = times_target(target, (6, 6)).up_to(4.0)
    more = in_time.with_settings([(40, 2)])
    assert more.settings() == ((40, 2),) and (more.time, more.batches) == (4.0, (6, 6))
    assert in_time.settings() == target.settings() == ((20, 1),)
    assert target.with_settings([(40, 2)]).settings() == ((40, 2),) != target.settings()
    sent = pickle.loads(pickle.dumps(more))
    assert (sent.settings(), sent.time, sent.batches) == (more.settings(), 4.0, (6, 6))
    assert len(pickle.dumps(more)) < 1e5
    seeds, x = more.draw_seeds(3, np.random.default_rng(1)), np.full((3, 1), -0.5)
    assert (sent.estimated(x, seeds).log_density == more.estimated(x, seeds).log_density).all()


def test_the_first_factors_are_those_of_less_data():
    """The random numbers of a time depend on its number alone."""
    less = EstimatedTarget.of_model(_shortened(7))
    seeds = less.draw_seeds(4, np.random.default_rng(2))
    x = np.linspace(-1.0, 0.5, 4)[:, None]
    in_time = times_target(EstimatedTarget.of_model(walk(n_particles=20)), None)
    up_to = in_time.up_to(7.0).estimated(x, seeds).log_density
    np.testing.assert_allclose(up_to, less.estimated(x, seeds).log_density, rtol=1e-13)


def _shortened(n):
    with pm.Model() as model:
        add_walk(Y[:n], n_particles=20)
    return model


def test_every_evidence_on_the_way():
    z, of_step = z_of(1)
    assert abs(z).max() < 4.5 and abs(of_step).max() < 4.5
    table = pe.sequential_evidence(run(1))
    assert list(table["data_point"]) == list(range(N_TIMES)) and table["mcse"].iloc[-1] < 0.3
    assert abs(table["log_predictive"].iloc[5]) < 1e-14 > table["log_predictive_mcse"].iloc[5]


@pytest.mark.slow
@pytest.mark.parametrize("filter", ["bootstrap", "auxiliary"])
def test_errors_over_many_seeds(filter):
    """Of the middle, the end, and a step; a right error fails once in a thousand seeds."""
    found = [z_of(seed, filter=filter) for seed in range(40)]
    for each in np.array([[z[6], z[-1], of_step[4]] for z, of_step in found]).T:
        assert abs(each.mean()) < 3.3 * each.std() / np.sqrt(40) and 0.6 < each.std() < 1.5


def test_the_bayes_factor_after_each_time():
    from pm_evidence.plots.models import _sequence

    data = _sequence(run(1), run(1, n_particles=50))["log_bf"]
    low, high = data.sel(plot_axis="low").values, data.sel(plot_axis="high").values
    assert ((low <= 0.0) & (high >= 0.0)).mean() > 0.8 and (high - low)[-1] < 1.0


def test_states_are_drawn():
    with walk():
        latent = pe.gp.sample_latent(run(1), draws=20, random_seed=1)
    assert latent["y_states"].shape == (1, 20, N_TIMES)
    assert abs(latent["y_states"].mean(("chain", "draw")) - Y)[[0, 11]].max() < 1.5


def test_what_is_impossible_stays_so():
    """A particle that cannot explain a time has no weight after it, and its weight until then."""
    steps = np.array([[-1.0, -np.inf, -np.inf], [-1.0, -2.0, -3.0]])
    particles = FilteredParticles(np.zeros((2, 1)), np.zeros((2, 2)), np.zeros((2, 1)), steps)
    assert particles.between(0.0, 1.0).tolist() == [-1.0, -1.0]
    assert particles.between(0.5, 1.5).tolist() == [-np.inf, -1.5]
    assert particles.between(1.0, 3.0).tolist() == [-np.inf, -5.0]
    assert particles.between(2.0, 2.0).tolist() == [0.0, 0.0]


@pytest.mark.slow
def test_data_that_most_draws_exclude():
    """Prior draws that cannot explain a later time count until then."""
    with pm.Model() as model:
        width = pm.Uniform("width", 0.0, 1.0)
        pe.StateSpace(
            "y",
            init=lambda: pm.Normal.dist(0.0, 1.0),
            transition=lambda level, t: pm.Normal.dist(level, 1.0),
            emission=lambda level, t: pm.Uniform.dist(0.0, width),
            observed=np.array([0.1, 0.2, 0.8]),
            n_particles=4,
        )
    path = pe.paths.DataPoints(batches=1)
    options = {"method": "resample_move", "path": path, "draws": 2000, "target_mcse": None}
    dt = pe.sample_evidence(model, random_seed=1, progressbar=False, cores=1, **options)
    table = pe.sequential_evidence(dt)
    value = np.log([-np.log(0.1), 1.0 / 0.2 - 1.0, 0.5 / 0.8**2 - 0.5])
    assert (abs(table["log_evidence"] - value) < 4.0 * table["mcse"]).all()
    assert (table["mcse"] < 0.3).all()


def test_refusals():
    with pm.Model() as two:
        add_walk()
        pm.Normal("other", 0.0, 1.0, observed=1.0)
    with pm.Model() as groups:
        sd = pm.HalfNormal("sd", 1.0)
        pe.RandomEffects(
            "y",
            effects=lambda: pm.Normal.dist(0.0, sd),
            emission=lambda effect, i: pm.Normal.dist(effect, 1.0),
            groups=np.arange(3),
            observed=np.zeros(3),
        )
    path = pe.paths.DataPoints
    alone = "or one pe.StateSpace and no other data or potentials, got 'y'"
    cases = [
        ({"target": two}, pe.ModelError, f"{alone}, 'other'"),
        ({"target": groups}, pe.ModelError, alone),
        ({"path": path(order="random")}, ValueError, "order must be that of time"),
        ({"path": path(order=[*range(N_TIMES)][::-1])}, ValueError, "order must be that of time"),
        ({"path": path(batches=[5, 5])}, ValueError, "batches must hold all 12 data points"),
    ]
    defaults = {"target": walk(), "path": "data_points"}
    for given, error, words in cases:
        check_refusals(pe.sample_evidence, [({**defaults, **given}, error, words)])
