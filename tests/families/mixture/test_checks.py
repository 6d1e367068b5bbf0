"""Bad input never reaches compiled code."""

import numpy as np
import pytest

from pm_evidence.families.mixture.target import (
    checked_data,
    checked_draws,
    checked_order,
    checked_prior,
)

GOOD = np.array([[0.0, 1.0, 0.5, 2.0, 0.25, 0.75, 0.0, 1.0, 1.0]])


def test_data():
    for y, message in (
        ([], "y must be one row of data points"),
        ([[1.0, 2.0]], "y must be one row of data points"),
        ([1.0, np.nan], "y must hold finite numbers of at most 1e\\+50 in size, got nan"),
        ([1.0, 1e60], "y must hold finite numbers of at most 1e\\+50 in size, got 1e\\+60"),
        (["a"], "y must hold real numbers"),
    ):
        with pytest.raises(ValueError, match=message):
            checked_data(y)


def test_prior_and_order():
    assert checked_prior(0, 1, 2, 3, 4) == (0.0, 1.0, 2.0, 3.0, 4.0)
    for values, message in (
        ((np.nan, 1, 1, 1, 1), "mean_mu must be a finite number"),
        ((1e60, 1, 1, 1, 1), "mean_mu must be at most 1e\\+50 in size"),
        ((0, 0, 1, 1, 1), "mean_sigma must be a finite number above 0"),
        ((0, 1, 0.05, 1, 1), "variance_alpha must be from 0.1 to 1e\\+08, got 0.05"),
        ((0, 1, 1, -2.0, 1), "variance_beta must be a finite number above 0"),
        ((0, 1, 1, 1, 1e-4), "weights_a must be from 0.001 to 1e\\+08"),
    ):
        with pytest.raises(ValueError, match=message):
            checked_prior(*values)
    assert checked_order("given", 3) == "given"
    np.testing.assert_array_equal(checked_order([2, 0, 1], 3), [2, 0, 1])
    for order in ("sorted", [0, 1], [0, 1, 1], [1, 2, 3], [0.0, 1.0, 2.0]):
        with pytest.raises(ValueError, match="order must"):
            checked_order(order, 3)


def test_draws():
    """Components outside the arrays would be read from other memory."""
    np.testing.assert_array_equal(checked_draws("starts", GOOD, 2, 2, 3), GOOD)
    for wrong in (GOOD[:, :-1], GOOD[0], GOOD[:0]):
        with pytest.raises(ValueError, match=r"starts must have the shape \(n, 9\)"):
            checked_draws("starts", wrong, 2, 2, 3)
    for place, value, message in (
        (0, np.nan, "finite means"),
        (2, 0.0, "finite variances above 0"),
        (4, -0.25, "weights of at least 0"),
        (4, 0.5, "weights that sum to 1"),
        (7, 2.0, "components from 0 to 1"),
        (7, 0.5, "components from 0 to 1"),
    ):
        draws = np.repeat(GOOD, 3, axis=0)
        draws[1, place] = value
        with pytest.raises(ValueError, match=f"must hold {message}, got other values in row 1"):
            checked_draws("starts", draws, 2, 2, 3)
