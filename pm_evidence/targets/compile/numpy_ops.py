"""NumPy's forms of PyTensor's operations on batches of points.

PyTensor can carry out every operation in Python, but those that it knows no ufunc for run element
by element, and those on matrices row by row. This table holds faster forms of them, as PyTensor's
own tables do for numba and JAX. What is not in the table is done by the operation itself.
"""

from collections.abc import Callable, Sequence
from functools import reduce, singledispatch
from importlib import import_module
from math import prod
from threading import Lock
from typing import Any

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor.random.basic as ptr
import scipy
from numpy.typing import NDArray
from pytensor.graph.basic import Constant
from pytensor.scalar.basic import Cast, Clip, Composite, Identity, Second
from pytensor.scalar.loop import ScalarLoop
from pytensor.scalar.math import Log1mexp, Sigmoid, Softplus, TriGamma
from pytensor.tensor.basic import Alloc, AllocDiag, ExtractDiag, Join, Split
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.linalg import Cholesky, SolveTriangular
from pytensor.tensor.math import Dot
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.shape import Shape_i, SpecifyShape
from pytensor.tensor.sort import SortOp
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
    unflatten_index_variables,
)

from pm_evidence.targets.model.upstream import function_by_row

# Function of the values of an operation's inputs, which returns that of its output; if there are
# several outputs, a sequence.
type Form = Callable[..., Any]

# Triangular systems up to this size are solved for all points together, one row after the other;
# larger ones by LAPACK, one point after the other.
_SMALL = 32
# Axes up to this length are reduced by one operation for each index. They are the first in memory
# where an operation gives at least so many numbers for each point.
_FEW, _MANY = 8, 64


@singledispatch
def numpy_form(op: Any, node: Any) -> Form:
    """Return the function that carries out an operation on arrays."""

    def performed(*inputs: Any) -> Any:
        found: list[list[Any]] = [[None] for _ in node.outputs]
        op.perform(node, inputs, found)
        return [each[0] for each in found] if len(found) > 1 else found[0][0]

    return performed


# elementwise ------------------------------------------------------------------------------------


@numpy_form.register
def _elementwise(op: Elemwise, node: Any) -> Form:
    dtypes = [np.dtype(out.type.dtype) for out in node.outputs]
    function = _of_scalar(op.scalar_op, node)
    if len(dtypes) > 1:
        return lambda *inputs: list(map(np.asarray, function(*inputs), dtypes))
    (dtype,), shape = dtypes, node.outputs[0].type.shape
    n_axes = len(shape)
    first, back = (n_axes - 1, *range(n_axes - 1)), (*range(1, n_axes), 0)

    def usual(*inputs: Any) -> Any:
        return np.asarray(function(*inputs), dtype)

    def elementwise(*inputs: Any) -> Any:
        if _is_thin(inputs):
            moved = (np.ascontiguousarray(x.transpose(first)) for x in inputs)
            return np.asarray(function(*moved), dtype).transpose(back)
        return np.asarray(function(*inputs), dtype)

    may_be_thin = n_axes > 1 and (shape[-1] is None or 1 < shape[-1] <= _FEW)
    return elementwise if may_be_thin else usual


def _is_thin(inputs: Sequence[NDArray[Any]]) -> bool:
    """Return whether the last axis is short beside the others, as that of categories is.

    NumPy's inner loop is along the last axis. With such an axis as the first one in memory, an
    operation on three categories takes an eighth of the time.
    """
    n = max([x.shape[-1] for x in inputs])
    return 1 < n <= _FEW and n * max([prod(x.shape[1:-1]) for x in inputs]) >= _MANY


def _of_scalar(op: Any, node: Any) -> Callable[..., Any]:
    """Return the function of arrays that does what an operation on scalars does."""
    dtype = np.dtype(node.outputs[0].type.dtype)
    if isinstance(op, Composite):
        return _composed(op)
    if isinstance(op, ScalarLoop):
        return _looped(op)
    if isinstance(op, Cast):
        return lambda x: np.asarray(x).astype(dtype)
    if type(op) in _OF_SCALARS:
        return _OF_SCALARS[type(op)]
    spec = getattr(op, "nfunc_spec", None)
    if spec is None:
        return np.frompyfunc(op.impl, len(node.inputs), len(node.outputs))
    module, _, name = str(spec[0]).rpartition(".")
    ufunc: Callable[..., Any] = getattr(import_module(module or "numpy"), name)
    if len(node.inputs) != spec[1]:  # a sum or product of many terms
        return lambda *inputs: reduce(ufunc, inputs)
    if dtype.kind == "f" and any(v.type.dtype != dtype for v in node.inputs):
        # NumPy would compute with small integers in half precision
        return lambda *inputs: ufunc(*(_as(dtype, x) for x in inputs))
    return ufunc


