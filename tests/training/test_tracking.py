"""Tracked log Z: within its error of exact values all along, and what a training does with it."""

from itertools import product

import numpy as np
import pytest

from pm_evidence.core.exceptions import EvidenceWarning
from pm_evidence.testing import exact_log_z
from pm_evidence.training.parameters import Parameters
from pm_evidence.training.tracking import Tracker, TrackingError, TrackLogZ, TrainingChains
from pm_evidence.training.train import Training, train
from tests.families.rbm.machines import sine

FEW = {"n_temperatures": 10, "n_chains": 100, "n_sweeps": 2}


def images(n=600, seed=1):
    """Rows and columns of 6 x 6 pixels, 5 % of which are wrong."""
    rng = np.random.default_rng(seed)
    row, column = np.mgrid[:6, :6]
    bars = np.concatenate([[row == k for k in range(6)], [column == k for k in range(6)]])
    chosen = bars[rng.integers(12, size=n)].reshape(n, 36)
    return (chosen ^ (rng.random(chosen.shape) < 0.05)).astype(np.uint8)


def trained(n_hidden=12, seed=1, data=None, validation=None, start=None, **options):
    return train(
        images() if data is None else data,
        n_hidden,
        Training(**options),
        np.random.SeedSequence(seed),
        lambda done: None,
        validation=validation,
        start=start,
    )


def exact(machine):
    return exact_log_z(machine.W, machine.visible_bias, machine.hidden_bias)


def deviations(history):
    """Errors of log Z at the machines that were kept, in nats and in standard errors."""
    kept = np.isin(history.update, list(history.machines))
    exact_values = np.array([exact(machine) for machine in history.machines.values()])
    error = history.log_z[kept] - exact_values
    return error, error / history.log_z_mcse[kept]


def followed(algorithm, n_updates=600, rate=0.3, seed=1, **options):
    settings = {"n_temperatures": 20, "n_chains": 300, "n_sweeps": 5, "every": 20, **options}
    track = TrackLogZ(keep=range(0, n_updates + 1, 20), **settings)
    return trained(
        algorithm=algorithm, n_updates=n_updates, learning_rate=rate, track=track, seed=seed
    ).history


# --- log Z ---


@pytest.mark.parametrize("algorithm", ["cd", pytest.param("tempering", marks=pytest.mark.slow)])
def test_log_z_is_within_its_error_of_the_exact_value(algorithm):
    """At 31 points of a training of 12 hidden units, over which log Z changes by several nats.

    Deviations are held to 5 standard errors each and 1.8 in root mean square. The false-alarm rate
    cannot be computed because points are correlated; over seeds 1 to 6 the largest deviation was
    3.7 and the root mean square 0.8 to 1.3.
    """
    history = followed(algorithm)
    error, z = deviations(history)
    assert len(error) == 31
    assert np.abs(z).max() < 5.0 and np.sqrt((z**2).mean()) < 1.8
    assert np.ptp(history.log_z) > 4.0 > 50.0 * history.log_z_mcse.mean()


def slow_deviations(n_seeds=10):
    """Errors of log Z in standard errors, of chains that take many updates to cross the ladder.

    The machine does not change. Its log Z is 45, and a chain makes one sweep between updates.
    """
    machine = Parameters.of(trained(algorithm="pcd", n_updates=2000, learning_rate=0.1), np.float32)
    for each in machine.arrays:
        each *= np.float32(2.0)
    exact_value, found = exact(machine.machine()), []
    settings = TrackLogZ(n_temperatures=20, n_chains=300, n_sweeps=1, alpha=1.0)
    for seed in range(n_seeds):
        tracker = Tracker(settings, machine, images(), None, np.random.SeedSequence(seed))
        for update in range(200):
            tracker.visit(machine, update)
            if update >= 100 and update % 10 == 0:
                found.append((tracker.log_z - exact_value) / tracker.mcse)
    return np.array(found)


@pytest.mark.slow
def test_the_error_of_chains_that_respond_late():
    """The root mean square of deviations in units of the error, seeds 0 to 9: it was 1.1."""
    assert np.sqrt(np.mean(slow_deviations() ** 2)) < 1.4


@pytest.mark.slow
def test_chains_that_responded_at_once_would_have_a_smaller_error(monkeypatch):
    """The planted error: the tracked value overshoots because they do not; 1.9 with these seeds."""
    monkeypatch.setattr(TrackingError, "_response", lambda self: np.eye(1, len(self._errors))[0])
    assert np.sqrt(np.mean(slow_deviations() ** 2)) > 1.6


@pytest.mark.slow
def test_chains_that_give_the_gradient_must_not_judge_the_step_by_themselves(monkeypatch):
    """The planted error: every update moves away from these states, so that log Z drifts down."""
    monkeypatch.setattr(TrainingChains, "own_part", lambda self, parameters, rate: 0.0)
    error, z = deviations(followed("tempering"))
    assert error.mean() < 0.0 and np.sqrt((z**2).mean()) > 4.0


@pytest.mark.slow
def test_without_prediction_log_z_lags_behind():
    """As in the paper, whose steps are small; here the error is larger by far."""
    predicted = deviations(followed("cd", n_updates=200))[0]
    lagging = deviations(followed("cd", n_updates=200, predict=False))[0]
    assert np.abs(lagging).max() > 4.0 * np.abs(predicted).max()


