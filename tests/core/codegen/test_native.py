"""Calls by address: the bridge between a model's machine code and the kernels."""

import numba as nb
import numpy as np

from pm_evidence.core.codegen.numba import call_density, density_signature, view_address


@nb.cfunc(density_signature())
def density(x_, out_, gradient_, data_):
    x, out, data = nb.carray(x_, (2,)), nb.carray(out_, (2,)), nb.carray(data_, (1,))
    gradient = nb.carray(gradient_, (2, 2))
    out[0] = x[0] - x[1]
    out[1] = data[0] * x[1]
    gradient[0, 0], gradient[0, 1], gradient[1, 0], gradient[1, 1] = 1.0, -1.0, 0.0, data[0]
    return 7


@nb.njit
def call(address, x, out, gradient, data):
    return call_density(address, x, out, gradient, data)


@nb.njit
def read(address, n):
    return nb.carray(view_address(address), (n,), nb.float64).sum()


def test_arguments_and_status_arrive():
    """Every log density of the package passes here."""
    out, gradient = np.zeros((3, 2)), np.zeros((2, 2))
    x = np.array([[5.0, 3.0], [1.0, 2.0]])
    data = np.array([10], np.int64)
    status = call(density.address, x[1], out[2], gradient, data)
    assert status == 7
    np.testing.assert_array_equal(out, [[0, 0], [0, 0], [-1.0, 20.0]])
    np.testing.assert_array_equal(gradient, [[1.0, -1.0], [0.0, 10.0]])


def test_one_kernel_serves_every_density():
    """Kernels would be compiled anew for every model if the address were part of their type."""
    out, gradient, data = np.zeros(2), np.zeros((2, 2)), np.zeros(1, np.int64)

    @nb.cfunc(density_signature())
    def other(x_, out_, gradient_, data_):
        nb.carray(out_, (2,))[0] = 4.0
        return 0

    assert call(density.address, np.ones(2), out, gradient, data) == 7
    n_compiled = len(call.signatures)
    assert call(other.address, np.ones(2), out, gradient, data) == 0
    assert out[0] == 4.0
    assert len(call.signatures) == n_compiled


def test_data_are_read_through_their_address():
    """pm.Data are passed so; a copy would be stale after new data."""
    values = np.arange(5.0)
    assert read(values.ctypes.data, 5) == 10.0
    values[0] = 1.0
    assert read(values.ctypes.data, 5) == 11.0
