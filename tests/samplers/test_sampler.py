"""What every sampler says of itself, and how rounds are cut into blocks."""

import inspect
import pickle
from dataclasses import dataclass

import numpy as np
import pytest

from pm_evidence.core.random import Phase
from pm_evidence.samplers.ais import AIS
from pm_evidence.samplers.aisel import AISEL
from pm_evidence.samplers.sampler import ForwardBlock, Sampler, block_sizes
from pm_evidence.samplers.simulated_tempering import SimulatedTempering
from pm_evidence.samplers.smc import SMC
from pm_evidence.samplers.tempering import ParallelTempering
from tests.samplers.table import TablePath, plan_of

# AISEL hands its settings on
SAMPLERS = [SMC(), AIS(), AISEL().annealer, ParallelTempering(), SimulatedTempering()]
every_sampler = pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda sampler: sampler.name)


@every_sampler
def test_every_sampler_has_what_a_run_asks_for(sampler):
    """A run calls by the contract: what is missing fails in the middle of it."""
    for name, wanted in vars(Sampler).items():
        if name.startswith("_"):
            continue
        assert hasattr(sampler, name), name
        if inspect.isfunction(wanted):
            found = list(inspect.signature(getattr(sampler, name)).parameters)
            assert found == list(inspect.signature(wanted).parameters)[1:], name
    assert sampler.annealer.annealer == sampler.annealer
    assert sampler.default_draws > 0 and 0.0 < sampler.ess < 1.0 and sampler.islands >= 2


@every_sampler
def test_the_first_round_has_at_least_the_draws_that_were_asked_for(sampler):
    for draws in (1, 7, 1600, 100_000):
        size = sampler.size(draws)
        assert sampler.first_round(size) >= draws
        assert sampler.first_round(size) % sampler.unit(size) == 0


def test_rounds_are_cut_into_full_blocks_and_a_rest():
    assert block_sizes(0, 4) == [] and block_sizes(3, 4) == [3] and block_sizes(4, 4) == [4]
    assert block_sizes(9, 4) == [4, 4, 1] and block_sizes(1, 1) == [1]


@dataclass(frozen=True)
class Arguments:
    """A sampler that returns what it was called with."""

    def run_block(self, path, plan, block, n, seed, report, *, phase):
        return path, plan, block, n, seed, report, phase


def test_a_block_is_all_that_a_worker_needs():
    """It goes to another process as it is, and gives the same numbers there."""
    task = ForwardBlock(Arguments(), "path", "plan", 3, 20, 7)
    assert task(print) == ("path", "plan", 3, 20, 7, print, Phase.FORWARD)
    task = ForwardBlock(SMC(), TablePath(), plan_of([0.0, 0.3, 1.0]), 3, 50, 7)
    one, other = task(), pickle.loads(pickle.dumps(task))()
    np.testing.assert_array_equal(one.work, other.work)
    np.testing.assert_array_equal(one.draws, other.draws)
