"""Adaptation of the step sizes of kernels."""

import numpy as np

__all__ = ["MOST_STEPS", "move_towards"]

# Largest number of proposals in one call, so that a mistyped number does not run for hours.
MOST_STEPS = 1_000_000


def move_towards(scale: float, acceptance: float, target: float, gain: float = 1.0) -> float:
    """Return a step scale moved on the log scale towards the target acceptance."""
    return float(scale * np.exp(gain * (acceptance - target)))
