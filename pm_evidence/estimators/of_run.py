"""All estimates of one run, the recommended one first."""

from dataclasses import replace

from pm_evidence.core.records import LogEvidence, RunRecord
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
    With both directions Bennett's ratio is recommended, which sees all work and has the smallest
    variance; with islands of SMC alone, see `recommend`; with forward paths alone, the mean weight.
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
        "the posterior grows along a ridge, and its mass with it, as far as it was followed: the "
        "evidence is infinite, or concentrated where no draw came. Look for a scale that may go to "
        "zero where data coincide; give it a prior that excludes zero."
    )
    return replace(estimate, status="unbounded", message=message)
