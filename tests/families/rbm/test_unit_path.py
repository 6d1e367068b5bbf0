"""Machines that are built unit by unit: exact log Z, weights, orders, new states, moves."""

import numpy as np
import pytest

import pm_evidence as pe
from pm_evidence.core.random import streams
from pm_evidence.families.rbm.unit_path import PartialGibbs, PartialUnits, UnitByUnitPath
from pm_evidence.testing import exact_log_z
from tests.families.rbm.machines import bits, log_z, sine


def sample(machine, method="arm", **options):
    defaults = {"path": "units", "target_mcse": None, "random_seed": 1, "progressbar": False}
    return pe.sample_evidence(machine, method=method, **defaults | options)


def grown(path, step, n=50, seed=1):
    """States at a step, without moves."""
    state, chains = (
        path.draw(n, np.random.SeedSequence(seed)),
        streams(np.random.SeedSequence(2), n),
    )
    for _ in range(step):
        state = path.extended(state, chains)
    return state


@pytest.mark.parametrize(
    ("method", "latent"),
    [
        ("resample_move", "full"),
        ("arm", "visible"),
        pytest.param("ais", "full", marks=pytest.mark.slow),  # that it is right is tested below
    ],
)
def test_log_z_is_exact(method, latent):
    """By enumeration; 4 errors have a false-alarm rate of 6e-5."""
    found = pe.log_evidence(sample(sine(latent=latent), method, draws=6400))
    assert found.status == "ok"
    assert found.mcse < 0.03
    assert abs(found.value - log_z()) < 4.0 * found.mcse


@pytest.mark.parametrize("generate", ["anticipate", pytest.param("reseed", marks=pytest.mark.slow)])
def test_other_ways_to_make_particles(generate):
    """New states follow the density of the step, or log Z would be that of the data."""
    machine = sine(20, 8, data=bits(40, 20), base="uniform")
    sampler = pe.methods.ARM(generate=generate, ess_threshold=0.95, max_rounds=2, reseed_moves=50)
    found = pe.log_evidence(sample(machine, sampler, draws=800))
    assert abs(found.value - log_z(20, 8)) < 4.0 * found.mcse
    assert found.mcse < 0.14


def test_both_directions_agree():
    """Reverse paths remove units in the opposite order."""
    dt = sample(sine(data=bits(20, 16), base="uniform"), "ais", draws=1500)
    found = pe.estimate(dt, ["jarzynski", "jarzynski_reverse", "bar"])
    for estimate in found.values():
        assert abs(estimate.value - log_z()) < 4.0 * estimate.mcse + 0.01
    assert found["bar"].mcse < 0.06


@pytest.mark.parametrize("step", [0, 1, 63, 64, 65, 69])
def test_weights_are_ratios_of_partial_machines(step):
    """Eq. 14 against free energies in double precision, around the borders of words."""
    machine = sine(70, 10, base="uniform", latent="visible")
    path = shuffled(machine)
    state = grown(path, step)
    units, draws = path.units, state.to_draws()

    def log_f(rows, n):
        some = units[:n]
        part = rows[:, some].astype(float)
        inputs = machine.hidden_bias + part @ machine.W[some]
        return part @ machine.visible_bias[some] + np.logaddexp(0.0, inputs).sum(axis=1)

    off, on = draws.copy(), draws.copy()
    on[:, units[step]] = 1
    both = np.logaddexp(log_f(off, step + 1), log_f(on, step + 1))
    expected = both - (log_f(draws, step) if step else 0.0)
    np.testing.assert_allclose(path.smoothed(state), expected, atol=2e-5)
    after = path.extended(state, streams(np.random.SeedSequence(3), len(state)))
    assert after.step == step + 1
    np.testing.assert_array_equal(path.shrunk(after).to_draws(), draws)


def shuffled(machine):
    """A path whose order mixes the units of different words."""
    order = np.random.default_rng(5).permutation(machine.n_visible)
    return UnitByUnitPath(machine, unit_order=order)


def test_the_next_unit_is_drawn_given_those_before_it():
    """Its share of ones in 40,000 copies of a state: one false alarm in 100,000 seeds."""
    path, n = UnitByUnitPath(sine(base="uniform")), 40_000
    state = grown(path, 5, n=1).take(np.zeros(n, np.int64))
    after = path.extended(state, streams(np.random.SeedSequence(4), n))
    p = 1.0 / (1.0 + np.exp(-path.log_odds(state)[0]))
    share = after.to_draws()[:, path.units[5]].mean()
    assert abs(share - p) < 4.4 * (p * (1.0 - p) / n) ** 0.5


def test_orders():
    """The most variable units of the data come first; without data base rates take their place."""
    data = np.zeros((10, 4), np.uint8)
    data[:5, 2] = data[:2, 0] = data[:9, 3] = 1  # shares 0.2, 0, 0.5, 0.9
    machine = sine(4, 3, data=data, base="uniform")
    assert UnitByUnitPath(machine).units.tolist() == [2, 0, 3, 1]
    assert UnitByUnitPath(machine, unit_order="given").units.tolist() == [0, 1, 2, 3]
    assert UnitByUnitPath(machine, unit_order=[3, 1, 0, 2]).units.tolist() == [3, 1, 0, 2]
    rated = sine(4, 3, base=np.array([0.1, 0.5, 0.3, 0.95]))
    assert UnitByUnitPath(rated).units.tolist() == [1, 2, 0, 3]


