"""Kernels along a path on which data are added."""

import numpy as np
import pymc as pm

from pm_evidence.core.random import streams
from pm_evidence.kernels.data_points import OnDataPoints
from pm_evidence.kernels.hmc import HMC
from pm_evidence.kernels.random_walk import RandomWalk
from pm_evidence.paths.data_points import DataPointsPath
from pm_evidence.targets.model.data_points import data_points_target
from pm_evidence.targets.model.target import PyMCTarget


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
