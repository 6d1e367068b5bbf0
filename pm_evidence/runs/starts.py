"""Posterior draws, given by the user, that reverse paths start from."""

from collections.abc import Mapping
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.exceptions import warn
from pm_evidence.families.model import ModelTarget
from pm_evidence.families.native import NativeTarget
from pm_evidence.results.given_draws import doubt_of_draws
from pm_evidence.results.observed import check_constants, posterior_of
from pm_evidence.samplers.reverse_starts import ReverseStarts
from pm_evidence.targets.estimated.target import EstimatedTarget
from pm_evidence.targets.model.target import PyMCTarget

__all__ = ["given_rows", "groups_of", "rows_and_variables", "starts_from"]

# Number of groups of neighbouring draws of the user's chains; groups count as independent.
_GROUPS = 16


def starts_from(target: Any, given: Any) -> ReverseStarts | None:
    """Return where reverse paths start, from what the user gives as ``reverse_start``.

    Parameters
    ----------
    target : Target
        What is annealed.
    given : DataTree, ndarray or None
        Posterior draws, or states of a native target. If it is None, the sampler finds the starts.

    Raises
    ------
    ValueError
        If they do not belong to this target.

    Warns
    -----
    EvidenceWarning
        If the draws show divergences or have not converged.
    """
    return None if given is None else _starts(target, given)


@singledispatch
def _starts(target: Any, given: Any) -> ReverseStarts:
    # an array does not tell the parameters of the target that its states come from, and moves are
    # cheap: paths relax before they start
    if isinstance(given, np.ndarray):
        x = target.check(given, "reverse_start")
        return ReverseStarts(x, groups_of(1, len(x)), kind="relaxed")
    states = _states_of(given, target)
    n_chains, n_draws = states.shape[:2]
    rows = states.reshape(n_chains * n_draws, *states.shape[2:])
    x = target.check(rows, "reverse_start")
    return ReverseStarts(x, groups_of(n_chains, n_draws), kind="relaxed")


@_starts.register
def _(target: PyMCTarget, given: Any) -> ReverseStarts:
    x = given_rows(target, given, "reverse_start")
    sizes = given["posterior"].sizes
    return ReverseStarts(x, groups_of(sizes["chain"], sizes["draw"]), kind="given")


@_starts.register
def _(target: EstimatedTarget, given: Any) -> ReverseStarts:
    raise ValueError(
        "reverse_start must be left out if the likelihood is estimated: posterior draws do not "
        "include the estimates of their likelihood."
    )


@_starts.register
def _(target: ModelTarget, given: Any) -> ReverseStarts:
    return _starts(target.compiled, given)


def given_rows(target: PyMCTarget, given: Any, parameter: str) -> NDArray[np.float64]:
    """Return the posterior draws of a DataTree as points, shape ``(n, n_dim)``.

    Parameters
    ----------
    target : PyMCTarget
        The target that they are draws of.
    given : DataTree
        With the groups ``posterior`` and ``observed_data``.
    parameter : str
        Name of the argument, for messages.

    Raises
    ------
    ValueError, TypeError
        If they do not belong to this target.

    Warns
    -----
    EvidenceWarning
        If the draws show divergences or have not converged.
    """
    x, draws = rows_and_variables(target, given, parameter)
    _warn_of_draws(given, draws, parameter)
    return x


def rows_and_variables(
    target: PyMCTarget, given: Any, parameter: str
) -> tuple[NDArray[np.float64], dict[str, NDArray[Any]]]:
    """Return the posterior draws of a DataTree as points, and those of each free variable.

    The arguments and errors are those of `given_rows`, which also warns.
    """
    draws = posterior_of(given, target.observed_data(), parameter)
    check_constants(given, target.constant_data(), parameter)
    x = target.rows_of(draws, parameter)
    return x, {rv.name: draws[rv.name] for rv in target.model.free_RVs}


def groups_of(n_chains: int, n_draws: int) -> NDArray[np.int64]:
    """Return the group of each draw: neighbouring draws of a chain share a group."""
    parts = max(_GROUPS // n_chains, 1)
    part = np.arange(n_draws) * parts // n_draws
    groups: NDArray[np.int64] = (np.arange(n_chains)[:, None] * parts + part).ravel()
    return groups


def _warn_of_draws(given: Any, draws: Mapping[str, NDArray[Any]], parameter: str) -> None:
    doubt = doubt_of_draws(given, draws)
    if doubt:
        follows = "reverse paths" if parameter == "reverse_start" else "annealing"
        warn(
            f"{parameter} must hold draws from the posterior, but {doubt}: these draws, and the "
            f"{follows} from them, may miss a part of it. Sample again with a non-centred "
            f"model, a higher target_accept or longer chains, or leave {parameter} out."
        )


def _states_of(dt: Any, target: NativeTarget) -> NDArray[Any]:
    """Return the states of an earlier run of a native target, shape ``(chains, draws, ...)``."""
    posterior = posterior_of(dt, target.observed_data())
    constants = dt["constant_data"].to_dataset() if "constant_data" in dt.children else {}
    for name, value in target.constant_data().items():
        found = constants[name].values if name in constants else None
        if found is None or not np.array_equal(found, value):
            raise ValueError(
                f"reverse_start must hold states of {target!r}, got draws with {name}={found}; "
                "pass a result for this target, or an array of states."
            )
    missing = [name for name in target.variables if name not in posterior]
    if missing:
        raise ValueError(
            f"reverse_start must hold states of {target!r} as "
            f"{' and '.join(map(repr, target.variables))}, got draws of {', '.join(posterior)}; "
            "pass a result for this target, or an array of states."
        )
    if len(target.variables) == 1:
        return posterior[target.variables[0]]
    return np.concatenate([posterior[name] for name in target.variables], axis=-1)
