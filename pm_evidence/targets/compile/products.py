"""Matrix products by one function that is compiled once for all models.

PyTensor compiles its calls of BLAS, for all layouts that a matrix may have, again for every model.
This takes about 20 seconds in the first call of a regression. Here a model's code calls a function
by name.
"""

from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.tensor.math import Dot
from pytensor.tensor.type import TensorType

from pm_evidence.core.codegen.numba import Later, cfunc, intrinsic, nb, njit, types
from pm_evidence.targets.compile.implementations import implement_by

__all__ = ["replace_product"]

_NAME = "pm_evidence_matrix_product"
_ITEM = 8  # bytes of a float64


class MatrixProduct(Op):
    """The product of two matrices of float64."""

    __props__ = ()

    def make_node(self, a: Variable, b: Variable) -> Apply:
        """Return the node that multiplies ``a``, shape (m, k), by ``b``, shape (k, n)."""
        shape = a.type.shape[0], b.type.shape[1]
        return Apply(self, [a, b], [TensorType("float64", shape=shape)()])

    def perform(self, node: Apply, inputs: Any, outputs: Any) -> None:
        """Multiply."""
        outputs[0][0] = np.dot(*inputs)


@node_rewriter([Dot])
def replace_product(fgraph: Any, node: Any) -> list[Variable] | None:
    """Replace products of float64 matrices by calls of the function that all models share."""
    if any(v.type.ndim != 2 or v.type.dtype != "float64" for v in node.inputs):
        return None
    _export()
    implement_by(MatrixProduct, _call, version=1)  # raise the version when ``_call`` changes
    return [MatrixProduct()(*node.inputs)]


@njit
def _in_order(address, n_rows, n_columns, row_stride, column_stride):
    """Return a matrix in C order, copied if necessary, and whether it is the transpose."""
    rows_whole = column_stride == _ITEM or n_columns == 1
    columns_whole = row_stride == _ITEM or n_rows == 1
    if rows_whole and (row_stride == _ITEM * n_columns or n_rows == 1):
        return nb.carray(address, (n_rows, n_columns), np.float64), False
    if columns_whole and (column_stride == _ITEM * n_rows or n_columns == 1):
        return nb.carray(address, (n_columns, n_rows), np.float64), True
    given = np.lib.stride_tricks.as_strided(
        nb.carray(address, (1, 1), np.float64),
        (n_rows, n_columns),
        (row_stride, column_stride),
    )
    return given.copy(), False


def _product(
    a_, n_rows, n_inner, a_row, a_column, b_, n_inner_too, n_columns, b_row, b_column, out_
):  # fmt: skip
    out = nb.carray(out_, (n_rows, n_columns), np.float64)
    if n_inner == 0:
        out[:] = 0.0
        return
    a, a_is_transposed = _in_order(a_, n_rows, n_inner, a_row, a_column)
    b, b_is_transposed = _in_order(b_, n_inner, n_columns, b_row, b_column)
    if n_columns == 1:
        if a_is_transposed:
            np.dot(a.T, b.ravel(), out.ravel())
        else:
            np.dot(a, b.ravel(), out.ravel())
    elif n_rows == 1:
        if b_is_transposed:
            np.dot(b, a.ravel(), out.ravel())
        else:
            np.dot(b.T, a.ravel(), out.ravel())
    elif a_is_transposed:
        if b_is_transposed:
            np.dot(a.T, b.T, out)
        else:
            np.dot(a.T, b, out)
    elif b_is_transposed:
        np.dot(a, b.T, out)
    else:
        np.dot(a, b, out)


@intrinsic
def _address(typingctx: Any, array: Any) -> Any:
    """Return the address of the first entry of an array."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        data = context.make_array(sig.args[0])(context, builder, args[0]).data
        return builder.bitcast(data, context.get_value_type(types.voidptr))

    return types.voidptr(array), codegen


def _signature() -> Any:
    # a matrix is its address, two lengths and two strides in bytes; the result lies in C order
    matrix = (types.voidptr, types.intp, types.intp, types.intp, types.intp)
    return types.void(*matrix, *matrix, types.voidptr)


_exported = Later(lambda: types.ExternalFunction(_NAME, _signature()))


@njit(cache=False)
def _call(a: Any, b: Any) -> Any:
    (n_rows, n_inner), (n_inner_too, n_columns) = a.shape, b.shape
    if n_inner != n_inner_too:
        raise ValueError("matrices of a product must fit")
    out = np.empty((n_rows, n_columns))
    _exported(
        _address(a), n_rows, n_inner, a.strides[0], a.strides[1],
        _address(b), n_inner, n_columns, b.strides[0], b.strides[1],
        _address(out),
    )  # fmt: skip
    return out


@cache
def _export() -> Any:
    """Compile the product and register its name; return the function, to keep it alive."""
    compiled = cfunc(_signature(), _product)
    import_module("llvmlite.binding").add_symbol(_NAME, compiled.address)
    return compiled
