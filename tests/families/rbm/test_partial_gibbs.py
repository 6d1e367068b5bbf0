"""Gibbs sampling with some of the visible units."""

import numpy as np
import pytest

from pm_evidence.core.random import streams
from pm_evidence.families.rbm.partial_gibbs import PartialGibbs
from pm_evidence.families.rbm.partial_state import PartialUnits
from pm_evidence.families.rbm.unit_path import UnitByUnitPath
from tests.families.rbm.machines import sine


def start(step, n=7, n_visible=70):
    order = np.random.default_rng(5).permutation(n_visible)
    path = UnitByUnitPath(sine(n_visible, 10, base="uniform"), unit_order=order)
    state, chains = path.draw(n, np.random.SeedSequence(1)), streams(np.random.SeedSequence(2), n)
    for _ in range(step):
        state = path.extended(state, chains)
    return path, state, chains


@pytest.mark.parametrize("backwards", [False, True])
def test_exact_draws_stay_exact(backwards):
    """Joint probabilities of four units, of which all states are drawn exactly before the move.

    Sum over 16 states, 40,000 members: one false alarm in 100,000 seeds. A sweep in which units
    that are not there take part would change these probabilities.
    """
    machine, n = sine(6, 4, base="uniform"), 40_000
    path = UnitByUnitPath(machine, unit_order=[3, 0, 5, 1, 2, 4])
    states = (np.arange(16)[:, None] >> np.arange(4)) & 1
    some = path.units[:4]
    inputs = machine.hidden_bias + states @ machine.W[some]
    log_p = states @ machine.visible_bias[some] + np.logaddexp(0.0, inputs).sum(axis=1)
    p = np.exp(log_p - np.logaddexp.reduce(log_p))
    chosen = np.random.default_rng(6).choice(16, n, p=p)
    empty = path.draw(n, np.random.SeedSequence(1))
    state = PartialUnits(4, chosen.astype(np.uint64)[:, None], empty.hidden, path.units, 4)
    kernel = PartialGibbs(3).reversed() if backwards else PartialGibbs(3)
    moved, info = kernel.advance(path, state, 4 / 6, streams(np.random.SeedSequence(7), n))
    assert info.n_evaluations == 6 * n
    assert (moved.visible[:, 0] < 16).all()
    counts = np.bincount(moved.visible[:, 0].astype(np.int64), minlength=16)
    assert ((counts - n * p) ** 2 / (n * p)).sum() < 50.0
    assert (moved.visible != state.visible).mean() > 0.3


@pytest.mark.parametrize("step", [1, 64, 66])
def test_members_draw_from_their_own_streams(step):
    """Islands of other sizes would otherwise give other results."""
    path, state, chains = start(step)
    copy, index = chains.copy(), np.array([5, 2])
    before = state.to_draws()
    whole, _ = PartialGibbs(2).advance(path, state, step / 70, chains)
    part, _ = PartialGibbs(2).advance(path, state.take(index), step / 70, copy[index])
    np.testing.assert_array_equal(part.to_draws(), whole.to_draws()[index])
    np.testing.assert_array_equal(state.to_draws(), before)
    assert not whole.to_draws()[:, path.units[step:]].any()


def test_large_populations_are_moved_in_parts():
    """Members beyond the first part would stay where they are."""
    path, state, chains = start(20, n=600)
    copy = chains[400:].copy()
    whole, _ = PartialGibbs(1).advance(path, state, 20 / 70, chains)
    part, _ = PartialGibbs(1).advance(path, state.take(np.arange(400, 600)), 20 / 70, copy)
    np.testing.assert_array_equal(whole.to_draws()[400:], part.to_draws())
    np.testing.assert_array_equal(whole.log_odds[400:], part.log_odds)


def test_settings():
    kernel = PartialGibbs(4)
    assert kernel.settings() == {"n_sweeps": 4.0}
    assert kernel.reversed() is kernel
    with pytest.raises(ValueError, match="n_sweeps must be a whole number"):
        PartialGibbs(0)