def test_new_states_follow_the_density_of_their_step():
    """Against the probabilities of all states of four units; one false alarm in 100,000."""
    machine = sine(6, 4, data=np.ones((3, 6), np.uint8), base="uniform")
    path, n = UnitByUnitPath(machine, unit_order="given"), 40_000
    state = path.reseeded(n, 4 / 6, 60, np.random.SeedSequence(3))
    assert state.step == 4
    draws = state.to_draws()
    assert not draws[:, 4:6].any()
    states = (np.arange(16)[:, None] >> np.arange(4)) & 1
    part = pe.rbm.RBM(machine.W[:4], machine.visible_bias[:4], machine.hidden_bias, base="uniform")
    p = np.exp(-part.free_energy(states) - exact_log_z(part.W, part.visible_bias, part.hidden_bias))
    counts = np.bincount(draws[:, :4] @ (1 << np.arange(4)), minlength=16)
    chi = ((counts - n * p) ** 2 / (n * p)).sum()
    assert chi < 50.0  # 15 degrees of freedom


def test_populations():
    """Resampling with units of other members would go unseen."""
    path = shuffled(sine(70, 10, base="uniform"))
    state = grown(path, 66, n=6)
    index = np.array([4, 4, 0])
    part = state.take(index)
    np.testing.assert_array_equal(part.to_draws(), state.to_draws()[index])
    both = state.join([part])
    np.testing.assert_array_equal(both.to_draws()[6:], part.to_draws())
    whole = path.at(bits(5, 80))
    np.testing.assert_array_equal(whole.to_draws(), bits(5, 80))
    np.testing.assert_array_equal(path.smoothed(both)[:6], path.smoothed(state))


@pytest.mark.slow
def test_draws_of_both_layers_follow_the_machine():
    """Hidden units are by-products of the moves; mean products, within 5 errors."""
    machine = sine(6, 4)
    dt = sample(machine, "resample_move", draws=20_000)
    v = dt["posterior"]["v"].values.reshape(-1, 6).astype(float)
    h = dt["posterior"]["h"].values.reshape(-1, 4).astype(float)
    states = (np.arange(2**10)[:, None] >> np.arange(10)) & 1
    energy = machine.joint_energy(states[:, :6], states[:, 6:])
    p = np.exp(-energy - exact_log_z(machine.W, machine.visible_bias, machine.hidden_bias))
    expected = (states[:, :6] * p[:, None]).T @ states[:, 6:]
    error = np.sqrt(expected * (1.0 - expected) / len(v))
    assert (np.abs(v.T @ h / len(v) - expected) < 6.0 * error).all()


def test_machines_and_options_that_cannot_be_used():
    machine = sine()
    with pytest.raises(ValueError, match="latent='full' or 'visible' to be built unit by unit"):
        UnitByUnitPath(sine(latent="marginal"))
    with pytest.raises(ValueError, match=r"target must be a pe\.rbm\.RBM with latent"):
        UnitByUnitPath(pe.mixtures.Gaussian())
    with pytest.raises(ValueError, match="n_sweeps must be a whole number of at least 1"):
        UnitByUnitPath(machine, n_sweeps=0)
    with pytest.raises(ValueError, match="unit_order must be one of 'variable', 'given'"):
        UnitByUnitPath(machine, "best")
    for wrong in ([0, 1], np.zeros(16, int), np.arange(1, 17)):
        with pytest.raises(ValueError, match="unit_order must name each of the 16 visible units"):
            UnitByUnitPath(machine, wrong)
    assert repr(UnitByUnitPath(machine)).startswith("UnitByUnitPath(RBM(16 x 12")


def test_planted_weights_of_the_wrong_unit_are_found():
    """Weights of another unit than the one that is added."""

    class Wrong(UnitByUnitPath):
        def smoothed(self, state):
            return super().smoothed(state) + 0.02 * (state.visible[:, 0] & np.uint64(1))

    machine = sine()
    found = pe.log_evidence(sample(machine, path=Wrong(machine), draws=6400))
    assert abs(found.value - log_z()) > 4.0 * found.mcse


# --- Gibbs sampling with some of the visible units ---


def started(step, n=7, n_visible=70):
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
    path, state, chains = started(step)
    copy, index = chains.copy(), np.array([5, 2])
    before = state.to_draws()
    whole, _ = PartialGibbs(2).advance(path, state, step / 70, chains)
    part, _ = PartialGibbs(2).advance(path, state.take(index), step / 70, copy[index])
    np.testing.assert_array_equal(part.to_draws(), whole.to_draws()[index])
    np.testing.assert_array_equal(state.to_draws(), before)
    assert not whole.to_draws()[:, path.units[step:]].any()
