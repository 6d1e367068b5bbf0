"""Bad input never reaches compiled code."""

import numpy as np
import pytest

import pm_evidence as pe
from tests.families.mixture.mixtures import PRIOR, mixture

GOOD = np.array([[0.0, 1.0, 0.5, 2.0, 0.25, 0.75, 0.0, 1.0, 1.0]])


def test_arguments():
    for name, value, message in (
        ("y", [], "y must be one row of data points"),
        ("y", [[1.0, 2.0]], "y must be one row of data points"),
        ("y", [1.0, np.nan, 2.0], "y must hold finite numbers of at most 1e\\+50 in size, got nan"),
        ("y", ["a"], "y must hold real numbers"),
        ("mean_mu", np.nan, "mean_mu must be a finite number"),
        ("mean_mu", 1e60, "mean_mu must be at most 1e\\+50 in size"),
        ("mean_sigma", 0, "mean_sigma must be a finite number above 0"),
        ("variance_alpha", 0.05, "variance_alpha must be from 0.1 to 1e\\+08, got 0.05"),
        ("weights_a", 1e-4, "weights_a must be from 0.001 to 1e\\+08"),
        ("order", "sorted", "order must be"),
        ("order", [0, 1, 1], "order must name each of the 3 points once"),
        ("order", [0.0, 1.0, 2.0], "order must hold whole numbers"),
    ):
        arguments = {"y": [1.0, 2.0, 3.0], **PRIOR, name: value}
        with pytest.raises(ValueError, match=message):
            pe.mixtures.GaussianMixture(n_components=2, **arguments)


def test_draws():
    """Components outside the arrays would be read from other memory."""
    target = mixture(2, [1.0, 2.0, 3.0])
    np.testing.assert_array_equal(target.check(GOOD, "starts"), GOOD)
    for wrong in (GOOD[:, :-1], GOOD[0], GOOD[:0]):
        with pytest.raises(ValueError, match=r"starts must have the shape \(n, 9\)"):
            target.check(wrong, "starts")
    for place, value, message in (
        (0, np.nan, "finite means"),
        (2, 0.0, "finite variances above 0"),
        (4, -0.25, "weights of at least 0"),
        (4, 0.5, "weights that sum to 1"),
        (7, 2.0, "components from 0 to 1"),
    ):
        draws = np.repeat(GOOD, 3, axis=0)
        draws[1, place] = value
        with pytest.raises(ValueError, match=f"must hold {message}, got other values in row 1"):
            target.check(draws, "starts")
