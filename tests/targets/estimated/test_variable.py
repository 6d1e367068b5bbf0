"""An observed variable whose likelihood is estimated: its parents, and the vector of parameters."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pm_evidence.targets.estimated.variable import call_user, find_parents, flat_values
from pm_evidence.targets.model.target import PyMCTarget

pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")


def test_flat_vector_is_that_of_the_target():
    """Otherwise estimates would be made at other parameters than those of the prior."""
    with pm.Model() as model:
        pm.Normal("a", shape=(2, 2))
        pm.HalfNormal("b")
        pm.Poisson("k", 2.0, shape=3)
        pm.Normal("y", observed=0.0)
    layout = PyMCTarget(model).layout
    x, values = flat_values(model)
    point = np.arange(float(layout.size))
    parts = layout.split(point)
    for value, variable, part in zip(model.value_vars, layout.variables, parts, strict=True):
        graph = values[value]
        assert graph.type.shape == variable.shape and graph.type.dtype == value.dtype
        np.testing.assert_array_equal(graph.eval({x: point}), part)


def test_parents_are_the_nearest_and_in_the_models_order():
    with pm.Model() as model:
        a, b = pm.Normal("a"), pm.Normal("b")
        level = pm.Deterministic("level", a + b)
        data = pm.Data("data", np.zeros(2))
    h = pt.dscalar("h")
    assert set(find_parents([level * h + data.sum(), 2 * b], model, [h])) == {b, level, data}


def test_functions_must_return_distributions_without_a_name():
    with pm.Model():
        assert call_user("init", lambda: pm.Normal.dist()).type.ndim == 0
        with pytest.raises(TypeError, match="init must return a distribution, got float"):
            call_user("init", lambda: 1.0)
        with pytest.raises(Exception, match="without a name"):
            call_user("init", lambda: pm.Normal("named"))
