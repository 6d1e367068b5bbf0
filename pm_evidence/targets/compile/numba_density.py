"""Log densities in machine code, as a C function that kernels call by address."""

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pytensor.compile.ops import FromFunctionOp
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import io_toposort

from pm_evidence.core.codegen.numba import (
    call_density,
    cfunc,
    density_signature,
    exception_pending,
    nb,
    njit,
    skip_doubles,
)
from pm_evidence.core.interrupts import interruptible
from pm_evidence.core.rows import RowWork, over_rows
from pm_evidence.targets.compile import numba_graph
from pm_evidence.targets.compile.calls import assignments, views_of_arrays
from pm_evidence.targets.layout import Layout


@dataclass(frozen=True)
class CompiledDensity:
    """A density in machine code."""

    address: int  # address of a function with ``core.codegen.numba.density_signature``
    # Address and shape of every array that the function reads, one after the other
    data: NDArray[np.int64]
    has_gradient: bool  # whether the function writes gradients
    # Operations without a numba implementation: correct, but slow and under Python's lock
    slow_ops: tuple[str, ...] = ()
    _keep_alive: tuple[Any, ...] = field(default=(), repr=False)

    def evaluate(
        self, x: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        """Return log densities ``(n, 2)`` and gradients ``(n, 2, n_dim)`` (or None) at ``x``."""
        x = np.ascontiguousarray(x)
        log_density = np.empty((len(x), 2))
        gradient = np.empty((len(x), 2, x.shape[1])) if self.has_gradient else None
        self.write(x, log_density, gradient)
        return log_density, gradient

    def values(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return log densities ``(n, 2)`` at ``x``; gradients are not kept."""
        x = np.ascontiguousarray(x)
        log_density = np.empty((len(x), 2))
        self.write(x, log_density)
        return log_density

    def write(
        self,
        x: NDArray[np.float64],
        log_density: NDArray[np.float64],
        gradient: NDArray[np.float64] | None = None,
    ) -> None:
        """Write log densities ``(n, 2)`` at ``x``, and gradients ``(n, 2, n_dim)`` if asked for."""
        kept = gradient is not None
        into = gradient if gradient is not None else np.empty((1, 2, x.shape[1]))
        _evaluate(self.address, self.data, x, log_density, into, kept)

    def reading(self, others: Sequence[tuple[NDArray[Any], NDArray[Any]]]) -> "CompiledDensity":
        """Return the density with other arrays in the place of some; see `exchanged`."""
        function, arrays = self._keep_alive
        arrays = numba_graph.exchanged(arrays, others)
        return replace(self, data=numba_graph.addresses_of(arrays), _keep_alive=(function, arrays))


def log_densities(target: Any, x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return both log densities of a target at the rows of ``x``, shape ``(n, 2)``, in nats."""
    x = np.ascontiguousarray(x)
    values = np.empty((len(x), 2))
    differentiable = None if target.discrete.size else target.differentiable
    if differentiable is None or differentiable.slow_ops:
        _work(target.density, _Writes(target, "density"), (x,), (values,))
        return values
    _work(differentiable, _Writes(target, "differentiable"), (x,), (values,))
    # the value may be defined where the gradient cannot be computed
    failed = np.isnan(values).any(axis=1)
    if failed.any():
        values[failed] = target.density.values(x[failed])
    return values


def densities_with_gradients(
    target: Any, x: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return both log densities, shape ``(n, 2)``, and their gradients, ``(n, 2, n_dim)``."""
    x = np.ascontiguousarray(x)
    values, gradients = np.empty((len(x), 2)), np.empty((len(x), 2, x.shape[1]))
    _work(target.differentiable, _Writes(target, "differentiable"), (x,), (values, gradients))
    return values, gradients


def _work(
    compiled: Any,
    work: RowWork,
    read: Sequence[NDArray[Any]],
    written: Sequence[NDArray[Any]],
) -> None:
    """Do work on rows: in parts, unless JAX evaluates the density at all of them together."""
    if isinstance(compiled, CompiledDensity):
        over_rows(work, read, written)
    else:
        work(*read, *written)


@dataclass(frozen=True)
class _Writes:
    """Work on rows: log densities, and gradients if asked for, by one of a target's functions."""

    target: Any
    name: str

    def __call__(self, *rows: NDArray[Any]) -> None:
        getattr(self.target, self.name).write(*rows)


@njit
def _evaluate(address, data, x, log_density, gradient, has_gradient):
    for i in range(x.shape[0]):
        slot = i if has_gradient else 0
        if call_density(address, x[i], log_density[i], gradient[slot], data) != 0:
            log_density[i, :] = np.nan


@interruptible()
def compile_density(
    parts: Sequence[Variable],
    log_density: Sequence[Variable],
    gradient: Sequence[Sequence[Variable]] | None = None,
    compile_kwargs: Mapping[str, Any] | None = None,
) -> CompiledDensity:
    """Compile log prior and log likelihood of a flat vector, with or without gradients.

    ``pm.Data`` and large constants are passed by pointer, so new data of the same kind need no new
    compilation; the machine code is kept on disk in PyTensor's own cache.
    """
    terms = [g for of_term in gradient or () for g in of_term]
    outputs, data_inputs, values = numba_graph.shared_to_inputs([*log_density, *terms])
    function = numba_graph.compile_graph([*parts, *data_inputs], outputs, **(compile_kwargs or {}))
    jitted = numba_graph.jit(function, values)
    layout = Layout.of([part.type.shape for part in parts])
    c_function = _c_function(jitted, layout, with_gradient=gradient is not None)
    data = numba_graph.addresses_of(jitted.arrays) if jitted.arrays else np.zeros(1, np.int64)
    kept = c_function, jitted.arrays
    return CompiledDensity(c_function.address, data, gradient is not None, jitted.slow_ops, kept)


def _c_function(jitted: numba_graph.Jitted, layout: Layout, *, with_gradient: bool) -> Any:
    """Wrap a jitted function of parts and arrays into the C signature, and cache it on disk."""
    # in models with very many variables, a call with all of them does not compile inside of try
    fill, scope = _fill(jitted, layout, with_gradient=with_gradient)
    call = "fill(x_, out_, gradient_, data_)"
    guarded = jitted.guarded("density(x_, out_, gradient_, data_)", [call])
    types = [array.dtype.str for array in jitted.arrays]
    digest = hashlib.sha256(f"{jitted.key}{fill}{guarded}{types}".encode()).hexdigest()
    keys = [f"{digest}_{part}" if jitted.key else None for part in ("fill", "density")]
    scope["fill"] = nb.njit(numba_graph.function_from_source(fill, "fill", scope, keys[0]))
    function = numba_graph.function_from_source(guarded, "density", scope, keys[1])
    with numba_graph.without_numba_hints():
        return cfunc(density_signature(), function, cache=jitted.key is not None)


def _fill(
    jitted: numba_graph.Jitted, layout: Layout, *, with_gradient: bool
) -> tuple[list[str], dict[str, Any]]:
    """Return the source of the function that fills in densities, and the names that it uses."""
    views, arrays, scope, n_data = views_of_arrays(jitted.arrays, "data")
    scope |= {
        "skip_doubles": skip_doubles,
        "exception_pending": exception_pending,
        "inner": jitted.function,
    }
    reads, parts = [], []
    for i, variable in enumerate(layout.variables):
        parts.append(f"x{i}")
        reads.append(f"x{i} = carray(skip_doubles(x_, {variable.start}), {variable.shape})")
    results, writes = ["log_prior", "log_likelihood"], []
    if with_gradient:
        writes.append(f"gradient = carray(gradient_, (2, {layout.size}))")
        for row in range(2):
            for i, variable in enumerate(layout.variables):
                results.append(f"g{row}_{i}")
                target = f"gradient[{row}, "
                writes += assignments(results[-1], variable.shape, target, variable.start)
    body = [
        "out = carray(out_, (2,))",
        f"data = carray(data_, ({max(n_data, 1)},))",
        *reads,
        *views,
        f"{', '.join(results)} = inner({', '.join([*parts, *arrays])})",
        "out[0] = log_prior.item()",
        "out[1] = log_likelihood.item()",
        *writes,
    ]
    lines = ["def fill(x_, out_, gradient_, data_):", *(f"    {line}" for line in body)]
    return lines, scope


_log = logging.getLogger("pymc.pm_evidence")

# Compilation counts as slow if it takes more seconds than this: most models take 5 to 25.
_SLOW = 30.0


def offer_jax(slow_ops: Sequence[str], graphs: Sequence[Variable], seconds: float) -> None:
    """Say what is slow about a compiled model, and whether JAX may do better."""
    if slow_ops:
        offer = " PyTensor may have code of it for JAX: try backend='jax'."
        _log.warning(
            "There is no numba implementation of %s: this part of the model runs in Python, "
            "which is correct but slow.%s",
            ", ".join(slow_ops),
            offer if _of_pytensor(slow_ops, graphs) else "",
        )
    elif seconds > _SLOW:
        _log.info(
            "Compiling the model with numba took %.0f s. JAX may compile it faster: backend='jax'.",
            seconds,
        )


def _of_pytensor(names: Sequence[str], graphs: Sequence[Variable]) -> bool:
    """Return whether an operation of these names is PyTensor's own, and not one of the user's.

    Whether it is in the table for JAX is not looked up, because this would import JAX.
    """
    ops = (node.op for node in io_toposort([], list(graphs)))
    return any(
        str(op) in names
        and type(op).__module__.startswith("pytensor.")
        and not isinstance(op, FromFunctionOp)
        for op in ops
    )
