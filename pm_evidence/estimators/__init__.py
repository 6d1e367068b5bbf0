"""Estimators of log Z from recorded work: plain arrays in, a ``LogEvidence`` out."""

from pm_evidence.estimators.difference import difference
from pm_evidence.estimators.jarzynski import jarzynski, single_run

__all__ = ["difference", "jarzynski", "single_run"]
