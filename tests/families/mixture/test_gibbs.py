"""Gibbs sampling leaves every density of the path invariant, and its reversal reverses it."""

import numpy as np
import pytest

import pm_evidence as pe
from pm_evidence.core.random import streams
from pm_evidence.families.mixture.gibbs import MixtureGibbs, fill_parameters
from pm_evidence.families.mixture.path import DataAnnealingPath
from pm_evidence.kernels.growing import Grows
from tests.families.mixture.mixtures import PRIOR, log_evidence, mixture


def test_parameters_without_points_are_draws_from_the_prior():
    """Moments of means, variances and weights in 40,000 draws, within 5 errors."""
    target, n = mixture(3, weights_a=2.0, variance_alpha=6.0), 40_000
    mean, variance, weight = np.empty((n, 3)), np.empty((n, 3)), np.empty((n, 3))
    chains = streams(np.random.SeedSequence(1), n)
    fill_parameters(target.prior, mean, variance, weight, chains)
    for values, expected in (
        (mean, PRIOR["mean_mu"]),
        ((mean - PRIOR["mean_mu"]) ** 2, PRIOR["mean_sigma"] ** 2),
        (variance, PRIOR["variance_beta"] / 5.0),
        (1.0 / variance, 6.0 / PRIOR["variance_beta"]),
        (weight, 1.0 / 3.0),
        (weight**2, 2.0 * 3.0 / (6.0 * 7.0)),
    ):
        z = (values.mean(axis=0) - expected) / (values.std(axis=0) / n**0.5)
        assert (np.abs(z) < 5.0).all()


@pytest.mark.parametrize("collapsed", [True, False])
@pytest.mark.parametrize("backwards", [False, True])
def test_moves_leave_the_density_of_the_first_points_invariant(collapsed, backwards):
    """Exact draws for four points by weighting draws from the prior, moved five times.

    The means of functions of all parts of the state, within 5 errors. ``f_4`` is reached by
    draws from the prior whose points are weighted exactly, and resampled.
    """
    target = mixture(2)
    path = DataAnnealingPath(target, collapsed=collapsed)
    n = 60_000
    state, chains = path.draw(n, np.random.SeedSequence(1)), streams(np.random.SeedSequence(2), n)
    log_weight = np.zeros(n)
    for _ in range(4):
        log_weight += path.smoothed(state)
        state = path.extended(state, chains)
    weight = np.exp(log_weight - log_weight.max())
    before = functions(state)
    rng = np.random.default_rng(3)
    index = rng.choice(n, n, p=weight / weight.sum())
    moved = state.take(index)
    kernel = MixtureGibbs(backwards=backwards)
    for _ in range(5):
        moved, info = kernel.advance(path, moved, 4.0 / 7.0, chains)
    assert info.n_evaluations == n
    after = functions(moved)
    share = weight / weight.sum()
    expected = share @ before
    error_before = np.sqrt((share**2) @ (before - expected) ** 2)
    z = (after.mean(axis=0) - expected) / np.hypot(2.0 * error_before, after.std(axis=0) / n**0.5)
    assert (np.abs(z) < 5.0).all(), z


def functions(state):
    """Bounded functions of variances and of the components of the points so far."""
    there = state.component[0] >= 0
    z = state.component[:, there].astype(float)
    return np.column_stack(
        [
            np.log(state.variance),
            z,
            (z[:, 0] == z[:, 1]),
            (z[:, 0] == z[:, 2]) * np.tanh(state.variance[:, 0]),
        ]
    )


class NotReversed(MixtureGibbs):
    """A planted error: the reversal moves in the same order."""

    def reversed(self):
        return self


def test_a_wrong_reversal_is_found():
    """With means and weights in the state, the order of a sweep has to be reversed.

    The evidence of reverse paths is then wrong, and the right reversal gives the right one.
    """
    target = mixture(2, weights_a=0.5)
    exact, path = log_evidence(target), DataAnnealingPath(target, collapsed=False)
    z = {}
    for kernel in (MixtureGibbs(), NotReversed()):
        setup = target.annealing_setup(kernel)
        assert setup.kernel == Grows(kernel)
        dt = pe.sample_evidence(
            target,
            method="ais",
            kernel=kernel,
            path=path,
            draws=20_000 if type(kernel) is MixtureGibbs else 80_000,
            target_mcse=None,
            random_seed=2,
            progressbar=False,
        )
        found = pe.estimate(dt, ["bar"])["bar"]
        z[type(kernel)] = abs(found.value - exact) / found.mcse
    assert z[MixtureGibbs] < 4.0
    assert z[NotReversed] > 5.0
