"""Programs on long arrays of data, carried out for some rows of the data at a time.

A likelihood of many rows is a sum over them. Its operations are carried out on a thousand rows,
which a processor's cache holds with what is computed of them, and only the sums are kept: this
takes a third of the time, hardly any memory, and all cores, each of which has rows of its own.

Which axis of a result counts rows follows, operation by operation, from the data. What is computed
from a sum and read by rows again, as a check of all parameters, needs another pass over the rows.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import ne
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pytensor.scalar.basic import AND, Second, Switch
from pytensor.tensor.basic import Join, Split
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.shape import Reshape, Shape_i, SpecifyShape
from pytensor.tensor.special import LogSoftmax, Softmax
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
)

from pm_evidence.core.rows import over_rows
from pm_evidence.targets.compile.numpy_graph import Operation, Program
from pm_evidence.targets.compile.numpy_ops import Form, numpy_form

# Fewest rows of data that are divided, rows of a block, and numbers of a result for a block.
FEWEST, _ROWS, _NUMBERS = 8192, 1024, 2**15
# Number of rows with which the axes are found, which no other axis has, and of points.
_TRIED, _POINTS = 1021, 2
# Largest number of parts of the rows, whose sums are added up in the end.
_PARTS = 64
# How results of reductions of parts of the rows are combined
_COMBINED: tuple[np.ufunc, ...] = (np.add, np.multiply, np.maximum, np.minimum)
_COMBINED += (np.logical_and, np.logical_or, np.bitwise_and, np.bitwise_or)
_ALL = (np.logical_and, np.bitwise_and)
# Operations that take checks of the rows of a block.
_ON_CHECKS = (Elemwise, DimShuffle, Join, CAReduce)


class _NotDividedError(Exception):
    """The rows cannot be divided."""


@dataclass(frozen=True, slots=True)
class _Pass:
    """Operations on whole arrays, and those on rows that follow."""

    whole: list[Operation]
    by_rows: list[Operation]
    results: list[int]  # places of what is combined


@dataclass(frozen=True, slots=True)
class RowProgram:
    """A program whose inputs are points and data, and whose results have no rows."""

    program: Program
    axes: Mapping[int, int | None]  # at each place that has rows, which axis counts them
    combined: Mapping[int, np.ufunc]  # at each place where rows are reduced, how
    n_rows: int
    n_numbers: int  # how many numbers the operations give for one point
    n_in_loops: int  # how many of these are made in loops of scalars
    width: int  # how many numbers the largest result of one row has
    passes: dict[int | None, list[_Pass]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        program: Program,
        points: Sequence[NDArray[Any]],
        data: Sequence[Any],
        n_densities: int = 2,
    ) -> "RowProgram | None":
        """Return a program by rows; None if its data are short, or it is not a sum over rows.

        The first results are densities, and the others are their gradients.
        """
        constants = [program.values[k] for k in _constants(program, len(points) + len(data))]
        lengths = [n for each in (*data, *constants) for n in np.shape(each)]
        n_rows = max(lengths, default=0)
        if n_rows < FEWEST or any(n_rows in each.shape for each in points):
            return None
        try:
            return _Trial(program, n_rows, n_densities).carried_out([*points, *data])
        except _NotDividedError:
            return None

    @property
    def n_points(self) -> int:
        """How many points are evaluated together."""
        return max(_NUMBERS // (_ROWS * self.width), 1)

    def __call__(self, *inputs: Any, n_results: int | None = None) -> list[Any]:
        """Return the outputs, or the first of them."""
        values = [*inputs, *self.program.values[len(inputs) :]]
        rows = _ROWS * max(self.n_points // max(len(inputs[0]), 1), 1)
        n_blocks = -(-self.n_rows // rows)
        ends = np.linspace(0, n_blocks, min(n_blocks, _PARTS) + 1).astype(int) * rows
        for each in self._passes(n_results):
            with np.errstate(all="ignore"):
                for step in each.whole:
                    step.write(values)
            if not each.by_rows:
                continue
            sums = np.empty(len(ends) - 1, object)
            work = _OnRows(each, self.axes, self.combined, values, rows, self.n_rows)
            over_rows(work, (ends[:-1], ends[1:]), (sums,))
            for k, place in enumerate(each.results):
                values[place] = self.combined[place].reduce([part[k] for part in sums], axis=0)
        return [values[place] for place in self.program.results[:n_results]]

    def _passes(self, n_results: int | None) -> list[_Pass]:
        """Return the passes that the first outputs need, or all outputs."""
        if n_results not in self.passes:
            steps = self.program.steps_for(n_results)
            self.passes[n_results] = _divided(steps, self.axes, self.combined)
        return self.passes[n_results]


@dataclass(frozen=True, slots=True)
class _OnRows:
    """Work on parts of the rows."""

    done: _Pass
    axes: Mapping[int, int | None]
    combined: Mapping[int, np.ufunc]
    values: list[Any]  # all data, and what was computed from the points
    rows: int
    n_rows: int

    def __call__(self, starts: NDArray[Any], ends: NDArray[Any], sums: NDArray[Any]) -> None:
        """Write what is combined of the rows of each part."""
        made = {place for step in self.done.by_rows for place in step.outputs}
        read = {place for step in self.done.by_rows for place in step.inputs} - made
        data = [(p, axis) for p in read if (axis := self.axes.get(p)) is not None]
        values = list(self.values)
        for part, (start, end) in enumerate(zip(starts, ends, strict=True)):
            total: list[Any] = []
            for first in range(start, min(end, self.n_rows), self.rows):
                for place, axis in data:
                    values[place] = _some(self.values[place], axis, first, first + self.rows)
                with np.errstate(all="ignore"):
                    for step in self.done.by_rows:
                        step.write(values)
                found = [values[place] for place in self.done.results]
                total = found if not total else self._added(total, found)
            sums[part] = total

    def _added(self, total: list[Any], found: list[Any]) -> list[Any]:
        how = [self.combined[place] for place in self.done.results]
        return [add(one, two) for add, one, two in zip(how, total, found, strict=True)]


def _some(array: NDArray[Any], axis: int, start: int, stop: int) -> NDArray[Any]:
    """Return some rows of an array; a single row is that of all."""
    if array.shape[axis] == 1:
        return array
    return array[(slice(None),) * axis + (slice(start, stop),)]


def _constants(program: Program, n_inputs: int) -> list[int]:
    """Return the places of arrays of constants."""
    values = enumerate(program.values)
    return [k for k, v in values if k >= n_inputs and isinstance(v, np.ndarray)]


def _divided(
    steps: Sequence[Operation], axes: Mapping[int, int | None], combined: Mapping[int, np.ufunc]
) -> list[_Pass]:
    """Return passes over the rows: what depends on a reduction of rows is done in a later one."""
    level = dict[int, int]()
    of_step = list[int]()
    for step in steps:
        of_step.append(max((level.get(place, 0) for place in step.inputs), default=0))
        for place in step.outputs:
            level[place] = of_step[-1] + (place in combined)
    passes = list[_Pass]()
    for k in range(max(of_step, default=0) + 1):
        mine = list(zip(steps, of_step, strict=True))
        whole = [s.freeing(()) for s, n in mine if n == k and not _has_rows(s, axes)]
        results = [p for s, n in mine if n == k for p in s.outputs if p in combined]
        needed, by_rows = set(results), list[Operation]()
        for step, _ in reversed(mine):
            if needed.intersection(step.outputs) and _has_rows(step, axes):
                by_rows.append(step)
                needed.update(place for place in step.inputs if place not in combined)
        passes.append(_Pass(whole, _freeing(by_rows[::-1], results), results))
    return passes


def _has_rows(step: Operation, axes: Mapping[int, int | None]) -> bool:
    """Return whether an operation is done for some rows at a time; lengths are those of all."""
    return not isinstance(step.node.op, Shape_i) and any(place in axes for place in step.inputs)


def _freeing(steps: list[Operation], kept: Sequence[int]) -> list[Operation]:
    """Return the same steps, each of which frees what is not read again."""
    made = {place for step in steps for place in step.outputs}
    last = {place: k for k, step in enumerate(steps) for place in step.inputs}
    free = [
        tuple(p for p in step.inputs if p in made and last[p] == k and p not in kept)
        for k, step in enumerate(steps)
    ]
    return [step.freeing(places) for step, places in zip(steps, free, strict=True)]


class _Trial:
    """Finds the axes of rows while a program is carried out for few rows and points."""

    def __init__(self, program: Program, n_rows: int, n_densities: int) -> None:
        self.program, self.n_rows = program, n_rows
        self.of_density = program.steps_for(n_densities)
        self.axes, self.combined = dict[int, int | None](), dict[int, np.ufunc]()
        self.steps, self.n_of_rows, self.n_whole = list[Operation](), 0, 0
        self.n_in_loops = 0
        self.width = 1
        self.values = list(program.values)  # for few rows
        self.whole = dict[int, Any]()  # arrays for all rows
        self.after_rows = set[int]()  # places of sums over rows, and of what depends on these

    def carried_out(self, inputs: Sequence[Any]) -> RowProgram:
        """Return the program by rows."""
        self.values[: len(inputs)] = inputs
        for place, value in enumerate(self.values):
            if isinstance(value, np.ndarray):
                self._seen(place, value)
        with np.errstate(all="ignore"):
            for step in self.program.steps:
                self._done(step)
        results = self.program.results
        if any(place in self.axes for place in results) or not self.combined:
            raise _NotDividedError
        of_rows, in_loops = (
            n * self.n_rows // (_TRIED * _POINTS) for n in (self.n_of_rows, self.n_in_loops)
        )
        n_numbers = of_rows + self.n_whole // _POINTS
        values = [*self.program.values, *[None] * (len(self.values) - len(self.program.values))]
        program = Program(values, self.steps, results)
        return RowProgram(
            program, self.axes, self.combined, self.n_rows, n_numbers, in_loops, self.width
        )

    def _seen(self, place: int, value: Any) -> None:
        """Note the rows of an array that is read, or computed once for all rows."""
        axes = [k for k, n in enumerate(np.shape(value)) if n == self.n_rows]
        if not axes:
            return
        if len(axes) > 1:
            raise _NotDividedError
        self.axes[place], self.whole[place] = axes[0], value
        self.values[place] = _some(value, axes[0], 0, _TRIED)

    def _done(self, step: Operation) -> None:
        """Carry out a step, and note the rows of its results."""
        if not _has_rows(step, self.axes):
            self._done_once(self._without_shape(step))
            return
        how, function, shape = self._how(step), None, np.shape(self.values[step.inputs[0]])
        if isinstance(how, tuple):
            how, function = how
        if how is None:
            raise _NotDividedError
        step = step if function is None else replace(step, function=function)
        self._carry_out(step)
        for place in step.outputs:
            value = self.values[place]
            self.n_of_rows += np.size(value)
            self.n_in_loops += step.in_loop * np.size(value)
            axes = [k for k, n in enumerate(np.shape(value)) if n == _TRIED]
            if len(axes) != (how is True):
                raise _NotDividedError
            if isinstance(how, np.ufunc):
                self.combined[place] = how
                self.after_rows.add(place)
                continue
            self.axes[place] = axes[0] if how is True else None
            self.width = max(self.width, np.size(value) // (_TRIED * _POINTS))
        if how is np.add and isinstance(step.node.op, AdvancedIncSubtensor):
            self._add_base(step, shape[1:])

    def _done_once(self, step: Operation) -> None:
        """Carry out a step that reads no rows, but lengths of arrays."""
        if isinstance(step.node.op, Shape_i) and step.inputs[0] in self.axes:
            if step.inputs[0] not in self.whole:
                raise _NotDividedError
            self.steps.append(step)
            self.values[step.outputs[0]] = step.function(self.whole[step.inputs[0]])
            return
        self._carry_out(step)
        for place in step.outputs:
            value = self.values[place]
            self.n_whole += np.size(value)
            self._seen(place, value)
            if place in self.whole and value.shape[0] == _POINTS and all(value.strides):
                raise _NotDividedError  # numbers of each point and row, which are too many

    def _carry_out(self, step: Operation) -> None:
        self.steps.append(step)
        if not self.after_rows.isdisjoint(step.inputs):
            self.after_rows.update(step.outputs)
        try:
            step.write(self.values)
        except Exception as error:  # an operation that expects all rows may raise anything
            raise _NotDividedError from error

    def _add_base(self, step: Operation, shape: tuple[int, ...]) -> None:
        """Let rows be added to zeros, and these to the array that they were added to."""
        (base, *others), (place,) = step.inputs, step.outputs
        add, new = step.function, len(self.values)
        self.values.append(None)
        self.steps[-1] = replace(
            step,
            function=lambda y, *index: add(np.zeros((len(y), *shape)), y, *index),
            inputs=tuple(others),
            outputs=(new,),
        )
        self.steps.append(replace(step, function=np.add, inputs=(base, new)))
        self.combined[new] = self.combined.pop(place)

    def _how(self, step: Operation) -> "_How":
        """Return whether a step treats each row alone, or how it combines them."""
        op, places = step.node.op, step.inputs
        asked = _Step(
            step.node,
            op.core_op if isinstance(op, Blockwise) else op,
            [self.axes.get(place) for place in places],
            [self.values[place] for place in places],
            [self.whole.get(place) for place in places],
            [self.axes.get(place, 0) is None for place in places],
            step in self.of_density,
        )
        if isinstance(asked.op, Reshape):
            return _of_reshaped(asked, self.n_rows)
        if any(asked.of_block) and not isinstance(asked.op, _ON_CHECKS):
            return None
        rules = (rule for kind, rule in _RULES if isinstance(asked.op, kind))
        return next(rules, _of_batch)(asked)

    def _without_shape(self, step: Operation) -> Operation:
        """Return a step that need not wait for a sum over rows of which it reads the shape."""
        if isinstance(getattr(step.node.op, "scalar_op", None), Second):
            like, x = step.inputs
            same = np.shape(self.values[like])[1:] == np.shape(self.values[x])[1:]
            if like in self.after_rows and same:
                return replace(step, function=lambda x: x, inputs=(x,))
        return step


# what an operation does with rows, by its class ---------------------------------------------------

# Whether each row is treated alone (True), or the function that combines all, or whether there is a
# result for each block (False); None if nothing is known. With it, another form of the operation.
type _Kind = bool | np.ufunc | None
type _How = _Kind | tuple[_Kind, Form]


@dataclass(frozen=True, slots=True)
class _Step:
    """An operation, which axes of its inputs count rows, and their values."""

    node: Any
    op: Any  # that of each of a batch
    at: list[int | None]
    values: list[Any]
    whole: list[Any]  # the values for all rows, of arrays that are read
    of_block: list[bool]  # which inputs are results for a block
    in_density: bool  # whether a value depends on it, and not a gradient alone

    @property
    def n_batch(self) -> int:
        """Number of axes of a batch."""
        return self.node.op.batch_ndim(self.node) if isinstance(self.node.op, Blockwise) else 0


def _of_elements(step: _Step) -> _How:
    """Return how of an elementwise operation.

    Where a check of all rows makes a density impossible, one of the rows of a block suffices: the
    sum over all rows is minus infinity too. Any other use of it needs all rows.
    """
    n_axes = len({axis for axis in step.at if axis is not None})
    if any(step.of_block):
        scalar = getattr(step.op, "scalar_op", None)
        only_decides = isinstance(scalar, Switch) and not any(step.of_block[1:])
        if only_decides and step.in_density:
            only_decides = bool(np.all(step.values[2] == -np.inf))
        if not (only_decides or (isinstance(scalar, AND) and not n_axes)):
            return None
    return n_axes == 1 if n_axes < 2 else None


def _of_shuffled(step: _Step) -> _How:
    return step.of_block == [False] if step.at[0] in step.op.new_order or step.of_block[0] else None


def _of_reduced(step: _Step) -> _How:
    if any(step.of_block):
        return False if step.op.ufunc in _ALL else None
    if step.op.axis is not None and step.at[0] not in step.op.axis:
        return True
    if step.op.ufunc in _ALL:
        return False
    return step.op.ufunc if step.op.ufunc in _COMBINED else None


def _of_product(step: _Step) -> _How:
    a, b = (value.ndim for value in step.values)
    contracted = a - 1, max(b - 2, 0)
    if tuple(step.at) == contracted:
        return np.add
    return True if all(map(ne, step.at, contracted)) else None


def _of_softmax(step: _Step) -> _How:
    return True if step.op.axis is not None and step.at[0] not in step.op.axis else None


def _of_joined(step: _Step) -> _How:
    """Return how of arrays of rows that are joined or divided along another axis."""
    if any(step.of_block):
        return False if all(axis is None for axis in step.at) else None
    arrays = step.at if isinstance(step.op, Join) else step.at[:1]
    return True if len(set(arrays)) == 1 and arrays[0] != step.n_batch + step.op.axis else None


def _of_reshaped(step: _Step, n_rows: int) -> _How:
    """Return the form that leaves as many rows as there are."""
    if step.at != [0, None] or step.values[1][0] not in (-1, n_rows):
        return None
    return True, lambda x, shape: x.reshape((len(x), *map(int, shape[1:])))


def _of_part(step: _Step) -> _How:
    """Return how of a part of each row, which is read or changed."""
    axis, *others = step.at
    new = others[: isinstance(step.op, IncSubtensor)]
    if axis is None or any(other is not None for other in others[len(new) :]):
        return None
    return True if step.op.idx_list[axis : axis + 1] in ((), (slice(None),)) else None


def _of_chosen(step: _Step) -> _How:
    """Return how of rows that take elements of an array without rows, or each of its own row."""
    return True if step.at[0] is None else _of_own_row(step, 1)


def _of_incremented(step: _Step) -> _How:
    """Return how of rows that are added to elements of an array, or each to its own row."""
    if step.at[0] is not None:
        return _of_own_row(step, 2)
    is_sum = not step.op.set_instead_of_inc and step.n_batch == 0
    return np.add if is_sum and step.values[1].shape[:1] == (_POINTS,) else None


def _of_own_row(step: _Step, n_arrays: int) -> _How:
    """Return the form of indices of which one is the number of each row."""
    axis, entries = step.at[0], step.op.idx_list
    if step.n_batch or axis is None or axis >= len(entries) or not isinstance(entries[axis], int):
        return None
    position = n_arrays + entries[axis]
    numbers, usual = step.whole[position], numpy_form(step.node.op, step.node)
    if numbers is None or not np.array_equal(numbers.ravel(), np.arange(numbers.size)):
        return None

    def form(x: NDArray[Any], *inputs: Any) -> Any:
        given = list(inputs)
        own = given[position - 1]
        given[position - 1] = np.arange(own.size).reshape(own.shape)
        return usual(x, *given)

    return True, form


def _of_batch(step: _Step) -> _How:
    """Return whether an operation treats each row as one of a batch."""
    axes = {axis for axis in step.at if axis is not None}
    return True if len(axes) == 1 and max(axes) < step.n_batch else None


_RULES: tuple[tuple[Any, Callable[[_Step], _How]], ...] = (
    (Elemwise | SpecifyShape, _of_elements),
    (DimShuffle, _of_shuffled),
    (CAReduce, _of_reduced),
    (Dot, _of_product),
    (Softmax | LogSoftmax, _of_softmax),
    (Join | Split, _of_joined),
    (Subtensor | IncSubtensor, _of_part),
    (AdvancedSubtensor, _of_chosen),
    (AdvancedIncSubtensor, _of_incremented),
)
