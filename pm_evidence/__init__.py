"""Bayesian model evidence for PyMC, with error bars that are right.

``sample_evidence(model)`` estimates the log evidence of a model; ``compare`` ranks models.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pm_evidence.core.version import VERSION

if TYPE_CHECKING:  # imported where they are used
    from pm_evidence import (
        estimators,
        extending,
        gp,
        kernels,
        lattices,
        methods,
        mixtures,
        paths,
        rbm,
        references,
        schedules,
    )
    from pm_evidence.api.bridge import bridge_sampling
    from pm_evidence.api.calibrate import calibrate
    from pm_evidence.api.certify import simulate_and_certify
    from pm_evidence.api.compare_models import compare_models
    from pm_evidence.api.factor import bayes_factor
    from pm_evidence.api.report import report
    from pm_evidence.api.sample import sample_evidence
    from pm_evidence.api.sensitivity import prior_sensitivity
    from pm_evidence.api.structure import structure
    from pm_evidence.core.exceptions import EvidenceWarning, ModelError, NumericalError
    from pm_evidence.core.records import LogEvidence
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
    from pm_evidence.targets.estimated.random_effects import RandomEffects
    from pm_evidence.targets.estimated.state_space import StateSpace

__all__ = [
    "EvidenceWarning",
    "LogEvidence",
    "ModelError",
    "NumericalError",
    "RandomEffects",
    "StateSpace",
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
    "gp",
    "kernels",
    "lattices",
    "log_evidence",
    "methods",
    "mixtures",
    "paths",
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
    "rbm",
    "references",
    "report",
    "sample_evidence",
    "schedules",
    "sequential_evidence",
    "simulate_and_certify",
    "structure",
    "summary",
    "to_record",
]

__version__ = VERSION

# The module of each name. Submodules whose name is public themselves stand for themselves.
_MODULES = {
    "bridge_sampling": "pm_evidence.api.bridge",
    "calibrate": "pm_evidence.api.calibrate",
    "simulate_and_certify": "pm_evidence.api.certify",
    "compare_models": "pm_evidence.api.compare_models",
    "bayes_factor": "pm_evidence.api.factor",
    "report": "pm_evidence.api.report",
    "sample_evidence": "pm_evidence.api.sample",
    "prior_sensitivity": "pm_evidence.api.sensitivity",
    "structure": "pm_evidence.api.structure",
    "EvidenceWarning": "pm_evidence.core.exceptions",
    "ModelError": "pm_evidence.core.exceptions",
    "NumericalError": "pm_evidence.core.exceptions",
    "LogEvidence": "pm_evidence.core.records",
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
    "RandomEffects": "pm_evidence.targets.estimated.random_effects",
    "StateSpace": "pm_evidence.targets.estimated.state_space",
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
