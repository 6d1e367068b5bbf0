"""The next inverse temperature keeps the effective sample size that was asked for."""

from dataclasses import dataclass

import numpy as np
import pytest

from pm_evidence.core.exceptions import NumericalError
from pm_evidence.schedules import next_beta


@dataclass(frozen=True)
class Tempered:
    """A path over a population that is nothing but its log likelihoods."""

    def log_ratio(self, state, start, stop):
        return (stop - start) * state


LOG_LIKELIHOOD = 30.0 * np.random.default_rng(4).normal(size=500)


def test_two_values_in_closed_form():
    """With log likelihoods 0 and L the share is (1 + w)^2 / (2 (1 + w^2)), w = exp(step L)."""
    gap, ess = 100.0, 0.8
    r = 2 * ess  # (1 + w)^2 = r (1 + w^2)
    w = (1 - np.sqrt(1 - (r - 1) ** 2)) / (r - 1)
    stop = next_beta(Tempered(), np.array([0.0, -gap]), 0.0, ess)
    assert stop == pytest.approx(-np.log(w) / gap, rel=1e-10)


def test_the_end_is_one_exactly():
    """A last step that stopped short of 1 would leave a part of the likelihood out."""
    assert next_beta(Tempered(), 1e-3 * LOG_LIKELIHOOD, 0.2, 0.5) == 1.0
    assert next_beta(Tempered(), np.zeros(10), 0.0, 0.5) == 1.0
    # of members without support the share can never reach the goal by itself
    assert next_beta(Tempered(), np.array([0.0, -np.inf, -np.inf]), 0.0, 0.9) == 1.0


def test_scale_of_the_log_likelihood_does_not_matter():
    """Data of 1e8 rows have likelihoods that no fixed first step would fit."""
    small = next_beta(Tempered(), LOG_LIKELIHOOD, 0.0, 0.5)
    large = next_beta(Tempered(), 1e6 * LOG_LIKELIHOOD - 1e12, 0.0, 0.5)
    assert large == pytest.approx(1e-6 * small, rel=1e-3)


def test_data_may_be_as_precise_as_they_like():
    """Steps of at least 1e-14 kept a single particle where the error of data was 1e-8."""
    small = next_beta(Tempered(), LOG_LIKELIHOOD, 0.0, 0.5)
    for scale in (1e14, 1e20, 1e120):
        large = next_beta(Tempered(), scale * LOG_LIKELIHOOD, 0.0, 0.5)
        assert large == pytest.approx(small / scale, rel=1e-3)


def test_no_support_anywhere():
    """The user must learn that data and model contradict each other, and what to do."""
    with pytest.raises(NumericalError, match=r"-inf at all 20 draws .*Look for data outside"):
        next_beta(Tempered(), np.full(20, -np.inf), 0.0, 0.5)


def test_a_schedule_that_cannot_advance():
    """It must end with a message, not in an endless loop."""
    with pytest.raises(NumericalError, match=r"cannot advance beyond beta=0.999.*Use more draws"):
        next_beta(Tempered(), -1e17 * np.arange(5), 0.999, 0.9)
