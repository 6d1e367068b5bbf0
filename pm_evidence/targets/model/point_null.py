"""A model in which some variables, or elements of them, are held at a point."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.distribution import create_partial_observed_rv
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors

from pm_evidence.core.checks import described
from pm_evidence.core.exceptions import ModelError
from pm_evidence.targets.layout import Layout, shape_of
from pm_evidence.targets.model.changed_prior import is_usual, rebuilt, with_other_variables
from pm_evidence.targets.model.upstream import (
    in_double_precision,
    missing_constant,
    name_of_distribution,
)
from pm_evidence.targets.model.vectorised import RowFunction, quietly

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class PointNull:
    """A model given that some of its variables are at a point."""

    model: pm.Model  # the model as it is written
    null: pm.Model  # the same with what is held as further observations
    values: Mapping[str, Floats]  # the point: a value for each element, NaN for those not held
    observed: tuple[Variable, ...]  # the variables of the null model that were free before

    @property
    def held(self) -> dict[str, NDArray[np.bool_]]:
        """Which elements of each variable are held."""
        return {name: ~np.isnan(value) for name, value in self.values.items()}

    @property
    def is_certain(self) -> bool:
        """Whether the prior density at the point depends on no free variable."""
        return set(self.null.free_RVs).isdisjoint(ancestors(self.observed))

    def positions(self, layout: Layout) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the coordinates of the model that are held, and the others, in their order."""
        is_held = np.zeros(layout.size, dtype=bool)
        for variable in layout.variables:
            mask = self.held.get(variable.name)
            if mask is not None:
                # the coordinates of a variable may be fewer than its elements if all are held
                is_held[variable.positions] = True if mask.all() else mask.ravel()
        return np.flatnonzero(is_held), np.flatnonzero(~is_held)

    def log_prior(self, x: Floats) -> Floats:
        """Return the log prior density at the point given points of the null model, in nats."""
        terms = [pm.logp(rv, self.null.rvs_to_values[rv]).sum() for rv in self.observed]
        with quietly():
            total = pt.add(*terms) if len(terms) > 1 else terms[0]
            graphs = self.null.replace_rvs_by_values([total])
            if self.is_certain:
                return np.asarray(graphs[0].eval(mode="FAST_COMPILE"), float).reshape(1)
            function = RowFunction(self.null.value_vars, in_double_precision(graphs), [])
            layout = Layout.of([shape_of(value) for value in self.null.value_vars])
            parts = zip(layout.split(x), self.null.value_vars, strict=True)
            (found,) = function([part.astype(value.dtype) for part, value in parts], [])
        return np.asarray(found, float)


def point_null(model: pm.Model, point: Any) -> PointNull:
    """Return a model given a point, which maps names of variables to their values.

    NaN in a value leaves an element free.
    """
    values = _checked(model, point)
    _check_priors(model, [rv for rv in model.free_RVs if rv.name in values])
    null, observed = model, list[Variable]()
    for name, value in values.items():
        rv = next(each for each in null.free_RVs if each.name == name)
        mask = ~np.isnan(value)
        if mask.all():
            null = _whole(null, rv, value)
        else:
            null, rv, moved = _part(null, rv, value, mask)
            observed = [moved.get(each, each) for each in observed]
        observed.append(rv)
    return PointNull(model, null, values, tuple(observed))


def _whole(model: pm.Model, rv: Any, value: Floats) -> pm.Model:
    """Return a model in which a variable is observed."""
    other = with_other_variables(model, {})
    other.free_RVs = [each for each in model.free_RVs if each is not rv]
    other.observed_RVs = [*model.observed_RVs, rv]
    _observe(other, rv, value)
    return other


