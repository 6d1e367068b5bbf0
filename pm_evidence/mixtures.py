"""Normal densities and mixtures of these."""

from pm_evidence.families.gaussian.target import Gaussian
from pm_evidence.families.mixture.target import GaussianMixture

__all__ = ["Gaussian", "GaussianMixture"]
