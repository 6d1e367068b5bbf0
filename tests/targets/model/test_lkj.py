"""Cholesky factors with an LKJ prior are drawn many at once, from the prior that PyMC has."""

import numpy as np
import pymc as pm
import pytest
from scipy.special import ndtr
from scipy.stats import beta, ks_1samp

from pm_evidence.targets.model.prior import prior_sampler


@pytest.mark.parametrize(("n", "eta"), [(2, 2.0), (3, 0.7), (5, 3.0)])
def test_correlations_have_their_exact_marginals(n, eta) -> None:
    """Seed 1; each of the tests fails by chance once in 10,000 runs."""
    with pm.Model() as model:
        pm.LKJCholeskyCov("factor", n=n, eta=eta, sd_dist=pm.HalfNormal.dist(1.0, shape=n))
    sampler = prior_sampler(model)
    x = sampler.draw(4000, np.random.SeedSequence(1))
    factor, diagonal = np.zeros((4000, n, n)), np.arange(n)
    factor[(slice(None), *np.tril_indices(n))] = x
    factor[:, diagonal, diagonal] = np.exp(factor[:, diagonal, diagonal])
    sd = np.linalg.norm(factor, axis=-1)
    assert ks_1samp(sd.ravel(), lambda s: 2 * ndtr(s) - 1).pvalue > 1e-4
    correlation = (factor @ factor.transpose(0, 2, 1)) / (sd[:, :, None] * sd[:, None])
    shape = eta - 1 + n / 2
    for i, j in zip(*np.tril_indices(n, -1), strict=True):
        assert ks_1samp(0.5 + 0.5 * correlation[:, i, j], beta(shape, shape).cdf).pvalue > 1e-4


def test_a_factor_whose_prior_is_a_variable() -> None:
    """Its draws follow those of the shape and of the scales."""
    with pm.Model() as model:
        eta, scale = pm.LogNormal("eta", 1, 1), pm.HalfNormal("scale", 1)
        pm.LKJCholeskyCov("factor", n=2, eta=eta, sd_dist=pm.Exponential.dist(scale, shape=2))
    x = prior_sampler(model).draw(20_000, np.random.SeedSequence(2))
    first, (off, last) = np.exp(x[:, 2]) * np.exp(x[:, 1]), x[:, 3:5].T
    assert first.mean() == pytest.approx(1.0, abs=0.05)
    square = off**2 / (off**2 + np.exp(2 * last))
    wide = x[:, 0] > 2
    assert square[wide].mean() < 0.5 * square[~wide].mean()
