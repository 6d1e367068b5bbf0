"""Bayesian model evidence for PyMC, with error bars that are right.

``sample_evidence(model)`` estimates the log evidence of a model; ``compare`` ranks models.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pm_evidence.core.version import VERSION

if TYPE_CHECKING:  # imported where they are used
    from pm_evidence import estimators, extending, references
    from pm_evidence.api.bridge import bridge_sampling
    from pm_evidence.api.calibrate import calibrate
    from pm_evidence.api.certify import simulate_and_certify
    from pm_evidence.api.compare_models import compare_models
    from pm_evidence.api.factor import bayes_factor
    from pm_evidence.api.latent import sample_latent
    from pm_evidence.api.report import report
    from pm_evidence.api.sample import sample_evidence
    from pm_evidence.api.sensitivity import prior_sensitivity
    from pm_evidence.api.structure import structure
    from pm_evidence.api.train_rbm import raise_log_likelihood, train_rbm
    from pm_evidence.core.exceptions import EvidenceWarning, ModelError, NumericalError
    from pm_evidence.core.records import LogEvidence
    from pm_evidence.families.gaussian.target import Gaussian
    from pm_evidence.families.gp_classification.target import GPClassification
    from pm_evidence.families.lattice.path import DetouredPath
    from pm_evidence.families.lattice.target import Ising, Potts
    from pm_evidence.families.mixture.target import GaussianMixture
    from pm_evidence.families.native import NativeTarget
    from pm_evidence.families.rbm.conservative import RaiseLikelihood
    from pm_evidence.families.rbm.moment_average import MomentAveragedPath
    from pm_evidence.families.rbm.target import RBM
    from pm_evidence.families.rbm.unit_path import UnitByUnitPath
    from pm_evidence.kernels.cycle import Cycle
    from pm_evidence.kernels.discrete import DiscreteGibbs, IntegerWalk
    from pm_evidence.kernels.hmc import HMC
    from pm_evidence.kernels.pseudo_marginal import PseudoMarginal
    from pm_evidence.kernels.random_walk import RandomWalk
    from pm_evidence.paths.data_points import DataPoints
    from pm_evidence.plots import (
        plot_calibration,
        plot_compare,
        plot_energy,
        plot_estimates,
        plot_samples,
        plot_schedule,
        plot_sensitivity,
        plot_sequential,
        plot_temperatures,
        plot_work,
    )
    from pm_evidence.results import (
        attach_evidence,
        average_models,
        compare,
        estimate,
        format_table,
        log_evidence,
        sequential_evidence,
        summary,
        to_record,
    )
    from pm_evidence.samplers.ais import AIS
    from pm_evidence.samplers.aisel import AISEL
    from pm_evidence.samplers.bridge import Bridge
    from pm_evidence.samplers.planning import GMS13, SM08, Linear, VarOpt
    from pm_evidence.samplers.resample_move import ARM, ResampleMove
    from pm_evidence.samplers.simulated_tempering import SimulatedTempering
    from pm_evidence.samplers.smc import SMC
    from pm_evidence.samplers.tempering import ParallelTempering
    from pm_evidence.targets.estimated.random_effects.api import RandomEffects
    from pm_evidence.targets.estimated.state_space.api import StateSpace
    from pm_evidence.training.tracking import TrackLogZ, TrainingHistory

__all__ = [
    "AIS",
    "AISEL",
    "ARM",
    "GMS13",
    "HMC",
    "RBM",
    "SM08",
    "SMC",
    "Bridge",
    "Cycle",
    "DataPoints",
    "DetouredPath",
    "DiscreteGibbs",
    "EvidenceWarning",
    "GPClassification",
    "Gaussian",
    "GaussianMixture",
    "IntegerWalk",
    "Ising",
    "Linear",
    "LogEvidence",
    "ModelError",
    "MomentAveragedPath",
    "NativeTarget",
    "NumericalError",
    "ParallelTempering",
    "Potts",
    "PseudoMarginal",
    "RaiseLikelihood",
    "RandomEffects",
    "RandomWalk",
    "ResampleMove",
    "SimulatedTempering",
    "StateSpace",
    "TrackLogZ",
    "TrainingHistory",
    "UnitByUnitPath",
    "VarOpt",
    "attach_evidence",
    "average_models",
    "bayes_factor",
    "bridge_sampling",
    "calibrate",
    "compare",
    "compare_models",
    "estimate",
    "estimators",
    "extending",
    "format_table",
    "log_evidence",
    "plot_calibration",
    "plot_compare",
    "plot_energy",
    "plot_estimates",
    "plot_samples",
    "plot_schedule",
    "plot_sensitivity",
    "plot_sequential",
    "plot_temperatures",
    "plot_work",
    "prior_sensitivity",
    "raise_log_likelihood",
    "references",
    "report",
    "sample_evidence",
    "sample_latent",
    "sequential_evidence",
    "simulate_and_certify",
    "structure",
    "summary",
    "to_record",
    "train_rbm",
]

__version__ = VERSION

# The module of each name. Submodules whose name is public themselves stand for themselves.
_MODULES = {
    "bridge_sampling": "pm_evidence.api.bridge",
    "calibrate": "pm_evidence.api.calibrate",
    "simulate_and_certify": "pm_evidence.api.certify",
    "compare_models": "pm_evidence.api.compare_models",
    "bayes_factor": "pm_evidence.api.factor",
    "sample_latent": "pm_evidence.api.latent",
    "report": "pm_evidence.api.report",
    "raise_log_likelihood": "pm_evidence.api.train_rbm",
    "sample_evidence": "pm_evidence.api.sample",
    "prior_sensitivity": "pm_evidence.api.sensitivity",
    "structure": "pm_evidence.api.structure",
    "train_rbm": "pm_evidence.api.train_rbm",
    "EvidenceWarning": "pm_evidence.core.exceptions",
    "ModelError": "pm_evidence.core.exceptions",
    "NumericalError": "pm_evidence.core.exceptions",
    "LogEvidence": "pm_evidence.core.records",
    "Gaussian": "pm_evidence.families.gaussian.target",
    "GPClassification": "pm_evidence.families.gp_classification.target",
    "DetouredPath": "pm_evidence.families.lattice.path",
    "Ising": "pm_evidence.families.lattice.target",
    "Potts": "pm_evidence.families.lattice.target",
    "GaussianMixture": "pm_evidence.families.mixture.target",
    "NativeTarget": "pm_evidence.families.native",
    "RaiseLikelihood": "pm_evidence.families.rbm.conservative",
    "MomentAveragedPath": "pm_evidence.families.rbm.moment_average",
    "RBM": "pm_evidence.families.rbm.target",
    "TrackLogZ": "pm_evidence.training.tracking",
    "TrainingHistory": "pm_evidence.training.tracking",
    "UnitByUnitPath": "pm_evidence.families.rbm.unit_path",
    "Cycle": "pm_evidence.kernels.cycle",
    "DiscreteGibbs": "pm_evidence.kernels.discrete",
    "IntegerWalk": "pm_evidence.kernels.discrete",
    "HMC": "pm_evidence.kernels.hmc",
    "PseudoMarginal": "pm_evidence.kernels.pseudo_marginal",
    "RandomWalk": "pm_evidence.kernels.random_walk",
    "DataPoints": "pm_evidence.paths.data_points",
    "plot_calibration": "pm_evidence.plots",
    "plot_compare": "pm_evidence.plots",
    "plot_energy": "pm_evidence.plots",
    "plot_estimates": "pm_evidence.plots",
    "plot_samples": "pm_evidence.plots",
    "plot_schedule": "pm_evidence.plots",
    "plot_sensitivity": "pm_evidence.plots",
    "plot_sequential": "pm_evidence.plots",
    "plot_temperatures": "pm_evidence.plots",
    "plot_work": "pm_evidence.plots",
    "attach_evidence": "pm_evidence.results",
    "average_models": "pm_evidence.results",
    "compare": "pm_evidence.results",
    "estimate": "pm_evidence.results",
    "format_table": "pm_evidence.results",
    "log_evidence": "pm_evidence.results",
    "sequential_evidence": "pm_evidence.results",
    "summary": "pm_evidence.results",
    "to_record": "pm_evidence.results",
    "AIS": "pm_evidence.samplers.ais",
    "AISEL": "pm_evidence.samplers.aisel",
    "ARM": "pm_evidence.samplers.resample_move",
    "Bridge": "pm_evidence.samplers.bridge",
    "GMS13": "pm_evidence.samplers.planning",
    "VarOpt": "pm_evidence.samplers.planning",
    "ParallelTempering": "pm_evidence.samplers.tempering",
    "SM08": "pm_evidence.samplers.planning",
    "Linear": "pm_evidence.samplers.planning",
    "ResampleMove": "pm_evidence.samplers.resample_move",
    "SimulatedTempering": "pm_evidence.samplers.simulated_tempering",
    "SMC": "pm_evidence.samplers.smc",
    "RandomEffects": "pm_evidence.targets.estimated.random_effects.api",
    "StateSpace": "pm_evidence.targets.estimated.state_space.api",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value = getattr(import_module(_MODULES[name]), name)
    elif name in __all__:
        value = import_module(f"{__name__}.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
