"""pm.CAR is the multivariate normal that it says it is: its constant and its draws."""

import numpy as np
import pymc as pm
import pytest
import scipy.sparse
from scipy import stats

from pm_evidence.targets.model.simulate import simulate
from pm_evidence.targets.model.upstream import with_exact_car
from tests.targets.values import in_python

pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")

W = np.array([[0.0, 1.0, 1.0, 0.0], [1.0, 0.0, 1.0, 0.0], [1.0, 1.0, 0.0, 1.0], [0, 0, 1.0, 0]])
MEAN = np.array([1.0, -1.0, 0.5, 2.0])
ALPHA, TAU = 0.7, 2.5
COVARIANCE = np.linalg.inv(TAU * (np.diag(W.sum(axis=0)) - ALPHA * W))
EXACT = stats.multivariate_normal(MEAN, COVARIANCE)
N = 4000
# Of every one of some 100 comparisons.
FALSE_ALARM = 1e-6


def model_of(w, shape=(4,)):
    with pm.Model() as model:
        x = pm.CAR("x", MEAN, W=w, alpha=ALPHA, tau=TAU, shape=shape)
        pm.Normal("y", x.sum(), 1, observed=0.0)
    return model


def check_moments(x):
    """Compare means and covariances with their standard errors."""
    limit = stats.norm.isf(FALSE_ALARM / 2)
    errors = np.sqrt(np.diag(COVARIANCE) / len(x))
    assert (np.abs(x.mean(axis=0) - MEAN) < limit * errors).all()
    variances = np.diag(COVARIANCE)
    errors = np.sqrt((COVARIANCE**2 + np.outer(variances, variances)) / len(x))
    assert (np.abs(np.cov(x.T) - COVARIANCE) < limit * errors).all()


@pytest.mark.parametrize(
    ("w", "shape"), [(W, (4,)), (scipy.sparse.csr_matrix(W), (4,)), (W, (2, 4))]
)
def test_free(w, shape):
    """A constant left out, or draws of another covariance, would shift every evidence."""
    target = in_python(model_of(w, shape))
    particles = target.draw(N // (len(shape) + len(shape) % 2), np.random.SeedSequence(1))
    x = particles.x.reshape(len(particles), -1, 4)
    exact = EXACT.logpdf(x).reshape(x.shape[:2]).sum(axis=1)
    np.testing.assert_allclose(particles.log_density[:, 0], exact, rtol=1e-9, atol=1e-9)
    check_moments(x.reshape(-1, 4))


def test_observed():
    """The same constant in the likelihood."""
    y = MEAN + 0.3
    with pm.Model() as model:
        shift = pm.Normal("shift")
        pm.CAR("y", MEAN + shift, W=W, alpha=ALPHA, tau=TAU, observed=y)
    target = in_python(model)
    x = np.array([[-0.5], [0.0], [1.0]])
    np.testing.assert_allclose(target.evaluate(x).log_density[:, 1], EXACT.logpdf(y - x))


def test_simulated():
    """Data for the two sided check are drawn from the same distribution."""
    with pm.Model() as model:
        pm.CAR("y", MEAN + pm.Normal("a", 0, 1e-6), W=W, alpha=ALPHA, tau=TAU, observed=MEAN)
    (y,) = with_exact_car([model["y"]])
    check_moments(pm.draw(y, draws=N, random_seed=2, mode="FAST_COMPILE"))
    data = [simulate(model, number)[0].rvs_to_values[model["y"]].data for number in (1, 2)]
    assert np.shape(data) == (2, 4) and not np.array_equal(*data)


def test_pymc_draws_otherwise():
    """The reason for drawing it here: if PyMC mends it, drop ``targets/car.py``."""
    car = pm.CAR.dist(MEAN, W=W, alpha=ALPHA, tau=TAU)
    x = pm.draw(car, draws=2000, random_seed=1, mode="FAST_COMPILE")  # a millisecond each
    assert np.abs(np.cov(x.T) - COVARIANCE).max() > 0.1
