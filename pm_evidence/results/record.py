"""The record of a stored run, read back, and estimates made from it without sampling."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pm_evidence.core.checks import described, real_number
from pm_evidence.core.exceptions import usual_floats
from pm_evidence.core.records import (
    BlockRecord,
    LogEvidence,
    Role,
    RunRecord,
    StageTrace,
    TemperedChains,
)
from pm_evidence.estimators.of_run import applicable, estimates
from pm_evidence.estimators.verdicts import GIVEN_DRAWS
from pm_evidence.results import schema
from pm_evidence.results.datatree import evidence_group, made_attrs, read_tempered
from pm_evidence.results.stored import evidence_of, group_of, incomplete, variable_of

_NUMBERS = ("inf", "-inf", "nan")  # texts of numbers, as `_plain` of arviz_groups writes them
_ENDS = ("energy_mean", "energy_var")  # of populations at the end of the path
# Facts of tempered runs.
_LADDERS, _OF_TEMPERATURES = "ladders", ("tempering_log_z", "tempering_prior")


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
        block. Draws are not included (``draws``, ``log_density``, ``log_weight``, ``fit_draws``,
        ``fit_log_density`` and ``visited`` are None); those of the posterior are in the group
        ``posterior`` of ``dt``. In ``info`` a bool is 0 or 1, and None is an empty text.

    Raises
    ------
    TypeError
        If ``dt`` is not a DataTree.
    ValueError
        If a group or a part of it is missing, or the result was stored with a version of the schema
        that does not have the trace of each block.
    """
    facts = evidence_of(dt, "dt").attrs
    version = int(facts[schema.SCHEMA])
    if version < schema.FIRST_WITH_RECORDS:
        raise ValueError(
            f"dt must have the {schema.SCHEMA} {schema.FIRST_WITH_RECORDS} or a later one, got "
            f"{version}, which does not hold the trace of each block; read its estimates with "
            "pe.log_evidence, or sample again."
        )
    work, annealing = (group_of(dt, name) for name in (schema.WORK, schema.ANNEALING))
    reader = _Reader(work, annealing)
    if schema.METHOD not in facts:
        raise ValueError(incomplete("dt", schema.LOG_EVIDENCE, f"the attribute {schema.METHOD!r}"))
    record = RunRecord(
        method=str(facts[schema.METHOD]),
        beta=reader.of_annealing("beta", schema.BETA_POINT),
        blocks={role: reader.blocks(role) for role in Role if role in work},
        settings={
            str(name).removeprefix(schema.KERNEL_PREFIX): annealing[name].values
            for name in annealing.data_vars
            if str(name).startswith(schema.KERNEL_PREFIX)
        },
        info=_facts(facts),
    )
    _check_tempered(record)
    return record


def _check_tempered(record: RunRecord) -> None:
    """Raise ValueError if the facts of a tempered run do not fit its chains."""
    if (_LADDERS in record.info) != bool(record.tempered):
        what = _LADDERS if record.tempered else f"{schema.TEMPERED}_energy"
        group = schema.LOG_EVIDENCE if record.tempered else schema.WORK
        raise ValueError(incomplete("dt", group, repr(what)))
    for name in _OF_TEMPERATURES:
        values = record.info.get(name)
        if values is not None and len(values) != len(record.beta):
            raise ValueError(
                f"dt must have a number for each of {len(record.beta)} inverse temperatures as the "
                f"attribute {name!r} of its group {schema.LOG_EVIDENCE!r}, got {len(values)}; read "
                "the original file that sample_evidence wrote."
            )


