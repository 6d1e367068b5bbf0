"""Random effects: an unbiased likelihood, a variable like any other, and mistakes that are told."""

import copy
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache

import cloudpickle
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.exceptions import BlockModelAccessError
from pymc.model_graph import ModelGraph
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from scipy import stats
from scipy.special import expit, gammaln, logsumexp

from pm_evidence.core.exceptions import ModelError
from pm_evidence.targets.estimated.random_effects.api import RandomEffects
from pm_evidence.targets.estimated.random_effects.importance import lattice_generator
from pm_evidence.targets.estimated.variable import estimated_variables, estimators_of
from pm_evidence.targets.model.target import PyMCTarget
from pm_evidence.testing.random_effects import (
    build_poisson_glmm,
    build_poisson_glmm_explicit,
    poisson_glmm,
)

pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")

KINDS = ("random", "antithetic", "quasi")
RNG = np.random.default_rng(20250711)
N_OBS = 40
GROUPS = np.r_[np.arange(8), RNG.integers(0, 8, N_OBS - 8)]
X = RNG.normal(size=N_OBS)
COUNTS = RNG.poisson(np.exp(0.4 + 0.3 * X + 0.8 * RNG.normal(size=8)[GROUPS])).astype(float)
COUNTS[[3, 17, 30]] = np.nan
COUNTS[3 + 8] = 2.0
GROUPS[11] = 3  # so that no group is left without observations
BINARY = RNG.integers(0, 2, N_OBS)
REAL = RNG.normal(size=N_OBS) + RNG.normal(size=8)[GROUPS]
SHAPE = np.array([[1.0, 0.4], [0.4, 0.7]])
POINT = np.array([0.3, -0.2, -0.3])  # b, log s


@cache
def poisson():
    """Counts with some missing, labels in the place of numbers."""
    with pm.Model() as model:
        b = pm.Normal("b", 0, 2, shape=2)
        s = pm.HalfNormal("s", 1)
        RandomEffects(
            "counts",
            effects=lambda: pm.Normal.dist(0, s),
            emission=lambda u, i: pm.Poisson.dist(pt.exp(b[0] + b[1] * X[i] + u)),
            groups=[f"g{k}" for k in GROUPS],
            observed=COUNTS,
        )
    return model


@cache
def bernoulli():
    """Correlated intercepts and slopes."""
    with pm.Model() as model:
        b = pm.Normal("b", 0, 2, shape=2)
        s = pm.HalfNormal("s", 1)
        RandomEffects(
            "hit",
            effects=lambda: pm.MvNormal.dist(np.zeros(2), s**2 * SHAPE),
            emission=lambda u, i: pm.Bernoulli.dist(
                logit_p=b[0] + b[1] * X[i] + u[:, 0] + u[:, 1] * X[i]
            ),
            groups=GROUPS,
            observed=BINARY,
        )
    return model


@cache
def gaussian():
    """Two independent effects, normal data: a closed form."""
    with pm.Model() as model:
        b = pm.Normal("b", 0, 2, shape=2)
        s = pm.HalfNormal("s", 1)
        RandomEffects(
            "height",
            effects=lambda: pm.Normal.dist(b[1], s, shape=2),
            emission=lambda u, i: pm.Normal.dist(b[0] + u[:, 0] + u[:, 1] * X[i], 0.8),
            groups=GROUPS,
            observed=REAL,
        )
    return model


def exact_poisson(x):
    z = np.linspace(-12, 12, 6001)
    rate = x[0] + x[1] * X[:, None] + np.exp(x[2]) * z
    each = COUNTS[:, None] * rate - np.exp(rate) - gammaln(COUNTS + 1)[:, None]
    return integrate(np.nan_to_num(each), stats.norm.logpdf(z) + np.log(z[1] - z[0]))


