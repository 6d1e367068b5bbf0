"""The parts of a particle filter: graphs of particles, weights, look-ahead and ancestors."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pm_evidence.core.random import seed_stream
from pm_evidence.core.resampling import CODES
from pm_evidence.targets.estimated import particle_filter as filter_loop
from pm_evidence.targets.estimated.particle_filter import (
    LOOK_AHEAD,
    MISSING,
    N_CALLS,
    FilterGraphs,
    Options,
    StateSpaceGraphs,
    Weights,
)

# --- graphs ---


def graphs_of(transition, emission=lambda h: pm.Normal.dist(h, 0.5)):
    h, t, y = pt.dscalar("h"), pt.lscalar("t"), pt.dscalar("y")
    return StateSpaceGraphs(h, t, y, pm.Normal.dist(0, 1), transition(h), emission(h))


def test_weights_of_many_particles():
    """Log densities of the observation, one for every particle; zero where it is missing."""
    many = FilterGraphs(graphs_of(lambda h: pm.Normal.dist(h, 1.0)))
    states = np.array([-1.0, 0.0, 2.0])
    weights = many.look_ahead()[0].eval({many.h: states, many.y: 0.7})
    expected = pm.logp(pm.Normal.dist(states, 0.5), 0.7).eval()
    np.testing.assert_allclose(weights, expected)
    assert not many.step(MISSING, first=False)[1].eval({many.n: 3}).any()


# --- steps ---

N = 6


def weights(seed=1):
    rng = np.random.default_rng(seed)
    normalised = rng.dirichlet(np.ones(N))
    return Weights(normalised, np.full(N, 1 / N), np.empty(N), rng.normal(size=N), np.zeros(N, int))


def test_new_weights_are_normalised():
    w = weights()
    increment, ess = filter_loop._weigh(w)
    expected = np.exp(w.log_weight) / N
    assert increment == pytest.approx(np.log(expected.sum()), rel=1e-12)
    np.testing.assert_allclose(w.normalised, expected / expected.sum(), rtol=1e-12)
    assert ess == pytest.approx(1 / (w.normalised**2).sum(), rel=1e-12)
    for value, total in ((-np.inf, -np.inf), (np.nan, np.nan), (np.inf, np.nan)):
        w.log_weight[:] = value
        np.testing.assert_equal(filter_loop._weigh(w)[0], total)


def test_a_look_ahead_leaves_every_particle_a_share():
    """Without it a particle that looked hopeless would be lost, and the estimate biased."""
    w = weights()
    before = w.normalised.copy()
    w.log_weight[0] = -1e6
    ess = filter_loop._tilt(w)
    assert w.v.sum() == pytest.approx(1.0)
    assert (w.v >= filter_loop._DEFENSIVE * before * (1 - 1e-12)).all()
    assert w.v[0] == pytest.approx(filter_loop._DEFENSIVE * before[0])
    assert ess == pytest.approx(1 / (w.v**2).sum())


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_particles_are_resampled_below_the_share_only(share):
    """Those that are kept carry their weights on; those that are chosen have equal ones."""
    w, stream = weights(), np.empty(4, np.uint64)
    h, out = np.arange(1.0 * N)[:, None], np.full((N, 1), -1.0)
    frames = np.zeros((N_CALLS, 12), np.int64)
    options = Options(N, 0, CODES["systematic"], share, None)
    source = stream, np.uint64(3), 2
    seed_stream(stream, np.uint64(0), 0)
    ess = 1 / (w.normalised**2).sum()
    done = filter_loop._choose(h, out, w, ess, 0, frames, source, options)
    if share == 0.0:
        assert done == filter_loop._KEPT
        np.testing.assert_array_equal(w.carried, w.normalised)
        np.testing.assert_array_equal(w.index, np.arange(N))
    else:
        assert done == filter_loop._RESAMPLED
        np.testing.assert_array_equal(out[:, 0], w.index)
        np.testing.assert_allclose(w.carried, 1 / N)
        counts = np.bincount(w.index, minlength=N)
        assert (np.abs(counts - N * w.normalised) < 1).all()  # systematic resampling
    assert frames[LOOK_AHEAD].sum() == 0
