"""Which of several estimates of one run to recommend."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from pm_evidence.core.records import LogEvidence
from pm_evidence.estimators.bar import fit_share

__all__ = ["recommend"]

# Where this share of the fitted density's draws counts as draws from the target, the bridge has
# the smaller error; further down the path from the prior has.
_GOOD_FIT = 0.05
_DISAGREEMENT = 5.0


def recommend(
    smc: LogEvidence, bridge: LogEvidence, works: Sequence[tuple[ArrayLike, ArrayLike]]
) -> list[LogEvidence]:
    """Return both estimates, the recommended one first.

    Parameters
    ----------
    smc : LogEvidence
        From annealing the prior.
    bridge : LogEvidence
        From a bridge between a fitted density and the target.
    works : sequence of (forward, reverse)
        The work that ``bridge`` was made from.

    Notes
    -----
    The choice looks at the fit alone, never at the errors: taking the smaller of two estimated
    errors would make it too small. Estimates that differ by more than five of their combined
    errors both get the status ``"inconsistent"``.
    """
    error = float(np.hypot(smc.mcse, bridge.mcse))
    if smc.status == bridge.status == "ok" and abs(smc.value - bridge.value) > (
        _DISAGREEMENT * error
    ):
        apart = abs(smc.value - bridge.value) / error
        message = (
            f"annealing from the prior gives {smc.value:.3f} and the bridge {bridge.value:.3f}, "
            f"{apart:.1f} of their combined errors apart: the moves do not mix. Use more draws, "
            "longer chains or another kernel."
        )
        smc = replace(smc, status="inconsistent", message=message)
        bridge = replace(bridge, status="inconsistent", message=message)
    fits = not np.isnan(bridge.mcse) and fit_share(works) >= _GOOD_FIT
    return [bridge, smc] if fits else [smc, bridge]
