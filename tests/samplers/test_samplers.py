"""What one block of each sampler leaves behind."""

from itertools import pairwise

import numpy as np
import pytest

from pm_evidence.core.contracts import MoveInfo, Plan
from pm_evidence.core.exceptions import NumericalError
from pm_evidence.core.interrupts import Progress
from pm_evidence.core.numerics import ess_share
from pm_evidence.core.random import streams
from pm_evidence.kernels.cycle import choose_kernel
from pm_evidence.samplers.ais import AIS
from pm_evidence.samplers.planning import Pilot
from pm_evidence.samplers.sampler import Tracer, grow_chains, kernel_settings, summed
from pm_evidence.samplers.smc import SMC
from tests.kernels.exact import gaussian, mixed
from tests.samplers.table import LOG_LIKELIHOOD, Indices, Step, TablePath, plan_of

SHORT = [0.0, 0.2, 0.6, 1.0]
SAMPLERS = [SMC(), SMC(chain_length=1), SMC(chain_length=4, resampling="ssp"), AIS()]
every_sampler = pytest.mark.parametrize("sampler", SAMPLERS)


class Mixes(Step):
    """Thirty steps, so that chains forget their starts."""

    def advance(self, path, state, beta, streams):
        for _ in range(30):
            state, info = super().advance(path, state, beta, streams)
        return state, info


# --- blocks ---


@every_sampler
def test_block_has_its_shapes(sampler):
    record = sampler.run_block(TablePath(), plan_of(SHORT), 0, 22, seed=4)
    n_paths = 22 if sampler.name == "ais" else 1
    assert record.block == 0
    assert record.work.shape == (n_paths,)
    assert record.draws.shape == (22, 1)
    for name in ("energy_mean", "energy_var", "ess", "acceptance"):
        assert getattr(record.trace, name).shape == (3,)
        assert np.isfinite(getattr(record.trace, name)).all()
    if sampler.name == "ais":
        assert np.array_equal(record.log_weight, -record.work)
    else:
        assert record.log_weight is None
        assert 0 < record.relative_variance < 1


@every_sampler
def test_same_seed_and_block_give_the_same_numbers(sampler):
    """Retries, threads and workers rest on this."""
    path, plan = TablePath(), plan_of(SHORT)
    one = sampler.run_block(path, plan, 3, 500, seed=4)
    again = sampler.run_block(path, plan, 3, 500, seed=4)
    assert np.array_equal(one.work, again.work)
    assert np.array_equal(one.draws, again.draws)
    for other in (
        sampler.run_block(path, plan, 2, 500, 4),
        sampler.run_block(path, plan, 3, 500, 5),
    ):
        assert not np.array_equal(one.draws, other.draws)


def test_evaluations_are_counted():
    """Speed is stated per evaluation."""
    record = SMC(chain_length=5).run_block(TablePath(), plan_of(SHORT), 0, 20, seed=4)
    assert record.n_evaluations == 20 + 3 * 4 * 4  # four chains, four moves, three stages
    assert record.n_nan == 3 * 4  # the kernel says one a move
    record = SMC(chain_length=1).run_block(TablePath(), plan_of(SHORT), 0, 20, seed=4)
    assert record.n_evaluations == 20 + 3 * 20
    record = AIS().run_block(TablePath(), plan_of(SHORT), 0, 20, seed=4)
    assert record.n_evaluations == 20 + 3 * 20


@pytest.mark.parametrize(("draws", "chain_length"), [(7, 5), (2, 1), (10, 5), (1001, 10)])
def test_smc_keeps_as_many_draws_as_asked(draws, chain_length):
    sampler = SMC(chain_length=chain_length)
    record = sampler.run_block(TablePath(), plan_of(SHORT), 0, draws, seed=4)
    assert len(record.draws) == draws


