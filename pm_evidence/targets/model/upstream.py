"""What PyMC and PyTensor get wrong, mended here until it is mended there.

Every section says what is wrong, as seen in PyMC 6.4 and PyTensor 3.3; docs/upstream.md has the
reports, and ``tests/targets/model/test_upstream.py`` fails when one of them is no longer true. What
rounds in draws and densities of gamma, beta and Dirichlet variables is mended in ``log_scale``.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, nan
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions import distribution, multivariate, shape_utils, transforms
from pymc.distributions.multivariate import CARRV
from pymc.logprob import abstract
from pymc.pytensorf import constant_fold
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors, io_toposort
from pytensor.raise_op import Assert
from pytensor.scalar.basic import Cast, ScalarType
from pytensor.scan.op import Scan
from pytensor.tensor.basic import MakeVector
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.linalg import matrix_inverse
from pytensor.tensor.math import Prod, Sum
from pytensor.tensor.random.basic import multivariate_normal
from pytensor.tensor.random.type import RandomGeneratorType
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
    indices_from_subtensor,
)
from pytensor.tensor.type import TensorType

from pm_evidence.core.codegen.numba import njit
from pm_evidence.core.exceptions import ModelError
from pm_evidence.targets.compile.rewrite import loop_with, rewrite

# What is private in PyMC, under names of ours.
default_transform = transforms._default_transform
LKJCholeskyCovRV = multivariate._LKJCholeskyCovRV
log_densities, log_distribution_functions = abstract._logprob, abstract._logcdf
support_points = distribution._support_point
sizes_of_distributions = shape_utils._change_dist_size

_INDEXING = (Subtensor, AdvancedSubtensor, IncSubtensor, AdvancedIncSubtensor)
# From here on the asymptotic series of the trigamma function is exact to rounding.
_LARGE = 15.0


def priors_as_text(model: pm.Model) -> list[str]:
    """Return the distributions of the free variables as PyMC prints them."""
    return [rv.str_repr(formatting="plain") for rv in model.free_RVs]


def name_of_distribution(distribution: Any) -> str:
    """Return the name under which PyMC prints a distribution."""
    op = distribution.owner.op
    return str(getattr(op, "_print_name", (str(op),))[0])


def shape_of_draw(op: Any, size: Any, parameters: Sequence[Variable]) -> Any:
    """Return the shape of a draw as graphs of its lengths."""
    return op._infer_shape(size, parameters)


def function_by_row(op: Any, node: Any) -> Any:
    """Return the function in Python that an operation on batches applies to each of them."""
    return op._create_node_gufunc(node, impl="py")


# 1. pm.CAR lacks a constant in its density, and draws from another covariance ---------------------
#
# ``pm.logp`` of a CAR omits ``sum(log(W.sum(0))) / 2 - n log(2 pi) / 2``; its draws have not the
# covariance ``inv(tau (diag(W.sum(0)) - alpha W))``.


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
    rng, size, mu, w, alpha, tau, _ = inputs  # the last says whether W is valid
    w, alpha, tau = _dense(w), pt.squeeze(alpha), pt.squeeze(tau)
    covariance = matrix_inverse(tau * (pt.diag(w.sum(axis=0)) - alpha * w))
    successor, draw = multivariate_normal.make_node(rng, size, mu, covariance).outputs
    return successor, node.outputs[1].type.filter_variable(draw, allow_convert=True)


def _dense(w: Variable) -> Variable:
    if not isinstance(w.type, TensorType):
        from pytensor.sparse import dense_from_sparse  # imports SciPy's sparse matrices

        w = dense_from_sparse(w)
    w = pt.cast(w, "float64")
    return w.reshape(w.shape[-2:]) if w.type.ndim > 2 else w


# 2. PyTensor computes with literals in single precision -------------------------------------------
#
# Python numbers become int8 or float32 constants, of which logarithms are taken in float32: an
# error of 3e-3 nats after 1e5 observations.


def in_double_precision(outputs: Sequence[Variable]) -> list[Variable]:
    """Return the graphs with elementwise float operations, and sums of them, done in float64."""
    return rewrite(outputs, _in_double)


def _in_double(node: Any, inputs: list[Variable]) -> list[Variable] | None:
    """Return a node's outputs computed in float64, or None if nothing has to change."""
    if not _is_single_precision(node):
        return None
    # pm.CAR sums a scalar over an axis: PyTensor fails to compute that in advance, and logs it
    if isinstance(node.op, Sum | Prod) and inputs[0].type.ndim == 0:
        return [pt.cast(inputs[0], "float64")]
    doubles = [v if v.type.dtype in ("bool", "float64") else pt.cast(v, "float64") for v in inputs]
    if all(new is old for new, old in zip(doubles, node.inputs, strict=True)):
        return None
    # these operations would round their result to single precision again
    if isinstance(node.op, Sum | Prod):
        return node.op.clone(dtype="float64", acc_dtype="float64").make_node(*doubles).outputs
    if isinstance(node.op, MakeVector):
        return MakeVector("float64").make_node(*doubles).outputs
    return node.clone_with_new_inputs(doubles, strict=False).outputs


