"""Groups of a stored result, checked when read: a file may be foreign, incomplete or changed."""

from collections.abc import Mapping
from typing import Any

import xarray as xr
from numpy.typing import NDArray

from pm_evidence.core.checks import described
from pm_evidence.core.records import LogEvidence, Role
from pm_evidence.results import schema
from pm_evidence.results.observed import describe_observed, observed_fingerprint

__all__ = ["estimate_of", "evidence_of", "group_of", "incomplete", "not_a_tree", "variable_of"]

_PER_STAGE = (schema.DIRECTION, schema.STAGE)
# Variables that each group must have or may have, with their dimensions; then dimensions that must
# have labels.
_NEEDED: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    schema.LOG_EVIDENCE: dict.fromkeys(
        ("value", "mcse", "lower", "upper", "status", "message"), (schema.ESTIMATOR,)
    ),
    schema.ANNEALING: {
        "beta": (schema.BETA_POINT,),
        **dict.fromkeys(("energy_mean", "energy_var", "ess", "acceptance"), _PER_STAGE),
    },
    schema.WORK: {Role.FORWARD.value: (f"{Role.FORWARD}_path",)},
}
_OPTIONAL: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    schema.LOG_EVIDENCE: {"dof": (schema.ESTIMATOR,)},
    schema.ANNEALING: {
        schema.ENERGY_END: (schema.DIRECTION,),
        schema.PATH_ESS: _PER_STAGE,
        schema.PARTICLES: _PER_STAGE,
        schema.PARTICLES_OPTIMAL: (schema.STAGE,),
    },
    schema.WORK: {Role.REVERSE.value: (f"{Role.REVERSE}_path",)},
}
_LABELLED = {schema.LOG_EVIDENCE: schema.ESTIMATOR, schema.ANNEALING: schema.DIRECTION}
_TEXTS = ("status", "message")


def group_of(dt: Any, name: str, parameter: str = "dt") -> xr.Dataset:
    """Return a group of this package, after checking that it has all that readers need.

    Parameters
    ----------
    dt : DataTree
        A stored result.
    name : str
        Name of the group.
    parameter : str
        Name of the argument, for the error.

    Raises
    ------
    TypeError
        If ``dt`` is not a DataTree.
    ValueError
        If the group or a part of it is missing, or has the wrong dtype or dimensions.
    """
    if not isinstance(dt, xr.DataTree):
        raise TypeError(not_a_tree(parameter, dt))
    if name not in dt.children:
        raise ValueError(
            f"{parameter} must have the group {name!r}, got the groups "
            f"{', '.join(dt.children) or '(none)'}; make it with sample_evidence, or add the "
            "group with attach_evidence."
        )
    group = dt[name].to_dataset()
    needed = dict(_NEEDED[name])
    needed |= {key: dims for key, dims in _OPTIONAL.get(name, {}).items() if key in group}
    for key, dims in needed.items():
        _check_variable(group, name, key, dims, parameter)
        if not group[key].size:
            raise ValueError(incomplete(parameter, name, f"an entry of {key!r}"))
    label = _LABELLED.get(name)
    if label is not None and (label not in group.coords or group[label].dtype.kind not in "UTO"):
        raise ValueError(incomplete(parameter, name, f"labels of {label!r}"))
    sizes = group.sizes
    if name == schema.ANNEALING and sizes[schema.BETA_POINT] != sizes[schema.STAGE] + 1:
        raise ValueError(
            f"{parameter} must have one inverse temperature more than stages in its group "
            f"{name!r}, got {sizes[schema.BETA_POINT]} and {sizes[schema.STAGE]}; read the "
            "original file that sample_evidence wrote."
        )
    return group


def evidence_of(dt: Any, parameter: str) -> xr.Dataset:
    """Return the group ``log_evidence`` with its attributes, after checking it.

    Parameters
    ----------
    dt : DataTree
        A stored result.
    parameter : str
        Name of the argument, for the error.

    Raises
    ------
    TypeError
        If ``dt`` is not a DataTree.
    ValueError
        If the group is missing or incomplete, was written by a later version of this package, or
        does not belong to the observed data in ``dt``.
    """
    group = group_of(dt, schema.LOG_EVIDENCE, parameter)
    for name in (schema.SCHEMA, schema.RECOMMENDED, schema.FINGERPRINT):
        if name not in group.attrs:
            raise ValueError(incomplete(parameter, schema.LOG_EVIDENCE, f"the attribute {name!r}"))
    _check_version(group.attrs[schema.SCHEMA], parameter)
    recommended, names = str(group.attrs[schema.RECOMMENDED]), _estimators(group)
    if recommended not in names:
        raise ValueError(
            f"{parameter} must hold the estimate that it recommends, {recommended!r}, got "
            f"{', '.join(map(repr, names)) or 'none'}; read the original file that "
            "sample_evidence wrote."
        )
    stored = str(group.attrs[schema.FINGERPRINT])
    if schema.OBSERVED_DATA in dt.children and _fingerprint(dt, parameter) != stored:
        raise ValueError(
            f"{parameter} must hold the observed data that its evidence was computed from, got "
            f"{describe_observed(dt)} with other values or shapes; run sample_evidence with these "
            "data, or restore the old data."
        )
    return group


