"""Default tests: Bayes factors equal the integrals that R's BayesFactor computes.

The integrals are those of Rouder et al. (2009), Eq. 1, Rouder et al. (2012), Liang et al. (2008)
and Ly et al. (2016), by quadrature over the one or two variables that have no closed form.
"""

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import expit

from examples import default_tests as default

SEED = 3


def over_variance(log_ratio, shape, rate):
    """Log of the mean of a ratio over an inverse gamma prior, substituted by its quantiles."""
    prior = stats.invgamma(shape, scale=rate)
    value = integrate.quad(
        lambda u: np.exp(log_ratio(prior.ppf(u))), 0.0, 1.0, limit=500, epsabs=1e-12, epsrel=1e-9
    )[0]
    return np.log(value)


def log_t_factor(t, n, dof, scale):
    """Of the null against the alternative: Rouder et al. (2009), Eq. 1, with any scale."""

    def log_ratio(g):
        spread = 1.0 + n * g * scale**2
        return -0.5 * np.log(spread) - 0.5 * (dof + 1) * np.log1p(t**2 / spread / dof)

    null = -0.5 * (dof + 1) * np.log1p(t**2 / dof)
    return null - over_variance(log_ratio, 0.5, 0.5)


def log_linear_factor(y, columns, scale):
    """Of the null: effects with a multivariate Cauchy prior, a flat mean, Jeffreys's variance."""
    n = len(y)

    def log_marginal(g):
        precision = np.linalg.inv(np.eye(n) + g * columns @ columns.T)
        ones = precision.sum()
        rest = y @ precision @ y - (precision @ y).sum() ** 2 / ones
        half = 0.5 * (np.linalg.slogdet(precision)[1] - np.log(ones))
        return half - 0.5 * (n - 1) * np.log(rest)

    null = log_marginal(0.0)
    return -over_variance(lambda g: log_marginal(g) - null, 0.5, 0.5 * scale**2)


def log_correlation_factor(r, n, scale):
    """Of the null: the likelihood of a correlation with Jeffreys's priors of all else."""

    def likelihood(rho):
        inner = integrate.quad(lambda t: (np.cosh(t) - rho * r) ** (1.0 - n), 0.0, 20.0)[0]
        return (1.0 - rho**2) ** (0.5 * (n - 1)) * inner

    prior = stats.beta(1 / scale, 1 / scale, loc=-1.0, scale=2.0)
    value = integrate.quad(lambda rho: prior.pdf(rho) * likelihood(rho), -1.0, 1.0)[0]
    return np.log(likelihood(0.0) / value)


def log_proportion_factor(k, n, scale):
    prior = stats.logistic(0.0, scale)
    value = integrate.quad(lambda e: prior.pdf(e) * stats.binom(n, expit(e)).pmf(k), -30.0, 30.0)[0]
    return stats.binom(n, 0.5).logpmf(k) - np.log(value)


def test_the_references_agree_with_each_other():
    """The t test is the regression on one column: two formulas for the same integral."""
    x, y = np.random.default_rng(1).normal(0.4, 1.0, (2, 12))
    both, side = np.concatenate([x, y]), np.repeat([[0.5], [-0.5]], 12, axis=0)
    t, scale = stats.ttest_ind(x, y).statistic, np.sqrt(0.5)
    one = log_t_factor(t, 6.0, 22, scale)
    assert log_linear_factor(both, side, scale) == pytest.approx(one, abs=1e-6)
    # Liang et al. (2008), Eq. 6, for a regression on standardised columns
    design = np.column_stack([np.ones(12), x])
    rest = np.linalg.lstsq(design, y, rcond=None)[1][0]
    share = 1.0 - rest / ((y - y.mean()) ** 2).sum()

    def log_ratio(g):
        return 5.0 * np.log1p(g) - 5.5 * np.log1p(g * (1.0 - share))

    column = (x - x.mean())[:, None] / x.std()
    wanted = -over_variance(log_ratio, 0.5, 0.5 * 12 / 8)
    assert log_linear_factor(y, column, np.sqrt(2) / 4) == pytest.approx(wanted, abs=1e-6)


def data():
    rng = np.random.default_rng(1)
    x = rng.normal(0.4, 1.0, 30)
    return x, rng.normal(0.0, 1.0, 30)


GROUP = np.repeat(["a", "b", "c"], 10)


def one_sample():
    x, _ = data()
    t = stats.ttest_1samp(x, 0.0).statistic
    return default.t_test(x), {"effect": 0.0}, log_t_factor(t, 30, 29, np.sqrt(0.5))


def two_samples():
    x, y = data()
    t = stats.ttest_ind(x, y).statistic
    return default.t_test(x, y), {"effect": 0.0}, log_t_factor(t, 15, 58, np.sqrt(0.5))


def groups():
    x, _ = data()
    design = (GROUP[:, None] == np.unique(GROUP)).astype(float)
    # contrasts Q with Q Q' = I - 1/3, so that only this product matters
    centred = design @ (np.eye(3) - 1.0 / 3.0)
    return default.anova(x, GROUP), {"effect": 0.0}, log_linear_factor(x, centred, 0.5)


def covariates():
    x, y = data()
    columns = np.column_stack([y, y**2])
    whitened = np.sqrt(30) * np.linalg.qr(columns - columns.mean(axis=0))[0]
    exact = log_linear_factor(x, whitened, np.sqrt(2) / 4)
    return default.regression(x, columns), {"effect": 0.0}, exact


def correlated():
    x, y = data()
    exact = log_correlation_factor(np.corrcoef(x, y)[0, 1], 30, 1 / 3)
    return default.correlation(x, y), {"half": 0.5}, exact


def successes():
    exact = log_proportion_factor(18, 30, 0.5)
    return default.proportion(18, 30), {"log_odds": 0.0}, exact


@pytest.mark.parametrize(
    "case", [one_sample, two_samples, groups, covariates, correlated, successes]
)
def test_the_bayes_factor_is_that_of_the_integral(case):
    model, point, exact = case()
    found = default.test(model, SEED, **point)
    assert found.status == "ok" and found.mcse < 0.03
    assert abs(found.log_bf - exact) < 0.01 + 3 * found.mcse
