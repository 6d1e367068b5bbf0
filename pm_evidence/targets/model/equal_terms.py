"""Terms of a log density that are equal but for their numbers, as one term of an array.

A model that is written as a loop has a term for each turn. Evaluated one by one they take a
thousand operations; stacked they take those of a single term, and their elements are seen to be
elements of one array.
"""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.traversal import toposort
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

# Fewest equal terms that are stacked. Fewer cost little, and small models keep their last digits.
FEWEST = 8


class _DifferError(Exception):
    """Terms differ in more than numbers."""


def joined(terms: Sequence[Variable]) -> list[Variable]:
    """Return arrays with the elements of all terms: one array for many equal terms."""
    groups = defaultdict[int, list[int]](list)
    for index, operations in enumerate(_operations(terms)):
        groups[operations].append(index)
    arrays = dict(enumerate(terms))
    for group in groups.values():
        if len(group) >= FEWEST:
            together = _stacked(tuple(terms[k] for k in group))
            if together is not None:
                arrays = {k: v for k, v in arrays.items() if k not in group}
                arrays[group[0]] = together
    return [arrays[k] for k in sorted(arrays)]


def _stacked(terms: tuple[Variable, ...]) -> Variable | None:
    """Return terms of the same operations as one; None where they differ in more than numbers.

    Terms that do not differ at all have no axis for them either, and remain as they are.
    """
    try:
        together = _Stack().of(terms)
    except (_DifferError, NotImplementedError, ValueError, TypeError, IndexError):
        return None
    return together if together.type.ndim == terms[0].type.ndim + 1 else None


def _operations(terms: Sequence[Variable]) -> list[int]:
    """Return a number for each term, which is the same for terms of the same operations."""
    numbers, found = dict[object, int](), dict[Variable, int]()

    def number(variable: Variable) -> int:
        if variable not in found:
            key = (variable.type, isinstance(variable, Constant))
            found[variable] = numbers.setdefault(key, len(numbers))
        return found[variable]

    for node in toposort(list(terms)):
        inputs = tuple(map(number, node.inputs))
        for k, output in enumerate(node.outputs):
            found[output] = numbers.setdefault((node.op, inputs, k), len(numbers))
    return [number(term) for term in terms]


class _Stack:
    """Variables of the same place in all terms, as one with a first axis for the terms.

    What all terms have in common stays as it is, without that axis.
    """

    def __init__(self) -> None:
        self._found = dict[tuple[Variable, ...], Variable]()

    def of(self, variables: tuple[Variable, ...]) -> Variable:
        """Return what stands in one place of all terms."""
        if variables not in self._found:
            self._found[variables] = self._new(variables)
        return self._found[variables]

    def _new(self, variables: tuple[Variable, ...]) -> Variable:
        first = variables[0]
        if _is_same(variables):
            return first
        if isinstance(first, Constant):
            if not hasattr(first.type, "shape"):  # a number that is no array
                raise _DifferError
            return pt.constant(np.stack([v.data for v in variables]))
        if first.owner is None:
            if None in getattr(first.type, "shape", (None,)):
                raise _DifferError
            return pt.stack(variables)
        nodes = [v.owner for v in variables]
        if not _has_a_stacked_form(first.owner.op):
            raise _DifferError
        columns = list(zip(*(node.inputs for node in nodes), strict=True))
        is_element = isinstance(first.owner.op, Subtensor | AdvancedSubtensor)
        if is_element and (taken := self._taken(first.owner, columns)) is not None:
            return taken
        old, new = first.owner.inputs, [self.of(column) for column in columns]
        # a variable may be the same for all terms in one place, and not in another
        places = [v if v is w else v.type() for v, w in zip(old, new, strict=True)]
        output = first.owner.clone_with_new_inputs(places).outputs[first.index]
        changed = {v: w for v, w in zip(places, new, strict=True) if v is not w}
        return vectorize_graph(output, changed) if changed else output

    def _taken(self, node: Apply, columns: list[tuple[Variable, ...]]) -> Variable | None:
        """Return elements at other places of the same array; None if the places are the same."""
        array, places = self.of(columns[0]), columns[1:]
        if all(map(_is_same, places)):
            return None
        entries = [entry for entry in node.op.idx_list if entry != slice(None)]
        from_first = entries == list(node.op.idx_list[: len(entries)])
        are_numbers = all(isinstance(entry, int) for entry in entries)
        if array is not node.inputs[0] or not (from_first and are_numbers):
            raise _DifferError
        if not all(isinstance(v, Constant) for column in places for v in column):
            raise _DifferError
        index = [np.stack([v.data for v in column]) for column in places]
        # flags choose elements in another way, and give arrays of any length
        if len({place.ndim for place in index}) > 1 or any(i.dtype == bool for i in index):
            raise _DifferError
        return array[tuple(index[entry] for entry in entries)]


def _has_a_stacked_form(op: Op) -> bool:
    """Return whether an operation is one on arrays: no loop, and not a user's own."""
    module = type(getattr(op, "core_op", op)).__module__
    return module.startswith(("pytensor.tensor.", "pytensor.raise_op", "pymc."))


def _is_same(variables: tuple[Variable, ...]) -> bool:
    """Return whether variables are one and the same, or constants of the same numbers."""
    first = variables[0]
    if all(v is first for v in variables):
        return True
    if not all(isinstance(v, Constant) for v in variables):
        return False
    return all(np.array_equal(first.data, v.data) for v in variables)
