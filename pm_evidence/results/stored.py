"""What a stored result holds, checked when read: its data, its groups, and doubts about draws."""

import hashlib
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pm_evidence.core.checks import described
from pm_evidence.core.records import LogEvidence, Role
from pm_evidence.results import schema


def fingerprint(observed: Mapping[str, NDArray[Any]]) -> str:
    """Return a fingerprint of observed data, to tell whether two models have the same data.

    Parameters
    ----------
    observed : mapping of str to ndarray
        Observed arrays, any shape, numeric; masked entries and NaN count as missing. Names and
        order do not matter, so models that name their likelihood differently still match.

    Returns
    -------
    str
        SHA-256 in hexadecimal, over the multiset of arrays as float64 with their shapes; empty
        if nothing is observed (no array, or only empty arrays).

    Raises
    ------
    ValueError
        If an array is not numeric.

    Notes
    -----
    Integers, booleans and floats of equal value match; float32 data match float64 data only
    if they are exactly equal. Arrays of shape ``(n,)`` and ``(n, 1)`` do not match.

    Examples
    --------
    >>> import numpy as np
    >>> fingerprint({"y": np.array([1, 2])}) == fingerprint({"obs": np.array([1.0, 2.0])})
    True
    >>> fingerprint({})
    ''
    """
    digests = sorted(_digest(name, values) for name, values in observed.items() if np.size(values))
    return hashlib.sha256(b"".join(digests)).hexdigest() if digests else ""


def observed_fingerprint(dt: xr.DataTree) -> str:
    """Return the fingerprint of the group ``observed_data``; empty if there is none."""
    if schema.OBSERVED_DATA not in dt.children:
        return ""
    group = dt[schema.OBSERVED_DATA]
    return fingerprint({str(name): var.values for name, var in group.data_vars.items()})


def describe_observed(dt: xr.DataTree) -> str:
    """Return names and shapes of the observed variables, for messages."""
    if schema.OBSERVED_DATA not in dt.children:
        return "no group observed_data"
    variables = dt[schema.OBSERVED_DATA].data_vars.items()
    return ", ".join(f"{name} {var.shape}" for name, var in variables) or "no observed variable"


def posterior_of(
    dt: Any, observed: Mapping[str, NDArray[Any]], parameter: str = "reverse_start"
) -> dict[str, NDArray[Any]]:
    """Return the posterior draws of a DataTree, after checking their observed data."""
    if not isinstance(dt, xr.DataTree):
        raise TypeError(
            f"{parameter} must be a DataTree with posterior draws, got {type(dt).__name__}; pass "
            "what pm.sample returned."
        )
    if schema.POSTERIOR not in dt.children:
        groups = ", ".join(dt.children) or "(none)"
        raise ValueError(
            f"{parameter} must have the group 'posterior', got the groups {groups}; pass what "
            "pm.sample returned."
        )
    if schema.OBSERVED_DATA not in dt.children and fingerprint(observed):
        raise ValueError(
            f"{parameter} must have the group 'observed_data', which shows whether it belongs to "
            f"the data of this model, got the groups {', '.join(dt.children)}; pass the whole "
            "result of pm.sample."
        )
    if observed_fingerprint(dt) != fingerprint(observed):
        raise ValueError(
            f"{parameter} must hold the posterior given the data of this model, got draws given "
            f"{describe_observed(dt)}, whose values or shapes differ; sample this model with "
            "pm.sample, and pass the whole result."
        )
    group = dt[schema.POSTERIOR].to_dataset()
    draws = {
        str(name): group[name].transpose(*schema.SAMPLE_DIMS, ...).values
        for name in group.data_vars
        if set(schema.SAMPLE_DIMS) <= set(group[name].dims)
    }
    if not any(values.size for values in draws.values()):
        raise ValueError(
            f"{parameter} must hold draws with the dimensions {' and '.join(schema.SAMPLE_DIMS)} "
            "in its group 'posterior', got none; pass what pm.sample returned."
        )
    return draws


