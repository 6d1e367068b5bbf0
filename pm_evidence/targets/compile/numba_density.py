"""Log densities in machine code, as a C function that kernels call by address."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from pytensor.graph.basic import Variable

from pm_evidence.core.codegen.numba import call_density, density_signature, njit, skip_doubles
from pm_evidence.core.interrupts import interruptible
from pm_evidence.core.rows import over_rows
from pm_evidence.targets.compile import numba_graph
from pm_evidence.targets.compile.calls import assignments, views_of_arrays
from pm_evidence.targets.layout import Layout

Floats = NDArray[np.float64]


class Density(ABC):
    """Two log densities, and their gradients, as a function of a population."""

    has_gradient: bool  # whether there are gradients
    # Operations without a compiled form: correct, but slow and under Python's lock
    slow_ops: tuple[str, ...] = ()
    by_rows: bool = False  # whether each row is evaluated alone: they may be divided among cores

    @abstractmethod
    def write(self, x: Floats, log_density: Floats, gradient: Floats | None = None) -> None:
        """Write log densities ``(n, 2)`` at ``x``, and gradients ``(n, 2, n_dim)`` if asked for."""

    @abstractmethod
    def reading(self, others: Sequence[tuple[NDArray[Any], NDArray[Any]]]) -> Self:
        """Return the density with other arrays in the place of some; see `exchanged`."""

    def evaluate(self, x: Floats) -> tuple[Floats, Floats | None]:
        """Return log densities ``(n, 2)`` and gradients ``(n, 2, n_dim)`` (or None) at ``x``."""
        x = np.ascontiguousarray(x)
        log_density = np.empty((len(x), 2))
        gradient = np.empty((len(x), 2, x.shape[1])) if self.has_gradient else None
        self.write(x, log_density, gradient)
        return log_density, gradient

    def values(self, x: Floats) -> Floats:
        """Return log densities ``(n, 2)`` at ``x``; gradients are not kept."""
        x = np.ascontiguousarray(x)
        log_density = np.empty((len(x), 2))
        self.write(x, log_density)
        return log_density


@dataclass(frozen=True)
class CompiledDensity(Density):
    """A density in machine code."""

    address: int  # address of a function with ``core.codegen.numba.density_signature``
    # Address and shape of every array that the function reads, one after the other
    data: NDArray[np.int64]
    has_gradient: bool  # whether the function writes gradients
    slow_ops: tuple[str, ...] = ()
    _keep_alive: tuple[Any, ...] = field(default=(), repr=False)
    by_rows = True

    def write(self, x: Floats, log_density: Floats, gradient: Floats | None = None) -> None:
        """Write log densities ``(n, 2)`` at ``x``, and gradients ``(n, 2, n_dim)`` if asked for."""
        kept = gradient is not None
        into = gradient if gradient is not None else np.empty((1, 2, x.shape[1]))
        _evaluate(self.address, self.data, x, log_density, into, kept)

    @property
    def arrays(self) -> Sequence[NDArray[Any]]:
        """The arrays that the function reads."""
        arrays: Sequence[NDArray[Any]] = self._keep_alive[1]
        return arrays

    def of(self, arrays: Sequence[NDArray[Any]]) -> Self:
        """Return the density with other arrays of the same kinds."""
        if not arrays:
            return self
        kept = self._keep_alive[0], arrays
        return replace(self, data=numba_graph.addresses_of(arrays), _keep_alive=kept)

    def reading(self, others: Sequence[tuple[NDArray[Any], NDArray[Any]]]) -> Self:
        """Return the density with other arrays in the place of some; see `exchanged`."""
        return self.of(numba_graph.exchanged(self.arrays, others))


def log_densities(target: Any, x: Floats) -> Floats:
    """Return both log densities of a target at the rows of ``x``, shape ``(n, 2)``, in nats.

    If all coordinates are continuous, the function with gradients is used, which MCMC steps need:
    the gradients cost less than compiling a second function. The choice depends on the model alone,
    so that the same seed gives the same digits.
    """
    values = np.empty((len(x), 2))
    differentiable = None if target.discrete.size else target.differentiable
    if differentiable is None or differentiable.slow_ops:
        write_densities(target, "density", x, values)
        return values
    write_densities(target, "differentiable", x, values)
    # the value may be defined where the gradient cannot be computed
    failed = np.isnan(values).any(axis=1)
    if failed.any():
        values[failed] = target.density.values(x[failed])
    return values


def densities_with_gradients(target: Any, x: Floats) -> tuple[Floats, Floats]:
    """Return both log densities, shape ``(n, 2)``, and their gradients, ``(n, 2, n_dim)``."""
    values, gradients = np.empty((len(x), 2)), np.empty((len(x), 2, x.shape[1]))
    write_densities(target, "differentiable", x, values, gradients)
    return values, gradients


def write_densities(target: Any, name: str, x: Floats, *written: Floats) -> None:
    """Write what one of a target's functions gives, in parts unless it takes all rows together."""
    x, compiled, work = np.ascontiguousarray(x), getattr(target, name), _Writes(target, name)
    if isinstance(compiled, Density) and compiled.by_rows:
        over_rows(work, (x,), written)
    else:
        work(x, *written)


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
    body, scope = _body(jitted, layout, with_gradient=gradient is not None)
    arguments = "x_, out_, gradient_, data_"
    c_function = jitted.c_function(density_signature(), arguments, body, scope)
    data = numba_graph.addresses_of(jitted.arrays) if jitted.arrays else np.zeros(1, np.int64)
    kept = c_function, jitted.arrays
    return CompiledDensity(c_function.address, data, gradient is not None, jitted.slow_ops, kept)


def _body(
    jitted: numba_graph.Jitted, layout: Layout, *, with_gradient: bool
) -> tuple[list[str], dict[str, Any]]:
    """Return the lines that fill in densities, and the names that they use."""
    views, arrays, scope, n_data = views_of_arrays(jitted.arrays, "data")
    scope |= {"skip_doubles": skip_doubles, "inner": jitted.function}
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
    return body, scope


_log = logging.getLogger("pymc.pm_evidence")

# Compilation counts as slow if it takes more seconds than this: most models take 5 to 25.
_SLOW = 30.0


def offer_jax(slow_ops: Sequence[str], seconds: float) -> None:
    """Say what is slow about a compiled model, and that JAX may do better."""
    if slow_ops:
        _log.warning(
            "There is no numba implementation of %s: this part of the model runs in Python, "
            "which is correct but slow. PyTensor may have code of it for JAX, unless it is your "
            "own: try backend='jax'.",
            ", ".join(slow_ops),
        )
    elif seconds > _SLOW:
        _log.info(
            "Compiling the model with numba took %.0f s. JAX may compile it faster: backend='jax'.",
            seconds,
        )
