"""Normal densities and mixtures of these."""

from pm_evidence.families.gaussian import Gaussian
from pm_evidence.families.mixture import GaussianMixture

__all__ = ["Gaussian", "GaussianMixture"]
