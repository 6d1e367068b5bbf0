"""train_rbm: its arguments reach the training, and its progress is shown."""

import numpy as np
import pytest

import pm_evidence as pe
from pm_evidence.api.training import train_rbm
from pm_evidence.families.rbm.training import Training, binary_rows, train

DATA = np.random.default_rng(1).integers(0, 2, size=(40, 6))


@pytest.mark.parametrize(
    "options",
    [
        {"steps": 2, "batch_size": 8, "learning_rate": 0.2, "weight_decay": 0.1},
        {"algorithm": "pcd", "n_chains": 30, "linear_decay": True},
    ],
)
def test_options_and_seed_reach_the_training(options):
    """An option that was dropped on the way would leave the result as it is without it."""
    found = train_rbm(DATA, 3, n_updates=60, random_seed=7, progressbar=False, **options)
    training, seed = Training(n_updates=60, **options), np.random.SeedSequence(7)
    wanted = train(binary_rows(DATA), 3, training, seed, lambda done: None)
    plain = train(binary_rows(DATA), 3, Training(n_updates=60), seed, lambda done: None)
    np.testing.assert_array_equal(found.W, wanted.W)
    assert (found.W != plain.W).any()
    assert pe.train_rbm is train_rbm


def test_a_generator_is_a_seed():
    one, again = (
        train_rbm(DATA, 3, n_updates=5, random_seed=np.random.default_rng(3), progressbar=False)
        for _ in range(2)
    )
    np.testing.assert_array_equal(one.W, again.W)


def test_progress_is_shown_unless_it_is_switched_off(capsys):
    train_rbm(DATA, 3, n_updates=120, random_seed=1)
    out = capsys.readouterr().out
    assert "Training" in out and "120/120" in out
    train_rbm(DATA, 3, n_updates=120, random_seed=1, progressbar=False)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_hidden": 0}, "n_hidden must be a whole number of at least 1, got 0"),
        ({"data": DATA * 255}, "data must hold 0 and 1 only, got values from 0 to 255"),
        ({"batch_size": 41}, "batch_size must be at most the number of rows of data, 40, got 41"),
        ({"random_seed": -1}, "random_seed must not be negative"),
        ({"progressbar": "yes"}, "progressbar must be True or False"),
        ({"steps": 0}, "steps must be a whole number"),
    ],
)
def test_wrong_arguments_are_named_before_anything_is_shown(arguments, message, capsys):
    with pytest.raises(ValueError, match=message):
        train_rbm(**{"data": DATA, "n_hidden": 3, **arguments})
    assert capsys.readouterr().out == ""
