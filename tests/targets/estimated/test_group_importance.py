"""The estimated likelihood of grouped data: unbiased, reproducible, and what a run tells."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats
from scipy.special import logsumexp

from pm_evidence.targets.estimated.group_importance import compile_groups
from pm_evidence.targets.estimated.random_effects import RandomEffects
from pm_evidence.targets.estimated.variable import estimators_of
from pm_evidence.targets.model.target import PyMCTarget
from tests.systems.random_effects import (
    build_poisson_glmm,
    build_poisson_glmm_explicit,
    poisson_glmm,
)
from tests.targets.estimated.grouped_models import (
    GROUPS,
    KINDS,
    MODELS,
    POINT,
    REAL,
    X,
    at_point,
    derivatives,
    estimator,
    exact_poisson,
    seeds_of,
)

pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")


NAMES = [pytest.param(n, marks=pytest.mark.slow if n != "poisson" else []) for n in MODELS]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_group_is_estimated_without_bias(name):
    # 72 means of 4,000 weights each; false alarm below 1e-3 in all at 4.5 standard errors
    exact = MODELS[name][1](POINT)
    for draws in KINDS:
        few = replace(estimator(name), draws=draws, n_particles=4)
        ratio = np.exp(few.estimate_groups(at_point(4000), seeds_of(4000)) - exact)
        error = ratio.std(axis=0) / np.sqrt(4000)
        assert np.all(np.abs(ratio.mean(axis=0) - 1) < 4.5 * error), draws
        assert np.all(error < 0.02), draws


@pytest.mark.parametrize("name", NAMES)
def test_many_particles_give_the_exact_value_anywhere(name):
    many = replace(estimator(name), n_particles=2048)
    for point in (POINT, np.array([-1.0, 0.8, 1.0]), np.array([2.0, 0.5, -6.0])):
        estimate = many.estimate(point[None], seeds_of(1))
        assert estimate[0] == pytest.approx(MODELS[name][1](point).sum(), abs=2e-3)


def test_a_planted_error_would_be_seen():
    # a proposal a tenth too wide in one coordinate shifts every group by log 1.1
    exact = exact_poisson(POINT) + np.log(1.1)
    ratio = np.exp(estimator("poisson").estimate_groups(at_point(4000), seeds_of(4000)) - exact)
    error = ratio.std(axis=0) / np.sqrt(4000)
    assert np.all(np.abs(ratio.mean(axis=0) - 1) > 4.5 * error)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "gain"), [("poisson", 5.0), ("gaussian", 2.0)])
def test_the_lattice_lowers_the_error(name, gain):
    x, seeds = at_point(1000), seeds_of(1000)
    spread = {
        draws: replace(estimator(name), draws=draws, n_particles=32).estimate(x, seeds).std()
        for draws in KINDS
    }
    assert gain * spread["quasi"] < spread["random"]


def test_equal_seeds_give_equal_bits():
    chosen = estimator("poisson")
    x = np.random.default_rng(3).normal(size=(20, 3))
    seeds = seeds_of(20)
    together = chosen.estimate(x, seeds)
    alone = [chosen.estimate(x[k : k + 1], seeds[k : k + 1])[0] for k in reversed(range(20))]
    np.testing.assert_array_equal(together, alone[::-1])
    assert not np.any(together == chosen.estimate(x, seeds_of(20, seed=2)))


def test_threads_give_equal_bits():
    chosen = estimator("gaussian")
    x, seeds = at_point(400), seeds_of(400)
    with ThreadPoolExecutor(4) as pool:
        parts = pool.map(chosen.estimate, np.split(x, 8), np.split(seeds, 8))
        together = np.concatenate(list(parts))
    np.testing.assert_array_equal(together, chosen.estimate(x, seeds))


def test_a_block_is_renewed_alone():
    # without blocks a move of the random numbers renews all groups at once
    chosen = replace(estimator("poisson"), draws="random").with_seeds(3)
    assert chosen.n_seeds == 3
    seeds = seeds_of(1, 3)
    changed = seeds.copy()
    changed[0, 1] += np.uint64(1)
    before, after = (chosen.estimate_groups(POINT[None], s)[0] for s in (seeds, changed))
    np.testing.assert_array_equal(before != after, [b == 1 for b in np.arange(8) * 3 // 8])
    assert chosen.with_seeds(100).n_seeds == 8


def test_blocks_leave_the_estimate_unbiased():
    chosen = estimator("poisson").with_particles(4).with_seeds(8)
    estimates = chosen.estimate(at_point(4000), seeds_of(4000, 8))
    ratio = np.exp(estimates - exact_poisson(POINT).sum())
    assert abs(ratio.mean() - 1) < 4 * ratio.std() / np.sqrt(4000)


def test_a_close_point_has_a_close_estimate():
    # Newton's method may stop after another number of steps there: the mode must not jump
    chosen = estimator("poisson")
    along = POINT + np.linspace(0, 1, 400)[:, None] * np.array([1.0, 0.2, 0.6])
    difference = chosen.estimate(along, seeds_of(1).repeat(400, axis=0)) - [
        exact_poisson(x).sum() for x in along
    ]
    assert np.abs(np.diff(difference)).max() < 0.02


def test_effects_are_draws_from_their_posterior():
    # means of 6,000 draws at 64 particles each; the closed form of normal data
    chosen = replace(estimator("gaussian"), n_particles=64)
    drawn = chosen.effects(at_point(6000), seeds_of(6000))
    assert drawn.shape == (6000, 8, 2)
    b, slope, s = POINT[0], POINT[1], np.exp(POINT[2])
    for g in range(8):
        rows = g == GROUPS
        design = np.c_[np.ones(rows.sum()), X[rows]]
        precision = design.T @ design / 0.64 + np.eye(2) / s**2
        mean = np.linalg.solve(precision, design.T @ (REAL[rows] - b) / 0.64 + slope / s**2)
        cov = np.linalg.inv(precision)
        error = np.sqrt(np.diag(cov) / 6000)
        np.testing.assert_array_less(np.abs(drawn[:, g].mean(axis=0) - mean), 5 * error)
        np.testing.assert_allclose(np.cov(drawn[:, g].T), cov, rtol=0.15, atol=0.02)


def test_derivatives_by_rows():
    """Up to three dimensions the rows of the Hessian are graphs of their own."""
    at = np.random.default_rng(1).normal(size=(8, 2))
    start, value, gradient, hessian = derivatives(estimator("gaussian").density, POINT, at)
    b, slope, s = POINT[0], POINT[1], np.exp(POINT[2])
    np.testing.assert_allclose(start, np.full((8, 2), slope))
    for g in range(8):
        design = np.c_[np.ones(np.sum(g == GROUPS)), X[g == GROUPS]]
        rest = REAL[g == GROUPS] - b - design @ at[g]
        joint = stats.norm.logpdf(rest, 0, 0.8).sum() + stats.norm.logpdf(at[g], slope, s).sum()
        assert value[g] == pytest.approx(joint, rel=1e-12)
        slopes = design.T @ rest / 0.64 - (at[g] - slope) / s**2
        np.testing.assert_allclose(gradient[g], slopes, rtol=1e-10)
        np.testing.assert_allclose(hessian[g], -(design.T @ design / 0.64 + np.eye(2) / s**2))


@pytest.mark.slow
def test_derivatives_by_one_jacobian():
    """So it is beyond three dimensions."""
    n_groups, n_dim = 3, 4
    x = pt.TensorType("float64", shape=(n_dim,))("x")
    z = pt.TensorType("float64", shape=(n_groups, n_dim))("z")
    rng = np.random.default_rng(1)
    root = rng.normal(size=(n_dim, n_dim))
    precision, scales = root @ root.T, np.arange(1.0, n_groups + 1)
    away = z - x
    log_prior = -0.5 * ((away @ precision) * away).sum(axis=1) * scales
    log_likelihood = pt.exp(x).sum() + 0 * z[:, 0]
    density = compile_groups(x, z, log_prior, log_likelihood, pt.zeros((n_groups, n_dim)) + x)
    point, at = rng.normal(size=n_dim), rng.normal(size=(n_groups, n_dim))
    start, value, gradient, hessian = derivatives(density, point, at)
    d = at - point
    np.testing.assert_allclose(start, np.tile(point, (n_groups, 1)))
    quadratic = -0.5 * np.einsum("gi,ij,gj->g", d, precision, d) * scales
    np.testing.assert_allclose(value, quadratic + np.exp(point).sum())
    np.testing.assert_allclose(gradient, -(d @ precision) * scales[:, None])
    np.testing.assert_allclose(hessian, -precision * scales[:, None, None])


def test_no_support_is_weight_zero_and_nan_stays():
    far = np.array([[800.0, 0.0, 0.0], [np.nan, 0.0, 0.0]])
    assert estimator("poisson").estimate(far, seeds_of(2))[0] == -np.inf
    assert np.isnan(estimator("gaussian").estimate(far, seeds_of(2))[1])


# the variable ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_evidence_of_the_fixture_is_that_of_the_explicit_model():
    # importance sampling from the prior with the exact likelihood of the six effects given b, s
    target = PyMCTarget(build_poisson_glmm_explicit())
    log_likelihood = target.draw(400_000, np.random.SeedSequence(1)).log_density[:, 1]
    weight = np.exp(log_likelihood - poisson_glmm().log_evidence)
    assert abs(weight.mean() - 1) < 4 * weight.std() / np.sqrt(weight.size)


@pytest.mark.slow
def test_the_fixture_is_estimated_without_bias():
    (chosen,) = estimators_of(build_poisson_glmm())
    rng = np.random.default_rng(5)
    x = np.c_[1.5 * rng.normal(size=100_000), np.log(np.abs(rng.normal(size=100_000)))]
    weight = np.exp(chosen.estimate(x, seeds_of(100_000)) - poisson_glmm().log_evidence)
    assert abs(weight.mean() - 1) < 4 * weight.std() / np.sqrt(weight.size)


@pytest.mark.slow
@pytest.mark.parametrize(
    "effects",
    [
        lambda: pm.Gamma.dist(2, 2),
        lambda: pm.Laplace.dist(1, 0.5),
        lambda: pm.StudentT.dist(3, mu=1, sigma=0.5),
        lambda: pm.Beta.dist(2, 2),
    ],
    ids=["gamma", "laplace", "student", "beta"],
)
def test_other_effects_are_integrated_as_well(effects):
    with pm.Model() as model:
        b = pm.Normal("b")
        RandomEffects(
            "y",
            effects=effects,
            emission=lambda u, i: pm.Poisson.dist(pt.exp(b) * abs(u)),
            groups=[0, 0, 1],
            observed=[1, 0, 2],
            draws="random",
        )
    (chosen,) = estimators_of(model)
    u = np.linspace(-40, 40, 400_001) + 1e-7
    value = pt.vector("value")
    log_prior = pm.logp(effects(), value).eval({value: u})
    each = stats.poisson.logpmf(np.array([1, 0, 2])[:, None], np.abs(u))
    step = np.log(u[1] - u[0])
    exact = [logsumexp(each[:2].sum(0) + log_prior) + step, logsumexp(each[2] + log_prior) + step]
    ratio = np.exp(chosen.estimate_groups(np.zeros((10_000, 1)), seeds_of(10_000)) - exact)
    assert np.all(np.abs(ratio.mean(axis=0) - 1) < 4 * ratio.std(axis=0) / 100)