class _Reader:
    """Reads blocks from the groups ``work`` and ``annealing``."""

    def __init__(self, work: xr.Dataset, annealing: xr.Dataset) -> None:
        self.work, self.annealing = work, annealing

    def of_work(self, key: str, *dims: str) -> NDArray[Any]:
        """Return a variable of the group ``work``."""
        return variable_of(self.work, schema.WORK, key, dims, "dt")

    def whole(self, key: str, *dims: str) -> NDArray[Any]:
        """Return a variable of whole numbers of the group ``work``."""
        values = self.of_work(key, *dims)
        if values.dtype.kind not in "iu":
            raise ValueError(
                f"dt must hold whole numbers as {key!r} in its group {schema.WORK!r}, got dtype "
                f"{values.dtype}; read the original file that sample_evidence wrote."
            )
        return values

    def of_paths(self, key: str, dim: str) -> NDArray[Any]:
        """Return work of the group ``work``, which has one entry for each path or draw."""
        values = self.of_work(key, dim)
        bad = np.flatnonzero(np.isnan(values))
        if bad.size:
            raise ValueError(
                f"dt must hold no NaN as {key!r} in its group {schema.WORK!r}, got {bad.size} of "
                f"{values.size}, the first at index {bad[0]}; read the original file that "
                "sample_evidence wrote."
            )
        return values

    def of_annealing(self, key: str, *dims: str) -> NDArray[Any]:
        """Return a variable of the group ``annealing``."""
        return variable_of(self.annealing, schema.ANNEALING, key, dims, "dt")

    def blocks(self, role: Role) -> tuple[BlockRecord, ...]:
        """Return the blocks of a role."""
        path, block = f"{role}_path", f"{role}_block"
        index = self.whole(block, block)
        work = self._parts(self.of_paths(role.value, path), role.value, path, index)
        if not all(map(len, work)):
            raise ValueError(incomplete("dt", schema.WORK, f"an entry of {role.value!r} per block"))
        origin: list[Any] = [None] * len(index)
        if role == Role.REVERSE and schema.ORIGIN in self.work:
            origin = self._parts(self.whole(schema.ORIGIN, path), schema.ORIGIN, path, index)
        traces = self._traces(role, len(index))
        ends = [np.full(len(index), np.nan)] * 2
        if role != Role.GIVEN:
            ends = [self.of_annealing(f"{role}_{name}_end", block) for name in _ENDS]
        variance = np.full(len(index), np.nan)
        if f"{role}_relative_variance" in self.work:
            variance = self.of_work(f"{role}_relative_variance", block)
        counts = [self.whole(f"{role}_{name}", block) for name in ("n_evaluations", "n_nan")]
        self._check_lengths(role, len(index), traces[0])
        source = next(r for r in (Role.GIVEN, Role.ISLAND, Role.FORWARD) if r in self.work)
        bridges = self._bridges(index) if role == source else [None] * len(index)
        tempered: list[TemperedChains | None] = [None] * len(index)
        if role == Role.FORWARD:
            tempered = read_tempered(self, index, traces[0].shape[1] + 1)
        return tuple(
            BlockRecord(
                block=int(index[i]),
                work=work[i],
                trace=StageTrace(*(values[i] for values in traces)),
                relative_variance=float(variance[i]),
                end=(float(ends[0][i]), float(ends[1][i])),
                bridge=bridges[i],
                origin=origin[i],
                tempered=tempered[i],
                n_evaluations=int(counts[0][i]),
                n_nan=int(counts[1][i]),
            )
            for i in range(len(index))
        )

    def _traces(self, role: Role, n_blocks: int) -> list[NDArray[Any]]:
        """Return the diagnostics of all blocks of a role, each ``(n_blocks, n_stages)``."""
        if role == Role.GIVEN:  # which nothing has annealed
            return [np.empty((n_blocks, 0)) for _ in schema.TRACE_UNITS]
        dims, found = (f"{role}_block", schema.stage_of(role)), {}
        for name in schema.TRACE_UNITS:
            if name not in schema.OPTIONAL_TRACES or f"{role}_{name}" in self.annealing:
                found[name] = self.of_annealing(f"{role}_{name}", *dims)
            else:  # a block without it, or a file of an earlier version
                found[name] = np.full(found["ess"].shape, np.nan)
        return list(found.values())

    def _parts(
        self, values: NDArray[Any], key: str, dim: str, index: NDArray[Any]
    ) -> list[NDArray[Any]]:
        """Return the entries of each block, of a variable with one entry for each path."""
        belongs = self.whole(f"{dim}_block", dim)
        if not np.isin(belongs, index).all():
            raise ValueError(
                f"dt must have a block for every entry of {key!r} in its group {schema.WORK!r}, "
                f"got {dim}_block={belongs[~np.isin(belongs, index)][0]} among blocks "
                f"{', '.join(map(str, index))}; read the original file that sample_evidence wrote."
            )
        return [values[belongs == i] for i in index]

    def _bridges(self, index: NDArray[Any]) -> list[tuple[Any, Any] | None]:
        """Return the work between the fitted density and the target; None if there is none."""
        sides = []
        for name in schema.BRIDGE:
            if name not in self.work:
                return [None] * len(index)
            draw = f"{name}_draw"
            sides.append(self._parts(self.of_paths(name, draw), name, draw, index))
        return [pair if sum(map(len, pair)) else None for pair in zip(*sides, strict=True)]

    def _check_lengths(self, role: Role, n_blocks: int, trace: NDArray[Any]) -> None:
        if len(trace) != n_blocks:
            raise ValueError(
                f"dt must have as many {role} blocks in its group {schema.ANNEALING!r} as in "
                f"{schema.WORK!r}, got {len(trace)} and {n_blocks}; read the original file that "
                "sample_evidence wrote."
            )


