"""Exact systems: PyMC models whose log evidence is known, to test any evidence code against.

Examples
--------
>>> from pm_evidence.testing import exact_systems
>>> system = exact_systems()["normal_mean"]
>>> round(system.log_evidence, 4)
-7.192
"""

from pm_evidence.testing.gaussians import gaussian
from pm_evidence.testing.registry import exact_systems
from pm_evidence.testing.system import TAGS, ExactSystem

__all__ = ["TAGS", "ExactSystem", "exact_systems", "gaussian"]
