"""Parameters and data drawn together from a model."""

from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray

from pm_evidence.core.exceptions import ModelError
from pm_evidence.targets.model.car import with_exact_car
from pm_evidence.targets.model.quiet import quietly
from pm_evidence.targets.model.transforms import UnconstrainedSpace

__all__ = ["simulate"]

Floats = NDArray[np.float64]

_MOST_DRAWS = 500


def simulate(model: pm.Model, seed: int) -> tuple[pm.Model, Floats]:
    """Return the model with simulated data, and the parameters that they were simulated with.

    Parameters
    ----------
    model : pymc.Model
        A model whose likelihood consists of observed variables alone. It is not changed.
    seed : int
        Seed of the draw.

    Returns
    -------
    model : pymc.Model
        The same model, observed at the simulated data.
    x : ndarray, shape (1, n_dim)
        The drawn parameters as a flat unconstrained vector.

    Raises
    ------
    ModelError
        If nothing is observed, a potential is part of the model, or nearly all prior draws fall
        outside a transform.
    """
    if model.potentials or not model.observed_RVs:
        found = "a potential" if model.potentials else "no observed variable"
        raise ModelError(
            f"a model to be simulated must have observed variables and no potential, got {found}: "
            "data cannot be drawn from it. Use sample_evidence(method='ais')."
        )
    variables = [*model.free_RVs, *model.observed_RVs]
    names = [rv.name for rv in variables]
    rng = np.random.default_rng(seed)
    with quietly():
        drawn = pm.draw(with_exact_car(variables), draws=_MOST_DRAWS, random_seed=rng)
    values = dict(zip(names, drawn, strict=True))
    # a transform that the user gave, such as an ordered one, truncates the prior
    x = UnconstrainedSpace(model).prior_rows(values)
    inside = np.flatnonzero(np.isfinite(x).all(axis=1))
    if not inside.size:
        raise ModelError(
            f"prior draws must fall inside the transforms, but none of {_MOST_DRAWS} does. Use "
            "pm.Truncated, or a prior whose support fits its transform."
        )
    first = inside[0]
    data = {rv.name: values[rv.name][first] for rv in model.observed_RVs}
    return _observed_at(model, data), x[first : first + 1]


def _observed_at(model: pm.Model, data: dict[str, NDArray[Any]]) -> pm.Model:
    """Return a model of the same variables, observed at other values."""
    # PyMC's own copy refuses models with initial values; only the values differ here
    other = object.__new__(type(model))
    other.__dict__.update(model.__dict__)
    other.rvs_to_values = dict(model.rvs_to_values)
    for rv in model.observed_RVs:
        old = model.rvs_to_values[rv]
        other.rvs_to_values[rv] = pt.constant(np.asarray(data[rv.name], old.dtype), old.name)
    other.values_to_rvs = {value: rv for rv, value in other.rvs_to_values.items()}
    return other