def _part(
    model: pm.Model, rv: Any, value: Floats, mask: NDArray[np.bool_]
) -> tuple[pm.Model, Variable, dict[Variable, Variable]]:
    """Return a model in which elements of a variable are observed, those, and what is replaced."""
    with quietly():
        (seen, _), (unseen, _), _ = create_partial_observed_rv(rv, pt.constant(~mask))
    place = np.argsort(np.concatenate([np.flatnonzero(mask), np.flatnonzero(~mask)]))
    joined = pt.concatenate([seen, unseen])[place].reshape(mask.shape)
    seen.name, unseen.name, joined.name = f"{rv.name}_held", f"{rv.name}_free", rv.name
    variables = [*model.basic_RVs, *model.potentials, *model.deterministics]
    moved = rebuilt(variables, rv, joined)
    moved.pop(rv)
    other = with_other_variables(model, moved)
    other.free_RVs = [unseen if each is rv else each for each in other.free_RVs]
    other.observed_RVs = [*other.observed_RVs, seen]
    other.deterministics = [*other.deterministics, joined]
    other.named_vars = {**other.named_vars, rv.name: joined, seen.name: seen, unseen.name: unseen}
    transform = model.rvs_to_transforms[rv]
    for mapping in (other.rvs_to_values, other.rvs_to_transforms, other.rvs_to_initial_values):
        mapping.pop(rv)
    coordinate = unseen if transform is None else transform.forward(unseen, *unseen.owner.inputs)
    suffix = "" if transform is None else f"_{transform.name}__"
    other.rvs_to_values[unseen] = coordinate.type(name=f"{unseen.name}{suffix}")
    other.rvs_to_transforms[unseen] = transform
    other.rvs_to_initial_values[unseen] = None
    _observe(other, seen, value[mask])
    return other, seen, moved


def _observe(model: pm.Model, rv: Any, value: Floats) -> None:
    model.rvs_to_values[rv] = pt.constant(np.asarray(value, rv.dtype), name=f"{rv.name}_at")
    model.rvs_to_transforms[rv] = None
    model.rvs_to_initial_values.pop(rv, None)
    model.values_to_rvs = {model.rvs_to_values[each]: each for each in model.basic_RVs}


def _checked(model: pm.Model, point: Any) -> dict[str, Floats]:
    """Return the values of a point by name."""
    example = 'pass for example {"delta": 0.0}'
    if not isinstance(point, Mapping):
        raise TypeError(
            f"point must be a mapping of names of variables to values, got {described(point)}; "
            f"{example}."
        )
    if not point:
        raise ValueError(f"point must name at least one variable, got none; {example}.")
    return {name: _value(model, name, value) for name, value in point.items()}


def _value(model: pm.Model, name: Any, value: Any) -> Floats:
    """Return the value of one variable in its shape; raise if it cannot be held there."""
    free = {str(rv.name): rv for rv in model.free_RVs}
    if name not in free:
        kind = "no variable of the model"
        remedy = f"the free variables are {', '.join(map(repr, free)) or '(none)'}"
        if name in [each.name for each in model.deterministics]:
            kind = "a deterministic variable, whose prior density is not known"
            remedy = "write the model with it as a free variable"
        raise ValueError(
            f"point must name free variables of the model, got {described(name)}, which is {kind}; "
            f"{remedy}."
        )
    rv = free[name]
    if np.dtype(rv.dtype).kind != "f":
        raise ValueError(
            f"point must name continuous variables, got {name!r}, whose dtype is {rv.dtype}; use "
            f"constraint=lambda v: v[{name!r}] == {described(value)} for the probability of a "
            "value."
        )
    shape = shape_of(rv)
    try:
        given = np.asarray(value, np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"point[{name!r}] must be a number or an array of numbers, got {described(value)}; "
            "pass for example 0.0."
        ) from error
    if given.shape not in ((), shape):
        raise ValueError(
            f"point[{name!r}] must be one number or have the shape {shape} of the variable, got "
            f"shape {given.shape}; write NaN for elements that stay free."
        )
    full = np.broadcast_to(given, shape).astype(np.float64)
    _check_value(rv, name, full)
    return full


def _check_value(rv: Any, name: str, value: Floats) -> None:
    if np.isinf(value).any() or np.isnan(value).all():
        raise ValueError(
            f"point[{name!r}] must be finite, got {described(value.tolist())}; pass the value that "
            "the hypothesis gives the variable."
        )
    if np.isnan(value).any() and rv.owner.op.ndim_supp > 0:
        raise ValueError(
            f"point[{name!r}] must hold all elements of a multivariate variable, got NaN in "
            f"that of {name!r}, which is {name_of_distribution(rv)}; write the "
            "variable as independent elements to hold some of them."
        )


def _check_priors(model: pm.Model, held: list[Any]) -> None:
    """Raise ModelError if a prior is renormalised in a way that depends on the point."""
    for rv in model.free_RVs:
        concerned = rv in held or not set(held).isdisjoint(ancestors([rv]))
        if concerned and not is_usual(model, rv):
            raise ModelError(
                f"point must leave the normalisation of priors as it is, got {rv.name!r}, whose "
                "prior is cut by a transform that is not the usual one; use a distribution with "
                "the support that is meant, such as pm.Truncated."
            )
    if missing_constant(model, held) is not None:
        raise ModelError(
            "point must name variables with a normalised prior, got one of pm.CAR; compare the "
            "models: pe.compare_models."
        )
