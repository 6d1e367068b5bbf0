"""Pictures of evidences and of annealing runs, drawn with arviz-plots."""

from pm_evidence.plots.calibration import plot_calibration
from pm_evidence.plots.comparison import plot_compare
from pm_evidence.plots.energy import plot_energy
from pm_evidence.plots.estimates import plot_estimates
from pm_evidence.plots.samples import plot_samples
from pm_evidence.plots.schedule import plot_schedule
from pm_evidence.plots.sensitivity import plot_sensitivity
from pm_evidence.plots.sequential import plot_sequential
from pm_evidence.plots.temperatures import plot_temperatures
from pm_evidence.plots.work import plot_work

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
