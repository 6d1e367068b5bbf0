"""All estimates of one run, the recommended one first."""

from dataclasses import replace

from pm_evidence.core.records import LogEvidence, RunRecord
from pm_evidence.core.statuses import Status
from pm_evidence.estimators.annealed_paths import one_sided, two_sided
from pm_evidence.estimators.islands import integrated, of_islands

__all__ = ["estimates"]


def estimates(record: RunRecord) -> list[LogEvidence]:
    """Return all estimates of a run, the recommended one first.

    Parameters
    ----------
    record : RunRecord
        A run of any sampler.

    Notes
    -----
    With paths in both directions Bennett's ratio is recommended, because it uses all work and has
    the smallest variance. With islands of SMC alone the rule is that of `recommend`, and with
    forward paths alone the mean weight is recommended.
    """
    if record.of_islands:
        found = of_islands(record.forward)
        if record.info.get("estimated_likelihood"):
            found += integrated(record)
    elif not record.reverse:
        found = one_sided(record)
    else:
        found = two_sided(record)
    return [_unbounded(e) for e in found] if record.info.get("unbounded") else found


def _unbounded(estimate: LogEvidence) -> LogEvidence:
    message = (
        "the posterior density and its mass increase along a ridge as far as it was followed: the "
        "evidence is infinite, or concentrated in a region without draws. Look for a scale that "
        "can go to zero where data coincide, and give it a prior that excludes zero."
    )
    return replace(estimate, status=Status.UNBOUNDED, message=message)
