"""Numbers as people read them: the value ends where its error does."""

import math

import numpy as np
import pytest

from pm_evidence.core.concise import concise, decimals


@pytest.mark.parametrize(
    ("value", "error", "shown"),
    [
        (-31.0364, 0.0081, "-31.036(8)"),
        (-31.0364, 0.0123, "-31.036(12)"),
        (-31.0364, 0.354, "-31.04(35)"),
        (-31.0364, 0.356, "-31.0(4)"),
        # rounding takes the error to another decade
        (-31.0364, 0.0996, "-31.04(10)"),
        (-31.0364, 0.99, "-31.0(1.0)"),
        (-31.0364, 9.96, "-31(10)"),
        # errors at and beyond the decimal point are written out
        (-31.0364, 1.87, "-31.0(1.9)"),
        (-1204.6, 12.3, "-1205(12)"),
        (-1234.5, 345.0, "-1230(340)"),
        (-1000.0, 5000.0, "-1000(5000)"),
        # no error, none known, none that ends
        (-5.44432, 0.0, "-5.4443(0)"),
        (-31.0, 1e-30, "-31.0000(0)"),
        (-31.0364, math.nan, "-31.04 (error unknown)"),
        (-31.0364, math.inf, "-31.04(inf)"),
        (-math.inf, math.nan, "-inf"),
        (math.inf, 0.1, "inf"),
        (math.nan, 0.1, "nan"),
        # probabilities and Bayes factors
        (8.8e-27, 1.2e-27, "8.8(1.2)e-27"),
        (3.1e-9, 4e-10, "3.1(4)e-09"),
        (-1.5e300, 2e298, "-1.500(20)e+300"),
        (2e-5, 5e-3, "0.000(5)"),
        (-1e-4, 0.01, "0.000(10)"),
        (0.0, 0.0, "0.0000(0)"),
    ],
)
def test_the_digits_follow_the_error(value, error, shown):
    assert concise(value, error) == shown


def test_value_and_error_can_be_read_back():
    """A digit too few or in the wrong place would give another number; seed 1, 2,000 pairs."""
    rng = np.random.default_rng(1)
    for _ in range(2000):
        value, error = rng.normal() * 10 ** rng.uniform(-3, 5), 10 ** rng.uniform(-6, 4)
        text = concise(value, error)
        number, digits = text.rstrip(")").split("(") if "e" not in text else ("", "")
        if not number:
            continue
        unit = 1.0
        if "." in number and "." not in digits:
            unit = 10.0 ** -len(number.split(".")[1])
        assert abs(float(number) - value) <= 0.51 * error
        assert float(digits) * unit == pytest.approx(error, rel=0.15)


def test_decimals_of_what_has_no_error():
    assert [decimals(error) for error in (math.nan, math.inf, 0.0, -1.0)] == [2, 2, 2, 2]
    assert decimals(1e-300) == 12
    assert decimals(500.0) == -2
