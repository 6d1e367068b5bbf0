"""Densities that JAX evaluates, against those of numba."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pm_evidence.core.exceptions import ModelError
from pm_evidence.targets.compile.jax_density import JaxDensity, _Sizes
from pm_evidence.targets.model.cache import target_of
from pm_evidence.testing import exact_systems

# Models of every family whose variables are continuous.
NAMES = [
    "beta_binomial",
    "dirichlet_multinomial",
    "normal_inverse_gamma",
    "mvnormal_mean",
    "random_walk",
    "uniform_width",
    "half_cauchy_scale",
    "von_mises",
    "interval_cut_normal",
    "truncated_normal",
    pytest.param("zero_sum", marks=pytest.mark.slow),
    pytest.param("lkj_covariance", marks=pytest.mark.slow),
    pytest.param("ordered_unequal", marks=pytest.mark.slow),
    "student_t_likelihood",
    "eight_schools_half_cauchy_centred",
    "funnel",
    "gaussian_shells",
    "label_switching",
    "potential_and_data",
    "missing_normal",
    "observed_parent",
    "data_container",
]


def pair(model):
    """The target of numba, and that of JAX."""
    return [target_of(model, reparameterise=True, backend=name) for name in ("numba", "jax")]


@pytest.mark.parametrize("name", NAMES)
def test_values_and_gradients_are_those_of_numba(name):
    """A difference beyond rounding would be another model."""
    target, by_jax = pair(exact_systems()[name].build())
    x = target.draw(40, np.random.SeedSequence(1)).x
    x = np.concatenate([x, 5.0 * x, np.random.default_rng(2).normal(size=x.shape, scale=30.0)])
    log_density, gradient = target.differentiable.evaluate(x)
    found, slope = by_jax.differentiable.evaluate(x)
    np.testing.assert_allclose(found, log_density, rtol=1e-11, atol=1e-11)
    assert found.flags.writeable and slope.dtype == np.float64
    possible = np.isfinite(log_density).all(axis=1)
    np.testing.assert_allclose(
        slope[possible], gradient[possible], rtol=1e-9, atol=1e-9 * np.abs(gradient[possible]).max()
    )
    np.testing.assert_allclose(by_jax.differentiable.values(x), found, rtol=1e-12, atol=1e-12)


def test_a_density_without_gradient():
    """It takes the place of one whose gradient is NaN."""
    target = target_of(exact_systems()["normal_mean"].build(), backend="jax")
    x = np.linspace(-1.0, 1.0, 5)[:, None]
    values, gradient = target.density.evaluate(x)
    assert gradient is None
    np.testing.assert_allclose(values, target.differentiable.values(x), rtol=1e-14)


def test_no_free_variable():
    """Its likelihood is its evidence, and no point has coordinates."""
    with pm.Model() as model:
        pm.Normal("y", 0, 1, observed=[0.0])
    target = target_of(model, backend="jax")
    np.testing.assert_allclose(
        target.evaluate(np.empty((2, 0))).log_density[:, 1], -0.5 * np.log(2 * np.pi)
    )


def test_no_rows():
    """A population may be empty where all draws fall outside a transform."""
    density = target_of(exact_systems()["mvnormal_mean"].build(), backend="jax").differentiable
    log_density, gradient = density.evaluate(np.empty((0, density.n_dim)))
    assert log_density.shape == (0, 2) and gradient.shape == (0, 2, density.n_dim)


def test_other_coordinates_need_no_compilation():
    """The amounts of centring are data."""
    target, by_jax = pair(exact_systems()["eight_schools_half_normal_centred"].build())
    x = target.draw(20, np.random.SeedSequence(1)).x
    before = by_jax.differentiable.values(x)
    centring = type(target.centring).common(0.7, len(target.variables))
    one, other = target.centred_by(centring), by_jax.centred_by(centring)
    found, slope = other.differentiable.evaluate(x)
    log_density, gradient = one.differentiable.evaluate(x)
    np.testing.assert_allclose(found, log_density, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(slope, gradient, rtol=1e-9, atol=1e-9)
    assert np.abs(found - before).max() > 0.1
    np.testing.assert_array_equal(by_jax.differentiable.values(x), before)
    assert other.differentiable._programs is by_jax.differentiable._programs


def test_new_data_are_seen():
    with pm.Model() as model:
        data = pm.Data("data", [1.0, 2.0])
        mu = pm.Normal("mu")
        pm.Normal("y", mu, 1, observed=data)
    before = target_of(model, backend="jax").evaluate(np.zeros((1, 1))).log_density[0, 1]
    with model:
        pm.set_data({"data": [1.0, 3.0]})
    after = target_of(model, backend="jax").evaluate(np.zeros((1, 1))).log_density[0, 1]
    assert before - after == pytest.approx(2.5)


def test_few_sizes_are_compiled():
    """JAX compiles each anew, which takes longer than thousands of evaluations."""
    target = target_of(exact_systems()["mvnormal_mean"].build(), backend="jax")
    rng, density = np.random.default_rng(1), target.differentiable
    for n in (*range(1, 60), 300, 500, 5000):
        density.evaluate(rng.normal(size=(n, target.n_dim)))
    assert len(density._programs.known) <= 4


def test_sizes():
    sizes = _Sizes.of([100, 2000], "cpu")
    assert (sizes.least, sizes.most) == (16, 128)
    assert [sizes.above(n) for n in (0, 1, 16, 17, 100, 128)] == [16, 16, 16, 32, 128, 128]
    assert [sizes.just_above(n) for n in (0, 1, 8, 20, 80, 100, 200)] == [8, 8, 8, 24, 80, 104, 208]
    assert _Sizes.of([10_000_000], "cpu").most == _Sizes.of([10_000_000], "cpu").least == 8
    assert _Sizes.of([], "gpu").most >= _Sizes.of([1], "cpu").most


def test_a_shape_that_depends_on_the_variables_is_refused():
    """JAX traces a function without values; this must come to light before a run."""
    with pm.Model() as model:
        x = pm.Normal("x", shape=3)
        pm.Potential("p", pt.sum(x[: pt.cast(pt.exp(x[0]), "int64")]))
        pm.Normal("y", x[0], 1, observed=1.0)
    with pytest.raises(ModelError, match="shapes that do not depend on the variables"):
        target_of(model, backend="jax").differentiable  # noqa: B018


def test_errors_of_tracing_are_errors_of_the_model():
    def wrong(x, arrays):
        return x[:, 0], None

    with pytest.raises(ModelError, match="Leave backend out"):
        JaxDensity.of(wrong, 2, [], has_gradient=False)