def _looped(op: ScalarLoop) -> Callable[..., Any]:
    """Return the function of arrays for a loop, such as the series of a derivative of ``betainc``.

    A step is made for all numbers together whose loops have not ended.
    """
    step, n_carried = _composed(op), len(op.outputs) - op.is_while

    def looped(n_steps: Any, *inputs: Any) -> Any:
        most, *whole = np.broadcast_arrays(n_steps, *inputs)
        shape, most = most.shape, most.ravel()
        values = [
            np.asarray(x, kind.dtype).ravel() for x, kind in zip(whole, op.inputs, strict=True)
        ]
        results = [values[k].astype(out.dtype) for k, out in enumerate(op.outputs[:n_carried])]
        ended, left = np.zeros(most.size, bool), np.arange(most.size)
        for done in range(int(most.max(initial=0))):
            goes_on = (most[left] > done) & ~ended[left]
            if not goes_on.all():
                left = left[goes_on]
                values = [x[goes_on] for x in values]
            if not left.size:
                break
            found = step(*values)
            found = found if isinstance(found, list) else [found]
            values[:n_carried] = [np.broadcast_to(x, left.shape) for x in found[:n_carried]]
            for result, value in zip(results, values, strict=False):
                result[left] = value
            if op.is_while:
                ended[left] = found[-1]
        results += [ended] if op.is_while else []
        shaped = [result.reshape(shape) for result in results]
        return shaped if len(shaped) > 1 else shaped[0]

    return looped


def _composed(op: Composite | ScalarLoop) -> Callable[..., Any]:
    """Return the function of arrays for an operation that is made of others."""
    graph, nodes = op.fgraph, op.fgraph.toposort()
    constants = dict.fromkeys(v for node in nodes for v in node.inputs if isinstance(v, Constant))
    every = [*graph.inputs, *constants, *(out for node in nodes for out in node.outputs)]
    place = {variable: k for k, variable in reversed(list(enumerate(every)))}  # the first of equals
    known = [np.asarray(v.data) for v in constants]
    steps = [(_of_scalar(n.op, n), [place[v] for v in n.inputs], len(n.outputs)) for n in nodes]
    wanted = [place[out] for out in graph.outputs]

    def composed(*inputs: Any) -> Any:
        values = [*inputs, *known]
        for function, given, n_outputs in steps:
            found = function(*[values[k] for k in given])
            values += found if n_outputs > 1 else [found]
        results = [values[k] for k in wanted]
        return results if len(results) > 1 else results[0]

    return composed


def _as(dtype: np.dtype[Any], x: Any) -> NDArray[Any]:
    return np.asarray(x, dtype)


def _second(like: NDArray[Any], x: NDArray[Any]) -> NDArray[Any]:
    if x.shape == like.shape:
        return x
    return np.broadcast_to(x, np.broadcast_shapes(like.shape, x.shape))


def _clip(x: NDArray[Any], low: NDArray[Any], high: NDArray[Any]) -> NDArray[Any]:
    return np.where(x < low, low, np.where(x > high, high, x))


def _log1mexp(x: NDArray[Any]) -> NDArray[Any]:
    return np.where(x < -np.log(2.0), np.log1p(-np.exp(x)), np.log(-np.expm1(x)))


def _softplus(x: NDArray[Any]) -> NDArray[Any]:
    """Return ``log(1 + exp(x))``, in a third of the time of np.logaddexp."""
    return np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))


def _sigmoid(x: NDArray[Any]) -> NDArray[Any]:
    """Return ``1 / (1 + exp(-x))``, in a third of the time of SciPy's function."""
    return np.asarray(1.0 / (1.0 + np.exp(-x)))