def test_trace_is_that_of_exact_stages():
    """Energies at the start of every stage, against the sums over all states."""
    path, beta = TablePath(), np.array(SHORT)
    record = SMC(chain_length=1).run_block(path, plan_of(beta), 0, 50_000, seed=4)
    for k, start in enumerate(beta[:-1]):
        p = np.exp(path.log_density(start))
        p /= p.sum()
        mean = -(p @ LOG_LIKELIHOOD)
        variance = p @ LOG_LIKELIHOOD**2 - mean**2
        np.testing.assert_allclose(record.trace.energy_mean[k], mean, atol=0.1)
        np.testing.assert_allclose(record.trace.energy_var[k], variance, rtol=0.1)
        step = beta[k + 1] - start
        weight = np.exp(step * LOG_LIKELIHOOD)
        ess = (p @ weight) ** 2 / (p @ weight**2)
        np.testing.assert_allclose(record.trace.ess[k], ess, atol=0.02)
    assert ((record.trace.acceptance > 0.1) & (record.trace.acceptance < 1)).all()


@pytest.mark.parametrize("direction", ["forward", "reverse", "carried"])
def test_ess_is_that_of_one_step_in_all_samplers(direction):
    """The share that one step's weights leave; with all weights so far it would fall on the way.

    Chains mix well here, so that every step starts close to equilibrium. Seed 4; 20,000 paths know
    each share to 0.005.
    """
    path, beta = TablePath(), np.array(SHORT)

    plan = plan_of(beta, Mixes())
    if direction == "reverse":
        p = np.exp(path.log_density(1.0) - path.log_density(1.0).max())
        start = np.random.default_rng(4).choice(len(p), 20_000, p=p / p.sum())
        record = AIS().run_reverse(path, plan, 0, start, None, seed=4)
    elif direction == "forward":
        record = AIS().run_block(path, plan, 0, 20_000, seed=4)
    else:
        sampler = SMC(chain_length=1, resample_below=0.05)
        record = sampler.run_block(path, plan, 0, 20_000, seed=4)
    for k, (low, high) in enumerate(pairwise(beta)):
        start, step = (high, low - high) if direction == "reverse" else (low, high - low)
        p = np.exp(path.log_density(start) - path.log_density(start).max())
        p /= p.sum()
        weight = np.exp(step * LOG_LIKELIHOOD)
        ess = (p @ weight) ** 2 / (p @ weight**2)
        np.testing.assert_allclose(record.trace.ess[k], ess, atol=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("chain_length", [1, 5])
def test_single_run_variance(chain_length):
    """It states the spread of islands without running them, where chains mix well.

    Over 400 islands the variance of their Z is known to 7 % or so; the bounds are 4 times that.
    """
    path, sampler = TablePath(), SMC(chain_length=chain_length, resampling="multinomial")

    plan = plan_of(SHORT, Mixes())
    records = [sampler.run_block(path, plan, block, 200, seed=9) for block in range(400)]
    z = np.exp([-float(record.work[0]) - path.log_evidence for record in records])
    stated = np.mean([record.relative_variance for record in records])
    assert 0.7 < stated / z.var() < 1.4


def test_report_follows_the_stages():
    """It may also stop a block: that is how Ctrl-C reaches threads."""

    class Enough(Exception):
        pass

    def stop(progress):
        raise Enough

    for sampler in (SMC(), AIS()):
        with pytest.raises(Enough):
            sampler.run_block(TablePath(), plan_of(SHORT), 0, 40, 4, stop)
        seen = []
        record = sampler.run_block(TablePath(), plan_of(SHORT), 2, 180, 4, seen.append)
        assert [(p.block, p.stage, p.beta) for p in seen] == [(2, 1, 0.2), (2, 2, 0.6), (2, 3, 1.0)]
        if sampler.name == "smc":
            np.testing.assert_allclose(seen[-1].log_evidence, -record.work[0])


# --- likelihoods of zero ---


def test_dead_islands_and_paths_have_weight_zero():
    """Z is estimated as 0, which is legal and counts; it must not break the others' mean."""
    path = TablePath(log_likelihood=np.full(6, -np.inf))
    record = SMC().run_block(path, plan_of(SHORT), 0, 20, seed=4)
    assert np.array_equal(record.work, [np.inf])
    assert record.draws is None
    assert np.isnan(record.trace.ess).all()
    assert record.trace.ess.shape == (3,)
    path = TablePath(log_likelihood=np.array([-np.inf, -1.0, -np.inf, 0.0, -np.inf, 0.5]))
    record = AIS().run_block(path, plan_of(SHORT), 0, 64, seed=4)
    assert 0 < np.isinf(record.work).sum() < 64 and not np.isnan(record.work).any()
    assert np.isfinite(record.trace.energy_mean).all()
    assert np.isfinite(record.trace.energy_var).all()
    assert (record.trace.ess < 0.8).all()  # a share of all paths, dead ones included


def test_island_survives_on_a_few_members():
    """-inf at 95 % of the prior: the others are resampled, and none of the dead."""
    likelihood = np.array([-np.inf, -np.inf, 0.3, -np.inf, -np.inf, -np.inf])
    path = TablePath(log_likelihood=likelihood)

    class Stays(Step):
        def advance(self, path, state, beta, streams):
            assert (state.index == 2).all()
            return state, MoveInfo(0.0, 1)

    record = SMC().run_block(path, plan_of(SHORT, Stays()), 0, 500, seed=4)
    assert (record.draws == 2.0).all()
    assert abs(record.work[0] + np.log(0.05) + 0.3) < 1.0


# --- chains ---


class Count(Step):
    """Adds one to every member, and remembers what it was called with."""

    def advance(self, path, state, beta, streams):
        assert len(state) == len(streams)
        return Indices(state.index + 1), MoveInfo(0.5, 7, n_nan=1)


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (1, [11, 21, 31]),
        (2, [10, 20, 30, 11, 21, 31]),
        (4, [10, 20, 30, 11, 21, 31, 12, 22, 32, 13, 23, 33]),
    ],
)
def test_chains_are_laid_out_state_by_state(length, expected):
    """The variance estimate counts on it: unit ``i`` is every ``n``-th member from ``i``."""
    chains = streams(np.random.SeedSequence(0), 3)
    start = Indices(np.array([10, 20, 30]))
    state, info = grow_chains(TablePath(), Count(), start, 0.5, length, chains)
    assert state.index.tolist() == expected
    assert info.n_evaluations == 7 * max(length - 1, 1)


