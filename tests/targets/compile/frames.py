"""Draws of distributions by a function that is called with a frame."""

import numpy as np
import pytensor.tensor as pt

from pm_evidence.core.codegen.numba import call_frame, njit
from pm_evidence.core.random import generator_functions, seed_stream
from pm_evidence.targets.compile.calls import (
    GENERATOR_SLOTS,
    compile_call,
    on_one_generator,
    with_fast_normals,
)
from pm_evidence.targets.compile.rewrite import over_particles


@njit(cache=False)
def call(address, frame):
    return call_frame(address, frame)


def sampler_of(make):
    """Return a function of ``n`` and a seed that draws distributions of ``n`` particles.

    ``make`` is called with the parity of a particle's number, as a float.
    """
    size, parity = pt.lscalar("n"), pt.dscalar("parity")
    parities = pt.cast(pt.arange(size) % 2, "float64")
    many = [over_particles(one, {parity: parities}, size) for one in make(parity)]
    many = [pt.specify_shape(pt.cast(v, "float64"), (None, *v.type.shape[1:])) for v in many]
    outputs, generator, last = on_one_generator(with_fast_normals(many))
    compiled = compile_call([size], outputs, generator, last)

    def draw(n=40_000, seed=1):
        out, stream = [np.empty((n, *v.type.shape[1:])) for v in many], np.empty(4, np.uint64)
        seed_stream(stream, seed, 0)
        frame = compiled.frame()
        frame[0] = stream.ctypes.data
        frame[1:GENERATOR_SLOTS] = generator_functions()
        frame[GENERATOR_SLOTS] = n
        first = GENERATOR_SLOTS + 1
        frame[first : first + len(out)] = [array.ctypes.data for array in out]
        assert call(compiled.address, frame) == 0
        return out

    return draw
