"""Densities of long data, which are read some rows at a time, are those of all rows together."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pm_evidence as pe
from pm_evidence.execution.blocks import dividing_rows
from pm_evidence.targets.compile import numpy_rows
from pm_evidence.targets.compile.numpy_graph import NotBatchedError
from pm_evidence.targets.model.target import PyMCTarget
from tests.targets.model.distributions import DISTRIBUTIONS, data_of, likelihood_model

N = 9001  # more than the fewest, and no multiple of a block
RNG = np.random.default_rng(48)
X = RNG.normal(size=(N, 4))
GROUP = RNG.integers(7, size=N)
Y = X @ [0.3, -0.2, 0.1, 0.0] + RNG.normal(size=N)
BINARY = (Y > 0.0).astype(int)
COUNTS = RNG.poisson(np.exp(0.3 * X[:, 0]))


@pytest.fixture(autouse=True)
def few_parts(monkeypatch):
    """Let each part have several blocks, as parts of longer data do."""
    monkeypatch.setattr(numpy_rows, "_PARTS", 4)


def slopes():
    return pm.Normal("slopes", 0.0, 1.0, shape=4)


def scale():
    return pm.HalfNormal("scale", 1.0)


def logistic():
    pm.Bernoulli("y", logit_p=X @ slopes(), observed=BINARY)


def linear():
    pm.Normal("y", pm.math.dot(X, slopes()), scale(), observed=Y)


def of_data():
    x, y = pm.Data("x", X), pm.Data("data", Y)
    pm.StudentT("y", nu=4.0, mu=x @ slopes(), sigma=scale(), observed=y)


def centred():
    x = pm.Data("x", X)
    pm.Normal("y", (x - x.mean(axis=0)) @ slopes(), scale(), observed=Y)


def effects():
    effect = pm.Normal("effect", 0.0, 1.0, shape=7)
    other = pm.Normal("other", 0.0, 1.0, shape=(7, 2))
    slope = (other[GROUP - 7] * X[:, :2]).sum(axis=-1)
    pm.Poisson("y", pm.math.exp(effect[GROUP] + effect[GROUP // 2] + slope), observed=COUNTS)


def mixture():
    pm.NormalMixture(
        "y", pm.Dirichlet("w", np.ones(3)), pm.Normal("mean", 0.0, 1.0, shape=3), 1.0, observed=Y
    )


def categorical():
    table = pm.Normal("table", 0.0, 1.0, shape=(4, 3))
    pm.Categorical("y", logit_p=X @ table, observed=GROUP % 3)


def ordinal():
    cuts = pm.Normal("cuts", [-1.0, 0.0, 1.0], 1.0, transform=pm.distributions.transforms.ordered)
    pm.OrderedLogistic("y", X @ slopes(), cuts, observed=GROUP % 4)


def zero_inflated():
    rate = pm.math.exp(X @ slopes())
    pm.ZeroInflatedNegativeBinomial("y", pm.Beta("psi", 1, 1), rate, scale(), observed=COUNTS)


def censored():
    dist = pm.Normal.dist(X @ slopes(), scale())
    pm.Censored("y", dist, lower=None, upper=1.0, observed=np.minimum(Y, 1.0))


def multivariate():
    factor, _, _ = pm.LKJCholeskyCov("factor", n=4, eta=2, sd_dist=pm.HalfNormal.dist(1.0))
    pm.MvNormal("y", slopes(), chol=factor, observed=X)


def two_lengths():
    mean = pm.Normal("mean", 0.0, 1.0)
    pm.LogNormal("y", mean, scale(), observed=np.exp(Y))
    pm.Normal("z", mean, 1.0, observed=Y[:100])


def of_average():
    """What rows read is an average over all rows."""
    x = X @ slopes()
    pm.Normal("y", x - x.mean(), 1.0, observed=Y)


def of_all():
    """A user's condition on all rows, of which one does not hold in some blocks."""
    x = X @ slopes()
    pm.Potential("y", pt.switch(pt.all(x > -2.0), -(x**2), -2.0 * x**2).sum())


def of_product():
    """The same, as a product."""
    x = X @ slopes()
    pm.Potential("y", (pt.all(x > -2.0) * -(x**2)).sum())


def of_softmax():
    pm.Potential("y", (COUNTS * pm.math.log(pm.math.softmax(X @ slopes()))).sum())


def of_order():
    pm.Potential("y", -((pt.cumsum(X @ slopes()) - Y) ** 2).sum() / N**2)


def of_neighbours():
    x = X @ slopes()
    pm.Potential("y", -((x[1:] - x[:-1]) ** 2).sum())


def both_of(model):
    found = []
    x = np.random.default_rng(1).normal(scale=0.4, size=(40, PyMCTarget(model).n_dim))
    for fewest in (numpy_rows.FEWEST, N + 1):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(numpy_rows, "FEWEST", fewest)
            density = PyMCTarget(model, backend="numpy").differentiable
        found.append((density, density.evaluate(x), density.values(x)))
    return x, *found