def _is_single_precision(node: Any) -> bool:
    if isinstance(node.op, Elemwise):
        if isinstance(node.op.scalar_op, Cast):  # the user's own choice
            return False
    elif not isinstance(node.op, Sum | Prod | MakeVector):
        return False
    return any(out.type.dtype in ("float16", "float32") for out in node.outputs)


# 3. Compiled code reads beyond the end of an array ------------------------------------------------
#
# PyTensor's numba code does not check vectors of indices: the usual mistake of counting from 1
# gives whatever lies in memory there, and a wrong evidence without an error.


@dataclass(frozen=True)
class Guard:
    """An index that depends on the variables of a model."""

    index: Variable  # the index
    length: Variable  # length of the array along the axis
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

    position: int  # among the inputs of the operation
    axis: int
    array: Variable
    index: Variable
    data: Mapping[Variable, Variable]

    def known_length(self) -> int | None:
        known = self.array.type.shape[self.axis]
        if known is None:
            known = _folded(self.array.shape[self.axis], self.data)
        return None if known is None else int(known)

    def is_known(self) -> bool:
        """Return whether the index is known and valid; raise ModelError if it is not valid."""
        if self.index.type.dtype == "bool":
            return True
        index = _folded(_as_tensor(self.index), self.data)
        length = None if index is None else self.known_length()
        if index is None or length is None:
            return False
        problem = _problem(index, length, _name(self.array), _name(self.index))
        if problem is not None:
            raise ModelError(problem)
        return True

    def condition(self) -> tuple[Variable, Variable, Variable]:
        """Return the index, the length of the array, and whether the index lies inside."""
        known, index = self.known_length(), _as_tensor(self.index)
        length = self.array.shape[self.axis] if known is None else pt.constant(known, dtype="int64")
        return index, length, ((index >= -length) & (index < length)).all()


def check_known_indices(
    graphs: Sequence[Variable], data: Mapping[Variable, Variable] | None = None
) -> None:
    """Refuse indices outside of their arrays, as far as both are known before sampling."""
    for node in io_toposort([], list(graphs)):
        for indexing in _indices_of(node, node.inputs, data or {}):
            indexing.is_known()


def with_guarded_indices(graphs: Sequence[Variable]) -> tuple[list[Variable], list[Guard]]:
    """Return log densities that are NaN where an index lies outside of its array.

    A log density of minus infinity is kept: its point is impossible for another reason.
    """
    guards, conditions = list[Guard](), dict[Variable, Variable]()

    def keep_inside(indexing: _Indexing) -> Variable:
        index, length, inside = indexing.condition()
        guards.append(Guard(index, length, _name(indexing.array)))
        clipped = pt.cast(pt.clip(index, -length, length - 1), "int64")
        conditions[clipped] = inside
        return clipped

    result = []
    for graph in _with_indices(graphs, keep_inside):
        own = [conditions[v] for v in ancestors([graph]) if v in conditions]
        if own:
            fine = pt.all(pt.stack(own)) | pt.eq(graph, -np.inf)
            graph = pt.switch(fine, graph, np.nan)
        result.append(graph)
    return result, guards


