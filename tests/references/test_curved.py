"""A Student-t density that third derivatives have bent: exact densities and skewed posteriors."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate, special

from pm_evidence.core.numerics import ess_share, log_mean_exp
from pm_evidence.core.shape import Shape
from pm_evidence.references.curved import CurvedFit, variance_of_third
from pm_evidence.references.mixture import StudentFit
from pm_evidence.samplers.peaks import (
    Survey,
    cost_of_curves,
    fit_locally,
    third_derivatives,
    with_curves,
)


def symmetric(third):
    orders = [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]
    return sum(third.transpose(order) for order in orders) / 6.0


def drawn_third(d, scale, seed=0):
    return symmetric(np.random.default_rng(seed).normal(0.0, scale, (d, d, d)))


def factor_of(d, seed=1):
    lower = np.tril(np.random.default_rng(seed).normal(0.0, 0.4, (d, d)), -1)
    return lower + np.diag(np.linspace(0.5, 2.0, d))


class LogGamma:
    """Log-gamma variables with different shapes, in coordinates that mix them linearly."""

    def __init__(self, shapes, mix):
        self.shapes, self.mix, self.calls = np.asarray(shapes, float), mix, 0
        slope = np.linalg.slogdet(mix)[1]
        self.log_z = special.gammaln(self.shapes).sum() - slope

    def log_density(self, x):
        y = x @ self.mix.T
        return (self.shapes * y - np.exp(y)).sum(axis=1)

    def gradient(self, x):
        self.calls += len(x)
        return (self.shapes - np.exp(x @ self.mix.T)) @ self.mix

    @property
    def peak(self):
        return np.linalg.solve(self.mix, np.log(self.shapes))


def log_gamma(d, seed=2):
    rng = np.random.default_rng(seed)
    return LogGamma(rng.uniform(6.0, 18.0, d), np.eye(d) + rng.normal(0.0, 0.2, (d, d)))


@pytest.mark.parametrize(("d", "half"), [(1, 40.0), (2, 30.0)])
def test_the_density_is_normalised(d, half):
    fit = CurvedFit.of(Shape(np.full(d, 0.7), factor_of(d)), drawn_third(d, 0.4))
    n = 4001 if d == 1 else 1201
    axes = np.meshgrid(*[np.linspace(-half, half, n)] * d, indexing="ij")
    x = np.stack([axis.ravel() for axis in axes], axis=1)
    total = np.exp(fit.log_density(x)).reshape((n,) * d)
    for _ in range(d):
        total = integrate.simpson(total, dx=2 * half / (n - 1), axis=0)
    assert total == pytest.approx(1.0, abs=2e-4)


def test_draws_have_the_density():
    """Draws in a ball are as many as the density says, for a map with all kinds of terms."""
    d, rng = 3, np.random.default_rng(3)
    fit = CurvedFit.of(Shape(np.array([0.2, -0.4, 1.0]), factor_of(d)), drawn_third(d, 0.4, 4))
    n = 400_000
    x = fit.draw(n, rng)
    for centre in x[:4]:
        inside = ((x - centre) ** 2).sum(axis=1) < 0.6**2
        ball = rng.standard_normal((20_000, d))
        ball *= (0.6 * rng.random(20_000) ** (1 / 3) / np.linalg.norm(ball, axis=1))[:, None]
        volume = 4.0 / 3.0 * np.pi * 0.6**3
        expected = np.exp(fit.log_density(centre + ball)).mean() * volume
        assert inside.mean() == pytest.approx(expected, rel=0.06)


def test_the_inverse_has_all_digits_in_many_dimensions():
    """The expectation of the ratio to a density that covers it is one, and far points are zero."""
    d, rng = 30, np.random.default_rng(5)
    third = drawn_third(d, 0.05, 6)
    third[4, 4, 4] = 1e-5  # a coordinate without skewness
    fit = CurvedFit.of(Shape(np.zeros(d), factor_of(d)), third)
    wide = StudentFit(Shape(np.zeros(d), 1.2 * factor_of(d)), 65)
    x = wide.draw(40_000, rng)
    log_weight = fit.log_density(x) - wide.log_density(x)
    error = np.sqrt((1.0 / ess_share(log_weight) - 1.0) / len(x))
    assert error < 0.1 and abs(log_mean_exp(log_weight)) < 4.0 * error
    far = np.full((1, d), 1e200)
    assert fit.log_density(far) == -np.inf


def test_without_third_derivatives_it_is_the_symmetric_density():
    shape = Shape(np.arange(4.0), factor_of(4))
    fit, x = CurvedFit.of(shape, np.zeros((4, 4, 4))), np.random.default_rng(7).normal(size=(50, 4))
    np.testing.assert_allclose(fit.log_density(x), StudentFit(shape, fit.dof).log_density(x))


@pytest.mark.parametrize("d", [1, 3, 6])
def test_the_density_has_the_third_derivatives(d):
    """The odd part of a bent normal's log density is the cubic term, to first order in this."""
    third, rng = drawn_third(d, 0.02, 11), np.random.default_rng(12)
    fit = replace(CurvedFit.of(Shape(np.zeros(d), np.eye(d)), third), dof=np.inf)
    u = rng.standard_normal((20, d))
    odd = (fit.log_density(u) - fit.log_density(-u)) / 2.0
    cubic = np.einsum("ijk,ni,nj,nk->n", third, u, u, u) / 6.0
    np.testing.assert_allclose(odd, cubic, rtol=0.02, atol=0.01 * np.abs(cubic).max())


