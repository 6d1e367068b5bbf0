"""The groups that this package adds to ArviZ's schema: log_evidence, work and annealing."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pm_evidence.core.records import BlockRecord, LogEvidence, Role, RunRecord
from pm_evidence.estimators.allocation import allocation_of
from pm_evidence.results import schema
from pm_evidence.results.tempered_groups import tempered_variables

__all__ = ["annealing_group", "evidence_group", "work_group"]


def evidence_group(evidence: Sequence[LogEvidence], recommended: str) -> xr.Dataset:
    """Return the estimates, one entry per estimator; raise ValueError if names do not fit."""
    names = [estimate.estimator for estimate in evidence]
    if not names or len(set(names)) < len(names):
        raise ValueError(
            f"evidence must hold estimates with different names, got {names}; rename or drop some."
        )
    if recommended not in names:
        raise ValueError(f"recommended must be one of {names}, got {recommended!r}; name one.")
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
    """Return the work of each path and the facts of each block, without padding."""
    if not record.of(Role.FORWARD):
        raise ValueError("record must have at least one forward block, got none; run the sampler.")
    variables: dict[str, Any] = {}
    for role, blocks in record.blocks.items():
        variables |= _work_of(role, blocks) if blocks else {}
    if record.origin is not None:
        variables[schema.ORIGIN] = (f"{Role.REVERSE}_path", record.origin)
    variables |= _bridge_work(record.sources)
    variables |= tempered_variables(record.of(Role.FORWARD))
    group = xr.Dataset(variables)
    for name in (*record.blocks, *schema.BRIDGE):
        if name in group:
            group[name].attrs["units"] = schema.NATS
    return group


def _work_of(role: Role, blocks: Sequence[BlockRecord]) -> dict[str, Any]:
    path, block = f"{role}_path", f"{role}_block"
    index = np.array([item.block for item in blocks], np.int64)
    variance = np.array([item.relative_variance for item in blocks], np.float64)
    variables: dict[str, Any] = {
        role.value: (path, np.concatenate([np.asarray(b.work, np.float64) for b in blocks])),
        f"{path}_block": (path, np.repeat(index, [len(item.work) for item in blocks])),
        block: (block, index),
        f"{role}_n_evaluations": (
            block,
            np.array([item.n_evaluations for item in blocks], np.int64),
        ),
        f"{role}_n_nan": (block, np.array([item.n_nan for item in blocks], np.int64)),
    }
    if not np.isnan(variance).all():  # blocks of many paths have none
        variables[f"{role}_relative_variance"] = (block, variance)
    return variables


def _bridge_work(blocks: Sequence[BlockRecord]) -> dict[str, Any]:
    """Return the work between a fitted density and the target, at draws of each."""
    variables: dict[str, Any] = {}
    for side, name in enumerate(schema.BRIDGE):
        works = [(item.block, item.bridge[side]) for item in blocks if item.bridge is not None]
        if works:
            draw = f"{name}_draw"
            variables[name] = (draw, np.concatenate([work for _, work in works]))
            index = np.array([block for block, _ in works], np.int64)
            variables[f"{draw}_block"] = (draw, np.repeat(index, [len(work) for _, work in works]))
    return variables


def annealing_group(record: RunRecord) -> xr.Dataset:
    """Return the schedule, the diagnostics over all blocks and of each, and the kernel settings.

    Stage ``k`` lies between ``beta[k]`` and ``beta[k + 1]`` in both directions.
    """
    beta = np.asarray(record.beta, np.float64)
    n_stages = beta.size - 1
    directions = {role: record.of(role) for role in schema.DIRECTIONS if record.of(role)}
    traces = [_average_trace(blocks, n_stages, role) for role, blocks in directions.items()]
    variables: dict[str, Any] = {"beta": (schema.BETA_POINT, beta)}
    for name, units in schema.TRACE_UNITS.items():
        values = np.stack([trace[name] for trace in traces])
        if name in schema.OPTIONAL_TRACES and np.isnan(values).all():
            continue
        variables[name] = ((schema.DIRECTION, schema.STAGE), values, {"units": units})
    variables |= _allocation(record)
    ends = np.array([np.mean([item.end[0] for item in blocks]) for blocks in directions.values()])
    if np.isfinite(ends).any():
        variables[schema.ENERGY_END] = (schema.DIRECTION, ends, {"units": schema.NATS})
    for name, setting in record.settings.items():
        values = np.asarray(setting, np.float64)
        _check_length(f"settings[{name!r}]", values, n_stages)
        # A slash would be read as a path into the tree.
        safe_name = schema.KERNEL_PREFIX + name.replace("/", ".")
        variables[safe_name] = (schema.STAGE, values)
    for role, blocks in record.blocks.items():
        if blocks and role != Role.GIVEN:  # which nothing has annealed
            variables |= _block_traces(role, blocks, schema.stage_of(role))
    coords = {
        schema.STAGE: np.arange(n_stages),
        schema.BETA_POINT: np.arange(n_stages + 1),
        schema.DIRECTION: np.array(list(directions), dtype=np.str_),
    }
    return xr.Dataset(variables, coords=coords)


def _allocation(record: RunRecord) -> dict[str, Any]:
    """Return the best number of particles at each stage, if the run counted its particles."""
    found = allocation_of(record)
    if found is None:
        return {}
    spent, best = found
    variances = {schema.VARIANCE_SPENT: spent.variance, schema.VARIANCE_LEAST: best.variance}
    return {schema.PARTICLES_OPTIMAL: (schema.STAGE, best.particles, variances)}


def _average_trace(
    blocks: Sequence[BlockRecord], n_stages: int, role: Role
) -> dict[str, NDArray[np.float64]]:
    """Average the diagnostics over blocks.

    The variance is that of all blocks together, including the variance of the block means. Without
    this it would be too small if blocks are small populations.
    """
    stacks: dict[str, NDArray[np.float64]] = {}
    for name in schema.TRACE_UNITS:
        rows = [np.asarray(getattr(item.trace, name), np.float64) for item in blocks]
        for item, row in zip(blocks, rows, strict=True):
            _check_length(f"{name} of {role} block {item.block}", row, n_stages)
        stacks[name] = np.stack(rows)
    means = {name: stack.mean(axis=0) for name, stack in stacks.items()}
    # infinite energies give a variance of NaN, and very large ones an infinite variance
    with np.errstate(invalid="ignore", over="ignore"):
        means["energy_var"] = means["energy_var"] + stacks["energy_mean"].var(axis=0)
    return means


def _block_traces(role: Role, blocks: Sequence[BlockRecord], stage: str) -> dict[str, Any]:
    """Return the trace of every block, and mean and variance of the energy at its end."""
    block = f"{role}_block"
    variables: dict[str, Any] = {}
    for name, units in schema.TRACE_UNITS.items():
        rows = [np.asarray(getattr(item.trace, name), np.float64) for item in blocks]
        if name in schema.OPTIONAL_TRACES and np.isnan(rows).all():
            continue
        variables[f"{role}_{name}"] = ((block, stage), np.stack(rows), {"units": units})
    for side, name in enumerate(("energy_mean", "energy_var")):
        ends = np.array([item.end[side] for item in blocks], np.float64)
        variables[f"{role}_{name}_end"] = (block, ends, {"units": schema.TRACE_UNITS[name]})
    return variables


def _check_length(name: str, values: NDArray[np.float64], n_stages: int) -> None:
    if values.shape != (n_stages,):
        raise ValueError(
            f"{name} must have one entry per stage, shape ({n_stages},), got {values.shape}; "
            "the record's beta must have one entry more than it has stages."
        )
