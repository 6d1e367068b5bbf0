"""Units are on with the right probabilities, also where these are tiny."""

import numba as nb
import numpy as np
import pytest
from scipy import stats

from pm_evidence.core.codegen.singles import SINGLES, aligned
from pm_evidence.core.random import streams
from pm_evidence.families.rbm.draws import GENERATOR, SUMS, draw_layer, seed_lanes
from pm_evidence.families.rbm.state import unpack


@nb.njit
def repeat(inputs, layer, beta, chains, units, totals):
    lanes = np.empty((GENERATOR, SINGLES), np.uint32)
    sums = np.empty((SUMS, SINGLES), np.float32)
    for m in range(chains.shape[0]):
        seed_lanes(chains[m], lanes)
        totals[m] = draw_layer(inputs, layer, beta, lanes, sums, units[m])


def drawn(inputs, bias, base, beta, n=40_000, n_units=None):
    """Units and sums of ``n`` chains that share their inputs; shape (n, n_units) and (n, 3)."""
    size = len(inputs)
    n_units = size if n_units is None else n_units
    there = np.packbits(np.arange(size) < n_units, bitorder="little").view(np.uint64)
    arrays = []
    for values in (inputs, bias, base):
        array = aligned((size,))
        array[:] = values
        arrays.append(array)
    units, totals = np.zeros((n, size // 64), np.uint64), np.zeros((n, 3))
    chains = streams(np.random.SeedSequence(1), n)
    repeat(arrays[0], (arrays[1], arrays[2], there), beta, chains, units, totals)
    return unpack(units, size), totals


def test_probabilities_and_sums():
    """False alarms in one of 10,000 seeds; a logistic function off by 2 % would show."""
    rng = np.random.default_rng(2)
    inputs, bias, base = rng.normal(0, 2, (3, 128))
    units, totals = drawn(inputs, bias, base, 0.7, n_units=100)
    assert not units[:, 100:].any()
    units, exact = units[:, :100], 1.0 / (1.0 + np.exp(-0.7 * inputs - 0.3 * base))[:100]
    z = (units.mean(axis=0) - exact) / np.sqrt(exact * (1.0 - exact) / len(units))
    assert stats.chi2.sf((z**2).sum(), 100) > 1e-4
    for column, values in enumerate((inputs, bias, base)):
        np.testing.assert_allclose(totals[:, column], units @ values[:100], atol=1e-4)


def test_units_of_a_chain_are_independent():
    """Correlations of neighbours and of lanes would betray shared random bits. Seed 1."""
    units, _ = drawn(np.zeros(128), np.zeros(128), np.zeros(128), 1.0)
    for lag in (1, 16, 64):
        product = (2.0 * units[:, lag:] - 1.0) * (2.0 * units[:, :-lag] - 1.0)
        z = product.mean() * np.sqrt(product.size)
        assert abs(z) < 4.5, lag


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_rare_values(sign):
    """Probabilities of 5e-5 and 1e-3, which 16 bits could not hold; Poisson counts."""
    for log_odds in (-9.9, -6.9):
        units, _ = drawn(np.full(64, sign * log_odds), np.zeros(64), np.zeros(64), 1.0)
        rare = units.sum() if sign > 0 else (1 - units).sum()
        expected = units.size / (1.0 + np.exp(-log_odds))
        assert abs(rare - expected) < 4.5 * np.sqrt(expected)


@pytest.mark.parametrize("value", [-1e4, 1e4])
def test_extreme_inputs_do_not_overflow(value):
    units, _ = drawn(np.full(64, value), np.zeros(64), np.zeros(64), 1.0, n=10)
    assert (units == (value > 0)).all()
