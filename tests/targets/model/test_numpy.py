"""Densities that NumPy evaluates, against PyTensor's own evaluation of the same graphs in Python.

PyTensor carries out a graph point by point, each operation by itself. NumPy's forms of operations,
batches and rewritings have no part in that, so that a mistake in them shows here.
"""

import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pymc as pm
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from pytensor.scalar.loop import ScalarLoop
from pytensor.tensor.elemwise import Elemwise

from benchmarks.practitioner_models import CASES
from pm_evidence.core.exceptions import ModelError
from pm_evidence.targets.compile import numpy_graph
from pm_evidence.targets.compile.numpy_density import NumpyDensity
from pm_evidence.targets.compile.numpy_graph import NotBatchedError
from pm_evidence.targets.model.log_density import gradient_graphs
from pm_evidence.targets.model.target import PyMCTarget
from tests.models import NAMES, loop, shared
from tests.targets.model.distributions import (
    DISTRIBUTIONS,
    ONE_BY_ONE,
    data_of,
    likelihood_model,
    prior_model,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning"),
    pytest.mark.filterwarnings("ignore:WishartBartlett is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:pytensor.tensor.linalg.trace:FutureWarning"),
    pytest.mark.filterwarnings("ignore:Numba will use object mode:UserWarning"),
    pytest.mark.filterwarnings("ignore:No safe default transform:UserWarning"),
]

# What NumPy leaves to compiled code: loops. Nothing may be added unseen.
NOT_BATCHED = {("prior", "GARCH11"), ("likelihood", "GARCH11")}
# Priors with a transform of each kind. The density of a prior is that of its likelihood, so that
# those of the others are slow tests, for the time that PyTensor takes to rewrite their graphs.
PRIORS = ["CAR", "Dirichlet", "HalfNormal", "LKJCholeskyCov", "MvNormal", "Uniform", "VonMises"]
N_POINTS = 4


def as_prior(name):
    model = prior_model(name)
    with model:
        pm.Normal("y", 0, 1, observed=0.0)
    return model


def as_likelihood(name):
    if name == "PolyaGamma" and not find_spec("polyagamma"):
        pytest.skip("polyagamma is not installed, which evaluates it")
    return likelihood_model(name, data_of(name))


MAKE = {"prior": as_prior, "likelihood": as_likelihood}
KINDS = [
    (kind, name)
    for name, case in DISTRIBUTIONS.items()
    for kind in MAKE
    if getattr(case, kind) is None and (kind, name) != ("likelihood", "WishartBartlett")
]


def is_fast(kind, name):
    return kind == "likelihood" or name in PRIORS


def density_of(target):
    """What a run evaluates: with gradients where there are continuous variables."""
    return target.differentiable or target.density


def some_points(target, n=N_POINTS, seed=7):
    x = target._prior_points(n, np.random.SeedSequence(seed))
    return x[np.isfinite(x).all(axis=1)]


def in_python(target, x):
    """Return log densities and gradients by PyTensor in Python, one point after the other."""
    graphs = target.graphs()
    slopes = gradient_graphs(graphs) if target.continuous.size else None
    terms = [slope for of_term in slopes or () for slope in of_term]
    one = pm.compile(
        graphs.parts,
        [*graphs.log_density, *terms],
        mode="FAST_COMPILE",
        on_unused_input="ignore",
    )
    rows = [one(*(part[0] for part in target.layout.split(row[None]))) for row in x]
    values = np.array([row[:2] for row in rows], float)
    if slopes is None:
        return values, None
    k = len(graphs.parts)
    halves = [(row[2 : 2 + k], row[2 + k :]) for row in rows]
    return values, np.array([[np.concatenate([*map(np.ravel, h)]) for h in two] for two in halves])


def check_equal(found, expected, rtol=1e-9):
    for one, other in zip(found, expected, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            scale = np.abs(other[np.isfinite(other)]).max(initial=0.0)
            np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol * min(scale, 1.0))


def check_numpy(model):
    target = PyMCTarget(model, backend="numpy")
    density, x = density_of(target), some_points(target)
    assert isinstance(density, NumpyDensity) and len(x)
    expected = in_python(target, x)
    check_equal(density.evaluate(x), expected)
    np.testing.assert_array_equal(density.values(x), density.evaluate(x)[0])
    # one after the other
    alone = [density.evaluate(row[None]) for row in x]
    check_equal((np.concatenate([values for values, _ in alone]), None), (expected[0], None))


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        pytest.param(kind, name, marks=[] if is_fast(kind, name) else [pytest.mark.slow])
        for kind, name in KINDS
    ],
)
def test_every_distribution(kind, name):
    """A wrong form of one operation makes every evidence with this distribution wrong."""
    model = MAKE[kind](name)
    if (kind, name) in NOT_BATCHED:
        with pytest.raises(NotBatchedError):
            density_of(PyMCTarget(model, backend="numpy"))
        return
    check_numpy(model)


