"""What a user's state-space model has to be."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pm_evidence.core.exceptions import ModelError
from pm_evidence.targets.estimated.state_space.checks import (
    check_time_indices,
    observations,
    trace,
)


def test_observations_are_floats_with_nan_where_missing():
    masked = np.ma.masked_array([1, 2, 3], [0, 1, 0])
    np.testing.assert_array_equal(observations(masked), [1.0, np.nan, 3.0])
    assert observations(np.zeros((3, 2), int)).dtype == np.float64
    for wrong in ([np.nan, np.nan], [], np.zeros((2, 2, 2)), [1.0, np.inf]):
        with pytest.raises(ValueError, match="observed must"):
            observations(wrong)


def functions(covariate):
    return {
        "init": lambda: pm.Normal.dist(0, 1),
        "transition": lambda h, t: pm.Normal.dist(h + covariate[t], 1),
        "emission": lambda h, t: pm.Normal.dist(h, 1),
        "proposal": None,
        "init_proposal": None,
        "look_ahead": None,
    }


def test_covariates_have_to_reach_the_last_time():
    """Compiled code would read beyond their end."""
    covariate = pt.constant(np.arange(3.0), name="covariate")
    graphs = trace(functions(covariate), np.zeros(3))
    check_time_indices(graphs, 3)
    with pytest.raises(ModelError, match=r"transition uses covariate\[3\] at time 3"):
        check_time_indices(graphs, 4)
