"""Checks of arguments: parameter, rule, value, remedy, in every message."""

import numpy as np
import pytest

from pm_evidence.core.checks import check_choice, check_count, check_share


def test_good_values_come_back_plain():
    """NumPy scalars in a record would not survive every file format."""
    assert check_count("draws", np.int32(5), 1) == 5
    assert type(check_count("draws", np.int32(5), 1)) is int
    assert type(check_share("ess", np.float32(0.5), 0.5)) is float
    assert check_choice("method", "ais", ["smc", "ais"]) == "ais"


def test_values_that_are_refused():
    """A rounded count runs something else than was asked for; at shares of 0 and 1 schedules have
    no step or no end; the message of a choice lists what there is, whatever was passed."""
    for value in (0, -1, 1.0, 2.5, "3", None, True, np.nan, np.array([3]), 1 + 0j):
        with pytest.raises(
            ValueError, match=r"draws must be a whole number of at least 1, got .*pass"
        ):
            check_count("draws", value, 1)
    for value in (0, 1, 0.0, 1.0, -0.1, 1.5, np.nan, np.inf, "0.5", None, True):
        with pytest.raises(ValueError, match=r"ess must lie between 0 and 1, got .*; try 0.5"):
            check_share("ess", value, 0.5)
    for value in ("SMC", "", None, 1, ["smc"], b"smc"):
        with pytest.raises(ValueError, match=r"method must be one of 'smc', 'ais', got "):
            check_choice("method", value, iter(["smc", "ais"]))
    # "one of prior" reads as if there were more
    with pytest.raises(ValueError, match=r"reference must be 'prior', got 'laplace'"):
        check_choice("reference", "laplace", ["prior"])