MODELS = [
    logistic,
    linear,
    of_data,
    centred,
    effects,
    mixture,
    categorical,
    ordinal,
    zero_inflated,
    censored,
    multivariate,
    two_lengths,
    of_average,
]
# Distributions whose values form one chain or vector, or whose density has no gradient or no rows.
WITHOUT_ROWS = {"GaussianRandomWalk", "RandomWalk", "DiracDelta", "DiscreteUniform", "Interpolated"}
WITHOUT_ROWS |= {
    "HyperGeometric",
    "LKJCholeskyCov",
    "StickBreakingWeights",
    "Triangular",
    "Uniform",
}
NOT_DIVIDED = [of_all, of_product, of_softmax, of_order, of_neighbours]


@pytest.mark.parametrize("write", MODELS)
def test_densities_and_gradients_are_those_of_all_rows(write):
    with pm.Model() as model:
        write()
    _, (density, (values, slopes_), again), (plain, (known, known_slopes), _) = both_of(model)
    assert density.by_data and not plain.by_data
    assert np.isfinite(known).all()
    np.testing.assert_allclose(values, known, rtol=1e-12)
    np.testing.assert_allclose(again, known, rtol=1e-12)
    np.testing.assert_allclose(slopes_, known_slopes, rtol=1e-9, atol=1e-8)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", sorted(set(DISTRIBUTIONS) - {"Simulator", "WishartBartlett"}))
def test_each_distribution_is_that_of_all_rows(name):
    """Of three values again and again."""
    data = np.asarray(data_of(name))
    if data.shape != (3,):
        pytest.skip("its values are vectors")
    try:
        model = likelihood_model(name, np.resize(data, N))
        _, (density, (values, slopes_), again), (_, (known, known_slopes), _) = both_of(model)
    except (pe.ModelError, NotBatchedError, ValueError, AttributeError) as error:
        pytest.skip(f"it has no batched density and gradient of many values: {error}")
    assert density.by_data or name in WITHOUT_ROWS
    np.testing.assert_allclose(values, known, rtol=1e-10)
    np.testing.assert_allclose(again, known, rtol=1e-10)
    largest = abs(known[np.isfinite(known)]).max()
    np.testing.assert_allclose(slopes_, known_slopes, rtol=1e-8, atol=1e-8 * largest)


@pytest.mark.parametrize("write", NOT_DIVIDED)
def test_what_is_not_a_sum_over_rows_is_not_divided(write):
    with pm.Model() as model:
        write()
    _, (density, (values, _), _), (_, (known, _), _) = both_of(model)
    assert not density.by_data
    assert np.array_equal(values, known)


def test_a_parameter_out_of_range_in_one_row_makes_a_point_impossible():
    with pm.Model() as model:
        slope = pm.Normal("slope", 0.0, 1.0)
        rate = slope + np.where(np.arange(N) == 5000, 0.0, 3.0)
        pm.Poisson("y", rate, observed=COUNTS)
    x, (density, (values, _), _), (_, (known, _), _) = both_of(model)
    assert density.by_data
    assert np.array_equal(values[:, 1] == -np.inf, x[:, 0] < 0.0)
    assert 5 < (x[:, 0] < 0.0).sum() < 35
    np.testing.assert_allclose(values, known, rtol=1e-12)


def test_loops_of_scalars_count_as_in_short_data():
    with pm.Model() as model:
        alpha = pm.HalfNormal("alpha", 1.0)
        dist = pm.Gamma.dist(alpha, 1.0)
        pm.Censored("y", dist, lower=None, upper=2.0, observed=np.minimum(np.exp(Y), 2.0))
    _, (density, _, _), (plain, _, _) = both_of(model)
    assert density.by_data and plain.n_in_loops > 0
    assert density.n_in_loops == pytest.approx(plain.n_in_loops, rel=1e-3)


def test_other_data_take_the_place_of_the_first():
    with pm.Model() as model:
        of_data()
    x, (density, (values, _), _), _ = both_of(model)
    twice = [(each, 2.0 * each) for each in density.arrays]
    with pm.Model() as other:
        x_data, y = pm.Data("x", 2.0 * X), pm.Data("data", 2.0 * Y)
        pm.StudentT("y", nu=4.0, mu=x_data @ slopes(), sigma=scale(), observed=y)
    _, _, (_, (known, _), _) = both_of(other)
    np.testing.assert_allclose(density.reading(twice).evaluate(x)[0], known, rtol=1e-12)
    assert not np.allclose(known[:, 1], values[:, 1])


def test_threads_do_not_change_a_digit():
    with pm.Model() as model:
        linear()
    x, (density, alone, _), _ = both_of(model)
    with dividing_rows(3, None):
        together = [density.evaluate(x) for _ in range(5)]
    for values, slopes_ in together:
        assert np.array_equal(values, alone[0])
        assert np.array_equal(slopes_, alone[1])
