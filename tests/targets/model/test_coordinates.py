"""Partly centred coordinates of group effects."""

import numpy as np
import pymc as pm
import pytest

from pm_evidence.targets.layout import Layout
from pm_evidence.targets.model.coordinates import (
    Centring,
    Coordinates,
    best_centring,
    location_scale_variables,
)

UNIT = 0.4


@pytest.fixture(scope="module")
def coordinates():
    """Nested effects, a log scale, a walk with its own start, and effects by hand; 13 values."""
    with pm.Model() as model:
        t, m = pm.HalfNormal("t"), pm.Normal("m", 0, 1)
        region = pm.Normal("region", m, t, shape=2)
        pm.LogNormal("county", region[[0, 0, 1]], 2 * t)
        pm.GaussianRandomWalk("walk", sigma=t, init_dist=pm.Normal.dist(0, 5), steps=3)
        own = pm.Normal("own", 0, 1, shape=2)
        pm.Potential("total", (m + 3 * t * own).sum())
    shapes = [(), (), (2,), (3,), (4,), (2,)]
    layout = Layout.of(shapes, [rv.name for rv in model.free_RVs])
    return Coordinates(model, location_scale_variables(model), layout)


def rows(n=6):
    return np.random.default_rng(3).normal(size=(n, 13))


def of(amount):
    return Centring((amount,) * 4, (np.log(UNIT),) * 4)


@pytest.mark.parametrize("amount", [0.0, 0.3, 1.0])
def test_values_are_those_of_the_formula(coordinates, amount):
    """Draws of users, and all that is computed from them, would be those of another model."""
    z = rows()
    x = coordinates.to_model(z, of(amount))
    t, m = np.exp(z[:, :1]), z[:, 1:2]
    region = m + (t / UNIT) ** (1 - amount) * (z[:, 2:4] - amount * m)
    mean = region[:, [0, 0, 1]]
    county = mean + (2 * t / UNIT) ** (1 - amount) * (z[:, 4:7] - amount * mean)
    steps = (t / UNIT) ** (1 - amount) * z[:, 8:11]
    walk = np.cumsum(np.concatenate([z[:, 7:8], steps], axis=1), axis=1)
    own = z[:, 11:] / (UNIT * (3 * t / UNIT) ** amount)
    expected = np.concatenate([z[:, :2], region, county, walk, own], axis=1)
    assert np.allclose(x, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("amount", [0.0, 0.3, 1.0])
def test_there_and_back(coordinates, amount):
    """Reverse paths would start at other points than the draws that the user gave."""
    x = rows()
    z = coordinates.from_model(x, of(amount))
    assert np.allclose(coordinates.to_model(z, of(amount)), x, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("amount", [0.0, 0.3, 1.0])
def test_log_jacobian(coordinates, amount):
    """The stored log posterior of draws would not be that of the model."""
    z, step = rows(1), 1e-6
    steps = step * np.eye(13)
    plus, minus = (coordinates.to_model(z + s, of(amount)) for s in (steps, -steps))
    _, log_determinant = np.linalg.slogdet((plus - minus) / (2 * step))
    assert coordinates.log_jacobian(z, of(amount)) == pytest.approx(log_determinant, abs=1e-7)


def test_conversion_keeps_digits_where_the_scale_is_tiny(coordinates):
    """Effects of a tiny scale beside a large mean would lose their digits on the way."""
    z = rows()
    z[:, 0], z[:, 1] = -36.0, 1e3
    there = coordinates.converted(z, of(0.0), of(0.5))
    back = coordinates.converted(there, of(0.5), of(0.0))
    assert np.allclose(back[:, 2:4], z[:, 2:4], rtol=1e-5)
    assert np.allclose(back[:, :2], z[:, :2])


def test_effects(coordinates):
    """The pilot would choose coordinates from other noises than those of the draws."""
    z = rows()
    region, county, walk, own = coordinates.effects(z, Centring.common(0.0, 4))
    assert np.allclose(region.noise, z[:, 2:4])
    assert np.allclose(county.noise, z[:, 4:7])
    assert np.allclose(walk.noise, z[:, 8:11])
    assert np.allclose(own.noise, z[:, 11:])
    assert np.allclose(county.log_scale, np.log(2) + z[:, :1])
    assert np.allclose(region.location, z[:, 1:2])


# vectors with a Cholesky factor -------------------------------------------------------------------

N_VECTORS = 11


@pytest.fixture(scope="module")
def vectors():
    """Three vectors with a common mean, and a single one; 2 values, 2 x 4 ones, and 2 ones."""
    with pm.Model() as model:
        t, m = pm.HalfNormal("t"), pm.Normal("m", 0, 1, shape=2)
        chol = pm.math.stack([pm.math.stack([t, 0.0]), pm.math.stack([0.7 * t, 2.0 * t])])
        pm.MvNormal("many", m, chol=chol, shape=(3, 2))
        pm.MvNormal("single", [0.0, 1.0], chol=3.0 * chol)
    shapes = [(), (2,), (3, 2), (2,)]
    layout = Layout.of(shapes, [rv.name for rv in model.free_RVs])
    return Coordinates(model, location_scale_variables(model), layout)


def of_vectors(amount):
    return Centring((amount,) * 2, (np.log(UNIT),) * 2)


def partly(t, amount):
    """The factor by which independent noises of unit variance are multiplied."""
    scale, mixing = np.array([t, 2.0 * t]), np.array([[0.0, 0.0], [0.7, 0.0]])
    return (np.eye(2) + amount * mixing) @ np.diag(UNIT ** (1 - amount) * scale**amount)


@pytest.mark.parametrize("amount", [0.0, 0.3, 1.0])
def test_vectors_are_those_of_the_formula(vectors, amount):
    z = np.random.default_rng(3).normal(size=(4, N_VECTORS))
    x = vectors.to_model(z, of_vectors(amount))
    for before, after in zip(z, x, strict=True):
        t, m = np.exp(before[0]), before[1:3]
        factor = np.array([[t, 0.0], [0.7 * t, 2.0 * t]])
        noise = np.linalg.solve(partly(t, amount), (before[3:9].reshape(3, 2) - amount * m).T)
        assert np.allclose(after[3:9].reshape(3, 2), m + (factor @ noise).T, rtol=1e-12)
        noise = np.linalg.solve(partly(3.0 * t, amount), before[9:] - amount * np.array([0.0, 1.0]))
        assert np.allclose(after[9:], [0.0, 1.0] + 3.0 * factor @ noise, rtol=1e-12)


@pytest.mark.parametrize("amount", [0.0, 0.3, 1.0])
def test_log_jacobian_of_vectors(vectors, amount):
    z, step = np.random.default_rng(5).normal(size=(1, N_VECTORS)), 1e-6
    steps = step * np.eye(N_VECTORS)
    plus, minus = (vectors.to_model(z + s, of_vectors(amount)) for s in (steps, -steps))
    _, log_determinant = np.linalg.slogdet((plus - minus) / (2 * step))
    found = vectors.log_jacobian(z, of_vectors(amount))
    assert found == pytest.approx(log_determinant, abs=1e-7)


def test_the_best_centring_of_vectors(vectors):
    """Independent of mean and scale in the coordinates of the model: these are best."""
    x = np.random.default_rng(6).normal(size=(400, N_VECTORS))
    x[:, 0] *= 0.5
    for amount in (0.0, 1.0):
        z = vectors.from_model(x, of_vectors(amount))
        chosen = best_centring(vectors.effects(z, of_vectors(amount)))
        assert chosen.amount[0] > 0.9
