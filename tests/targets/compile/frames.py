"""Draws of a distribution by a function that is called with a frame."""

import numba as nb
import numpy as np
import pytensor.tensor as pt

from pm_evidence.core.codegen.native import call_frame
from pm_evidence.core.random import generator_functions, seed_stream
from pm_evidence.targets.compile.batched import over_particles
from pm_evidence.targets.compile.calls import GENERATOR_SLOTS, compile_call
from pm_evidence.targets.compile.draws import on_one_generator
from pm_evidence.targets.compile.normal_draws import with_fast_normals


@nb.njit
def call(address, frame):
    return call_frame(address, frame)


def draws_of(distribution, n=40_000, seed=1, fast=True):
    """Draw ``n`` of a distribution of one particle."""
    size = pt.lscalar("n")
    many = over_particles(distribution, {}, size)
    many = pt.specify_shape(pt.cast(many, "float64"), (None, *many.type.shape[1:]))
    outputs = with_fast_normals([many]) if fast else [many]
    outputs, generator, last = on_one_generator(outputs)
    compiled = compile_call([size], outputs, generator, last)
    out, stream = np.empty((n, *many.type.shape[1:])), np.empty(4, np.uint64)
    seed_stream(stream, seed, 0)
    frame = compiled.frame()
    frame[0] = stream.ctypes.data
    frame[1:GENERATOR_SLOTS] = generator_functions()
    frame[GENERATOR_SLOTS] = n
    frame[GENERATOR_SLOTS + 1] = out.ctypes.data
    assert call(compiled.address, frame) == 0
    return out
