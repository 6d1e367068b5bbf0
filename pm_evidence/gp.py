"""Classification by Gaussian processes."""

from pm_evidence.api.integrated import sample_latent
from pm_evidence.families.gp_classification.target import GPClassification

__all__ = ["GPClassification", "sample_latent"]
