"""Log densities that NumPy evaluates for a whole population at once; nothing is compiled."""

import ctypes
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from pytensor.graph.basic import Variable

from pm_evidence.core.interrupts import interruptible
from pm_evidence.targets.compile.numba_density import CompiledDensity, Density, Floats
from pm_evidence.targets.compile.numba_graph import exchanged, shared_to_inputs
from pm_evidence.targets.compile.numpy_graph import (
    NotBatchedError,
    batched,
    gives_gradient,
    numpy_function,
)
from pm_evidence.targets.compile.numpy_rows import RowProgram
from pm_evidence.targets.layout import Layout

type Function = Callable[[Floats, Any, bool], tuple[Floats, Floats | None]]

_DOUBLES, _WORDS = ctypes.POINTER(ctypes.c_double), ctypes.POINTER(ctypes.c_int64)
_SIGNATURE = ctypes.CFUNCTYPE(ctypes.c_int64, _DOUBLES, _DOUBLES, _DOUBLES, _WORDS)
# Points are evaluated in blocks for which the largest result of an operation has at most so many
# elements, which a processor's cache holds.
_LARGEST = 2**15
# Numbers that a loop makes for each of its results: some 50 steps of 30 operations.
_IN_LOOP = 1500


@dataclass(frozen=True, eq=False)
class NumpyDensity(Density):
    """A density that NumPy evaluates for a block of points at a time."""

    # Function of points, shape ``(n, n_dim)``, of ``arrays``, and of whether gradients are wanted.
    # Returns both log densities, shape ``(n, 2)``, and their gradients, shape ``(n, 2, n_dim)``, or
    # None.
    function: Function
    n_dim: int  # number of coordinates of a point
    arrays: Sequence[Any]  # arrays, and sequences of arrays, that the function reads
    has_gradient: bool  # whether the function returns gradients
    n_rows: int  # how many points are evaluated together
    n_numbers: int = 0  # how many numbers the operations give for one point
    n_in_loops: int = 0  # about how many are made in loops of scalars
    by_data: bool = False  # whether long data are read some rows at a time
    by_rows: bool = False
    slow_ops: tuple[str, ...] = ()

    @cached_property
    def _called(self) -> Any:
        """The density as a C function of one point, for compiled loops that move chains.

        They call it under Python's lock. An exception counts as a density of NaN.
        """

        def call(x: Any, out: Any, gradient: Any, data: Any) -> int:
            try:
                point = np.ctypeslib.as_array(x, (1, self.n_dim))
                out[0], out[1] = map(float, self.function(point, self.arrays, False)[0][0])
            except Exception:  # which must not leave a function that machine code has called
                return 1
            return 0

        return _SIGNATURE(call)

    @property
    def address(self) -> int:
        """Address of that function, which has ``core.codegen.numba.density_signature``."""
        address = ctypes.cast(self._called, ctypes.c_void_p).value
        assert address is not None
        return address

    @cached_property
    def data(self) -> NDArray[np.int64]:
        """What that function reads beside the point: nothing."""
        return np.zeros(1, np.int64)

    def write(self, x: Floats, log_density: Floats, gradient: Floats | None = None) -> None:
        """Write log densities ``(n, 2)`` at ``x``, and gradients ``(n, 2, n_dim)`` if asked for."""
        for start in range(0, len(x), self.n_rows):
            rows = slice(start, start + self.n_rows)
            log_density[rows], slopes = self.function(x[rows], self.arrays, gradient is not None)
            if gradient is not None:
                gradient[rows] = slopes

    def reading(self, others: Sequence[tuple[NDArray[Any], NDArray[Any]]]) -> Self:
        """Return the density with other arrays in the place of some; see `exchanged`."""
        return replace(self, arrays=exchanged(self.arrays, others))


@interruptible()
def numpy_density(
    parts: Sequence[Variable],
    log_density: Sequence[Variable],
    gradient: Sequence[Sequence[Variable]] | None = None,
) -> NumpyDensity:
    """Return log prior and log likelihood of a flat vector as a function of populations.

    The arguments are those of ``compile_density``.
    """
    terms = [g for of_term in gradient or () for g in of_term]
    layout = Layout.of([part.type.shape for part in parts])
    try:
        outputs, data_inputs, values = shared_to_inputs([*log_density, *terms])
        many, graphs = batched(parts, outputs)
        program = numpy_function([*many, *data_inputs], graphs)
        arrays = [np.asarray(value) for value in values]
        points = _parts(np.zeros((2, layout.size)), layout)
        by_rows = RowProgram.of(program, points, arrays)
        sizes = [] if by_rows else program.sizes(*points, *arrays)
    except NotBatchedError:
        raise
    except Exception as error:  # PyTensor's have no type in common, and compiled code is as right
        raise NotBatchedError(f"{type(error).__name__}: {error}") from error
    has_gradient = gradient is not None
    if by_rows is not None:
        flat = _of_flat_vectors(by_rows, layout)
        sizes_of_runs = by_rows.n_points, by_rows.n_numbers, _IN_LOOP * by_rows.n_in_loops
        return NumpyDensity(flat, layout.size, arrays, has_gradient, *sizes_of_runs, by_data=True)
    flat, sizes = _of_flat_vectors(program, layout), [size // 2 for size in sizes]
    n_rows = max(_LARGEST // max(sizes, default=1), 1)
    in_loops = _IN_LOOP * sum(n for n, own in zip(sizes, program.in_loops, strict=True) if own)
    on_workers = any(gives_gradient(step.node) is not None for step in program.steps)
    return NumpyDensity(
        flat, layout.size, arrays, has_gradient, n_rows, sum(sizes), in_loops, by_data=on_workers
    )


def by_compiled_rows(compiled: CompiledDensity, n_dim: int) -> NumpyDensity:
    """Return a compiled density as one of populations, so that nothing else is compiled.

    This suits loops: NumPy does what is around a density in far less time than a loop takes.
    """

    def by_rows(x: Floats, arrays: Any, with_gradient: bool) -> tuple[Floats, Floats | None]:
        density = compiled.of(arrays)
        return density.evaluate(x) if with_gradient else (density.values(x), None)

    has_gradient, n_rows = compiled.has_gradient, sys.maxsize
    return NumpyDensity(by_rows, n_dim, compiled.arrays, has_gradient, n_rows, by_rows=True)


def _parts(x: Floats, layout: Layout) -> list[Floats]:
    return [x[:, v.start : v.start + v.size].reshape(len(x), *v.shape) for v in layout.variables]


def _of_flat_vectors(program: Callable[..., list[Any]], layout: Layout) -> Function:
    """Return a function of parts and arrays as one of flat vectors and arrays."""
    variables = layout.variables

    def flat(x: Floats, arrays: Any, with_gradient: bool) -> tuple[Floats, Floats | None]:
        found = program(*_parts(x, layout), *arrays, n_results=None if with_gradient else 2)
        values = np.empty((len(x), 2))
        values[:, 0], values[:, 1] = found[:2]
        if not with_gradient:
            return values, None
        gradient = np.empty((len(x), 2, layout.size))
        for k, slope in enumerate(found[2:]):
            term, v = divmod(k, len(variables))
            where = slice(variables[v].start, variables[v].start + variables[v].size)
            whole = np.broadcast_to(slope, (len(x), *variables[v].shape))
            gradient[:, term, where] = whole.reshape(len(x), variables[v].size)
        return values, gradient

    return flat
