"""Kernels of paths whose states grow."""

import numpy as np
import pytest

import pm_evidence as pe
from pm_evidence.core.random import streams
from pm_evidence.kernels.growing import Grows, Shrinks
from tests.paths.chain import ChainPath, Gibbs, chain


def test_reversal_leaves_out_what_came_last():
    """Reverse paths would stay at the number of variables that they start with."""
    path = ChainPath(chain())
    state = path.at(np.ones((4, 12)))
    kernel = Grows(Gibbs())
    back = kernel.reversed()
    assert isinstance(back, Shrinks)
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
