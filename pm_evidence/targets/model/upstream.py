"""What PyMC and PyTensor get wrong, mended: ``pm.CAR``, and indices outside of their arrays."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.multivariate import CARRV
from pymc.pytensorf import constant_fold
from pytensor.compile.mode import Mode
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors, io_toposort
from pytensor.raise_op import Assert
from pytensor.scalar.basic import Clip, ScalarType
from pytensor.scan.op import Scan
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.linalg import cholesky, solve_triangular
from pytensor.tensor.random.type import RandomGeneratorType
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
    indices_from_subtensor,
)
from pytensor.tensor.type import TensorType
from pytensor.tensor.type_other import NoneTypeT

from pm_evidence.core.exceptions import ModelError
from pm_evidence.targets.compile.rewrite import loop_with, rewrite


def missing_constant(model: pm.Model, rvs: Iterable[Variable]) -> Variable | None:
    """Return the constant that is missing in the log density of some variables, in nats."""
    terms = []
    for rv in rvs:
        if not isinstance(rv.owner.op, CARRV):
            continue
        _, _, _, w, *_ = rv.owner.inputs
        degrees = _dense(w).sum(axis=0)
        value = model.rvs_to_values[rv]
        n_vectors = value.size / value.shape[-1]
        each = 0.5 * pt.log(degrees).sum() - 0.5 * np.log(2 * np.pi) * degrees.shape[0]
        terms.append(n_vectors * each)
    return sum(model.replace_rvs_by_values(terms)) if terms else None


def with_exact_car(graphs: Sequence[Variable]) -> list[Variable]:
    """Return graphs in which every CAR is drawn exactly."""
    return rewrite(graphs, _exactly)


def _exactly(node: Any, inputs: list[Variable]) -> tuple[Variable, Variable] | None:
    if not isinstance(node.op, CARRV):
        return None
    *parameters, _ = inputs  # the last says whether W is valid
    successor, draw = _draw(*parameters)
    return successor, node.outputs[1].type.filter_variable(draw, allow_convert=True)


def _draw(
    rng: Variable, size: Variable, mu: Variable, w: Variable, alpha: Variable, tau: Variable
) -> tuple[Variable, Variable]:
    """Return the next generator, and ``mu + L^-T z`` where ``L L^T`` is the precision."""
    w = _dense(w)
    alpha, tau = (pt.squeeze(v) for v in (alpha, tau))
    factor = cholesky(tau * (pt.diag(w.sum(axis=0)) - alpha * w))
    implied = isinstance(size.type, NoneTypeT)
    shape = mu.shape if implied else pt.concatenate([size, mu.shape[-1:]])
    successor, z = pt.random.normal(size=shape, rng=rng, return_next_rng=True)
    rows = z.reshape((-1, mu.shape[-1]))
    solved = solve_triangular(factor.T, rows.T, lower=False).T
    return successor, mu + solved.reshape(shape)


def _dense(w: Variable) -> Variable:
    if not isinstance(w.type, TensorType):
        from pytensor.sparse import dense_from_sparse  # imports SciPy's sparse matrices

        w = dense_from_sparse(w)
    w = pt.cast(w, "float64")
    return w.reshape(w.shape[-2:]) if w.type.ndim > 2 else w


_INDEXING = (Subtensor, AdvancedSubtensor, IncSubtensor, AdvancedIncSubtensor)
_IN_PYTHON = Mode("py", None)


@dataclass(frozen=True)
class Guard:
    """An index that depends on the variables of a model."""

    index: Variable  # the index
    length: Variable  # length of the array along the axis
    inside: Variable  # whether all entries of ``index`` lie inside, a truth value
    array: str  # description of the array that is indexed

    def why(self, inputs: Sequence[Variable], values: Sequence[NDArray[np.float64]]) -> str | None:
        """Return the error of the index at these values of the inputs; None if it is valid."""
        function = pytensor.function(
            list(inputs), [self.index, self.length], mode="FAST_COMPILE", on_unused_input="ignore"
        )
        index, length = function(*values)
        return _problem(np.asarray(index), int(length), self.array, _name(self.index))


@dataclass(frozen=True)
class _Indexing:
    """One index of one operation, and where it belongs."""

    node: Any
    position: int  # among the inputs of the operation
    axis: int
    array: Variable
    index: Variable
    data: Mapping[Variable, Variable] = field(default_factory=dict)

    def known_index(self) -> NDArray[Any] | None:
        known = _known(self.index, self.data)
        if known is None and _uses_shapes(self.index):  # shapes may be known if values are not
            (folded,) = constant_fold([_as_tensor(self.index)], raise_not_constant=False)
            known = None if isinstance(folded, Variable) else np.asarray(folded)
        return known

    def known_length(self) -> int | None:
        length = self.array.type.shape[self.axis]
        if length is not None:
            return int(length)
        known = _known(self.array, self.data)
        if known is not None:
            return int(known.shape[self.axis])
        shared = [
            v
            for v in ancestors([self.array])
            if isinstance(v, SharedVariable) and not isinstance(v.type, RandomGeneratorType)
        ]
        constants = {v: pt.constant(v.get_value(), dtype=v.type.dtype) for v in shared}
        constants.update(self.data)
        graph = clone_replace([self.array.shape[self.axis]], constants, rebuild_strict=False)
        (found,) = constant_fold(graph, raise_not_constant=False)
        return None if isinstance(found, Variable) else int(found)

    def length(self) -> Variable:
        known = self.known_length()
        return self.array.shape[self.axis] if known is None else pt.constant(known, dtype="int64")


def check_known_indices(
    graphs: Sequence[Variable], data: Mapping[Variable, Variable] | None = None
) -> None:
    """Refuse indices outside of their arrays, as far as both are known before sampling."""
    data = data or {}
    for node in io_toposort([], list(graphs)):
        for indexing in _of_node(node, node.inputs, data):
            _check_known(indexing)


def with_guarded_indices(graphs: Sequence[Variable]) -> tuple[list[Variable], list[Guard]]:
    """Return log densities that are NaN where an index lies outside of its array.

    A log density of minus infinity is kept: its point is impossible for another reason.
    """
    graphs, guards, conditions = list(graphs), [], {}

    def keep_inside(indexing: _Indexing) -> Variable:
        index = _as_tensor(indexing.index)
        length = indexing.length()
        inside = ((index >= -length) & (index < length)).all()
        guard = Guard(index, length, inside, _name(indexing.array))
        guards.append(guard)
        clipped = pt.cast(pt.clip(index, -length, length - 1), "int64")
        conditions[clipped] = inside
        return clipped

    replaced = _replace_indices(graphs, keep_inside)
    result = []
    for graph in replaced:
        own = [conditions[v] for v in ancestors([graph]) if v in conditions]
        if own:
            fine = pt.all(pt.stack(own)) | pt.eq(graph, -np.inf)
            graph = pt.switch(fine, graph, np.nan)
        result.append(graph)
    return result, guards


def with_asserted_indices(graphs: Sequence[Variable]) -> list[Variable]:
    """Return graphs that raise an ``AssertionError`` if an index lies outside of its array."""

    def insist(indexing: _Indexing) -> Variable:
        index = _as_tensor(indexing.index)
        length = indexing.length()
        inside = ((index >= -length) & (index < length)).all()
        what = f"an index of {_name(indexing.array)} must lie inside of it"
        return Assert(what)(index, inside)

    return _replace_indices(list(graphs), insist)


def _replace_indices(
    graphs: Sequence[Variable], make: Callable[[_Indexing], Variable]
) -> list[Variable]:
    """Return graphs in which ``make`` has replaced the indices that are not known or bounded."""
    made: dict[tuple[Variable, Variable, int], Variable] = {}

    def bounded(node: Any, inputs: list[Variable]) -> Sequence[Variable] | None:
        if isinstance(node.op, Scan):
            op = loop_with(with_asserted_indices, node.op)
            return None if op is node.op else op.make_node(*inputs).outputs
        for indexing in _of_node(node, inputs):
            if _check_known(indexing) or _is_bounded(indexing):
                continue
            key = indexing.index, indexing.array, indexing.axis
            if key not in made:
                made[key] = make(indexing)
            new = made[key]
            if isinstance(indexing.index.type, ScalarType):
                new = pt.scalar_from_tensor(new)
            new.tag.in_range = True
            inputs[indexing.position] = new
        return None

    return rewrite(graphs, bounded)


def _of_node(
    node: Any, inputs: Sequence[Variable], data: Mapping[Variable, Variable] | None = None
) -> Iterator[_Indexing]:
    if not isinstance(node.op, _INDEXING):
        return
    first = 2 if isinstance(node.op, IncSubtensor | AdvancedIncSubtensor) else 1
    axis = 0
    entries = indices_from_subtensor(inputs[first:], node.op.idx_list)
    for entry, place in zip(entries, node.op.idx_list, strict=True):
        if isinstance(entry, Variable):
            yield _Indexing(node, first + place, axis, inputs[0], entry, data or {})
            is_mask = entry.type.dtype == "bool"
            axis += entry.type.ndim if is_mask else 1
        elif entry is not None:
            axis += 1


def _check_known(indexing: _Indexing) -> bool:
    """Return whether an index is known and valid; raise an error if it is known and invalid."""
    if indexing.index.type.dtype == "bool":
        return _check_mask(indexing)
    index = indexing.known_index()
    length = None if index is None else indexing.known_length()
    if index is None or length is None:
        return False
    problem = _problem(index, length, _name(indexing.array), _name(indexing.index))
    if problem is not None:
        raise ModelError(problem)
    return True


def _check_mask(indexing: _Indexing) -> bool:
    mask = indexing.index
    for k in range(mask.type.ndim):
        length = replace(indexing, axis=indexing.axis + k).known_length()
        own = replace(indexing, axis=k, array=mask).known_length()
        if length is not None and own is not None and length != own:
            raise ModelError(
                f"a mask must have the shape of the array that it selects from, but {_name(mask)} "
                f"has length {own} along axis {k}, where {_name(indexing.array)} has {length}. "
                "Correct one of them."
            )
    return True


def _problem(index: NDArray[Any], length: int, array: str, name: str) -> str | None:
    bad = np.argwhere((index < -length) | (index >= length))
    if not len(bad):
        return None
    where = bad[0].tolist()
    at = f" at position {where[0] if len(where) == 1 else tuple(where)}" if where else ""
    return (
        f"indices of {array} must lie between {-length} and {length - 1}, as its length along that "
        f"axis is {length}, got {index[tuple(bad[0])]}{at} of {name}. Indices count from 0, as in "
        "NumPy: subtract 1 from indices that count from 1."
    )


def _known(variable: Variable, data: Mapping[Variable, Variable]) -> NDArray[Any] | None:
    """Return the value of a variable that depends on constants and data alone."""
    if isinstance(variable, Constant):
        return np.asarray(variable.data)
    if isinstance(variable, SharedVariable) and not isinstance(variable.type, RandomGeneratorType):
        return np.asarray(variable.get_value())
    for v in ancestors([variable], blockers=data):
        if isinstance(v.type, RandomGeneratorType):
            return None
        if v.owner is None and v not in data and not isinstance(v, Constant | SharedVariable):
            return None
    try:
        (graph,) = clone_replace([variable], data, rebuild_strict=False)
        return np.asarray(pytensor.function([], graph, mode=_IN_PYTHON)())
    except (NotImplementedError, ValueError, TypeError):
        return None


def _uses_shapes(variable: Variable) -> bool:
    owners = (v.owner for v in ancestors([variable]) if v.owner is not None)
    return any(isinstance(node.op, Shape | Shape_i) for node in owners)


def _is_bounded(indexing: _Indexing) -> bool:
    """Return whether an index is bounded, by this module or by the user with constant bounds."""
    index = indexing.index
    if getattr(index.tag, "in_range", False):
        return True
    while index.owner is not None and len(index.owner.inputs) == 1:
        index = index.owner.inputs[0]  # a change of type or shape
    node = index.owner
    if node is None or not isinstance(node.op, Elemwise) or not isinstance(node.op.scalar_op, Clip):
        return False
    length = indexing.known_length()
    _, *bounds = node.inputs
    lower, upper = constant_fold(bounds, raise_not_constant=False)
    if length is None or isinstance(lower, Variable) or isinstance(upper, Variable):
        return False
    return bool(np.all(lower >= -length) and np.all(upper < length))


def _as_tensor(index: Variable) -> Variable:
    if isinstance(index.type, ScalarType):
        index = pt.tensor_from_scalar(index)
    return pt.cast(index, "int64") if index.type.dtype != "int64" else index


def _name(variable: Variable) -> str:
    """Return the name of a variable, or of what it is made from."""
    if isinstance(variable, Constant) and not variable.name:
        return f"the constant {np.array2string(np.asarray(variable.data), threshold=6)}"
    nearest = variable
    while not nearest.name and nearest.owner is not None and len(nearest.owner.inputs) == 1:
        nearest = nearest.owner.inputs[0]
    if nearest.name:
        return repr(nearest.name)
    names = [v.name for v in ancestors([variable]) if v.name and v.owner is not None]
    return f"an array computed from {', '.join(map(repr, names[:3]))}" if names else "an array"
