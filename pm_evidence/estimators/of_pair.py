"""All estimates of the log Bayes factor of two models, from paths between their posteriors."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.records import BlockRecord, LogEvidence, Role, RunRecord
from pm_evidence.core.statuses import Status
from pm_evidence.estimators.bar import bar
from pm_evidence.estimators.difference import difference
from pm_evidence.estimators.histogram import histogram
from pm_evidence.estimators.jarzynski import jarzynski, jarzynski_reverse
from pm_evidence.estimators.verdicts import apart as contradict
from pm_evidence.estimators.verdicts import short_of_target, times

__all__ = ["of_pair", "two_evidences"]

# What ended a run does not make its posterior draws worse.
_SOUND = (Status.OK, Status.MAX_TIME, Status.MAX_DRAWS)
_REMEDY = "Use pe.compare_models, which estimates both evidences in full."


def of_pair(record: RunRecord) -> list[LogEvidence]:
    """Return the estimates of a log Bayes factor, the recommended one first.

    Parameters
    ----------
    record : RunRecord
        Forward paths run from the posterior of the second model to that of the first, so that the
        ratio of their evidences is that of the first over the second. The fact ``evidences`` holds
        the fields of the coarse log evidence of each, and ``stopped_by`` what ended the run.

    Notes
    -----
    Of Bennett's ratio of the work and the difference of the two evidences, the one with the smaller
    error is recommended. Where the posteriors hardly overlap, this is the difference.
    """
    forward, reverse = record.work(Role.FORWARD), record.work(Role.REVERSE)
    there, back = (_origin(record.of(role)) for role in (Role.FORWARD, Role.REVERSE))
    both = bar(forward, reverse, forward_blocks=there, reverse_blocks=back)
    one_way = jarzynski(forward, blocks=there), jarzynski_reverse(reverse, blocks=back)
    apart = two_evidences(record)
    both = _checked(_confirmed(both, [*one_way, apart]), record)
    if both.status == Status.INCONSISTENT and apart.status == Status.OK:
        apart = replace(apart, status=both.status, message=both.message)
    found = [both, apart] if _is_better(both, apart) else [apart, both]
    if "short_of" in record.info:
        found[0] = short_of_target(found[0], record.info["short_of"])
    if "stopped_by" in record.info:
        found[0] = _unfinished(found[0], record.info["target_mcse"])
    others = [histogram(forward, reverse, forward_blocks=there, reverse_blocks=back)]
    if not np.isfinite(forward).any():  # there is no work density then
        others = []
    others = [replace(each, status=both.status, message=both.message) for each in others]
    return [*found, *others, *one_way]


def _confirmed(both: LogEvidence, others: Sequence[LogEvidence]) -> LogEvidence:
    """Return Bennett's estimate; if both directions contradict each other, with another message.

    If models are nearly the same, the work varies mainly because the map between their posteriors
    is fitted to draws. Each half of the draws then sees the deviations of the other half, which are
    the same in both directions, and the test counts them several times. They do not matter if each
    direction alone, and the two separate evidences, are reliable and agree with the estimate.
    """
    if both.status == Status.NO_OVERLAP:
        message = f"the posteriors of the models hardly overlap, also after annealing. {_REMEDY}"
        return replace(both, message=message)
    if both.status != Status.INCONSISTENT:
        return both
    if all(each.status == Status.OK and not contradict(both, each) for each in others):
        return replace(both, status=Status.OK, message="")
    message = (
        "the work at the posterior draws of the two models violates the fluctuation theorem: some "
        "of the draws are not from the posterior, or miss a part of it. Leave idata out, or pass "
        f"better draws. {_REMEDY}"
    )
    return replace(both, message=message)


def _unfinished(found: LogEvidence, target_mcse: float) -> LogEvidence:
    """Return the recommended estimate, unless its error is larger than asked for."""
    if found.status != Status.OK or found.mcse <= target_mcse:
        return found
    message = (
        f"the error is {found.mcse:.3g} nats and not {target_mcse:.3g}, because it is limited by "
        "the posterior draws of the models. Pass more of them in idata, or accept the error."
    )
    return replace(found, status=Status.MAX_DRAWS, message=message)


def _is_better(both: LogEvidence, apart: LogEvidence) -> bool:
    """Return whether paths between the models are recommended before two evidences."""
    if apart.status != Status.OK:
        return True
    return both.status == Status.OK and both.mcse <= apart.mcse


def two_evidences(record: RunRecord) -> LogEvidence:
    """Return the difference of the two coarse log evidences, which are independent."""
    first, second = (LogEvidence(**fields) for fields in record.info["evidences"])
    return replace(difference(first, second), estimator="two_evidences")


def _origin(blocks: Sequence[BlockRecord]) -> NDArray[np.int64]:
    """Return the group of posterior draws that each path started from, shape ``(n_paths,)``."""
    return np.concatenate([np.asarray(block.origin) for block in blocks])


def _checked(both: LogEvidence, record: RunRecord) -> LogEvidence:
    """Return Bennett's estimate, unless its status is ok although something contradicts it."""
    if both.status != Status.OK:
        return both
    evidences = [LogEvidence(**fields) for fields in record.info["evidences"]]
    for evidence, which in zip(evidences, ("first", "second"), strict=True):
        if evidence.status not in _SOUND:
            message = (
                f"the posterior draws of the {which} model cannot be relied on, because the status "
                f"of its own evidence is {evidence.status}: {evidence.message}"
            )
            return replace(both, status=evidence.status, message=message)
    apart = two_evidences(record)
    error = float(np.hypot(both.mcse, apart.mcse))
    if not contradict(both, apart):
        return both
    distance = abs(both.value - apart.value)
    message = (
        f"annealing between the models gives {both.value:.3f}, and two separate coarse evidences "
        f"differ by {apart.value:.3f}, which is {times(distance, error)} combined standard errors "
        f"away: the draws of one posterior miss a part of it. {_REMEDY}"
    )
    return replace(both, status=Status.INCONSISTENT, message=message)
