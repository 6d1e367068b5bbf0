"""Variables are found given which posteriors are log-concave, and only where these are."""

import numpy as np
import pymc as pm
import pytest

from pm_evidence.targets.model.cache import target_of
from pm_evidence.targets.model.concavity import find_hyperparameters
from tests.systems.exact import deceptive_systems, exact_systems
from tests.targets.model.test_concavity import NOT_CONCAVE, RNG, X, Y
from tests.targets.values import in_python

SYSTEMS = exact_systems() | deceptive_systems()
# Hyperparameters, and whether the density is known to have no narrow peaks in them.
KNOWN = {
    "normal_inverse_gamma": ({"variance"}, False),
    "radiata_pine_like": ({"precision"}, True),
    "eight_schools_half_cauchy_centred": ({"tau"}, True),
    "eight_schools_half_normal_centred": ({"tau"}, True),
    "eight_schools_half_normal_noncentred": ({"tau"}, True),
    "one_way_centred": ({"tau", "sigma"}, True),
    "one_way_noncentred": ({"tau", "sigma"}, True),
    "many_means": ({"tau"}, True),
    "funnel": ({"log_variance"}, True),
    "banana": ({"a"}, False),
}
# One of each kind; the others are variations of them.
FAST = {"normal_inverse_gamma", "one_way_noncentred", "many_means", "funnel", "banana"}
UNKNOWN = ["student_t_groups", "label_switching", "bimodal_10", "gaussian_shells", "separated"]


def names(target):
    found = find_hyperparameters(target)
    return None if found is None else {variable.name for variable in found}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in FAST else pytest.mark.slow) for n in KNOWN]
)
def test_scales_are_found(name):
    target = in_python(SYSTEMS[name].build(), target_of, reparameterise=True)
    assert (names(target), target.is_concave_in_hyperparameters) == KNOWN[name]
    assert not violations(target)


@pytest.mark.parametrize(
    "name",
    [
        "one_way_centred",
        "funnel",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("radiata_pine_like", "many_means")),
    ],
)
def test_scales_are_found_in_the_coordinates_of_the_model(name):
    target = in_python(SYSTEMS[name].build())
    assert names(target) == KNOWN[name][0]
    assert not violations(target)


def test_parameters_of_a_process():
    with pm.Model() as model:
        scale, length = pm.HalfNormal("scale", 1), pm.InverseGamma("length", 5, 5)
        process = pm.gp.Latent(cov_func=scale**2 * pm.gp.cov.ExpQuad(3, length))
        pm.Poisson("y", pm.math.exp(process.prior("f", X)), observed=Y)
    target = in_python(model)
    assert names(target) == {"scale", "length"}
    assert not violations(target)


