"""The posterior density as a function of points, over the normalised prior."""

import numpy as np
import pytest
from scipy import stats

from pm_evidence.paths.geometric import Posterior
from pm_evidence.targets.layout import Particles


class Normal:
    """A standard normal prior and a normal likelihood, on half of the line, as a target says it.

    Beyond 2 the likelihood is NaN, and below -3 lies another period of the coordinate.
    """

    log_order_mass = -np.log(2.0)
    differentiable = None

    def draw(self, n, seed):
        x = np.random.default_rng(seed).normal(size=(n, 1))
        return self.evaluate(x)

    def evaluate(self, x):
        likelihood = np.where(x[:, 0] > 2.0, np.nan, stats.norm.logpdf(x[:, 0], 1.0, 0.5))
        prior = stats.norm.logpdf(x[:, 0])
        return Particles(x, np.stack([prior, likelihood], axis=1))

    def outside(self, x):
        return x[:, 0] < -3.0


class Smooth(Normal):
    """The same with a gradient."""

    @property
    def differentiable(self):
        return Gradients()


class Gradients:
    """Log densities, which nobody reads here, and their gradients."""

    def write(self, x, log_density, gradient):
        log_density[:] = 0.0
        gradient[:] = np.stack([-x, -(x - 1.0) / 0.25], axis=1)


def test_the_density_is_over_the_normalised_prior():
    """Ordered parts fill half of the space: their prior counts twice."""
    x = np.linspace(-2.9, 1.9, 7)[:, None]
    expected = stats.norm.logpdf(x[:, 0]) + stats.norm.logpdf(x[:, 0], 1.0, 0.5) + np.log(2.0)
    np.testing.assert_allclose(Posterior(Normal()).log_density(x), expected, rtol=1e-14)


@pytest.mark.parametrize("x", [2.5, -3.5, 1e100])
def test_there_is_none_beyond_the_support(x):
    assert Posterior(Normal()).log_density(np.array([[x], [0.0]]))[0] == -np.inf


def test_draws_are_those_of_the_prior_and_of_the_generator():
    posterior = Posterior(Normal())
    one = posterior.draw_prior(20, np.random.default_rng(1))
    np.testing.assert_array_equal(posterior.draw_prior(20, np.random.default_rng(1)), one)
    assert not np.array_equal(posterior.draw_prior(20, np.random.default_rng(2)), one)


def test_the_gradient_is_that_of_the_density():
    x, step = np.array([[-1.0], [0.3], [1.5]]), 1e-5
    posterior = Posterior(Smooth())
    slope = posterior.log_density(x + step) - posterior.log_density(x - step)
    np.testing.assert_allclose(posterior.gradient(x)[:, 0], slope / (2 * step), rtol=1e-8)
    assert posterior.has_gradient and not Posterior(Normal()).has_gradient