@pytest.mark.parametrize("name", [n for n, case in DISTRIBUTIONS.items() if case.prior is None])
def test_what_is_drawn_one_by_one(name):
    """A distribution that must be drawn one by one, or compiled, makes a short run long."""
    prior = PyMCTarget(as_prior(name), backend="numpy")._prior
    assert (prior._together is None) == (name in ONE_BY_ONE)


def test_the_comparison_catches_planted_errors():
    """A digit that is wrong, and a gradient that belongs to the other term."""
    target = PyMCTarget(shared("schools").model, backend="numpy")
    density, x = target.differentiable, some_points(target)
    values, slope = density.evaluate(x)
    for wrong in ((values * (1 + 1e-8), slope), (values, slope[:, ::-1]), (values, None)):
        with pytest.raises(AssertionError):
            check_equal((values, slope), wrong)


# --- forms of operations that no distribution has, and what a model may do besides ---


def check_graph(build, n=5):
    """A model whose potential is any function of five normal variables."""
    with pm.Model() as model:
        x = pm.Normal("x", 0, 1, shape=n)
        pm.Potential("p", build(x))
        pm.Normal("y", x.sum(), 1, observed=0.3)
    check_numpy(model)


def categories(x):
    """Forty sites of four categories, whose axis comes first in memory."""
    site = np.arange(40)
    below = pt.sigmoid(pt.cumsum(pt.exp(x[:3])) - np.linspace(-1, 1, 40)[:, None] * x[3] - x[4])
    between = below[:, 1:] - below[:, :-1]
    share = pt.concatenate([below[:, :1], between, 1 - below[:, 2:]], axis=1)
    changed = pt.set_subtensor(share[:, 2], share[:, 2] ** 2)
    return pt.log(share[site, site % 4]).sum() + (changed**2).sum(axis=0).prod() + changed.sum()


