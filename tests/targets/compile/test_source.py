"""Generated lines read arrays by address and write them into rows."""

import numba as nb
import numpy as np
import pytest

from pm_evidence.targets.compile.graph import addresses_of, function_from_source
from pm_evidence.targets.compile.source import assignments, views_of_arrays


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0, 2), (2, 1, 3)])
def test_assignments_copy_in_c_order(shape):
    value, out = np.random.default_rng(1).normal(size=shape), np.zeros((2, 9))
    lines = ["def fill(out, row, value):", "    pass"]
    lines += [f"    {line}" for line in assignments("value", shape, "out[row, ", 2)]
    function_from_source(lines, "fill", {}, None)(out, 1, value)
    expected = np.zeros((2, 9))
    expected[1, 2 : 2 + value.size] = value.ravel()
    np.testing.assert_array_equal(out, expected)


def test_arrays_are_read_where_they_are():
    """Address and shape of one array follow those of the one before."""
    arrays = [np.arange(6.0).reshape(2, 3), np.array(7), np.arange(4, dtype=np.int32)]
    lines, names, scope, position = views_of_arrays(arrays, "data", position=2)
    data = np.concatenate([[0, 0], addresses_of(arrays)])
    assert position == data.size
    assert set(scope) == {"carray", "view_address", "type0", "type1", "type2"}
    source = ["def read(data):", *(f"    {line}" for line in lines)]
    source.append(f"    return {', '.join(names)}")
    read = nb.njit(function_from_source(source, "read", scope, None))
    for found, array in zip(read(data), arrays, strict=True):
        assert found.dtype == array.dtype
        np.testing.assert_array_equal(found, array)
