"""A PyMC model as a target: coordinates, populations, and its description."""

from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from scipy import stats

from pm_evidence.core.exceptions import NumericalError
from pm_evidence.targets.model.target import PyMCTarget
from tests.models import shared
from tests.targets.values import in_python, without_gradients

pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")


def seed(n=1):
    return np.random.SeedSequence(n)


def test_a_matrix_that_is_made_counts():
    """Few data do not make a density cheap whose covariance is computed from them."""
    place = np.linspace(0.0, 1.0, 60)
    with pm.Model() as model:
        length = pm.HalfNormal("length")
        cov = pm.math.exp(-np.abs(place[:, None] - place) / length)
        pm.MvNormal("y", np.zeros(60), cov, observed=np.zeros(60))
    assert in_python(model).n_numbers > 10_000


# --- coordinates ---


def test_coordinates(target):
    """Kernels move exactly these positions: a discrete one among the continuous never moves."""
    assert target.n_dim == 6
    assert target.layout.shapes == [(2,), (), (), (), ()]
    np.testing.assert_array_equal(target.continuous, [0, 1, 3, 4])
    np.testing.assert_array_equal(target.discrete, [2, 5])
    np.testing.assert_array_equal(target.lower, [0, -np.inf])
    np.testing.assert_array_equal(target.upper, [3, np.inf])
    np.testing.assert_array_equal(target.period, [0, 0, 0, 2 * np.pi, 0, 0])
    assert target.log_prior_mass == 0.0


def test_densities_of_prior_draws(target, model):
    """Log prior, with the Jacobian of the scale, and log likelihood against scipy."""
    particles = target.draw(20, seed())
    slope, k, direction = particles.x[:, :2], particles.x[:, 2], particles.x[:, 3]
    log_scale, n = particles.x[:, 4], particles.x[:, 5]
    log_prior = (
        stats.norm.logpdf(slope).sum(axis=1)
        + stats.binom(3, 0.4).logpmf(k)
        + stats.vonmises(1.0).logpdf(direction)
        + stats.halfnorm.logpdf(np.exp(log_scale))
        + log_scale
        + stats.poisson(2).logpmf(n)
    )
    mean = slope.sum(axis=1)[:, None] * [-1.0, 0.0, 1.0] + (k + np.cos(direction))[:, None]
    y = np.array([0.5, 1.5, 2.0])
    log_likelihood = stats.norm.logpdf(y, mean, np.exp(log_scale)[:, None]).sum(axis=1)
    np.testing.assert_allclose(particles.log_density[:, 0], log_prior, rtol=1e-7)
    np.testing.assert_allclose(particles.log_density[:, 1], log_likelihood, rtol=1e-12)


def test_wrap(target):
    """Circular coordinates come back to (-pi, pi]; all others stay where they are."""
    x = np.tile(np.arange(6.0) * 10, (3, 1))
    x[:, 3] = [0.5, 0.5 + 4 * np.pi, 0.5 - 6 * np.pi]
    wrapped = target.wrap(x.copy())
    np.testing.assert_allclose(wrapped[:, 3], 0.5, rtol=1e-12)
    np.testing.assert_array_equal(np.delete(wrapped, 3, 1), np.delete(x, 3, 1))
    densities = [target.evaluate(rows).log_density[:, 1] for rows in (x, wrapped)]
    np.testing.assert_allclose(*densities, rtol=1e-9)


# --- what the results need ---


def test_names_data_and_coordinates(target):
    """The groups of the DataTree are filled from these."""
    np.testing.assert_array_equal(target.observed_data()["y"], [0.5, 1.5, 2.0])
    assert target.observed_data().keys() == {"y"}
    np.testing.assert_array_equal(target.constant_data()["x"], [-1.0, 0.0, 1.0])
    coords, dims = target.coords_and_dims()
    assert list(coords["row"]) == ["a", "b", "c"] and list(coords["side"]) == ["left", "right"]
    assert list(dims["mean"]) == ["row"] and list(dims["slope"]) == ["side"]


def test_pointwise_log_densities(target, model):
    """PyMC's own groups, for draws that PyMC did not make."""
    values = target.constrained.values(target.draw(8, seed(2)).x)
    free = [rv.name for rv in model.free_RVs]
    data = {
        name: (("chain", "draw", *map(str, range(values[name].ndim - 1))), values[name][None])
        for name in free
    }
    data["slope"] = (("chain", "draw", "side"), values["slope"][None])
    tree = xr.DataTree.from_dict({"posterior": xr.Dataset(data)})
    target.add_log_densities(tree, ["log_likelihood", "log_prior"])
    expected = stats.norm.logpdf([0.5, 1.5, 2.0], values["mean"], values["scale"][:, None])
    np.testing.assert_allclose(tree["log_likelihood/y"].values[0], expected, rtol=1e-6)
    np.testing.assert_allclose(
        tree["log_prior/k"].values[0], stats.binom(3, 0.4).logpmf(values["k"]), rtol=1e-6
    )