_OF_SCALARS: dict[type, Callable[..., Any]] = {
    ps.Switch: np.where,
    Identity: lambda x: x,
    Second: _second,
    Clip: _clip,
    Softplus: _softplus,
    Sigmoid: _sigmoid,
    Log1mexp: _log1mexp,
    TriGamma: lambda x: scipy.special.zeta(2.0, x),
}


@numpy_form.register
def _reduced(op: CAReduce, node: Any) -> Form:
    dtype = np.dtype(node.outputs[0].type.dtype)
    computed = np.dtype(op.acc_dtype or dtype)
    n_axes = node.inputs[0].type.ndim  # of which pm.CAR sums one where there is none
    axes = tuple(range(n_axes)) if op.axis is None or not n_axes else tuple(op.axis)
    combine = op.ufunc
    first = (*axes, *(k for k in range(node.inputs[0].type.ndim) if k not in axes))

    def reduced(x: NDArray[Any]) -> NDArray[Any]:
        x = _as(computed, x)
        if len(axes) == 1 and 0 < x.shape[axes[0]] <= _FEW:
            # one operation on all entries of each index takes less than a loop for each result
            terms = x.transpose(first)
            return np.array(reduce(combine, terms) if len(terms) > 1 else terms[0], dtype)
        return np.asarray(combine.reduce(x, axis=axes, dtype=computed), dtype)

    return reduced


# shapes -----------------------------------------------------------------------------------------


@numpy_form.register
def _shuffled(op: DimShuffle, node: Any) -> Form:
    order, kept = (*op.shuffle, *op.drop), len(op.shuffle)
    added = tuple(None if k in op.augment else slice(None) for k in range(len(op.new_order)))

    def shuffled(x: NDArray[Any]) -> NDArray[Any]:
        moved = x.transpose(order)
        if op.drop:
            moved = moved.reshape(moved.shape[:kept])
        return moved[added] if op.augment else moved

    return shuffled


@numpy_form.register
def _allocated(op: Alloc, node: Any) -> Form:
    return lambda x, *shape: np.broadcast_to(x, tuple(int(n) for n in shape))


@numpy_form.register
def _specified(op: SpecifyShape, node: Any) -> Form:
    return lambda x, *shape: x


@numpy_form.register
def _length(op: Shape_i, node: Any) -> Form:
    return lambda x: np.asarray(x.shape[op.i], np.int64)


@numpy_form.register
def _taken(op: Subtensor, node: Any) -> Form:
    part_of = _part(op, node.inputs[1:])
    return lambda x, *given: np.asarray(x[part_of(given)])


def _part(op: Subtensor | IncSubtensor, given: Sequence[Any]) -> Callable[[Sequence[Any]], Any]:
    """Return the function that makes an index of given numbers, which are usually constants."""
    if not all(isinstance(each, Constant) for each in given):
        return lambda numbers: unflatten_index_variables(numbers, op.idx_list)
    part = unflatten_index_variables([each.data for each in given], op.idx_list)
    return lambda numbers: part


@numpy_form.register
def _changed(op: IncSubtensor, node: Any) -> Form:
    part_of = _part(op, node.inputs[2:])

    def changed(x: NDArray[Any], y: NDArray[Any], *given: Any) -> NDArray[Any]:
        found, part = _copied(x), part_of(given)
        if op.set_instead_of_inc:
            found[part] = y
        else:
            found[part] += y
        return found

    return changed


def _copied(x: NDArray[Any]) -> NDArray[Any]:
    """Return a copy, with a short last axis as the first one in memory."""
    if x.ndim > 1 and _is_thin((x,)):
        return np.moveaxis(np.array(np.moveaxis(x, -1, 0), order="C"), 0, -1)
    return x.copy()


