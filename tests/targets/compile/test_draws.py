"""Joint draws of graphs in machine code, on one random generator."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy import stats

from pm_evidence.targets.compile.draws import compile_draws, on_one_generator
from pm_evidence.targets.layout import Layout

# PyTensor compiles pieces in C even in FAST_COMPILE, and installed by pip it finds no BLAS to link.
pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")


def test_draws_of_a_graph_on_one_generator():
    """Joint draws: the child is drawn given the parent of the same row."""
    parent = pm.Normal.dist(10.0, 1.0)
    child = pm.Normal.dist(parent, 1e-3, size=2)
    draw = compile_draws([parent, child], Layout.of([(), (2,)]))
    out = np.empty((2000, 3))
    draw(out, np.random.default_rng(1))
    assert stats.kstest(out[:, 0], stats.norm(10, 1).cdf).pvalue > 1e-4
    noise = (out[:, 1:] - out[:, :1]) / 1e-3
    assert stats.kstest(noise.ravel(), "norm").pvalue > 1e-4
    again = np.empty((2000, 3))
    draw(again, np.random.default_rng(1))
    np.testing.assert_array_equal(again, out)


def test_graphs_with_several_generators_are_not_compiled():
    """Threading two generators onto one would need their inner graphs: the caller must know."""
    two = pm.CustomDist.dist(
        1.0,
        dist=lambda scale, size: pm.Normal.dist(size=size) + pm.Exponential.dist(scale, size=size),
    )
    assert compile_draws([two], Layout.of([()])) is None
    assert compile_draws([pm.Normal.dist()], Layout.of([()])) is not None


def test_shared_generators_do_not_repeat_draws():
    """Two variables on one shared generator in the user's graph are still independent."""
    rng = pytensor.shared(np.random.default_rng(0))
    one, two = (pt.random.normal(0, 1, rng=rng, return_next_rng=True)[1] for _ in range(2))
    out = np.empty((1000, 2))
    compile_draws([one, two], Layout.of([(), ()]))(out, np.random.default_rng(2))
    assert abs(np.corrcoef(out.T)[0, 1]) < 0.15


def test_one_generator_is_used_one_draw_after_the_other():
    """Every draw starts where the one before it ended, and the last generator is returned."""
    parent = pm.Normal.dist()
    outputs, generator, last = on_one_generator([parent, pm.Poisson.dist(pt.exp(parent))])
    assert outputs[0].owner.inputs[0] is generator
    assert outputs[1].owner.inputs[0] is outputs[0].owner.outputs[0]
    assert last is outputs[1].owner.outputs[0]
