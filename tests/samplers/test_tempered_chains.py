"""Chains at their temperatures: their moves, their first states, and what is recorded of them.

Statistical tests compare with exact probabilities: see ``MOST_ERRORS``.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pm_evidence as pe
from pm_evidence.core.exceptions import NumericalError
from pm_evidence.core.random import streams
from pm_evidence.families.gaussian import (
    MomentAveragedGaussian,
    MovingGaussian,
)
from pm_evidence.families.lattice.lattice import DetouredPath
from pm_evidence.families.rbm.gibbs import BaseRatePath, BlockGibbs
from pm_evidence.families.rbm.moment_average import MomentAveragedPath
from pm_evidence.samplers.tempering import Chains, Log, annealed_start, check_linear
from pm_evidence.testing import sine_rbm
from tests.samplers.ladders import (
    BETA,
    MOST_ERRORS,
    EachStep,
    MovesAll,
    chains_of,
    energies,
    largest_error,
    log_z,
    probabilities,
    stationary,
)
from tests.samplers.table import LOG_LIKELIHOOD, Indices, Step, TablePath, plan_of

KERNELS = [Step(), EachStep(), MovesAll()]
every_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: type(kernel).__name__)


# --- moves ---


@every_kernel
def test_moves_leave_the_distribution_at_every_temperature_invariant(kernel):
    """Chains that start from exact draws still have their distributions after some moves."""
    n = 20_000
    chains = chains_of(*stationary(n, seed=1), kernel)
    for _ in range(5):
        chains.move()
    for k, expected in enumerate(probabilities()):
        found = np.eye(6)[chains.state.index[k * n : (k + 1) * n]]
        assert largest_error(found, expected) < MOST_ERRORS


@pytest.mark.parametrize("kernel", [Step(), EachStep()], ids=lambda kernel: type(kernel).__name__)
def test_chains_at_the_reference_are_drawn_anew(kernel):
    """One move forgets a start, which steps to a neighbour would not."""
    n = 20_000
    chains = chains_of(Indices(np.full(n, 2)), np.zeros(n, np.int16), kernel)
    chains.move()
    assert largest_error(np.eye(6)[chains.state.index], probabilities()[0]) < MOST_ERRORS
    np.testing.assert_array_equal(chains.streams, chains_of(Indices(None), chains.rung).streams)


@every_kernel
@given(rung=st.lists(st.integers(1, 3), min_size=2, max_size=12), data=st.data())
def test_chains_keep_their_own_streams(kernel, rung, data):
    """Chains in another order, thus in other groups, make the same moves."""
    rung = np.array(rung, np.int16)
    order = np.array(data.draw(st.permutations(range(len(rung)))))
    state = Indices(np.arange(len(rung)) % 6)
    one, other = chains_of(state, rung, kernel), chains_of(state.take(order), rung[order], kernel)
    other.streams = one.streams[order]
    for _ in range(3):
        one.move()
        other.move()
    np.testing.assert_array_equal(other.state.index, one.state.index[order])
    np.testing.assert_array_equal(other.streams, one.streams[order])


def test_one_call_and_one_call_for_each_temperature_move_alike():
    """A kernel of a machine moves members at their own temperatures as ``advance`` does."""
    target = pe.rbm.RBM(*sine_rbm(8, 6))
    path, beta, n = BaseRatePath(target), np.linspace(0.0, 1.0, 4), 40
    rung = (np.arange(n) % 3 + 1).astype(np.int16)
    start = path.draw(n, np.random.SeedSequence(1))
    kernel, seeds = BlockGibbs(), np.random.SeedSequence(2)
    together = Chains(path, beta, (kernel,) * 3, start, rung, streams(seeds, n), seeds)
    # equal kernels that are not one object are called one by one
    kernels = tuple(BlockGibbs() for _ in range(3))
    apart = Chains(path, beta, kernels, start, rung, streams(seeds, n), seeds)
    for _ in range(5):
        together.move()
        apart.move()
    np.testing.assert_array_equal(together.state.to_draws(), apart.state.to_draws())
    np.testing.assert_array_equal(together.streams, apart.streams)
    assert together.n_evaluations == apart.n_evaluations == 5 * 2 * n


def test_kernels_that_draw_independent_states_draw_the_reference_too():
    """Units of machines are independent at the reference, as the kernel says of itself."""
    target = pe.rbm.RBM(*sine_rbm(8, 6), base=np.full(8, 0.3))
    path, n = BaseRatePath(target), 20_000
    seeds = np.random.SeedSequence(1)
    start = path.at(np.ones((n, 14), np.uint8))
    rung = np.zeros(n, np.int16)
    chains = Chains(
        path, np.array([0.0, 1.0]), (BlockGibbs(),), start, rung, streams(seeds, n), seeds
    )
    chains.move()
    rates = np.repeat([0.3, 0.5], [8, 6])
    assert largest_error(chains.state.to_draws().astype(float), rates) < MOST_ERRORS


def test_evaluations_and_moves_without_a_density_are_counted():
    """One evaluation for each move, and for each draw from the reference that is made."""
    chains = chains_of(*stationary(4, seed=1))
    for _ in range(20):
        chains.move()
    # 3 temperatures with 4 chains; 16 iterations' draws from the reference are made at once
    assert chains.n_evaluations == 20 * 12 + 2 * 16 * 4
    assert chains.n_nan == 20 * 3
    assert chains.moved.tolist() == [0.0, 80.0, 80.0, 80.0]
    assert ((chains.acceptance > 0.0) & (chains.acceptance <= 1.0)).all()
    assert chains.mean_acceptance == pytest.approx(chains.acceptance.mean())
    np.testing.assert_array_equal(chains.energy, energies(chains.state))
    alone = chains_of(Indices(np.zeros(3, int)), np.zeros(3, np.int16))
    alone.move()  # at the reference, where there is nothing to accept
    assert np.isnan(alone.acceptance).all() and np.isnan(alone.mean_acceptance)


# --- first states ---


def start_of(path, n_ladders=4000, n_particles=2, beta=BETA, seed=1, chosen=None):
    chosen = [np.arange(n_ladders)] * len(beta) if chosen is None else chosen
    seeds = np.random.SeedSequence(seed).spawn(2)
    return annealed_start(path, plan_of(beta), chosen, n_ladders, n_particles, seeds)


@pytest.mark.parametrize("n_particles", [1, 2, 5])
def test_the_evidence_of_the_first_populations_is_unbiased(n_particles):
    """At every temperature, for each ladder: it is compared with what chains find."""
    start = start_of(TablePath(), n_particles=n_particles)
    assert start.log_z.shape == (4, 4000)
    assert largest_error(np.exp(start.log_z - log_z()[:, None]).T, 1.0) < MOST_ERRORS
    assert start.n_evaluations == 4000 * n_particles * (1 + 2 * 3)
    assert start.n_nan == 2 * 3


FEW = [np.array(some, np.int64) for some in ([0, 1, 2], [], [1], [0, 2])]


def test_first_states_belong_to_their_temperatures():
    """Large populations give exact draws; chains of a temperature stand together."""
    start = start_of(TablePath(), n_ladders=2000, n_particles=50)
    states = start.state.index.reshape(4, 2000)
    for found, expected in zip(states, probabilities(), strict=True):
        share = np.bincount(found, minlength=6) / 2000
        np.testing.assert_allclose(share, expected, atol=0.06)  # resampling leaves 1/50 of bias
    few = start_of(TablePath(), 3, chosen=FEW)
    assert len(few.state) == 6


def test_ladders_without_support_start_from_states_of_others():
    """No kernel moves a state of likelihood zero; the evidence stays unbiased."""
    path = TablePath(log_likelihood=np.where(np.arange(6) == 2, LOG_LIKELIHOOD, -np.inf))
    start = start_of(path, n_particles=4)
    assert np.isinf(start.log_z[1:]).all(axis=0).mean() > 0.7
    assert (start.state.index[4000:] == 2).all()
    assert largest_error(np.exp(start.log_z - log_z(path)[:, None]).T, 1.0) < MOST_ERRORS


def test_a_block_without_any_support_draws_again():
    """Of two ladders with one state each, whose likelihood is zero at nearly all prior draws."""
    path = TablePath(log_likelihood=np.where(np.arange(6) == 2, LOG_LIKELIHOOD, -np.inf))
    relative = []
    for seed in range(400):
        start = start_of(path, 2, 1, seed=seed)
        assert np.isfinite(path.energy(start.state, 1.0)[2:]).all()
        assert (start.log_z[0] == 0.0).all()
        relative.append(np.exp(start.log_z[-1] - path.log_evidence).mean())
    assert largest_error(np.array(relative)[:, None], 1.0) < MOST_ERRORS


def test_no_support_at_all_is_an_error():
    path = TablePath(log_likelihood=np.full(6, -np.inf))
    with pytest.raises(NumericalError, match="it is -inf at all 600 draws from the prior"):
        start_of(path, 3, 2)


# --- paths ---


@pytest.mark.parametrize(
    "path",
    [
        MovingGaussian(pe.mixtures.Gaussian()),
        MomentAveragedGaussian(pe.mixtures.Gaussian()),
        DetouredPath(pe.lattices.Ising(4, 0.4), 0.5),
        DetouredPath(pe.lattices.Potts(4, q=3), 0.5),
        pytest.param(MomentAveragedPath(pe.rbm.RBM(*sine_rbm(8, 6))), marks=pytest.mark.slow),
    ],
    ids=lambda path: type(path).__name__,
)
def test_paths_on_which_beta_is_no_power_are_refused(path):
    """Energies at one temperature would say nothing of the density at another."""
    if isinstance(path, MomentAveragedPath):
        path.learn()
    state = path.draw(20, np.random.SeedSequence(1))
    message = rf"^path must have .* linear in beta .*got a {type(path).__name__}; pass path='geom"
    with pytest.raises(ValueError, match=message):
        check_linear(path, state)


# --- what is recorded ---


class Fixed:
    """Chains that are where a table says, one row for each iteration."""

    beta = np.array([0.0, 0.5, 1.0])
    acceptance = np.array([0.5, 0.25])

    def __init__(self, rungs):
        self.rungs = np.array(rungs, np.int16)
        self.rung = self.rungs[0]
        self.state = Indices(np.arange(self.rungs.shape[1]))


def logged(rungs, every=1, n_burn_in=0, ladder=None, energy=None):
    chains = Fixed(rungs)
    n = chains.rungs.shape[1]
    log = Log(chains, np.arange(n) if ladder is None else np.array(ladder), every)
    for i, rung in enumerate(chains.rungs):
        chains.rung = rung
        now = 10.0 * i + np.arange(n) if energy is None else energy[i]
        log.add(i - n_burn_in, now, recorded=i >= n_burn_in)
    return log


def test_restarts_and_round_trips_are_counted():
    """From the reference to the target, and back; a chain that never was at an end counts none."""
    rungs = np.array(
        [
            [0, 1, 2, 2, 2, 1, 0, 1, 0, 2, 0],  # there and back, twice
            [2, 1, 2, 1, 2, 2, 2, 2, 2, 2, 2],  # never at the reference
            [1, 0, 1, 1, 0, 1, 2, 1, 2, 1, 2],  # there, and not back
            [2, 0, 0, 1, 0, 0, 1, 0, 1, 1, 1],  # from the target, where it did not come to
        ]
    ).T
    found = logged(rungs).result()
    assert found.restarts.tolist() == [2, 0, 1, 0]
    assert found.round_trips.tolist() == [2, 0, 0, 0]


def test_what_happens_before_the_record_is_not_counted():
    """A trip that begins before and ends in the recorded part is."""
    rungs = np.array([[0, 2, 0, 2, 1, 0, 2]]).T
    assert logged(rungs, n_burn_in=3).result().restarts.tolist() == [2]
    assert logged(rungs, n_burn_in=4).result().restarts.tolist() == [1]
    assert logged(rungs, n_burn_in=4).result().round_trips.tolist() == [1]
    assert logged(rungs, n_burn_in=4).result().energy.shape == (3, 1)


def test_one_of_some_iterations_is_recorded():
    """Trips are counted in all of them."""
    rungs = np.array([[0, 2, 0, 2, 0, 2, 1], [2, 1, 2, 1, 2, 1, 2]]).T
    log = logged(rungs, every=3, ladder=[1, 0])
    found = log.result()
    assert found.every == 3 and found.rung.dtype == np.int16
    np.testing.assert_array_equal(found.energy, [[0, 1], [30, 31], [60, 61]])
    np.testing.assert_array_equal(found.rung, rungs[::3])
    assert found.restarts.tolist() == [3, 0] and found.ladder.tolist() == [1, 0]
    draws, origin = log.target_draws()  # by ladder: chain 1 is that of ladder 0
    assert draws.ravel().tolist() == [1.0, 1.0, 0.0] and origin.tolist() == [0, 0, 1]
    draws, origin = logged(np.zeros((4, 3))).target_draws()
    assert draws.shape == (0, 1) and origin.shape == (0,)


def test_diagnostics_of_every_stage():
    """States without likelihood are not in the means; temperatures without states have none."""
    rungs = np.array([[0, 0, 2, 2], [0, 0, 2, 2]]).T.reshape(4, 2)
    energy = np.array([[1.0, 3.0], [np.inf, 5.0], [2.0, 2.0], [4.0, 4.0]])
    trace, end = logged(rungs, energy=energy).trace()
    assert trace.energy_mean[0] == pytest.approx(3.0) and np.isnan(trace.energy_mean[1])
    assert trace.energy_var[0] == pytest.approx(8.0 / 3.0)
    weight = np.exp(-0.5 * np.array([1.0, 3.0, np.inf, 5.0]))
    assert trace.ess[0] == pytest.approx(weight.sum() ** 2 / (weight**2).sum() / 4)
    assert trace.ess[1] == 0.0 and trace.acceptance.tolist() == [0.5, 0.25]
    assert end == (3.0, 1.0)
