"""The order in which data points are added."""

import numpy as np
import pytest

from pm_evidence.families.gp_classification.orders import greedy_order, order_of, whitening_of
from tests.families.gp_classification.problems import curve


def test_the_informative_order_takes_the_largest_conditional_variance():
    """Against the conditional variances by the textbook formula, up to ties."""
    covariance = curve(12).prior_covariance
    order = greedy_order(covariance)
    assert sorted(order) == list(range(12))
    for k in range(1, 6):
        past = order[:k]
        cross = covariance[:, past]
        rest = covariance.diagonal() - np.einsum(
            "ij,ij->i", cross, np.linalg.solve(covariance[np.ix_(past, past)], cross.T).T
        )
        assert rest[order[k]] == pytest.approx(rest.max(), abs=1e-9)


def test_duplicated_points_come_last():
    """Their conditional variance is 0 or, by rounding, below."""
    covariance = np.tile(curve(4).prior_covariance, (2, 2))
    order = greedy_order(covariance)
    assert sorted(order) == list(range(8)) and sorted(order[:4] % 4) == [0, 1, 2, 3]


def test_orders_by_name():
    covariance = np.eye(6)
    assert np.array_equal(order_of("given", 0, covariance), np.arange(6))
    one, again, other = (order_of("random", seed, covariance) for seed in (0, 0, 1))
    assert np.array_equal(one, again) and not np.array_equal(one, other)
    mine = np.array([5, 4, 3, 2, 1, 0])
    assert order_of(mine, 0, covariance) is mine


def test_leading_rows_of_the_whitening_are_those_of_the_first_points():
    target = curve(9)
    covariance, order = target.noisy_covariance, np.array([8, 0, 3, 1, 2, 4, 5, 6, 7])
    whole = whitening_of(covariance, order)
    for k in (1, 4, 9):
        part = covariance[np.ix_(order[:k], order[:k])]
        np.testing.assert_allclose(whole[:k, :k].T @ whole[:k, :k], np.linalg.inv(part), atol=1e-12)
    assert np.array_equal(whole, np.tril(whole))