@numpy_form.register
def _incremented(op: AdvancedIncSubtensor, node: Any) -> Form:
    """Return the form for one list of indices that is known, or that of the operation itself.

    ``np.add.at`` adds one element after the other. Here those of one index are neighbours, so that
    a reduction adds them up.
    """
    usual: Form = numpy_form.dispatch(object)(op, node)
    base, added, *given = node.inputs
    indices = unflatten_index_variables(given, op.idx_list)
    lists = [axis for axis, index in enumerate(indices) if not isinstance(index, slice)]
    slices = [index for index in indices if isinstance(index, slice)]
    whole = len(lists) == 1 and all(index == slice(None) for index in slices)
    if op.set_instead_of_inc or not whole or added.type.ndim != base.type.ndim:
        return usual
    (axis,) = lists
    known = getattr(indices[axis], "data", None)
    index = indices[axis].type
    if index.ndim != 1 or index.dtype[0] not in "iu" or (known is not None and not known.size):
        return usual
    if known is not None:
        order = np.argsort(known, kind="stable")
        unique, start = np.unique(known[order], return_index=True)

    def incremented(x: NDArray[Any], y: NDArray[Any], index: NDArray[Any]) -> NDArray[Any]:
        found = np.moveaxis(x.copy(), axis, -1)
        terms = np.moveaxis(np.broadcast_to(y, _with(x.shape, axis, index.size)), axis, -1)
        if index is known:
            found[..., unique] += np.add.reduceat(terms[..., order], start, axis=-1)
        else:  # some rows of all
            index = index % found.shape[-1]
            for point in np.ndindex(terms.shape[:-1]):
                found[point] += np.bincount(index, terms[point], found.shape[-1])
        return np.moveaxis(found, -1, axis)

    return incremented


def _with(shape: tuple[int, ...], axis: int, size: int) -> tuple[int, ...]:
    return (*shape[:axis], size, *shape[axis + 1 :])


# matrices ---------------------------------------------------------------------------------------


@numpy_form.register
def _by_block(op: Blockwise, node: Any) -> Form:
    own = _OF_MATRICES.get(type(op.core_op))
    found = None if own is None else own(op.core_op, node)
    if found is not None:
        return found
    by_row = function_by_row(op, node)
    if isinstance(by_row, np.ufunc):
        return by_row
    # PyTensor keeps the values of a row in the operation, so that two threads would exchange them
    lock = Lock()

    def one_by_one(*inputs: Any) -> Any:
        with lock:
            found = by_row(*inputs)
        return found if len(node.outputs) > 1 else found[0]

    return one_by_one


def _product(op: Dot, node: Any) -> Form:
    return _matmul


