"""The graphs of a model's densities: what PyMC leaves out or gets wrong is put right."""

from functools import partial

import numpy as np
import pymc as pm
import pytest
from scipy import stats

from pm_evidence.core.exceptions import ModelError
from pm_evidence.targets.layout import Layout
from pm_evidence.targets.model.log_density import density_graphs, gradient_graphs
from pm_evidence.targets.model.target import PyMCTarget
from tests.targets.values import in_python

pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")


def two_observed():
    with pm.Model() as model:
        x = pm.Normal("x", 0, 1, shape=2)
        pm.Potential("tilt", -x.sum())
        pm.Normal("known", x[0], 1, observed=0.5)
        pm.Normal("left", x[1], 1, observed=2.0)
    return model


@pytest.mark.parametrize("potentials_only", [False, True])
@pytest.mark.parametrize("left_out", [(), ("left",)])
def test_parts_of_the_likelihood(potentials_only, left_out):
    """A term counted twice, or not at all, is an error of the evidence that nothing shows."""
    model = two_observed()
    graphs = density_graphs(
        model,
        Layout.of([(2,)], ["x"]),
        potentials_only=potentials_only,
        left_out=[model[name] for name in left_out],
    )
    x = np.array([0.3, -0.7])
    (part,) = graphs.parts
    log_prior, log_likelihood = (float(g.eval({part: x})) for g in graphs.log_density)
    expected = -x.sum()
    if not potentials_only:
        expected += stats.norm.logpdf(0.5, 0.3) + (not left_out) * stats.norm.logpdf(2.0, -0.7)
    assert log_prior == pytest.approx(stats.norm.logpdf(x).sum(), rel=1e-12)
    assert log_likelihood == pytest.approx(expected, rel=1e-12)
    (slope,), _ = gradient_graphs(graphs)
    np.testing.assert_allclose(slope.eval({part: x}), -x)


def test_a_variable_without_density_is_named():
    with pm.Model() as model:
        pm.CustomDist("odd", random=lambda rng, size=None: rng.normal(size=size))
        pm.Normal("y", 0, 1, observed=0.0)
    with pytest.raises(ModelError, match="that of odd failed"):
        density_graphs(model, Layout.of([()], ["odd"]), potentials_only=False, left_out=())


@pytest.mark.parametrize(
    "make", [partial(in_python, rewritten=True), pytest.param(PyMCTarget, marks=pytest.mark.slow)]
)
def test_a_scale_of_zero_is_impossible(make):
    """Far out on the log scale a standard deviation is 0, where not all densities check it."""
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", 1)
        width = pm.Uniform("width", 0, 1)
        x = pm.ZeroSumNormal("x", sigma=scale, shape=3)
        z = pm.ZeroSumNormal("z", sigma=width, shape=3)
        pm.Normal("y", x + z, 1, observed=[0.1, 0.2, 0.3])
    target = make(model)
    points = np.full((4, target.n_dim), 0.5)
    points[1, 0], points[2, 1], points[3, :2] = -800, -800, (-800, 800)
    for density in filter(None, (target.density, target.differentiable)):
        log_density = density.values(points)
        assert np.isfinite(log_density[0]).all()
        assert (log_density[1:, 0] == -np.inf).all()
        assert not np.isnan(log_density).any()


@pytest.mark.parametrize(
    "settings",
    [
        {"sigma": 2.0, "shape": 5},
        {"sigma": np.array([[1.0], [3.0]]), "shape": (2, 5)},
        {"sigma": 1.5, "shape": (2, 3, 4), "n_zerosum_axes": 2},
    ],
)
def test_numbers_that_sum_to_zero(settings):
    """The same as in PyMC, but for large numbers, whose sum is not zero in double precision."""
    with pm.Model() as model:
        x = pm.ZeroSumNormal("x", **settings)
        pm.Normal("y", x.sum(), 1.0, observed=0.0)
    target = in_python(model, rewritten=True)
    points = np.random.default_rng(1).normal(size=(3, target.n_dim))
    (value,) = model.value_vars
    prior = model.compile_logp(vars=model.free_RVs, mode="FAST_COMPILE")
    expected = [float(prior({value.name: target.layout.split(row[None])[0][0]})) for row in points]
    found = target.evaluate(points).log_density[:, 0]
    np.testing.assert_allclose(found, expected, rtol=1e-7)  # PyMC has single-precision constants
    far = target.evaluate(1e9 * points).log_density[:, 0]
    at_mode = target.evaluate(np.zeros((1, target.n_dim))).log_density[0, 0]
    np.testing.assert_allclose(far - at_mode, 1e18 * (found - at_mode), rtol=1e-12)
