"""The ratio of two independently estimated evidences."""

import numpy as np

from pm_evidence.core.checks import check_kind
from pm_evidence.core.records import LogEvidence

__all__ = ["difference"]


def difference(minuend: LogEvidence, subtrahend: LogEvidence) -> LogEvidence:
    """Return ``minuend - subtrahend`` in nats; errors add in quadrature.

    Parameters
    ----------
    minuend, subtrahend : LogEvidence
        Independent estimates.

    Returns
    -------
    LogEvidence
        With the first status that is not ``"ok"``. The interval takes each half width as it is,
        in quadrature.

    Raises
    ------
    TypeError
        If one of them is no LogEvidence.
    """
    for name, estimate in (("minuend", minuend), ("subtrahend", subtrahend)):
        check_kind(name, estimate, LogEvidence, "pass an estimate, for example pe.log_evidence(dt)")
    value = minuend.value - subtrahend.value
    mcse = float(np.hypot(minuend.mcse, subtrahend.mcse))
    half = float(np.hypot(minuend.upper - minuend.value, subtrahend.upper - subtrahend.value))
    worst = minuend if minuend.status != "ok" else subtrahend
    return LogEvidence(
        value, mcse, minuend.estimator, worst.status, value - half, value + half, worst.message
    )
