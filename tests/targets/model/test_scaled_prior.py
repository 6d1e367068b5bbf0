"""Factors of the spread of priors: draws move away from the location by the factor, and no more."""

import numpy as np
import pymc as pm
import pytest

from pm_evidence.core.exceptions import ModelError
from pm_evidence.targets.model.derived import SCALABLE, scaled_prior

# Each distribution and the location that its draws are scaled about.
DISTRIBUTIONS = {
    "Normal": (lambda: pm.Normal.dist(1.0, 2.0), 1.0),
    "HalfNormal": (lambda: pm.HalfNormal.dist(2.0), 0.0),
    "StudentT": (lambda: pm.StudentT.dist(nu=4, mu=1.0, sigma=2.0), 1.0),
    "HalfStudentT": (lambda: pm.HalfStudentT.dist(4, 2.0), 0.0),
    "Cauchy": (lambda: pm.Cauchy.dist(1.0, 2.0), 1.0),
    "HalfCauchy": (lambda: pm.HalfCauchy.dist(2.0), 0.0),
    "Laplace": (lambda: pm.Laplace.dist(1.0, 2.0), 1.0),
    "Logistic": (lambda: pm.Logistic.dist(1.0, 2.0), 1.0),
    "Gumbel": (lambda: pm.Gumbel.dist(1.0, 2.0), 1.0),
    "Moyal": (lambda: pm.Moyal.dist(1.0, 2.0), 1.0),
    "SkewNormal": (lambda: pm.SkewNormal.dist(mu=1.0, sigma=2.0, alpha=3.0), 1.0),
    "Exponential": (lambda: pm.Exponential.dist(0.5), 0.0),
    "Gamma": (lambda: pm.Gamma.dist(2.0, 0.5), 0.0),
    "InverseGamma": (lambda: pm.InverseGamma.dist(3.0, 2.0), 0.0),
    "Weibull": (lambda: pm.Weibull.dist(2.0, 3.0), 0.0),
    "Uniform": (lambda: pm.Uniform.dist(-1.0, 4.0), 1.5),
    "MvNormal": (lambda: pm.MvNormal.dist(np.ones(2), [[2.0, 0.5], [0.5, 1.0]]), 1.0),
    "ZeroSumNormal": (lambda: pm.ZeroSumNormal.dist(2.0, shape=(2, 3)), 0.0),
}


def named(rv):
    rv.name = "x"
    return rv


def density(rv, value):
    return float(pm.logp(rv, value).sum().eval(mode="FAST_COMPILE"))


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_the_density_is_that_of_scaled_draws(name):
    """The density of ``location + f (x - location)`` at a draw is the old one less ``d log f``."""
    build, location = DISTRIBUTIONS[name]
    rv = named(build())
    new = scaled_prior(rv, 3.0)
    assert new.type.shape == rv.type.shape
    x = pm.draw(rv, random_seed=1, mode="FAST_COMPILE")
    moved = location + 3.0 * (x - location)
    n_dim = {"ZeroSumNormal": 4}.get(name, np.size(x))  # three values per row that sum to zero
    expected = density(rv, x) - n_dim * np.log(3.0)
    assert density(new, moved) == pytest.approx(expected, rel=1e-6)
    assert name in SCALABLE


def test_the_logarithm_of_a_lognormal_is_scaled():
    rv = named(pm.LogNormal.dist(1.0, 0.5))
    x = 2.3
    moved = np.exp(1.0 + 2.0 * (np.log(x) - 1.0))
    expected = density(rv, x) + np.log(x) - np.log(2.0) - np.log(moved)
    assert density(scaled_prior(rv, 2.0), moved) == pytest.approx(expected)


def test_a_scale_that_depends_on_other_variables_is_multiplied():
    with pm.Model() as model:
        tau = pm.HalfNormal("tau", 1.0)
        theta = pm.Normal("theta", 0.0, tau, shape=3)
    new = scaled_prior(theta, 0.5)
    graphs = [pm.logp(rv, np.ones(3)).sum() for rv in (new, pm.Normal.dist(0.0, 1.0, shape=3))]
    found, expected = (
        graph.eval(values, mode="FAST_COMPILE")
        for graph, values in zip(graphs, ({tau: 2.0}, {}), strict=True)
    )
    assert found == pytest.approx(expected)
    assert model["tau"] is tau


@pytest.mark.parametrize(
    "build", [lambda: pm.Beta.dist(2.0, 2.0), lambda: pm.Dirichlet.dist(np.ones(3))]
)
def test_a_distribution_without_a_scale_is_refused(build):
    with pytest.raises(ModelError, match=r"priors\['x'\] must hold distributions instead of fac"):
        scaled_prior(named(build()), 2.0)
