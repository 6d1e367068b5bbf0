"""What a survey finds beside a population, from exact draws of the part that a run would hold."""

from dataclasses import replace
from functools import cache

import numpy as np
import pymc as pm
import pytest

from pm_evidence.core.shape import learn_shape
from pm_evidence.samplers.survey import (
    SHARE_OF_ASCENTS,
    USUAL_BUDGET,
    n_probes,
    n_scanned,
    share_of_ascents,
    survey,
)
from tests.samplers.modes import draws_of_modes, draws_of_slab, posterior_of
from tests.systems import deceptive

MODES = deceptive._MODES


def look(posterior, draws, seed, log_evidence=0.0, budget=USUAL_BUDGET):
    rng = np.random.default_rng(seed)
    return survey(posterior, learn_shape(draws), draws, draws, log_evidence, budget, rng)


def masses(found):
    return np.sort(found.log_mass)[::-1]


@cache
def modes(name):
    """The posterior of one of the systems with two modes, compiled once."""
    return posterior_of(MODES[name].build())


@cache
def normal():
    """A posterior with one mode, at half of the data and of variance 1/2."""
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("x", 0, 1, shape=4), 1, observed=np.arange(4.0))
    return posterior_of(model)


@pytest.mark.parametrize(
    "name",
    [
        "two_widths_4",
        pytest.param("two_widths_6", marks=pytest.mark.slow),
        pytest.param("near_widths_8", marks=pytest.mark.slow),
        pytest.param("far_widths_10", marks=pytest.mark.slow),
    ],
)
def test_a_narrow_mode_beside_a_wide_one(name):
    """The population holds the wide mode alone; both are found with their own masses."""
    case = MODES[name]
    posterior, exact = modes(name), case.log_evidence()
    for seed in range(5):
        draws = draws_of_modes(case, 800, np.random.default_rng(seed), shares=[0.0, 1.0])
        found = look(posterior, draws, seed)
        assert found.n_peaks == 2
        # two normals: Laplace's approximation is exact, as far as the population's scale allows
        assert np.logaddexp.reduce(found.log_mass) == pytest.approx(exact, abs=0.1)


