"""What a target, a path, a kernel or a sampler of your own is made of.

Targets and paths: `NativeTarget`, or `ModelTarget` for a PyMC model on another path;
`AnnealingSetup`, `Path`, `GeometricPath`, `GrowingPath` with `Grows` where states grow, and the
populations `Points` and `Particles`. Kernels:
`Kernel`, `Tunable`, `MoveInfo`, and random numbers from streams, for NumPy (`normals`,
`uniforms`) and for compiled loops (`fill_normal`, `fill_uniform`, `uniform`). Samplers:
`Annealer`, `Plan`, `BlockRecord`, `Tracer`, `Phase`, `Report`, and the streams of a block
(`block_seeds`, `streams`). ``pm_evidence.testing`` has the checks of what is made of them.
"""

from pm_evidence.core.contracts import AnnealingSetup, Kernel, MoveInfo, Path, Plan, Tunable
from pm_evidence.core.interrupts import Report, silent
from pm_evidence.core.random import (
    Phase,
    block_seeds,
    fill_normal,
    fill_uniform,
    normals,
    streams,
    uniform,
    uniforms,
)
from pm_evidence.core.records import BlockRecord
from pm_evidence.families.native import ModelTarget, NativeTarget
from pm_evidence.kernels.cycle import Grows
from pm_evidence.paths.geometric import GeometricPath
from pm_evidence.paths.growing import GrowingPath
from pm_evidence.samplers.sampler import Annealer, Tracer
from pm_evidence.targets.layout import Particles, Points

__all__ = [
    "Annealer",
    "AnnealingSetup",
    "BlockRecord",
    "GeometricPath",
    "GrowingPath",
    "Grows",
    "Kernel",
    "ModelTarget",
    "MoveInfo",
    "NativeTarget",
    "Particles",
    "Path",
    "Phase",
    "Plan",
    "Points",
    "Report",
    "Tracer",
    "Tunable",
    "block_seeds",
    "fill_normal",
    "fill_uniform",
    "normals",
    "silent",
    "streams",
    "uniform",
    "uniforms",
]
