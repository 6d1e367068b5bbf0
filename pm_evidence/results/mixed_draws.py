"""Draws of several models, mixed by the probabilities of the models, and their averages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from pm_evidence.core.checks import check_count
from pm_evidence.core.exceptions import warn
from pm_evidence.core.random import Phase, generator
from pm_evidence.estimators.standard_errors import spread
from pm_evidence.results import schema
from pm_evidence.results.origins import origin_of

__all__ = ["MODEL", "SharedGroup", "Shares"]

Floats = NDArray[np.float64]

MODEL = "model"  # the coordinate that names the model of each draw
_STATISTICS = ("mean", "mcse", "mcse_probs", "mcse_draws")
_CHAINS = 4
_MOST_DRAWS = 10**8


@dataclass(frozen=True)
class Shares:
    """Which draws of each model are mixed.

    Parameters
    ----------
    chosen : list of ndarray of int64
        Draws of each model, counted through its chains.
    order : ndarray of int64, shape (n_draws,)
        The order of the mixed draws.
    names : list of str
        Names of the models.
    """

    chosen: list[NDArray[np.int64]]
    order: NDArray[np.int64]
    names: list[str]

    @classmethod
    def of(
        cls, results: Mapping[str, xr.DataTree], prob: Floats, draws: int | None, seed: int
    ) -> "Shares":
        """Choose draws without using any of them twice."""
        sizes = [_n_draws(dt[schema.POSTERIOR]) for dt in results.values()]
        most = min(int(n / p) for n, p in zip(sizes, prob, strict=True) if p > 1.0 / _MOST_DRAWS)
        while (_counts(prob, most) > sizes).any():
            most -= 1
        wanted = most if draws is None else check_count("draws", draws, _CHAINS)
        wanted -= wanted % _CHAINS
        if wanted > most:
            raise ValueError(
                f"draws must be at most {most:,}, got {draws:,}: the models have {sizes} draws, "
                "and none is used twice. Pass fewer, or sample the models with more draws."
            )
        rng = generator(seed, Phase.AVERAGE)
        counts = _counts(prob, wanted)
        chosen = [
            rng.choice(n, count, replace=False) for n, count in zip(sizes, counts, strict=True)
        ]
        return cls(chosen, rng.permutation(wanted), list(results))

    def in_chains(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return values of the chosen draws, model after model, as chains of mixed draws."""
        mixed = values[self.order]
        return mixed.reshape(_CHAINS, -1, *mixed.shape[1:])

    @property
    def model(self) -> NDArray[np.str_]:
        """The model of each mixed draw."""
        names = np.array(self.names, dtype=np.str_)
        return self.in_chains(np.repeat(names, [len(chosen) for chosen in self.chosen]))


def _n_draws(group: Any) -> int:
    return int(np.prod([group.sizes[dim] for dim in schema.SAMPLE_DIMS]))


def _counts(prob: Floats, n: int) -> NDArray[np.int64]:
    """Return whole numbers in proportion to probabilities, whose sum is ``n``."""
    exact = n * prob
    counts = np.floor(exact).astype(np.int64)
    last = np.argsort(counts - exact, kind="stable")[: n - counts.sum()]
    counts[last] += 1
    return counts