def exact_bernoulli(x):
    z = np.linspace(-10, 10, 301)
    grid = np.stack(np.meshgrid(z, z, indexing="ij"), -1).reshape(-1, 2)
    u = grid @ np.linalg.cholesky(np.exp(2 * x[2]) * SHAPE).T
    p = expit(x[0] + x[1] * X[:, None] + u[:, 0] + u[:, 1] * X[:, None])
    log_weight = stats.norm.logpdf(grid).sum(axis=1) + 2 * np.log(z[1] - z[0])
    return integrate(stats.bernoulli.logpmf(BINARY[:, None], p), log_weight)


def exact_gaussian(x):
    total = []
    for g in range(8):
        rows = g == GROUPS
        design = np.c_[np.ones(rows.sum()), X[rows]]
        mean = x[0] + design @ [x[1], x[1]]
        cov = np.exp(2 * x[2]) * design @ design.T + 0.64 * np.eye(rows.sum())
        total.append(stats.multivariate_normal.logpdf(REAL[rows], mean, cov))
    return np.array(total)


def integrate(each, log_weight):
    return np.array([logsumexp(each[g == GROUPS].sum(0) + log_weight) for g in range(8)])


MODELS = {
    "poisson": (poisson, exact_poisson),
    "bernoulli": (bernoulli, exact_bernoulli),
    "gaussian": (gaussian, exact_gaussian),
}


@cache
def estimator(name):
    (result,) = estimators_of(MODELS[name][0]())
    return result


def words(n, n_blocks=1, seed=1):
    return np.random.default_rng(seed).integers(2**63, size=(n, n_blocks)).astype(np.uint64)


def at_point(n, point=POINT):
    return np.repeat(point[None], n, axis=0)


# the estimate ---------------------------------------------------------------------------------


@pytest.mark.parametrize("draws", KINDS)
@pytest.mark.parametrize("name", MODELS)
def test_every_group_is_estimated_without_bias(name, draws):
    # 72 means of 4,000 weights each; false alarm below 1e-3 in all at 4.5 standard errors
    few = replace(estimator(name), draws=draws, n_particles=4)
    exact = MODELS[name][1](POINT)
    ratio = np.exp(few.estimate_groups(at_point(4000), words(4000)) - exact)
    error = ratio.std(axis=0) / np.sqrt(4000)
    assert np.all(np.abs(ratio.mean(axis=0) - 1) < 4.5 * error)
    assert np.all(error < 0.02)


@pytest.mark.parametrize("name", MODELS)
def test_many_particles_give_the_exact_value_anywhere(name):
    many = replace(estimator(name), n_particles=2048)
    for point in (POINT, np.array([-1.0, 0.8, 1.0]), np.array([2.0, 0.5, -6.0])):
        estimate = many.estimate(point[None], words(1))
        assert estimate[0] == pytest.approx(MODELS[name][1](point).sum(), abs=2e-3)


def test_a_planted_error_would_be_seen():
    # a proposal a tenth too wide in one coordinate shifts every group by log 1.1
    exact = exact_poisson(POINT) + np.log(1.1)
    ratio = np.exp(estimator("poisson").estimate_groups(at_point(4000), words(4000)) - exact)
    error = ratio.std(axis=0) / np.sqrt(4000)
    assert np.all(np.abs(ratio.mean(axis=0) - 1) > 4.5 * error)


@pytest.mark.parametrize(("name", "gain"), [("poisson", 5.0), ("gaussian", 2.0)])
def test_the_lattice_lowers_the_error(name, gain):
    x, seeds = at_point(1000), words(1000)
    spread = {
        draws: replace(estimator(name), draws=draws, n_particles=32).estimate(x, seeds).std()
        for draws in KINDS
    }
    assert gain * spread["quasi"] < spread["random"]


