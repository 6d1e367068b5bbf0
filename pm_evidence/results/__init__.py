"""Results: a run as a DataTree in ArviZ's schema, and tables that compare models."""

from pm_evidence.results.average import average_models
from pm_evidence.results.compare import BayesFactor, compare, factor_of_results
from pm_evidence.results.datatree import (
    attach_evidence,
    estimate,
    log_evidence,
    to_datatree,
    to_record,
)
from pm_evidence.results.sequential import sequential_evidence
from pm_evidence.results.stored import fingerprint
from pm_evidence.results.summary import summary
from pm_evidence.results.table import format_table

__all__ = [
    "BayesFactor",
    "attach_evidence",
    "average_models",
    "compare",
    "estimate",
    "factor_of_results",
    "fingerprint",
    "format_table",
    "log_evidence",
    "sequential_evidence",
    "summary",
    "to_datatree",
    "to_record",
]