@pytest.mark.slow
def test_a_wide_mode_beside_a_narrow_one():
    """The population holds the narrow mode alone; the wide one is seventy times as wide."""
    with pm.Model() as model:
        parts = [pm.Normal.dist(0, 0.01), pm.Normal.dist(0, 10)]
        x = pm.Mixture("x", w=[0.5, 0.5], comp_dists=parts)
        pm.Normal("y", x, 1.0, observed=[0.8, 1.2])
    posterior = posterior_of(model)
    for seed in range(5):
        draws = 0.01 * np.random.default_rng(seed).normal(size=(64, 1))
        found = look(posterior, draws, seed, budget=USUAL_BUDGET // 20)
        assert found.n_peaks == 2
        sd = [abs(part.shape.factor[0, 0]) for part in found.components]
        assert np.sort(sd) == pytest.approx([0.01, 2.01**-0.5], rel=0.01)


@pytest.mark.slow
def test_a_spike_in_a_slab():
    """It lies below the scale of the slab, whose own peak is met by every ascent."""
    case = deceptive._SPIKES["spike_20"]
    posterior = posterior_of(case.build())
    n_found = 0
    for seed in range(4):
        draws = draws_of_slab(case, 800, np.random.default_rng(seed))
        mass = masses(look(posterior, draws, seed))
        n_found += len(mass) == 2 and abs(mass[0] - np.log(100.0)) < 0.05
    assert n_found >= 3


@pytest.mark.slow
def test_a_spike_on_top_of_the_slab():
    """One peak, which is the spike's: it must not be taken for the population's own."""
    case = replace(deceptive._SPIKES["spike_20"], centre=0.0)
    draws = draws_of_slab(case, 800, np.random.default_rng(1))
    found = look(posterior_of(case.build()), draws, 1)
    assert found.n_peaks == 1
    assert found.log_mass == pytest.approx([np.log(100.0)], abs=0.05)


def test_several_modes_take_the_usual_budget():
    """However small the budget is that is given; one mode keeps to it."""
    case, small = MODES["two_widths_4"], USUAL_BUDGET // 10
    both = draws_of_modes(case, 800, np.random.default_rng(3))
    found = look(modes("two_widths_4"), both, 3, budget=small)
    assert found.n_peaks == 2 and found.n_evaluations > USUAL_BUDGET
    one = np.arange(4.0) / 2 + np.random.default_rng(3).normal(0, 0.5**0.5, (800, 4))
    found = look(normal(), one, 3, budget=small)
    assert found.n_peaks == 1 and found.n_evaluations < 2.5 * small


def test_one_peak_has_the_curvature_of_the_posterior():
    """From few draws in many dimensions the curvature is known better than the covariance."""
    draws = np.arange(4.0) / 2 + np.random.default_rng(2).normal(0, 0.5**0.5, (800, 4))
    found = look(normal(), draws, 2, log_evidence=-8.6)
    (component,) = found.components
    covariance = component.shape.factor @ component.shape.factor.T
    # no scale exceeds the population's own
    np.testing.assert_allclose(covariance, 0.5 * np.eye(4), atol=0.05)
    assert not found.unbounded


def test_a_funnel_has_a_ridge_that_ends():
    """The neck is followed, and its mass falls."""
    with pm.Model() as model:
        v = pm.Normal("v", 0, 3)
        pm.Normal("x", 0, pm.math.exp(v / 2), shape=6)
        pm.Normal("y", v, 100, observed=0.0)
    rng = np.random.default_rng(3)
    v = rng.normal(0, 3, (1600, 1))
    found = look(posterior_of(model), np.hstack([v, np.exp(v / 2) * rng.normal(size=(1600, 6))]), 3)
    assert not found.unbounded
    neck = [component.shape.mean[0] for component in found.components]
    assert min(neck) < -10.0


@pytest.mark.slow
def test_a_peak_that_has_no_mass():
    """Of 100 effects with a free scale: components follow the ridge on both sides of the draws."""
    rng = np.random.default_rng(8)
    y = rng.normal(0, np.hypot(0.7, 0.5), 100)
    with pm.Model() as model:
        tau = pm.HalfNormal("tau", 2)
        pm.Normal("y", pm.Normal("effect", 0, tau, shape=100), 0.5, observed=y)
    log_tau = np.linspace(-3.0, 1.0, 4001)
    variance = np.exp(2 * log_tau) + 0.25
    log_density = log_tau - 50 * np.log(variance) - 0.5 * y @ y / variance - np.exp(2 * log_tau) / 8
    weight = np.exp(log_density - log_density.max())
    scale = rng.choice(log_tau, (800, 1), p=weight / weight.sum())
    shrunk = 1 / (1 + 0.25 * np.exp(-2 * scale))
    effect = shrunk * y + 0.5 * np.sqrt(shrunk) * rng.normal(size=(800, 100))
    found = look(posterior_of(model), np.hstack([scale, effect]), 8)
    centres = np.array([component.shape.mean[0] for component in found.components])
    z = (centres - scale.mean()) / scale.std()
    assert ((z > -2.5) & (z < -0.5)).any() and ((z > 0.5) & (z < 2.5)).any()


def test_a_ridge_without_end():
    """The likelihood grows without bound where the scale goes to zero and the mean to the data."""
    rng = np.random.default_rng(4)
    draws = np.column_stack([rng.normal(0.3, 0.1, 800), np.log(rng.uniform(0.05, 0.5, 800))])
    assert look(posterior_of(deceptive.build_infinite()), draws, 4).unbounded


@pytest.mark.parametrize("budget", [5_000, 30_000, 100_000])
def test_the_cost_is_what_is_allowed(budget):
    """Gradients as gradients, values as a third of them."""
    case = MODES["two_widths_4"]
    draws = draws_of_modes(case, 800, np.random.default_rng(5))
    found = look(modes("two_widths_4"), draws, 5, budget=budget)
    usual = max(budget, USUAL_BUDGET)  # for several modes
    values = n_scanned(usual, 4) + n_probes(usual, budget, 4)
    assert found.n_evaluations < SHARE_OF_ASCENTS * usual + values + 6_000


def test_a_density_without_finite_values_is_survived():
    """Half of the prior has no density, and there is no population worth the name."""
    with pm.Model() as model:
        x = pm.Normal("x", 0, 1)
        pm.Potential("l", pm.math.switch(x > 0, -x, -np.inf))
    draws = np.abs(np.random.default_rng(8).normal(size=(200, 1)))
    found = look(posterior_of(model), draws, 8)
    assert np.isfinite(found.log_mass).all()


def test_a_peak_to_which_the_data_pull():
    """Prior and likelihood have heavy tails and contradict each other: there are two peaks."""
    with pm.Model() as model:
        x = pm.StudentT("x", 3, mu=0, sigma=1, shape=2)
        pm.StudentT("y", 3, mu=x, sigma=1, observed=[40.0, -40.0])
    posterior = posterior_of(model)
    for seed in range(2):
        draws = 0.8 * np.random.default_rng(seed).standard_t(3, size=(400, 2))
        found = look(posterior, draws, seed, log_evidence=-20.0, budget=1500)
        places = np.array([part.shape.mean for part in found.components])
        assert np.abs(places - [40.0, -40.0]).max(axis=1).min() < 1.0


# --- its budget ---


@pytest.mark.parametrize("share", [0.05, 0.3, 1.0, 2.0])
def test_ascents_scan_and_probes_use_the_budget(share):
    """What a survey makes beyond what was asked for, because of several modes, has no excess."""
    budget = share * USUAL_BUDGET
    values = n_scanned(budget, 10) + n_probes(budget, 0.0, 10)
    assert SHARE_OF_ASCENTS * budget + values / 3 == pytest.approx(budget, rel=1e-3)


def test_the_usual_budget_has_probes_in_excess():
    """A spike of which half as many probes see nothing in 1.5 % of runs."""
    few, many = (n_probes(USUAL_BUDGET, asked, 20) for asked in (0.05 * USUAL_BUDGET, USUAL_BUDGET))
    assert n_scanned(USUAL_BUDGET, 20) < few < 0.51 * many
    assert n_probes(0.05 * USUAL_BUDGET, 0.05 * USUAL_BUDGET, 20) < 0.01 * few


def test_memory_is_bounded_in_many_dimensions():
    assert n_scanned(1e6, 5000) * 5000 <= 4_000_000
    assert n_probes(1e6, 1e6, 5000) * 5000 <= 4_000_000


def test_small_budgets_keep_some_ascents():
    assert share_of_ascents(10.0) == 0.4
    assert share_of_ascents(0.5 * USUAL_BUDGET) == 0.5
    assert share_of_ascents(1e6) == 1.0