def test_watch_sees_every_move_and_changes_the_next():
    kernels = []

    def watch(kernel, info):
        kernels.append(kernel)
        return kernel.adjust(info)

    start = Indices(np.zeros(2, dtype=int))
    grow_chains(TablePath(), Count(), start, 0.5, 4, streams(np.random.SeedSequence(0), 2), watch)
    np.testing.assert_allclose([kernel.scale for kernel in kernels], [1.0, 1.5, 2.25])


# --- trace ---


def test_tracer():
    seen = []
    tracer = Tracer(3, seen.append)
    energy = np.array([1.0, 3.0, np.inf, 2.0])
    log_weight = np.array([0.0, 0.0, -np.inf, 0.0])
    tracer.add(0.25, energy, log_weight, MoveInfo(0.7, 11, n_nan=2), -1.5)
    tracer.add(0.5, np.full(4, np.inf), np.full(4, -np.inf), MoveInfo(0.1, 5, n_nan=1), -2.5)
    assert (tracer.n_stages, tracer.n_evaluations, tracer.n_nan) == (2, 16, 3)
    assert seen[0] == Progress(3, 1, 0.25, 0.75, 0.7, -1.5)
    assert seen[1] == Progress(3, 2, 0.5, 0.0, 0.1, -2.5)
    trace = tracer.trace(3)
    np.testing.assert_allclose(trace.energy_mean, [2.0, np.nan, np.nan])
    np.testing.assert_allclose(trace.energy_var, [2 / 3, np.nan, np.nan])
    np.testing.assert_allclose(trace.ess, [0.75, 0.0, np.nan])
    np.testing.assert_allclose(trace.acceptance, [0.7, 0.1, np.nan])
    nothing = Tracer(0, lambda progress: None).trace(2)
    assert np.isnan(nothing.ess).all() and nothing.ess.shape == (2,)
    total = summed([MoveInfo(0.2, 3, n_nan=1), MoveInfo(0.6, 5)])
    assert (total.acceptance, total.n_evaluations, total.n_nan) == (0.4, 8, 1)
    plan = Plan(np.array([0.0, 0.5, 1.0]), (Step(scale=1.0), Step(scale=0.25)))
    assert kernel_settings(plan)["scale"].tolist() == [1.0, 0.25]


# --- pilot ---


