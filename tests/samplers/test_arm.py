"""Adaptive resample-move."""

from dataclasses import dataclass

import numpy as np
import pytest

import pm_evidence as pe
from pm_evidence.core.contracts import AnnealingSetup
from pm_evidence.core.random import streams
from pm_evidence.kernels.growing import Grows
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
    assert found.mcse < 0.03
    assert abs(found.value - target.log_z) < 4.0 * found.mcse
    particles = dt["annealing"]["particles"].values[0]
    few = dt["annealing"]["ess"].values[0] < 0.85
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


def test_an_allocation_that_looks_at_its_own_weights_is_seen():
    """The test of the mean would not notice it: islands that decide for themselves are biased."""
    target = chain(n=6, strength=3.0)
    method = pe.methods.ARM(islands=400, ess_threshold=0.9, decide="island")
    found = pe.log_evidence(run(target, method, draws=1600), estimator="smc")
    assert found.value < target.log_z - 5.0 * found.mcse


def test_particles_are_added_where_they_are_needed_only():
    """Easy stages would cost as much as hard ones."""
    dt = run(chain(strength=1.5), pe.methods.ARM(ess_threshold=0.6))
    assert np.array_equal(dt["annealing"]["particles"].values, np.full((1, 12), 50.0))


def test_rounds_end():
    """A stage that never reaches the threshold would go on for ever."""
    dt = run(chain(strength=1.5), pe.methods.ARM(ess_threshold=0.95, max_rounds=3))
    assert dt["annealing"]["particles"].values.max() == 200.0


@pytest.mark.slow
def test_it_is_more_precise_than_resample_move():
    """The particles that are added would not reduce the variance."""
    target = chain(strength=1.5)
    plain, adaptive = (
        pe.log_evidence(run(target, method, draws=6400, random_seed=2), estimator="smc").mcse
        for method in (
            pe.methods.ResampleMove(islands=32),
            pe.methods.ARM(islands=32, ess_threshold=0.9),
        )
    )
    assert adaptive < 0.6 * plain


def test_targets_that_cannot_reseed_are_refused():
    """An option that cannot be followed would be ignored."""
    with pytest.raises(ValueError, match="generate='reseed' needs a target that can make"):
        run(chain(), pe.methods.ARM(generate="reseed"))
