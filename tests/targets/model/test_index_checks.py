"""Indices outside of their arrays are errors, not whatever lies in memory there."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from pm_evidence.core.exceptions import ModelError
from pm_evidence.targets.model.checks import check_model
from pm_evidence.targets.model.target import PyMCTarget
from pm_evidence.targets.model.upstream import check_known_indices
from tests.targets.values import in_python

pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")

Y = np.array([0.1, 0.2, 0.3])
FROM_ONE = np.array([1, 2, 3])


def x():
    return pm.Normal("x", 0, 1, shape=3)


def observed_at(mu):
    pm.Normal("y", mu, 1, observed=Y)


def state():
    return pm.DiscreteUniform("k", 1, 3)


KNOWN = {
    "constant": (lambda: observed_at(x()[FROM_ONE]), r"'x' .* -3 and 2, .* 3 at position 2 of the"),
    "data": (lambda: observed_at(x()[pm.Data("i", FROM_ONE)]), r"'x' .* got 3 at .* of 'i'"),
    "of_data": (
        lambda: observed_at(x()[pm.Data("i", FROM_ONE) + 1]),
        r"'x' .* got 3 at position 1",
    ),
    "negative": (lambda: observed_at(x()[-FROM_ONE - 1]), r"got -4 at position 2"),
    "scalar": (lambda: observed_at(x()[3]), r"'x' .* got 3 of the constant"),
    "take": (lambda: observed_at(pt.take(x(), FROM_ONE)), r"'x' .* got 3"),
    "set": (lambda: observed_at(pt.zeros(3)[FROM_ONE].set(x())), r"got 3 at position 2"),
    "increment": (lambda: observed_at(pt.zeros(3)[FROM_ONE].inc(x())), r"got 3 at position 2"),
    "second_of_two": (
        lambda: observed_at(pm.Normal("z", shape=(3, 2))[[0, 1, 2], [0, 1, 2]]),
        r"'z' .* between -2 and 1, .* got 2 at position 2",
    ),
    "beside_a_slice": (
        lambda: observed_at(pm.Normal("z", shape=(2, 3))[:, FROM_ONE][0]),
        r"'z' .* got 3 at position 2",
    ),
    "length_of_data": (
        lambda: observed_at((pm.Data("d", np.ones((3, 2))) @ pm.Normal("b", shape=2))[FROM_ONE]),
        r"computed from 'b' .* got 3",
    ),
    "observed_index": (
        lambda: observed_at(x()[pm.Poisson("n", 2.0, observed=FROM_ONE)]),
        r"'x' .* got 3 at position 2 of 'n'",
    ),
    "deterministic": (
        lambda: (pm.Deterministic("picked", x()[FROM_ONE]), observed_at(0.0)),
        r"'x' .* got 3",
    ),
    "potential": (
        lambda: pm.Potential("p", x()[FROM_ONE].sum()),
        r"'x' .* got 3",
    ),
}


@pytest.mark.parametrize("name", KNOWN)
def test_known(name):
    """The usual mistake of people who count from 1: refused by name, at once."""
    build, message = KNOWN[name]
    with pm.Model() as model:
        build()
    with pytest.raises(ModelError, match=message):
        check_model(model)


@pytest.mark.parametrize(
    "index", [[0, 1, 2], [-1, -2, -3], pt.arange(3), np.array([True, False, True])]
)
def test_legal(index):
    """Negative ones count from the end, as in NumPy."""
    check_known_indices([pt.vector(shape=(3,))[index]])


def test_mask_of_another_length():
    """The same for truth values."""
    array, mask = pt.vector("array"), pytensor.shared(np.array([True, False]), "mask")
    array = pt.specify_shape(array, (3,))
    with pytest.raises(ModelError, match=r"'mask' has length 2 along axis 0, where .* has 3"):
        check_known_indices([array[mask]])


COMPUTED = {
    "vector": lambda: observed_at(x()[pt.stack([state(), 0])].sum()),
    "scalar": lambda: observed_at(x()[state()]),
    "of_a_prior": lambda: observed_at(
        pm.Normal("z", pt.as_tensor([1.0, 2.0])[pm.DiscreteUniform("k", 0, 3)], 1)
    ),
}


@pytest.mark.parametrize("name", COMPUTED)
def test_computed(name):
    """What the draws of a variable point at is looked at each time."""
    with pm.Model() as model:
        COMPUTED[name]()
    with pytest.raises(ModelError, match=r"(indices of 'x' must lie between -3 and 2, .*'k'|draw)"):
        (PyMCTarget if name == "scalar" else in_python)(model).draw(100, np.random.SeedSequence(1))


def loop(t, k, values):
    return values[t - t + k]


@pytest.mark.slow
def test_in_a_loop():
    """A loop of PyTensor has a graph of its own."""
    with pm.Model() as model:
        k = pm.DiscreteUniform("k", 0, 3)
        values = pytensor.scan(
            loop, sequences=[pt.arange(3)], non_sequences=[k, x()], return_updates=False
        )
        observed_at(values)
    target = PyMCTarget(model)
    points = np.array([[k, 0.1, 0.2, 0.3] for k in range(4)], float)
    log_density = target.evaluate(points).log_density
    assert np.isfinite(log_density[:3]).all() and np.isnan(log_density[3]).all()


@pytest.fixture(scope="module")
def bounded():
    with pm.Model() as model:
        k = pm.DiscreteUniform("k", 0, 2)
        pm.Normal("y", x()[k], 1, observed=0.5)
    return PyMCTarget(model)


def test_proposals_beyond_the_support(bounded):
    """They are impossible, not undefined: a move that proposes one is refused without a warning."""
    points = np.array([[k, 0.1, 0.2, 0.3] for k in (-4, -1, 0, 2, 3, 1e6)])
    log_density = bounded.evaluate(points).log_density
    inside = [False, False, True, True, False, False]
    np.testing.assert_array_equal(np.isfinite(log_density[:, 0]), inside)
    assert (log_density[~np.array(inside), 0] == -np.inf).all()
    assert not np.isnan(log_density[np.array(inside)]).any()


def test_gradient_is_guarded(bounded):
    """The gradient has indices of its own."""
    points = np.array([[2.0, 0.1, 0.2, 0.3], [1e6, 0.1, 0.2, 0.3]])
    log_density, gradient = bounded.differentiable.evaluate(points)
    np.testing.assert_allclose(gradient[0, 1], [0, 0, 0, 0.2], atol=1e-12)
    assert log_density[1, 0] == -np.inf


def test_no_cost_without_computed_indices():
    """Indices that are known are not looked at again."""
    with pm.Model() as model:
        observed_at(x()[pm.Data("i", np.array([0, 1, 2]))])
        pm.Categorical("c", pm.Dirichlet("p", np.ones(3)), observed=[0, 1, 2])
    assert in_python(model).graphs().guards == []