def _fingerprint(dt: xr.DataTree, parameter: str) -> str:
    try:
        return observed_fingerprint(dt)
    except ValueError as error:
        raise ValueError(f"{parameter} must hold numbers as data, but {error}") from error


def estimate_of(dt: Any, parameter: str, estimator: str | None = None) -> LogEvidence:
    """Return an estimate that a result holds, the recommended one by default.

    Parameters
    ----------
    dt : DataTree
        A stored result.
    parameter : str
        Name of the argument, for the error.
    estimator : str, optional
        Name of an estimator.

    Raises
    ------
    TypeError, ValueError
        As `evidence_of`; or if there is no estimator of that name.
    """
    group = evidence_of(dt, parameter)
    names = _estimators(group)
    name = str(group.attrs[schema.RECOMMENDED]) if estimator is None else estimator
    if not isinstance(name, str) or name not in names:
        raise ValueError(
            f"estimator must be one of {', '.join(map(repr, names))}, got {described(name)}; "
            "leave it out for the recommended one."
        )
    row = group.isel({schema.ESTIMATOR: names.index(name)})
    try:
        return LogEvidence(
            value=float(row["value"]),
            mcse=float(row["mcse"]),
            estimator=name,
            status=str(row["status"].item()),
            lower=float(row["lower"]),
            upper=float(row["upper"]),
            message=str(row["message"].item()),
            dof=float(row["dof"]) if "dof" in row else float("inf"),  # older files have none
        )
    except ValueError as error:
        raise ValueError(
            f"{parameter} must hold estimates as sample_evidence wrote them, but {error}"
        ) from error


def _estimators(group: xr.Dataset) -> list[str]:
    """Return the names of the estimates, in their order."""
    return [str(name) for name in group[schema.ESTIMATOR].values]


def not_a_tree(parameter: str, value: Any) -> str:
    """Return the message for a value that is not a DataTree."""
    return (
        f"{parameter} must be an xarray.DataTree, got {type(value).__name__}; "
        "pass what sample_evidence or pm.sample returned, or open its file with "
        "xarray.open_datatree."
    )


def variable_of(
    group: xr.Dataset, name: str, key: str, dims: tuple[str, ...], parameter: str
) -> NDArray[Any]:
    """Return the values of a variable.

    Parameters
    ----------
    group : Dataset
        A group of a stored result.
    name : str
        Name of the group, for the error.
    key : str
        Name of the variable.
    dims : tuple of str
        Dimensions that it must have.
    parameter : str
        Name of the argument, for the error.

    Raises
    ------
    ValueError
        If the variable is missing, or has the wrong dtype or dimensions.
    """
    _check_variable(group, name, key, dims, parameter)
    values: NDArray[Any] = group[key].values
    return values


def _check_variable(
    group: xr.Dataset, name: str, key: str, dims: tuple[str, ...], parameter: str
) -> None:
    if key not in group:
        raise ValueError(incomplete(parameter, name, f"the variable {key!r}"))
    found = group[key]
    kinds, what = ("UTO", "text") if key in _TEXTS else ("iuf", "numbers")
    if found.dims != dims or found.dtype.kind not in kinds:
        raise ValueError(
            f"{parameter} must hold {what} with the dimensions {dims} as {key!r} in its group "
            f"{name!r}, got dtype {found.dtype} and {found.dims}; read the original file that "
            "sample_evidence wrote."
        )


def _check_version(version: Any, parameter: str) -> None:
    text = str(version)
    if not text.isdecimal():
        raise ValueError(
            f"{parameter} must have a whole number as {schema.SCHEMA!r}, got {text!r}; read the "
            "original file that sample_evidence wrote."
        )
    if int(text) > int(schema.SCHEMA_VERSION):
        raise ValueError(
            f"{parameter} must have the {schema.SCHEMA} {schema.SCHEMA_VERSION} or an earlier one, "
            f"got {text}: a later version of pm_evidence wrote it. Update pm_evidence to read it."
        )


def incomplete(parameter: str, group: str, missing: str) -> str:
    """Return the message for a group that lacks something."""
    return (
        f"{parameter} must have {missing} in its group {group!r}, got none; read the original file "
        "that sample_evidence wrote, or sample again."
    )
