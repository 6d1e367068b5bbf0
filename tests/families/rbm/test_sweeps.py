"""What the kernels of machines that move through many stages share."""

from dataclasses import dataclass

import numpy as np

from pm_evidence.core.contracts import StageBatch
from pm_evidence.core.random import streams
from pm_evidence.families.rbm.path import BaseRatePath
from pm_evidence.families.rbm.sweeps import Sweeps
from tests.families.rbm.machines import sine


@dataclass(frozen=True)
class Overwrites(Sweeps):
    """A kernel that does to its population what compiled loops do, and nothing else."""

    def advance_many(self, path, state, beta, chains):
        for words in state.layers:
            words[:] = 0
        n = len(state)
        return StageBatch(state, None, None, np.full(len(beta), 0.25), self._columns(beta, n).size)


def test_a_single_stage_leaves_its_population_as_it_is():
    """Compiled loops overwrite units; samplers keep the population that they hand over."""
    path = BaseRatePath(sine(base="uniform"))
    state, chains = path.draw(6, np.random.SeedSequence(1)), streams(np.random.SeedSequence(2), 6)
    before = state.to_draws()
    for moved, info in (
        Overwrites().advance(path, state, 0.5, chains),
        Overwrites().advance_each(path, state, np.full(6, 0.5), chains),
    ):
        assert not moved.to_draws().any()
        assert info.acceptance == 0.25
        np.testing.assert_array_equal(state.to_draws(), before)
