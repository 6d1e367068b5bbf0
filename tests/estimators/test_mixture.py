"""Compiled sums over a mixture, against plain NumPy."""

import numpy as np
import pytest
from scipy.special import logsumexp

from pm_evidence.estimators.mbar import cluster_sums, log_columns, log_mixture, moments, projections

SIZES = [(2, 1), (3, 255), (7, 256), (5, 1000)]


def ladder(n_states, n, seed=1):
    """A ladder whose states are far apart, so that most shares of a point are negligible."""
    rng = np.random.default_rng(seed)
    scale = np.append(0.0, np.sort(rng.random(n_states - 1)))
    base = np.sort(rng.exponential(300.0, n))[None]
    return scale, base, rng.normal(0.0, 40.0, n_states) + 100.0 * scale


def table(n_states, n, seed=2):
    rng = np.random.default_rng(seed)
    return np.ones(n_states), rng.normal(0.0, 30.0, (n_states, n)), rng.normal(size=n_states)


def logs(scale, base, offset):
    return offset[:, None] - scale[:, None] * base


both = pytest.mark.parametrize("make", [ladder, table])
every = pytest.mark.parametrize(("n_states", "n"), SIZES)


@both
@every
def test_moments(make, n_states, n):
    """Shares below exp(-45) are left out, which no sum shows."""
    scale, base, offset = make(n_states, n)
    sums, products = moments(scale, base, offset, np.ones(n_states))
    p = np.exp(logs(scale, base, offset) - logsumexp(logs(scale, base, offset), axis=0))
    np.testing.assert_allclose(sums, p.sum(axis=1), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(products, p @ p.T, rtol=1e-12, atol=1e-14)


@both
def test_states_that_are_no_members(make):
    """They do not count in the denominators."""
    scale, base, offset = make(5, 300)
    offset = offset - logs(scale, base, offset).max(axis=1)
    member = np.array([1.0, 0.0, 1.0, 1.0, 0.0])
    terms = logs(scale, base, offset)
    weight = np.exp(terms - logsumexp(terms[member > 0], axis=0))
    offset[member == 0] -= np.log(weight.sum(axis=1)[member == 0])
    terms = logs(scale, base, offset)
    weight = np.exp(terms - logsumexp(terms[member > 0], axis=0))
    sums, products = moments(scale, base, offset, member)
    np.testing.assert_allclose(sums, weight.sum(axis=1), rtol=1e-11)
    np.testing.assert_allclose(products, weight @ weight.T, rtol=1e-11, atol=1e-14)


@both
@every
def test_logs(make, n_states, n):
    scale, base, offset = make(n_states, n)
    density = log_mixture(scale, base, offset)
    np.testing.assert_allclose(density, logsumexp(logs(scale, base, offset), axis=0), rtol=1e-12)
    columns = log_columns(scale, base, density)
    expected = logsumexp(-scale[:, None] * base - density, axis=1)
    np.testing.assert_allclose(columns, expected, rtol=1e-12)


@both
def test_sums_over_clusters_and_states(make):
    scale, base, offset = make(4, 700)
    density = log_mixture(scale, base, offset)
    p = np.exp(logs(scale, base, offset) - density)
    cluster = np.arange(700) % 9
    found = cluster_sums(scale, base, offset, density, cluster)
    expected = np.stack([p[:, cluster == g].sum(axis=1) for g in range(9)])
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)
    vector = np.array([1.0, -2.0, 0.0, 3.0])
    found = projections(scale, base, offset, density, vector)
    np.testing.assert_allclose(found, vector @ p, rtol=1e-11, atol=1e-13)
