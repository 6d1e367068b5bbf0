"""Log densities that JAX evaluates for a whole population at once, on a CPU or a GPU."""

import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm
import pytensor
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
from pm_evidence.core.interrupts import interruptible, uninterrupted
from pm_evidence.core.jax import double_precision, kept_programs, load_jax, uses_single_precision
from pm_evidence.targets.compile.numba_density import Floats
from pm_evidence.targets.compile.numba_graph import lift_constants, shared_to_inputs
from pm_evidence.targets.compile.numpy_density import NumpyDensity
from pm_evidence.targets.compile.rewrite import loop_with, rewrite
from pm_evidence.targets.layout import Layout

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
    """Return a function of some inputs that JAX can trace, and the constants that it reads."""
    table = jax_implementations()
    outputs = _checks_to_nan(outputs)
    mode = Mode(_Rewriting(), get_mode("JAX").provided_optimizer)
    function = pm.compile(inputs, outputs, mode=mode, on_unused_input="ignore", **kwargs)
    fgraph, constants = lift_constants(function.maker.fgraph)
    # numbers of the graph become those of JAX here, in the precision of the context
    with double_precision(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Skipping ")  # checks, which were left out
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


# JAX compiles a function anew for every number of rows, which takes seconds. Rows are therefore
# evaluated in blocks of two sizes. By platform, in numbers that the operations for a block give:
# what takes no longer than starting the evaluation, and the largest result of one operation that
# is fast (the cache of a CPU) or fits (the memory of a GPU).
_FREE, _LARGEST = {"cpu": 2**16}, {"cpu": 2**18}
_FREE_ON_GPU, _LARGEST_ON_GPU = 2**22, 2**26
# Least number of rows of a block, most rows that are free, and small blocks for a large one.
_LEAST, _MOST_FREE, _LARGER = 8, 128, 8


@dataclass(frozen=True)
class _Sizes:
    """The numbers of rows of small and of large blocks."""

    small: int
    large: int

    @classmethod
    def of(cls, results: Sequence[int], platform: str) -> "_Sizes":
        """Return the sizes for a function whose operations give so many numbers for each row."""
        free = _FREE.get(platform, _FREE_ON_GPU) // max(sum(results), 1)
        most = _LARGEST.get(platform, _LARGEST_ON_GPU) // max(results, default=1)
        small = int(np.clip(free, _LEAST, _MOST_FREE))
        return cls(small, int(np.clip(most, small, _LARGER * small)))

    def blocks(self, n: int) -> Iterator[tuple[int, int]]:
        """Return first row and size of the blocks of ``n`` rows; a large one is half full."""
        start = 0
        while start < n:
            size = self.large if n - start > self.large // 2 else self.small
            yield start, size
            start += size


@dataclass(eq=False)
class _Program:
    """A function of one point that JAX traces, as one of populations on its device."""

    # Function of a point, shape ``(n_dim,)``, and of arrays, that JAX can trace. Returns both log
    # densities, shape ``(2,)``, and their gradients, shape ``(2, n_dim)``, or None.
    of_point: Callable[[Any, Any], tuple[Any, Any]]
    sizes: _Sizes  # how many points are evaluated together
    # Arrays that the function read last, and their copies on the device
    _on_device: tuple[Any, Any] = (None, None)

    @cached_property
    def compiled(self) -> Any:
        """The function that JAX compiles; it lets threads wait for a compilation."""
        jax = load_jax()
        return jax.jit(jax.vmap(self.of_point, in_axes=(0, None)))

    def __call__(self, x: Floats, arrays: Any, with_gradient: bool) -> tuple[Floats, Floats | None]:
        """Return log densities, and gradients if asked for, at the rows of ``x``."""
        values, gradients = np.empty((len(x), 2)), np.empty((len(x), 2, x.shape[1]))
        folder = Path(pytensor.config.compiledir) / "jax"
        with double_precision() as jax, kept_programs(str(folder)):
            read, on_device = self._on_device
            if read is not arrays:
                on_device = jax.device_put(list(arrays))
                self._on_device = arrays, on_device
            for start, size in self.sizes.blocks(len(x)):
                block = x[start : start + size]
                rows = slice(start, start + len(block))
                # with copies of rows up to the size
                found, slopes = self.compiled(np.resize(block, (size, x.shape[1])), on_device)
                values[rows] = np.asarray(found)[: len(block)]
                if with_gradient:
                    gradients[rows] = np.asarray(slopes)[: len(block)]
        return values, gradients if with_gradient else None


def jax_density(
    of_point: Callable[[Any, Any], tuple[Any, Any]],
    n_dim: int,
    arrays: Sequence[Any],
    *,
    has_gradient: bool,
) -> NumpyDensity:
    """Return a function that JAX can trace as a density of populations.

    One program is compiled for each size of block. What is around the density, such as
    trajectories and references, is done by NumPy: a program of these as well would be compiled
    again in each run, which takes seconds where a transfer takes a fraction of a millisecond.
    """
    with double_precision() as jax:
        # the exceptions of JAX about shapes and values that are not known are of these types
        try:
            together = jax.vmap(of_point, in_axes=(0, None))
            traced = jax.make_jaxpr(together)(np.zeros((1, n_dim)), list(arrays))
        except (TypeError, ValueError, IndexError, NotImplementedError) as error:
            raise no_jax_code(error) from error
        platform = jax.local_devices()[0].platform
    results = [v.aval.size for step in traced.jaxpr.eqns for v in step.outvars]
    program = _Program(of_point, _Sizes.of(results, platform))
    return NumpyDensity(program, n_dim, arrays, has_gradient, sys.maxsize)


@interruptible()
def compile_jax_density(
    parts: Sequence[Variable],
    log_density: Sequence[Variable],
    gradient: Sequence[Sequence[Variable]] | None = None,
    compile_kwargs: Mapping[str, Any] | None = None,
) -> NumpyDensity:
    """Compile log prior and log likelihood of a flat vector for JAX.

    The arguments are those of ``compile_density``.
    """
    terms = [g for of_term in gradient or () for g in of_term]
    outputs, data_inputs, values = shared_to_inputs([*log_density, *terms])
    function, constants = jax_function([*parts, *data_inputs], outputs, **(compile_kwargs or {}))
    layout = Layout.of([part.type.shape for part in parts])
    arrays = [np.asarray(value) for value in (*values, *constants)]
    flat = _of_flat_vector(function, layout, with_gradient=gradient is not None)
    return jax_density(flat, layout.size, arrays, has_gradient=gradient is not None)


def _of_flat_vector(
    function: Callable[..., Any], layout: Layout, *, with_gradient: bool
) -> Callable[[Any, Any], tuple[Any, Any]]:
    """Return a function of parts and arrays as one of a flat vector and arrays."""
    n_parts = len(layout.variables)

    def flat(x: Any, arrays: Any) -> tuple[Any, Any]:
        jnp = load_jax().numpy
        parts = [x[v.start : v.start + v.size].reshape(v.shape) for v in layout.variables]
        outputs = [jnp.asarray(output, float) for output in function(*parts, *arrays)]
        values = jnp.stack([jnp.reshape(output, ()) for output in outputs[:2]])
        if not with_gradient:
            return values, None
        rows = [outputs[2 + k * n_parts : 2 + (k + 1) * n_parts] for k in range(2)]
        return values, jnp.stack([jnp.concatenate([g.ravel() for g in row]) for row in rows])

    return flat
