"""train_rbm: its arguments reach the training, and its progress is shown."""

import numpy as np
import pytest

import pm_evidence as pe
from pm_evidence.api.train_rbm import train_rbm
from pm_evidence.families.rbm.target import checked_states
from pm_evidence.testing import exact_log_z
from pm_evidence.training.train import Training, train
from tests.api.refusals import check_refusals

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
    wanted = train(checked_states("data", DATA), 3, training, seed, lambda done: None)
    plain = train(checked_states("data", DATA), 3, Training(n_updates=60), seed, lambda done: None)
    np.testing.assert_array_equal(found.W, wanted.W)
    assert (found.W != plain.W).any()
    assert pe.rbm.train_rbm is train_rbm


def test_tracking_start_and_validation_reach_the_training():
    """And the machine that comes back is one for every use: it is stored with its draws."""
    start = train_rbm(DATA, 3, n_updates=100, random_seed=1, progressbar=False)
    track = pe.rbm.TrackLogZ(n_temperatures=10, n_chains=50, n_sweeps=2, every=5)
    options = {"algorithm": "tempering", "n_updates": 20, "track": track}
    found = train_rbm(
        DATA, 3, start=start, validation=DATA[:9], random_seed=7, progressbar=False, **options
    )
    wanted = train(
        checked_states("data", DATA),
        3,
        Training(**options),
        np.random.SeedSequence(7),
        lambda done: None,
        start=start,
        validation=checked_states("data", DATA[:9]),
    )
    np.testing.assert_array_equal(found.W, wanted.W)
    np.testing.assert_array_equal(found.history.validation, wanted.history.validation)
    assert isinstance(found.history, pe.rbm.TrainingHistory)
    assert np.abs(found.W - start.W).max() < 0.5
    dt = pe.sample_evidence(found, draws=50, random_seed=1, progressbar=False)
    assert pe.log_evidence(dt).value == pytest.approx(
        exact_log_z(found.W, found.visible_bias, found.hidden_bias), abs=0.3
    )


def test_wrong_arguments_are_named_before_anything_is_shown(capsys):
    track = {"track": pe.rbm.TrackLogZ()}
    machine = pe.rbm.RBM(np.zeros((6, 2)), np.zeros(6), np.zeros(2))
    cases = [
        ({"n_hidden": 0}, "n_hidden must be a whole number of at least 1, got 0"),
        ({"data": DATA * 255}, "data must hold 0 and 1 only, got values from 0 to 255"),
        ({"batch_size": 41}, "batch_size must be at most the number of rows of data, 40, got 41"),
        ({"random_seed": -1}, "random_seed must not be negative"),
        ({"progressbar": "yes"}, "progressbar must be True or False"),
        ({"steps": 0}, "steps must be a whole number"),
        ({"validation": DATA}, "validation needs track, got an array of shape .* pass track=pe"),
        (
            {"validation": DATA[:, :5], **track},
            r"validation must have the 6 columns of data, got shape \(40, 5\)",
        ),
        (
            {"validation": 255 * DATA, **track},
            "validation must hold 0 and 1 only, .* binarise them, validation > 127",
        ),
        ({"start": machine}, r"start must have 6 visible and 3 hidden units, .* got \(6, 2\)"),
        ({"algorithm": "tempering"}, "track must be given if algorithm is 'tempering'"),
    ]
    good = {"data": DATA, "n_hidden": 3}
    check_refusals(train_rbm, [({**good, **given}, ValueError, said) for given, said in cases])
    said = "start must be of type RBM, got 3"
    check_refusals(train_rbm, [({**good, "start": 3}, TypeError, said)])
    assert capsys.readouterr().out == ""
