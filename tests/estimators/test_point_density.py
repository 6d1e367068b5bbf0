"""The density at a point: exact for normal densities, right errors for others, heavy tails seen."""

import numpy as np
import pytest
from scipy import stats

from pm_evidence.estimators.draws import point_density

COVARIANCE = np.array([[1.0, 0.6, -0.3], [0.6, 2.0, 0.4], [-0.3, 0.4, 0.5]])


def normal_draws(n, rng):
    return rng.multivariate_normal(np.zeros(3), COVARIANCE, n)


def of_normal(x, held, at):
    density, held = stats.multivariate_normal(np.zeros(3), COVARIANCE), np.array(held)
    others = np.setdiff1d(np.arange(3), held)

    def log_density_at(rows):
        full = np.empty((len(rows), 3))
        full[:, held], full[:, others] = at, rows
        return density.logpdf(full)

    origin, movable = np.arange(len(x)) * 16 // len(x), np.ones(len(others), bool)
    return point_density(
        x, density.logpdf(x), origin, held, others, movable, np.array(at), log_density_at
    )


@pytest.mark.parametrize(("held", "at"), [([1], [0.5]), ([0, 2], [1.0, -2.0]), ([1], [9.0])])
def test_a_normal_density_is_nearly_exact_everywhere(held, at):
    """Also nine deviations away, where no draw is: the others move with the point."""
    found, beyond = of_normal(normal_draws(2000, np.random.default_rng(1)), held, at)
    exact = stats.multivariate_normal(np.zeros(len(held)), COVARIANCE[np.ix_(held, held)])
    assert abs(found.log_bf - exact.logpdf(at)) < 4 * found.mcse < 0.25
    assert (beyond == 0.0) == (at == [9.0])


def student_runs(n_runs, rng, scale_of_log_density=1.0):
    """Deviations, errors and their factors in intervals; the exact density is a Student t."""
    shape, rate, at, runs = 4.0, 3.0, np.array([1.0]), []
    exact = stats.t(2 * shape, scale=np.sqrt(rate / shape)).logpdf(1.0)

    def log_density(mu, s):
        prior = stats.gamma(shape, scale=1 / rate).logpdf(np.exp(s)) + s
        return scale_of_log_density * (prior + stats.norm(0.0, np.exp(-0.5 * s)).logpdf(mu))

    for _ in range(n_runs):
        s = np.log(rng.gamma(shape, 1 / rate, 2000))
        x = np.column_stack([rng.normal(0.0, np.exp(-0.5 * s)), s])
        found, _ = point_density(
            x,
            log_density(*x.T),
            np.arange(2000) * 16 // 2000,
            np.array([0]),
            np.array([1]),
            np.ones(1, bool),
            at,
            lambda rows: log_density(at, rows[:, 0]),
        )
        runs.append((found.log_bf - exact, found.mcse, stats.t(found.dof).ppf(0.975)))
    return np.array(runs).T


def is_unbiased(deviation):
    """Whether the estimates of the density have the exact mean; wrong once in a thousand seeds."""
    relative = np.expm1(deviation)
    return abs(relative.mean()) < 3.3 * relative.std() / np.sqrt(relative.size)


def test_errors_are_right():
    """Estimates that are too low state smaller errors, so that their ratio has no mean of zero."""
    deviation, error, factor = student_runs(200, np.random.default_rng(2))
    assert is_unbiased(deviation)
    assert 0.85 < (deviation / error).std() < 1.25
    assert 0.9 < (abs(deviation) < factor * error).mean() < 0.99
    wrong, *_ = student_runs(40, np.random.default_rng(3), 1.3)
    assert not is_unbiased(wrong)


def test_a_valley_between_modes_is_flagged():
    """The normal density that is fitted has mass where the draws have none."""
    rng = np.random.default_rng(4)
    x = (rng.choice([-4.0, 4.0], 2000) + 0.5 * rng.normal(size=2000))[:, None]

    def log_density(rows):
        return np.logaddexp(stats.norm(-4, 0.5).logpdf(rows), stats.norm(4, 0.5).logpdf(rows))

    at, none = np.array([4.0]), np.empty(0, np.int64)
    found, _ = point_density(
        x,
        log_density(x[:, 0]),
        np.arange(2000) * 16 // 2000,
        np.array([0]),
        none,
        none.astype(bool),
        at,
        lambda rows: np.full(len(rows), log_density(4.0)),
    )
    assert found.is_heavy
