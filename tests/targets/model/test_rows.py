"""Graphs of some rows of an array."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from pm_evidence.targets.model.data_points import rows_of

N = 50


@pytest.fixture(scope="module")
def many_kinds():
    """A model whose observed variables depend on their rows of the data in many ways."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(N, 4)), rng.normal(size=N)
    group, count = rng.integers(0, 5, N), rng.poisson(1, N)
    with pm.Model() as model:
        data = pm.Data("data", x)
        b = pm.Normal("b", 0, 1, shape=4)
        a = pm.Normal("a", 0, 1, shape=5)
        s = pm.HalfNormal("s", 1)
        each = pm.Normal("each", 0, 1, shape=N)
        pm.Normal("regression", data @ b + a[group], s, observed=y)
        pm.Bernoulli("logistic", p=pm.math.sigmoid(x @ b), observed=(y > 0).astype(int))
        pm.Poisson("counts", pt.exp(a[group] + x[:, 0] * b[0]), observed=count)
        pm.StudentT("constant", nu=3, mu=a[0], sigma=s, observed=y)
        pm.NormalMixture("mixture", w=[0.3, 0.7], mu=a[:2], sigma=s, observed=y)
        pm.MvNormal("vectors", mu=b[:2], cov=2.0 * np.eye(2), observed=x[:, :2])
        outer = pt.outer(pt.as_tensor(x[:, 0]), a[:3])
        pm.Categorical("classes", logit_p=outer, observed=group % 3)
        pm.OrderedLogistic("ordered", eta=x @ b, cutpoints=[-1, 0, 1], observed=group % 4)
        pm.ZeroInflatedPoisson("zeros", psi=0.4, mu=pt.exp(a[group]), observed=count)
        pm.Normal("table", (x @ b)[:, None], s, observed=x[:, :3])
        pm.Normal("latent", each, 1.0, observed=y)
        pm.Normal("running", pt.cumsum(each), 1.0, observed=y)
        both = pm.Normal("both", 0, 1, shape=(5, 3))
        pm.Normal("two_indices", both[group, count % 3], s, observed=y)
        pm.Normal("index_of_rows", (both[group] * x[:, :3]).sum(-1), s, observed=y)
        pm.Censored("censored", pm.Normal.dist(x @ b, s), -1, 1, observed=np.clip(y, -1, 1))
        pm.Multinomial("shares", 5, pm.math.softmax(a), observed=rng.multinomial(5, [0.2] * 5, N))
        pm.Normal("backwards", (x @ b)[::-1], s, observed=y)
        pm.Normal("square", pm.Normal("matrix", 0, 1, shape=(N, N)) @ y, 1.0, observed=y)
    return model


def points_of(model, seed):
    """Two values of each free variable."""
    rng = np.random.default_rng(seed)
    return {v: rng.normal(size=(2, *v.type.shape)) for v in model.value_vars}


def test_rows_are_those_of_the_whole(many_kinds):
    """A data point would be counted with the parameters of another."""
    model = many_kinds
    graphs = model.logp(sum=False, vars=model.observed_RVs)
    order, start, stop = (
        np.random.default_rng(1).permutation(N),
        pt.lscalar("start"),
        pt.lscalar("stop"),
    )
    points = points_of(model, 2)
    parts, is_own = zip(
        *(rows_of(graph, order, start, stop, points) for graph in graphs), strict=True
    )
    function = pytensor.function(
        [*model.value_vars, start, stop], [*parts, *graphs], mode="FAST_COMPILE"
    )
    point = [value[0] for value in points_of(model, 3).values()]
    for span in ((0, N), (7, 19), (3, 3)):
        found = function(*point, *span)
        for rv, part, whole in zip(model.observed_RVs, found, found[len(graphs) :], strict=False):
            assert np.allclose(part, whole[order][slice(*span)], rtol=1e-12), rv.name
    whole = {rv.name for rv, own in zip(model.observed_RVs, is_own, strict=True) if not own}
    assert whole == {
        "classes",
        "latent",
        "running",
        "square",
        "backwards",
    }  # all others cost as much as their rows


def test_rows_in_the_wrong_order_are_seen(many_kinds):
    """The test above would pass if rows were not permuted."""
    graph = many_kinds.logp(sum=False, vars=many_kinds.observed_RVs)[0]
    start, stop = pt.lscalars(2)
    points = points_of(many_kinds, 2)
    orders = np.arange(N), np.arange(N)[::-1]
    given, other = (rows_of(graph, order, start, stop, points)[0] for order in orders)
    function = pytensor.function(
        [*many_kinds.value_vars, start, stop],
        [given, other],
        mode="FAST_COMPILE",
        on_unused_input="ignore",
    )
    point = [np.ones(v.type.shape) for v in many_kinds.value_vars]
    one, two = function(*point, 0, 5)
    assert not np.allclose(one, two)
