"""Variables are found given which posteriors are log-concave, and only where these are."""

import numpy as np
import pymc as pm
import pytest

from pm_evidence.targets.model.cache import target_of
from pm_evidence.targets.model.hyperparameters import find_hyperparameters
from pm_evidence.targets.model.target import PyMCTarget
from pm_evidence.testing import deceptive_systems, exact_systems
from tests.targets.model.test_concavity import CONCAVE, NOT_CONCAVE, RNG, X, Y

SYSTEMS = exact_systems() | deceptive_systems()
KNOWN = {
    "normal_inverse_gamma": {"variance"},
    "radiata_pine_like": {"precision"},
    "eight_schools_half_cauchy_centred": {"tau"},
    "eight_schools_half_normal_noncentred": {"tau"},
    "one_way_centred": {"tau", "sigma"},
    "funnel": {"log_variance"},
    "banana": {"a"},
}
UNKNOWN = ["student_t_groups", "label_switching", "bimodal_10", "gaussian_shells", "separated"]


def names(target):
    found = find_hyperparameters(target)
    return None if found is None else {variable.name for variable in found}


@pytest.mark.parametrize("reparameterise", [True, False])
@pytest.mark.parametrize("name", KNOWN)
def test_scales_are_found_in_all_coordinates(name, reparameterise):
    target = target_of(SYSTEMS[name].build(), reparameterise=reparameterise)
    assert names(target) == KNOWN[name]
    assert not violations(target)


def test_parameters_of_a_process():
    with pm.Model() as model:
        scale, length = pm.HalfNormal("scale", 1), pm.InverseGamma("length", 5, 5)
        process = pm.gp.Latent(cov_func=scale**2 * pm.gp.cov.ExpQuad(3, length))
        pm.Poisson("y", pm.math.exp(process.prior("f", X)), observed=Y)
    target = target_of(model)
    assert names(target) == {"scale", "length"}
    assert not violations(target)


@pytest.mark.parametrize("name", UNKNOWN)
def test_other_posteriors_are_not_known(name):
    assert names(target_of(SYSTEMS[name].build(), reparameterise=True)) is None


def test_a_log_concave_posterior_needs_none():
    assert names(PyMCTarget(CONCAVE["poisson"]())) == set()


@pytest.mark.parametrize("name", ["student_t", "square", "sine", "mixture"])
def test_a_variable_that_is_all_of_them_is_no_hyperparameter(name):
    """Given all of its variables, any model is log-concave."""
    assert names(PyMCTarget(NOT_CONCAVE[name]())) is None


@pytest.mark.parametrize(("n_scales", "n_others"), [(11, 11), (3, 2)])
def test_hyperparameters_are_few(n_scales, n_others):
    """At most ten coordinates, and no more than there are others."""
    with pm.Model() as model:
        sigma = [pm.HalfNormal(f"sigma{i}", 1) for i in range(n_scales)]
        b = pm.math.sum(pm.Normal("b", 0, 1, shape=n_others))
        pm.Normal("y", b, pm.math.stack(sigma), observed=np.arange(float(n_scales)))
    assert names(PyMCTarget(model)) is None


def test_a_weight_of_either_sign_is_no_hyperparameter():
    """Where the weight is negative, the product is convex: some prior draws show it."""
    with pm.Model() as model:
        weight, x = pm.Normal("weight", 0, 1), pm.Normal("x", 0, 1, shape=4)
        pm.Potential("p", -weight * pm.math.sum(pm.math.log1pexp(3.0 * x)) - pm.math.sum(x**2))
    assert names(PyMCTarget(model, potentials_only=True)) is None


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
