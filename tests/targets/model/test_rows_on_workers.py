"""Likelihoods of rows on the workers of a real Dask cluster, beside the same model without one."""

import numpy as np
import pymc as pm
import pytest

import pm_evidence as pe
from pm_evidence.targets.compile.numpy_rows import RowProgram
from pm_evidence.targets.model.cache import identity_of
from pm_evidence.targets.model.target import PyMCTarget

da = pytest.importorskip("dask.array")

# other clusters of this machine may have the usual port
pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

N = 20_000
RNG = np.random.default_rng(48)
X = RNG.normal(size=(N, 3))
Y = X @ [0.5, -0.3, 0.0] + RNG.normal(size=N)
BINARY = (Y > 0.0).astype(np.int64)


@pytest.fixture(scope="module")
def client():
    from dask.distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def chunked(array, rows=(12_000, 8_000)):
    return da.from_array(array, chunks=(rows, -1) if array.ndim == 2 else (rows,))


def linear(client=None, **changed):
    with pm.Model(coords={"column": range(3)}) as model:
        slopes = pm.Normal("slopes", 0.0, 1.0, dims="column")
        noise = pm.HalfNormal("noise", 1.0)
        if client is None:
            pm.Normal("y", X @ slopes, noise, observed=Y)
        else:
            density = changed.get(
                "density", lambda x, y: pm.logp(pm.Normal.dist(x @ slopes, noise), y)
            )
            data = changed.get("data", (chunked(X), chunked(Y)))
            pe.rows_on_workers("y", density, data, client=client)
    return model


def logistic(client=None):
    with pm.Model() as model:
        slopes = pm.Normal("slopes", 0.0, 1.0, shape=3)
        if client is None:
            pm.Bernoulli("y", logit_p=X @ slopes, observed=BINARY)
        else:
            pe.rows_on_workers(
                "y",
                lambda x, y: pm.logp(pm.Bernoulli.dist(logit_p=x @ slopes), y),
                (chunked(X), chunked(BINARY)),
                client=client,
            )
    return model


@pytest.mark.parametrize("write", [linear, logistic])
def test_densities_are_those_of_rows_in_this_process(client, write):
    here, there = PyMCTarget(write(), backend="numpy"), PyMCTarget(write(client), backend="numpy")
    x = np.random.default_rng(1).normal(scale=0.3, size=(30, here.n_dim))
    for found, known in zip(
        there.differentiable.evaluate(x), here.differentiable.evaluate(x), strict=True
    ):
        np.testing.assert_allclose(found, known, rtol=1e-9, atol=1e-8)
    np.testing.assert_allclose(there.density.values(x), here.density.values(x), rtol=1e-12)
    assert there.is_log_concave == here.is_log_concave == (write is logistic)


def test_a_default_run_agrees_with_one_in_this_process(client):
    dt = pe.sample_evidence(logistic(client), random_seed=1, progressbar=False, cores=2)
    known = pe.sample_evidence(logistic(), random_seed=1, progressbar=False)
    found, expected = pe.log_evidence(dt), pe.log_evidence(known)
    assert found.status == "ok"
    assert abs(found.value - expected.value) < 3.0 * np.hypot(found.mcse, expected.mcse)
    n = dt["log_evidence"].attrs["n_evaluations"]
    assert n < 2 * known["log_evidence"].attrs["n_evaluations"]


def test_a_single_point_has_the_density_of_pymc(client):
    model, known = linear(client), linear()
    point = known.initial_point(random_seed=0)
    found = model.compile_logp(mode="FAST_COMPILE")(point)
    assert found == pytest.approx(known.compile_logp(mode="FAST_COMPILE")(point), rel=1e-12)


def test_chunks_of_other_sizes_change_the_last_digits_alone(client):
    x = np.random.default_rng(1).normal(scale=0.3, size=(5, 4))
    rows = (9_001, 1, 10_998)
    values = [
        PyMCTarget(model, backend="numpy").differentiable.evaluate(x)[0]
        for model in (linear(client), linear(client, data=(chunked(X, rows), chunked(Y, rows))))
    ]
    np.testing.assert_allclose(*values, rtol=1e-12)


def average(x, y):
    slopes = pm.modelcontext(None)["slopes"]
    return -((y - x @ slopes) ** 2).mean()


def test_other_densities_of_the_same_data_are_told_apart(client):
    """Models that are compared have terms of the same name, and the same parameters."""

    def of(degrees):
        def density(x, y):
            model = pm.modelcontext(None)
            mean = x @ model["slopes"]
            return pm.logp(pm.StudentT.dist(degrees, mu=mean, sigma=model["noise"]), y)

        return linear(client, density=density)

    first, again, other = of(4.0), of(4.0), of(4.5)
    names = [model.potentials[0].owner.op.name for model in (first, again, other)]
    assert names[0] == names[1] != names[2]
    assert identity_of(first) == identity_of(again) != identity_of(other)


def test_counts_are_read_in_blocks(client):
    """Also their gradient, where a check of all rates is a part of the density."""
    with pm.Model() as model:
        slopes = pm.Normal("slopes", 0.0, 1.0, shape=3)
        pe.rows_on_workers(
            "y",
            lambda x, y: pm.logp(pm.Poisson.dist(pm.math.exp(x @ slopes)), y),
            (chunked(X), chunked(BINARY)),
            client=client,
        )
    rows = model.potentials[0].owner.op.rows
    points = [np.random.default_rng(1).normal(scale=0.3, size=(3, 3))]
    value, slope = rows.likelihood.sums(points, (X, BINARY), with_gradient=True)
    assert isinstance(rows.likelihood._programs[N], RowProgram)
    mean = np.exp(points[0] @ X.T)
    np.testing.assert_allclose(slope, (BINARY - mean) @ X, rtol=1e-9)
    np.testing.assert_allclose(rows.sums(points, with_gradient=True)[0], value, rtol=1e-12)


def test_what_is_wrong_is_said(client):
    with pytest.raises(ValueError, match="log_density must be a sum over rows, but that of 10"):
        linear(client, density=average)
    with pytest.raises(ValueError, match="same chunks of rows"):
        linear(client, data=(chunked(X), chunked(Y, (8_000, 12_000))))
    with pytest.raises(TypeError, match="must be Dask arrays of one or two axes, got an array of"):
        linear(client, data=(X, Y))
    missing = np.where(np.arange(N) == 15_000, np.nan, Y)
    with pytest.raises(ValueError, match="data of 'y' must not have missing values"):
        linear(client, data=(chunked(X), chunked(missing)))
    with pytest.raises(TypeError, match="must depend on a random variable of the model"):
        linear(client, density=lambda x, y: -(y**2))


def test_the_model_is_not_sent_to_an_executor(client):
    with pytest.raises(pe.ModelError, match="stays in the process that made it"):
        pe.sample_evidence(
            linear(client), random_seed=1, progressbar=False, executor=client.get_executor()
        )


def test_a_discrete_variable_is_refused(client):
    with pm.Model():
        n = pm.Poisson("n", 3.0)
        with pytest.raises(TypeError, match="continuous variables alone, got n; sum discrete"):
            pe.rows_on_workers(
                "y", lambda y: pm.logp(pm.Poisson.dist(n + 1.0), y), chunked(BINARY), client=client
            )
