"""The path along which data points are added, its populations, and its Gibbs sampling."""

import numpy as np
import pytest

import pm_evidence as pe
from pm_evidence.core.random import streams
from pm_evidence.families.mixture import (
    ABSENT,
    DataAnnealingPath,
    MixtureGibbs,
    MixtureStates,
    fill_parameters,
)
from tests.families.mixture.mixtures import PRIOR, Y, log_evidence, mixture


def start(n=5, **options):
    path = DataAnnealingPath(mixture(**options))
    return path, path.draw(n, np.random.SeedSequence(1)), streams(np.random.SeedSequence(2), n)


def test_a_step_is_undone():
    """Reverse paths would remove another point than the one that was added."""
    path = DataAnnealingPath(mixture())
    state, chains = path.draw(5, np.random.SeedSequence(1)), streams(np.random.SeedSequence(2), 5)
    for step in range(path.n_steps):
        more = path.extended(state, chains)
        assert more.step == step + 1
        added = np.flatnonzero(
            (more.component >= 0).any(axis=0) & (state.component < 0).all(axis=0)
        )
        assert added.tolist() == [path.target.point_order[step]]
        np.testing.assert_array_equal(path.shrunk(more).to_draws(), state.to_draws())
        state = more
    np.testing.assert_array_equal(path.at(state.to_draws()).component, state.component)


def test_the_first_weight_has_the_mean_that_it_should_have():
    """Exact: with one point, the mean weight of draws from the prior is the evidence."""
    target = mixture(2, y=Y[:1])
    path, n = DataAnnealingPath(target), 100_000
    state = path.draw(n, np.random.SeedSequence(4))
    weight = np.exp(path.smoothed(state))
    error = weight.std() / n**0.5
    assert abs(weight.mean() - np.exp(log_evidence(target))) < 4.0 * error


def test_weights_of_the_wrong_point_are_found():
    """A planted error that leaves the evidence of one and of all points in any order unchanged."""

    class Wrong(DataAnnealingPath):
        def smoothed(self, state):
            shifted = np.roll(self.target.point_order, 1)
            other = mixture(order=shifted)
            return DataAnnealingPath(other).smoothed(state)

    target = mixture()
    dt = pe.sample_evidence(
        target,
        path=Wrong(target),
        draws=8000,
        target_mcse=None,
        random_seed=1,
        progressbar=False,
    )
    found = pe.log_evidence(dt)
    assert found.status != "ok" or abs(found.value - log_evidence(target)) > 6.0 * found.mcse


# --- populations ---


def population(variances="unequal"):
    target = mixture(3, variances=variances)
    path = target.annealing_setup("auto").path
    state, chains = path.draw(6, np.random.SeedSequence(1)), streams(np.random.SeedSequence(2), 6)
    return target, path.extended(path.extended(state, chains), chains)


def test_draws_and_populations_are_the_same_thing():
    """Reverse paths start from draws; a column out of place would be another state."""
    for variances in ("unequal", "equal"):
        target, state = population(variances)
        draws = state.to_draws()
        assert draws.shape == (6, target.n_dim)
        again = DataAnnealingPath(target).at(draws)
        assert isinstance(again, MixtureStates)
        assert again.step == 2
        np.testing.assert_array_equal(again.to_draws(), draws)
        assert (state.component == ABSENT).sum(axis=1).tolist() == [5] * 6


def test_take_and_join():
    """Resampling would mix the parameters of different members."""
    _, state = population()
    index = np.array([4, 4, 0])
    np.testing.assert_array_equal(state.take(index).to_draws(), state.to_draws()[index])
    both = state.join([state.take(index)])
    assert len(both) == 9
    np.testing.assert_array_equal(both.to_draws()[6:], state.to_draws()[index])


# --- Gibbs sampling leaves every density invariant, and its reversal reverses it ---


def test_parameters_without_points_are_draws_from_the_prior():
    """Moments of means, variances and weights in 40,000 draws, within 5 errors."""
    target, n = mixture(3, weights_a=2.0, variance_alpha=6.0), 40_000
    mean, variance, weight = np.empty((n, 3)), np.empty((n, 3)), np.empty((n, 3))
    chains = streams(np.random.SeedSequence(1), n)
    fill_parameters(target.prior, mean, variance, weight, chains)
    for values, expected in (
        (mean, PRIOR["mean_mu"]),
        ((mean - PRIOR["mean_mu"]) ** 2, PRIOR["mean_sigma"] ** 2),
        (variance, PRIOR["variance_beta"] / 5.0),
        (1.0 / variance, 6.0 / PRIOR["variance_beta"]),
        (weight, 1.0 / 3.0),
        (weight**2, 2.0 * 3.0 / (6.0 * 7.0)),
    ):
        z = (values.mean(axis=0) - expected) / (values.std(axis=0) / n**0.5)
        assert (np.abs(z) < 5.0).all()


@pytest.mark.parametrize("backwards", [False, True])
def test_moves_leave_the_density_of_the_first_points_invariant(backwards):
    """Exact draws for four points by weighting draws from the prior, moved five times.

    The means of functions of all parts of the state, within 5 errors. ``f_4`` is reached by
    draws from the prior whose points are weighted exactly, and resampled.
    """
    target = mixture(2)
    path = DataAnnealingPath(target)
    n = 60_000
    state, chains = path.draw(n, np.random.SeedSequence(1)), streams(np.random.SeedSequence(2), n)
    log_weight = np.zeros(n)
    for _ in range(4):
        log_weight += path.smoothed(state)
        state = path.extended(state, chains)
    weight = np.exp(log_weight - log_weight.max())
    before = functions(state)
    rng = np.random.default_rng(3)
    index = rng.choice(n, n, p=weight / weight.sum())
    moved = state.take(index)
    kernel = MixtureGibbs(backwards=backwards)
    for _ in range(5):
        moved, info = kernel.advance(path, moved, 4.0 / 7.0, chains)
    assert info.n_evaluations == n
    after = functions(moved)
    share = weight / weight.sum()
    expected = share @ before
    error_before = np.sqrt((share**2) @ (before - expected) ** 2)
    z = (after.mean(axis=0) - expected) / np.hypot(2.0 * error_before, after.std(axis=0) / n**0.5)
    assert (np.abs(z) < 5.0).all(), z


def functions(state):
    """Bounded functions of variances and of the components of the points so far."""
    there = state.component[0] >= 0
    z = state.component[:, there].astype(float)
    return np.column_stack(
        [
            np.log(state.variance),
            z,
            (z[:, 0] == z[:, 1]),
            (z[:, 0] == z[:, 2]) * np.tanh(state.variance[:, 0]),
        ]
    )