def test_mirrored_particles_repeat_each_other_where_a_posterior_is_symmetric():
    # weights are even around the mode there: twice the particles are needed, and no more
    x, seeds = at_point(20_000), words(20_000)
    mirrored = replace(estimator("gaussian"), draws="antithetic", n_particles=64)
    independent = replace(estimator("gaussian"), draws="random", n_particles=32)
    ratio = mirrored.estimate(x, seeds).std() / independent.estimate(x, seeds).std()
    assert 0.95 < ratio < 1.05


def test_equal_seeds_give_equal_bits():
    chosen = estimator("poisson")
    x = np.random.default_rng(3).normal(size=(20, 3))
    seeds = words(20)
    together = chosen.estimate(x, seeds)
    alone = [chosen.estimate(x[k : k + 1], seeds[k : k + 1])[0] for k in reversed(range(20))]
    np.testing.assert_array_equal(together, alone[::-1])
    assert not np.any(together == chosen.estimate(x, words(20, seed=2)))


def test_threads_give_equal_bits():
    chosen = estimator("bernoulli")
    x, seeds = at_point(400), words(400)
    with ThreadPoolExecutor(4) as pool:
        parts = pool.map(chosen.estimate, np.split(x, 8), np.split(seeds, 8))
        together = np.concatenate(list(parts))
    np.testing.assert_array_equal(together, chosen.estimate(x, seeds))


