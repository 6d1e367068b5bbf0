"""Log densities that JAX evaluates for a whole population at once, on a CPU or a GPU."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import RLock
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pytensor.graph.basic import Variable

from pm_evidence.core.interrupts import interruptible
from pm_evidence.core.jax import double_precision, load_jax
from pm_evidence.targets.compile.graph import shared_to_inputs
from pm_evidence.targets.compile.jax_graph import jax_function, no_jax_code
from pm_evidence.targets.layout import Layout

__all__ = ["JaxDensity", "compile_jax_density"]

Floats = NDArray[np.float64]

# Rows are evaluated together in blocks of a few sizes, because JAX compiles each size anew. Least
# and largest size; the largest results of an operation, in numbers, that fit a cache of a CPU and
# the memory of a GPU.
_LEAST_ROWS, _MOST_ROWS = 8, 4096
_IN_CACHE, _IN_MEMORY = 2**19, 2**26


@dataclass(frozen=True)
class _Programs:
    """Compiled functions of a density, and the shapes that each was compiled for."""

    jitted: dict[Any, Any] = field(default_factory=dict)
    known: set[Any] = field(default_factory=set)
    lock: Any = field(default_factory=RLock)


@dataclass(frozen=True, eq=False)
class JaxDensity:
    """Two log densities, and their gradients, as a function that JAX compiles.

    Parameters
    ----------
    function : callable
        Function of a point, shape ``(n_dim,)``, and of ``arrays``, that JAX can trace. Returns both
        log densities, shape ``(2,)``, and their gradients, shape ``(2, n_dim)``, or None.
    n_dim : int
        Number of coordinates of a point.
    arrays : sequence
        Arrays, and sequences of arrays, that the function reads.
    has_gradient : bool
        Whether the function returns gradients.
    most_rows : int
        Largest number of points that are evaluated together.
    """

    function: Callable[[Any, Any], tuple[Any, Any]]
    n_dim: int
    arrays: Sequence[Any]
    has_gradient: bool
    most_rows: int
    slow_ops: tuple[str, ...] = ()
    _programs: _Programs = field(default_factory=_Programs, repr=False)

    @classmethod
    def of(
        cls, function: Callable[..., Any], n_dim: int, arrays: Sequence[Any], *, has_gradient: bool
    ) -> "JaxDensity":
        """Return the density, after tracing it.

        Raises
        ------
        ModelError
            If JAX cannot trace the function.
        """
        with double_precision() as jax:
            # the exceptions of JAX about shapes and values that are not known are of these types
            try:
                together = jax.vmap(function, in_axes=(0, None))
                traced = jax.make_jaxpr(together)(np.zeros((1, n_dim)), list(arrays))
            except (TypeError, ValueError, IndexError, NotImplementedError) as error:
                raise no_jax_code(error) from error
            in_cache = jax.local_devices()[0].platform == "cpu"
        sizes = [v.aval.size for step in traced.jaxpr.eqns for v in step.outvars]
        rows = (_IN_CACHE if in_cache else _IN_MEMORY) // max(sizes, default=1)
        most = _block_size(int(np.clip(rows, _LEAST_ROWS, _MOST_ROWS)))
        return cls(function, n_dim, arrays, has_gradient, most)

    @cached_property
    def _on_device(self) -> list[Any]:
        with double_precision() as jax:
            arrays: list[Any] = jax.device_put(list(self.arrays))
        return arrays

    def evaluate(self, x: Floats) -> tuple[Floats, Floats | None]:
        """Return log densities ``(n, 2)`` and gradients ``(n, 2, n_dim)`` (or None) at ``x``."""
        if not self.has_gradient:
            return self.values(x), None
        log_density, gradient = self.on_rows(_both, (x,))
        return log_density, gradient

    def values(self, x: Floats) -> Floats:
        """Return log densities ``(n, 2)`` at ``x``."""
        (log_density,) = self.on_rows(_values, (x,))
        return log_density

    def reading(self, others: Sequence[tuple[NDArray[Any], NDArray[Any]]]) -> "JaxDensity":
        """Return the density with other arrays in the place of some that it reads.

        Parameters
        ----------
        others : sequence of pairs of ndarray
            An array that was the value of a shared variable, and one of its shape and dtype.
        """
        new = {id(old): other for old, other in others}
        return replace(self, arrays=[new.get(id(array), array) for array in self.arrays])

    def on_rows(
        self,
        function: Callable[..., tuple[Any, ...]],
        rows: Sequence[NDArray[Any]],
        shared: Sequence[Any] = (),
    ) -> tuple[NDArray[Any], ...]:
        """Return what a function gives for every row of a population.

        Parameters
        ----------
        function : callable
            A function at the level of a module, that JAX can trace. Its arguments are the density
            of a population, which returns log densities and gradients, then ``rows`` and
            ``shared``. It returns a tuple of arrays with a row for each row that it gets.
        rows : sequence of ndarray, shape (n, ...)
            What differs between rows.
        shared : sequence of ndarray or float
            What all rows have in common.
        """
        n = len(rows[0])
        parts = [
            self._block(function, [row[start : start + self.most_rows] for row in rows], shared)
            for start in range(0, max(n, 1), self.most_rows)
        ]
        return tuple(np.concatenate(part) for part in zip(*parts, strict=True))

    def _block(
        self, function: Callable[..., Any], rows: Sequence[NDArray[Any]], shared: Sequence[Any]
    ) -> list[NDArray[Any]]:
        n = len(rows[0])
        arguments = [_padded(row, _block_size(n)) for row in rows], list(shared), self._on_device
        with double_precision() as jax:
            jitted = self._jitted(jax, function)
            made = self._first_or_again(jax, function, jitted, arguments)
        # a copy: what JAX returns cannot be written to
        return [np.array(array[:n]) for array in jax.device_get(made)]

    def _jitted(self, jax: Any, function: Callable[..., Any]) -> Any:
        with self._programs.lock:
            if function not in self._programs.jitted:
                together = jax.vmap(self.function, in_axes=(0, None))

                def program(rows: Any, shared: Any, arrays: Any) -> Any:
                    return function(lambda x: together(x, arrays), *rows, *shared)

                self._programs.jitted[function] = jax.jit(program)
            return self._programs.jitted[function]

    def _first_or_again(
        self, jax: Any, function: Callable[..., Any], jitted: Any, arguments: Any
    ) -> Any:
        """Call a jitted function; other threads wait while it is compiled for new shapes."""
        shapes = tuple(np.shape(leaf) for leaf in jax.tree.leaves(arguments))
        if (function, shapes) in self._programs.known:
            return jitted(*arguments)
        with self._programs.lock:
            made = jitted(*arguments)
            self._programs.known.add((function, shapes))
        return made


def _both(density: Any, x: Any) -> tuple[Any, ...]:
    return tuple(density(x))


def _values(density: Any, x: Any) -> tuple[Any, ...]:
    return (density(x)[0],)


def _block_size(n: int) -> int:
    """Return the smallest of the sizes 8, 12, 16, 24, 32, 48, ... that is not below ``n``."""
    size = _LEAST_ROWS
    while size < n:
        size = size * 3 // 2 if size & (size - 1) == 0 else size * 4 // 3
    return size


def _padded(row: NDArray[Any], size: int) -> NDArray[Any]:
    """Return rows with copies of the last one up to a size."""
    padded = np.zeros((size, *row.shape[1:]), row.dtype)
    padded[: len(row)] = row
    if len(row):
        padded[len(row) :] = row[-1:]
    return padded


@interruptible()
def compile_jax_density(
    parts: Sequence[Variable],
    log_density: Sequence[Variable],
    gradient: Sequence[Sequence[Variable]] | None = None,
    compile_kwargs: Mapping[str, Any] | None = None,
) -> JaxDensity:
    """Compile log prior and log likelihood of a flat vector for JAX.

    The arguments are those of ``compile_density``.

    Raises
    ------
    ModelError
        If JAX has no code for the model.
    """
    terms = [g for of_term in gradient or () for g in of_term]
    outputs, data_inputs, values = shared_to_inputs([*log_density, *terms])
    function, constants = jax_function([*parts, *data_inputs], outputs, **(compile_kwargs or {}))
    layout = Layout.of([part.type.shape for part in parts])
    arrays = [np.asarray(value) for value in (*values, *constants)]
    flat = _of_flat_vector(function, layout, with_gradient=gradient is not None)
    return JaxDensity.of(flat, layout.size, arrays, has_gradient=gradient is not None)


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
