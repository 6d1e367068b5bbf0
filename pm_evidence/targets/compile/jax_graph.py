"""PyTensor graphs as functions that JAX traces: the private API of PyTensor's JAX linker."""

import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.logprob.utils import CheckParameterValue
from pytensor.compile.mode import Mode, get_mode
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import io_toposort
from pytensor.link.jax.linker import JAXLinker
from pytensor.link.utils import fgraph_to_python
from pytensor.raise_op import CheckAndRaise
from pytensor.scan.op import Scan

from pm_evidence.core.exceptions import ModelError
from pm_evidence.core.interrupts import uninterrupted
from pm_evidence.core.jax import double_precision, load_jax, uses_single_precision
from pm_evidence.targets.compile.graph import lift_constants
from pm_evidence.targets.compile.rewrite import loop_with, rewrite

__all__ = ["jax_function", "jax_implementations", "no_jax_code", "without_jax_code"]

_log = logging.getLogger("pymc.pm_evidence")

_TABLE = "pytensor.link.jax.dispatch"


class _Rewriting(JAXLinker):
    """PyTensor's linker for JAX, with all its rewrites but without the conversion."""

    def fgraph_convert(self, fgraph: Any, **kwargs: Any) -> Any:
        """Return the graph itself."""
        return fgraph

    def jit_compile(self, fn: Any) -> Any:
        """Return the graph itself."""
        return fn


def jax_implementations() -> Any:
    """Return PyTensor's table of operations that JAX has.

    PyTensor sets double precision for the whole process when the table is imported. If JAX has been
    used in single precision before, this is undone.
    """
    if _TABLE not in sys.modules:
        in_single = uses_single_precision()
        with uninterrupted():
            import_module(_TABLE)
        if in_single:
            load_jax().config.update("jax_enable_x64", False)
            _log.info(
                "JAX stays in single precision outside of pm_evidence, as it was before. If PyMC's "
                "own JAX samplers are to follow, call jax.config.update('jax_enable_x64', True): "
                "PyTensor does so only when it is first used with JAX."
            )
    return import_module(f"{_TABLE}.basic")


def jax_function(
    inputs: Sequence[Any], outputs: Sequence[Variable], **kwargs: Any
) -> tuple[Any, list[NDArray[Any]]]:
    """Return a function of some inputs that JAX can trace, and the constants that it reads.

    Parameters
    ----------
    inputs : sequence of TensorVariable
        The inputs.
    outputs : sequence of TensorVariable
        The graphs. Where a check of the graph fails, an output is NaN.
    **kwargs
        Passed on to ``pymc.compile``.

    Returns
    -------
    function : callable
        Function of the inputs, followed by the constants.
    constants : list of ndarray
        Large constants of the graph.

    Raises
    ------
    ModelError
        If JAX has no implementation of an operation.
    """
    table = jax_implementations()
    outputs = _checks_to_nan(outputs)
    mode = Mode(_Rewriting(), get_mode("JAX").provided_optimizer)
    function = pm.compile(inputs, outputs, mode=mode, on_unused_input="ignore", **kwargs)
    fgraph, constants = lift_constants(function.maker.fgraph)
    # numbers of the graph become those of JAX here, in the precision of the context
    with double_precision(), _without_hints():
        try:
            traceable = fgraph_to_python(
                fgraph,
                table.jax_funcify,
                type_conversion_fn=_in_doubles(table.jax_typify),
                fgraph_name="log_densities",
            )
            return traceable, constants
        except NotImplementedError as error:
            missing = without_jax_code(node.op for node in fgraph.apply_nodes)
            raise no_jax_code(f"no code for {', '.join(missing)}" if missing else error) from error


def _in_doubles(typify: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that makes constants of JAX from those of a graph, in double precision.

    PyTensor keeps literals in single precision, and gives numbers to JAX as literals of Python.
    Together these would be of single precision for JAX, though PyTensor says double.
    """

    def in_doubles(data: Any, **kwargs: Any) -> Any:
        if not isinstance(data, np.ndarray) or data.dtype.kind != "f":
            return typify(data, **kwargs)
        doubles = data.astype(float)
        return doubles[()] if doubles.ndim == 0 else typify(doubles, **kwargs)

    return in_doubles


def no_jax_code(reason: Any) -> ModelError:
    """Return the error of a model that JAX cannot evaluate."""
    shown = " ".join(str(reason).split())
    shown = shown if len(shown) <= 300 else f"{shown[:300]} ..."
    return ModelError(
        "backend='jax' needs a model whose operations JAX has, with shapes that do not depend on "
        f"the variables, got one that JAX cannot evaluate: {shown.rstrip('.')}. Leave backend out."
    )


def without_jax_code(ops: Any) -> list[str]:
    """Return those operations that are not in PyTensor's table for JAX, by name."""
    funcify = jax_implementations().jax_funcify
    missing = (str(op) for op in ops if funcify.dispatch(type(op)) is funcify.dispatch(object))
    return sorted(set(missing))


def _checks_to_nan(outputs: Sequence[Variable], *, in_loop: bool = False) -> list[Variable]:
    """Return graphs that are NaN where a check fails: JAX cannot raise an error.

    Checks of parameters outside of loops are left to PyMC, which makes them minus infinity.
    """

    def is_check(node: Any) -> bool:
        own = isinstance(node.op, CheckAndRaise)
        return own and (in_loop or not isinstance(node.op, CheckParameterValue))

    def without_check(node: Any, inputs: list[Variable]) -> Sequence[Variable] | None:
        if isinstance(node.op, Scan):
            op = loop_with(_in_loop, node.op)
            return None if op is node.op else op.make_node(*inputs).outputs
        return [inputs[0]] if is_check(node) else None

    checks = [[n for n in io_toposort([], [graph]) if is_check(n)] for graph in outputs]
    conditions = [condition for of_one in checks for n in of_one for condition in n.inputs[1:]]
    graphs = rewrite([*outputs, *conditions], without_check)
    left, result = graphs[len(outputs) :], []
    for graph, of_one in zip(graphs, checks, strict=False):
        n_own = sum(len(node.inputs) - 1 for node in of_one)
        own, left = left[:n_own], left[n_own:]
        if own and graph.type.dtype.startswith("float"):
            fine = pt.all(pt.stack([pt.all(condition) for condition in own]))
            graph = pt.switch(fine, graph, np.array(np.nan, graph.type.dtype))
        result.append(graph)
    return result


def _in_loop(outputs: Sequence[Variable]) -> list[Variable]:
    return _checks_to_nan(outputs, in_loop=True)


@contextmanager
def _without_hints() -> Iterator[None]:
    """Silence hints of PyTensor about checks, which are left out: those of shapes are done."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Skipping ")
        yield