INDEX = np.array([3, 0, 0, 2, 3, 3])
GRAPHS = {
    "softplus": lambda x: pt.softplus(x).sum(),
    "clip": lambda x: pt.clip(x, -0.5, 0.7).sum(),
    "log1mexp": lambda x: pt.log1mexp(-pt.exp(x)).sum(),
    "gammaln": lambda x: pt.gammaln(pt.exp(x)).sum(),
    "digamma": lambda x: pt.digamma(pt.exp(x)).sum(),
    "trigamma": lambda x: pt.psi(1.0 + pt.exp(x)).sum() * x[0],
    "erfcx": lambda x: pt.log(pt.erfcx(x)).sum(),
    "betainc": lambda x: pt.betainc(2.0, 3.0, pt.sigmoid(x)).sum(),
    "betainc of all": lambda x: pt.betainc(pt.exp(x[:4]), pt.exp(x[1:]), pt.sigmoid(x[4])).sum(),
    "gammainc": lambda x: pt.gammainc(pt.exp(x[0]), 1.5),
    "i0": lambda x: pt.log(pt.i0(x)).sum(),
    "softmax": lambda x: pt.log(pt.special.softmax(x))[1],
    "log_softmax": lambda x: pt.special.log_softmax(x)[3],
    "logsumexp": lambda x: pt.logsumexp(x),
    "maximum": lambda x: pt.max(x) + pt.min(x),
    "product": lambda x: pt.prod(x),
    "many terms": lambda x: x[0] + x[1] * 2 + x[2] + x[3] + x[4] + x[0] * x[1] * x[2],
    "mean": lambda x: x.mean() + x.var(),
    "cumsum": lambda x: (pt.cumsum(x) ** 2).sum(),
    "cumprod": lambda x: pt.cumprod(x)[-2],
    "sort": lambda x: (pt.sort(x) * np.arange(5.0)).sum(),
    "switch": lambda x: pt.switch(x > 0, x, x**2).sum(),
    "where nothing is": lambda x: pt.switch(x > 1e9, pt.log(x), 0.0).sum(),
    "index": lambda x: (x[INDEX] ** 2 * np.arange(6.0)).sum(),
    "index of a matrix": lambda x: (pt.outer(x, x)[INDEX, :2] ** 2).sum(),
    "index of both": lambda x: (pt.outer(x, x)[INDEX, INDEX[::-1]] ** 2).sum(),
    "index by bool": lambda x: (x[np.array([True, False, True, True, False])] ** 3).sum(),
    "slices": lambda x: (x[1:] * x[:-1]).sum() + x[::-2].sum() + x[-1],
    "set": lambda x: (pt.set_subtensor(x[1:3], 2.0) ** 2).sum(),
    "set by index": lambda x: (pt.set_subtensor(x[np.array([0, 4])], x[1]) ** 2).sum(),
    "increase": lambda x: (pt.inc_subtensor(pt.zeros(4)[INDEX], x[0] * np.ones(6)) ** 2).sum(),
    "stack": lambda x: (pt.stack([x, x**2], axis=1) @ np.array([1.0, 2.0])).sum(),
    "concatenate": lambda x: (pt.concatenate([[0.0], pt.exp(x)]) ** 2).sum(),
    "reshape": lambda x: pt.concatenate([x, x[:1]]).reshape((2, 3)).sum(axis=0).prod(),
    "broadcast": lambda x: (x[:, None] * x[None] + pt.eye(5)).sum(axis=(0, 1)),
    "repeat": lambda x: (pt.repeat(x, 2) ** 2).sum() + (pt.tile(x, 2) ** 3).sum(),
    "vector product": lambda x: pt.dot(x, x[::-1]),
    "matrix product": lambda x: (pt.as_tensor(np.arange(15.0).reshape(3, 5)) @ x).sum() ** 2,
    "row product": lambda x: (x @ np.arange(15.0).reshape(5, 3)).prod(),
    "product of matrices": lambda x: (pt.outer(x, x) @ pt.outer(x, x**2)).sum(),
    "cholesky": lambda x: pt.log(pt.diag(pt.linalg.cholesky(pt.outer(x, x) + pt.eye(5)))).sum(),
    "upper cholesky": lambda x: pt.linalg.cholesky(pt.outer(x, x) + pt.eye(5), lower=False)[
        0, 1:
    ].sum(),
    "determinant": lambda x: pt.linalg.slogdet(pt.outer(x, x) + pt.eye(5))[1],
    "inverse": lambda x: pt.linalg.inv(pt.outer(x, x) + pt.eye(5)).sum(),
    "solve": lambda x: pt.linalg.solve(pt.outer(x, x) + pt.eye(5), x).sum(),
    "lower triangular": lambda x: pt.linalg.solve_triangular(
        pt.tril(pt.outer(x, x)) + 3 * pt.eye(5), x, lower=True
    ).sum(),
    "upper triangular": lambda x: pt.linalg.solve_triangular(
        pt.triu(pt.outer(x, x)) + 3 * pt.eye(5), pt.outer(x, x), lower=False
    ).sum(),
    "unit triangular": lambda x: pt.linalg.solve_triangular(
        pt.tril(pt.outer(x, x)), x, lower=True, unit_diagonal=True
    ).sum(),
    "transposed triangular": lambda x: pt.linalg.solve_triangular(
        pt.tril(pt.outer(x, x)) + 3 * pt.eye(5), x, lower=True, trans=1
    ).sum(),
    "diagonal": lambda x: pt.diag(pt.outer(x, x)).sum() + pt.diag(pt.outer(x, x), 1).prod(),
    "eigenvalues": lambda x: pt.linalg.eigh(pt.outer(x, x) + pt.diag(np.arange(5.0)))[0][-1],
    "counts": lambda x: (x * np.array([1, 2, 3, 2, 1], np.int8)).sum() ** np.int8(2),
    "small integers": lambda x: pt.log(pt.as_tensor(np.array([3, 200], np.uint8))).sum() * x[0],
    "small integers as floats": lambda x: (
        pt.sqrt(pt.as_tensor(np.array([3, 120], np.int8))).sum() * x[0]
    ),
    "categories": categories,
    "comparison": lambda x: pt.eq(pt.floor(x), 0).sum() * x[0] + pt.sign(x).sum(),
    "two results": lambda x: pt.max_and_argmax(x)[0],
}


@pytest.mark.parametrize("name", GRAPHS)
def test_operations(name):
    """Each has a form of its own, or is done by PyTensor's, which must know of the batch."""
    check_graph(GRAPHS[name])


