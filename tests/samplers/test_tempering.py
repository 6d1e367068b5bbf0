"""Blocks of tempered chains: their sizes, their records, and that they are the same anywhere."""

from dataclasses import replace

import numpy as np
import pytest

import pm_evidence as pe
from pm_evidence.core.contracts import AnnealingSetup
from pm_evidence.core.interrupts import silent
from pm_evidence.core.random import Phase
from pm_evidence.core.records import Role, RunRecord
from pm_evidence.samplers import tempering
from pm_evidence.samplers.sampler import RunContext
from pm_evidence.samplers.tempering import TemperedBlock, Tempering
from tests.estimators.refusals import check_refused
from tests.samplers.ladders import BETA, MOST_ERRORS, largest_error, log_z, tempering_plan
from tests.samplers.table import LOG_LIKELIHOOD, Step, TablePath

PT, ST = pe.methods.ParallelTempering(ladders=6), pe.methods.SimulatedTempering(chains=12)
both = pytest.mark.parametrize("sampler", [PT, ST], ids=["parallel", "simulated"])


def ladders(sampler, n_ladders, n, block=0, seed=1, report=silent, path=None):
    plan = tempering_plan()
    task = TemperedBlock(
        sampler, path or TablePath(), plan, block, n_ladders, n, seed, Phase.FORWARD
    )
    return task(report)


def context(execute=None, seed=1):
    plan = tempering_plan()
    setup = AnnealingSetup(TablePath(), Step(), facts={"known": 1})
    run = execute or (lambda title, tasks, plan: tuple(task() for task in tasks))
    return RunContext(setup, plan, plan, 10, seed, None, run)


def equal_blocks(one, other):
    np.testing.assert_array_equal(one.draws, other.draws)
    np.testing.assert_array_equal(one.work, other.work)
    for name in ("energy", "rung", "ladder", "restarts", "round_trips"):
        np.testing.assert_array_equal(getattr(one.tempered, name), getattr(other.tempered, name))


@both
def test_the_record_of_a_block(sampler):
    """Energies and temperatures of every iteration after the burn-in; draws at the target."""
    block = ladders(sampler, 6, 50)
    chains, n_chains = block.tempered, 24 if sampler is PT else 6
    assert chains.energy.shape == chains.rung.shape == (50, n_chains) and chains.every == 1
    at_target = chains.rung == 3
    assert len(block.draws) == len(block.origin) == at_target.sum()
    ladder = np.broadcast_to(chains.ladder, at_target.shape)[at_target]
    np.testing.assert_array_equal(block.origin, np.sort(ladder))
    # draws of each ladder stand in the order of the iterations
    for each in np.unique(ladder):
        of_ladder = at_target & (chains.ladder == each)
        found = -LOG_LIKELIHOOD[block.draws[block.origin == each, 0].astype(int)]
        np.testing.assert_array_equal(found, chains.energy[of_ladder])
    assert block.work.shape == (6,) and len(block.trace.ess) == 3
    assert np.isfinite(block.trace.energy_mean).all()
    assert block.end[0] == pytest.approx(chains.energy[at_target].mean())
    assert block.n_evaluations > 70 * n_chains / 2 and block.n_nan > 0


@both
def test_a_block_depends_on_its_number_and_its_seed_only(sampler):
    equal_blocks(ladders(sampler, 4, 30), ladders(sampler, 4, 30))
    for other in (ladders(sampler, 4, 30, block=1), ladders(sampler, 4, 30, seed=2)):
        assert not np.array_equal(ladders(sampler, 4, 30).tempered.energy, other.tempered.energy)


@both
def test_long_records_are_thinned(sampler, monkeypatch):
    """One of so many iterations is recorded that the record stays small; trips are all counted."""
    whole = ladders(sampler, 6, 100)
    monkeypatch.setattr(tempering, "_LARGEST_RECORD", whole.tempered.energy.size // 4)
    thinned = ladders(sampler, 6, 100)
    assert thinned.tempered.every == 4
    np.testing.assert_array_equal(thinned.tempered.energy, whole.tempered.energy[::4])
    np.testing.assert_array_equal(thinned.tempered.rung, whole.tempered.rung[::4])
    np.testing.assert_array_equal(thinned.tempered.restarts, whole.tempered.restarts)
    assert 0 < len(thinned.draws) < len(whole.draws)
    for n in (1, 7, 33, 5000):
        block = ladders(sampler, 2, n)
        most = max(tempering._LARGEST_RECORD, block.tempered.energy.shape[1])
        assert block.tempered.energy.size <= most
        assert len(block.tempered.energy) == -(-n // block.tempered.every)


@both
def test_states_before_the_record_are_discarded(sampler):
    """A quarter of the iterations, and at least twenty, so that first states are forgotten."""
    seen = []
    ladders(sampler, 2, 100, report=seen.append)
    assert [each.stage for each in seen] == [1, 2, 3]
    assert all(0.0 <= each.acceptance <= 1.0 for each in seen)


@both
def test_rounds_add_ladders_that_are_independent(sampler):
    made = context()
    record = RunRecord(sampler.name, BETA, {})
    record = sampler.extended(made, record, 60)
    n = len(record.of(Role.FORWARD))
    assert n == len(sampler.groups())
    units = sampler.units(record, 10)
    assert units == (60 if sampler is PT else pytest.approx(60, abs=5))
    record = sampler.extended(made, record, 120)
    blocks = record.of(Role.FORWARD)
    assert [block.block for block in blocks] == list(range(2 * n))
    energies = [block.tempered.energy[:10] for block in blocks]
    assert len({each.tobytes() for each in energies}) == 2 * n


@both
def test_facts_of_the_run(sampler):
    found = sampler.with_ladders(context(), {"more": 2}).setup.facts
    assert found == {"known": 1, "ladders": 6 if sampler is PT else 12, "more": 2}


@both
def test_work_of_the_first_states_is_unbiased(sampler):
    """The estimate ``smc`` of tempered runs; ladders are independent."""
    blocks = [ladders(sampler, 20, 1, seed=seed) for seed in range(30)]
    weight = np.exp(-np.concatenate([block.work for block in blocks]) - log_z()[-1])
    assert largest_error(weight[:, None], 1.0) < MOST_ERRORS


@both
def test_chains_without_support_at_first(sampler):
    """Records hold no state at a positive temperature that its density does not allow."""
    path = TablePath(log_likelihood=np.where(np.arange(6) == 2, LOG_LIKELIHOOD, -np.inf))
    chains = ladders(sampler, 6, 30, path=path).tempered
    assert np.isinf(chains.energy[chains.rung == 0]).any()
    assert np.isfinite(chains.energy[chains.rung > 0]).all()


@both
def test_temperatures_that_do_not_fit(sampler):
    four = replace(sampler, n_temperatures=4)
    assert isinstance(four, Tempering)
    many, five = np.linspace(0.0, 1.0, 40_000), np.linspace(0.0, 1.0, 5)
    cases = [
        ((many,), r"^schedule must have at most 32,767 .* got 40,000; pass"),
        ((five,), r"^n_temperatures must be .* of the schedule, 5, got 4; leave"),
    ]
    check_refused(four.check_temperatures, cases)
    four.check_temperatures(BETA)
    sampler.check_temperatures(np.linspace(0.0, 1.0, 5))