def test_a_block_is_renewed_alone():
    # without blocks a move of the random numbers renews all groups at once
    chosen = replace(estimator("poisson"), draws="random").with_blocks(3)
    assert chosen.n_blocks == 3
    seeds = words(1, 3)
    changed = seeds.copy()
    changed[0, 1] += np.uint64(1)
    before, after = (chosen.estimate_groups(POINT[None], s)[0] for s in (seeds, changed))
    np.testing.assert_array_equal(before != after, [b == 1 for b in np.arange(8) * 3 // 8])
    assert chosen.with_blocks(100).n_blocks == 8


def test_blocks_leave_the_estimate_unbiased():
    chosen = estimator("poisson").with_particles(4).with_blocks(8)
    estimates = chosen.estimate(at_point(4000), words(4000, 8))
    ratio = np.exp(estimates - exact_poisson(POINT).sum())
    assert abs(ratio.mean() - 1) < 4 * ratio.std() / np.sqrt(4000)


def test_a_close_point_has_a_close_estimate():
    # Newton's method may stop after another number of steps there: the mode must not jump
    chosen = estimator("poisson")
    along = POINT + np.linspace(0, 1, 400)[:, None] * np.array([1.0, 0.2, 0.6])
    difference = chosen.estimate(along, words(1).repeat(400, axis=0)) - [
        exact_poisson(x).sum() for x in along
    ]
    assert np.abs(np.diff(difference)).max() < 0.02


def test_effects_are_draws_from_their_posterior():
    # means of 20,000 draws at 16 particles each; the closed form of normal data
    chosen = replace(estimator("gaussian"), n_particles=64)
    drawn = chosen.effects(at_point(20000), words(20000))
    assert drawn.shape == (20000, 8, 2)
    b, slope, s = POINT[0], POINT[1], np.exp(POINT[2])
    for g in range(8):
        rows = g == GROUPS
        design = np.c_[np.ones(rows.sum()), X[rows]]
        precision = design.T @ design / 0.64 + np.eye(2) / s**2
        mean = np.linalg.solve(precision, design.T @ (REAL[rows] - b) / 0.64 + slope / s**2)
        cov = np.linalg.inv(precision)
        error = np.sqrt(np.diag(cov) / 20000)
        np.testing.assert_array_less(np.abs(drawn[:, g].mean(axis=0) - mean), 5 * error)
        np.testing.assert_allclose(np.cov(drawn[:, g].T), cov, rtol=0.15, atol=0.02)


def test_cost_is_counted():
    fixed, each = estimator("poisson").cost()
    assert each == 1.0
    assert 2.0 < fixed < 30.0
    assert estimator("poisson").with_particles(100).cost() == (fixed, each)


def test_no_support_is_weight_zero_and_nan_stays():
    far = np.array([[800.0, 0.0, 0.0], [np.nan, 0.0, 0.0]])
    assert estimator("poisson").estimate(far, words(2))[0] == -np.inf
    assert np.isnan(estimator("gaussian").estimate(far, words(2))[1])


def test_an_odd_number_of_mirrored_particles_is_raised():
    chosen = replace(estimator("poisson"), draws="antithetic")
    assert chosen.with_particles(7).n_particles == 8


@pytest.mark.parametrize("n_points", [2, 16, 101, 1000])
def test_lattices_have_distinct_points(n_points):
    a = np.array(lattice_generator(n_points, 3))
    assert len(np.unique(np.arange(n_points)[:, None] * a % n_points, axis=0)) == n_points


def test_a_particle_out_of_range_takes_its_own_group_only():
    # PyMC's checks of parameters make the whole density -inf
    with pm.Model() as model:
        b = pm.Normal("b", 3, 1)
        RandomEffects(
            "y",
            effects=lambda: pm.Normal.dist(0, 1),
            emission=lambda u, i: pm.Poisson.dist(b + u),
            groups=[0, 0, 1, 1],
            observed=[0, 1, 4, 6],
        )
    (chosen,) = estimators_of(model)
    x, u = np.array([1.0]), np.linspace(-1 + 1e-9, 12, 200001)
    each = stats.poisson.logpmf(np.array([[0, 1], [4, 6]])[:, :, None], 1 + u).sum(1)
    exact = logsumexp(each + stats.norm.logpdf(u), axis=1) + np.log(u[1] - u[0])
    ratio = np.exp(chosen.estimate_groups(at_point(4000, x), words(4000)) - exact)
    assert np.all(np.abs(ratio.mean(axis=0) - 1) < 4.5 * ratio.std(axis=0) / np.sqrt(4000))


# the variable ---------------------------------------------------------------------------------


def test_the_variable_prints_and_is_drawn_as_any_other():
    model = poisson()
    assert model["counts"] in model.observed_RVs
    assert estimated_variables(model) == [model["counts"]]
    assert "counts ~ RandomEffects(b, s)" in model.str_repr()
    assert ModelGraph(model).make_compute_graph()["counts"] == {"b", "s"}
    prior = pm.sample_prior_predictive(50, model=model, random_seed=1)
    drawn = prior.prior_predictive["counts"].values
    assert drawn.shape == (1, 50, N_OBS)
    assert np.all(drawn >= 0)
    assert np.isnan(prior.observed_data["counts"].values).sum() == 3


def test_dimensions_and_deterministics_are_kept():
    with pm.Model(coords={"plot": np.arange(4)}) as model:
        s = pm.HalfNormal("s")
        twice = pm.Deterministic("twice", 2 * s)
        RandomEffects(
            "y",
            effects=lambda: pm.Normal.dist(0, twice),
            emission=lambda u, i: pm.Normal.dist(u, 1),
            groups=np.array([7, 7, 9, 9]),
            observed=np.arange(4),
            dims="plot",
        )
    assert model.named_vars_to_dims["y"] == ("plot",)
    assert ModelGraph(model).make_compute_graph()["y"] == {"twice"}
    (chosen,) = estimators_of(model)
    np.testing.assert_array_equal(chosen.labels, [7, 9])
    cov = 4 * np.exp(-0.6) + np.eye(2)
    exact = sum(stats.multivariate_normal.logpdf(y, np.zeros(2), cov) for y in ([0, 1], [2, 3]))
    estimate = chosen.with_particles(512).estimate(np.array([[-0.3]]), words(1))
    assert estimate[0] == pytest.approx(exact, abs=1e-3)


def test_effects_are_shared_within_a_group():
    with pm.Model():
        y = RandomEffects(
            "y",
            effects=lambda: pm.Normal.dist(0, 1),
            emission=lambda u, i: pm.Normal.dist(u, 0.1),
            groups=[0, 1, 0, 1],
            observed=np.zeros(4),
        )
    drawn = pm.draw(y, 4000, random_seed=1)
    correlation = np.corrcoef(drawn.T)
    assert correlation[0, 2] > 0.97
    assert abs(correlation[0, 1]) < 0.06


@pytest.mark.parametrize("ask", ["compile_logp", "sample"])
def test_asking_for_its_density_names_the_way_out(ask):
    model = poisson()
    with pytest.raises(ModelError, match=r"counts.*pe\.sample_evidence\(model\)"):
        model.compile_logp() if ask == "compile_logp" else pm.sample(model=model, progressbar=False)


def test_a_model_survives_copies():
    point = {"b": POINT[:2], "s_log__": POINT[2:]}
    for same in (cloudpickle.loads(cloudpickle.dumps(poisson())), copy.copy(poisson())):
        (chosen,) = estimators_of(same)
        x = np.concatenate([point[v.name] for v in same.value_vars])  # copies sort them anew
        np.testing.assert_array_equal(
            chosen.estimate(x[None], words(1)),
            estimator("poisson").estimate(POINT[None], words(1)),
        )


def test_new_values_of_pm_data_are_taken():
    with pm.Model() as model:
        b = pm.Normal("b")
        x = pm.Data("x", X)
        y = pm.Data("y", BINARY.astype(float))
        RandomEffects(
            "hit",
            effects=lambda: pm.Normal.dist(0, 1),
            emission=lambda u, i: pm.Poisson.dist(pt.exp(b * x[i] + u)),
            groups=GROUPS,
            observed=y,
        )
    assert ModelGraph(model).make_compute_graph()["hit"] == {"b", "x"}
    before = estimators_of(model)[0].estimate(np.zeros((1, 1)), words(1))
    pm.set_data({"y": COUNTS_WITHOUT_GAPS}, model=model)
    after = estimators_of(model)[0].estimate(np.zeros((1, 1)), words(1))
    assert after != before
    pm.set_data({"y": COUNTS}, model=model)
    with pytest.raises(ModelError, match="build the model anew"):
        estimators_of(model)


COUNTS_WITHOUT_GAPS = np.nan_to_num(COUNTS, nan=1.0)


# mistakes -------------------------------------------------------------------------------------


def call(**changes):
    arguments = {
        "effects": lambda: pm.Normal.dist(0, 1),
        "emission": lambda u, i: pm.Normal.dist(u, 1),
        "groups": [0, 0, 1],
        "observed": [0.1, 0.2, 0.3],
        **changes,
    }
    with pm.Model() as model:
        RandomEffects("y", **arguments)
    return model


MISTAKES = [
    ({"effects": lambda: pt.zeros(2)}, TypeError, "effects must return a distribution"),
    ({"effects": 3}, TypeError, "effects must be a function"),
    ({"emission": lambda u, i: u}, TypeError, "emission must return a distribution"),
    ({"emission": lambda u, i: pm.Normal("a", u, 1)}, BlockModelAccessError, "without a name"),
    ({"emission": lambda u, i: pm.Normal.dist(X[i], 1)}, ModelError, "must depend on the effects"),
    ({"emission": lambda u, i: pm.Normal.dist(u + X, 1)}, ValueError, "shape|broadcast"),
    ({"emission": lambda u, i: pm.Normal.dist(u[0], 1)}, ValueError, "distribution of the obs"),
    (
        {"emission": lambda u, i: pm.Normal.dist(u + pm.Normal.dist(0, 1), 1)},
        ModelError,
        "no name in the model",
    ),
    ({"effects": lambda: pm.Poisson.dist(1)}, ModelError, "must be continuous"),
    ({"groups": [0, 1]}, ValueError, "3 observations"),
    ({"groups": [0, 0.5, 1]}, ValueError, "whole numbers or labels"),
    ({"groups": ["a", None, "b"]}, ValueError, "needs a group"),
    ({"observed": [1.0, 2.0, np.inf]}, ValueError, "must be finite"),
    ({"observed": [1.0, 2.0, np.nan]}, ValueError, "1 of 2 have none, the first 1"),
    ({"observed": ["a", "b", "c"]}, TypeError, "must be numbers"),
    ({"observed": [[1.0, np.nan], [1, 1], [1, 1]]}, ValueError, "missing as a whole"),
    ({"n_particles": 1}, ValueError, "at least 2"),
    ({"n_particles": 5, "draws": "antithetic"}, ValueError, "n_particles=6"),
    ({"draws": "sobol"}, ValueError, "draws must be one of"),
]


@pytest.mark.parametrize(("changes", "kind", "message"), MISTAKES)
def test_a_mistake_is_told(changes, kind, message):
    with pytest.raises(kind, match=message):
        call(**changes)


def test_an_effect_of_another_group_is_refused():
    model = call(emission=lambda u, i: pm.Normal.dist(u - u.mean(), 1))
    with pytest.raises(ModelError, match="effect of its own group only"):
        estimators_of(model)


class Doubled(Op):
    """An operation that numba does not know and that has no gradient."""

    __props__ = ()

    def make_node(self, x):
        x = pt.as_tensor(x)
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = np.asarray(2.0 * inputs[0])


def test_slow_operations_are_named(caplog):
    with pm.Model() as model:
        b = pm.Normal("b")
        RandomEffects(
            "y",
            effects=lambda: pm.Normal.dist(0, 1),
            emission=lambda u, i: pm.Normal.dist(Doubled()(b) + u, 1),
            groups=[0, 0, 1],
            observed=[0.1, 0.2, 0.3],
        )
    with caplog.at_level(logging.WARNING, logger="pymc.pm_evidence"):
        (chosen,) = estimators_of(model)
    assert "Doubled" in caplog.text and "slow" in caplog.text
    mean, cov = np.full(2, 0.8), np.eye(2) + 1
    exact = stats.multivariate_normal.logpdf([0.1, 0.2], mean, cov)
    exact += stats.norm.logpdf(0.3, 0.8, np.sqrt(2))
    estimate = chosen.with_particles(512).estimate(np.array([[0.4]]), words(1))
    assert estimate[0] == pytest.approx(exact, abs=1e-3)


def test_a_density_without_derivatives_is_refused():
    model = call(emission=lambda u, i: pm.Normal.dist(Doubled()(u), 1))
    with pytest.raises(ModelError, match=r"second derivatives.*pe\.StateSpace"):
        estimators_of(model)


def test_seeds_must_fit():
    with pytest.raises(ValueError, match="one for every row"):
        estimator("poisson").estimate(POINT[None], words(1, 2))


# the fixture, and long runs -------------------------------------------------------------------


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
    weight = np.exp(chosen.estimate(x, words(100_000)) - poisson_glmm().log_evidence)
    assert abs(weight.mean() - 1) < 4 * weight.std() / np.sqrt(weight.size)


@pytest.mark.slow
@pytest.mark.parametrize("draws", KINDS)
@pytest.mark.parametrize("name", MODELS)
def test_the_likelihood_is_estimated_without_bias_in_long_runs(name, draws):
    chosen = replace(estimator(name), draws=draws, n_particles=8)
    estimates = chosen.estimate(at_point(10_000), words(10_000, seed=7))
    ratio = np.exp(estimates - MODELS[name][1](POINT).sum())
    assert abs(ratio.mean() - 1) < 3 * ratio.std() / 100


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
    ratio = np.exp(chosen.estimate_groups(np.zeros((10_000, 1)), words(10_000)) - exact)
    assert np.all(np.abs(ratio.mean(axis=0) - 1) < 4 * ratio.std(axis=0) / 100)