def check_constants(dt: xr.DataTree, constants: Mapping[str, NDArray[Any]], parameter: str) -> None:
    """Raise ValueError if a DataTree was sampled with other constant data than a model has."""
    if schema.CONSTANT_DATA not in dt.children:
        return
    stored = dt[schema.CONSTANT_DATA].to_dataset()
    for name, values in constants.items():
        found = stored[name].values if name in stored else values
        same = found.shape == values.shape and np.array_equal(
            found, values, equal_nan=values.dtype.kind == "f" and found.dtype.kind == "f"
        )
        if not same:
            raise ValueError(
                f"{parameter} must hold the posterior given the data of this model, got draws with "
                f"other values of {name!r}, shape {found.shape}, in the group constant_data; "
                "sample this model with pm.sample, and pass the whole result."
            )


def _digest(name: str, values: Any) -> bytes:
    array: Any = np.ma.asarray(values)
    if array.dtype.kind not in "biuf":
        raise ValueError(
            f"observed data must be numeric, got dtype {array.dtype} for {name!r}; "
            "encode it as numbers."
        )
    plain = array.astype("<f8").filled(np.nan)
    # One bit pattern for every NaN, and for both zeros.
    plain = np.where(np.isnan(plain), np.nan, plain + 0.0)
    return hashlib.sha256(repr(array.shape).encode() + plain.tobytes()).digest()


_PER_STAGE = (schema.DIRECTION, schema.STAGE)
# Variables of each group with their dimensions, and those that there may be; then dimensions that
# must have labels.
_VARIABLES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    schema.LOG_EVIDENCE: dict.fromkeys(
        ("value", "mcse", "lower", "upper", "status", "message", "dof"), (schema.ESTIMATOR,)
    ),
    schema.ANNEALING: {
        "beta": (schema.BETA_POINT,),
        **dict.fromkeys(schema.TRACE_UNITS, _PER_STAGE),
        schema.ENERGY_END: (schema.DIRECTION,),
        schema.PARTICLES_OPTIMAL: (schema.STAGE,),
    },
    schema.WORK: {role.value: (f"{role}_path",) for role in schema.DIRECTIONS},
}
_OPTIONAL = {
    *("dof", Role.REVERSE.value, schema.ENERGY_END, schema.PARTICLES_OPTIMAL),
    *schema.OPTIONAL_TRACES,
}
_LABELLED = {schema.LOG_EVIDENCE: schema.ESTIMATOR, schema.ANNEALING: schema.DIRECTION}
_TEXTS = ("status", "message")


def group_of(dt: Any, name: str, parameter: str = "dt") -> xr.Dataset:
    """Return a group of this package, after checking that it has all that readers need."""
    if not isinstance(dt, xr.DataTree):
        raise TypeError(not_a_tree(parameter, dt, "sample_evidence or bridge_sampling"))
    if name not in dt.children:
        raise ValueError(
            f"{parameter} must have the group {name!r}, got the groups "
            f"{', '.join(dt.children) or '(none)'}; make it with sample_evidence, or from "
            "posterior draws with bridge_sampling, or add the group with attach_evidence."
        )
    group = dt[name].to_dataset()
    for key, dims in _VARIABLES[name].items():
        if key in _OPTIONAL and key not in group:
            continue
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
    """Return the group ``log_evidence`` with its attributes, after checking it."""
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
    """Return an estimate that a result holds, the recommended one by default."""
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


def not_a_tree(parameter: str, value: Any, made_by: str = "sample_evidence or pm.sample") -> str:
    """Return the message for a value that is not a DataTree."""
    return (
        f"{parameter} must be an xarray.DataTree, got {type(value).__name__}; "
        f"pass what {made_by} returned, or open its file with xarray.open_datatree."
    )


def variable_of(
    group: xr.Dataset, name: str, key: str, dims: tuple[str, ...], parameter: str
) -> NDArray[Any]:
    """Return the values of a variable."""
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


# Vehtari et al. (2021) recommend 1.01 for long runs. Among many coordinates of two short chains,
# some exceed that by chance; none of 200 exceeded 1.02 with 500 independent draws in each chain.
_LARGEST_RHAT = 1.05
_LEAST_DRAWS = 4  # per chain, because R-hat compares halves of chains
_MOST_COORDINATES = 500  # each takes some milliseconds
# Vehtari et al. (2021): with fewer effective draws neither R-hat nor this number can be relied on.
_LEAST_EFFECTIVE = 400
_KINDS: tuple[dict[str, Any], ...] = ({"method": "bulk"}, {"method": "tail", "prob": (0.05, 0.95)})


