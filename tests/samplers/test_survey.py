"""What a survey finds beside a population, from exact draws of the part that a run would hold."""

from dataclasses import replace
from functools import cache

import numpy as np
import pymc as pm
import pytest

from pm_evidence.core.shape import Shape, learn_shape
from pm_evidence.kernels.ascent import Climbs
from pm_evidence.references.mixture import StudentFit
from pm_evidence.samplers.peaks import Local
from pm_evidence.samplers.survey import (
    USUAL_BUDGET,
    contracted,
    directions,
    grows,
    outlying,
    survey,
    towards,
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


@pytest.mark.slow
def test_a_ridge_without_end():
    """The likelihood grows without bound where the scale goes to zero and the mean to the data."""
    rng = np.random.default_rng(4)
    draws = np.column_stack([rng.normal(0.3, 0.1, 800), np.log(rng.uniform(0.05, 0.5, 800))])
    assert look(posterior_of(deceptive.build_infinite()), draws, 4).unbounded


@pytest.mark.parametrize("budget", [5_000, 30_000, 100_000])
def test_the_cost_is_what_is_allowed(budget):
    """A value counts as a third of a gradient; several modes take the usual budget, and a scan."""
    case = MODES["two_widths_4"]
    draws = draws_of_modes(case, 800, np.random.default_rng(5))
    found = look(modes("two_widths_4"), draws, 5, budget=budget)
    assert found.n_evaluations < 4.3 * max(budget, USUAL_BUDGET)


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


# --- where it looks ---


@pytest.mark.parametrize("d", [1, 4, 100])
def test_contracted_draws_fill_the_shell(d):
    rng = np.random.default_rng(1)
    x = rng.normal(3.0, 2.0, (2000, d))
    moved = contracted(x, rng)
    centre = np.median(x, axis=0)
    factor = np.linalg.norm(moved - centre, axis=1) / np.linalg.norm(x - centre, axis=1)
    assert factor.min() >= d**-0.5 - 1e-9 and factor.max() <= 1.0 + 1e-9
    assert np.median(factor) == pytest.approx(d**-0.25, rel=0.1)


def test_positions_in_another_basin_stand_out():
    """A density of any shape that falls with the prediction, and three values above their like."""
    rng = np.random.default_rng(6)
    predicted = -rng.exponential(1000.0, 5000)
    log_density = -50.0 * np.sqrt(-predicted) + rng.normal(0, 5.0, 5000)
    odd = np.argsort(predicted)[[700, 2500, 4000]]
    log_density[odd] += 100.0
    assert set(odd) == set(outlying(log_density, predicted, 3))


def test_densities_at_the_end_of_the_range_do_not_stand_out():
    """Relative to a small spread they are below the range of float64."""
    predicted = np.arange(400.0)
    log_density = predicted.copy()
    log_density[::3], log_density[100] = -1e308, 150.0
    assert list(outlying(log_density, predicted, 1)) == [100]


def test_predictions_of_minus_infinity_are_like_each_other():
    """Far from all peaks the squared distance overflows."""
    predicted = np.full(200, -np.inf)
    log_density = np.full(200, -9e299)
    log_density[100] = -1e299
    assert list(outlying(log_density, predicted, 1)) == [100]


# --- ridges ---


def unit(d):
    """Return the shape of a standard normal population."""
    return Shape(np.zeros(d), np.ones((d, 1)))


def peak(mean, log_mass=0.0):
    return Local(StudentFit(Shape(mean, np.ones((mean.size, 1))), 10), 0.0, log_mass)


def test_endless_ascents_along_one_ridge_count_once():
    x = np.array([[10.0, 0.0], [20.0, 1.0], [0.0, -5.0], [3.0, 3.0]])
    followed = Climbs(x, np.zeros(4), np.array([False, False, False, True]), 0)
    (first, reach), (second, _) = directions(followed, unit(2))
    assert reach == pytest.approx(10.0)
    np.testing.assert_allclose([first, second], [[1.0, 0.0], [0.0, -1.0]])


@pytest.mark.parametrize(("distance", "d", "n"), [(6.0, 80, 1), (1.0, 80, 0), (6.0, 20, 0)])
def test_a_peak_that_no_draw_is_near(distance, d, n):
    """In few dimensions a mixture is fitted to the draws, so that no ridge is needed."""
    draws = np.random.default_rng(1).normal(size=(500, d))
    found = towards([peak(distance * np.eye(d)[0])], draws, unit(d))
    assert len(found) == n
    for direction, reach in found:
        np.testing.assert_allclose(direction, np.eye(d)[0])
        assert reach == pytest.approx(distance)
    # draws near one of several peaks
    assert towards([peak(distance * np.eye(d)[0]), peak(np.zeros(d))], draws, unit(d)) == []


@pytest.mark.parametrize(("scale", "n"), [(1.05, 0), (1.2, 1)])
def test_draws_that_are_slightly_too_wide(scale, n):
    """In a thousand dimensions few chains differ from the posterior by several per cent."""
    d = 1000
    draws = scale * np.random.default_rng(3).normal(size=(100, d))
    assert len(towards([peak(np.ones(d) / d)], draws, unit(d))) == n


def test_growing_mass():
    ridge = [peak(np.zeros(2), log_mass) for log_mass in (0.0, 2.0, 5.0)]
    assert grows(ridge, 1.0) and not grows(ridge, 3.0)
    assert not grows(ridge[2:], 0.0)
    # a peak far from the draws is no growing mass, however low the evidence of a coarse run is
    ridge = [peak(np.zeros(2), log_mass) for log_mass in (0.0, 8.0, 5.0)]
    assert not grows(ridge, -20.0)