def _facts(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of the run among the attributes, after checking those that estimates use."""
    try:
        names = json.loads(attrs[schema.FACTS])
        facts = {str(name): _fact(attrs[str(name)]) for name in names}
    except (KeyError, TypeError, ValueError) as error:
        missing = f"the attribute {schema.FACTS!r} and all attributes that it names"
        raise ValueError(incomplete("dt", schema.LOG_EVIDENCE, missing)) from error
    for name, (holds, rule) in _RULES.items():
        if name in facts and not holds(facts[name]):
            raise ValueError(
                f"dt must have {rule} as the attribute {name!r} of its group "
                f"{schema.LOG_EVIDENCE!r}, got {described(facts[name])}; read the original file "
                "that sample_evidence wrote."
            )
    for together in _TOGETHER:
        if 0 < len(facts.keys() & set(together)) < len(together):
            missing = f"all of the attributes {', '.join(map(repr, together))}"
            raise ValueError(incomplete("dt", schema.LOG_EVIDENCE, missing))
    return facts


def _fact(value: Any) -> Any:
    """Return a fact of the run as it was before it became an attribute."""
    if isinstance(value, str) and value in _NUMBERS:
        return float(value)
    if isinstance(value, str) and value[:1] in ("[", "{"):
        return json.loads(value)
    return value.item() if isinstance(value, np.generic) else value


def _is_number(value: Any) -> bool:
    return real_number(value) is not None


def _is_positive_count(value: Any) -> bool:
    return type(value) is int and value > 0


def _are_counts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(n) is int for n in value)


def _are_numbers(value: Any) -> bool:
    if not isinstance(value, list):
        return False
    return all(_is_number(each) and np.isfinite(each) for each in value)


def _are_shares(value: Any) -> bool:
    return _are_numbers(value) and all(each > 0.0 for each in value)


def _is_estimate(value: Any) -> bool:
    try:
        return isinstance(LogEvidence(**value), LogEvidence)
    except (TypeError, ValueError):
        return False


# Facts of ``info`` that estimates use: those that occur only together, and the rule for each.
_TOGETHER = (
    ("log_likelihood_variance", "n_particles", "noise_acceptance"),
    ("stopped_by", "target_mcse"),
    ("trial_log_z", "trial_mcse"),
    ("n_values", "n_prior_draws"),
    _OF_TEMPERATURES,
)
_RULES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "unbounded": (lambda value: value in (0, 1), "0 or 1"),
    "more_peaks": (lambda value: value in (0, 1), "0 or 1"),
    "moment_distance": (_is_number, "a number"),
    "chain_correlation": (_is_number, "a number"),
    "stopped_by": (
        lambda value: value in ("max_time", "max_draws", GIVEN_DRAWS, "interrupted"),
        "'max_time', 'max_draws', 'given_draws' or 'interrupted'",
    ),
    "target_mcse": (_is_number, "a number"),
    "short_of": (_is_number, "a number"),
    "log_likelihood_variance": (_is_number, "a number"),
    "noise_acceptance": (_is_number, "a number"),
    "n_particles": (_are_counts, "a list of whole numbers"),
    "trial_log_z": (_is_number, "a number"),
    "trial_mcse": (_is_number, "a number"),
    "annealed_log_z": (_is_number, "a number"),
    "trial": (lambda value: isinstance(value, str), "a text"),
    "n_values": (_is_positive_count, "a whole number of at least 1"),
    "n_prior_draws": (_is_positive_count, "a whole number of at least 1"),
    "prior_constant": (_is_estimate, "the fields of a LogEvidence"),
    "doubt": (lambda value: isinstance(value, str), "a text"),
    "n_divergent": (lambda value: type(value) is int, "a whole number"),
    "reference": (lambda value: isinstance(value, str), "a text"),
    "reverse_start": (lambda value: isinstance(value, str), "a text"),
    _LADDERS: (_is_positive_count, "a whole number of at least 1"),
    _OF_TEMPERATURES[0]: (_are_numbers, "a list of numbers"),
    _OF_TEMPERATURES[1]: (_are_shares, "a list of numbers above 0"),
}


# Facts that another check already occupies, or that the evidence of another run includes.
_NOT_COMPARED = ("trial_log_z", "prior_constant")


def rechecked(dt: xr.DataTree, coarse: LogEvidence) -> xr.DataTree:
    """Return a result whose status says if an independent coarse run has found more evidence."""
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
