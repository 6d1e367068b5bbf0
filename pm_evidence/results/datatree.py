"""A run as a DataTree in ArviZ's schema, and its evidence and its record read back from one."""

import json
import warnings
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from pm_evidence.core.checks import described
from pm_evidence.core.codec import Unreadable, decoded, encoded
from pm_evidence.core.exceptions import usual_floats
from pm_evidence.core.records import BlockRecord, CrossCheck, LogEvidence, Role, RunRecord
from pm_evidence.estimators.of_run import applicable, estimates
from pm_evidence.results import schema
from pm_evidence.results.stored import (
    describe_observed,
    estimate_of,
    evidence_of,
    incomplete,
    not_a_tree,
    observed_fingerprint,
)
from pm_evidence.schedules import Allocation, optimal_allocation

Arrays = Mapping[str, NDArray[Any]]

_INT64 = np.iinfo(np.int64)
# What the group ``record`` leaves out of a block: draws, which are in ``posterior``.
_DRAWS = ("draws", "log_density", "log_weight", "fit_draws", "fit_log_density", "visited")


def made_attrs(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``attrs`` in plain types, with those that ArviZ adds to every group."""
    from arviz_base import make_attrs  # imported late, as in PyMC

    return dict(make_attrs(attrs={str(name): _plain(value) for name, value in attrs.items()}))


def _groups(
    groups: Mapping[str, Arrays],
    sample_dims: tuple[str, ...],
    coords: Mapping[str, Sequence[Any]],
    dims: Mapping[str, Sequence[str | None]],
    attrs: Mapping[str, Any],
) -> dict[str, xr.Dataset]:
    """Build the groups that have content as ``pm.sample`` does."""
    from arviz_base import dict_to_dataset

    labels: dict[Any, Any] = {str(name): _labels(values) for name, values in coords.items()}
    return {
        group: dict_to_dataset(
            arrays,
            coords=labels,
            dims=_fitting_dims(arrays, len(sample_dims), labels, dims),
            sample_dims=list(sample_dims),
            attrs={str(name): _plain(value) for name, value in attrs.items()},
            check_conventions=False,  # there may be more chains than draws
        )
        for group, arrays in groups.items()
        if arrays
    }


def _fitting_dims(
    arrays: Arrays,
    n_leading: int,
    coords: Mapping[str, NDArray[Any]],
    dims: Mapping[str, Sequence[str | None]],
) -> dict[Hashable, Sequence[Hashable]]:
    """Drop dimension names that do not fit the array, which would be padded with NaN."""
    sizes = {name: len(values) for name, values in coords.items()}
    out: dict[Hashable, Sequence[Hashable]] = {}
    for variable, values in arrays.items():
        lengths = np.shape(values)[n_leading:]
        pairs = list(zip(dims.get(variable, ()), lengths, strict=False))
        misfits = {
            dim: length
            for dim, length in pairs
            if dim is not None and sizes.setdefault(dim, length) != length
        }
        for dim, length in misfits.items():
            warnings.warn(
                f"dims of {variable!r} must fit its shape, but {dim!r} has {sizes[dim]} entries "
                f"elsewhere and {length} here; it is stored under a generic dimension name. "
                "Give it a dimension of its own.",
                UserWarning,
                stacklevel=2,
            )
        out[variable] = [None if dim in misfits else dim for dim, _ in pairs]
    return out


def _labels(values: Sequence[Any]) -> NDArray[Any]:
    """Return coordinate labels with a plain dtype."""
    array = np.asarray(values)
    if array.dtype == object:
        array = pd.Index(list(values)).to_numpy()  # recovers dates
    return array.astype(np.str_) if array.dtype == object else array


def _plain(value: Any) -> Any:
    """Return an attribute as both netCDF and Zarr can hold it."""
    value = value.item() if isinstance(value, np.generic) else value
    if value is None:
        return ""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int):
        return value if _INT64.min <= value <= _INT64.max else str(value)
    if isinstance(value, float):
        return value if np.isfinite(value) else str(value)
    if isinstance(value, str):
        return value
    if isinstance(value, np.ndarray):
        value = value.tolist()
    return json.dumps(value, default=str)


def evidence_group(evidence: Sequence[LogEvidence]) -> xr.Dataset:
    """Return the estimates, one entry per estimator."""
    names = [estimate.estimator for estimate in evidence]
    dim = schema.ESTIMATOR
    variables: dict[str, Any] = {
        field: (dim, np.array([getattr(estimate, field) for estimate in evidence], np.float64))
        for field in ("value", "mcse", "lower", "upper", "dof")
    }
    for field in ("status", "message"):
        texts = [getattr(estimate, field) for estimate in evidence]
        variables[field] = (dim, np.array(texts, dtype=np.str_))
    group = xr.Dataset(variables, coords={dim: np.array(names, dtype=np.str_)})
    for field in ("value", "mcse", "lower", "upper"):
        group[field].attrs["units"] = schema.NATS
    return group


def work_group(record: RunRecord) -> xr.Dataset:
    """Return the work of each path and the cost of each block, without padding."""
    variables: dict[str, Any] = {}
    for role in (role for role in record.blocks if record.of(role)):
        blocks = record.of(role)
        path, block = f"{role}_path", f"{role}_block"
        index = np.array([each.block for each in blocks], np.int64)
        n_evaluations = np.array([each.n_evaluations for each in blocks], np.int64)
        variables |= {
            str(role): (path, record.work(role), {"units": schema.NATS}),
            f"{path}_block": (path, np.repeat(index, [len(each.work) for each in blocks])),
            block: (block, index),
            f"{role}_n_evaluations": (block, n_evaluations),
        }
    if record.origin is not None:
        variables[schema.ORIGIN] = (f"{Role.REVERSE}_path", record.origin)
    return xr.Dataset(variables)


def record_group(record: RunRecord) -> xr.Dataset:
    """Return all of a record but its draws, as `core.codec` stores values."""
    nothing: dict[str, Any] = dict.fromkeys(_DRAWS)
    bare = {
        role: tuple(replace(block, **nothing) for block in blocks)
        for role, blocks in record.blocks.items()
    }
    # seconds are attributes alone, so that equal runs have equal groups
    timeless = record.stating(**dict.fromkeys(schema.SECONDS))
    tree, arrays = encoded(replace(timeless, blocks=bare))
    text = np.frombuffer(json.dumps(tree).encode(), np.uint8)
    variables = {f"{name}_numbers": (f"{name}_number", values) for name, values in arrays.items()}
    return xr.Dataset({schema.TREE: (f"{schema.TREE}_byte", text), **variables})


def annealing_group(record: RunRecord) -> xr.Dataset:
    """Return the schedule, the diagnostics over all blocks, and the kernel settings.

    Stage ``k`` lies between ``beta[k]`` and ``beta[k + 1]`` in both directions.
    """
    beta = np.asarray(record.beta, np.float64)
    n_stages = beta.size - 1
    directions = {role: record.of(role) for role in schema.DIRECTIONS if record.of(role)}
    traces = [_average_trace(blocks) for blocks in directions.values()]
    variables: dict[str, Any] = {"beta": (schema.BETA_POINT, beta)}
    for name, units in schema.TRACE_UNITS.items():
        values = np.stack([trace[name] for trace in traces])
        if name in schema.OPTIONAL_TRACES and np.isnan(values).all():
            continue
        variables[name] = ((schema.DIRECTION, schema.STAGE), values, {"units": units})
    allocation = allocation_of(record)
    if allocation is not None:
        spent, best = allocation
        variances = {schema.VARIANCE_SPENT: spent.variance, schema.VARIANCE_LEAST: best.variance}
        variables[schema.PARTICLES_OPTIMAL] = (schema.STAGE, best.particles, variances)
    ends = np.array([np.mean([item.end[0] for item in blocks]) for blocks in directions.values()])
    if np.isfinite(ends).any():
        variables[schema.ENERGY_END] = (schema.DIRECTION, ends, {"units": schema.NATS})
    for name, setting in record.settings.items():
        # A slash would be read as a path into the tree.
        safe_name = schema.KERNEL_PREFIX + name.replace("/", ".")
        variables[safe_name] = (schema.STAGE, np.asarray(setting, np.float64))
    coords = {
        schema.STAGE: np.arange(n_stages),
        schema.BETA_POINT: np.arange(n_stages + 1),
        schema.DIRECTION: np.array(list(directions), dtype=np.str_),
    }
    return xr.Dataset(variables, coords=coords)


def allocation_of(record: RunRecord) -> tuple[Allocation, Allocation] | None:
    """Return the particles that a run spent on each stage, and the best use of as many."""
    blocks = record.of(Role.FORWARD)
    particles = np.array([block.trace.particles for block in blocks])
    ess = np.array([block.trace.ess for block in blocks])
    if not particles.size or not (np.isfinite(particles) & (ess > 0.0)).all():
        return None
    # rounding may put a share of equal weights above 1
    variance = np.maximum(1.0 / ess - 1.0, 0.0).mean(axis=0)
    spent = particles.mean(axis=0)
    found = Allocation(spent, float((variance / spent).sum()))
    return found, optimal_allocation(variance, float(spent.sum()))


def _average_trace(blocks: Sequence[BlockRecord]) -> dict[str, NDArray[np.float64]]:
    """Average the diagnostics over blocks.

    The variance is that of all blocks together, including the variance of the block means. Without
    this it would be too small if blocks are small populations.
    """
    stacks = {
        name: np.array([getattr(block.trace, name) for block in blocks], np.float64)
        for name in schema.TRACE_UNITS
    }
    means = {name: stack.mean(axis=0) for name, stack in stacks.items()}
    # infinite energies give a variance of NaN, and very large ones an infinite variance
    with np.errstate(invalid="ignore", over="ignore"):
        means["energy_var"] = means["energy_var"] + stacks["energy_mean"].var(axis=0)
    return means


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
        The run. Its ``facts`` become attributes of the group ``log_evidence``.
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
        (those that have content), ``log_evidence``, ``work``, ``annealing`` and ``record``.
    """
    samples = {schema.POSTERIOR: posterior, schema.SAMPLE_STATS: sample_stats or {}}
    data = {schema.OBSERVED_DATA: observed_data or {}, schema.CONSTANT_DATA: constant_data or {}}
    library = {"inference_library": schema.INFERENCE_LIBRARY}
    if schema.INFERENCE_LIBRARY in versions:
        library["inference_library_version"] = versions[schema.INFERENCE_LIBRARY]
    named, of_samples = (coords or {}, dims or {}), {**library, **(sample_attrs or {})}
    groups = {
        **_groups(samples, schema.SAMPLE_DIMS, *named, of_samples),
        **_groups(data, (), *named, library),
        schema.LOG_EVIDENCE: evidence_group(evidence),
        schema.WORK: work_group(record),
        schema.ANNEALING: annealing_group(record),
        schema.RECORD: record_group(record),
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
    groups[schema.LOG_EVIDENCE].attrs = {**record.facts.attributes(), **own}
    for name in schema.EVIDENCE_GROUPS:
        groups[name].attrs = made_attrs({**groups[name].attrs, **library})
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
        ``idata`` with the groups ``log_evidence``, ``work``, ``annealing`` and ``record`` of
        ``evidence``, which replace existing groups of these names. All other groups are those of
        ``idata``.

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
    group = evidence_group(found)
    facts = {**record.facts.attributes(), schema.RECOMMENDED: found[0].estimator}
    group.attrs = made_attrs({**{str(k): v for k, v in stored.attrs.items()}, **facts})
    again = record_group(record)
    again.attrs = dict(dt[schema.RECORD].attrs)
    out = dt.copy()
    out[schema.LOG_EVIDENCE], out[schema.RECORD] = xr.DataTree(group), xr.DataTree(again)
    return out
