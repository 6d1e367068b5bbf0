"""What PyMC and PyTensor get wrong, and what is private of theirs and used here.

A test that begins with ``test_fault`` fails as soon as a fault is mended upstream: what mends it
here can then go, with its section of ``docs/upstream.md``.
"""

import ast
from pathlib import Path

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import scipy.sparse
from pytensor.scalar.math import TriGamma
from scipy import special, stats

import pm_evidence
from pm_evidence.core.exceptions import ModelError
from pm_evidence.targets.compile.numba_graph import compile_graph, jit, numba_implementations
from pm_evidence.targets.model.checks import check_model
from pm_evidence.targets.model.derived import simulate
from pm_evidence.targets.model.target import PyMCTarget
from pm_evidence.targets.model.upstream import check_known_indices, trigamma, with_exact_car
from tests.targets.values import in_python

pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")

# --- private names, all of which are used in these modules alone ---

PRIVATE = {
    "core/jax.py": {"_src"},
    "core/version.py": {"_locator_classes"},
    "targets/compile/calls.py": {"_bit_gen_type", "_getvalue"},
    "targets/model/upstream.py": {
        "_LKJCholeskyCovRV",
        "_change_dist_size",
        "_create_node_gufunc",
        "_default_transform",
        "_infer_shape",
        "_logcdf",
        "_logprob",
        "_support_point",
    },
}


def test_all_private_names_are_listed():
    """A release of PyMC, PyTensor or numba may move any of them."""
    root = Path(pm_evidence.__file__).parent
    nodes = {
        str(path.relative_to(root)): list(ast.walk(ast.parse(path.read_text())))
        for path in root.rglob("*.py")
    }
    own, found = set(), {}
    for node in (node for every in nodes.values() for node in every):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            own.add(node.name)
        elif isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Store):
            own.add(node.attr if isinstance(node, ast.Attribute) else node.id)
    for path, every in nodes.items():
        names = {node.attr for node in every if isinstance(node, ast.Attribute)}
        imports = [node for node in every if isinstance(node, ast.ImportFrom) and node.module]
        foreign = ("pymc", "pytensor", "numba")
        names |= {a.name for node in imports if node.module.startswith(foreign) for a in node.names}
        private = {name for name in names - own if name[0] == "_" and name[:2] != "__"}
        if private:
            found[path] = private
    assert found == PRIVATE


# --- literals in single precision ---


def test_fault_literals_are_of_single_precision():
    assert float(pt.log(pt.as_tensor(3)).eval()) != np.log(3.0)


# --- pm.CAR ---

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


def test_fault_draws_and_densities_of_car():
    car = pm.CAR.dist(MEAN, W=W, alpha=ALPHA, tau=TAU)
    x = pm.draw(car, draws=2000, random_seed=1, mode="FAST_COMPILE")  # a millisecond each
    assert np.abs(np.cov(x.T) - COVARIANCE).max() > 0.1
    found = pm.logp(car, MEAN).eval(mode="FAST_COMPILE")
    assert abs(found - EXACT.logpdf(MEAN)) > 0.1


# --- indices ---

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
    "set": (lambda: observed_at(pt.zeros(3)[FROM_ONE].set(x())), r"got 3 at position 2"),
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


@pytest.mark.slow
def test_fault_indices_are_not_checked():
    """Once upstream checks vectors of indices, as it does single ones, this is an IndexError."""
    x, i = pt.dvector("x"), pt.lvector("i")
    function = pytensor.function([x, i], x[i], mode="NUMBA")
    assert function(np.zeros(3), np.array([0, 3])).shape == (2,)


# --- the derivative of the digamma function ---


def test_trigamma():
    for x in (1e-300, 1e-8, 0.3, 1.0, 14.99, 15.0, 80.0, 1e8, 1e300, np.inf):
        assert trigamma(x) == pytest.approx(special.polygamma(1, x), rel=1e-13)
    assert trigamma(0.0) == np.inf
    assert np.isnan(trigamma(np.nan))


def test_fault_second_derivatives_are_not_compiled():
    """They are compiled by the function of this package alone."""
    x = pt.dvector("x")
    second = pt.grad(pt.grad(pt.gammaln(x).sum(), x).sum(), x)
    function = compile_graph([x], [second])
    assert jit(function, []).slow_ops == ()
    at = np.array([0.4, 30.0])
    np.testing.assert_allclose(function(at)[0], special.polygamma(1, at), rtol=1e-13)
    registry = numba_implementations().numba_funcify_and_cache_key.registry
    assert registry[TriGamma].__module__.startswith("pm_evidence")


# --- what ``log_scale`` mends ---


def test_fault_small_gamma_variables_round_to_zero():
    drawn = pm.draw(pm.Gamma.dist(1e-3, 1e-3), 100, random_seed=1, mode="FAST_COMPILE")
    assert (drawn == 0.0).any()


def test_fault_differences_of_log_gamma_functions_lose_their_digits():
    """The density of Student-t of infinitely many degrees of freedom is a normal one."""
    density = pm.logp(pm.StudentT.dist(nu=1e17, mu=0.0, sigma=1.0), 0.3)
    assert abs(density.eval(mode="FAST_COMPILE") - stats.norm.logpdf(0.3)) > 0.1