@dataclass(frozen=True)
class SharedGroup:
    """A group of all results.

    Parameters
    ----------
    datasets : list of Dataset
        The group of each result, with the shared variables.
    origins : list of ndarray of int64
        Source of each draw, chain after chain.
    left_out : list of str
        Variables that are not shared.
    """

    datasets: list[xr.Dataset]
    origins: list[NDArray[np.int64]]
    left_out: list[str]

    @classmethod
    def of(cls, group: str, results: Mapping[str, xr.DataTree]) -> "SharedGroup | None":
        """Return what the results share of a group; None if not all of them have it."""
        if any(group not in dt.children for dt in results.values()):
            return None
        found = [dt[group].to_dataset() for dt in results.values()]
        for (name, dt), data in zip(results.items(), found, strict=True):
            _check_draws(f"models[{name!r}]", group, data, dt[schema.POSTERIOR].sizes)
        every = list(dict.fromkeys(str(v) for data in found for v in data.data_vars))
        shared = [name for name in every if _is_shared(name, found)]
        left_out = [name for name in every if name not in shared]
        differing = [name for name in left_out if all(name in data for data in found)]
        if differing:
            warn(
                f"{', '.join(map(repr, differing))} of the group {group!r} are left out: their "
                "dimensions or labels differ between the models."
            )
        if not shared and group == schema.POSTERIOR:
            raise ValueError(
                f"models must share at least one variable of the posterior, got {every} in some "
                "of them only; add a deterministic variable of the same name to each model."
            )
        origins = [origin_of(dt, f"models[{k!r}]") for k, dt in results.items()]
        return cls([data[shared] for data in found], origins, left_out)

    def mixed(self, shares: Shares) -> xr.Dataset:
        """Return mixed draws of the shared variables."""
        first = self.datasets[0]
        variables = {}
        for name in map(str, first.data_vars):
            chosen = [
                _rows(data[name])[rows]
                for data, rows in zip(self.datasets, shares.chosen, strict=True)
            ]
            values = shares.in_chains(np.concatenate(chosen))
            variables[name] = ((*schema.SAMPLE_DIMS, *_own_dims(first[name])), values)
        coords: dict[str, Any] = {
            str(name): labels
            for name, labels in first.coords.items()
            if not set(labels.dims) & set(schema.SAMPLE_DIMS)
        }
        coords[MODEL] = (schema.SAMPLE_DIMS, shares.model)
        attrs = {"left_out": ", ".join(self.left_out)}
        return xr.Dataset(variables, coords, attrs).assign_coords(
            {
                dim: np.arange(n)
                for dim, n in zip(schema.SAMPLE_DIMS, shares.model.shape, strict=True)
            }
        )

    def average(self, table: pd.DataFrame) -> xr.Dataset:
        """Return means over the models, with their errors."""
        prob, error = table["prob"].to_numpy(), table["mcse"].to_numpy()
        variables, first = {}, self.datasets[0]
        for name in map(str, first.data_vars):
            of_models = [
                _mean_and_error(_rows(data[name]).astype(np.float64), origin)
                for data, origin in zip(self.datasets, self.origins, strict=True)
            ]
            along = (-1,) + (1,) * len(_own_dims(first[name]))
            p, e = prob.reshape(along), error.reshape(along)
            means = np.stack([mean for mean, _ in of_models])
            draws = np.stack([own for _, own in of_models])
            mean = (p * means).sum(axis=0)
            with np.errstate(invalid="ignore"):  # a model without probability adds no error
                of_probs = np.where(p > 0.0, p * (means - mean) * e, 0.0)
                of_draws = np.where(p > 0.0, p * draws, 0.0)
            probs, sampled = (np.sqrt((part**2).sum(axis=0)) for part in (of_probs, of_draws))
            values = np.stack([mean, np.hypot(probs, sampled), probs, sampled])
            variables[name] = (("statistic", *_own_dims(first[name])), values)
        dims = {dim for name in first.data_vars for dim in _own_dims(first[name])}
        labels = {dim: first[dim] for dim in dims if dim in first.coords}
        return xr.Dataset(variables, {**labels, "statistic": list(_STATISTICS)})


def _check_draws(parameter: str, group: str, data: xr.Dataset, sizes: Mapping[Any, int]) -> None:
    """Raise ValueError unless a group has one value for each posterior draw."""
    found = {dim: data.sizes.get(dim) for dim in schema.SAMPLE_DIMS}
    expected = {dim: sizes.get(dim) for dim in schema.SAMPLE_DIMS}
    if found != expected or None in found.values():
        raise ValueError(
            f"{parameter} must have a value for each of its posterior draws in the group "
            f"{group!r}, got {found} instead of {expected}; make it from the whole result, by "
            "pm.sample_posterior_predictive(dt)."
        )
    if MODEL in data.variables or MODEL in data.dims:
        raise ValueError(
            f"{parameter} must not have a variable or dimension {MODEL!r} in the group {group!r}, "
            "which is the name of the model of each draw; rename it."
        )


def _is_shared(name: str, datasets: Sequence[xr.Dataset]) -> bool:
    """Return whether a variable has the same dimensions and labels in all groups."""
    if any(name not in data for data in datasets):
        return False
    first, *others = (data[name] for data in datasets)
    if first.dtype.kind not in "biuf":
        return False
    return all(
        _own_dims(first) == _own_dims(other)
        and other.dtype.kind in "biuf"
        and all(
            first.sizes[dim] == other.sizes[dim]
            and np.array_equal(first[dim].values, other[dim].values)
            for dim in _own_dims(first)
        )
        for other in others
    )


def _own_dims(variable: xr.DataArray) -> tuple[str, ...]:
    return tuple(str(dim) for dim in variable.dims if dim not in schema.SAMPLE_DIMS)


def _rows(variable: xr.DataArray) -> NDArray[Any]:
    """Return the draws of a variable, chain after chain, shape ``(n_draws, ...)``."""
    values = variable.transpose(*schema.SAMPLE_DIMS, ...).values
    return values.reshape(-1, *values.shape[2:])


def _mean_and_error(x: Floats, origin: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Return the mean over draws and its error, each of the shape of a draw."""
    mean = x.mean(axis=0)
    flat = ((x - mean) / len(x)).reshape(len(x), -1)
    error = np.array([spread((column, origin)).mcse for column in flat.T])
    return mean, error.reshape(mean.shape)
