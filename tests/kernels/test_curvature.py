"""The metric of the curvature: where it is used, and what it is worth."""

import numpy as np
import pymc as pm
import pytest

from pm_evidence.core.random import streams
from pm_evidence.core.shape import learn_shape
from pm_evidence.kernels.cycle import Cycle
from pm_evidence.kernels.hmc import HMC, curvature, shape_of_curvature
from pm_evidence.paths.geometric import GeometricPath
from pm_evidence.targets.model.cache import target_of
from pm_evidence.testing.checks import check_invariance
from tests.systems.exact import deceptive_systems

D = 40


@pytest.fixture(scope="module")
def precise():
    """A normal posterior with strong correlations: a smooth curve of 40 points, and its path."""
    apart = np.subtract.outer(np.arange(D), np.arange(D))
    prior = np.exp(-0.5 * (apart / 5.0) ** 2) + 1e-3 * np.eye(D)
    with pm.Model() as model:
        f = pm.MvNormal("f", np.zeros(D), prior)
        pm.Normal("y", f, 1.0, observed=np.sin(np.arange(D) / 6.0))
    return GeometricPath(target_of(model)), prior


def population(path, prior, beta, n, seed):
    """Exact draws of the posterior at ``beta``."""
    covariance = np.linalg.inv(np.linalg.inv(prior) + beta * np.eye(D))
    mean = covariance @ (beta * np.sin(np.arange(D) / 6.0))
    x = np.random.default_rng(seed).multivariate_normal(mean, covariance, n)
    return path.target.evaluate(x), np.linalg.inv(covariance)


@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
def test_the_curvature_of_a_normal_density_is_its_precision(precise, beta):
    path, prior = precise
    state, precision = population(path, prior, beta, 50, seed=1)
    scale = np.linspace(0.5, 2.0, D)
    found, spent = curvature(path.target, state, beta, scale)
    assert np.allclose(found, precision * np.outer(scale, scale), rtol=1e-4, atol=1e-3)
    assert spent == 4 * (D + 1)


def test_a_small_population_gets_the_metric_of_the_curvature(precise):
    """Its own 100 members do not show the correlations, which limit the steps."""
    path, prior = precise
    state, precision = population(path, prior, 1.0, 100, seed=2)
    kernel = HMC(step_size=0.05).learn(path, state)
    curved, spent = kernel.with_curvature(path, state, 1.0)
    assert not kernel.shape.is_dense and curved.shape.is_dense and spent > 0
    assert curved.curved and curved.step_size > 4.0 * kernel.step_size
    whitened = curved.shape.factor.T @ precision @ curved.shape.factor
    assert np.linalg.eigvalsh(whitened).min() > 0.2
    assert np.linalg.eigvalsh(whitened).max() < 1.001
    again, _ = curved.learn(path, state).with_curvature(path, state, 1.0)
    assert again.curved and again.step_size == pytest.approx(curved.step_size)


def test_steps_that_are_long_enough_cost_nothing(precise):
    path, prior = precise
    state, _ = population(path, prior, 1.0, 100, seed=2)
    for kernel in (HMC(step_size=0.5), HMC(step_size=0.05, dense=False), HMC(step_size=0.05)):
        learnt = kernel if kernel == HMC(step_size=0.05) else kernel.learn(path, state)
        assert learnt.with_curvature(path, state, 1.0) == (learnt, 0)


@pytest.mark.parametrize("name", ["banana", pytest.param("separated", marks=pytest.mark.slow)])
def test_bent_and_separate_regions_keep_their_own_scales(name):
    """The curvature inside a region says nothing on how far it reaches."""
    model = deceptive_systems()[name].build()
    path = GeometricPath(target_of(model))
    state = path.draw(400, np.random.SeedSequence(3))
    chains = streams(np.random.SeedSequence(4), 400)
    kernel = HMC(dense=False).learn(path, state)
    for beta in (0.01, 0.03, 0.1, 0.3, 1.0):
        for _ in range(20):
            state, info = kernel.advance(path, state, beta, chains)
            kernel = kernel.adjust(info)
        kernel = kernel.learn(path, state)
    diagonal = learn_shape(state.x, dense=False)
    found, _ = curvature(path.target, state, 1.0, diagonal.factor[:, 0])
    assert shape_of_curvature(state.x, diagonal, found)[0] is None


def test_a_density_of_zero_beside_a_point_has_no_curvature():
    diagonal = learn_shape(np.random.default_rng(5).standard_normal((50, 2)), dense=False)
    found = np.array([[1.0, np.nan], [np.nan, 1.0]])
    assert shape_of_curvature(np.zeros((50, 2)), diagonal, found) == (None, 1.0)


def test_members_that_are_copies_of_one_another():
    """They have no variance of their own, and get that of the curvature."""
    x = np.ones((50, 2))
    diagonal = learn_shape(x, dense=False)
    shape, _ = shape_of_curvature(x, diagonal, np.diag([4.0, 100.0]))
    assert shape is not None and np.all(np.diag(shape.factor) > 0.0)


@pytest.mark.slow
def test_the_metric_leaves_the_density_invariant(precise):
    path, prior = precise
    state, _ = population(path, prior, 0.5, 1000, seed=6)
    small, _ = population(path, prior, 0.5, 100, seed=7)
    kernel, spent = HMC(step_size=0.1).learn(path, small).with_curvature(path, small, 0.5)
    assert spent
    assert check_invariance(kernel, path, state, 0.5, seed=8).passed


def test_a_cycle_passes_it_to_its_parts(precise):
    path, prior = precise
    state, _ = population(path, prior, 1.0, 100, seed=2)
    cycle = Cycle((HMC(step_size=0.05),)).learn(path, state)
    curved, spent = cycle.with_curvature(path, state, 1.0)
    assert spent > 0 and curved.parts[0].curved
