"""The density at a point: exact for normal densities, right errors for others, heavy tails seen."""

import numpy as np
import pytest
from scipy import stats

from pm_evidence.estimators.point_density import point_density

COVARIANCE = np.array([[1.0, 0.6, -0.3], [0.6, 2.0, 0.4], [-0.3, 0.4, 0.5]])


def normal_draws(n, rng):
    return rng.multivariate_normal(np.zeros(3), COVARIANCE, n)


def of_normal(x, held, at):
    density = stats.multivariate_normal(np.zeros(3), COVARIANCE)
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


def student_z(n_runs, rng, scale_of_log_density=1.0):
    """Deviations in errors of runs on a location and a log precision; the exact density is a t."""
    shape, rate, at, z = 4.0, 3.0, np.array([1.0]), []
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
        z.append((found.log_bf - exact) / found.mcse)
    return np.array(z)


def test_errors_are_right():
    """A right estimate fails once in a thousand seeds; another density is noticed."""
    z = student_z(200, np.random.default_rng(2))
    assert abs(z.mean()) < 3.3 * z.std() / np.sqrt(z.size) and 0.85 < z.std() < 1.25
    wrong = student_z(20, np.random.default_rng(3), 1.1)
    assert abs(wrong.mean()) > 3.3 * wrong.std() / np.sqrt(wrong.size)


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
