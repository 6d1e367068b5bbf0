"""Positions of variables in a flat vector, of one model or of two, and populations."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, ClassVar, Self

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable

from pm_evidence.core.exceptions import ModelError

Positions = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class FlatVariable:
    """A variable as part of a flat vector."""

    name: str  # its name
    shape: tuple[int, ...]  # its shape; its entries lie in C order
    dtype: str  # its own type; the flat vector is float64
    start: int  # position of its first entry

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
    """The variables that a flat vector consists of, one after the other."""

    variables: tuple[FlatVariable, ...]  # the variables in their order

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

    Where the graph does not state it, as for ``dims``, it is computed by Python's loops: PyTensor's
    default compiles code for this, for a second.
    """
    shape = variable.type.shape
    if None in shape:
        shape = variable.shape.eval(mode="FAST_COMPILE")
    return tuple(int(n) for n in shape)


def value_of(variable: Any) -> NDArray[Any]:
    """Return the value of a constant, a ``pm.Data``, what is computed from these, or an array."""
    if isinstance(variable, Constant):
        return np.asarray(variable.data)
    if isinstance(variable, SharedVariable):
        return np.asarray(variable.get_value())
    if isinstance(variable, Variable):
        return np.asarray(variable.eval(mode="FAST_COMPILE"))
    return np.asarray(variable)


@dataclass(frozen=True, eq=False)
class PairLayout:
    """Where the coordinates of two models lie in one flat vector."""

    # Position of every coordinate of each model. The coordinates of the first model come first,
    # then those that only the second one has.
    of_model: tuple[Positions, Positions]
    own: tuple[Positions, Positions]  # positions of the coordinates that only this model has
    shared: Positions  # positions of the coordinates that both models have
    names: tuple[str, ...]  # names of the shared variables
    period: NDArray[np.float64]  # shape (n_dim,): period of circular coordinates; 0 for all others

    @classmethod
    def of(cls, first: Any, second: Any) -> Self:
        """Return the layout of two targets.

        Variables of the same name and shape are shared. Of two vectors of different length, such as
        the coefficients of nested regressions, the elements up to the shorter length are shared.
        """
        there = {variable.name: variable for variable in first.layout.variables}
        position = np.full(second.n_dim, -1, np.int64)
        names = []
        for variable in second.layout.variables:
            other = there.get(variable.name)
            n = 0 if other is None else _n_shared(other.shape, variable.shape)
            if other is None or not n:
                continue
            mine, its = (np.arange(n) + found.start for found in (variable, other))
            if np.array_equal(second.period[mine], first.period[its]):
                position[mine] = its
                names.append(variable.name)
        if not names:
            raise ModelError(
                "the models must share a free variable, of the same name and shape, got "
                f"{_named(first)} and {_named(second)}; give variables with the same meaning the "
                "same name, or compare the evidences of both: pe.compare_models."
            )
        shared = np.sort(position[position >= 0])
        missing = np.flatnonzero(position < 0)
        position[missing] = first.n_dim + np.arange(missing.size)
        everyone = np.arange(first.n_dim)
        own = np.setdiff1d(everyone, shared), position[missing]
        period = np.append(first.period, second.period[missing])
        return cls((everyone, position), own, shared, tuple(names), period)

    @property
    def n_dim(self) -> int:
        """Length of the flat vector."""
        return self.of_model[0].size + self.own[1].size

    @property
    def aligned(self) -> Positions:
        """Positions of the shared coordinates that are not circular."""
        return self.shared[self.period[self.shared] == 0.0]

    def aligned_of(self, k: int) -> Positions:
        """Return the indices of these coordinates among those of a model."""
        return np.argsort(self.of_model[k])[
            np.searchsorted(np.sort(self.of_model[k]), self.aligned)
        ]


def _n_shared(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    """Return how many elements two variables of one name share."""
    if one == other:
        return int(np.prod(one))
    return min(one[0], other[0]) if len(one) == len(other) == 1 else 0


def _named(target: Any) -> str:
    return ", ".join(f"{v.name} {v.shape}" for v in target.layout.variables) or "(none)"


class Rows:
    """The base of populations whose arrays have one row for each member."""

    # Fields that hold these arrays, tuples of them, or None where they have not been computed
    rows: ClassVar[tuple[str, ...]]

    def __len__(self) -> int:
        first = getattr(self, self.rows[0])
        return len(first[0] if isinstance(first, tuple) else first)

    def to_draws(self) -> NDArray[Any]:
        """Return the first array, which holds the members in the target's own coordinates."""
        draws: NDArray[Any] = getattr(self, self.rows[0])
        return draws

    def take(self, index: NDArray[np.int64]) -> Self:
        """Return the members at ``index`` as a new population."""
        return self._with(lambda arrays: arrays[0][index], [self])

    def join(self, others: Sequence[Self]) -> Self:
        """Return this population followed by ``others``."""
        return self._with(np.concatenate, [self, *others])

    def replaced(self, others: Self, where: NDArray[np.bool_]) -> Self:
        """Return this population with some members replaced by those of another one."""
        return self._with(
            lambda both: np.where(where.reshape(-1, *(1,) * (both[0].ndim - 1)), both[1], both[0]),
            [self, others],
        )

    def _with(self, combine: Callable[[Any], Any], parts: Sequence[Self]) -> Self:
        made = {name: _each(combine, [getattr(part, name) for part in parts]) for name in self.rows}
        return replace(self, **made)  # type: ignore[type-var]


def _each(combine: Callable[[Any], Any], values: Sequence[Any]) -> Any:
    """Combine arrays, or those of tuples one by one; None if one of them is missing."""
    if any(value is None for value in values):
        return None
    if not isinstance(values[0], tuple):
        return combine(values)
    parts = [_each(combine, each) for each in zip(*values, strict=True)]
    return type(values[0])(*parts) if hasattr(values[0], "_fields") else tuple(parts)


@dataclass(frozen=True, slots=True)
class Particles(Rows):
    """Points with their log densities.

    Parameters
    ----------
    x : ndarray, shape (n, n_dim)
        Points on the unconstrained scale; discrete coordinates hold whole numbers.
    log_density : ndarray, shape (n, 2)
        Log prior (with Jacobian) and log likelihood of each point, in nats.
    gradient : ndarray, shape (n, 2, n_dim), or None
        Gradients of both; None if not known at the present points.
    """

    x: Floats
    log_density: Floats
    gradient: Floats | None = None
    rows = ("x", "log_density", "gradient")


@dataclass(frozen=True, slots=True)
class Points(Rows):
    """Points alone.

    Parameters
    ----------
    x : ndarray, shape (n, n_dim)
        The points.
    """

    x: Floats
    rows = ("x",)
