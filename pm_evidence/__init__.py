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
    from pm_evidence.api.compare_models import compare_models, report
    from pm_evidence.api.factor import bayes_factor
    from pm_evidence.api.integrated import structure
    from pm_evidence.api.sample import bridge_sampling, sample_evidence
    from pm_evidence.api.sensitivity import prior_sensitivity
    from pm_evidence.api.simulated import calibrate, simulate_and_certify
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
    from pm_evidence.targets.model.rows_on_workers import rows_on_workers

_SUBMODULES = ["estimators", "extending", "gp", "kernels", "lattices", "methods", "mixtures"]
_SUBMODULES += ["paths", "rbm", "references", "schedules"]
_NAMES = {  # by module
    "api.compare_models": ("compare_models", "report"),
    "api.factor": ("bayes_factor",),
    "api.integrated": ("structure",),
    "api.sample": ("bridge_sampling", "sample_evidence"),
    "api.sensitivity": ("prior_sensitivity",),
    "api.simulated": ("calibrate", "simulate_and_certify"),
    "core.exceptions": ("EvidenceWarning", "ModelError", "NumericalError"),
    "core.records": ("LogEvidence",),
    "plots": (
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
    ),
    "results": (
        "attach_evidence",
        "average_models",
        "compare",
        "estimate",
        "format_table",
        "log_evidence",
        "sequential_evidence",
        "summary",
        "to_record",
    ),
    "targets.estimated.random_effects": ("RandomEffects",),
    "targets.estimated.state_space": ("StateSpace",),
    "targets.model.rows_on_workers": ("rows_on_workers",),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [*_SUBMODULES, *_MODULES]
__version__ = VERSION


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    elif name in _SUBMODULES:
        value = import_module(f"{__name__}.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
