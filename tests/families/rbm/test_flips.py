"""What a flip changes, where one layer is summed out."""

import numba as nb
import numpy as np
import pytest

from pm_evidence.core.codegen.singles import aligned
from pm_evidence.families.rbm.flips import factor_of_flip, flip, gains_of, log_sum
from pm_evidence.families.rbm.layers import layer_of

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
