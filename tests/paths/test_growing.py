"""Paths whose states grow."""

from dataclasses import replace

import numpy as np
import pytest

import pm_evidence as pe
from pm_evidence.core.contracts import Growing
from pm_evidence.core.random import streams
from pm_evidence.paths.growing import GrowingPath
from tests.paths.chain import ChainPath, chain


def run(target, method, **options):
    options = {"draws": 1600, "target_mcse": None, "random_seed": 1, "progressbar": False} | options
    return pe.sample_evidence(target, method=method, **options)


@pytest.mark.parametrize(
    "method",
    [
        pe.methods.AIS(),
        pe.methods.SMC(),
        pe.methods.SMC(chain_length=1, resampling="residual", resample_below=0.9),
    ],
    ids=["ais", "waste_free", "resample_move"],
)
def test_evidence_is_exact(method):
    """Weights, extensions or their reversal are wrong otherwise."""
    target = chain()
    dt = run(target, method)
    found = pe.log_evidence(dt)
    assert found.status == "ok"
    assert found.mcse < 0.03
    assert abs(found.value - target.log_z) < 4.0 * found.mcse
    # an integral over densities that do not exist would be reported
    assert "power_posterior" not in dt["log_evidence"].estimator.values
    if method.name == "ais":  # reverse paths are the time reversal of forward ones
        for each in pe.estimate(dt, estimators=["jarzynski", "jarzynski_reverse"]).values():
            assert abs(each.value - target.log_z) < 4.0 * each.mcse


def test_a_step_is_undone():
    """A state that is extended and shrunk would not be the one before."""
    path = ChainPath(chain())
    assert isinstance(path, Growing)
    assert isinstance(path, GrowingPath)
    state = path.draw(5, np.random.SeedSequence(1))
    chains = streams(np.random.SeedSequence(2), 5)
    one = path.reached(state, 1.0 / 12.0, chains)
    assert one.step == 1
    assert path.reached(one, 1.0 / 12.0, chains) is one
    two = path.extended(one, chains)
    assert np.array_equal(path.shrunk(two).to_draws(), one.to_draws())
    ratio = path.log_ratio(one, 1 / 12, 2 / 12)
    assert np.array_equal(ratio, -path.log_ratio(one, 2 / 12, 1 / 12))
    np.testing.assert_allclose(path.energy(one, 1 / 12), -12.0 * ratio)  # minus the slope


def test_steps_cannot_be_left_out():
    """Weights of states that lack variables would be computed."""
    path = ChainPath(chain())
    state = path.draw(5, np.random.SeedSequence(1))
    with pytest.raises(ValueError, match="states at step 0 of 12 must go one step at a time"):
        path.log_ratio(state, 0.0, 1.0)
    # there is no step after the last one, and diagnostics look for it
    end = path.at(np.ones((3, 12)))
    assert np.array_equal(path.energy(end, 1.0), np.zeros(3))
    assert np.array_equal(path.order(end), np.arange(3))


def test_other_schedules_and_tempering_are_refused():
    """A schedule between the steps would ask for densities that do not exist."""
    for schedule in ("sm08", "varopt", [0.0, 0.5, 1.0]):
        with pytest.raises(ValueError, match="schedule must be left out where states grow"):
            run(chain(), "smc", schedule=schedule)
    with pytest.raises(ValueError, match="method must not be tempering along a path whose states"):
        run(chain(), "parallel_tempering")


def test_a_step_that_no_particle_survives_is_named():
    """A user with hundreds of variables could not find the one that is impossible."""
    target = chain()

    class Impossible(ChainPath):
        def smoothed(self, state):
            return np.full(len(state), -np.inf) if state.step == 4 else super().smoothed(state)

    setup = target.annealing_setup("auto")
    target.annealing_setup = lambda kernel: replace(setup, path=Impossible(target))
    with pytest.warns(pe.EvidenceWarning, match=r"No particle was left at stage 5 of 12\."):
        dt = run(target, "resample_move")
    assert pe.log_evidence(dt).status == "no_support"
