"""Realistic models with log evidences that are known without the package."""

from . import effects, hierarchical, multivariate, processes, programs, regression, volatility
from .case import Case, Nuts, Reference

__all__ = ["CASES", "Case", "Nuts", "Reference"]

_MODULES = (regression, hierarchical, effects, processes, volatility, multivariate, programs)
CASES = {case.name: case for module in _MODULES for case in module.CASES}
