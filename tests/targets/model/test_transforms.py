"""Draws on their own scale: what the posterior group holds is what the model defines."""

import math
from functools import cache

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.conditional.op import ifelse
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

from pm_evidence.targets.layout import Layout
from pm_evidence.targets.model.prior import ConstrainedSpace

pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")

N = 7


class CumulativeRange(Op):
    """An operation on one vector that knows nothing of batches: it insists on its input's shape."""

    __props__ = ()

    def make_node(self, x):
        x = pt.as_tensor(x)
        return Apply(self, [x], [pt.scalar(dtype="float64")])

    def perform(self, node, inputs, outputs):
        if inputs[0].ndim != 1:
            raise ValueError("one vector at a time")
        outputs[0][0] = np.asarray(np.ptp(np.cumsum(inputs[0])))


def plain():
    x = pm.Normal("x", 0, 1, shape=3)
    scale = pm.HalfNormal("scale", 1)
    share = pm.Dirichlet("share", np.ones(3))
    k = pm.Binomial("k", 5, 0.5, shape=2)
    pm.Deterministic("product", scale * x[None, :] * share[:, None])
    pm.Deterministic("total", x.sum())
    pm.Deterministic("is_large", scale > 1)
    pm.Deterministic("twice", 2 * k)
    pm.Deterministic("first", x[0])
    pm.Deterministic("ranks", pt.argsort(x))


def constant():
    x = pm.Normal("x", 0, 1)
    pm.Deterministic("fixed", pt.as_tensor(np.arange(3.0)))
    pm.Deterministic("moved", x + np.arange(2.0))


def scanned():
    x = pm.Normal("x", 0, 1)
    start = pm.HalfNormal("start", 1)
    path = pytensor.scan(
        lambda previous, drift: 0.5 * previous + drift,
        outputs_info=[start],
        non_sequences=[x],
        n_steps=4,
        return_updates=False,
    )
    pm.Deterministic("path", path)


def branched():
    x = pm.Normal("x", 0, 1)
    pm.Deterministic("branch", ifelse(pt.gt(x, 0), pt.exp(x), -x))


def custom():
    x = pm.Normal("x", 0, 1, shape=4)
    pm.Deterministic("range", CumulativeRange()(x))


def broken_when_batched():
    x = pm.Normal("x", 0, 1, shape=4)
    matrix = x.reshape((2, 2))
    pm.Deterministic("inverse", pt.linalg.inv(matrix + 3 * pt.eye(2)))
    pm.Deterministic("spread", pt.diff(pt.sort(x)).max())


def data_and_shapes():
    x = pm.Normal("x", 0, 1, shape=3)
    weight = pm.Data("weight", np.array([1.0, 2.0, 3.0]))
    pm.Deterministic("weighted", pt.dot(weight, x) / weight.shape[0])
    pm.Deterministic("repeated", pt.repeat(x, 2))


def zero_rows():
    pm.Normal("x", 0, 1, shape=(2, 0))
    pm.Normal("z", 0, 1)


MODELS = (
    plain,
    constant,
    scanned,
    branched,
    custom,
    broken_when_batched,
    data_and_shapes,
    zero_rows,
)


@cache
def space_of(build):
    with pm.Model() as model:
        build()
    point = model.initial_point()
    shapes = [np.shape(point[value.name]) for value in model.value_vars]
    rng = np.random.default_rng(2)
    rows = [
        np.concatenate(
            [
                rng.integers(0, 5, size) if value.dtype.startswith("int") else rng.normal(size=size)
                for value, size in zip(model.value_vars, map(math.prod, shapes), strict=True)
            ]
        )
        for _ in range(N)
    ]
    layout = Layout.of(shapes, dtypes=[value.dtype for value in model.value_vars])
    return model, shapes, ConstrainedSpace(model, layout), np.array(rows, dtype=float)


@pytest.mark.parametrize("build", MODELS)
def test_values_are_the_models_own(build):
    """A deterministic that is off by a transposition is wrong without looking so."""
    model, shapes, space, x = space_of(build)
    variables = [*model.free_RVs, *model.deterministics]
    own = model.compile_fn(
        model.replace_rvs_by_values(variables), mode="FAST_COMPILE", on_unused_input="ignore"
    )
    values = space.values(x)
    assert list(values) == [variable.name for variable in variables]
    for i, row in enumerate(x):
        point, start = {}, 0
        for value, shape in zip(model.value_vars, shapes, strict=True):
            size = math.prod(shape)
            point[value.name] = row[start : start + size].reshape(shape).astype(value.dtype)
            start += size
        for name, expected in zip(values, own(point), strict=True):
            np.testing.assert_allclose(values[name][i], expected, rtol=1e-12, err_msg=name)
            assert values[name].shape == (N, *np.shape(expected))
            assert values[name].dtype == np.asarray(expected).dtype


@pytest.mark.parametrize("build", [plain, scanned, data_and_shapes])
def test_row_by_row_is_the_same(build, monkeypatch):
    """The way around must hold the same numbers, shapes and dtypes."""
    _, _, space, x = space_of(build)
    together = space.values(x)
    monkeypatch.setattr(space._function, "_batched", None)
    for name, value in space.values(x).items():
        np.testing.assert_allclose(value, together[name], rtol=1e-12)
        assert value.dtype == together[name].dtype and value.shape == together[name].shape


@pytest.mark.parametrize("wrong", ["values", "length", "raises"])
def test_a_wrong_vectorised_function_is_not_believed(wrong, monkeypatch):
    """Vectorisation is PyTensor's, and has had errors: its first row is checked."""
    _, _, space, x = space_of(plain)
    expected = space.values(x)
    batched = space._function._batched

    def spoilt(*inputs):
        if wrong == "raises":
            raise ValueError("shapes do not match")
        results = batched(*inputs)
        return [r + 1 if wrong == "values" and r.dtype != bool else r[:-1] for r in results]

    monkeypatch.setattr(space._function, "_batched", spoilt)
    for name, value in space.values(x).items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-12)


def test_integers_stay_integers():
    """A count of 2.0 would not index anything later."""
    _, _, space, x = space_of(plain)
    values = space.values(x)
    assert values["k"].dtype.kind == "i" and values["twice"].dtype.kind == "i"
    assert values["is_large"].dtype == bool
