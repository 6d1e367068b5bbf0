"""The ratio of two independently estimated evidences."""

from pm_evidence.core.checks import check_kind
from pm_evidence.core.records import LogEvidence
from pm_evidence.core.statuses import Status
from pm_evidence.estimators.intervals import interval
from pm_evidence.estimators.standard_errors import Spread, combined

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
        Its status and message are those of the first of the two whose status is not ``"ok"``. Its
        interval is a Student interval whose degrees of freedom
        are those of Welch and Satterthwaite.

    Raises
    ------
    TypeError
        If one of them is no LogEvidence.
    """
    for name, estimate in (("minuend", minuend), ("subtrahend", subtrahend)):
        check_kind(name, estimate, LogEvidence, "pass an estimate, for example pe.log_evidence(dt)")
    value = minuend.value - subtrahend.value
    found = combined(*(Spread(each.mcse, each.dof) for each in (minuend, subtrahend)))
    worst = minuend if minuend.status != Status.OK else subtrahend
    return LogEvidence(
        value,
        found.mcse,
        minuend.estimator,
        worst.status,
        *interval(value, found),
        worst.message,
        found.dof,
    )
