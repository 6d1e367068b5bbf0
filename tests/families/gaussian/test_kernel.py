"""The autoregression leaves its Gaussian as it is, reverses itself, and is as fast as it says.

Statistical tests have a false-alarm rate of 1e-6 and a fixed seed.
"""

import numpy as np
import pytest
from scipy.stats import norm

import pm_evidence as pe
from pm_evidence.core.random import streams
from pm_evidence.families.gaussian import Autoregression, MovingGaussian
from pm_evidence.testing import check_invariance, check_reversal

N = 5000  # planted errors are found with so many
every_tau = pytest.mark.parametrize("tau", [0.0, 0.5, (0.2, 0.95)])


def exact(tau, beta, n=N, seed=1):
    """Path of the toy, and exact draws at ``beta``."""
    path = MovingGaussian(pe.mixtures.Gaussian(tau=tau))
    x = np.random.default_rng(seed).normal(
        path.target.mean_at(beta), path.target.sd_at(beta), size=(n, 1)
    )
    return path, path.at(x)


def fresh_streams(n, seed=5):
    return streams(np.random.SeedSequence(seed), n)


def check(tau, beta, n):
    """Invariance, the reversal, and the correlation: how far the paths lag behind."""
    path, population = exact(tau, beta, n)
    report = check_invariance(Autoregression(), path, population, beta)
    assert report.moved == 1.0
    check_reversal(Autoregression(), path, population, beta)
    moved, _ = Autoregression().advance(path, population, beta, fresh_streams(n))
    wanted = path.target.tau_at(beta)
    found = np.corrcoef(population.x[:, 0], moved.x[:, 0])[0, 1]
    assert abs(np.arctanh(found) - np.arctanh(wanted)) < 4.9 / np.sqrt(n)


@every_tau
def test_it_leaves_the_density_as_it_is_and_reverses_itself(tau):
    """A kernel that distorts its density biases every evidence."""
    check(tau, 0.3, N)


class TooMuchNoise(Autoregression):
    """A planted error: noise as if every move forgot all."""

    def advance(self, path, state, beta, streams):
        target = path.target
        moved, info = super().advance(path, state, beta, streams)
        mean, tau = target.mean_at(beta), target.tau_at(beta)
        noise = moved.x - mean - tau * (state.x - mean)
        return path.at(moved.x + noise * ((1.0 - tau**2) ** -0.5 - 1.0)), info


class OneWayRound(Autoregression):
    """A planted error: invariant, but quantiles move up only, and from the top to the bottom."""

    def advance(self, path, state, beta, streams):
        _, info = super().advance(path, state, beta, streams)
        here = norm(path.target.mean_at(beta), path.target.sd_at(beta))
        return path.at(here.ppf((here.cdf(state.x) + 0.1) % 1.0)), info


def test_a_wrong_scale_of_the_noise_is_noticed():
    path, population = exact(0.5, 0.3)
    with pytest.raises(AssertionError, match="does not leave the density"):
        check_invariance(TooMuchNoise(), path, population, 0.3)


def test_a_move_that_is_not_its_own_reversal_is_noticed():
    path, population = exact(0.5, 0.3)
    check_invariance(OneWayRound(), path, population, 0.3)
    with pytest.raises(AssertionError, match="is not the kernel's reversal"):
        check_reversal(OneWayRound(), path, population, 0.3)


def test_the_mean_of_a_move_lies_between_state_and_mean():
    path = MovingGaussian(pe.mixtures.Gaussian(tau=0.75))
    start = path.at(np.full((N, 1), 40.0))
    moved, _ = Autoregression().advance(path, start, 0.0, fresh_streams(N))
    noise_sd = np.sqrt(1.0 - 0.75**2) * 10.0
    assert abs(moved.x.mean() - 35.0) < 4.9 * noise_sd / np.sqrt(N)
    assert moved.x.std() == pytest.approx(noise_sd, rel=4.9 / np.sqrt(2 * N))