# --- potentials ---


def test_potentials_count_as_likelihood_or_alone():
    """Two runs take the constant of a tilted prior off: each must see its own terms."""
    with pm.Model() as model:
        x = pm.Normal("x", 0, 1)
        pm.Potential("tilt", -2.0 * x)
        pm.Normal("y", x, 1, observed=0.5)
    x = np.array([[0.3], [-1.0]])
    both = in_python(model).evaluate(x).log_density
    alone = in_python(model, potentials_only=True).evaluate(x).log_density
    np.testing.assert_allclose(alone[:, 1], -2.0 * x[:, 0])
    np.testing.assert_allclose(both[:, 1], stats.norm.logpdf(0.5, x[:, 0]) - 2.0 * x[:, 0])
    np.testing.assert_allclose(both[:, 0], stats.norm.logpdf(x[:, 0]))
    np.testing.assert_array_equal(alone[:, 0], both[:, 0])


# --- no free variable ---


def test_nothing_free():
    """Every member is the empty point; the likelihood is a constant."""
    with pm.Model() as model:
        pm.Normal("y", 0, 1, observed=[0.5, 1.0])
    target = PyMCTarget(model)
    particles = target.draw(3, seed())
    assert target.n_dim == 0 and particles.x.shape == (3, 0)
    np.testing.assert_allclose(
        particles.log_density, np.tile([0.0, stats.norm.logpdf([0.5, 1.0]).sum()], (3, 1))
    )
    assert target.differentiable is None and target.log_prior_mass == 0.0


# --- what is not a number ---


def test_nan_in_the_likelihood_is_refused():
    """Never average over it: it says where, how often, and where to look."""
    with pm.Model() as model:
        x = pm.Normal("x", 0, 1)
        pm.Normal("y", pm.math.log(x), 1, observed=0.0)  # NaN below zero
    with pytest.raises(NumericalError) as caught:
        in_python(model).draw(100, seed())
    message = str(caught.value)
    assert "log likelihood must be a number below infinity, got nan at" in message
    assert "of 100 prior draws, first at {x=-" in message
    assert "NaN in the data" in message and "point_logps" in message


def test_infinite_density_is_refused():
    """An evidence of infinity is a mistake in the model."""
    with pm.Model() as model:
        x = pm.Normal("x", 0, 1)
        pm.Potential("p", pm.math.switch(x > 0, np.inf, 0.0))
    with pytest.raises(NumericalError, match=r"log likelihood .* got inf at \d+ of 100"):
        in_python(model).draw(100, seed())


def test_minus_infinity_is_legal():
    """Weight zero: such draws are kept, and count."""
    with pm.Model() as model:
        x = pm.Normal("x", 0, 1)
        pm.Potential("p", pm.math.switch(x > 0, 0.0, -np.inf))
    particles = in_python(model).draw(1000, seed())
    assert len(particles) == 1000
    dead = particles.log_density[:, 1] == -np.inf
    np.testing.assert_array_equal(dead, particles.x[:, 0] <= 0)
    assert 400 < dead.sum() < 600


# --- frozen ---


def test_new_data_make_a_new_target():
    """The target in hand keeps its data; one that is made afterwards has the new ones."""
    with pm.Model() as model:
        x = pm.Normal("x", 0, 1)
        pm.Normal("y", x, 1, observed=pm.Data("seen", np.array([1.0, 2.0])))
    old = without_gradients(PyMCTarget(model))
    before = old.evaluate(np.zeros((1, 1))).log_density
    with model:
        pm.set_data({"seen": np.array([1.0, 2.0, 3.0])})
    np.testing.assert_array_equal(old.evaluate(np.zeros((1, 1))).log_density, before)
    new = in_python(model).evaluate(np.zeros((1, 1))).log_density
    assert new[0, 1] == pytest.approx(stats.norm.logpdf([1.0, 2.0, 3.0]).sum())


# --- one compiled function ---


def test_a_continuous_model_is_compiled_once():
    """A second function without gradients took as long to compile as half of the first.

    Only where no gradient can be computed it is needed: there may be a density all the same.
    """
    target = PyMCTarget(shared("line").model)
    particles = target.draw(20, np.random.SeedSequence(1))
    assert target.prior_acceptance == 1.0
    target.sample_stats(particles.x)
    assert "density" not in vars(target) and particles.gradient is None
    expected = target.density.values(particles.x)
    np.testing.assert_allclose(particles.log_density, expected, rtol=1e-12)
    failing = np.where(np.arange(20)[:, None] == 3, np.nan, expected)

    def write(x, log_density):
        log_density[:] = failing

    vars(target)["differentiable"] = SimpleNamespace(write=write, slow_ops=())
    np.testing.assert_array_equal(target.evaluate(particles.x).log_density, expected)
