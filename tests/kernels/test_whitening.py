"""Small steps of kernels: decisions, and moves in whitened coordinates."""

import numba as nb
import numpy as np
import pytest

from pm_evidence.core.random import streams
from pm_evidence.kernels.hmc import move_along, pull_back, squared_distance
from pm_evidence.kernels.random_walk import acceptance_probability, accepts

SIZES = [(1, 1), (3, 3), (2, 5), (1, 4), (6, 6)]  # free coordinates, and all


def problem(seed, n_free, n_all, dense):
    """Some of the coordinates, and a factor with correlations or without."""
    rng = np.random.default_rng(seed)
    free = rng.choice(n_all, n_free, replace=False)
    if dense:
        factor = np.tril(rng.normal(size=(n_free, n_free)))
        factor[np.diag_indices(n_free)] = rng.uniform(0.5, 2.0, n_free)
    else:
        free = np.sort(free)  # all coordinates come in their order
        factor = rng.uniform(0.5, 2.0, (n_free, 1))
    matrix = factor if factor.shape[1] == n_free else np.diag(factor[:, 0])
    return rng, free, factor, matrix


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize(("n_free", "n_all"), SIZES)
def test_steps_and_forces_and_distances(n_free, n_all, dense):
    """A kernel whose steps and distances disagree is not reversible."""
    rng, free, factor, matrix = problem(3, n_free, n_all, dense)
    position, direction = rng.normal(size=n_all), rng.normal(size=n_free)
    expected = position.copy()
    expected[free] += 0.3 * matrix @ direction
    moved = position.copy()
    move_along(moved, free, factor, 0.3, direction)
    np.testing.assert_allclose(moved, expected, rtol=1e-13, atol=1e-14)

    gradient, force = rng.normal(size=(2, n_all)), np.empty(n_free)
    pull_back(gradient, 0.7, free, factor, force)
    slope = (gradient[0] + 0.7 * gradient[1])[free]
    np.testing.assert_allclose(force, matrix.T @ slope, rtol=1e-12, atol=1e-13)

    mean = rng.normal(size=n_free)
    white = np.linalg.solve(matrix, position[free] - mean)
    found = squared_distance(position, free, mean, factor, np.empty(n_free))
    assert found == pytest.approx(white @ white, rel=1e-12)


# --- the Metropolis decision that every proposal passes ---


@nb.njit
def share_accepted(log_ratio, stream, n):
    count = 0
    for _ in range(n):
        count += accepts(log_ratio, stream)
    return count / n


@pytest.mark.parametrize(
    ("log_ratio", "expected"),
    [
        (0.0, 1.0),
        (3.0, 1.0),
        (np.inf, 1.0),
        (-np.log(2.0), 0.5),
        (-700.0, np.exp(-700.0)),
        (-800.0, 0.0),
        (-np.inf, 0.0),
        (np.nan, 0.0),
    ],
)
def test_probability_and_decision(log_ratio, expected):
    """100,000 decisions, seed 1: a share that is off by five errors fails, 6e-7 by chance.

    A proposal whose density is not a number is refused, or the population would be lost to it.
    """
    assert acceptance_probability(log_ratio) == pytest.approx(expected, rel=1e-14)
    stream, n = streams(np.random.SeedSequence(1), 1)[0], 100_000
    share = share_accepted(log_ratio, stream, n)
    assert abs(share - expected) <= 5.0 * np.sqrt(expected * (1.0 - expected) / n)
