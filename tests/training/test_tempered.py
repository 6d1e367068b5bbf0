"""Tempered chains: probabilities of temperatures, log Z at each, and what an update changes."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy.special import logsumexp

from pm_evidence.core.random import streams
from pm_evidence.families.rbm.gibbs import BaseRatePath
from pm_evidence.families.rbm.moment_average import Machine
from pm_evidence.families.rbm.target import RBM
from pm_evidence.testing import exact_log_z
from pm_evidence.training.parameters import Parameters
from pm_evidence.training.tracking import Ladder, TrainingChains, _drawn
from tests.families.rbm.machines import sine

RATES = np.linspace(0.2, 0.8, 16)
EVERY = np.array(list(product([0, 1], repeat=7)), np.uint8)  # states of 4 x 3 units


def machine_of(W, a, b, rates):
    return RBM(W, a, b, base=rates)


def exact_curve(machine, beta):
    """Log Z at every temperature, relative to the normalised reference."""
    path = BaseRatePath(machine)
    parameters = machine.W, machine.visible_bias, machine.hidden_bias
    base = machine.base_bias[: machine.n_visible]
    return np.array([exact_log_z(*parameters, x, base) - (1.0 - x) * path.log_base_z for x in beta])


def tiny(seed=1, scale=1.0):
    rng = np.random.default_rng(seed)
    W, a, b = rng.normal(0.0, scale, (4, 3)), rng.normal(size=4), rng.normal(size=3)
    return machine_of(W, a, b, np.array([0.2, 0.4, 0.6, 0.8]))


def chains_at_every_state(machine, ladder):
    """All states of a tiny machine, weighted by their exact probabilities at every temperature.

    Columns are scaled by numbers that must not matter.
    """
    path = BaseRatePath(machine)
    state = path.at(EVERY)
    log_f = -np.outer(path.energy(state, 1.0), ladder.beta)
    log_f += (EVERY @ machine.base_bias - path.log_base_z)[:, None]
    probability = np.exp(log_f - logsumexp(log_f, axis=0)) * np.linspace(0.1, 3.0, len(ladder.beta))
    n = len(EVERY)
    return TrainingChains(
        ladder, state, np.zeros(n, int), streams(np.random.SeedSequence(1), n), probability
    )


def test_probabilities_of_temperatures_are_bayes_rule():
    """Also for energies whose exponentials overflow."""
    ladder, log_z = Ladder.even(6, 2.0), np.linspace(0.0, 7.0, 6)
    energy = np.array([-20.0, 0.0, 3.5, -1e5, 1e5])
    found = ladder.probabilities(energy, log_z)
    log_p = ladder.log_prior - log_z - energy[:, None] * ladder.beta
    np.testing.assert_allclose(found, np.exp(log_p - logsumexp(log_p, axis=1, keepdims=True)))
    np.testing.assert_allclose(found[3:], [[0, 0, 0, 0, 0, 1], [1, 0, 0, 0, 0, 0]])


def test_temperatures_are_drawn_with_their_probabilities():
    """300,000 draws from each of two rows; each share is held to 5 standard errors, seed 2."""
    n, rows = 300_000, np.array([[0.1, 0.0, 0.6, 0.3], [0.25, 0.25, 0.25, 0.25]])
    uniform = np.random.default_rng(2).random((n, 1))
    for row in rows:
        counts = np.bincount(_drawn(np.tile(row, (n, 1)), uniform), minlength=4)
        assert (np.abs(counts / n - row) <= 5.0 * np.sqrt(row * (1.0 - row) / n)).all()
    ends = _drawn(rows[[1, 1]], np.array([[1e-17], [1.0 - 1e-16]]))
    np.testing.assert_array_equal(ends, [0, 3])


def test_fresh_temperatures_are_uniform():
    """20,000 chains at 10 temperatures; each share is held to 5 standard errors."""
    ladder = Ladder.even(10, 2.0)
    path = BaseRatePath(sine(base=RATES))
    chains = TrainingChains.start(path, ladder, 20_000, np.random.SeedSequence(3)).at_random()
    counts = np.bincount(chains.rung, minlength=10)
    assert (np.abs(counts - 2000.0) < 5.0 * np.sqrt(2000.0 * 0.9)).all()


@pytest.mark.parametrize("shift", [0.0, 3.0])
def test_log_z_is_right_at_every_temperature(shift):
    """From exact values, and from values that are wrong by up to 3 nats, to which chains settle.

    Deviations over 10 temperatures are held to 5 of the stated errors of the last one, and this
    error to 0.05 nats. Seed 4.
    """
    machine, ladder = sine(base=RATES), Ladder.even(10, 2.0)
    path, exact = BaseRatePath(machine), exact_curve(machine, ladder.beta)
    start = exact + shift * ladder.beta
    chains = TrainingChains.start(path, ladder, 2000, np.random.SeedSequence(4)).at_random()
    _, visits = chains.moved(path, start, 50, 100)
    influence = visits.influence()
    error = influence.std(ddof=1) / np.sqrt(len(influence))
    found = start + visits.log_ratio(ladder)
    assert abs(found[0]) < 1e-12 and abs(influence.mean()) < 1e-12
    assert error < 0.05
    assert (np.abs(found - exact) < 5.0 * error).all()
    wrong = Ladder(ladder.beta, np.full(10, -np.log(10.0)))  # planted: another prior
    assert abs((start + visits.log_ratio(wrong) - exact)[-1]) > 5.0 * error


def test_error_is_that_of_repeated_runs():
    """200 runs of 100 chains; the ratio of variances has an error of 10 %. Seeds 0 to 199."""
    machine, ladder = sine(base=RATES), Ladder.even(8, 0.0)
    path, log_z = BaseRatePath(machine), exact_curve(machine, ladder.beta)
    found, stated = [], []
    for seed in range(200):
        chains = TrainingChains.start(path, ladder, 100, np.random.SeedSequence(seed)).at_random()
        _, visits = chains.moved(path, log_z, 5, 20)
        found.append(visits.log_ratio(ladder)[-1])
        stated.append(visits.influence().var(ddof=1) / 100)
    assert 0.6 < np.mean(stated) / np.var(found, ddof=1) < 1.6


def test_change_of_log_z_is_exact_for_exact_weights():
    """All states of 4 x 3 units with their probabilities; products are of single precision."""
    ladder, before = Ladder.even(7, 2.0), tiny()
    rng = np.random.default_rng(3)
    for scale in (0.01, 1.0):
        step = Machine(*(rng.normal(0.0, scale, shape) for shape in ((4, 3), 4, 3)))
        after = machine_of(
            before.W + step.W,
            before.visible_bias + step.visible_bias,
            before.hidden_bias + step.hidden_bias,
            before.base_rates[:4],
        )
        change, influence = chains_at_every_state(before, ladder).change(step)
        exact = exact_curve(after, ladder.beta) - exact_curve(before, ladder.beta)
        np.testing.assert_allclose(change, exact, atol=3e-6)
        assert abs(influence.mean()) < 1e-9


def test_influence_on_the_change_is_its_derivative():
    """More weight for one state moves log Z by its influence, over the number of states."""
    ladder = Ladder.even(3, 0.0)
    chains = chains_at_every_state(tiny(), ladder)
    step = Machine(np.full((4, 3), 0.3), np.full(4, -0.2), np.full(3, 0.1))
    change, influence = chains.change(step)
    for i in (0, 17, 127):
        more = chains.probability.copy()
        more[i] *= 1.0 + 1e-4
        moved, _ = replace(chains, probability=more).change(step)
        slope = (moved[-1] - change[-1]) / 1e-4
        assert slope == pytest.approx(influence[i] / len(influence), rel=1e-3, abs=1e-8)


def test_own_part_is_the_difference_of_leaving_a_state_out():
    """Parameters after an update with all states, and with all but one, by the gradient's code."""
    ladder, machine, rate = Ladder.even(3, 0.0), tiny(), 0.1
    chains = chains_at_every_state(machine, ladder)
    parameters, batch = Parameters.of(machine, np.float32), np.zeros((1, 4), np.float32)
    visible, weights = EVERY[:, :4].astype(np.float32), chains.weights().astype(np.float32)
    own = chains.own_part(parameters, rate)
    whole = parameters.gradient(batch, visible, weights)
    v, h = EVERY[:, :4].astype(float), EVERY[:, 4:].astype(float)
    for i in (3, 60, 127):
        rest = np.delete(weights, i) / np.delete(weights, i).sum()
        part = parameters.gradient(batch, np.delete(visible, i, axis=0), rest)
        difference = [x.astype(float) - y for x, y in zip(whole.arrays, part.arrays, strict=True)]
        of_state = v[i] @ difference[0] @ h[i] + v[i] @ difference[1] + h[i] @ difference[2]
        assert own[i] == pytest.approx(rate * of_state, abs=1e-6)
    assert np.abs(own).max() > 1e-3


def test_one_chain_with_all_weight_has_a_finite_part():
    ladder = Ladder.even(3, 0.0)
    chains = chains_at_every_state(tiny(), ladder)
    one = np.zeros_like(chains.probability)
    one[5] = 1.0
    found = replace(chains, probability=one)
    assert np.isfinite(found.own_part(Parameters.of(tiny(), np.float32), 0.1)).all()
    assert all(np.isfinite(x).all() for x in found.change(Machine(*map(np.ones, ((4, 3), 4, 3)))))
