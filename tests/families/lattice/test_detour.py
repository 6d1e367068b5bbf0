"""What a field in favour of every value adds, against the sum over values that defines it."""

import numpy as np
import pytest
from scipy.special import logsumexp

from pm_evidence.families.lattice.detour import favour_colours, favour_spins


def expected(counts, fields, slope):
    """Energies and log ratios of ``log(sum_k exp(h n_k))``; counts have shape (m, q, n)."""
    before, after = (np.asarray(h)[:, None, None] * counts for h in fields)
    share = np.exp(before - logsumexp(before, axis=1, keepdims=True))
    energy = -slope[:, None] * (share * counts).sum(axis=1)
    return energy, logsumexp(after, axis=1) - logsumexp(before, axis=1)


def some_fields(rng, m):
    """From none to so strong a one that a single value is left."""
    return rng.uniform(0.0, 1.0, (2, m)) * 10.0 ** rng.uniform(-4, 1, m)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("q", [2, 3, 10])
def test_colours(seed, q):
    rng = np.random.default_rng(seed)
    m, n, n_sites = 4, 7, 60
    counts = np.moveaxis(rng.multinomial(n_sites, rng.dirichlet(np.full(q, 0.3)), (m, n)), 2, 1)
    fields, slope = some_fields(rng, m), rng.normal(size=m)
    energy, ratio = np.zeros((m, n)), np.zeros((m, n))
    favour_colours(np.ascontiguousarray(counts, np.int32), fields, slope, energy, ratio)
    for found, exact in zip((energy, ratio), expected(counts, fields, slope), strict=True):
        np.testing.assert_allclose(found, exact, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("seed", range(10))
def test_spins(seed):
    """Two values: and what is there already is kept."""
    rng = np.random.default_rng(seed)
    m, n, n_sites = 4, 7, 60
    up = rng.integers(0, n_sites + 1, (m, n)).astype(np.int32)
    fields, slope = some_fields(rng, m), rng.normal(size=m)
    start = rng.normal(size=(2, m, n))
    energy, ratio = start.copy()
    favour_spins(n_sites, up, fields, slope, energy, ratio)
    exact = expected(np.stack([n_sites - up, up], axis=1), fields, slope)
    np.testing.assert_allclose(energy - start[0], exact[0], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(ratio - start[1], exact[1], rtol=1e-9, atol=1e-9)
