"""The record of a stored run, read back, and estimates made from it without sampling."""

import json
from collections.abc import Iterable, Sequence

import numpy as np
import xarray as xr

from pm_evidence.core.checks import described
from pm_evidence.core.codec import Unreadable, decoded
from pm_evidence.core.exceptions import usual_floats
from pm_evidence.core.records import CrossCheck, LogEvidence, RunRecord
from pm_evidence.estimators.of_run import applicable, estimates
from pm_evidence.results import schema
from pm_evidence.results.datatree import evidence_group, made_attrs, record_group
from pm_evidence.results.stored import evidence_of, incomplete


@usual_floats()
def estimate(
    dt: xr.DataTree | RunRecord, estimators: str | Sequence[str] | None = None
) -> dict[str, LogEvidence]:
    """Estimate the log evidence from a stored run, without sampling again.

    Parameters
    ----------
    dt : DataTree or RunRecord
        From ``sample_evidence``, ``simulate_and_certify``, `attach_evidence`, or a file to which
        one of them was saved; or the record that `to_record` returns for it.
    estimators : str or sequence of str, optional
        Names of estimators, in the order of the result. If left out, those that the run itself
        reports, the recommended one first.

    Returns
    -------
    dict of str to LogEvidence
        One estimate for each name, with value, error and interval in nats.

    Raises
    ------
    TypeError
        If ``dt`` is neither a DataTree nor a record, or ``estimators`` is neither a name nor a
        sequence of names.
    ValueError
        As `to_record`; or if an estimator is unknown, or not available for this run.

    Notes
    -----
    An estimate that the run reported is reproduced exactly, including its status. This also holds
    for what was determined after the work: the limit that ended the run (``max_time``,
    ``max_draws``), the check of a noisy estimate of the likelihood and, with
    ``potentials="prior"``, the normalising constant of the prior, which is subtracted from every
    log evidence.

    Estimators that the run did not report have the statuses of their own functions in
    ``pm_evidence.estimators``, which do not compare them with other estimates. Available are:

    - ``jarzynski``, ``lower_bound`` and ``cumulant_forward`` for every run (the last one if no
      path has weight zero);
    - ``bar``, ``histogram``, ``histogram_posterior``, ``jarzynski_reverse``, ``cumulant``,
      ``cumulant_reverse`` and ``upper_bound`` for runs in both directions;
    - ``smc`` and ``single_run`` for runs with islands, including islands that reverse paths start
      from; ``power_posterior`` for runs of islands alone;
    - ``importance`` and ``bridge`` if the run fitted a density;
    - ``mbar``, ``chained_bar``, ``stepping_stone``, ``stepping_stone_reverse``, ``ti``,
      ``ti_trapezoid`` and ``ti_riemann`` for parallel and simulated tempering, and ``rts``, ``ts``
      and ``ti_rb`` for the latter; of the work, which is that of their first states, only
      ``smc``, ``jarzynski`` and ``lower_bound``.

    Examples
    --------
    >>> import pymc as pm, pm_evidence as pe
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", 0, 1)
    ...     y = pm.Normal("y", mu, 1, observed=[0.5, 1.5])
    >>> dt = pe.sample_evidence(model, draws=400, random_seed=1, progressbar=False)
    >>> sorted(pe.estimate(dt))
    ['bridge', 'importance', 'single_run', 'smc']
    >>> pe.estimate(dt)["smc"] == pe.log_evidence(dt, estimator="smc")
    True
    >>> pe.estimate(dt, "power_posterior")["power_posterior"].estimator
    'power_posterior'
    """
    record = dt if isinstance(dt, RunRecord) else to_record(dt)
    if estimators is None:
        return {found.estimator: found for found in estimates(record)}
    there = applicable(record)
    names = [estimators] if isinstance(estimators, str) else estimators
    if not isinstance(names, Iterable) or getattr(names, "shape", (1,)) == ():
        raise TypeError(
            f"estimators must be a name or a sequence of names, got {described(estimators)}; "
            f"choose among {', '.join(map(repr, there))}."
        )
    for name in (names := list(names)):
        if not isinstance(name, str) or name not in there:
            raise ValueError(
                f"estimators must be among those that are available for this run, "
                f"{', '.join(map(repr, there))}, got {described(name)}; choose others, or sample "
                "with another method."
            )
    return {name: there[name]() for name in names}


def to_record(dt: xr.DataTree) -> RunRecord:
    """Return the record of a stored run.

    Parameters
    ----------
    dt : DataTree
        From ``sample_evidence``, ``simulate_and_certify``, `attach_evidence`, or a file to which
        one of them was saved.

    Returns
    -------
    RunRecord
        All data of a run that estimators need, exactly: work, traces, bridges and origins of every
        block, and the facts of the run. Draws are not included (``draws``, ``log_density``,
        ``log_weight``, ``fit_draws``, ``fit_log_density`` and ``visited`` are None); those of the
        posterior are in the group ``posterior`` of ``dt``.

    Raises
    ------
    TypeError
        If ``dt`` is not a DataTree.
    ValueError
        If the group ``record`` is missing, or is not as ``sample_evidence`` wrote it.
    """
    attrs = evidence_of(dt, "dt").attrs
    if schema.RECORD not in dt.children:
        raise ValueError(incomplete("dt", schema.RECORD, "the record of the run"))
    group = dt[schema.RECORD].to_dataset()
    arrays = {str(name).removesuffix("_numbers"): group[name].values for name in group.data_vars}
    try:
        text = np.asarray(arrays.pop(schema.TREE), np.uint8).tobytes()
        record = decoded(json.loads(text), arrays)
        if not isinstance(record, RunRecord):
            raise Unreadable(f"it holds {described(record)}")
        seconds = {name: float(attrs[name]) for name in schema.SECONDS if name in attrs}
    except (Unreadable, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"dt must have the record of a run in its group {schema.RECORD!r}, but {error}; read "
            "the original file that sample_evidence wrote, or sample again."
        ) from error
    return record.stating(**seconds)


def rechecked(dt: xr.DataTree, coarse: LogEvidence) -> xr.DataTree:
    """Return a result whose status says if an independent coarse run has found more evidence."""
    record = to_record(dt)
    if record.facts.cross_check is not None or record.facts.prior_constant is not None:
        return dt  # another check is there, or the evidence includes that of another run
    record = record.stating(cross_check=CrossCheck(coarse.value, coarse.mcse, "coarse"))
    found = estimates(record)
    stored = dt[schema.LOG_EVIDENCE].to_dataset()
    if [each.status for each in found] == list(stored["status"].values):
        return dt
    group = evidence_group(found, found[0].estimator)
    facts = {**record.facts.attributes(), schema.RECOMMENDED: found[0].estimator}
    group.attrs = made_attrs({**{str(k): v for k, v in stored.attrs.items()}, **facts})
    again = record_group(record)
    again.attrs = dict(dt[schema.RECORD].attrs)
    out = dt.copy()
    out[schema.LOG_EVIDENCE], out[schema.RECORD] = xr.DataTree(group), xr.DataTree(again)
    return out
