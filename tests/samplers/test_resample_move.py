"""Resample-move, with equal and with optimal numbers of particles."""

import numpy as np
import pymc as pm
import pytest

import pm_evidence as pe
from pm_evidence.kernels.cycle import Grows
from pm_evidence.samplers.planning import Planning
from pm_evidence.samplers.resample_move import ResampleMove
from tests.paths.chain import Gibbs, chain

SMALL = {"draws": 3200, "target_mcse": None, "random_seed": 1, "progressbar": False}


def run(target, method, **options):
    options = {"draws": 800, "target_mcse": None, "random_seed": 1, "progressbar": False} | options
    return pe.sample_evidence(target, method=method, **options)


@pytest.mark.parametrize("allocation", ["equal", "optimal"])
def test_mean_of_z_is_exact(allocation):
    """Weights that are kept, resampling or an allocation would bias the estimate."""
    target = chain(n=6, strength=1.5)
    method = pe.methods.ResampleMove(allocation=allocation, islands=400)
    dt = run(target, method, draws=400 * 8)
    found = pe.log_evidence(dt, estimator="smc")
    assert found.mcse < 0.03
    assert abs(found.value - target.log_z) < 4.0 * found.mcse


def test_weights_of_the_wrong_variable_are_seen():
    """The test of the mean would not notice the weights of another variable."""
    target = chain(n=6, strength=1.5)
    setup = target.annealing_setup("auto")

    class Wrong(type(setup.path)):
        def smoothed(self, state):
            k = state.step
            other = self.target.field[(k + 1) % self.n_steps]
            local = other + (self.target.coupling[k] * state.x[:, -1] if k else 0.0)
            return np.logaddexp(local, -local) + np.zeros(len(state))

    target.annealing_setup = lambda kernel: setup.__class__(
        Wrong(target), Grows(Gibbs()), n_stages=6, stepwise=True
    )
    found = pe.log_evidence(run(target, "resample_move", draws=3200), estimator="smc")
    assert abs(found.value - target.log_z) > 4.0 * found.mcse


@pytest.mark.slow
def test_optimal_allocation_gives_less_variance():
    """A second pass would cost twice as much for nothing."""
    target = chain(n=12, strength=1.5)
    errors = [
        pe.log_evidence(
            run(target, pe.methods.ResampleMove(allocation=a, islands=100), draws=4000)
        ).mcse
        for a in ("equal", "optimal")
    ]
    assert errors[1] < 0.85 * errors[0]


def test_particles_and_their_optimum_are_stored():
    """A user could not see where particles were missing."""
    dt = run(chain(strength=1.5), pe.methods.ResampleMove())
    group = dt["annealing"]
    assert np.array_equal(group["particles"].values, np.full((1, 12), 50.0))
    best = group["particles_optimal"]
    assert np.isclose(best.values.sum(), 600.0)
    assert best.attrs["least_variance"] < best.attrs["variance"]
    record = pe.to_record(dt)
    assert np.array_equal(record.of("forward")[0].trace.particles, np.full(12, 50.0))


def test_sizes_follow_the_shares_of_a_plan():
    """An allocation would not be spent as it was computed."""
    target = chain(n=4)
    setup = target.annealing_setup("auto")
    plan = Planning(setup, ResampleMove(), 40, 1).untuned(np.linspace(0.0, 1.0, 5))
    object.__setattr__(plan, "shares", np.array([0.5, 2.0, 1.0, 0.01]))
    block = ResampleMove().run_block(setup.path, plan, 0, 40, 1)
    assert np.array_equal(block.trace.particles, [20.0, 80.0, 40.0, 10.0])
    assert block.draws.shape == (40, 4)


@pytest.mark.slow
def test_particles_of_weight_zero():
    """A few dead particles are kept with weight zero, not with a weight of NaN or a warning."""
    with pm.Model() as model:
        upper = pm.Uniform("upper", 0, 1)
        pm.Uniform("y", 0, upper, observed=[0.05, 0.06])
    dt = pe.sample_evidence(model, method=pe.methods.ResampleMove(resample_below=0.5), **SMALL)
    exact = np.log(1.0 / 0.06 - 1.0)  # the integral of upper**-2 from 0.06 to 1
    found = pe.log_evidence(dt, estimator="smc")
    assert found.mcse < 0.1
    assert abs(found.value - exact) < 4.0 * found.mcse