def test_loops_of_different_lengths():
    """Each number has its own number of steps, and may end before."""
    x = ps.float64("x")
    n, start = pt.lvector("n"), pt.dvector("start")
    doubled = Elemwise(ScalarLoop(init=[x], update=[x * 2]))(n, start)
    capped, over = Elemwise(ScalarLoop(init=[x], update=[x * 2], until=ps.gt(x, 3)))(n, start)
    program = numpy_graph.numpy_function([n, start], [doubled, capped, over])
    steps, values = np.array([0, 1, 3, 6]), np.array([5.0, 1.0, 1.0, 1.0])
    with_limit, with_end, ended = program(steps, values)
    np.testing.assert_array_equal(with_limit, values * 2.0**steps)
    np.testing.assert_array_equal(with_end, [5.0, 2.0, 8.0, 8.0])
    np.testing.assert_array_equal(ended, [False, False, True, True])


def test_large_triangular_systems_and_matrices():
    """Up to 32 rows they are solved together, above by LAPACK."""
    d = 40

    def build(x):
        matrix = pt.outer(x, x) + d * pt.eye(d)
        factor = pt.linalg.cholesky(matrix)
        return pt.linalg.solve_triangular(factor, x, lower=True).sum() + pt.log(pt.diag(factor))[3]

    check_graph(build, d)


def test_a_matrix_without_a_factor_spoils_its_own_point_only():
    """The others would be lost with it, or the evidence be that of fewer draws."""
    with pm.Model() as model:
        x = pm.Normal("x")
        correlation = pt.eye(2) + x * np.array([[0.0, 1.0], [1.0, 0.0]])
        factor = pt.linalg.cholesky(correlation)
        pm.Potential("p", pt.log(pt.diag(factor)).sum())
        pm.Normal("y", x, 1, observed=0.0)
    density = PyMCTarget(model, backend="numpy").differentiable
    x = np.array([[0.5], [-1.5], [-0.8]])
    values = density.evaluate(x)[0]
    both = values.sum(axis=1)
    assert np.isfinite(both[[0, 2]]).all() and not np.isfinite(both[1])
    np.testing.assert_allclose(values[:1], density.values(x[:1]), rtol=1e-12)


def test_a_check_of_parameters_is_minus_infinity():
    """PyTensor in Python raises an error, which would end a run at one wild proposal."""
    with pm.Model() as model:
        x = pm.Normal("x", 0, 3)
        pm.Normal("y", 0, x, observed=1.0)
    values, _ = PyMCTarget(model, backend="numpy").differentiable.evaluate(np.array([[1.0], [-1]]))
    assert np.isfinite(values[0]).all() and values[1, 1] == -np.inf


def test_blocks_are_one_population(monkeypatch):
    """Points are evaluated in blocks that fit a cache: none may be left out or taken twice."""
    target = PyMCTarget(shared("schools").model, backend="numpy")
    density, x = target.differentiable, some_points(target, 50)
    few = replace(density, n_rows=7)
    check_equal(few.evaluate(x), density.evaluate(x), rtol=1e-12)
    np.testing.assert_allclose(few.values(x), density.values(x), rtol=1e-12)
    out, slope = np.empty((50, 2)), np.empty((50, 2, target.n_dim))
    few.write(x, out, slope)
    check_equal((out, slope), density.evaluate(x), rtol=1e-12)
    few.write(x, out[::-1])
    np.testing.assert_allclose(out[::-1], density.values(x), rtol=1e-12)


def test_no_points_of_a_model_with_large_matrices():
    """PyTensor's own loop over points needs one: a run that adds draws ended with an error."""
    with pm.Model() as model:
        scale = pm.HalfNormal("scale")
        pm.MvNormal("y", np.zeros(40), scale * np.eye(40), observed=np.zeros(40))
    density = PyMCTarget(model, backend="numpy").differentiable
    values, slope = density.evaluate(np.empty((0, 1)))
    assert values.shape == (0, 2) and slope.shape == (0, 2, 1)


def test_new_data_are_seen():
    """Data are arguments: a second set must not give the evidence of the first."""
    with pm.Model() as model:
        data = pm.Data("data", [1.0, 2.0])
        mu = pm.Normal("mu")
        pm.Normal("y", mu, 1, observed=data)
    density = PyMCTarget(model, backend="numpy").differentiable
    before = density.values(np.zeros((1, 1)))[0, 1]
    old = next(array for array in density.arrays if np.shape(array) == (2,))
    after = density.reading([(old, np.array([1.0, 3.0]))]).values(np.zeros((1, 1)))[0, 1]
    assert before - after == pytest.approx(2.5)
    assert density.values(np.zeros((1, 1)))[0, 1] == before
    with model:
        pm.set_data({"data": [1.0, 3.0]})
    fresh = PyMCTarget(model, backend="numpy").differentiable
    assert fresh.values(np.zeros((1, 1)))[0, 1] == after


