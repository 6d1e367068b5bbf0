"""Operations of ours are known to PyTensor's numba backend, once."""

import warnings

import numba as nb
import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

from pm_evidence.targets.compile.graph import compile_graph, jit
from pm_evidence.targets.compile.implementations import (
    implement_by,
    implement_in_python,
    numba_implementations,
)


class Tripled(Op):
    """Three times a vector."""

    __props__ = ()

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = 3.0 * inputs[0]


class TripledInPython(Tripled):
    """The same, without a compiled function."""


@nb.njit
def tripled(x):
    return 3.0 * x


@nb.njit
def wrong(x):
    return 4.0 * x


def test_the_first_implementation_stays():
    """Registering again, in another thread or module, must not change code that is kept on disk."""
    implement_by(Tripled, tripled, version=1)
    implement_by(Tripled, wrong, version=1)
    assert Tripled in numba_implementations().numba_funcify.registry
    x = pt.dvector("x")
    function = compile_graph([x], [Tripled()(x)])
    np.testing.assert_array_equal(function(np.ones(2))[0], [3.0, 3.0])
    jitted = jit(function, [])
    assert jitted.key is not None and jitted.slow_ops == ()


def test_operations_in_python_are_quiet():
    implement_in_python(TripledInPython)
    x = pt.dvector("x")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        function = compile_graph([x], [TripledInPython()(x)])
    np.testing.assert_array_equal(function(np.ones(2))[0], [3.0, 3.0])
