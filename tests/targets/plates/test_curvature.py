"""Second derivatives by the terms of a density are those of its gradient, and none is missed."""

import numpy as np
import pymc as pm
import pytest
import scipy.sparse as sp

from pm_evidence.core import numerics
from pm_evidence.core.exceptions import ModelError
from pm_evidence.paths.geometric import Posterior
from pm_evidence.samplers import conditional
from pm_evidence.samplers.conditional import KnownSparsity
from pm_evidence.targets.model.target import PyMCTarget
from pm_evidence.targets.plates.curvature import Curvature

RNG = np.random.default_rng(48)


def crossed(sizes, n_rows):
    """Poisson counts about the sum of a common mean and of an effect of each factor."""
    with pm.Model() as model:
        eta = pm.Normal("mean", 0, 1)
        for k, size in enumerate(sizes):
            effect = pm.Normal(f"effect{k}", 0, pm.HalfNormal(f"scale{k}", 1), shape=size)
            eta = eta + effect[RNG.integers(size, size=n_rows)]
        pm.Poisson("y", pm.math.exp(eta), observed=RNG.poisson(2.0, n_rows))
    return model


def walk(n):
    with pm.Model() as model:
        start = pm.Normal.dist(0, 1)
        x = pm.GaussianRandomWalk("x", 0, pm.HalfNormal("step", 1), init_dist=start, steps=n - 1)
        pm.Poisson("y", pm.math.exp(x), observed=RNG.poisson(2.0, n))
    return model


def second_differences(n):
    """A smooth trend, of which a sum is observed too."""
    with pm.Model() as model:
        x = pm.Normal("x", 0, 2, shape=n)
        pm.Potential("smooth", pm.logp(pm.Normal.dist(0, 0.3), x[2:] - 2.0 * x[1:-1] + x[:-2]))
        pm.Normal("y", x[::3], 1, observed=RNG.normal(size=len(range(0, n, 3))))
        pm.Normal("sum", x[:4].sum(), 1, observed=1.0)
    return model


def regression(n):
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=n)
        pm.Normal("y", pm.math.dot(RNG.normal(size=(50, n)), beta), 1, observed=RNG.normal(size=50))
    return model


def known(model):
    target = PyMCTarget(model, backend="numpy")
    return target, Curvature.of(target, np.arange(target.n_dim))


@pytest.mark.parametrize(
    ("model", "n_groups"),
    [(crossed((7, 5), 40), 5), (crossed((6, 4, 3), 40), 7), (walk(12), 3)],
    ids=["two factors", "three factors", "walk"],
)
def test_second_derivatives_are_those_of_the_gradient(model, n_groups):
    target, curvature = known(model)
    x = target.finite_prior_points(1, np.random.SeedSequence(2))[0]
    d = x.size
    found = sp.coo_array((curvature.at(x, np.full(d, 0.3)), (curvature.row, curvature.column)))
    found = found.toarray() + np.tril(found.toarray(), -1).T
    step = 1e-5 * np.eye(d)
    gradient = Posterior(target).gradient
    exact = -(gradient(x + step) - gradient(x - step)) / 2e-5
    np.testing.assert_allclose(found, exact, rtol=1e-3, atol=1e-4 * np.abs(exact).max())
    assert curvature.group.max() + 1 <= n_groups


def test_sums_of_several_neighbours():
    """Groups are divided until no number depends on two variables of one."""
    curvature = known(second_differences(30))[1]
    assert (np.unique(curvature.group[:4]).size, curvature.group.max()) == (4, 3)
    lower = sp.coo_array((np.ones(curvature.row.size), (curvature.row, curvature.column)))
    expected = np.tril(np.abs(np.subtract.outer(np.arange(30), np.arange(30))) <= 2)
    expected[3, 0] = True
    np.testing.assert_array_equal(lower.toarray() > 0, expected)


def test_terms_of_all_variables():
    """Each group would have a single variable."""
    assert known(regression(40))[1] is None


@pytest.mark.parametrize("model", [crossed((40, 30), 300), walk(200)], ids=["crossed", "walk"])
def test_factors(model):
    target = PyMCTarget(model, backend="numpy")
    curvature = target.curvature
    known = KnownSparsity.of(curvature)
    x = target.finite_prior_points(1, np.random.SeedSequence(2))[0]
    lengths = RNG.uniform(0.1, 0.3, curvature.positions.size)
    diagonal, below = known.elements(x, lengths[known.order])
    whole = sp.coo_array((curvature.at(x, lengths), (curvature.row, curvature.column))).toarray()
    whole = (whole + np.tril(whole, -1).T)[np.ix_(known.order, known.order)]
    assert numerics.factorise(known.pattern, diagonal, below)
    factor = np.diag(diagonal)
    factor[known.pattern.row, known.pattern.column] = below
    np.testing.assert_allclose(factor @ factor.T, whole, atol=1e-8 * np.abs(whole).max())
    assert (np.abs(known.directions()).sum(axis=0) == 1.0).all()


def test_factors_that_are_too_large(monkeypatch):
    monkeypatch.setattr(conditional, "_MOST_KNOWN", 100)
    curvature = PyMCTarget(crossed((40, 30), 300), backend="numpy").curvature
    with pytest.raises(ModelError, match=r"71 variables has .* more than 100.*methods\.SMC\(\)"):
        KnownSparsity.of(curvature)
