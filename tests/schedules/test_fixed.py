"""Schedules that are known before a run."""

import numpy as np
import pytest

from pm_evidence.schedules.fixed import fixed_schedule, linear, refine, sm08


def check_is_a_schedule(beta):
    assert beta[0] == 0.0 and beta[-1] == 1.0
    assert (np.diff(beta) > 0).all()


@pytest.mark.parametrize("n_stages", [1, 2, 7, 1000])
@pytest.mark.parametrize("make", [linear, sm08])
def test_named_schedules(make, n_stages):
    """A path that does not end at 1 estimates the evidence of another model."""
    beta = make(n_stages)
    assert beta.shape == (n_stages + 1,)
    check_is_a_schedule(beta)


def test_linear_is_even():
    """Ten equal steps, to the last bit."""
    np.testing.assert_allclose(linear(10), np.arange(11) / 10, rtol=1e-15)


def test_sm08_is_the_published_schedule():
    """500 values up to 0.5, 4,000 up to 0.9 and 10,000 up to 1, as in the paper."""
    beta = sm08(14500)
    expected = np.concatenate(
        [
            np.linspace(0, 0.5, 501),
            np.linspace(0.5, 0.9, 4001)[1:],
            np.linspace(0.9, 1.0, 10001)[1:],
        ]
    )
    np.testing.assert_allclose(beta, expected, rtol=0, atol=1e-12)
    # and its shape is kept when there are fewer
    np.testing.assert_allclose(sm08(145), beta[::100], rtol=0, atol=1e-12)


@pytest.mark.parametrize(("n_stages", "parts"), [(1, 1), (3, 1), (4, 2), (6, 2), (200, 67)])
def test_refine_cuts_every_stage_alike(n_stages, parts):
    """A stage that is refined less than the others would hold most of the error."""
    beta = np.array([0.0, 0.01, 0.3, 1.0])
    fine = refine(beta, n_stages)
    check_is_a_schedule(fine)
    assert len(fine) - 1 == 3 * parts >= n_stages
    np.testing.assert_allclose(fine[::parts], beta, rtol=1e-15)
    steps = np.diff(fine).reshape(3, parts)
    np.testing.assert_allclose(steps, np.diff(beta)[:, None] / parts * np.ones(parts), rtol=1e-9)


def test_schedules_that_a_user_gives():
    """They are taken as they are."""
    np.testing.assert_array_equal(fixed_schedule([0, 0.5, 1]), [0.0, 0.5, 1.0])
    np.testing.assert_array_equal(fixed_schedule(np.array([0.0, 1.0])), [0.0, 1.0])


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (
            "geometric",
            r"schedule must be .*'sm08', 'gms13', 'varopt', .* or an array .*got 'geometric'",
        ),
        ([0.1, 1.0], r"schedule must rise from 0 to 1, got 0.1 to 1.0; add the missing end"),
        ([0.0, 0.9], r"schedule must rise from 0 to 1, got 0.0 to 0.9; add the missing end"),
        ([1.0, 0.0], r"schedule must rise from 0 to 1, got 1.0 to 0.0"),
        ([0, 0.5, 0.4, 1], r"got betas\[2\]=0.4 after 0.5; sort it and drop repeats"),
        ([0, 0.5, 0.5, 1], r"got betas\[2\]=0.5 after 0.5"),
        ([0, np.nan, 1], r"got betas\[1\]=nan after 0.0"),
        ([], r"schedule must be a sequence of at least two inverse temperatures, got shape \(0,\)"),
        ([0.0], r"at least two inverse temperatures, got shape \(1,\)"),
        ([[0.0, 1.0]], r"at least two inverse temperatures, got shape \(1, 2\)"),
        (0.5, r"schedule must be .* an array of inverse temperatures, got 0.5"),
        (["cold", "hot"], r"schedule must be .* an array of inverse temperatures, got \["),
        ({0.0: 1.0}, r"schedule must be .* an array of inverse temperatures, got \{"),
        ([0.0, [0.5, 0.6], 1.0], r"schedule must be .* an array of inverse temperatures, got \["),
        (None, r"schedule must be .* an array of inverse temperatures, got None"),
    ],
)
def test_bad_schedules(schedule, message):
    """A run over a wrong schedule would end, and its evidence would be wrong."""
    with pytest.raises(ValueError, match=message):
        fixed_schedule(schedule)
