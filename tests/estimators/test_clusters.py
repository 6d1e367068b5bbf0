"""Clusters of dependent values: their errors by hand, and for chains with known correlation."""

import numpy as np
import pytest
from scipy.signal import lfilter
from scipy.stats import t

from pm_evidence.estimators.errors import autocorrelation_time, clusters
from tests.estimators.refusals import check_refused


def ar1(rng, n, correlation, m=1):
    """``m`` stationary AR(1) records of variance 1, one in each column."""
    noise = rng.normal(size=(n, m)) * np.sqrt(1.0 - correlation**2)
    noise[0] /= np.sqrt(1.0 - correlation**2)
    return lfilter([1.0], [1.0, -correlation], noise, axis=0)


def test_groups_of_a_flat_array_are_summed():
    """Ten groups of any labels are the clusters; the order of the array does not matter. Seed 1."""
    rng = np.random.default_rng(1)
    influence, labels = rng.normal(size=60), np.repeat(np.arange(10) * 7 - 30, 6)
    order = rng.permutation(60)
    sums = influence.reshape(10, 6).sum(axis=1)
    expected = np.sqrt(np.sum(sums**2) * 10 / 9)
    for at in (slice(None), order):
        found = clusters((60,), labels[at]).spread(influence[at])
        assert found.mcse == pytest.approx(expected) and found.dof == 9.0


def test_chains_are_the_clusters_if_there_are_eight():
    """Values lie in the order of ``ravel()``: the sums are those of the columns. Seed 2."""
    influence = np.random.default_rng(2).normal(size=(30, 8))
    found = clusters((30, 8), None).spread(influence.ravel())
    assert found.mcse == pytest.approx(np.sqrt(np.sum(influence.sum(axis=0) ** 2) * 8 / 7))
    assert found.dof == 7.0


def test_chains_of_one_group_are_cut_at_the_same_times():
    """Chains that exchange states depend on each other at every time. Seed 3."""
    dependence = clusters((600, 4), [0, 0, 1, 1])
    influence = np.random.default_rng(3).normal(size=2400)
    index = dependence.index(influence).reshape(600, 4)
    assert (index[:, 0] == index[:, 1]).all() and (index[:, 2] == index[:, 3]).all()
    assert not set(index[:, 0]) & set(index[:, 2])
    assert (np.diff(index[:, 0]) >= 0).all()
    sizes = np.bincount(index[:, 0])
    assert sizes.min() >= sizes.max() - 1 and sizes.min() >= 10
    np.testing.assert_array_equal(np.unique(index), np.arange(index.max() + 1))
    assert index.max() + 1 <= 64


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
def test_autocorrelation_time_of_ar1(correlation):
    """(1 + r) / (1 - r), within 15 % from 4 records of 20,000 (error about 3 %). Seed 4."""
    series = list(ar1(np.random.default_rng(4), 20_000, correlation, 4).T)
    exact = (1.0 + correlation) / (1.0 - correlation)
    assert autocorrelation_time(series) == pytest.approx(exact, rel=0.15)


@pytest.mark.parametrize(("n", "m", "correlation"), [(4000, 1, 0.8), (1000, 4, 0.8), (300, 7, 0.5)])
def test_errors_of_correlated_chains(n, m, correlation):
    """Coverage of the mean of few chains is between 91 and 98 %: 400 repetitions, seed 5.

    Without batches a single chain would have no error; batches that are too short would cover
    less, 70 % for batches of one value at a correlation of 0.8.
    """
    rng = np.random.default_rng(5)
    inside = 0
    for _ in range(400):
        x = ar1(rng, n, correlation, m)
        influence = (x - x.mean()).ravel() / x.size
        found = clusters(x.shape, None).spread(influence)
        inside += abs(x.mean()) < t.ppf(0.975, found.dof) * found.mcse
    assert 0.91 <= inside / 400 <= 0.98


def test_wrong_groups():
    """Values would be tied together that are independent."""
    cases = [
        ((5,), [1, 2], r"one whole number for each value, shape \(5,\)"),
        ((5, 3), [1] * 5, r"one whole number for each chain, shape \(3,\)"),
        ((3,), [0.5, 1.0, 2.0], "whole numbers"),
        ((2, 2), [[0, 1], [0, 1]], "for each chain"),
    ]
    check_refused(clusters, [((n, groups), f"^groups must .*{text}") for n, groups, text in cases])
