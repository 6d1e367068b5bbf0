"""The variables of a model whose scale is itself a free variable."""

import numpy as np
import pymc as pm
import pytest
from pymc.distributions.transforms import Ordered

from pm_evidence.targets.model.coordinates import location_scale_variables

ORDERED = {"transform": Ordered(), "initval": [-1, 0, 1]}


def factor(t):
    """A Cholesky factor of a covariance."""
    return pm.math.stack([pm.math.stack([t, 0.0]), pm.math.stack([0.5 * t, 2.0])])


def found_in(build):
    """Names of the variables that are found beside the scale ``t`` and the location ``m``."""
    with pm.Model() as model:
        t, m = pm.HalfNormal("t"), pm.Normal("m", 0, 1)
        build(t, m)
    return [found.rv.name for found in location_scale_variables(model)]


@pytest.mark.parametrize(
    "build",
    [
        lambda t, m: pm.Normal("x", m, t, shape=3),
        lambda t, m: pm.Normal("x", 0, tau=1 / t**2),
        lambda t, m: pm.StudentT("x", nu=4, mu=m, sigma=t, shape=3),
        lambda t, m: pm.Laplace("x", m, t),
        lambda t, m: pm.LogNormal("x", m, t, shape=3),
        lambda t, m: pm.ZeroSumNormal("x", sigma=t, shape=3),
        lambda t, m: pm.GaussianRandomWalk("x", sigma=t, init_dist=pm.Normal.dist(), steps=3),
        lambda t, m: pm.AR("x", [0.5], sigma=t, init_dist=pm.Normal.dist(0, t), steps=3),
        lambda t, m: pm.MvNormal("x", m, chol=factor(t), shape=(3, 2)),
        lambda t, m: pm.MvNormal("x", m, chol=factor(t).T, lower=False),
        lambda t, m: pm.Gamma("x", t, 2.0),
        lambda t, m: pm.Gamma("x", mu=pm.math.exp(m), sigma=1.0),
        lambda t, m: pm.Beta("x", 2.0, t, shape=3),
    ],
)
def test_variables_are_found(build):
    """Group effects of this distribution would be sampled in the coordinates of a funnel."""
    assert found_in(build) == ["x"]


@pytest.mark.parametrize(
    "build",
    [
        lambda t, m: pm.Normal("x", m, 2.0),  # a location alone makes no funnel
        lambda t, m: pm.Gamma("x", 2.0, t),
        lambda t, m: pm.Beta("x", t, t, transform=pm.distributions.transforms.Interval(0, 1)),
        lambda t, m: pm.Normal("x", 0, 1, observed=0.5),
        lambda t, m: pm.Normal("x", 0, t, shape=3, **ORDERED),
        lambda t, m: pm.TruncatedNormal("x", 0, t, lower=0),
        lambda t, m: pm.Normal("x", pm.Bernoulli("b", 0.5), t),
        lambda t, m: pm.AR("x", [0.5], sigma=t, init_dist=pm.Normal.dist(), steps=3),
        lambda t, m: pm.GaussianRandomWalk("x", sigma=t, init_dist=pm.Normal.dist(), shape=(2, 4)),
        lambda t, m: pm.GaussianRandomWalk(
            "x", sigma=t * [1.0, 2.0, 3.0], init_dist=pm.Normal.dist(), steps=3
        ),
        lambda t, m: pm.MvNormal("x", m, cov=t * np.eye(2)),  # may have no factor
        lambda t, m: pm.MvNormal("x", [m, m], chol=np.eye(2)),
        lambda t, m: pm.MvNormal("x", [m, m], chol=pm.math.stack([factor(t)] * 3)),
    ],
)
def test_other_variables_are_not(build):
    """A variable would be transformed whose value is no location plus scale times noise."""
    assert found_in(build) == []


def test_parents_come_first():
    """The location of nested effects would be computed from untransformed coordinates."""
    with pm.Model() as model:
        t, s = pm.HalfNormal("t"), pm.HalfNormal("s")
        region = pm.Normal("region", 0, t, shape=2)
        pm.Normal("county", region[[0, 0, 1]], s)
    assert [found.rv.name for found in location_scale_variables(model)] == ["region", "county"]


def test_the_start_of_a_walk_has_its_own_scale():
    """A vague start would be divided by the small steps of the walk, which makes a new funnel."""
    with pm.Model() as model:
        t = pm.HalfNormal("t")
        pm.GaussianRandomWalk("x", sigma=t, init_dist=pm.Normal.dist(0, 9), steps=3)
        pm.GaussianRandomWalk("y", sigma=t, init_dist=pm.Normal.dist(0, t), steps=3)
    walk, scaled = location_scale_variables(model)
    assert walk.anchored and not scaled.anchored
    assert walk.n_scaled == 3 and scaled.n_scaled == 4
