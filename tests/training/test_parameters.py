"""Gradients of the likelihood by enumeration, also with weighted draws, and Gibbs steps."""

from itertools import product

import numpy as np
import pytest

from pm_evidence.testing import exact_log_z, exact_moments, log_marginal, sine_rbm
from pm_evidence.training.parameters import Parameters, bernoulli
from tests.families.rbm.machines import bits, sine

STATES = np.array(list(product((0, 1), repeat=4)), np.uint8)


def mean_log_likelihood(data, W, a, b):
    return log_marginal(data, W, a, b).mean() - exact_log_z(W, a, b)


def singles(W, a, b):
    return Parameters(*(np.array(x, np.float32) for x in (W, a, b)))


def tiny():
    """A machine of 4 x 3 units, and data that are not its own."""
    rng = np.random.default_rng(4)
    rbm = rng.normal(size=(4, 3)), rng.normal(size=4), rng.normal(size=3)
    return rbm, STATES[[0, 1, 1, 3, 7, 8, 12, 15, 15]]


def exact_gradient(data, rbm, step=1e-5):
    """Central differences of the mean log likelihood, whose log Z is enumerated."""
    found = []
    for k in range(3):
        change = np.zeros_like(rbm[k])
        for index in np.ndindex(change.shape):
            sides = []
            for sign in (1, -1):
                moved = [x.copy() for x in rbm]
                moved[k][index] += sign * step
                sides.append(mean_log_likelihood(data, *moved))
            change[index] = (sides[0] - sides[1]) / (2 * step)
        found.append(change)
    return found


# --- the gradient ---


def test_the_gradient_is_that_of_the_likelihood_if_draws_are_exact():
    """CD with infinitely many steps: the mean over the model, state by state.

    The gradient is linear in the draws, so that its expectation is the sum over visible states
    with their probabilities. Single precision leaves errors of about 1e-7.
    """
    rbm, data = tiny()
    machine = singles(*rbm)
    batch = data.astype(np.float32)
    probability = np.exp(log_marginal(STATES, *rbm) - exact_log_z(*rbm))
    expected = [np.zeros_like(x) for x in rbm]
    for state, p in zip(STATES.astype(np.float32), probability, strict=True):
        gradient = machine.gradient(batch, state[None])
        for total, part in zip(expected, (*gradient.arrays,), strict=True):
            total += p * part
    for found, exact in zip(expected, exact_gradient(data, rbm), strict=True):
        np.testing.assert_allclose(found, exact, atol=2e-6)


def test_many_gibbs_steps_reach_the_model():
    """Chains from one state end with the exact means: 200 steps, 20,000 chains, seed 1.

    Each of 16 + 12 means is held to 5 standard errors, a false-alarm rate below 2e-5.
    """
    W, a, b = sine_rbm(16, 12)
    n, machine = 20_000, singles(W, a, b)
    v = machine.gibbs(np.zeros((n, 16), np.float32), 200, np.random.default_rng(1))
    exact = exact_moments(W, a, b)
    for found, p in (
        (v.mean(axis=0), exact.visible),
        (machine.hidden_probability(v).mean(axis=0), exact.hidden),
    ):
        assert (np.abs(found - p) < 5.0 * np.sqrt(p * (1.0 - p) / n)).all()


def test_few_steps_do_not():
    """The planted error for the test above: one step from all zeros is far from the model."""
    W, a, b = sine_rbm(16, 12)
    n, exact = 100_000, exact_moments(W, a, b).visible
    v = singles(W, a, b).gibbs(np.zeros((n, 16), np.float32), 1, np.random.default_rng(1))
    error = np.sqrt(exact * (1.0 - exact) / n)
    assert (np.abs(v.mean(axis=0) - exact) > 20.0 * error).sum() > 8


def test_units_have_their_probabilities():
    """Fields of both signs and of any size: 1e6 draws each, 5 standard errors, seed 3."""
    fields = np.array([-1000.0, -90.0, -3.0, -0.1, 0.0, 0.7, 4.0, 90.0, 1000.0], np.float32)
    n = 1_000_001  # an odd number of draws
    drawn = bernoulli(np.repeat(fields[:, None], n, axis=1), np.random.default_rng(3))
    assert set(np.unique(drawn)) == {0.0, 1.0}
    with np.errstate(over="ignore"):
        p = 1.0 / (1.0 + np.exp(-fields.astype(float)))
    tolerance = 5.0 * np.sqrt(p * (1.0 - p) / n) + 1e-7
    assert (np.abs(drawn.mean(axis=1, dtype=float) - p) <= tolerance).all()


def test_weighted_draws_give_the_same_gradient():
    """All visible states, weighted by their probabilities: tempered chains rely on weights."""
    rbm, data = tiny()
    weights = np.exp(log_marginal(STATES, *rbm) - exact_log_z(*rbm)).astype(np.float32)
    states, batch = STATES.astype(np.float32), data.astype(np.float32)
    found = singles(*rbm).gradient(batch, states, weights)
    for part, exact in zip(found.arrays, exact_gradient(data, rbm), strict=True):
        np.testing.assert_allclose(part, exact, atol=2e-6)
    even = singles(*rbm).gradient(batch, states, np.full(16, 1.0 / 16.0, np.float32))
    for part, same in zip(even.arrays, singles(*rbm).gradient(batch, states).arrays, strict=True):
        np.testing.assert_allclose(part, same, atol=1e-6)


def test_parameters_and_machines_are_converted_into_each_other():
    """A training continues from a machine, and ends with one that keeps its data."""
    rows = bits(5, 16)
    machine = Parameters.of(sine(), np.float32).machine(data=rows)
    np.testing.assert_array_equal(machine.data, rows)
    np.testing.assert_allclose(machine.W, sine().W, rtol=1e-7)
    assert machine.W.dtype == np.float64
    assert Parameters.of(machine, np.float32).hidden_bias == pytest.approx(machine.hidden_bias)