def test_a_model_without_free_variables():
    """Its likelihood is its evidence, and no point has coordinates."""
    target = PyMCTarget(shared("no variable").model, backend="numpy")
    found = target.evaluate(np.empty((2, 0))).log_density
    numba = PyMCTarget(shared("no variable").model).evaluate(np.empty((2, 0))).log_density
    np.testing.assert_allclose(found, numba, rtol=1e-12)


def test_traces_of_nodes_do_not_grow(monkeypatch):
    """PyTensor copies them from node to node: a graph with a Cholesky factor took 12 GB."""
    seen, program = [], numpy_graph._program

    def watched(fgraph):
        seen.extend(len(getattr(variable.tag, "trace", [])) for variable in fgraph.variables)
        return program(fgraph)

    monkeypatch.setattr(numpy_graph, "_program", watched)
    PyMCTarget(shared("schools").model, backend="numpy").differentiable  # noqa: B018
    assert seen and not any(seen)


def test_loops_are_refused():
    """A loop runs in Python, step by step and operation by operation: compiled it is faster."""
    with pytest.raises(NotBatchedError, match="Scan"):
        PyMCTarget(loop(), backend="numpy").differentiable  # noqa: B018


# --- all evaluators ---


def check_backends(model, rtol=1e-9):
    """NumPy, numba and JAX (where it is installed, and has code for the model) agree."""
    one = PyMCTarget(model, backend="numpy")
    x = some_points(one, 8)
    found = density_of(one).evaluate(x)
    check_equal(found, density_of(PyMCTarget(model)).evaluate(x), rtol)
    if find_spec("jax"):
        try:
            by_jax = density_of(PyMCTarget(model, backend="jax"))
        except ModelError as error:
            assert "JAX" in str(error)
        else:
            check_equal(found, by_jax.evaluate(x), rtol)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), [case for case in KINDS if case not in NOT_BATCHED])
def test_every_distribution_by_all_backends(kind, name):
    """The evidence must not depend on what evaluates it."""
    check_backends(MAKE[kind](name), rtol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_shared_models_by_all_backends(name):
    if name in ("states", "groups"):
        pytest.skip("its likelihood is estimated")
    check_backends(shared(name).model)


LOOPS = {"ode"}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_practitioners_models_by_all_backends(name, request):
    """Those that people fit: what is right for one distribution may be wrong for many rows."""
    request.getfixturevalue("data_folder")
    model = CASES[name].build()
    target = PyMCTarget(model, backend="numpy")
    if name in LOOPS:
        with pytest.raises(NotBatchedError):
            density_of(target)
        return
    check_backends(model, rtol=1e-7)


def test_threads_leave_the_settings_of_pytensor_as_they_are():
    """Users would lose where an operation was made, in PyTensor's messages, until they restart."""
    name = "traceback__limit"

    def built(n):
        with pm.Model() as model:
            x = pm.Normal("x", shape=n)
            for i in range(3):
                pm.Normal(f"y{i}", x.sum(), 1, observed=[0.1 * n])
        return PyMCTarget(model, backend="numpy")

    before = getattr(pytensor.config, name)
    with ThreadPoolExecutor(6) as threads:
        for density in threads.map(lambda target: target.differentiable, map(built, range(2, 8))):
            assert isinstance(density, NumpyDensity)
    assert getattr(pytensor.config, name) == before > 0


def test_threads_do_not_exchange_rows():
    """PyTensor keeps the values of a row in an operation that is done row by row."""
    with pm.Model() as model:
        a = pm.Normal("a", 0, 1, shape=5)
        inverse = pt.linalg.inv(pt.eye(5) * pt.exp(a) + 0.1)
        pm.Normal("y", pt.diagonal(inverse) + pt.sort(a), 1, observed=np.arange(5.0))
    density = PyMCTarget(model, backend="numpy").density
    x = np.random.default_rng(1).normal(size=(8, 300, 5))
    alone = [density.values(rows) for rows in x]
    interval = sys.getswitchinterval()
    try:
        sys.setswitchinterval(1e-6)  # threads take turns at nearly every step
        with ThreadPoolExecutor(len(x)) as executor:
            together = list(executor.map(density.values, x))
    finally:
        sys.setswitchinterval(interval)
    assert np.array_equal(alone, together)
