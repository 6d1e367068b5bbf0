"""Pictures of evidences and of annealing runs, drawn with arviz-plots."""

from pm_evidence.plots.comparison import plot_compare
from pm_evidence.plots.schedule import plot_schedule

__all__ = ["plot_compare", "plot_schedule"]
