"""The choice of one among several estimates of the same evidence."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pm_evidence.core.checks import check_choice, check_kind, described
from pm_evidence.core.records import LogEvidence
from pm_evidence.core.statuses import Status
from pm_evidence.estimators.verdicts import DISAGREEMENT

__all__ = ["recommend"]

# An estimate replaces one that comes before it if its error is this many times smaller.
_GROSS = 2.0
# The order in which the estimates of islands are considered.
_ORDER = ("bridge", "importance", "smc")


def recommend(found: Sequence[LogEvidence]) -> list[LogEvidence]:
    """Return independent estimates of one evidence, the recommended one first.

    Parameters
    ----------
    found : sequence of LogEvidence
        Estimates named ``"bridge"``, ``"importance"`` and ``"smc"``.

    Returns
    -------
    list of LogEvidence
        All of them. If the recommended one is not the first in the order, its message says why.

    Raises
    ------
    ValueError, TypeError
        If ``found`` is not a list of such estimates.

    Notes
    -----
    The first estimate with the status ``"ok"`` in the order bridge, importance, smc is recommended,
    unless that of a later one has an error that is less than half as large. Smaller differences
    between errors are ignored, because an error may be small by chance. Importance sampling is
    never preferred to the bridge for its error, which is too small if none of the rare large
    weights occurred.

    If none is ok, the first one with an error comes first, unless importance or smc exceeds it by
    more than five of its own errors: unbiased estimates rarely exceed Z by much, and may be far
    too low.
    """
    _check_found(found)
    ranked = sorted(found, key=lambda estimate: _ORDER.index(estimate.estimator))
    usable = [estimate for estimate in ranked if estimate.status == Status.OK]
    if not usable:
        known = [estimate for estimate in ranked if np.isfinite(estimate.mcse)] or ranked
        unbiased = [estimate for estimate in known if estimate.estimator != "bridge"]
        most = max(unbiased, key=_demanded, default=known[0])
        first = most if _demanded(most) > known[0].value else known[0]
        return [first, *(estimate for estimate in ranked if estimate is not first)]
    first = usable[0]
    trusted = [e for e in usable if e is first or e.estimator != "importance"]
    best = min(trusted, key=lambda estimate: estimate.mcse)
    if best.mcse * _GROSS < first.mcse:
        message = (
            f"{best.estimator} is recommended because its error is {best.mcse:.2g} nats, and that "
            f"of {first.estimator} is {first.mcse:.2g} nats."
        )
        first = replace(best, message=message)
    elif first.estimator != ranked[0].estimator:
        message = (
            f"{first.estimator} is recommended because the status of {ranked[0].estimator} is "
            f"{ranked[0].status}."
        )
        first = replace(first, message=message)
    return [first, *(e for e in ranked if e.estimator != first.estimator)]


def _demanded(estimate: LogEvidence) -> float:
    """Return what the evidence is at least, if an unbiased estimate is not far too high."""
    return estimate.value - DISAGREEMENT * estimate.mcse


def _check_found(found: Any) -> None:
    if not isinstance(found, list | tuple) or not found:
        raise ValueError(
            f"found must be a list of estimates, got {described(found)}; pass for example "
            "[bridge(...), jarzynski(..., name='smc')]."
        )
    for i, estimate in enumerate(found):
        check_kind(f"found[{i}]", estimate, LogEvidence, "pass an estimate, for example bar(...)")
        check_choice(f"found[{i}].estimator", estimate.estimator, _ORDER)
