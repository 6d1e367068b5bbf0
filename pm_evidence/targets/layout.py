"""The positions of variables in a flat vector."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Self

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.graph.basic import Variable

__all__ = ["FlatVariable", "Layout", "shape_of"]


@dataclass(frozen=True, slots=True)
class FlatVariable:
    """A variable as part of a flat vector.

    Parameters
    ----------
    name : str
        Its name.
    shape : tuple of int
        Its shape; its entries lie in C order.
    dtype : str
        Its own type; the flat vector is float64.
    start : int
        Position of its first entry.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    start: int

    @property
    def size(self) -> int:
        """Number of entries."""
        return math.prod(self.shape)

    @property
    def positions(self) -> slice:
        """Positions of the entries."""
        return slice(self.start, self.start + self.size)


@dataclass(frozen=True, slots=True)
class Layout:
    """The variables that a flat vector consists of, one after the other.

    Parameters
    ----------
    variables : tuple of FlatVariable
        The variables in their order.
    """

    variables: tuple[FlatVariable, ...]

    @classmethod
    def of(
        cls,
        shapes: Sequence[tuple[int, ...]],
        names: Sequence[str] | None = None,
        dtypes: Sequence[str] | None = None,
    ) -> Self:
        """Return the layout of variables of these shapes, by default of type float64."""
        starts = accumulate((math.prod(shape) for shape in shapes), initial=0)
        names = [""] * len(shapes) if names is None else names
        dtypes = ["float64"] * len(shapes) if dtypes is None else dtypes
        return cls(
            tuple(
                FlatVariable(name, tuple(map(int, shape)), dtype, start)
                for name, shape, dtype, start in zip(names, shapes, dtypes, starts, strict=False)
            )
        )

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Shape of every variable."""
        return [variable.shape for variable in self.variables]

    @property
    def size(self) -> int:
        """Length of the flat vector."""
        return sum(variable.size for variable in self.variables)

    def positions_of(self, variables: Iterable[FlatVariable]) -> NDArray[np.int64]:
        """Return the positions of some of the variables, one after the other."""
        every = np.arange(self.size)
        return np.concatenate([every[:0], *(every[v.positions] for v in variables)])

    def split(self, x: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        """Return the variables in flat vectors ``x``, shape ``(..., size)``, each in its shape."""
        return [x[..., v.positions].reshape((*x.shape[:-1], *v.shape)) for v in self.variables]

    def split_graph(self, x: Variable) -> list[Variable]:
        """Return the variables in a flat vector, as graphs of it, each of its shape and type."""
        parts = [x[v.positions].reshape(v.shape) if v.shape else x[v.start] for v in self.variables]
        return [
            part if v.dtype == part.dtype else pt.cast(part, v.dtype)
            for part, v in zip(parts, self.variables, strict=True)
        ]

    def join(self, values: Sequence[Any]) -> NDArray[np.float64]:
        """Return the values of all variables as one flat vector, shape ``(size,)``."""
        return np.concatenate([np.empty(0), *(np.ravel(value) for value in values)], dtype=float)


def shape_of(variable: Variable) -> tuple[int, ...]:
    """Return the shape of a variable of a model, which does not depend on other free variables.

    PyTensor is asked to compute it only where the graph does not state it, because it compiles code
    for this.
    """
    known = variable.type.shape
    return tuple(int(n) for n in (variable.shape.eval() if None in known else known))
