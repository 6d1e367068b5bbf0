"""Estimators of log Z from recorded work or energies: arrays in, a ``LogEvidence`` out."""

from pm_evidence.estimators.bar import (
    bar,
    bridge,
    histogram,
    histogram_draws,
    histogram_posterior,
    work_density,
)
from pm_evidence.estimators.errors import difference
from pm_evidence.estimators.jarzynski import (
    cumulant,
    cumulant_forward,
    cumulant_reverse,
    effective_sample_size,
    importance,
    jarzynski,
    jarzynski_reverse,
    lower_bound,
    single_run,
    upper_bound,
)
from pm_evidence.estimators.mbar import mbar, mbar_curve, multistate, multistate_curve
from pm_evidence.estimators.rts import rts, rts_combined, rts_combined_curve, rts_curve, ts
from pm_evidence.estimators.ti import chained_bar, power_posterior, stepping_stone, ti, ti_rb
from pm_evidence.estimators.verdicts import recommend
from pm_evidence.schedules import optimal_allocation

__all__ = [
    "bar",
    "bridge",
    "chained_bar",
    "cumulant",
    "cumulant_forward",
    "cumulant_reverse",
    "difference",
    "effective_sample_size",
    "histogram",
    "histogram_draws",
    "histogram_posterior",
    "importance",
    "jarzynski",
    "jarzynski_reverse",
    "lower_bound",
    "mbar",
    "mbar_curve",
    "multistate",
    "multistate_curve",
    "optimal_allocation",
    "power_posterior",
    "recommend",
    "rts",
    "rts_combined",
    "rts_combined_curve",
    "rts_curve",
    "single_run",
    "stepping_stone",
    "ti",
    "ti_rb",
    "ts",
    "upper_bound",
    "work_density",
]
