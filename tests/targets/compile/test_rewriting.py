"""Graphs that are rewritten: for many particles, with parts computed once, or node by node."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.logprob.utils import CheckParameterValue
from pytensor.graph.traversal import ancestors
from pytensor.scalar.basic import Exp
from pytensor.tensor.random.op import RandomVariable
from scipy import stats

from pm_evidence.targets.compile.rewrite import (
    checks_to_minus_infinity,
    inline_symbolic,
    over_particles,
    split_parameters_only,
)

# PyTensor compiles pieces in C even in FAST_COMPILE, and installed by pip it finds no BLAS to link.
pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")

# --- a graph of one particle as one of many: each has its own draws, and is refused alone ---

N = 500


def test_values_that_depend_on_no_particle_are_repeated():
    h, many, n = pt.dscalar("h"), pt.dvector("many"), pt.lscalar("n")
    graph = over_particles(pt.constant(2.0) + 0 * pt.exp(1.0), {h: many}, n)
    np.testing.assert_array_equal(graph.eval({n: 3}), [2.0] * 3)
    graph = over_particles(pt.exp(h), {h: many}, n)
    np.testing.assert_allclose(graph.eval({many: [0.0, 1.0]}), np.exp([0.0, 1.0]))


@pytest.mark.parametrize("nested", [False, True])
def test_every_particle_has_a_draw_of_its_own(nested):
    """Also one that depends on no particle: a draw in common would make particles alike."""
    h, many = pt.dscalar("h"), pt.dvector("many")
    noise = pm.Normal.dist(0.0, pm.Exponential.dist(1.0) + 1.0) if nested else pm.Normal.dist()
    graph = over_particles(h + noise, {h: many}, many.shape[0])
    draws = pm.compile([many], graph, mode="FAST_COMPILE", random_seed=1)(np.zeros(N))
    assert len(np.unique(draws)) == N
    if not nested:
        assert stats.kstest(draws, "norm").pvalue > 1e-4


def test_mixtures_are_written_out():
    mixed = pm.Mixture.dist([0.5, 0.5], [pm.Normal.dist(-1, 1), pm.Normal.dist(1, 1)])
    (graph,) = inline_symbolic([mixed])
    names = {type(v.owner.op).__name__ for v in ancestors([graph]) if v.owner is not None}
    assert "NormalRV" in names and not any("Mixture" in name for name in names)


def test_a_parameter_out_of_range_is_one_particles_own():
    sigma, many = pt.dscalar("sigma"), pt.dvector("many")
    log_density = checks_to_minus_infinity(pm.logp(pm.Normal.dist(0.0, sigma), 0.3))
    assert not any(
        v.owner is not None and isinstance(v.owner.op, CheckParameterValue)
        for v in ancestors([log_density])
    )
    found = over_particles(log_density, {sigma: many}, many.shape[0]).eval({many: [1.0, -1.0, 2.0]})
    expected = [stats.norm.logpdf(0.3), -np.inf, stats.norm.logpdf(0.3, 0, 2)]
    np.testing.assert_allclose(found, expected)


# --- what depends on parameters only is computed once ---


def test_what_does_not_vary_is_taken_out():
    """Parameters only: once; the rest is the same function as before."""
    x, h = pt.dvector("x"), pt.dvector("h")
    x = pt.TensorType("float64", shape=(2,))("x")
    graph = (pt.exp(x[0]) * h + pt.log1p(x[1] ** 2)).sum()
    (cut,), parameters, precomputed = split_parameters_only([graph], [h])
    assert x not in set(ancestors([cut]))
    assert h not in set(ancestors([precomputed]))
    point, states = np.array([0.3, 0.7]), np.array([1.0, 2.0])
    values = precomputed.eval({x: point})
    np.testing.assert_allclose(
        cut.eval({parameters: values, h: states}), graph.eval({x: point, h: states})
    )


def test_draws_are_not_taken_out():
    """A draw that was made once would be the same for every particle."""
    h = pt.dvector("h")
    drawn = pm.Normal.dist()
    (cut,), _, _ = split_parameters_only([h + drawn], [h])
    ops = [v.owner.op for v in ancestors([cut]) if v.owner is not None]
    assert any(isinstance(op, RandomVariable) for op in ops)


# --- nodes are replaced everywhere, and the given graphs are left alone ---


def is_exponential(node):
    return isinstance(getattr(node.op, "scalar_op", None), Exp)
