"""Kernels along paths whose states grow, and on which data are added."""

import numpy as np
import pymc as pm
import pytest

import pm_evidence as pe
from pm_evidence.core.random import streams
from pm_evidence.kernels.cycle import Grows, OnDataPoints
from pm_evidence.kernels.hmc import HMC
from pm_evidence.kernels.random_walk import RandomWalk
from pm_evidence.paths.data_points import DataPointsPath
from pm_evidence.targets.model.data_points import data_points_target
from pm_evidence.targets.model.target import PyMCTarget
from tests.paths.chain import ChainPath, Gibbs, chain


def test_reversal_leaves_out_what_came_last():
    """Reverse paths would stay at the number of variables that they start with."""
    path = ChainPath(chain())
    state = path.at(np.ones((4, 12)))
    kernel = Grows(Gibbs())
    back = kernel.reversed()
    assert back == Grows(Gibbs(), backwards=True)
    assert back.reversed() == kernel
    assert back.settings() == kernel.settings() == {}
    moved, _ = back.advance(path, state, 1.0, streams(np.random.SeedSequence(1), 4))
    assert moved.step == 11


def test_states_at_their_step_are_moved_only():
    """Relaxation at the target would ask for a variable that does not exist."""
    path = ChainPath(chain())
    state = path.at(np.ones((4, 12)))
    moved, _ = Grows(Gibbs()).advance(path, state, 1.0, streams(np.random.SeedSequence(1), 4))
    assert moved.step == 12


@pytest.mark.parametrize("backwards", [False, True])
def test_moves_that_are_wrong_are_seen(backwards):
    """A path in one direction alone would hide that the moves do not mix."""
    target = chain(strength=3.0, moves=Gibbs(does_nothing=True))
    dt = pe.sample_evidence(
        target, method="ais", draws=400, target_mcse=None, random_seed=1, progressbar=False
    )
    name = "jarzynski_reverse" if backwards else "jarzynski"
    found = pe.estimate(dt, estimators=[name])[name]
    assert abs(found.value - target.log_z) < 4.0 * found.mcse or found.status != "ok"


def test_it_samples_the_posterior_of_a_part():
    """Moves would leave the posterior of all data invariant, or of none."""
    y = np.array([2.0, 1.0, -3.0, 4.0])
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        pm.Normal("y", mu, 1.0, observed=y)
    path = DataPointsPath(data_points_target(PyMCTarget(model), np.arange(4)))
    n = 4000
    for moves in (HMC(), RandomWalk()):
        kernel = OnDataPoints(moves)
        state, chains = (
            path.draw(n, np.random.SeedSequence(1)),
            streams(np.random.SeedSequence(2), n),
        )
        kernel = kernel.learn(path, state)
        for _ in range(12):
            state, info = kernel.advance(path, state, 0.5, chains)
        kernel = kernel.adjust(info).without_exploration()
        assert kernel.settings() == kernel.reversed().settings()
        assert state.beta == 0.5
        mean, sd = 1.0, (1.0 / 3.0) ** 0.5  # of the first two data points
        assert abs(state.to_draws().mean() - mean) < 5.0 * sd / n**0.5
        assert abs(state.to_draws().std() - sd) < 5.0 * sd / (2 * n) ** 0.5