@pytest.mark.parametrize("reparameterise", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_scales_of_trend_and_season(reparameterise):
    with pm.Model() as model:
        step, height = pm.HalfNormal("step", 0.5), pm.HalfNormal("height", 1)
        level = pm.GaussianRandomWalk("level", sigma=step, init_dist=pm.Normal.dist(), shape=24)
        season = pm.ZeroSumNormal("season", sigma=height, shape=4)
        y = np.sin(np.arange(24.0)) + np.arange(24) % 4
        pm.Normal("y", level + season[np.arange(24) % 4], 0.5, observed=y)
    target = in_python(model, target_of, reparameterise=reparameterise)
    assert names(target) == {"step", "height"}
    assert not violations(target)


@pytest.mark.parametrize("name", ["student_t", "square", "sine", "mixture"])
def test_a_variable_that_is_all_of_them_is_no_hyperparameter(name):
    """Given all of its variables, any model is log-concave."""
    assert names(in_python(NOT_CONCAVE[name]())) is None


@pytest.mark.parametrize(("n_scales", "n_others"), [(11, 11), (3, 2)])
def test_hyperparameters_are_few(n_scales, n_others):
    """At most ten coordinates, and no more than there are others."""
    with pm.Model() as model:
        sigma = [pm.HalfNormal(f"sigma{i}", 1) for i in range(n_scales)]
        b = pm.math.sum(pm.Normal("b", 0, 1, shape=n_others))
        pm.Normal("y", b, pm.math.stack(sigma), observed=np.arange(float(n_scales)))
    assert names(in_python(model)) is None


def test_a_weight_of_either_sign_is_no_hyperparameter():
    """Where the weight is negative, the product is convex: some prior draws show it."""
    with pm.Model() as model:
        weight, x = pm.Normal("weight", 0, 1), pm.Normal("x", 0, 1, shape=4)
        pm.Potential("p", -weight * pm.math.sum(pm.math.log1pexp(3.0 * x)) - pm.math.sum(x**2))
    assert names(in_python(model, potentials_only=True)) is None


def violations(target, n=300):
    """Return how often a log density between two points, with the same hyperparameters, is low."""
    a, b = (target.draw(n, np.random.SeedSequence(seed)).x for seed in (1, 2))
    given = target.layout.positions_of(target.hyperparameters)
    b[:, given] = a[:, given]
    share = RNG.uniform(0.1, 0.9, (n, 1))
    at_a, at_b, between = (
        target.evaluate(x).log_density for x in (a, b, share * a + (1 - share) * b)
    )
    least = share * at_a + (1 - share) * at_b
    return int((between < least - 1e-8 * (1 + np.abs(at_a) + np.abs(at_b))).sum())


def frequency():
    """A sine in noise: its density has many narrow peaks."""
    t = np.linspace(0.0, 10.0, 25)
    with pm.Model() as model:
        w, c = pm.HalfNormal("w", 4), pm.Normal("c", 0, 1, shape=2)
        pm.Normal("y", c[0] * pm.math.sin(w * t) + c[1] * pm.math.cos(w * t), 1, observed=t)
    return model


def decay():
    """A rate of decay, and noise in which the density is so concave that it hides the rate."""
    t = np.linspace(0.0, 10.0, 40)
    with pm.Model() as model:
        rate, noise = pm.LogNormal("rate", 0, 1), pm.HalfNormal("noise", 1)
        c = pm.Normal("c", 0, 2, shape=4)
        pm.Normal("y", c[0] + c[1] * pm.math.exp(-rate * t), noise, observed=t)
    return model


def effects(centred):
    """Binary data of groups, with effects that are multiplied by their scale or drawn with it."""
    group = np.repeat(np.arange(10), 3)
    with pm.Model() as model:
        mu, tau = pm.Normal("mu", 0, 1), pm.HalfCauchy("tau", 1)
        effect = pm.Normal("effect", 0, tau if centred else 1, shape=10)
        scaled = effect if centred else tau * effect
        pm.Bernoulli("y", logit_p=mu + scaled[group], observed=group % 2)
    return model


def random_walk():
    with pm.Model() as model:
        step, noise = pm.Exponential("step", 5), pm.HalfNormal("noise", 1)
        start = pm.Normal.dist(0, 1)
        x = pm.GaussianRandomWalk("x", 0, step, init_dist=start, steps=29)
        pm.Normal("y", x, noise, observed=np.zeros(30))
    return model


def precisions():
    with pm.Model() as model:
        precision = pm.Gamma("precision", 2, 2, shape=2)
        effect = pm.Normal("effect", 0, tau=precision[0], shape=5)
        pm.Normal("y", effect, tau=precision[1], observed=np.arange(5.0))
    return model


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda: effects(True), True),
        (lambda: effects(False), True),
        (random_walk, True),
        (precisions, True),
        (frequency, False),
        (decay, False),
    ],
    ids=["centred", "by hand", "walk", "precisions", "frequency", "decay"],
)
def test_only_scales_are_known_to_have_no_narrow_peaks(build, expected):
    target = in_python(build(), target_of, reparameterise=True)
    assert target.hyperparameters
    assert target.is_concave_in_hyperparameters is expected
