"""A stored result, checked by an independent run of the same model."""

import json
from dataclasses import replace

import xarray as xr

from pm_evidence.core.records import LogEvidence
from pm_evidence.estimators.of_run import estimates
from pm_evidence.results import schema
from pm_evidence.results.arviz_groups import made_attrs
from pm_evidence.results.evidence_groups import evidence_group
from pm_evidence.results.record import to_record

__all__ = ["rechecked"]

# Facts that another check already occupies, or that the evidence of another run includes.
_NOT_COMPARED = ("trial_log_z", "prior_constant")


def rechecked(dt: xr.DataTree, coarse: LogEvidence) -> xr.DataTree:
    """Return a result whose status says if an independent coarse run has found more evidence.

    Parameters
    ----------
    dt : DataTree
        From ``sample_evidence``.
    coarse : LogEvidence
        The evidence of another run, in nats, whose status is ``"ok"``.

    Returns
    -------
    DataTree
        ``dt`` itself, unless the two contradict each other. Then its estimates have the status
        ``"missed_mass"``, which ``pe.estimate`` reproduces.
    """
    record = to_record(dt)
    if any(name in record.info for name in _NOT_COMPARED):
        return dt
    facts = {"trial_log_z": coarse.value, "trial_mcse": coarse.mcse, "trial": "coarse"}
    found = estimates(replace(record, info={**record.info, **facts}))
    stored = dt[schema.LOG_EVIDENCE].to_dataset()
    attrs = {str(name): value for name, value in stored.attrs.items()}
    if [each.status for each in found] == list(stored["status"].values):
        return dt
    group = evidence_group(found, found[0].estimator)
    names = [*json.loads(attrs[schema.FACTS]), *facts]
    own = {schema.RECOMMENDED: found[0].estimator, schema.FACTS: names}
    group.attrs = made_attrs({**attrs, **facts, **own})
    out = dt.copy()
    out[schema.LOG_EVIDENCE] = xr.DataTree(group)
    return out
