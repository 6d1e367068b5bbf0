"""Training: maxima of the likelihood by enumeration, the loop, and what is refused."""

from itertools import product

import numpy as np
import pytest
from scipy.optimize import minimize

from pm_evidence.core.exceptions import NumericalError
from pm_evidence.families.rbm.target import checked_states
from pm_evidence.testing import exact_log_z, log_marginal
from pm_evidence.training.tracking import TrackLogZ
from pm_evidence.training.train import (
    Training,
    train,
)

STATES = np.array(list(product((0, 1), repeat=4)), np.uint8)


def parameters(rbm):
    return rbm.W, rbm.visible_bias, rbm.hidden_bias


def mean_log_likelihood(data, W, a, b):
    return log_marginal(data, W, a, b).mean() - exact_log_z(W, a, b)


def quiet(done):
    pass


def trained(data, n_hidden, seed=1, **options):
    rows = checked_states("data", data)
    return train(rows, n_hidden, Training(**options), np.random.SeedSequence(seed), quiet)


# --- the maximum of the likelihood ---


def best_likelihood(data, n_hidden, starts=2):
    """Return the largest mean log likelihood found by an optimiser from several starts."""
    shapes = (4, n_hidden), (4,), (n_hidden,)
    ends = np.cumsum([np.prod(shape) for shape in shapes])[:-1]

    def unpacked(x):
        return [part.reshape(s) for part, s in zip(np.split(x, ends), shapes, strict=True)]

    def minus(x):
        return -mean_log_likelihood(data, *unpacked(x))

    rng = np.random.default_rng(0)
    n = int(sum(np.prod(shape) for shape in shapes))
    return -min(minimize(minus, rng.normal(size=n)).fun for _ in range(starts))


@pytest.fixture(scope="module")
def tiny_data():
    """98 rows: two opposite states 35 times each, and the other 14 states twice."""
    opposite = (STATES == [1, 1, 0, 0]).all(axis=1) | (STATES == [0, 0, 1, 1]).all(axis=1)
    return np.repeat(STATES, np.where(opposite, 35, 2), axis=0)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["cd", "pcd"])
def test_many_steps_reach_the_maximum_of_the_likelihood(tiny_data, algorithm):
    """A gradient of the wrong sign, scale or layer ends elsewhere.

    Independent units reach 0.8 nats less than the maximum, and the tolerance is 0.001 nats, which
    the noise of the chains leaves in 9 parameters.
    """
    best = best_likelihood(tiny_data, 1)
    p = tiny_data.mean(axis=0)
    independent = (p * np.log(p) + (1 - p) * np.log1p(-p)).sum()
    assert best - independent > 0.7
    rbm = trained(
        tiny_data,
        1,
        algorithm=algorithm,
        steps=20 if algorithm == "cd" else 3,
        n_updates=2000,
        n_chains=None if algorithm == "cd" else 1000,
        learning_rate=0.3,
        linear_decay=True,
    )
    reached = mean_log_likelihood(tiny_data, *parameters(rbm))
    assert best - 0.001 < reached <= best + 1e-6


# --- the loop ---


def test_training_starts_at_the_log_odds_of_the_data():
    """After a single tiny step the parameters are those of the start."""
    data = STATES[[1, 3, 7, 15]]
    rbm = trained(data, 3, n_updates=1, learning_rate=1e-9)
    p = np.array([1.5, 2.5, 3.5, 4.5]) / 5.0
    np.testing.assert_allclose(rbm.visible_bias, np.log(p / (1.0 - p)), atol=1e-6)
    np.testing.assert_allclose(rbm.hidden_bias, 0.0, atol=1e-8)
    assert rbm.W.shape == (4, 3) and 0.0 < np.abs(rbm.W).max() < 0.05
    assert {x.dtype for x in parameters(rbm)} == {np.dtype(np.float64)}


@pytest.mark.parametrize("algorithm", ["cd", "pcd"])
def test_the_seed_decides(algorithm):
    """A trained machine can be made again."""
    data = np.random.default_rng(1).integers(0, 2, size=(57, 9))
    options = {"algorithm": algorithm, "n_updates": 120, "batch_size": 10}
    one, again, other = (trained(data, 5, seed, **options) for seed in (1, 1, 2))
    for x, y, z in zip(parameters(one), parameters(again), parameters(other), strict=True):
        np.testing.assert_array_equal(x, y)
        assert (x != z).any()


def test_a_learning_rate_that_is_too_large_is_an_error():
    """Parameters that are not numbers would make every later log Z NaN."""
    data = np.random.default_rng(1).integers(0, 2, size=(50, 9))
    with pytest.raises(NumericalError, match=r"learning_rate must be small.*got 1e\+39.*smaller"):
        trained(data, 5, n_updates=200, learning_rate=1e39)
    with pytest.raises(NumericalError, match="keep the weights below 10000 nats, got 100000"):
        trained(data, 5, n_updates=200, learning_rate=1e5, track=TrackLogZ(n_chains=10))


# --- arguments ---


def test_other_data_are_refused():
    """Grey values would be taken for ones without a word."""
    for data, message in (
        (np.array([[0, 255]], np.uint8), r"0 to 255; binarise them, data > 127, or rng\.random"),
        ([[0.0, 0.3]], r"0 to 0\.3; binarise them, data > 0\.5, or rng\.random.*< data\."),
        ([[-1, 1]], r"from -1 to 1; binarise them, data > 0\."),
        ([[0.0, np.nan]], "to nan; leave out or fill the entries that are not finite"),
        ([["0", "1"]], "data must hold 0 and 1, got"),
        (np.zeros((2, 3, 3)), r"got \(2, 3, 3\); images, .* data\.reshape"),
        (np.zeros(3), r"one row for each state, got \(3,\)"),
        (np.zeros((0, 3)), r"got \(0, 3\)"),
        ([[0, 1], [1]], "data must be an array"),
        (np.ma.masked_equal([[0, 1]], 1), "data must have no missing entries"),
    ):
        with pytest.raises(ValueError, match=message):
            checked_states("data", data)


def test_wrong_settings_are_named():
    for options, message in (
        ({"algorithm": "CD"}, "algorithm must be one of 'cd', 'pcd', 'tempering', got 'CD'"),
        ({"algorithm": "tempering"}, "track must be given if algorithm is 'tempering', got None"),
        (
            {"algorithm": "tempering", "track": TrackLogZ(), "steps": 2},
            "steps must be left out if algorithm is 'tempering', got 2",
        ),
        ({"steps": 0}, "steps must be a whole number of at least 1, got 0"),
        ({"n_updates": 1.5}, "n_updates must be a whole number of at least 1, got 1.5"),
        ({"batch_size": 0}, "batch_size must be a whole number of at least 1"),
        ({"learning_rate": -0.1}, "learning_rate must be a finite number above 0"),
        ({"linear_decay": 1}, "linear_decay must be True or False"),
        ({"weight_decay": -1e-4}, "weight_decay must not be negative, got -0.0001; pass 0"),
        ({"weight_decay": np.inf}, "weight_decay must be a finite number"),
        ({"n_chains": 10}, "n_chains must be left out unless algorithm is 'pcd', got 10"),
        ({"n_chains": 0, "algorithm": "pcd"}, "n_chains must be a whole number of at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            Training(**options)
    with pytest.raises(TypeError, match="track must be of type TrackLogZ, got True; pass"):
        Training(track=True)  # a flag would fail in the middle of the loop