@pytest.mark.parametrize("ess", [0.3, 0.5, 0.9])
@pytest.mark.parametrize("chain_length", [1, 5])
def test_pilot_keeps_the_effective_size(ess, chain_length):
    seen = []
    plan = Pilot(2000, chain_length, ess).run(TablePath(), Step(), 1, seen.append)
    assert [p.beta for p in seen] == plan.beta[1:].tolist()
    assert (np.diff(plan.beta) > 0).all()
    assert (plan.beta[0], plan.beta[-1]) == (0.0, 1.0)
    np.testing.assert_allclose([p.ess for p in seen[:-1]], ess, atol=1e-6)
    assert seen[-1].ess >= ess - 1e-6
    assert all(p.block == -1 for p in seen)
    assert [p.stage for p in seen] == list(range(1, plan.n_stages + 1))
    assert abs(seen[-1].log_evidence - TablePath().log_evidence) < 0.5


def test_pilot_learns_adjusts_and_freezes():
    """A kernel that still explores, or was never tuned, would go into every island."""
    plan = Pilot(500, 5).run(TablePath(), Step(), seed=1)
    assert plan.n_stages > 1
    for stage, kernel in enumerate(plan.kernels, start=1):
        assert not kernel.exploring
        assert kernel.learnt == stage
        assert kernel.scale > 1.0
    scales = [kernel.scale for kernel in plan.kernels]
    assert scales == sorted(scales)  # tuning goes on from stage to stage


@pytest.mark.parametrize(
    ("system", "name"),
    [
        (gaussian, "hmc"),
        (gaussian, "random_walk"),
        pytest.param(mixed, "random_walk", marks=pytest.mark.slow),
    ],
)
def test_real_kernels_are_frozen_and_tuned(system, name):
    exact = system()
    seen = []
    kernel = choose_kernel(exact.path.target, name)
    plan = Pilot(1000, 5).run(exact.path, kernel, 1, seen.append)
    for kernel in plan.kernels:
        parts = getattr(kernel, "parts", (kernel,))
        assert not any(getattr(part, "exploring", False) for part in parts)
        assert parts[0].shape is not None
        assert (
            kernel.without_exploration() == kernel
            or kernel.without_exploration().settings() == kernel.settings()
        )
    if system is gaussian:  # near its target after the moves of a few stages
        wanted = {"hmc": 0.85, "random_walk": 0.3}[name]
        assert abs(seen[-1].acceptance - wanted) < 0.2


def test_pilot_follows_a_schedule():
    schedule = np.array([0.0, 0.01, 0.5, 1.0])
    plan = Pilot(200, 5, schedule=schedule).run(TablePath(), Step(), seed=1)
    assert np.array_equal(plan.beta, schedule)
    assert len(plan.kernels) == 3


def test_pilot_with_few_survivors():
    """Nine of ten draws without support: the effective size is a share of the others."""
    likelihood = np.array([-np.inf, -np.inf, 2.0, -np.inf, -1.0, 0.0])
    seen = []
    path = TablePath(log_likelihood=likelihood)
    Pilot(4000, 5).run(path, Step(), 1, seen.append)
    assert 0.1 < seen[0].ess < 0.26
    assert all(p.ess > 0.45 for p in seen[1:])


@pytest.mark.parametrize("schedule", [None, np.array([0.0, 0.5, 1.0])])
def test_pilot_without_support(schedule):
    path = TablePath(log_likelihood=np.full(6, -np.inf))
    with pytest.raises(NumericalError, match="-inf at all"):
        Pilot(100, 5, schedule=schedule).run(path, Step(), seed=1)


@pytest.mark.parametrize("n", [2, 3, 10])
def test_tiny_pilots(n):
    plan = Pilot(n, 5).run(TablePath(), Step(), seed=1)
    assert plan.beta[-1] == 1.0
    exact = gaussian()
    plan = Pilot(n, 5).run(exact.path, choose_kernel(exact.path.target), seed=1)
    assert plan.beta[-1] == 1.0
    record = SMC().run_block(exact.path, plan, 0, n, seed=1)
    assert np.isfinite(record.work).all()


def test_schedule_of_the_pilot_suits_the_islands():
    """Stage by stage the islands keep about the size that the pilot was told to."""
    exact = gaussian()
    plan = Pilot(2000, 5).run(exact.path, choose_kernel(exact.path.target), seed=1)
    record = SMC().run_block(exact.path, plan, 0, 2000, seed=1)
    np.testing.assert_allclose(record.trace.ess[:-1], 0.5, atol=0.12)
    assert ess_share(np.zeros(3)) == 1.0
