"""Maps between flat unconstrained vectors and named variables on their own scale."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.graph.replace import clone_replace

from pm_evidence.targets.layout import Layout, shape_of
from pm_evidence.targets.model.quiet import quietly
from pm_evidence.targets.model.vectorised import vectorised

__all__ = ["ConstrainedSpace", "UnconstrainedSpace"]

Floats = NDArray[np.float64]


class ConstrainedSpace:
    """Free variables and deterministics of a model as functions of the flat vector.

    Parameters
    ----------
    model : pymc.Model
        The model.
    layout : Layout
        Position of the unconstrained value of every free variable in a flat vector.
    """

    def __init__(self, model: pm.Model, layout: Layout) -> None:
        self._layout = layout
        variables = [*model.free_RVs, *model.deterministics]
        self.names = [v.name for v in variables]
        inputs = model.value_vars
        outputs = model.replace_rvs_by_values(variables)
        with quietly():
            self._single = pm.compile(
                inputs, outputs, mode="FAST_COMPILE", on_unused_input="ignore"
            )
            self._batched = vectorised(inputs, outputs)

    def values(self, x: Floats) -> dict[str, NDArray[Any]]:
        """Return every variable for every row of ``x``.

        Parameters
        ----------
        x : ndarray, shape (n, n_dim)
            Flat unconstrained vectors.

        Returns
        -------
        dict of ndarray, each of shape (n, ...)
        """
        inputs = self._split(x)
        with quietly():
            first = self._single(*(value[0] for value in inputs))
            results = self._try_batched(inputs, first, len(x))
            if results is None:
                rows = [self._single(*row) for row in zip(*inputs, strict=True)]
                results = [np.stack(column) for column in zip(*rows, strict=True)]
        return dict(zip(self.names, results, strict=True))

    def _split(self, x: Floats) -> list[NDArray[Any]]:
        """Return the variables in rows of ``x``, each in its shape and of its type."""
        parts = zip(self._layout.split(x), self._layout.variables, strict=True)
        return [part.astype(variable.dtype) for part, variable in parts]

    def _try_batched(
        self, inputs: list[NDArray[Any]], first: list[NDArray[Any]], n: int
    ) -> list[NDArray[Any]] | None:
        """Return all rows at once, or None if the first row differs from the one computed alone."""
        if self._batched is None:
            return None
        try:
            results = self._batched(*inputs)
        except (ValueError, TypeError, IndexError, NotImplementedError):
            return None
        for one, many in zip(first, results, strict=True):
            if np.ndim(many) == np.ndim(one):  # does not depend on any free variable
                return None
            if len(many) != n or not np.allclose(many[0], one, rtol=1e-8, equal_nan=True):
                return None
        return [np.asarray(r) for r in results]


class UnconstrainedSpace:
    """Flat unconstrained vectors as a function of the free variables on their own scale.

    Parameters
    ----------
    model : pymc.Model
        The model.
    """

    def __init__(self, model: pm.Model) -> None:
        self._free = model.free_RVs
        given = {rv: rv.type(f"{rv.name}_given") for rv in self._free}
        outputs = []
        for rv in self._free:
            transform = model.rvs_to_transforms[rv]
            value = given[rv]
            outputs.append(
                value if transform is None else transform.forward(value, *rv.owner.inputs)
            )
        # bounds may depend on other free variables
        outputs = clone_replace([pt.as_tensor(o) for o in outputs], given, rebuild_strict=False)
        inputs = list(given.values())
        with quietly():
            self._point = pm.compile(inputs, outputs, mode="FAST_COMPILE", on_unused_input="ignore")

    def prior_rows(self, draws: Mapping[str, NDArray[Any]]) -> Floats:
        """Return prior draws, each of shape ``(n, ...)``, as rows; NaN outside the transforms."""
        return self._rows([np.asarray(draws[rv.name], rv.dtype) for rv in self._free])

    def _rows(self, columns: Sequence[NDArray[Any]]) -> Floats:
        with quietly():
            points = [self._point(*row) for row in zip(*columns, strict=True)]
        return np.array([np.concatenate([np.ravel(v) for v in point]) for point in points], float)

    def values(self, draws: Mapping[str, NDArray[Any]], parameter: str = "reverse_start") -> Floats:
        """Return posterior draws as rows.

        Parameters
        ----------
        draws : mapping of str to ndarray, shape (n_chains, n_draws, ...)
            At least all free variables of the model.
        parameter : str
            Name of the argument that they come from, for the error.

        Returns
        -------
        ndarray, shape (n_chains * n_draws, n_dim)

        Raises
        ------
        ValueError
            If a free variable is missing, has another shape, or lies outside its support.
        """
        columns = []
        for rv in self._free:
            shape = shape_of(rv)
            if rv.name not in draws or draws[rv.name].shape[2:] != shape:
                found = f"shape {draws[rv.name].shape[2:]}" if rv.name in draws else "none"
                raise ValueError(
                    f"{parameter} must hold draws of {rv.name!r} of shape {shape}, got {found}: "
                    "they belong to another model. Sample this model with pm.sample."
                )
            columns.append(_as_dtype(draws[rv.name], rv, parameter).reshape(-1, *shape))
        x = self._rows(columns)
        bad = np.flatnonzero(~np.isfinite(x).all(axis=1))
        if bad.size:
            raise ValueError(
                f"{parameter} must lie inside the support of the priors, got {bad.size} of "
                f"{len(x)} draws outside, first draw {bad[0]}: they belong to another model. "
                "Sample this model with pm.sample."
            )
        return x


def _as_dtype(draws: NDArray[Any], rv: Any, parameter: str) -> NDArray[Any]:
    """Return draws in the dtype of a variable; raise ValueError if this would change them."""
    if draws.dtype.kind in "biuf":
        with np.errstate(invalid="ignore"):
            converted = draws.astype(rv.dtype)
        if converted.dtype.kind == "f" or np.array_equal(converted, draws):
            return converted
    raise ValueError(
        f"{parameter} must hold numbers of type {rv.dtype} as draws of {rv.name!r}, got dtype "
        f"{draws.dtype} with other values: they belong to another model. Sample this model with "
        "pm.sample."
    )
