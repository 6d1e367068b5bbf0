"""Student-t densities in stretched coordinates: normalised, drawn from exactly, bounded weights."""

import numpy as np
import pytest
from scipy import stats

from pm_evidence.references.mixture import (
    Stretch,
    StudentFit,
    learn_stretch,
    learn_tails,
)


def population(rng, n):
    """A heavy and a light coordinate."""
    return np.column_stack([3.0 + 2.0 * rng.standard_cauchy(n), rng.normal(-1.0, 0.5, n)])


def fitted(rng, n=4000):
    x = population(rng, n)
    stretch = learn_stretch(x)
    return StudentFit.to(x, stretch)


def test_coordinates_and_back():
    """Heavy coordinates are bent, the others stay as they are. Seed 1."""
    x = population(np.random.default_rng(1), 500)
    stretch = Stretch(np.array([True, False]), np.array([3.0, 0.0]), np.array([2.0, 1.0]))
    z = stretch.inward(x)
    np.testing.assert_allclose(stretch.outward(z), x, rtol=1e-9)
    np.testing.assert_array_equal(z[:, 1], x[:, 1])
    step = 1e-6
    slope = (stretch.outward(z + step) - stretch.outward(z - step))[:, 0] / (2 * step)
    np.testing.assert_allclose(stretch.log_slope(x), np.log(slope), rtol=1e-6)


def test_density_is_normalised():
    """A sum over a fine grid of the coordinates in which the density is smooth. Seed 2."""
    density = fitted(np.random.default_rng(2))
    z, light = np.linspace(-25.0, 25.0, 1001), np.linspace(-9.0, 7.0, 401)
    grid = np.stack(np.meshgrid(z, light, indexing="ij"), axis=-1).reshape(-1, 2)
    x = density.stretch.outward(grid)
    mass = np.exp(density.log_density(x) + density.stretch.log_slope(x)).sum()
    assert mass * (z[1] - z[0]) * (light[1] - light[0]) == pytest.approx(1.0, abs=1e-3)


def test_weights_of_a_cauchy_density_are_bounded():
    """A fitted Student-t density has none of its draws where a Cauchy density has a percent."""
    rng = np.random.default_rng(4)
    x = population(rng, 4000)

    def log_target(at):
        return stats.cauchy(3, 2).logpdf(at[:, 0]) + stats.norm(-1, 0.5).logpdf(at[:, 1])

    far = population(rng, 100_000)
    bent, plain = fitted(rng), StudentFit.to(x)
    assert (log_target(far) - bent.log_density(far)).max() < 6.0
    assert (log_target(far) - plain.log_density(far)).max() > 20.0


def test_only_heavy_tails_are_stretched():
    """Normal, logistic and Student-t with 5 degrees of freedom are not; copies have no scale."""
    rng = np.random.default_rng(5)
    light = np.column_stack(
        [rng.normal(size=3000), rng.logistic(size=3000), rng.standard_t(5, size=3000)]
    )
    assert learn_stretch(light) is None
    assert learn_stretch(np.append(np.zeros((300, 1)), [[1.0]], axis=0)) is None
    np.testing.assert_array_equal(learn_stretch(population(rng, 3000)).heavy, [True, False])


def test_a_constant_coordinate_beside_a_heavy_one():
    """It has no scale, and a value whose hyperbolic sine exceeds float64. Seed 6.

    A warning of NumPy would fail this test.
    """
    x = np.column_stack([np.random.default_rng(6).standard_cauchy(2000), np.full(2000, 5000.0)])
    stretch = learn_stretch(x)
    np.testing.assert_array_equal(stretch.heavy, [True, False])
    z = stretch.inward(x)
    np.testing.assert_array_equal(z[:, 1], x[:, 1])
    np.testing.assert_allclose(stretch.outward(z), x, rtol=1e-9)
    assert np.isfinite(stretch.log_slope(x)).all()


def test_long_tails_are_found_on_either_side():
    """The log of an exponential variable has such a tail, a normal one has none. Seed 7."""
    rng = np.random.default_rng(7)
    n = 4000
    x = np.column_stack(
        [rng.standard_normal(n), rng.exponential(size=n), -rng.exponential(size=n), np.zeros(n)]
    )
    tails = learn_tails(x)
    np.testing.assert_array_equal(tails.heavy, [False, True, True, False])
    assert learn_tails(rng.standard_normal((n, 3))) is None


def test_a_long_tail_bounds_the_weights_of_an_exponential_density():
    """Far out along one of six coordinates, a plain fit falls off much faster. Seed 8."""
    rng = np.random.default_rng(8)
    x = rng.standard_normal((2000, 6))
    x[:, 0] = rng.gumbel(size=2000)
    tails = learn_tails(x)
    long, plain = StudentFit.to(x, tails), StudentFit.to(x)
    far = np.zeros((3, 6))
    far[:, 0] = 9.0, 12.0, 15.0
    exact = stats.gumbel_r.logpdf(far[:, 0]) + stats.norm.logpdf(far[:, 1:]).sum(axis=1)
    short = [exact - fit.log_density(far) for fit in (plain, long)]
    assert (short[0] - short[1] > 3.0).all()
    assert short[1].max() < 3.0
