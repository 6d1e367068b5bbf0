"""Exact log Z of restricted Boltzmann machines, against sums over all states of both layers."""

from itertools import product

import numpy as np
import pytest
from scipy.special import logsumexp

from pm_evidence.testing.boltzmann import exact_log_z, exact_moments, log_marginal, sine_rbm

# By a separate program.
SINE = {(16, 12): 22.551961061038, (30, 16): 36.804172283238, (100, 20): 110.322726535573}


def states(n):
    return np.array(list(product((0.0, 1.0), repeat=n)))


def random_rbm(n_visible, n_hidden, seed=1, scale=2.0):
    rng = np.random.default_rng(seed)
    shapes = (n_visible, n_hidden), n_visible, n_hidden
    return tuple(rng.normal(0.0, scale, size=shape) for shape in shapes)


class BruteForce:
    """Sums over all states of both layers, one by one."""

    def __init__(self, rbm, beta=1.0, base=None):
        W, a, b = rbm
        pairs = [(v, h) for v in states(len(a)) for h in states(len(b))]
        self.v, self.h = (np.array(x) for x in zip(*pairs, strict=True))
        base = np.zeros(len(a)) if base is None else base
        log_first = self.v @ base
        log_last = np.array([a @ v + b @ h + v @ W @ h for v, h in pairs])
        log_f = (1.0 - beta) * log_first + beta * log_last
        self.log_z = logsumexp(log_f)
        self.p = np.exp(log_f - self.log_z)
        self.energy = log_first - log_last
        self.mean = self.p @ self.energy
        self.variance = self.p @ (self.energy - self.mean) ** 2


@pytest.mark.parametrize("sizes", [(4, 3), (3, 4), (1, 1), (1, 5), (5, 1), (9, 2)], ids=str)
@pytest.mark.parametrize("beta", [0.0, 0.3, 1.7])
def test_log_z_and_moments_are_those_over_all_states(sizes, beta):
    """Estimates of log Z, and draws of kernels, are held against them, whatever the smaller layer.

    Means of the energy and marginals are compared as well.
    """
    rbm = random_rbm(*sizes)
    for base in (None, np.linspace(-1.0, 2.0, len(rbm[1]))):
        exact, found = BruteForce(rbm, beta, base), exact_moments(*rbm, beta, base)
        assert exact_log_z(*rbm, beta, base) == pytest.approx(exact.log_z, rel=1e-13, abs=1e-12)
        close = {"rel": 1e-11, "abs": 1e-11}
        assert found.log_z == pytest.approx(exact.log_z, **close)
        assert found.energy_mean == pytest.approx(exact.mean, **close)
        assert found.energy_variance == pytest.approx(exact.variance, **close)
        np.testing.assert_allclose(found.visible, exact.p @ exact.v, atol=1e-12)
        np.testing.assert_allclose(found.hidden, exact.p @ exact.h, atol=1e-12)


@pytest.mark.parametrize("sizes", [(12, 10), (10, 12)])
def test_blocks_are_merged(sizes):
    """With more than eight units in the smaller layer there are several blocks of states.

    The energy is minus the derivative of log Z, and its variance the second derivative: by central
    differences, whose errors are of the order of the fourth power of the step.
    """
    rbm, base, beta, step = random_rbm(*sizes, scale=0.5), np.full(sizes[0], 0.4), 0.6, 1e-3
    shifts = np.arange(-2, 3)
    log_z = np.array([exact_log_z(*rbm, beta + k * step, base) for k in shifts])
    first = log_z @ [1, -8, 0, 8, -1] / (12 * step)
    second = log_z @ [-1, 16, -30, 16, -1] / (12 * step**2)
    found = exact_moments(*rbm, beta, base)
    assert found.log_z == pytest.approx(log_z[2], abs=1e-11)
    assert found.energy_mean == pytest.approx(-first, rel=1e-8)
    assert found.energy_variance == pytest.approx(second, rel=1e-5)


def test_marginals_are_derivatives_of_log_z():
    """Beyond one block, and for the layer that is summed over and the other one."""
    W, a, b = random_rbm(11, 10, scale=0.5)
    found, step = exact_moments(W, a, b), 1e-5
    for i in (0, 9, 10):
        up, down = (exact_log_z(W, a + s * step * (np.arange(11) == i), b) for s in (1, -1))
        assert found.visible[i] == pytest.approx((up - down) / (2 * step), abs=1e-8)
    for j in (0, 8, 9):
        up, down = (exact_log_z(W, a, b + s * step * (np.arange(10) == j)) for s in (1, -1))
        assert found.hidden[j] == pytest.approx((up - down) / (2 * step), abs=1e-8)


