"""A run as a DataTree in ArviZ's schema, and the evidence read back from one.

Everything is written with plain dtypes (numbers and fixed-width strings) and without
padding, so that it survives ``to_netcdf`` and ``to_zarr`` bit for bit.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import xarray as xr
from numpy.typing import NDArray

from pm_evidence.core.records import LogEvidence, RunRecord
from pm_evidence.results import arviz_groups, evidence_groups, schema
from pm_evidence.results.observed import describe_observed, observed_fingerprint
from pm_evidence.results.stored import estimate_of, evidence_of, not_a_tree

__all__ = ["attach_evidence", "log_evidence", "to_datatree"]

Arrays = Mapping[str, NDArray[Any]]


def to_datatree(
    record: RunRecord,
    evidence: Sequence[LogEvidence],
    *,
    recommended: str,
    posterior: Arrays,
    fingerprint: str,
    random_seed: Any,
    versions: Mapping[str, str],
    sample_stats: Arrays | None = None,
    observed_data: Arrays | None = None,
    constant_data: Arrays | None = None,
    coords: Mapping[str, Sequence[Any]] | None = None,
    dims: Mapping[str, Sequence[str | None]] | None = None,
    sample_attrs: Mapping[str, Any] | None = None,
) -> xr.DataTree:
    """Return a run and its estimates as a DataTree in ArviZ's InferenceData schema.

    Parameters
    ----------
    record : RunRecord
        The run. Its ``info`` becomes attributes of the group ``log_evidence``.
    evidence : sequence of LogEvidence
        One estimate per estimator, in nats; their names must differ.
    recommended : str
        Name of the estimator that `log_evidence` returns by default.
    posterior : mapping of str to ndarray, shape (n_chains, n_draws, ...)
        Draws with equal weights, in constrained space. If it is empty, the group is left out.
    fingerprint : str
        Fingerprint of the observed data, from `fingerprint`; empty if nothing is observed.
    random_seed : any
        The seed that the user gave, or the entropy that was used instead; stored as a number if it
        fits into 64 bits, else as text.
    versions : mapping of str to str
        Versions of packages by name; ``"pm_evidence"`` is also the inference library's.
    sample_stats : mapping of str to ndarray, shape (n_chains, n_draws, ...), optional
        Facts about each draw, such as its log likelihood in nats.
    observed_data, constant_data : mapping of str to ndarray, optional
        As PyMC writes them. Masked entries become NaN.
    coords, dims : mapping, optional
        Labels of each dimension, and names of the dimensions of each variable (without
        chain and draw).
    sample_attrs : mapping, optional
        Further attributes of ``posterior`` and ``sample_stats``, such as ``sampling_time`` in
        seconds.

    Returns
    -------
    DataTree
        With the groups ``posterior``, ``sample_stats``, ``observed_data``, ``constant_data``
        (those that have content), ``log_evidence``, ``work`` and ``annealing``.

    Raises
    ------
    ValueError
        If the estimates are unusable (none, equal names, ``recommended`` not among them), the
        record has no forward block or traces of the wrong length, or an array has an object
        dtype or a different number of chains and draws from the rest.
    """
    samples = {
        schema.POSTERIOR: dict(posterior),
        schema.SAMPLE_STATS: dict(sample_stats or {}),
    }
    data = {
        schema.OBSERVED_DATA: dict(observed_data or {}),
        schema.CONSTANT_DATA: dict(constant_data or {}),
    }
    library = arviz_groups.library_attrs(versions)
    named = arviz_groups.Named(coords or {}, dims or {})
    groups = {
        **arviz_groups.sample_groups(samples, named, {**library, **(sample_attrs or {})}),
        **arviz_groups.data_groups(data, named, library),
        schema.LOG_EVIDENCE: evidence_groups.evidence_group(evidence, recommended),
        schema.WORK: evidence_groups.work_group(record),
        schema.ANNEALING: evidence_groups.annealing_group(record),
    }
    own = {
        **{f"{name}_version": version for name, version in versions.items()},
        schema.SCHEMA: schema.SCHEMA_VERSION,
        schema.RECOMMENDED: recommended,
        schema.METHOD: record.method,
        # stored as a number if it fits into 64 bits, else as text; both can be passed again
        schema.RANDOM_SEED: random_seed,
        schema.FINGERPRINT: fingerprint,
    }
    facts = {name: fact for name, fact in record.info.items() if name not in own}
    groups[schema.LOG_EVIDENCE].attrs = {**facts, **own, schema.FACTS: list(facts)}
    for name in schema.EVIDENCE_GROUPS:
        groups[name].attrs = arviz_groups.made_attrs({**groups[name].attrs, **library})
    return xr.DataTree.from_dict(groups)


def log_evidence(dt: xr.DataTree, *, estimator: str | None = None) -> LogEvidence:
    """Return the log evidence that a DataTree holds.

    Parameters
    ----------
    dt : DataTree
        From ``sample_evidence``, `attach_evidence`, or a file to which one of them was saved.
    estimator : str, optional
        Name of an estimator; the recommended one by default.

    Returns
    -------
    LogEvidence
        Value, error and interval in nats.

    Raises
    ------
    TypeError
        If ``dt`` is not a DataTree.
    ValueError
        If it has no group ``log_evidence`` or an incomplete one, observed data that differ from
        those that the evidence was computed from, or no estimator of that name.
    """
    return estimate_of(dt, "dt", estimator)


def attach_evidence(idata: xr.DataTree, evidence: xr.DataTree) -> xr.DataTree:
    """Return a copy of ``idata`` that also holds the evidence of the same model.

    Parameters
    ----------
    idata : DataTree
        Draws that the user already has, for example from ``pm.sample``. It is not changed.
    evidence : DataTree
        From ``sample_evidence``.

    Returns
    -------
    DataTree
        ``idata`` with the groups ``log_evidence``, ``work`` and ``annealing`` of ``evidence``,
        which replace existing groups of these names. All other groups are those of ``idata``.

    Raises
    ------
    TypeError
        If either is not a DataTree.
    ValueError
        If ``evidence`` holds no evidence or an incomplete one, or the observed data of the two
        differ.
    """
    stored = evidence_of(evidence, "evidence").attrs[schema.FINGERPRINT]
    if not isinstance(idata, xr.DataTree):
        raise TypeError(not_a_tree("idata", idata))
    if observed_fingerprint(idata) != stored:
        raise ValueError(
            "idata and evidence must come from the same observed data, but idata has "
            f"{describe_observed(idata)} and evidence has {describe_observed(evidence)}, "
            "and their values or shapes differ; run sample_evidence with the data of idata."
        )
    out = idata.copy()
    for name in schema.EVIDENCE_GROUPS:
        if name in evidence.children:
            out[name] = xr.DataTree(evidence[name].to_dataset())
    return out