@pytest.mark.parametrize("d", [1, 2, 5, 8])
@pytest.mark.parametrize("apart", [0.0, 0.3])
def test_third_derivatives(d, apart):
    """Those of log-gamma variables, in whatever coordinates, are known at and beside the peak."""
    posterior, factor = log_gamma(d), factor_of(d)
    x = posterior.peak + apart
    found = third_derivatives(posterior, Shape(x, factor))
    to_y = posterior.mix @ factor
    exact = -np.einsum("a,ai,aj,ak->ijk", np.exp(posterior.mix @ x), to_y, to_y, to_y)
    assert posterior.calls == 1 + d + (d * d + 1) // 2
    np.testing.assert_allclose(found, found.transpose(1, 0, 2), atol=1e-10)
    small = third_derivatives(posterior, Shape(x, 1e-2 * factor)) * 1e6
    np.testing.assert_allclose(small, exact, rtol=1e-2, atol=1e-2 * np.abs(exact).max())


def test_the_variance_that_they_explain():
    third, u = drawn_third(4, 0.3, 8), np.random.default_rng(9).standard_normal((200_000, 4))
    cubic = np.einsum("ijk,ni,nj,nk->n", third, u, u, u, optimize=True) / 6.0
    assert variance_of_third(third) == pytest.approx(cubic.var(), rel=0.05)


def surveyed(posterior):
    d = posterior.peak.size
    local = fit_locally(posterior, posterior.peak, Shape(np.zeros(d), np.full((d, 1), 10.0)))
    return Survey([local.fit], np.array([local.log_mass]), 1)


def test_a_skewed_posterior_is_matched():
    """In twenty dimensions, nine draws of ten are useful instead of three; the mass is right."""
    posterior, rng = log_gamma(20), np.random.default_rng(10)
    posterior.calls = 0
    before = surveyed(posterior)
    spent = posterior.calls
    found = with_curves(posterior, before)
    assert posterior.calls - spent == found.n_evaluations == cost_of_curves(before) == 221
    assert found.curved and found.n_peaks == 1 and found.log_mass[0] == found.log_mass[1]
    shares, values = [], []
    for component in found.components:
        x = component.draw(4000, rng)
        log_weight = posterior.log_density(x) - component.log_density(x)
        shares.append(float(ess_share(log_weight)))
        values.append(log_mean_exp(log_weight))
    assert shares[0] < 0.5 and shares[1] > 0.85
    assert abs(values[1] - posterior.log_z) < 4.0 * np.sqrt((1.0 / shares[1] - 1.0) / 4000)


def test_small_peaks_and_diagonal_shapes_are_left_as_they_are():
    posterior = log_gamma(4)
    one = surveyed(posterior)
    both = Survey([*one.components * 2], np.append(one.log_mass, one.log_mass - 5.0), 2)
    assert cost_of_curves(both) == cost_of_curves(one) == 13
    flat = Survey([StudentFit(Shape(np.zeros(4), np.ones((4, 1))), 13)], np.zeros(1), 1)
    assert cost_of_curves(flat) == 0 and len(with_curves(posterior, flat).components) == 1
    assert with_curves(posterior, Survey()).components == []


def test_a_density_that_is_too_far_from_its_expansion_is_not_bent():
    posterior = LogGamma(np.full(3, 0.05), np.eye(3))
    assert len(with_curves(posterior, surveyed(posterior)).components) == 1