@pytest.mark.parametrize("sizes", SINE, ids=str)
def test_sine_rbm(sizes):
    """These three numbers are stored in other tests; they come from another program."""
    assert exact_log_z(*sine_rbm(*sizes)) == pytest.approx(SINE[sizes], abs=1e-9)


def test_layers_are_exchangeable():
    """Log Z of the transposed machine is the same: only the order of the sums differs."""
    W, a, b = sine_rbm(30, 16)
    assert exact_log_z(W.T, b, a) == pytest.approx(SINE[30, 16], abs=1e-9)


def test_the_sum_does_not_overflow():
    """Fields of thousands of nats, whose exponentials are infinite, and of minus thousands."""
    W, a, b = random_rbm(5, 3, scale=3000.0)
    exact = BruteForce((W, a, b)).log_z
    assert exact > 2000.0
    assert exact_log_z(W, a, b) == pytest.approx(exact, rel=1e-13)
    assert exact_moments(W, a, b).log_z == pytest.approx(exact, rel=1e-13)
    off = -np.abs(W) - 100.0, -np.abs(a) - 100.0, -np.abs(b) - 100.0
    assert exact_log_z(*off) == pytest.approx(0.0, abs=1e-12)


def test_without_weights_units_are_independent():
    """Closed form, with a layer of more than 512 units, whose factors are multiplied in parts."""
    rng = np.random.default_rng(2)
    a, b = rng.normal(size=1300), rng.normal(size=3)
    exact = np.log1p(np.exp(a)).sum() + np.log1p(np.exp(b)).sum()
    assert exact_log_z(np.zeros((1300, 3)), a, b) == pytest.approx(exact, rel=1e-13)
    moments = exact_moments(np.zeros((1300, 3)), a, b)
    np.testing.assert_allclose(moments.visible, 1.0 / (1.0 + np.exp(-a)), rtol=1e-12)


def test_log_marginal_is_the_sum_over_hidden_states():
    """The average log likelihood of trained machines is computed with it."""
    rbm = random_rbm(4, 3)
    brute = BruteForce(rbm)
    probability = brute.p.reshape(16, 8).sum(axis=1)
    found = log_marginal(states(4), *rbm) - exact_log_z(*rbm)
    np.testing.assert_allclose(found, np.log(probability), rtol=1e-12)
    many = np.repeat(states(4), 300, axis=0)  # several parts
    once = log_marginal(states(4), *rbm)
    np.testing.assert_allclose(log_marginal(many, *rbm), np.repeat(once, 300), rtol=1e-12)
    np.testing.assert_array_equal(log_marginal(states(4).astype(bool), *rbm), once)


def test_wrong_arguments_are_named():
    """Without a limit on sizes the sum over a layer of 500 units would never end."""
    for change, message in (
        ({"W": np.ones(3)}, r"W must have the shape \(n_visible, n_hidden\) .* got \(3,\)"),
        ({"W": np.ones((0, 3))}, r"W must have the shape .* at least one unit .* got \(0, 3\)"),
        ({"W": np.full((4, 3), np.nan)}, "W must hold finite numbers"),
        ({"W": np.full((4, 3), "x")}, "W must hold real numbers"),
        ({"a": np.ones(3)}, r"a must have one number for each .* shape \(4,\), got \(3,\)"),
        ({"b": np.ones(4)}, r"b must have one number for each .* shape \(3,\), got \(4,\)"),
        ({"b": [0.0, np.inf, 0.0]}, "b must hold finite numbers"),
        ({"base": np.ones(3)}, r"base must have one finite number for each of the 4 visible units"),
        ({"beta": np.nan}, "beta must be a finite number, got nan"),
        ({"beta": "1"}, "beta must be a finite number, got '1'"),
    ):
        arguments = {"W": np.ones((4, 3)), "a": np.zeros(4), "b": np.zeros(3), **change}
        for function in (exact_log_z, exact_moments):
            with pytest.raises(ValueError, match=message):
                function(**arguments)
    with pytest.raises(ValueError, match=r"at most 26 visible or hidden units.*\(30, 27\)"):
        exact_log_z(np.zeros((30, 27)), np.zeros(30), np.zeros(27))
    with pytest.raises(ValueError, match=r"v must have the shape \(n, 4\).* got \(2, 3\)"):
        log_marginal(np.zeros((2, 3)), *random_rbm(4, 3))
    for value in (0.5, 255, np.nan, "1"):  # grey values would give what means nothing
        with pytest.raises(ValueError, match="v must hold 0 and 1"):
            log_marginal(np.full((2, 4), value), *random_rbm(4, 3))