def _matmul(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """Return the products of matrices; a matrix that all points share is applied to them at once.

    A product of each point with it would be one call of BLAS for each.
    """
    if a.ndim == 3 and a.shape[0] == 1 and b.shape[-1] == 1:
        return (b[..., 0] @ a[0].T)[..., None]
    if b.ndim == 3 and b.shape[0] == 1 and a.shape[-2] == 1:
        return (a[:, 0] @ b[0])[:, None]
    return np.matmul(a, b)


def _factorised(op: Cholesky, node: Any) -> Form:
    def factorised(x: NDArray[Any]) -> NDArray[Any]:
        try:
            factor = np.linalg.cholesky(x)
        except np.linalg.LinAlgError:  # that of some point: the others have a factor
            factor = np.full(x.shape, np.nan)
            for point in np.ndindex(x.shape[:-2]):
                try:
                    factor[point] = np.linalg.cholesky(x[point])
                except np.linalg.LinAlgError:
                    continue
        return factor if op.lower else np.swapaxes(factor, -1, -2)

    return factorised


def _solved(op: SolveTriangular, node: Any) -> Form | None:
    size = node.inputs[0].type.shape[-1]
    if size is None or size > _SMALL:
        return None
    order = range(size) if op.lower else range(size - 1, -1, -1)

    def solved(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
        right = b[..., None] if op.b_ndim == 1 else b
        x = np.empty(np.broadcast_shapes(a.shape[:-2], right.shape[:-2]) + right.shape[-2:])
        for i in order:
            done = slice(0, i) if op.lower else slice(i + 1, size)
            rest = right[..., i, :] - (a[..., i, done, None] * x[..., done, :]).sum(axis=-2)
            x[..., i, :] = rest if op.unit_diagonal else rest / a[..., i, i, None]
        return x[..., 0] if op.b_ndim == 1 else x

    return solved


def _diagonal(op: ExtractDiag, node: Any) -> Form:
    return lambda x: np.diagonal(x, op.offset, axis1=-2, axis2=-1)


def _diagonal_matrix(op: AllocDiag, node: Any) -> Form:
    def diagonal_matrix(x: NDArray[Any]) -> NDArray[Any]:
        n = x.shape[-1] + abs(op.offset)
        matrix = np.zeros((*x.shape[:-1], n, n), x.dtype)
        row = np.arange(x.shape[-1]) + max(-op.offset, 0)
        matrix[..., row, row + op.offset] = x
        return matrix

    return diagonal_matrix


def _joined(op: Join, node: Any) -> Form:
    core = node.inputs[0].type.ndim - node.op.batch_ndim(node)

    def joined(*parts: NDArray[Any]) -> NDArray[Any]:
        batch = np.broadcast_shapes(*(part.shape[:-core] for part in parts))
        whole = [np.broadcast_to(part, batch + part.shape[-core:]) for part in parts]
        return np.concatenate(whole, axis=op.axis - core)

    return joined


def _split(op: Split, node: Any) -> Form:
    core = node.inputs[0].type.ndim - node.op.batch_ndim(node)

    def split(x: NDArray[Any], sizes: NDArray[Any]) -> Sequence[Any]:
        ends = np.cumsum(sizes.reshape(-1, sizes.shape[-1])[0])[:-1]  # the same for all points
        return np.split(x, ends, axis=op.axis - core)

    return split


def _chosen(op: AdvancedSubtensor, node: Any) -> Form | None:
    """Return the form for elements at the same places of all points, or None."""
    if any(isinstance(each, slice) for each in op.idx_list):
        return None
    batch, lists = node.op.batch_ndim(node), node.inputs[1:]
    if not all(all(each.type.broadcastable[:batch]) for each in lists):
        return None
    whole = [slice(None)] * (node.inputs[0].type.ndim - batch - len(lists))

    def chosen(x: NDArray[Any], *places: NDArray[Any]) -> NDArray[Any]:
        indices: list[Any] = [each.reshape(each.shape[batch:]) for each in places]
        return np.asarray(x[(..., *indices, *whole)])

    return chosen


def _sorted(op: SortOp, node: Any) -> Form:
    axis = op.axis - (node.inputs[0].type.ndim - node.op.batch_ndim(node))
    return lambda x: np.sort(x, axis=axis, kind=op.kind)


def of_matrices(kind: type, form: Callable[[Any, Any], Form | None]) -> None:
    """Enter the form of an operation on each point of a batch."""
    _OF_MATRICES[kind] = form


_OF_MATRICES: dict[type, Callable[[Any, Any], Form | None]] = {
    AdvancedSubtensor: _chosen,
    Dot: _product,
    Cholesky: _factorised,
    SolveTriangular: _solved,
    AllocDiag: _diagonal_matrix,
    ExtractDiag: _diagonal,
    Join: _joined,
    SortOp: _sorted,
    Split: _split,
}


# draws ------------------------------------------------------------------------------------------


@numpy_form.register
def _drawn(op: RandomVariable, node: Any) -> Form:
    own = _OF_DRAWS.get(type(op))

    def drawn(rng: np.random.Generator, size: Any, *parameters: Any) -> Sequence[Any]:
        shape = None if size is None else tuple(int(n) for n in size)
        if own:
            values = own(rng, shape, *parameters)
        else:  # SciPy sets flags of arrays, which may be constants that PyTensor made read-only
            values = op.rng_fn(rng, *map(np.array, parameters), shape)
        return rng, np.asarray(values, node.outputs[1].type.dtype)

    return drawn


# Distributions that PyTensor draws by scipy.stats, whose import takes longer than many runs.
_OF_DRAWS: dict[type, Callable[..., Any]] = {
    ptr.HalfNormalRV: lambda rng, size, low, scale: low + scale * np.abs(rng.standard_normal(size)),
    ptr.HalfCauchyRV: lambda rng, size, low, scale: low + scale * np.abs(rng.standard_cauchy(size)),
    ptr.CauchyRV: lambda rng, size, middle, scale: middle + scale * rng.standard_cauchy(size),
    ptr.StudentTRV: lambda rng, size, dof, middle, scale: (
        middle + scale * rng.standard_t(dof, size)
    ),
}
