"""What a run of resample-move spent on each stage, and what would have been best."""

import numpy as np

from pm_evidence.core.records import Role, RunRecord
from pm_evidence.schedules.allocation import Allocation, optimal_allocation

__all__ = ["allocation_of"]


def allocation_of(record: RunRecord) -> tuple[Allocation, Allocation] | None:
    """Return the particles that a run spent on each stage, and the best use of as many.

    Parameters
    ----------
    record : RunRecord
        A run of resample-move.

    Returns
    -------
    tuple of Allocation, or None
        What one island spent on average, and the optimum for as many particles in all. Both
        variances are those of one island. None if the record does not hold the numbers of
        particles, or an island did not reach the target.
    """
    blocks = record.of(Role.FORWARD)
    particles = np.array([block.trace.particles for block in blocks])
    ess = np.array([block.trace.ess for block in blocks])
    if not particles.size or not (np.isfinite(particles) & (ess > 0.0)).all():
        return None
    # rounding may put a share of equal weights above 1
    variance = np.maximum(1.0 / ess - 1.0, 0.0).mean(axis=0)
    spent = particles.mean(axis=0)
    found = Allocation(spent, float((variance / spent).sum()))
    return found, optimal_allocation(variance, float(spent.sum()))
