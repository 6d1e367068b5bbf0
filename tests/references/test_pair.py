"""Two models as one target: its densities are those of the models, in every coordinate."""

import numpy as np
import pymc as pm
import pytest

from pm_evidence.paths.geometric import Posterior
from pm_evidence.references.pair import ALIGNMENTS, Alignment, LinkingDensity, PairTarget
from pm_evidence.targets.compile.numba_density import densities_with_gradients
from pm_evidence.targets.layout import PairLayout
from pm_evidence.targets.model.target import PyMCTarget

STEP = 1e-5


@pytest.fixture(scope="module", params=["numpy", "numba"])
def targets(request):
    with pm.Model() as first:
        slope = pm.Normal("slope", 0.0, 1.0, shape=2)
        angle = pm.VonMises("angle", 0.0, 1.0)
        noise = pm.HalfNormal("noise", 1.0)
        pm.Normal("y", slope.sum() + pm.math.sin(angle), noise, observed=[0.5, 1.5])
    with pm.Model() as second:
        turn = pm.VonMises("turn", 1.0, 2.0)
        noise = pm.HalfNormal("noise", 2.0)
        slope = pm.Normal("slope", 0.5, 2.0, shape=3)
        pm.Normal("y", slope.sum() + pm.math.cos(turn), noise, observed=[0.5, 1.5])
    return tuple(PyMCTarget(model, backend=request.param) for model in (first, second))


def paired(targets, kind, seed=1):
    """The pair with densities that are fitted to any draws."""
    rng, layout = np.random.default_rng(seed), PairLayout.of(*targets)
    x = rng.standard_normal((400, layout.n_dim)) @ rng.normal(size=(layout.n_dim, layout.n_dim))
    alignment = Alignment.of(kind, x[:, layout.aligned], 2.0 * x[::-1, layout.aligned] + 1.0)
    linking = []
    for own in layout.own[::-1]:
        circular = layout.period[own] > 0.0
        linking.append(LinkingDensity.to(x, own[~circular], layout.aligned, own[circular]))
    return PairTarget(targets, layout, linking, alignment)


@pytest.mark.parametrize("kind", ALIGNMENTS)
def test_densities_are_those_of_the_models(targets, kind):
    """The density of each model, times that of the coordinates that it lacks, and the volume."""
    pair, rng = paired(targets, kind), np.random.default_rng(2)
    for side, model in enumerate(targets):
        own = rng.standard_normal((20, model.n_dim))
        x = pair.completed(own, side, rng)
        log_density = pair.evaluate(x).log_density
        found = log_density[:, 0] if side == 0 else log_density.sum(axis=1)
        linking = pair.linking[side]
        predicted = linking.location + x[:, linking.given] @ linking.slope.T
        expected = Posterior(model).log_density(own)
        if linking.own.size:
            expected = expected + linking.rest.log_density(x[:, linking.own] - predicted)
        expected = expected - linking.circular.size * np.log(2.0 * np.pi)
        if side == 1:
            expected = expected + pair.alignment.log_volume
        np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("kind", ALIGNMENTS)
def test_gradients_are_those_of_the_values(targets, kind):
    pair, rng = paired(targets, kind), np.random.default_rng(3)
    x = pair.completed(rng.standard_normal((3, targets[0].n_dim)), 0, rng)
    _, gradient = densities_with_gradients(pair, x)
    for j in range(pair.n_dim):
        step = STEP * np.eye(pair.n_dim)[j]
        up, down = (pair.evaluate(x + sign * step).log_density for sign in (1.0, -1.0))
        np.testing.assert_allclose(gradient[:, :, j], (up - down) / (2 * STEP), atol=1e-5)


def test_the_linking_density_is_that_of_its_draws():
    """The mean of the inverse density over draws is the volume of a box that holds them all."""
    rng, own, given = np.random.default_rng(4), np.array([1]), np.array([0])
    x = rng.standard_normal((2000, 2)) @ [[1.0, 0.8], [0.0, 0.6]]
    linking = LinkingDensity.to(x, own, given, np.array([], np.int64))
    np.testing.assert_allclose(linking.slope, [[0.8]], atol=0.05)
    drawn = np.column_stack([np.full(4000, 1.5), np.zeros(4000)])
    linking.draw_into(drawn, rng)
    rest = drawn[:, 1] - linking.location - linking.slope[0] * 1.5
    inside = np.abs(rest) < 1.0
    log_density = linking.rest.log_density(rest[inside, None])
    np.testing.assert_allclose(np.exp(-log_density).sum() / 4000, 2.0, rtol=0.05)


@pytest.mark.parametrize("kind", ALIGNMENTS)
def test_the_alignment_gives_draws_the_moments_of_others(kind):
    rng = np.random.default_rng(5)
    one, other = (rng.standard_normal((5000, 3)) @ rng.normal(size=(3, 3)) + k for k in (1, 2))
    found = Alignment.of(kind, one, other)
    back = found.back(other)
    if kind == "none":
        np.testing.assert_array_equal(back, other)
        return
    np.testing.assert_allclose(back.mean(axis=0), one.mean(axis=0), atol=1e-6)
    expected, cov = np.cov(one.T), np.cov(back.T)
    if kind == "scales":
        expected, cov = np.diag(expected), np.diag(cov)
    np.testing.assert_allclose(cov, expected, rtol=0.05, atol=0.02)
