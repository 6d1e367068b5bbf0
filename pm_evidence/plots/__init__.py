"""Pictures of evidences and of annealing runs, drawn with arviz-plots."""

from pm_evidence.plots.estimates import plot_estimates
from pm_evidence.plots.models import (
    plot_calibration,
    plot_compare,
    plot_sensitivity,
    plot_sequential,
)
from pm_evidence.plots.paths import plot_energy, plot_work
from pm_evidence.plots.samples import plot_samples
from pm_evidence.plots.stages import plot_schedule, plot_temperatures

__all__ = [
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
]
