"""Estimators of log Z from recorded work: plain arrays in, a ``LogEvidence`` out."""

from pm_evidence.estimators.bar import bridge
from pm_evidence.estimators.difference import difference
from pm_evidence.estimators.jarzynski import jarzynski, single_run
from pm_evidence.estimators.recommend import recommend

__all__ = ["bridge", "difference", "jarzynski", "recommend", "single_run"]
