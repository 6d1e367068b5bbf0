"""States at several temperatures: what is refused, and what the common end of estimates says."""

import numpy as np
import pytest

from pm_evidence.estimators.tempered import (
    LogZCurve,
    check_potentials,
    checked_rung,
    tempered,
)
from tests.estimators.refusals import check_refused

BETA, ENERGY, RUNG = [0.0, 0.5, 1.0], np.arange(6.0), np.array([0, 1, 2, 0, 1, 2])
INF = np.inf


def test_wrong_states():
    """They would be taken for states of other temperatures, or become NaN much later."""
    of_beta = [
        ([0.0], "beta must be a sequence of at least two inverse temperatures, got shape"),
        ([[0.0, 1.0]], "beta must be a sequence of at least two"),
        (
            [0.0, 0.5, 0.4, 1.0],
            r"beta must rise from 0 to 1, got betas\[2\]=0.4 after 0.5; sort it",
        ),
        ([0.0, 0.5, 0.5, 1.0], r"beta must rise from 0 to 1, got betas\[2\]=0.5 after 0.5"),
        ([0.0, np.nan, 1.0], r"beta must rise from 0 to 1, got betas\[1\]=nan"),
        ([0.1, 0.5, 1.0], "beta must rise from 0 to 1, got 0.1 to 1.0; add the missing end"),
        ([0.0, 0.5, 0.9], "beta must rise from 0 to 1, got 0.0 to 0.9"),
        ([0.0, 0.5, INF], "beta must rise from 0 to 1, got 0.0 to inf"),
    ]
    of_energy = [
        (np.zeros((1, 2, 3)), "energy must have shape"),
        (3.0, "energy must have shape"),
        ([], "energy must have shape"),
        (np.append(np.arange(5.0), np.nan), "energy must be a number or inf, got nan at 1 of 6"),
        (np.append(-INF, np.arange(5.0)), "energy must be a number or inf, got -inf"),
        (np.append(-1e200, np.arange(5.0)), "energy must be infinite or between"),
        (np.arange(5.0), r"energy must have the shape of rung, got \(5,\) and \(6,\)"),
        (np.append(np.arange(5.0), INF), "energy must be finite at beta above 0, got inf at 1"),
    ]
    of_rung = [
        ([0, 1, 2, 3, 1, 2], "rung must lie between 0 and 2, got 3"),
        ([0, 1, -1, 0, 1, 2], "rung must lie between 0 and 2, got -1"),
        ([0.0, 1.0, 2.0, 0.0, 1.0, 2.0], "rung must hold whole numbers"),
        ([], "rung must hold at least one index"),
    ]
    cases = [((beta, ENERGY, RUNG, None), text) for beta, text in of_beta]
    cases += [((BETA, energy, RUNG, None), text) for energy, text in of_energy]
    cases += [((BETA, ENERGY, rung, None), text) for rung, text in of_rung]
    check_refused(tempered, [(given, f"^{text}") for given, text in cases])
    check_refused(checked_rung, [((rung, 3), f"^{text}") for rung, text in of_rung[:2]])
    with pytest.raises(ValueError, match=r"^energy must be .* got -2e\+100"):
        check_potentials("energy", np.array([0.0, -2e100]))
    check_potentials("energy", np.array([1e99, -1e99, INF]))


@pytest.mark.parametrize("extreme", [1.1e100, 1e300])
def test_energies_whose_squares_may_overflow_are_infinite(extreme):
    """A run would fail where the prior has draws without likelihood."""
    states = tempered(BETA, np.append(extreme, np.arange(5.0)), RUNG, None)
    assert states.energy[0] == INF
    assert np.array_equal(states.energy[1:], np.arange(5.0))


def test_differences_of_a_curve():
    """Errors of differences count the covariance."""
    covariance = np.array([[0.0, 0.0, 0.0], [0.0, 4.0, 3.0], [0.0, 3.0, 9.0]])
    curve = LogZCurve(np.array([0.0, -1.0, -3.0]), covariance)
    np.testing.assert_array_equal(curve.mcse, [0.0, 2.0, 3.0])
    assert curve.difference(2, 1) == (-2.0, np.sqrt(7.0))
    assert curve.difference(2) == (-3.0, 3.0)
    nothing = LogZCurve(np.array([0.0, -1.0]), np.full((2, 2), np.nan))
    assert np.isnan(nothing.difference(1)[1])
