"""The path along which data points are added."""

import numpy as np
import pytest

import pm_evidence as pe
from pm_evidence.core.random import streams
from pm_evidence.families.mixture.path import DataAnnealingPath
from tests.families.mixture.mixtures import Y, log_evidence, mixture


def start(n=5, **options):
    path = DataAnnealingPath(mixture(**options))
    return path, path.draw(n, np.random.SeedSequence(1)), streams(np.random.SeedSequence(2), n)


@pytest.mark.parametrize("collapsed", [True, False])
def test_a_step_is_undone(collapsed):
    """Reverse paths would remove another point than the one that was added."""
    path = DataAnnealingPath(mixture(), collapsed=collapsed)
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


@pytest.mark.parametrize("collapsed", [True, False])
def test_the_first_weight_has_the_mean_that_it_should_have(collapsed):
    """Exact: with one point, the mean weight of draws from the prior is the evidence."""
    target = mixture(2, y=Y[:1])
    path, n = DataAnnealingPath(target, collapsed=collapsed), 100_000
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


def test_members_do_not_depend_on_each_other():
    path, state, chains = start()
    path_again, _, chains_again = start()
    whole = path.extended(state, chains)
    index = np.array([3, 1])
    part = path_again.extended(state.take(index), chains_again[index])
    np.testing.assert_array_equal(part.to_draws(), whole.to_draws()[index])
    np.testing.assert_allclose(path.smoothed(state)[index], path.smoothed(state.take(index)))
