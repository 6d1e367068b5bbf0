"""The compiled parts of machines: draws of units, flips, products, layers."""

import numba as nb
import numpy as np
import pytest
from scipy import stats

from pm_evidence.core.codegen.vectors import SINGLES, aligned
from pm_evidence.core.random import streams
from pm_evidence.families.rbm.gibbs import (
    COLUMNS,
    ENTRIES,
    GENERATOR,
    SUMS,
    TABLES,
    draw_layer,
    factor_of_flip,
    flip,
    gains_of,
    layer_of,
    log_sum,
    multiply,
    pack,
    seed_lanes,
    unpack,
)

# --- units are on with the right probabilities, also where these are tiny ---


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


# --- what a flip changes, where one layer is summed out ---


N_UNITS, N_SUMMED = 5, 70  # the summed layer is rounded up to 128


@nb.njit
def factor(likely, gains, row):
    return factor_of_flip(likely, gains, row)


@nb.njit
def flipped(likely, gains, row):
    flip(likely, gains, row)


def layer(seed=1, scale=1.0):
    rng = np.random.default_rng(seed)
    weights, bias = rng.normal(0, scale, (N_UNITS, N_SUMMED)), rng.normal(0, scale, N_SUMMED)
    return layer_of(weights, bias, np.zeros(N_SUMMED)), weights, bias


def test_log_density_and_its_changes():
    """On and off again, for every unit; double precision is the reference."""
    made, weights, bias = layer()
    on, off, there = gains_of(made)
    inputs, likely = aligned((128,)), aligned((128,))
    inputs[:N_SUMMED] = bias
    before = np.logaddexp(0.0, bias).sum()
    assert log_sum(inputs, likely, there) == pytest.approx(before, rel=1e-6)
    assert not likely[N_SUMMED:].any()
    for unit in range(N_UNITS):
        after = np.logaddexp(0.0, bias + weights[unit]).sum()
        assert np.log(factor(likely, on, unit)) == pytest.approx(after - before, abs=1e-4)
        flipped(likely, on, unit)
        expected = 1.0 / (1.0 + np.exp(-bias - weights[unit]))
        np.testing.assert_allclose(likely[:N_SUMMED], expected, rtol=2e-6)
        assert np.log(factor(likely, off, unit)) == pytest.approx(before - after, abs=1e-4)
        flipped(likely, off, unit)
        np.testing.assert_allclose(likely[:N_SUMMED], 1.0 / (1.0 + np.exp(-bias)), rtol=4e-6)


def test_weights_whose_products_would_overflow_are_refused():
    made, _, _ = layer(scale=60.0)
    with pytest.raises(ValueError, match=r"W must have weights .* pass latent='full'"):
        gains_of(made)


# --- products by tables are those of a matrix product ---


@pytest.mark.parametrize(("n", "rows", "columns"), [(1, 64, 64), (5, 192, 128), (40, 832, 512)])
def test_sums_of_rows(n, rows, columns):
    """Every row of every table is used, so one wrong sum would show; 1e-5 is single precision."""
    rng = np.random.default_rng(1)
    weights = rng.normal(size=(rows, columns)).astype(np.float32)
    bias = rng.normal(size=columns).astype(np.float32)
    states = rng.integers(2, size=(n, rows))
    out = aligned((n, columns))
    multiply(pack(states), weights, bias, aligned((TABLES, ENTRIES, COLUMNS)), out)
    exact = bias + states @ weights.astype(float)
    np.testing.assert_allclose(out, exact, atol=2e-5)


def test_every_entry_of_every_table():
    """All sixteen patterns of all four rows, with whole numbers, which have no rounding."""
    rows = 64
    weights = (2.0 ** (np.arange(rows) % 20))[:, None] * np.ones((1, 64))
    patterns = (np.arange(16)[:, None] >> np.arange(4)) & 1
    states = np.zeros((16 * 16, rows), np.uint8)
    for table in range(16):
        states[16 * table : 16 * table + 16, 4 * table : 4 * table + 4] = patterns
    out = aligned((len(states), 64))
    zeros = np.zeros(64, np.float32)
    tables = aligned((TABLES, ENTRIES, COLUMNS))
    multiply(pack(states), weights.astype(np.float32), zeros, tables, out)
    np.testing.assert_array_equal(out, states @ weights)


# --- parameters in the form that compiled code reads ---
