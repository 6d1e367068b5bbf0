"""Adaptive resample-move."""

from dataclasses import dataclass

import numpy as np
import pytest

import pm_evidence as pe
from pm_evidence.core.contracts import AnnealingSetup
from pm_evidence.core.random import streams
from pm_evidence.kernels.cycle import Grows
from tests.paths.chain import Chain, ChainPath, Gibbs, chain


def run(target, method, **options):
    options = {"draws": 800, "target_mcse": None, "random_seed": 1, "progressbar": False} | options
    return pe.sample_evidence(target, method=method, **options)


@dataclass(frozen=True)
class Reseeding(ChainPath):
    """A chain of spins that makes independent states by Gibbs sampling from all ones."""

    can_reseed = True

    def reseeded(self, n, beta, n_moves, seed):
        state, chains = self.at(np.ones((n, self.step_of(beta)))), streams(seed, n)
        for _ in range(n_moves):
            state, _ = Gibbs().advance(self, state, beta, chains)
        return state


class ReseedingChain(Chain):
    """The chain with that path."""

    def annealing_setup(self, kernel):
        return AnnealingSetup(
            Reseeding(self), Grows(self.moves), n_stages=self.n_dim, stepwise=True
        )


@pytest.mark.parametrize("generate", ["anticipate", "reseed"])
def test_evidence_is_exact(generate):
    """Particles that are added would have wrong weights."""
    given = chain(strength=1.5)
    target = ReseedingChain(given.field, given.coupling)
    method = pe.methods.ARM(generate=generate, ess_threshold=0.9, reseed_moves=20)
    dt = run(target, method)
    found = pe.log_evidence(dt)
    assert found.status == "ok"
    assert found.mcse < 0.05
    assert abs(found.value - target.log_z) < 4.0 * found.mcse
    particles = dt["annealing"]["particles"].values[0]
    few = dt["annealing"]["ess"].values[0] < 0.75
    assert few.any()
    assert (particles[few] > 50.0).all()


@pytest.mark.parametrize("generate", ["copy", pytest.param("anticipate", marks=pytest.mark.slow)])
def test_mean_of_z_is_exact(generate):
    """The bias of particles that are added because of their own weights would remain."""
    target = chain(n=6, strength=3.0)
    method = pe.methods.ARM(islands=400, ess_threshold=0.9, generate=generate)
    found = pe.log_evidence(run(target, method, draws=1600), estimator="smc")
    assert found.mcse < 0.03
    assert abs(found.value - target.log_z) < 4.0 * found.mcse


@pytest.mark.slow
def test_mean_of_z_is_exact_over_runs():
    """One run would not show that a first pass favours some allocations; this has one each."""
    target = chain(n=6, strength=3.0)
    method = pe.methods.ARM(islands=16, ess_threshold=0.9)
    z = []
    for seed in range(1, 61):
        blocks = pe.to_record(run(target, method, draws=64, random_seed=seed)).of("forward")
        z.append(np.mean([np.exp(-block.work[0] - target.log_z) for block in blocks]))
    error = np.std(z, ddof=1) / np.sqrt(len(z))
    assert error < 0.02
    assert abs(np.mean(z) - 1.0) < 4.0 * error


@pytest.mark.slow
def test_an_allocation_that_looks_at_its_own_weights_is_seen():
    """The test of the mean would not notice it: islands that decide for themselves are biased."""
    target = chain(n=6, strength=3.0)
    method = pe.methods.ARM(islands=800, ess_threshold=0.9, decide="island")
    found = pe.log_evidence(run(target, method, draws=3200), estimator="smc")
    assert found.value < target.log_z - 4.0 * found.mcse


def test_particles_are_added_where_they_are_needed_only():
    """Easy stages would cost as much as hard ones."""
    dt = run(chain(strength=1.5), pe.methods.ARM(ess_threshold=0.6))
    assert np.array_equal(dt["annealing"]["particles"].values, np.full((1, 12), 50.0))


def test_particles_are_in_proportion_to_the_root_of_the_variance():
    """Stages would receive particles until the threshold is met, which may never be."""
    dt = run(chain(strength=1.5), pe.methods.ARM(ess_threshold=0.97), draws=16 * 1000)
    group = dt["annealing"]
    variance = 1.0 / group["ess"].values[0] - 1.0
    rounds = group["particles"].values[0] / 1000.0
    expected = np.maximum(np.sqrt(variance / (1.0 / 0.97 - 1.0)), 1.0)
    assert (expected > 2.5).sum() >= 3
    assert (np.abs(rounds - expected) < 0.75).all()
    assert np.array_equal(rounds, np.rint(rounds))


def test_an_island_stops_when_particles_do_not_help():
    """The effective share tends to a limit, and rounds below the threshold went on to the end."""
    options = {"decide": "island", "ess_threshold": 0.97}
    stops, goes_on = (
        run(chain(strength=1.5), pe.methods.ARM(while_rising=rising, **options))["annealing"]
        for rising in (True, False)
    )
    hard = goes_on["ess"].values[0] < 0.93
    assert hard.sum() >= 3
    assert (goes_on["particles"].values[0][hard] > 50.0 * 15).all()
    assert (stops["particles"].values[0][hard] > 50.0).all()
    assert stops["particles"].values.mean() < 0.4 * goes_on["particles"].values.mean()


def test_while_rising_is_a_flag():
    with pytest.raises(ValueError, match="while_rising must be True or False, got 1"):
        pe.methods.ARM(while_rising=1)


def test_rounds_end():
    """A stage that never reaches the threshold would go on for ever."""
    dt = run(chain(strength=1.5), pe.methods.ARM(ess_threshold=0.99, max_rounds=3))
    assert dt["annealing"]["particles"].values.max() == 200.0


@pytest.mark.slow
def test_it_is_more_precise_than_resample_move():
    """The particles that are added would not reduce the variance."""
    target = chain(strength=1.5)
    plain, adaptive = (
        pe.log_evidence(run(target, method, draws=20_000, random_seed=2), estimator="smc").mcse
        for method in (
            pe.methods.ResampleMove(islands=100),
            pe.methods.ARM(islands=100, ess_threshold=0.99),
        )
    )
    assert adaptive < 0.75 * plain


def test_targets_that_cannot_reseed_are_refused():
    """An option that cannot be followed would be ignored."""
    with pytest.raises(ValueError, match="generate='reseed' needs a target that can make"):
        run(chain(), pe.methods.ARM(generate="reseed"))