def doubt_of_draws(
    dt: xr.DataTree, draws: Mapping[str, NDArray[Any]], tolerated: float = 0.0
) -> str:
    """Return why draws may not be from the posterior; empty if there is no sign of it.

    R-hat is the rank-normalised one of Vehtari et al. (2021), for at most 500 coordinates of each
    variable, evenly spaced. A single chain has no R-hat.
    """
    doubts = []
    n_tuning = _flagged(dt, "tune", "tuning")[0]
    if n_tuning:
        doubts.append(f"{n_tuning} draws belong to the warm-up")
    divergent, n = n_divergent(dt)
    if divergent > tolerated * n:
        doubts.append(f"{divergent} of {n} draws ended in a divergence")
    worst = {name: _largest_rhat(values) for name, values in draws.items()}
    worst = {name: value for name, value in worst.items() if value > _LARGEST_RHAT}
    if worst:
        name = max(worst, key=worst.__getitem__)
        doubts.append(f"R-hat of {name!r} is {worst[name]:.2f}, above {_LARGEST_RHAT:g}")
    return ", and ".join(doubts)


def n_divergent(dt: xr.DataTree) -> tuple[int, int]:
    """Return the number of divergent draws, and the number of draws for which this is known."""
    return _flagged(dt, "diverging")


def doubt_of_few(draws: Mapping[str, NDArray[Any]]) -> str:
    """Return why draws may be too few; empty if there is no sign of it.

    The effective number is the smaller of the two of Vehtari et al. (2021), for the bulk and for
    the tails, of the same coordinates as in `doubt_of_draws`.
    """
    doubts = []
    n_chains = next(iter(draws.values())).shape[0]
    if n_chains < 2:
        doubts.append("a single chain does not show whether it has converged")
    found = {name: _least_ess(values) for name, values in draws.items()}
    name = min(found, key=found.__getitem__)
    if found[name] < _LEAST_EFFECTIVE:
        doubts.append(
            f"the effective number of draws of {name!r} is {found[name]:.0f}, below "
            f"{_LEAST_EFFECTIVE}"
        )
    return ", and ".join(doubts)


def _flagged(dt: xr.DataTree, *names: str) -> tuple[int, int]:
    """Return the number of draws with a flag of ``sample_stats``, and of those that may have it."""
    if schema.SAMPLE_STATS not in dt.children:
        return 0, 0
    stats = dt[schema.SAMPLE_STATS].to_dataset()
    flags = [stats[name].values for name in names if name in stats]
    return int(sum(np.count_nonzero(f) for f in flags)), int(sum(f.size for f in flags))


def _least_ess(values: NDArray[Any]) -> float:
    """Return the least effective number of draws of the coordinates of a variable."""
    from arviz_stats.base import array_stats

    flat = _coordinates(values)
    if values.shape[1] < _LEAST_DRAWS:
        return float(values.shape[0] * values.shape[1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        found = [array_stats.ess(flat, chain_axis=0, draw_axis=1, **kind) for kind in _KINDS]
    return float(np.nanmin(np.append(np.ravel(found), np.inf)))


def _largest_rhat(values: NDArray[Any]) -> float:
    """Return the largest R-hat of the coordinates of a variable; 1 if there is none."""
    from arviz_stats.base import array_stats

    flat = _coordinates(values)
    if len(flat) < 2 or flat.shape[1] < _LEAST_DRAWS or not flat.size:
        return 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a constant coordinate has no R-hat
        rhat = array_stats.rhat(flat, chain_axis=0, draw_axis=1)
    return float(np.nanmax(np.append(rhat, 1.0)))


def _coordinates(values: NDArray[Any]) -> NDArray[np.float64]:
    """Return coordinates of a variable at equal distances, shape ``(n_chains, n_draws, m)``."""
    flat = values.reshape(*values.shape[:2], -1).astype(np.float64)
    return flat[:, :, :: max(-(-flat.shape[2] // _MOST_COORDINATES), 1)]
