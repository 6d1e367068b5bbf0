"""Products of binary states with a matrix of weights, by tables of sums.

A state's product with a matrix is the sum of the rows whose units are on. For every four rows all
sixteen possible sums are tabulated once, and every chain adds one row of each table: the method of
four Russians (Arlazarov, Dinic, Kronrod and Faradzev 1970). That is a quarter of the additions, and
no multiplication.
"""

from typing import Any

from llvmlite import ir

from pm_evidence.core.codegen.numba import intrinsic, nb, njit, types
from pm_evidence.families.rbm.state import WORD

__all__ = ["COLUMNS", "ENTRIES", "TABLES", "multiply"]

COLUMNS = 32  # of the matrix that are multiplied at a time
_ROWS = 32  # of the matrix whose tables fit into the fastest cache
TABLES, ENTRIES = _ROWS // 4, 16  # of four rows each, and sums in a table
_VECTOR, _BYTES = 16, 4  # numbers of single precision, and bytes of each

_SINGLES = ir.VectorType(ir.FloatType(), _VECTOR)
_INDEX = ir.IntType(64)


@njit
def multiply(words, weights, bias, tables, out):
    """Compute ``bias + states @ weights`` for packed states.

    Parameters
    ----------
    words : uint64 array, shape (n, n_rows / 64)
        States, one bit for each unit.
    weights : float32 array, shape (n_rows, n_columns)
        Numbers of rows and columns are multiples of 64. It may be a part of the columns of an
        array, whose rows are further apart.
    bias : float32 array, shape (n_columns,)
    tables : float32 array, shape (n_tables, 16, COLUMNS)
        Room for sums of rows.
    out : float32 array, shape (n, n_columns)
        Receives the products.
    """
    n, n_words = words.shape
    for first in range(0, weights.shape[1], COLUMNS):
        for m in range(n):
            for j in range(COLUMNS):
                out[m, first + j] = bias[first + j]
        for word in range(n_words):
            for shift in range(0, WORD, _ROWS):
                _tabulate(weights, word * WORD + shift, first, tables)
                for m in range(n):
                    _add(out, m, first, tables, words[m, word] >> nb.uint64(shift))


@intrinsic
def _tabulate(typingctx: Any, weights: Any, row: Any, first: Any, tables: Any) -> Any:
    """Fill the tables with the sums of any of four rows, in a part of the columns."""
    signature = types.void(weights, row, first, tables)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        matrix, entries = (
            context.make_array(sig.args[k])(context, builder, args[k]) for k in (0, 3)
        )
        # numbers from the start of one row to the next
        apart = builder.sdiv(builder.extract_value(matrix.strides, 0), _INDEX(_BYTES))
        for table in range(TABLES):
            rows = [builder.add(args[1], _INDEX(4 * table + k)) for k in range(4)]
            places = [builder.add(builder.mul(row, apart), args[2]) for row in rows]
            pointers = [builder.gep(matrix.data, [place]) for place in places]
            for offset in range(0, COLUMNS, _VECTOR):
                sums = [ir.Constant(_SINGLES, [0.0] * _VECTOR)]
                for pointer in pointers:
                    row = _load(builder, pointer, offset)
                    sums += [row] + [builder.fadd(each, row) for each in sums[1:]]
                for entry, each in enumerate(sums):
                    place = (table * ENTRIES + entry) * COLUMNS + offset
                    builder.store(each, _at(builder, entries.data, place)).align = 4
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def _add(typingctx: Any, out: Any, m: Any, first: Any, tables: Any, bits: Any) -> Any:
    """Add one entry of each table, which four bits name, to a part of row ``m``."""
    signature = types.void(out, m, first, tables, bits)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        sums, entries = (context.make_array(sig.args[k])(context, builder, args[k]) for k in (0, 3))
        n_columns = builder.extract_value(sums.shape, 1)
        place = builder.add(builder.mul(args[1], n_columns), args[2])
        bits = args[4]
        rows = []
        for table in range(TABLES):
            entry = builder.and_(builder.lshr(bits, _INDEX(4 * table)), _INDEX(ENTRIES - 1))
            row = builder.add(entry, _INDEX(table * ENTRIES))
            rows.append(builder.gep(entries.data, [builder.mul(row, _INDEX(COLUMNS))]))
        target = builder.gep(sums.data, [place])
        for offset in range(0, COLUMNS, _VECTOR):
            terms = [_load(builder, pointer, offset) for pointer in (*rows, target)]
            while len(terms) > 1:
                pairs = zip(terms[::2], terms[1::2], strict=False)
                rest = terms[len(terms) & ~1 :]
                terms = [builder.fadd(a, b) for a, b in pairs] + rest
            builder.store(terms[0], _at(builder, target, offset)).align = 4
        return context.get_dummy_value()

    return signature, codegen


def _at(builder: Any, pointer: Any, offset: int) -> Any:
    place = builder.gep(pointer, [_INDEX(offset)])
    return builder.bitcast(place, _SINGLES.as_pointer())


def _load(builder: Any, pointer: Any, offset: int) -> Any:
    value = builder.load(_at(builder, pointer, offset))
    value.align = 4
    return value