def test_the_gradient_is_that_of_the_likelihood():
    """Two opposite patterns of 10 units, 70 and 30 %: Gibbs sampling does not leave a mode.

    Shares are held to 0.04, and the tracked likelihood to 4 of its errors, seed 1.
    """
    pattern = np.tile([0, 1], 5)
    data = np.repeat([pattern, 1 - pattern], [350, 150], axis=0)
    data = (data ^ (np.random.default_rng(1).random(data.shape) < 0.02)).astype(np.uint8)
    track = TrackLogZ(n_temperatures=20, n_chains=300, n_sweeps=2, every=50)
    machine = trained(
        2,
        data=data,
        algorithm="tempering",
        n_updates=500,
        learning_rate=0.3,
        linear_decay=True,
        track=track,
    )
    states = np.array(list(product([0, 1], repeat=10)), np.uint8)
    p = np.exp(-machine.free_energy(states) - exact(machine))
    first = p[(states == pattern).sum(axis=1) > 5].sum()
    assert first == pytest.approx(0.7, abs=0.04)
    likelihood = float(-machine.free_energy(data).mean()) - exact(machine)
    error = machine.history.log_z_mcse[-1]
    assert abs(machine.history.train[-1] - likelihood) < 4.0 * error < 0.5


# --- the history ---


def test_the_machine_with_the_largest_validation_likelihood_is_returned():
    """Training data that are far fewer than the parameters: later machines are worse."""
    data, validation = images(30), images(300, seed=2)
    track = TrackLogZ(every=10, keep=range(0, 601, 10), **FEW)
    machine = trained(
        40,
        data=data,
        validation=validation,
        algorithm="cd",
        n_updates=600,
        learning_rate=0.3,
        track=track,
    )
    history = machine.history
    point = int(history.validation.argmax())
    assert history.best == history.update[point] < 600
    assert history.validation[-1] < history.validation[point] - 1.0
    np.testing.assert_array_equal(machine.W, history.machines[history.best].W)
    found = float(-machine.free_energy(validation).mean()) - history.log_z[point]
    assert found == pytest.approx(history.validation[point])
    np.testing.assert_array_equal(machine.data, data)
    assert isinstance(machine.base, str) and machine.base == "auto"


def test_patience_ends_the_training():
    """As soon as so many points in a row have not improved, and with the best machine."""
    data, validation = images(30), images(300, seed=2)
    options = {"algorithm": "cd", "n_updates": 2000, "learning_rate": 0.3, "data": data}
    track = TrackLogZ(every=10, patience=4, **FEW)
    reports = []
    machine = train(
        data,
        40,
        Training(algorithm="cd", n_updates=2000, learning_rate=0.3, track=track),
        np.random.SeedSequence(1),
        reports.append,
        validation=validation,
    )
    history = machine.history
    assert history.update[-1] == history.best + 40 < 2000
    assert reports[-1] == 2000  # the display is complete
    patient = TrackLogZ(every=10, patience=4, **FEW)
    unseen = trained(40, **{**options, "n_updates": 100}, track=patient)
    assert unseen.history.update[-1] == 100  # without validation data there is nothing to wait for


def test_a_training_continues_from_a_machine():
    start = trained(n_updates=200)
    same = trained(n_updates=1, learning_rate=1e-12, start=start)
    np.testing.assert_allclose(same.W, start.W, rtol=1e-6)


def test_first_estimates_that_do_not_settle_give_a_warning(monkeypatch):
    """One iteration of two chains from log Z of 0 is far from the prior of 100 temperatures."""
    monkeypatch.setattr("pm_evidence.training.tracking._MOST_ITERATIONS", 1)
    data = np.random.default_rng(1).integers(2, size=(50, 16), dtype=np.uint8)
    machine, seed = Parameters.of(sine(), np.float32), np.random.SeedSequence(1)
    with pytest.warns(EvidenceWarning, match="the first estimates of log Z did not settle"):
        Tracker(TrackLogZ(n_chains=2), machine, data, None, seed)


def test_the_first_estimate_is_exact_within_its_error():
    """Of a machine with 16 x 12 units: the iterations from log Z of 0 reach it, seed 1."""
    data = (np.random.default_rng(1).random((200, 16)) < 0.5).astype(np.uint8)
    settings = TrackLogZ(n_temperatures=20, n_chains=1000)
    machine = Parameters.of(sine(), np.float32)
    tracker = Tracker(settings, machine, data, None, np.random.SeedSequence(1))
    assert tracker.visit(machine, 0)
    assert abs(tracker.log_z - exact(sine())) < 4.0 * tracker.mcse < 0.2


# --- arguments ---


def test_wrong_settings_are_named():
    assert TrackLogZ(alpha=1).alpha == 1 and TrackLogZ(keep=range(0, 30, 10)).keep == (0, 10, 20)
    for options, message in (
        ({"n_temperatures": 1}, "n_temperatures must be a whole number of at least 2, got 1"),
        ({"n_chains": 1}, "n_chains must be a whole number of at least 2, got 1"),
        ({"n_sweeps": 0}, "n_sweeps must be a whole number of at least 1, got 0"),
        ({"alpha": 0.0}, "alpha must be above 0 and at most 1, got 0.0; try 0.2"),
        ({"alpha": [0.2, 0.3]}, "alpha must be above 0 and at most 1, got"),
        ({"slope": np.nan}, "slope must be a finite number, got nan; try 2"),
        ({"slope": -1e3}, "slope must lie between -100 and 100, got -1000.0; try 2"),
        ({"predict": 1}, "predict must be True or False, got 1"),
        ({"every": 0}, "every must be a whole number of at least 1, got 0"),
        ({"patience": 0}, "patience must be a whole number of at least 1, got 0"),
        ({"keep": (5,)}, r"keep must hold multiples of every=10, got \(5,\); round them"),
        ({"keep": (-10,)}, "keep must hold multiples of every=10"),
        ({"keep": [0.5]}, "keep must hold whole numbers"),
        ({"keep": 10}, "keep must hold multiples of every=10, got 10"),
    ):
        with pytest.raises(ValueError, match=message):
            TrackLogZ(**options)