def with_asserted_indices(graphs: Sequence[Variable]) -> list[Variable]:
    """Return graphs that raise an ``AssertionError`` if an index lies outside of its array."""

    def insist(indexing: _Indexing) -> Variable:
        index, _, inside = indexing.condition()
        return Assert(f"an index of {_name(indexing.array)} must lie inside of it")(index, inside)

    return _with_indices(graphs, insist)


def _with_indices(
    graphs: Sequence[Variable], make: Callable[[_Indexing], Variable]
) -> list[Variable]:
    """Return graphs in which ``make`` has replaced the indices that are not known."""
    made: dict[tuple[Variable, Variable, int], Variable] = {}

    def bounded(node: Any, inputs: list[Variable]) -> Sequence[Variable] | None:
        if isinstance(node.op, Scan):
            op = loop_with(with_asserted_indices, node.op)
            return None if op is node.op else op.make_node(*inputs).outputs
        for indexing in _indices_of(node, inputs, {}):
            if indexing.is_known():
                continue
            key = indexing.index, indexing.array, indexing.axis
            if key not in made:
                made[key] = make(indexing)
            new = made[key]
            if isinstance(indexing.index.type, ScalarType):
                new = pt.scalar_from_tensor(new)
            inputs[indexing.position] = new
        return None

    return rewrite(graphs, bounded)


def _indices_of(
    node: Any, inputs: Sequence[Variable], data: Mapping[Variable, Variable]
) -> Iterator[_Indexing]:
    if not isinstance(node.op, _INDEXING):
        return
    first = 2 if isinstance(node.op, IncSubtensor | AdvancedIncSubtensor) else 1
    axis = 0
    entries = indices_from_subtensor(inputs[first:], node.op.idx_list)
    for entry, place in zip(entries, node.op.idx_list, strict=True):
        if isinstance(entry, Variable):
            yield _Indexing(first + place, axis, inputs[0], entry, data)
            axis += entry.type.ndim if entry.type.dtype == "bool" else 1
        elif entry is not None:
            axis += 1


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


def _folded(graph: Any, data: Mapping[Variable, Variable] | None = None) -> NDArray[Any] | None:
    """Return the value of a graph that depends on constants and data alone; otherwise None."""
    if isinstance(graph, Constant):
        return np.asarray(graph.data)
    shared = {
        v: pt.constant(v.get_value(), dtype=v.type.dtype)
        for v in ancestors([graph])
        if isinstance(v, SharedVariable) and not isinstance(v.type, RandomGeneratorType)
    }
    (graph,) = clone_replace([graph], {**shared, **(data or {})}, rebuild_strict=False)
    (found,) = constant_fold([graph], raise_not_constant=False)
    return None if isinstance(found, Variable) else np.asarray(found)


def _as_tensor(index: Variable) -> Variable:
    if isinstance(index, Constant) and isinstance(index.type, ScalarType):
        return pt.constant(int(index.data), dtype="int64")
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


# 4. PyTensor's numba backend has no trigamma function ---------------------------------------------
#
# Second derivatives of ``gammaln`` run in Python, under its lock, with a warning.


@njit(cache=False)
def trigamma(x: float) -> float:
    """Return the second derivative of ``log G(x)`` for a positive number."""
    if not x > 0.0:
        return inf if x == 0.0 else nan
    below = 0.0
    while x < _LARGE:
        below += 1.0 / (x * x)
        x += 1.0
    inverse = 1.0 / x
    square = inverse * inverse
    series = 1 / 42 - square * (1 / 30 - square * (5 / 66 - square * (691 / 2730)))
    series = 1 / 6 - square * (1 / 30 - square * series)
    return below + inverse * (1.0 + inverse * (0.5 + inverse * series))
