"""Populations of parameters and assignments."""

import numpy as np

from pm_evidence.core.random import streams
from pm_evidence.families.mixture.state import ABSENT, MixtureStates, states_of
from tests.families.mixture.mixtures import mixture


def population(variances="unequal"):
    target = mixture(3, variances=variances)
    path = target.annealing_setup("auto").path
    state, chains = path.draw(6, np.random.SeedSequence(1)), streams(np.random.SeedSequence(2), 6)
    return target, path.extended(path.extended(state, chains), chains)


def test_draws_and_populations_are_the_same_thing():
    """Reverse paths start from draws; a column out of place would be another state."""
    for variances, n_variances in (("unequal", 3), ("equal", 1)):
        target, state = population(variances)
        draws = state.to_draws()
        assert draws.shape == (6, target.n_dim)
        again = states_of(draws, 3, n_variances)
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
