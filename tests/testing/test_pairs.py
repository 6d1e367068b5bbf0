"""The exact Bayes factors are those of other computations."""

import numpy as np
import pytest
from scipy import integrate, stats

from pm_evidence.testing import pairs


def test_all_pairs_are_pairs_of_models_of_the_same_data():
    for pair in pairs.model_pairs().values():
        first, second = pair.build()
        assert np.isfinite(pair.log_bf) and first is not second
        data = [m.rvs_to_values[m["y"]].data for m in (first, second)]
        np.testing.assert_array_equal(*data)


def test_counts():
    def density(rate, of_counts):
        likelihood = of_counts(pairs._COUNTS, rate).prod()
        return likelihood * stats.gamma.pdf(rate, 2.0, scale=2.0)

    def geometric_pmf(k, rate):
        return rate**k / (1 + rate) ** (k + 1)

    poisson, geometric = (
        integrate.quad(density, 0, 60, args=(pmf,), epsabs=0.0, limit=200)[0]
        for pmf in (stats.poisson.pmf, geometric_pmf)
    )
    exact = pairs.model_pairs()["count_likelihood"].log_bf
    assert np.log(poisson / geometric) == pytest.approx(exact, abs=1e-6)


def test_logistic_regression_of_one_covariate():
    def density(b, a):
        return np.exp(pairs._log_joint(np.array([[a, b]]))[0] + 45.0)

    found = integrate.dblquad(density, -4, 4, -4, 6, epsabs=1e-8)[0]
    assert np.log(found) - 45.0 == pytest.approx(pairs._log_logistic(2), abs=1e-5)


def test_groups_by_importance_sampling():
    """Means of the likelihood over prior draws of the scales near where it is large."""
    rng = np.random.default_rng(1)
    between, within = rng.uniform(0.05, 0.6, 4000), rng.uniform(0.55, 0.85, 4000)
    fixed = np.column_stack([np.full(pairs._GROUP.size, 3.0), pairs._BASEMENT])
    groups = np.eye(40)[pairs._GROUP]
    value = [
        pairs._log_marginal(np.hstack([fixed, b * groups]), w)
        for b, w in zip(between, within, strict=True)
    ]
    value = value + pairs._log_half_normal(between, 0.5) + pairs._log_half_normal(within, 1.0)
    found = pairs._log_sum(value) - np.log(4000) + np.log(0.55 * 0.3)
    assert found == pytest.approx(pairs._log_grouped(covariate=False), abs=0.15)
