"""Restricted Boltzmann machines: evidence, and training that tracks it."""

from pm_evidence.api.train_rbm import raise_log_likelihood, train_rbm
from pm_evidence.families.rbm.conservative import RaiseLikelihood
from pm_evidence.families.rbm.target import RBM
from pm_evidence.training.tracking import TrackLogZ, TrainingHistory

__all__ = [
    "RBM",
    "RaiseLikelihood",
    "TrackLogZ",
    "TrainingHistory",
    "raise_log_likelihood",
    "train_rbm",
]
