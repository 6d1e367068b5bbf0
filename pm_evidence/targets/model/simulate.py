"""Parameters and data drawn together from a model."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray

from pm_evidence.core.exceptions import ModelError
from pm_evidence.targets.layout import shape_of
from pm_evidence.targets.model.prior import UnconstrainedSpace
from pm_evidence.targets.model.upstream import with_exact_car
from pm_evidence.targets.model.vectorised import quietly

Floats = NDArray[np.float64]

_MOST_DRAWS = 500
_MOST_TRIED = 1000  # prior draws for each that falls inside the transforms


def simulate(model: pm.Model, seed: int) -> tuple[pm.Model, Floats]:
    """Return the model with simulated data, and the parameters that they were simulated with."""
    if model.potentials or not model.observed_RVs:
        raise ModelError(f"{_not_simulated(model)} Use sample_evidence(method='ais').")
    values, x = _drawn(model, _MOST_DRAWS, np.random.default_rng(seed))
    inside = np.flatnonzero(np.isfinite(x).all(axis=1))
    if not inside.size:
        raise ModelError(
            f"prior draws must fall inside the transforms, but none of {_MOST_DRAWS} does. Use "
            "pm.Truncated, or a prior whose support fits its transform."
        )
    first = inside[0]
    data = {
        rv: pt.constant(
            np.asarray(values[rv.name][first], model.rvs_to_values[rv].dtype),
            model.rvs_to_values[rv].name,
        )
        for rv in model.observed_RVs
    }
    return _observed_at(model, data), x[first : first + 1]


def _not_simulated(model: pm.Model) -> str:
    found = "a potential" if model.potentials else "no observed variable"
    return (
        f"a model to be simulated must have observed variables and no potential, got {found}: data "
        "cannot be drawn from it."
    )


def _drawn(
    model: pm.Model, n: int, rng: np.random.Generator
) -> tuple[dict[str, NDArray[Any]], Floats]:
    """Return joint draws by name, and the parameters as rows; NaN outside of transforms."""
    variables = [*model.free_RVs, *model.observed_RVs]
    with quietly():
        drawn = pm.draw(with_exact_car(variables), draws=n, random_seed=rng)
    values = dict(zip([rv.name for rv in variables], drawn, strict=True))
    if not model.free_RVs:
        return values, np.empty((n, 0))
    # a transform that the user gave, such as an ordered one, truncates the prior
    return values, UnconstrainedSpace(model).prior_rows(values)


class DataSets:
    """Data sets drawn from a model, and the model observed at any of them.

    The observed values are shared variables, so that the model is compiled once.
    """

    def __init__(self, model: pm.Model) -> None:
        if model.potentials or not model.observed_RVs:
            raise ModelError(_not_simulated(model))
        self.model = model
        self._arrays: dict[str, NDArray[Any]] = {}
        values = {}
        for rv in model.observed_RVs:
            old = model.rvs_to_values[rv]
            # a scalar would be compiled as a constant
            array = np.zeros(shape_of(old) or (1,), old.dtype)
            shared = pytensor.shared(array, name=old.name, shape=array.shape, borrow=True)
            self._arrays[str(rv.name)] = shared.get_value(borrow=True)
            values[rv] = shared if old.type.ndim else shared[0]
        self.observed = _observed_at(model, values)
        self.kinds = {
            name: (shape_of(rv), "real" if np.dtype(rv.dtype).kind == "f" else "whole")
            for name, rv in zip(self._arrays, model.observed_RVs, strict=True)
        }

    def draw(self, n: int, rng: np.random.Generator) -> list[dict[str, NDArray[Any]]]:
        """Return ``n`` data sets from the prior predictive distribution."""
        found: list[dict[str, NDArray[Any]]] = []
        tried = 0
        while len(found) < n:
            most = max(n - len(found), 2)
            values, x = _drawn(self.model, most, rng)
            tried += most
            inside = np.isfinite(x).all(axis=1)
            found += [{k: values[k][i] for k in self._arrays} for i in np.flatnonzero(inside)]
            if tried > _MOST_TRIED * max(len(found), 1):
                raise ModelError(
                    f"prior draws must fall inside the transforms, but {len(found)} of {tried} do. "
                    "Use pm.Truncated, or a prior whose support fits its transform."
                )
        return found[:n]

    def set(self, data: Mapping[str, NDArray[Any]]) -> None:
        """Observe the model at a data set, by the names of the observed variables."""
        for name, array in self._arrays.items():
            array[...] = np.reshape(data[name], array.shape)


def _observed_at(model: pm.Model, data: Mapping[Any, Any]) -> pm.Model:
    """Return a model of the same variables, observed at other values."""
    # PyMC's own copy refuses models with initial values; only the values differ here
    other = object.__new__(type(model))
    other.__dict__.update(model.__dict__)
    other.rvs_to_values = dict(model.rvs_to_values)
    other.rvs_to_values.update(data)
    other.values_to_rvs = {value: rv for rv, value in other.rvs_to_values.items()}
    return other
