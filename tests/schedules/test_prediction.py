"""The variance of the work that a schedule predicts, against exact draws."""

from itertools import pairwise

import numpy as np
import pytest

from pm_evidence.families.gaussian import Gaussian
from pm_evidence.schedules import linear, predicted_variance, sm08

FINE = np.linspace(0.0, 1.0, 2001)
MIDDLE = 0.5 * (FINE[1:] + FINE[:-1])


def predicted_variance_of_many(schedule, beta, variance):
    """The limit for many stages (Kiwaki 2015, Theorem 1): stages times integrals over them."""
    integral = np.append(0.0, np.cumsum(np.diff(beta) * variance))
    return np.sum(np.diff(schedule) * np.diff(np.interp(schedule, beta, integral)))


def test_sums_by_hand():
    """Two stages of length 0.25 and 0.75, with the variances at their beginnings."""
    beta, variance = np.array([0.0, 0.25, 1.0]), np.array([8.0, 2.0])
    found = predicted_variance(beta, beta, variance)
    assert found == pytest.approx(0.0625 * 8.0 + 0.5625 * 2.0)
    assert predicted_variance_of_many(beta, beta, variance) == pytest.approx(found)
    assert predicted_variance(np.array([0.0, 1.0]), beta, variance) == 8.0
    assert predicted_variance_of_many(np.array([0.0, 1.0]), beta, variance) == pytest.approx(3.5)


@pytest.mark.parametrize("make", [linear, sm08])
def test_many_stages_reach_the_limit(make):
    variance = np.exp(-2.0 * MIDDLE)
    schedule = make(14500)
    limit = predicted_variance_of_many(schedule, FINE, variance)
    assert predicted_variance(schedule, FINE, variance) == pytest.approx(limit, rel=1e-3)


@pytest.mark.parametrize(("make", "n_stages"), [(linear, 200), (sm08, 400)])
def test_independent_draws_have_the_predicted_variance(make, n_stages):
    """Exact draws at every inverse temperature of a Gaussian that narrows around a fixed mean.

    With ``f_beta(x) = exp(-x**2 / (2 s(beta)**2))`` the energy is ``-x**2 s' / s**3``, whose
    variance is ``2 (s' / s)**2``. The 20,000 sums are nearly normal, so that their sample variance
    has an error of 1 %; the tolerance of 6 % also holds the second order of the steps, 1 %.
    """
    target = Gaussian(start_mean=0.0, start_sd=1.0, mean=0.0, sd=0.5, tau=0.0)
    path, rng = target.annealing_setup("auto").path, np.random.default_rng(11)
    schedule, work = make(n_stages), np.zeros(20_000)
    for start, stop in pairwise(schedule):
        state = path.at(target.sd_at(start) * rng.normal(size=(20_000, 1)))
        work -= path.log_ratio(state, start, stop)
    variance = 2.0 * (0.5 / (1.0 - 0.5 * MIDDLE)) ** 2
    predicted = predicted_variance(schedule, FINE, variance)
    assert work.var() == pytest.approx(predicted, rel=0.06)
