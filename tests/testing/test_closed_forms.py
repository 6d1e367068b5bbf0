"""Closed forms of marginal likelihoods against SciPy's densities and plain sums."""

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

from pm_evidence.testing.systems import (
    log_mvnormal,
    log_normal,
    log_normal_group,
    log_poisson_gamma,
)
from tests.systems.closed_forms import (
    log_bernoulli_beta,
    log_normal_inverse_gamma,
    normal_posterior,
)

every_seed = pytest.mark.parametrize("seed", range(3))


@every_seed
def test_normal_densities(seed):
    rng = np.random.default_rng(seed)
    x, mean, sd = rng.normal(size=5), rng.normal(size=5), rng.uniform(0.1, 3.0, 5)
    np.testing.assert_allclose(log_normal(x, mean, sd), stats.norm.logpdf(x, mean, sd), rtol=1e-12)
    root = rng.normal(size=(5, 5))
    cov = root @ root.T + np.eye(5)
    exact = stats.multivariate_normal(mean, cov).logpdf(x)
    assert log_mvnormal(x, mean, cov) == pytest.approx(exact, rel=1e-12)


@every_seed
def test_a_group_with_a_common_mean_is_a_multivariate_normal(seed):
    rng = np.random.default_rng(seed)
    y, variance, prior_sd = rng.normal(size=6), rng.uniform(0.1, 2.0, 6), rng.uniform(0.1, 5.0)
    cov = np.diag(variance) + prior_sd**2
    exact = stats.multivariate_normal(np.zeros(6), cov).logpdf(y)
    assert log_normal_group(y, variance, prior_sd) == pytest.approx(exact, rel=1e-10)
    # some observations left out
    included = np.array([1, 0, 1, 1, 0, 1])
    kept = included == 1
    exact = stats.multivariate_normal(np.zeros(4), cov[np.ix_(kept, kept)]).logpdf(y[kept])
    assert log_normal_group(y, variance, prior_sd, included) == pytest.approx(exact, rel=1e-10)


def test_the_posterior_of_a_normal_mean():
    """Two data of variance 1 and a prior of variance 1/2: precision 4, mean a quarter of the sum.

    Without the second datum the precision is 3.
    """
    mean, sd = normal_posterior([1.0, 3.0], 1.0, np.sqrt(0.5))
    assert (mean, sd) == (pytest.approx(1.0), pytest.approx(0.5))
    mean, sd = normal_posterior([1.0, 3.0], 1.0, np.sqrt(0.5), [1, 0])
    assert (mean, sd) == (pytest.approx(1 / 3), pytest.approx(3**-0.5))


@every_seed
def test_regression_is_a_multivariate_student_t(seed):
    """With the coefficients and the variance integrated out the data have Student's density."""
    rng = np.random.default_rng(seed)
    n, p = 7, 2
    design, mean, y = rng.normal(size=(n, p)), rng.normal(size=p), rng.normal(size=n)
    root = rng.normal(size=(p, p))
    precision = root @ root.T + np.eye(p)
    shape, rate = rng.uniform(1.0, 4.0, 2)
    scale = rate / shape * (np.eye(n) + design @ np.linalg.solve(precision, design.T))
    exact = stats.multivariate_t(design @ mean, scale, df=2.0 * shape).logpdf(y)
    found = log_normal_inverse_gamma(y, design, mean, precision, shape, rate)
    assert found == pytest.approx(exact, rel=1e-10)


def test_counts_with_a_gamma_mean():
    counts, shape, rate = np.array([3, 0, 2]), 1.5, 0.7

    def joint(mean):
        likelihood = stats.poisson.pmf(counts, mean).prod()
        return likelihood * stats.gamma.pdf(mean, shape, scale=1.0 / rate)

    exact = np.log(quad(joint, 0.0, 50.0, epsabs=0.0, epsrel=1e-10)[0])
    assert log_poisson_gamma(counts, shape, rate) == pytest.approx(exact, rel=1e-9)


def test_trials_with_a_beta_probability():
    """Uniform prior: ``s! f! / (s + f + 1)!``."""
    assert log_bernoulli_beta(3, 2, 1.0, 1.0) == pytest.approx(np.log(6 * 2 / 720))
    both = log_bernoulli_beta([0, 1], [1, 0], 2.0, 6.0)
    np.testing.assert_allclose(np.exp(both), [0.75, 0.25])
