"""Results: a run as a DataTree in ArviZ's schema, and tables that compare models."""

from pm_evidence.results.average import average_models
from pm_evidence.results.compare import BayesFactor, bayes_factor, compare
from pm_evidence.results.datatree import attach_evidence, log_evidence, to_datatree
from pm_evidence.results.format import format_table
from pm_evidence.results.observed import fingerprint
from pm_evidence.results.record import estimate, to_record
from pm_evidence.results.summary import summary

__all__ = [
    "BayesFactor",
    "attach_evidence",
    "average_models",
    "bayes_factor",
    "compare",
    "estimate",
    "fingerprint",
    "format_table",
    "log_evidence",
    "summary",
    "to_datatree",
    "to_record",
]
