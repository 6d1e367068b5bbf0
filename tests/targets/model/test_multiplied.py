"""Effects that a model makes non-centred by hand, as a standard variable times a scale."""

import pymc as pm
import pytest

from pm_evidence.targets.model.coordinates import Multiplied, location_scale_variables


def by_hand(build):
    """Whether the standard variable ``z`` is found as non-centred by hand."""
    with pm.Model() as model:
        z, t, m = pm.Normal("z", 0, 1, shape=3), pm.HalfNormal("t"), pm.Normal("m", 0, 1)
        build(z, t, m)
    return [(v.rv.name, v.by_hand) for v in location_scale_variables(model)] == [("z", True)]


def noisy(mean, sigma=1.0):
    return pm.Normal("y", mean, sigma, observed=[0.1, 0.2, 0.3])


@pytest.mark.parametrize(
    "build",
    [
        lambda z, t, m: noisy(m + t * z),
        lambda z, t, m: noisy(pm.Deterministic("x", m + z * t)[[0, 0, 2]]),
        lambda z, t, m: noisy(m + z[[0, 1, 1]] * t),
        lambda z, t, m: noisy((t * z).cumsum()),
        lambda z, t, m: noisy(m + 0.5 * t * z),
        lambda z, t, m: noisy(t / pm.math.exp(m) * z),
        lambda z, t, m: noisy(pm.math.exp(m) * z),
        lambda z, t, m: noisy(pm.Uniform("s", 0, 5) * z),
        lambda z, t, m: (noisy(t * z), pm.Potential("p", -((t * z) ** 2).sum())),
    ],
)
def test_effects_that_are_non_centred_by_hand(build):
    """The two ways of writing a model would differ in their cost, and in what is certified."""
    assert by_hand(build)


@pytest.mark.parametrize(
    "build",
    [
        lambda z, t, m: noisy(z),
        lambda z, t, m: noisy(2.0 * z),
        lambda z, t, m: noisy(m * z),  # a factor of either sign
        lambda z, t, m: noisy(t * z, pm.math.exp(z[0])),  # it is used in another way as well
        lambda z, t, m: (noisy(t * z), pm.Potential("p", -z[0])),
        lambda z, t, m: noisy(t * z + pm.math.exp(m) * z),  # two scales
        lambda z, t, m: noisy(t * z * z[0]),
        lambda z, t, m: noisy(pm.HalfNormal("s", shape=3) * z),
        lambda z, t, m: noisy(pm.Uniform("s", -1, 5) * z),
        lambda z, t, m: noisy(t * m * z),
    ],
)
def test_other_products_are_not_effects(build):
    """A scale that is negative, or that belongs to one of several uses, has no log."""
    assert not by_hand(build)


def test_effects_by_hand_are_parents_too():
    """The location of effects would be computed from coordinates instead of values."""
    with pm.Model() as model:
        z, t = pm.Normal("z", 0, 1, shape=3), pm.HalfNormal("t")
        pm.Normal("x", t * z, t, shape=3)
        pm.Normal("u", t * z, 2 * t)
    assert [v.rv.name for v in location_scale_variables(model)] == ["z", "x", "u"]


def test_the_scale_is_that_of_the_product():
    with pm.Model() as model:
        z, t = pm.Normal("z", 0, 1, shape=3), pm.HalfNormal("t")
        noisy(t * z)
    assert Multiplied(model).scale_of(z) is t
    assert Multiplied(model).scale_of(t) is None
