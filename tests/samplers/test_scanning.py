"""Where a survey looks: inside the shell of prior draws, and at what stands out."""

import numpy as np
import pytest

from pm_evidence.samplers.survey import between, contracted, outlying


@pytest.mark.parametrize("d", [1, 4, 100])
def test_contracted_draws_fill_the_shell(d):
    rng = np.random.default_rng(1)
    x = rng.normal(3.0, 2.0, (2000, d))
    moved = contracted(x, rng)
    centre = np.median(x, axis=0)
    factor = np.linalg.norm(moved - centre, axis=1) / np.linalg.norm(x - centre, axis=1)
    assert factor.min() >= d**-0.5 - 1e-9 and factor.max() <= 1.0 + 1e-9
    assert np.median(factor) == pytest.approx(d**-0.25, rel=0.1)


def test_positions_in_another_basin_stand_out():
    """A density of any shape that falls with the prediction, and three values above their like."""
    rng = np.random.default_rng(6)
    predicted = -rng.exponential(1000.0, 5000)
    log_density = -50.0 * np.sqrt(-predicted) + rng.normal(0, 5.0, 5000)
    odd = np.argsort(predicted)[[700, 2500, 4000]]
    log_density[odd] += 100.0
    assert set(odd) == set(outlying(log_density, predicted, 3))


def test_densities_at_the_end_of_the_range_do_not_stand_out():
    """Relative to a small spread they are below the range of float64."""
    predicted = np.arange(400.0)
    log_density = predicted.copy()
    log_density[::3], log_density[100] = -1e308, 150.0
    assert list(outlying(log_density, predicted, 1)) == [100]


def test_predictions_of_minus_infinity_are_like_each_other():
    """Far from all peaks the squared distance overflows."""
    predicted = np.full(200, -np.inf)
    log_density = np.full(200, -9e299)
    log_density[100] = -1e299
    assert list(outlying(log_density, predicted, 1)) == [100]


def test_positions_between_prior_and_population():
    """Their scales reach from the one to the other, and their centres follow."""
    rng = np.random.default_rng(7)
    prior, draws = rng.normal(0, 10, (4000, 2)), rng.normal(5, 0.1, (4000, 2))
    x = between(prior, draws, 20_000, rng)
    near = np.abs(x - 5).max(axis=1) < 0.3
    far = np.abs(x).max(axis=1) > 8
    assert 0.05 < near.mean() < 0.5 and 0.05 < far.mean() < 0.5
    middle = (np.abs(x - 5) < 2).all(axis=1) & ~near
    assert middle.mean() > 0.1
