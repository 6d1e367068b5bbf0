"""Functions of vectors of single precision, against NumPy in double precision."""

from typing import Any

import numba as nb
import numpy as np
import pytest
from numba.core import types
from numba.extending import intrinsic

from pm_evidence.core.codegen.vectors import SINGLES, Singles, aligned


def compiled(method):
    @intrinsic
    def apply(typingctx: Any, x: Any, out: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            source, target = (
                context.make_array(kind)(context, builder, value).data
                for kind, value in zip(sig.args, args, strict=True)
            )
            getattr(Singles.load(builder, source), method)().store(target)
            return context.get_dummy_value()

        return types.void(x, out), codegen

    @nb.njit
    def call(x, out):
        for first in range(0, x.size, SINGLES):
            apply(x[first : first + SINGLES], out[first : first + SINGLES])

    return call


@pytest.mark.parametrize(
    ("method", "function", "low", "high", "rtol"),
    [
        ("exp", np.exp, -87.0, 80.0, 2e-7),
        ("sigmoid", lambda x: 1.0 / (1.0 + np.exp(-x)), -80.0, 80.0, 1e-6),
        ("reciprocal", np.reciprocal, 1e-3, 1e3, 2e-7),
        ("magnitude", np.abs, -5.0, 5.0, 0.0),
    ],
)
def test_functions(method, function, low, high, rtol):
    """Relative errors as documented, over the range of arguments; some hundred thousand."""
    x = np.linspace(low, high, 160_000).astype(np.float32)
    out = np.empty_like(x)
    compiled(method)(x, out)
    exact = function(x.astype(float))
    assert (np.abs(out - exact) <= rtol * np.abs(exact)).all()


def test_exponentials_of_what_is_too_small():
    """They are positive, so that odds are never 0/0."""
    x = np.full(SINGLES, -1e6, np.float32)
    out = np.empty_like(x)
    compiled("exp")(x, out)
    assert (out > 0.0).all() and (out < 1e-37).all()


def test_reciprocals_of_extreme_numbers():
    x = np.geomspace(1e-30, 1e30, 1600).astype(np.float32)
    out = np.empty_like(x)
    compiled("reciprocal")(x, out)
    np.testing.assert_allclose(out * x.astype(float), 1.0, rtol=2e-7)


def test_arrays_begin_with_a_cache_line():
    for shape in ((1,), (3, 5), (2, 7, 16)):
        for dtype in (np.float32, np.uint64):
            found = aligned(shape, dtype)
            assert found.ctypes.data % 64 == 0 and not found.any()
            assert found.shape == shape and found.dtype == dtype
