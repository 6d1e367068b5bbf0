"""What `prior_sensitivity` is asked for, checked before anything costs time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np

from pm_evidence.api.sample import sample_evidence
from pm_evidence.core.checks import described, real_number
from pm_evidence.targets.model.changed_prior import ChangedPrior, changed_prior, check_variable

__all__ = ["Variant", "sample_options", "variants_of"]

# Arguments of `sample_evidence` that callers of it have themselves.
_OWN = ("target", "model", "target_mcse", "random_seed", "progressbar")


@dataclass(frozen=True)
class Variant:
    """A model with another prior of one variable.

    Parameters
    ----------
    variable, prior : str
        The variable, and the name of its prior.
    factor : float
        What its spread is multiplied by; NaN for another distribution.
    changed : ChangedPrior
        The model.
    """

    variable: str
    prior: str
    factor: float
    changed: ChangedPrior


def variants_of(model: Any, priors: Any) -> dict[str, list[Variant]]:
    """Return the models with other priors, by variable; factors rise, and none of them is 1.

    Raises
    ------
    TypeError
        If ``priors`` is not a mapping of names to factors or distributions.
    ValueError
        If a name is not that of a free variable, or a factor is not positive and finite.
    """
    if not isinstance(priors, Mapping):
        raise TypeError(
            f"priors must be a mapping of variables to factors or distributions, got "
            f'{described(priors)}; pass for example {{"tau": [0.5, 2]}}.'
        )
    if not priors:
        raise ValueError(
            'priors must name at least one variable, got none; pass for example {"tau": [0.5, 2]}.'
        )
    for name in priors:
        check_variable(model, name)
    return {name: _of_variable(model, name, asked) for name, asked in priors.items()}


def _of_variable(model: Any, name: str, asked: Any) -> list[Variant]:
    """Return the variants of one variable."""
    changes = _named(name, asked)
    factors = {
        label: factor
        for label, change in changes.items()
        if (factor := _factor(name, label, change)) is not None
    }
    order = [*sorted(factors, key=factors.__getitem__), *(k for k in changes if k not in factors)]
    return [
        Variant(
            name,
            label,
            factors.get(label, float("nan")),
            changed_prior(model, name, factors.get(label, changes[label])),
        )
        for label in order
        if factors.get(label) != 1.0
    ]


def _named(name: str, asked: Any) -> dict[str, Any]:
    """Return factors and distributions by their names in the table."""
    if isinstance(asked, Mapping):
        wrong = [label for label in asked if not isinstance(label, str)]
        if wrong:
            raise TypeError(
                f"priors[{name!r}] must have names as keys, got {described(wrong[0])}; pass for "
                'example {"wide": 2}.'
            )
        changes = dict(asked)
    elif isinstance(asked, np.ndarray) or (
        isinstance(asked, Sequence) and not isinstance(asked, str | bytes)
    ):
        changes = {_label(name, factor): factor for factor in asked}
    elif real_number(asked) is not None:
        changes = {_label(name, asked): asked}
    else:
        raise TypeError(
            f"priors[{name!r}] must be a list of factors or a mapping of names to distributions, "
            f"got {described(asked)}; pass for example [0.5, 2] or "
            '{"wide": pm.HalfCauchy.dist(5)}.'
        )
    if not changes:
        raise ValueError(f"priors[{name!r}] must hold at least one prior, got none; pass [0.5, 2].")
    return changes


def _label(name: str, factor: Any) -> str:
    number = real_number(factor)
    if number is None:
        raise TypeError(
            f"priors[{name!r}] must be a list of factors, got {described(factor)} in it; give "
            'distributions names, for example {"wide": pm.HalfCauchy.dist(5)}.'
        )
    return f"\N{MULTIPLICATION SIGN} {number:.6g}"


def _factor(name: str, label: str, change: Any) -> float | None:
    """Return a factor; None for what may be a distribution."""
    number = real_number(change)
    if number is None:
        return None
    if not 0.0 < number < np.inf:
        raise ValueError(
            f"priors[{name!r}] must hold factors above 0, got {described(change)} as {label!r}; "
            "pass for example 0.5 for half the spread."
        )
    return number


def sample_options(parameter: str, given: Any) -> dict[str, Any]:
    """Return arguments that are passed on to `sample_evidence`.

    Raises
    ------
    TypeError
        If they are not a mapping.
    ValueError
        If one is unknown, or an argument of the caller.
    """
    if given is not None and not isinstance(given, Mapping):
        raise TypeError(
            f"{parameter} must be a dict of arguments of sample_evidence, got {described(given)}; "
            'pass for example {"cores": 2}.'
        )
    known = [name for name in signature(sample_evidence).parameters if name not in _OWN]
    wrong = [name for name in given or {} if name not in known]
    if wrong:
        raise ValueError(
            f"{parameter} must hold only {', '.join(known)}, got {described(wrong[0])}; "
            f"{'pass it directly' if wrong[0] in _OWN else 'leave it out'}."
        )
    return dict(given or {})
