"""Schedules: steps of the right size, and mistakes that are named."""

from dataclasses import dataclass

import numpy as np
import pytest

from pm_evidence.core.errors import NumericalError
from pm_evidence.core.numerics import ess_share
from pm_evidence.schedules.adaptive import next_beta
from pm_evidence.schedules.fixed import fixed_schedule, linear, refine, sm08


@dataclass
class Energies:
    """A path along which a population has given log likelihoods."""

    values: np.ndarray

    def log_ratio(self, state, start, stop):
        return (stop - start) * self.values


def step(values, beta=0.0, ess=0.5):
    values = np.asarray(values, dtype=float)
    return next_beta(Energies(values), values, beta, ess)


@pytest.mark.parametrize("ess", [0.05, 0.5, 0.95])
@pytest.mark.parametrize("beta", [0.0, 0.3])
@pytest.mark.parametrize("scale", [10.0, 1e4, 1e9])
def test_effective_size_is_hit(ess, beta, scale):
    values = scale * np.random.default_rng(1).normal(size=1000)
    new = step(values, beta, ess)
    assert beta < new < 1.0
    np.testing.assert_allclose(ess_share((new - beta) * values), ess, rtol=1e-5)


@pytest.mark.parametrize("beta", [0.0, 0.7])
def test_last_step_ends_at_one(beta):
    assert step(0.01 * np.random.default_rng(1).normal(size=100), beta) == 1.0
    assert step(np.zeros(10), beta) == 1.0
    assert step(np.array([3.0]), beta) == 1.0


def test_members_without_support_do_not_count():
    """Half of 30 % is kept; half of all could not be."""
    values = 50.0 * np.random.default_rng(1).normal(size=1000)
    values[:700] = -np.inf
    new = step(values)
    np.testing.assert_allclose(ess_share(new * values), 0.15, rtol=1e-5)
    values[300:] = -np.inf
    values[:300] = 0.0
    assert step(values) == 1.0


def test_no_support_is_an_error():
    with pytest.raises(NumericalError, match="-inf at all 8 draws"):
        step(np.full(8, -np.inf))


def test_steps_that_are_too_small_are_an_error():
    """Rather than a loop without end."""
    beta = 1.0 - 1e-12
    with pytest.raises(NumericalError, match=f"cannot advance beyond beta={beta}"):
        step(1e18 * np.random.default_rng(1).normal(size=100), beta)


def test_linear():
    np.testing.assert_allclose(linear(4), [0.0, 0.25, 0.5, 0.75, 1.0])
    assert np.array_equal(linear(1), [0.0, 1.0])


def test_sm08_is_the_published_schedule():
    """500 values on [0, 0.5], 4,000 on [0.5, 0.9], 10,000 on [0.9, 1]."""
    beta = sm08(14500)
    steps = np.diff(beta)
    assert len(beta) == 14501
    np.testing.assert_allclose(steps[:500], 0.5 / 500)
    np.testing.assert_allclose(steps[500:4500], 0.4 / 4000)
    np.testing.assert_allclose(steps[4500:], 0.1 / 10000)
    assert (beta[0], beta[-1]) == (0.0, 1.0)


@pytest.mark.parametrize("n_stages", [1, 2, 7, 50])
def test_named_schedules_have_their_length(n_stages):
    for name in ("linear", "sm08"):
        beta = fixed_schedule(name, n_stages)
        assert len(beta) == n_stages + 1
        assert (np.diff(beta) > 0).all()
        assert (beta[0], beta[-1]) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("n_stages", "expected"), [(1, 3), (3, 3), (4, 6), (6, 6), (10, 12), (200, 201)]
)
def test_refine_cuts_every_stage_alike(n_stages, expected):
    coarse = np.array([0.0, 0.01, 0.2, 1.0])
    fine = refine(coarse, n_stages)
    assert len(fine) == expected + 1
    parts = expected // 3
    assert np.array_equal(fine[::parts], coarse)
    for k in range(3):
        np.testing.assert_allclose(
            np.diff(fine[k * parts : (k + 1) * parts + 1], n=2), 0, atol=1e-15
        )


def test_own_schedule_is_kept():
    mine = [0, 0.1, 0.7, 1]
    assert np.array_equal(fixed_schedule(mine, 50), mine)
    assert fixed_schedule(mine, 50).dtype == np.float64


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("cosine", "'cosine'"),
        ([0.0, 0.5], "0.0 to 0.5; add the missing end"),
        ([0.1, 1.0], "0.1 to 1.0"),
        ([0.0, 0.5, 0.4, 1.0], r"betas\[2\]=0.4 after 0.5; sort it"),
        ([0.0, 0.5, 0.5, 1.0], r"betas\[2\]=0.5 after 0.5"),
        ([0.0, np.nan, 1.0], r"betas\[1\]=nan"),
        ([0.0], r"shape \(1,\)"),
        ([[0.0, 1.0]], r"shape \(1, 2\)"),
        ([], r"shape \(0,\)"),
    ],
)
def test_mistakes_are_named(wrong, message):
    with pytest.raises(ValueError, match=message):
        fixed_schedule(wrong, 10)
