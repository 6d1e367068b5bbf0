"""Methods that estimate evidence, for ``method=`` of `pm_evidence.sample_evidence`."""

from pm_evidence.samplers.ais import AIS
from pm_evidence.samplers.aisel import AISEL
from pm_evidence.samplers.bridge import Bridge
from pm_evidence.samplers.resample_move import ARM, ResampleMove
from pm_evidence.samplers.simulated_tempering import SimulatedTempering
from pm_evidence.samplers.smc import SMC
from pm_evidence.samplers.tempering import ParallelTempering

__all__ = [
    "AIS",
    "AISEL",
    "ARM",
    "SMC",
    "Bridge",
    "ParallelTempering",
    "ResampleMove",
    "SimulatedTempering",
]
