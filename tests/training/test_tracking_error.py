"""The error of a tracked log Z: how chains respond to it, on chains whose response is known."""

import numpy as np
import pytest

from pm_evidence.training.tracking import _LONGEST, Ladder, TrackingError, slowest_mode

N_CHAINS, ALPHA = 200, 0.2


class Feedback:
    """Chains with the autocorrelation ``rho``, pulled towards minus the error of log Z.

    Their mean is the log ratio of visits, by ``alpha`` times of which the error is corrected.
    """

    def __init__(self, rho, rng):
        self.rho, self.rng, self.error = rho, rng, 0.0
        self.x = rng.normal(size=N_CHAINS)
        self.tracked = TrackingError(np.zeros(N_CHAINS), self.x)

    def update(self, alpha=ALPHA):
        noise = np.sqrt(1.0 - self.rho**2) * self.rng.normal(size=N_CHAINS)
        self.x = self.rho * self.x - (1.0 - self.rho) * self.error + noise
        self.error += alpha * self.x.mean()
        self.tracked.corrected(alpha, self.x - self.x.mean(), self.x)


def after(rho, n_updates, rng):
    run = Feedback(rho, rng)
    for _ in range(n_updates):
        run.update()
    return run


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.8, 0.95])
def test_the_error_is_that_of_the_tracked_value(rho):
    """Over 100 runs: the mean square of deviations in units of the error is 1, to 0.45.

    It has a standard deviation of 0.14 (0.2 where chains are slow and the error is less certain).
    The error of log Z from chains that respond at once would be too small by ``1 / sqrt(1 + 0.2
    t)`` with ``t = -1 / log(rho)``: 0.72 and 0.45 of the right one for 0.8 and 0.95.
    """
    rng = np.random.default_rng(1)
    runs = [after(rho, 150, rng) for _ in range(100)]
    z = np.array([run.error / run.tracked.mcse for run in runs])
    assert np.mean(z**2) == pytest.approx(1.0, abs=0.45)


def test_the_planted_error_of_an_instant_response_is_caught(monkeypatch):
    """As if every update corrected what is left of earlier errors, and chains took no time."""
    monkeypatch.setattr(TrackingError, "_response", lambda self: np.eye(1, _LONGEST)[0])
    rng = np.random.default_rng(1)
    runs = [after(0.95, 150, rng) for _ in range(100)]
    assert np.mean([(run.error / run.tracked.mcse) ** 2 for run in runs]) > 2.0


def test_the_response_is_that_of_the_autocorrelation():
    """``(1 - rho) rho**j`` to errors of ``j`` updates ago, and all that is left to the oldest."""
    run = after(0.7, 400, np.random.default_rng(2))
    found = run.tracked._response()
    np.testing.assert_allclose(found[:6], 0.3 * 0.7 ** np.arange(6), atol=0.03)
    assert found.sum() == pytest.approx(1.0, abs=0.01) and (found >= 0.0).all()


def test_chains_that_do_not_move_correct_nothing():
    for mode in (np.array([1.0, -1.0]), np.ones(2)):
        tracked = TrackingError(np.array([1.0, -1.0]), mode)
        for _ in range(5):
            tracked.corrected(0.25, np.zeros(2), mode)
        assert tracked.mcse == pytest.approx(1.0)


def test_the_slowest_mode_of_a_ladder():
    """A step of a walk that keeps the prior shrinks it by one factor at all temperatures."""
    n = 50
    mode = slowest_mode(np.log(np.full(n, 1.0 / n)))
    walk = 0.5 * (np.eye(n, k=1) + np.eye(n, k=-1))
    walk[0, 0] = walk[-1, -1] = 0.5
    np.testing.assert_allclose(walk @ mode, np.cos(np.pi / n) * mode, atol=1e-12)
    share = np.exp(Ladder.even(n, 2.0).log_prior)
    uneven = slowest_mode(np.log(share))
    assert share @ uneven == pytest.approx(0.0, abs=1e-3)
    assert (np.diff(uneven) < 0.0).all() and -1.0 < uneven[-1] < uneven[0] < 1.0
