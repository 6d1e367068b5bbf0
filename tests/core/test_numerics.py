"""Sums of exponentials: exact at the edges, where evidence is lost or invented."""

import numpy as np
import pytest

from pm_evidence.core.numerics import (
    ess_share,
    log_mean_exp,
    log_sum_exp,
    moments,
    normalised,
)

INF = np.inf


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        ([0.0], 0.0),
        ([0.0, 0.0], np.log(2)),
        ([-INF, 0.0], 0.0),
        ([-INF, -INF], -INF),
        ([], -INF),
        ([INF, 0.0], INF),
        ([1e4, 1e4 + np.log(3)], 1e4 + np.log(4)),
        ([-1e4, -1e4], -1e4 + np.log(2)),
        ([0.0, -800.0], 0.0),
    ],
)
def test_log_sum_exp(terms, expected):
    """Overflow, underflow and weights of zero are the rule in evidence, not the exception."""
    assert log_sum_exp(np.array(terms, dtype=float)) == pytest.approx(expected, rel=1e-15)


def test_nan_is_never_averaged_away():
    """A NaN that vanished in a maximum would be an evidence of some other model."""
    for function in (log_sum_exp, log_mean_exp):
        assert np.isnan(function(np.array([0.0, np.nan, -INF])))


def test_log_mean_exp_counts_members_of_weight_zero():
    """Dropping them and dividing by the kept count biases every evidence upwards."""
    assert log_mean_exp(np.array([0.0, -INF, -INF, -INF])) == pytest.approx(-np.log(4))
    assert log_mean_exp(np.full(7, -1234.5)) == -1234.5
    assert log_mean_exp(np.full(3, -INF)) == -INF


def test_normalised_weights():
    """They are fractions of the sum, whatever the scale of the log weights."""
    for shift in (0.0, 1e5, -1e5):
        weight = normalised(np.log([1.0, 2.0, 5.0]) + shift)
        np.testing.assert_allclose(weight, [0.125, 0.25, 0.625], rtol=1e-10)
    np.testing.assert_array_equal(normalised(np.array([-INF, 3.0])), [0.0, 1.0])


def test_weights_that_cannot_be_normalised():
    """NaN weights would resample garbage without a word."""
    for bad in ([-INF, -INF], [np.nan, 0.0], [INF, 0.0]):
        with pytest.raises(FloatingPointError, match="cannot be normalised"):
            normalised(np.array(bad))


@pytest.mark.parametrize(
    ("log_weight", "expected"),
    [
        ([0.0, 0.0, 0.0, 0.0], 1.0),
        ([5e4, 5e4], 1.0),
        ([0.0, -INF], 0.5),
        ([0.0, -INF, -INF, -INF], 0.25),
        ([0.0, -2000.0], 0.5),
        (np.log([1.0, 2.0, 3.0]).tolist(), 36 / 14 / 3),
        ([-INF, -INF], 0.0),
        ([np.nan, 0.0], 0.0),
    ],
)
def test_ess_share(log_weight, expected):
    """It decides the schedule: at most 1, 1 / n for one live member, 0 for none."""
    assert ess_share(np.array(log_weight)) == pytest.approx(expected, rel=1e-14)


def test_moments_are_of_the_finite_entries():
    """One impossible state must not hide the energies of all others; none leave nothing to say."""
    table = np.random.default_rng(4).normal(1e6, 1.0, (3, 101))
    table[1, :2] = INF, np.nan
    table[2] = INF
    mean, var = moments(table)
    np.testing.assert_allclose(mean[:2], [table[0].mean(), table[1, 2:].mean()], rtol=1e-14)
    np.testing.assert_allclose(var[:2], [table[0].var(), table[1, 2:].var()], rtol=1e-9)
    assert np.isnan([mean[2], var[2]]).all()
