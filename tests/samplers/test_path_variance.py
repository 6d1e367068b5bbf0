"""The variance of the energy along a path, from the populations of a pilot."""

from itertools import pairwise

import numpy as np
import pytest

from pm_evidence.samplers.planning import Pilot, PilotVariance
from tests.samplers.table import Step, TablePath

# d independent coordinates with prior N(0, 1) and energy x**2 / (2 s**2): the energy at beta is a
# chi-square variable times 1 / (2 (s**2 + beta)), of variance d / (2 (s**2 + beta)**2).
DIMENSION, SQUARE = 6, 0.01


def energies(beta, n, rng):
    return rng.chisquare(DIMENSION, n) / (2.0 * (SQUARE + beta))


def exact(beta):
    return DIMENSION / (2.0 * (SQUARE + beta) ** 2)


def along(schedule, n=20_000, linear=True):
    """Variances along independent draws at each inverse temperature of a schedule."""
    rng, found = np.random.default_rng(3), PilotVariance()
    before = energies(0.0, n, rng)
    for start, stop in pairwise(schedule):
        after = energies(stop, n, rng)
        bent = 1.0 if linear else 1.5
        found.add(start, stop, before, after, -bent * (stop - start) * before)
        before = after
    return found.result()


def test_variances_between_two_stages_are_those_of_reweighted_populations():
    """With steps of an effective size of a half, the variance falls by a factor of 4 in each.

    Of 20,000 draws a variance has an error of about 2 %, and reweighted ones of twice that.
    """
    schedule = np.array([0.0, 0.01, 0.03, 0.07, 0.15, 0.31, 0.6, 1.0])
    found = along(schedule)
    assert found.beta[0] == 0.0 and found.beta[-1] == 1.0 and (np.diff(found.beta) > 0.0).all()
    assert set(schedule) <= set(found.beta)
    root = np.sqrt(exact(found.beta[1:]) * exact(found.beta[:-1]))
    np.testing.assert_allclose(found.variance, root, rtol=0.2)
    length = np.sum(np.sqrt(found.variance) * np.diff(found.beta))
    whole = np.sqrt(DIMENSION / 2.0) * np.log((SQUARE + 1.0) / SQUARE)
    assert length == pytest.approx(whole, rel=0.02)


def test_other_paths_are_interpolated_between_stages():
    """Log weights that are not minus the step times the energy cannot be reweighted with it."""
    schedule = np.array([0.0, 0.2, 0.4, 1.0])
    found = along(schedule, linear=False)
    inside = (found.beta[:-1] >= 0.2) & (found.beta[1:] <= 0.4)
    assert found.variance[inside][0] == pytest.approx(exact(0.2), rel=0.2)
    middle = 0.5 * (exact(0.2) + exact(0.4))
    assert found.variance[inside][3:5].mean() == pytest.approx(middle, rel=0.1)


def test_states_without_support_or_with_a_huge_energy_do_no_harm():
    """They have no weight as soon as the likelihood counts."""
    rng, found = np.random.default_rng(4), PilotVariance()
    before, after = energies(0.0, 1000, rng), energies(1.0, 1000, rng)
    before[:3] = np.inf, 1e300, 1e9
    with np.errstate(all="raise", under="ignore"):
        found.add(0.0, 1.0, before, after, -before)
        pieces = found.result()
    assert np.isfinite(pieces.variance).all() and (pieces.variance >= 0.0).all()
    # the huge energies count below a thousandth of the length
    assert pieces.variance[-1] == pytest.approx(exact(1.0), rel=0.5)


def test_a_pilot_collects_them():
    """The exact variance at beta = 1 of a table of six states.

    The last piece has the geometric mean of the variances at both of its ends, hence 20 %.
    """
    path = TablePath()
    found = Pilot(20_000, 5).run(path, Step(), seed=1).path_variance
    weight = np.exp(path.log_density(1.0) - path.log_evidence)
    mean = weight @ path.log_likelihood
    at_one = weight @ (path.log_likelihood - mean) ** 2
    assert found.variance[-1] == pytest.approx(at_one, rel=0.2)
