"""Exchanges leave the joint distribution of a ladder invariant; temperatures are equalised.

Statistical tests compare means over independent ladders with exact ones: see ``MOST_ERRORS``.
"""

import warnings
from itertools import product

import numpy as np
import pytest

import pm_evidence as pe
from pm_evidence.core.random import Phase
from pm_evidence.families.gaussian import GeometricGaussian
from pm_evidence.samplers.tempering import Exchange, ParallelTempering, TemperedBlock
from pm_evidence.schedules import rejection_rates
from pm_evidence.targets.layout import Points
from tests.estimators.refusals import check_refused
from tests.samplers.ladders import (
    BETA,
    MOST_ERRORS,
    EachStep,
    MovesAll,
    Stays,
    largest_error,
    probabilities,
)
from tests.samplers.table import Step, TablePath, plan_of

ENERGY = np.array([-1.5, 0.2, 4.0])  # of three states, in a ladder of three temperatures
PRIOR = np.array([0.2, 0.5, 0.3])
THREE = np.array([0.0, 0.4, 1.0])
N_GRID = 2000


class Grid:
    """In place of a generator: one proposal in each ladder, with equidistant numbers."""

    def random(self, shape):
        assert shape[1] == 1
        return ((np.arange(shape[0]) % N_GRID + 0.5) / N_GRID)[:, None]


class AlwaysAccepts:
    """In place of a generator: numbers so small that every exchange is accepted."""

    def random(self, shape):
        return np.full(shape, 1e-300)


def joint_after(rng, odd):
    """Joint distribution of the states at three temperatures, before and after exchanges."""
    states = np.array(list(product(range(3), repeat=3)))
    log_p = np.log(PRIOR[states]).sum(axis=1) - (THREE * ENERGY[states]).sum(axis=1)
    before = np.exp(log_p) / np.exp(log_p).sum()
    # every joint state in N_GRID ladders; chain 3 l + k has temperature k of ladder l
    start = np.repeat(states, N_GRID, axis=0)
    ladder = np.repeat(np.arange(len(start)), 3)
    rung = np.tile(np.arange(3), len(start)).astype(np.int16)
    exchange = Exchange(THREE, ladder, rng, odd=odd)
    new = exchange.changed(rung, ENERGY[start].ravel()).reshape(-1, 3)
    # the state at each temperature, as a number of three digits
    ended = np.take_along_axis(start, np.argsort(new, axis=1), axis=1) @ [9, 3, 1]
    after = np.bincount(ended, np.repeat(before / N_GRID, N_GRID), minlength=27)
    return before, after


@pytest.mark.parametrize("odd", [False, True])
def test_exchanges_leave_the_joint_distribution_invariant(odd):
    """All 27 joint states enumerated, acceptance on a grid: exact up to its spacing."""
    before, after = joint_after(Grid(), odd)
    np.testing.assert_allclose(after, before, atol=1.0 / N_GRID)


@pytest.mark.parametrize("odd", [False, True])
def test_exchanges_without_a_reject_step_are_found(odd):
    before, after = joint_after(AlwaysAccepts(), odd)
    assert np.abs(after - before).max() > 20.0 / N_GRID


def test_every_ladder_keeps_one_chain_at_each_temperature():
    """Also with states of the reference that have no likelihood."""
    rng, beta, n_ladders = np.random.default_rng(1), np.linspace(0.0, 1.0, 7), 5
    ladder = np.tile(np.arange(n_ladders), 7)
    rung = np.repeat(np.arange(7), n_ladders).astype(np.int16)
    exchange, moved = Exchange(beta, ladder, rng), 0
    for _ in range(200):
        energy = rng.normal(size=35)
        energy[(rung == 0) & (rng.random(35) < 0.5)] = np.inf
        new = exchange.changed(rung, energy)
        assert not ((rung == 0) & np.isinf(energy) & (new != 0)).any()
        assert np.abs(new - rung).max() <= 1
        moved, rung = moved + (new != rung).sum(), new
        for each in range(n_ladders):
            assert sorted(rung[ladder == each]) == list(range(7))
    assert moved > 1000 and rung.dtype == np.int16


