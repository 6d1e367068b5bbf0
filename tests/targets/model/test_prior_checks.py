"""Prior draws that no well-defined model gives are refused, and only these."""

import numpy as np
import pytest

from pm_evidence.core.exceptions import ModelError
from pm_evidence.targets.layout import Layout
from pm_evidence.targets.model.checks import (
    refuse_low_acceptance,
    refuse_ties,
    undefined_density,
)

LAYOUT = Layout.of([(2,), ()], ["x", "count"], ["float64", "int64"])


def test_ties_of_continuous_variables():
    """A share of equal values is probability, not density; two equal draws are an accident."""
    x = np.random.default_rng(1).normal(size=(2000, 3))
    x[:, 2] = 1.0  # discrete variables repeat their values
    refuse_ties(LAYOUT, x)
    x[5, 1] = x[9, 1]
    refuse_ties(LAYOUT, x)
    x[10:14, 1] = 0.0
    with pytest.raises(ModelError, match="got x, which takes some value"):
        refuse_ties(LAYOUT, x)


def test_acceptance_is_judged_when_there_is_enough_to_tell():
    refuse_low_acceptance(0, 5000)
    refuse_low_acceptance(6, 6000)
    with pytest.raises(ModelError, match="only 5 of 6000 are"):
        refuse_low_acceptance(5, 6000)


@pytest.mark.parametrize(
    ("column", "value", "part"),
    [(0, np.inf, "prior"), (1, np.nan, "likelihood"), (None, np.nan, "density")],
)
def test_densities_that_are_no_numbers(column, value, part):
    log_density = np.full((6, 2), -np.inf)
    assert undefined_density(log_density) is None
    log_density[[2, 4], slice(None) if column is None else column] = value
    row, problem = undefined_density(log_density)
    assert row == 2
    assert (
        problem
        == f"the log {part} must be a number below infinity, got {value} at 2 of 6 prior draws"
    )
