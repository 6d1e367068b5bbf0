"""Densities that users write down: checked, and the densities they say."""

import numpy as np
import pytest
from scipy import stats

import pm_evidence as pe
from pm_evidence.references.density import check_reference
from tests.estimators.refusals import check_refused
from tests.references.densities import InPython, references

COVARIANCE = np.array([[2.0, 0.6], [0.6, 0.5]])
POINTS = np.random.default_rng(1).normal(size=(20, 2))


def test_densities_are_those_of_scipy():
    """A wrong constant would shift the evidence of every run that starts from the density."""
    mean, plain = [1.0, -2.0], [2.0, 0.5]
    for found, exact in (
        (pe.references.Normal(mean, COVARIANCE), stats.multivariate_normal(mean, COVARIANCE)),
        (pe.references.Normal(mean, plain), stats.multivariate_normal(mean, plain)),
        (pe.references.StudentT(mean, COVARIANCE, dof=3.5),
         stats.multivariate_t(mean, COVARIANCE, df=3.5)),
    ):  # fmt: skip
        np.testing.assert_allclose(found.log_density(POINTS), exact.logpdf(POINTS), rtol=1e-12)


def test_mixture_weighs_its_components():
    """Wrong weights would make the mixture another density than its draws have."""
    parts = [pe.references.Normal([-3.0], [1.0]), pe.references.StudentT([3.0], [0.5], dof=4)]
    mixture = pe.references.Mixture(parts, [1.0, 3.0])
    x = np.linspace(-6.0, 6.0, 9)
    exact = 0.25 * stats.norm(-3.0).pdf(x) + 0.75 * stats.t(4, 3.0, np.sqrt(0.5)).pdf(x)
    np.testing.assert_allclose(np.exp(mixture.log_density(x[:, None])), exact, rtol=1e-12)
    draws = mixture.draw(20_000, np.random.default_rng(2))
    assert abs((draws > 0.0).mean() - 0.75) < 0.02  # six standard errors


def test_draws_have_the_moments_of_the_density():
    """Draws of another density than the stated one would bias the evidence."""
    normal = pe.references.Normal([1.0, -2.0], COVARIANCE)
    draws = normal.draw(40_000, np.random.default_rng(3))
    np.testing.assert_allclose(draws.mean(axis=0), [1.0, -2.0], atol=0.04)
    np.testing.assert_allclose(np.cov(draws.T), COVARIANCE, atol=0.1)


def test_improper_densities_are_refused():
    """Compiled code would divide by zero, or read beyond the factor."""
    cases = [
        ([0.0, 0.0], [[1.0, 2.0], [2.0, 1.0]], "positive definite, got a least eigenvalue of -1"),
        ([0.0, 0.0], [[1.0, 0.5], [0.4, 1.0]], "symmetric"),
        ([0.0, 0.0], np.eye(3), r"shape \(2, 2\) or \(2,\)"),
        ([0.0, 0.0], [1.0, 0.0], "diagonal entries above 0"),
        ([0.0, 0.0], [[1.0, np.nan], [np.nan, 1.0]], "finite, got nan"),
        ([0.0, np.inf], np.eye(2), "finite, got inf"),
        ([], np.eye(2), "at least one number"),
        (["a"], [[1.0]], "mean"),
    ]
    given = [((mean, covariance), problem) for mean, covariance, problem in cases]
    check_refused(pe.references.Normal, given, (ValueError, TypeError))


def test_other_fields_are_checked():
    """A wrong field would be found only inside of a run, without its name."""
    one = pe.references.Normal([0.0], [1.0])
    with pytest.raises(ValueError, match="dof must be a finite number above 0, got -1"):
        pe.references.StudentT([0.0], [1.0], dof=-1)
    with pytest.raises(ValueError, match="components must be a list of densities"):
        pe.references.Mixture([])
    with pytest.raises(TypeError, match=r"components\[1\] must be a density, got 3"):
        pe.references.Mixture([one, 3])
    with pytest.raises(ValueError, match="same dimension"):
        pe.references.Mixture([one, pe.references.Normal([0.0, 0.0], [1.0, 1.0])])
    with pytest.raises(ValueError, match="weights must be 2 finite numbers"):
        pe.references.Mixture([one, one], [1.0])


# --- densities of users, which are checked before they are used ---

NORMAL = references(2)["normal"]


class Short(InPython):
    def draw(self, n, rng):
        return self.density.draw(n, rng)[:, 0]


class Infinite(InPython):
    def log_density(self, x):
        return np.full(len(x), -np.inf)


class Whole(InPython):
    def log_density(self, x):
        return float(self.density.log_density(x).sum())


def test_objects_that_break_the_contract_are_refused():
    """Weights of the wrong shape would be broadcast without a sign."""
    check_reference(InPython(NORMAL), 2)
    wrong = {Short: "draw", Infinite: "log_density", Whole: "log_density"}
    cases = [((kind(NORMAL), 2), rf"reference\.{method}") for kind, method in wrong.items()]
    check_refused(check_reference, cases)