@pytest.mark.parametrize("n", [2, 3, 6, 7])
def test_even_and_odd_pairs_alternate(n):
    """If all are accepted, each chain goes to one end, waits there once, and comes back."""
    beta, rung = np.linspace(0.0, 1.0, n), np.arange(n).astype(np.int16)
    exchange, start = Exchange(beta, np.zeros(n, np.int64), AlwaysAccepts()), rung
    seen = [rung := exchange.changed(rung, np.zeros(n)) for _ in range(2 * n)]
    np.testing.assert_array_equal(rung, start)
    # the chain that starts at the reference
    assert [int(each[0]) for each in seen] == [*range(1, n), *range(n - 1, -1, -1), 0]
    steps = np.abs(np.diff([start, *seen], axis=0)).sum(axis=1) // 2
    assert steps.tolist() == [n // 2, (n - 1) // 2] * n


# --- whole runs of ladders ---


def record_of(kernel=None, seed=1, n_ladders=64, n=400):
    sampler = ParallelTempering(ladders=n_ladders)
    plan = plan_of(BETA, kernel)
    return TemperedBlock(sampler, TablePath(), plan, 0, n_ladders, n, seed, Phase.FORWARD)()


def shares(block):
    """Share of every state at every temperature in each ladder."""
    chains, path = block.tempered, TablePath()
    state = np.searchsorted(np.sort(-path.log_likelihood), chains.energy)
    state = np.argsort(-path.log_likelihood)[state]
    table = np.zeros((chains.ladder.max() + 1, len(BETA), 6))
    ladder = np.broadcast_to(chains.ladder, state.shape)
    np.add.at(table, (ladder, chains.rung, state), 1.0)
    return table / table.sum(axis=2, keepdims=True)


@pytest.mark.parametrize("kernel", [Step(), EachStep(), MovesAll(), Stays()])
def test_every_temperature_keeps_its_distribution(kernel):
    """Kernels for one temperature and for all at once, and one that leaves all to exchanges."""
    n_ladders = 256 if isinstance(kernel, Stays) else 64
    assert (
        largest_error(shares(record_of(kernel, n_ladders=n_ladders)), probabilities()) < MOST_ERRORS
    )


def test_runs_without_a_reject_step_are_found(monkeypatch):
    """Were every exchange accepted, the test above would fail."""
    own = Exchange.changed

    def accepting(self, rung, energy):
        self.rng = AlwaysAccepts()
        return own(self, rung, energy)

    monkeypatch.setattr(Exchange, "changed", accepting)
    assert largest_error(shares(record_of()), probabilities()) > 4 * MOST_ERRORS


# --- temperatures ---


def exact_rates(beta, n=30_000):
    """Rejection rates between neighbours, from independent draws of a Gaussian."""
    rng, path = np.random.default_rng(0), GeometricGaussian(pe.mixtures.Gaussian())
    rung = np.tile(np.arange(len(beta)), n)
    sd = np.array([path.moments(each)[1] for each in beta])
    mean = np.array([path.moments(each)[0] for each in beta])
    x = mean[rung] + sd[rung] * rng.normal(size=rung.size)
    return rejection_rates(beta, path.energy(Points(x[:, None]), 1.0), rung)


def run(method, **rest):
    options = {"draws": 256, "target_mcse": None, "random_seed": 1, "progressbar": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pe.EvidenceWarning)
        return pe.sample_evidence(pe.mixtures.Gaussian(), method=method, **options | rest)


def test_tuning_equalises_the_rejection_rates():
    """Steps that are rejected more often than others would be bottlenecks of the ladder.

    The barrier is about the sum of the rates between many temperatures.
    """
    dt = run(pe.methods.ParallelTempering(n_temperatures=12))
    beta = dt["annealing"]["beta"].values
    assert len(beta) == 12 and (beta[0], beta[-1]) == (0.0, 1.0)
    rates = exact_rates(beta)
    assert np.ptp(rates) < 0.06  # in 4 runs at most 0.03
    schedule = pe.to_record(dt).schedule
    barrier = exact_rates(np.linspace(0.0, 1.0, 150) ** 3, 10_000).sum()
    assert schedule.name == "equal_rejection"
    assert schedule.options["barrier"] == pytest.approx(barrier, rel=0.1)


def test_the_number_of_temperatures_follows_from_the_barrier():
    """By default at most about half of the exchanges are rejected, and not much fewer."""
    rates = exact_rates(run(pe.methods.ParallelTempering())["annealing"]["beta"].values)
    assert 0.3 < rates.mean() < 0.55
    many = run(pe.methods.ParallelTempering(n_temperatures=2))["annealing"]["beta"].values
    assert many.tolist() == [0.0, 1.0]


def test_schedules_that_are_given_are_kept():
    given = [0.0, 0.01, 0.1, 1.0]
    for schedule, name, beta in (
        (given, "given", given),
        ("linear", "linear", np.linspace(0.0, 1.0, 4)),
    ):
        dt = run(pe.methods.ParallelTempering(n_temperatures=4), schedule=schedule)
        np.testing.assert_allclose(dt["annealing"]["beta"].values, beta)
        assert pe.to_record(dt).schedule.name == name


def test_a_target_that_is_its_reference_has_no_barrier():
    """All exchanges are accepted; the log evidence is 0, exactly."""
    dt = pe.sample_evidence(
        pe.mixtures.Gaussian(start_mean=0.0, start_sd=1.0),
        method=pe.methods.ParallelTempering(ladders=8),
        draws=400,
        target_mcse=None,
        random_seed=1,
        progressbar=False,
    )
    assert len(dt["annealing"]["beta"]) == 4
    assert pe.to_record(dt).schedule.options["barrier"] == 0.0
    assert pe.log_evidence(dt).value == pytest.approx(0.0, abs=1e-9)


# --- what is asked for ---


def test_schedules_that_are_refused():
    """Before anything is planned or compiled."""
    cases = [
        ([0.0, 0.5, 1.0], "^n_temperatures must be the number of inverse temperatures of the sch"),
        ([0.1, 0.5, 1.0], "^schedule must rise from 0 to 1, got 0.1 to 1.0; add the missing end"),
        ([0.0], "^schedule must be a sequence of at least two inverse temperatures"),
        ([0.0, 0.9, 0.5, 1.0], r"^schedule must rise from 0 to 1, got betas\[2\]=0.5 after 0.9"),
        (np.linspace(0.0, 1.0, 40_000), "^schedule must have at most 32,767 inverse temperatures"),
    ]
    method = pe.methods.ParallelTempering(n_temperatures=4)
    given = [({"method": method, "schedule": schedule}, text) for schedule, text in cases]
    check_refused(run, given)


def test_ladders_are_divided_into_blocks():
    """There are at least two blocks, so that two cores have work."""
    for ladders, groups in ((2, [1, 1]), (5, [2, 2, 1]), (40, [16, 16, 8])):
        sampler = pe.methods.ParallelTempering(ladders=ladders)
        assert sampler.groups() == groups and sampler.islands == ladders
        n = sampler.first_round(sampler.size(1000))
        assert sampler.iterations(n, 9) == -(-1000 // ladders)
        assert [part.tolist() for part in sampler.kept(3, 2)] == [[0, 1, 2], [0, 1, 2]]
