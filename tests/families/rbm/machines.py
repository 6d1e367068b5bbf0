"""Machines that several tests share."""

import numpy as np

from pm_evidence.families.rbm.target import RBM
from pm_evidence.testing.boltzmann import exact_log_z, sine_rbm


def sine(n_visible=16, n_hidden=12, **kwargs):
    """The machine of a formula; its log Z is ``log_z(n_visible, n_hidden)``."""
    return RBM(*sine_rbm(n_visible, n_hidden), **kwargs)


def log_z(n_visible=16, n_hidden=12):
    return exact_log_z(*sine_rbm(n_visible, n_hidden))


def bits(n, n_units, seed=1):
    """Independent fair bits."""
    return np.random.default_rng(seed).integers(2, size=(n, n_units), dtype=np.uint8)
