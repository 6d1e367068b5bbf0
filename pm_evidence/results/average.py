"""Posterior draws and predictions of several models, mixed by the probabilities of the models."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from pm_evidence.core.checks import check_count, described
from pm_evidence.core.exceptions import usual_floats, warn
from pm_evidence.core.random import Phase, generator, resolve_seed
from pm_evidence.core.records import Status
from pm_evidence.estimators.errors import spread
from pm_evidence.results import datatree, schema
from pm_evidence.results.compare import check_models, compare, prior_of
from pm_evidence.results.elpd import origin_of

Floats = NDArray[np.float64]


MODEL = "model"  # the coordinate that names the model of each draw
_STATISTICS = ("mean", "mcse", "mcse_probs", "mcse_draws")
_CHAINS = 4
_MOST_DRAWS = 10**8


@dataclass(frozen=True)
class MixedDraws:
    """Which draws of each model are mixed."""

    chosen: list[NDArray[np.int64]]  # draws of each model, counted through its chains
    order: NDArray[np.int64]  # shape (n_draws,): the order of the mixed draws
    names: list[str]  # names of the models

    @classmethod
    def of(
        cls, results: Mapping[str, xr.DataTree], prob: Floats, draws: int | None, seed: int
    ) -> "MixedDraws":
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
    """A group of all results."""

    datasets: list[xr.Dataset]  # the group of each result, with the shared variables
    origins: list[NDArray[np.int64]]  # source of each draw, chain after chain
    left_out: list[str]  # variables that are not shared

    @classmethod
    def of(
        cls, group: str, results: Mapping[str, xr.DataTree], origins: list[NDArray[np.int64]]
    ) -> "SharedGroup":
        """Return what the results share of a group, which all of them have."""
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
        return cls([data[shared] for data in found], origins, left_out)

    def mixed(self, shares: MixedDraws) -> xr.Dataset:
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
        coords |= {
            dim: np.arange(n) for dim, n in zip(schema.SAMPLE_DIMS, shares.model.shape, strict=True)
        }
        coords[MODEL] = (schema.SAMPLE_DIMS, shares.model)
        return xr.Dataset(variables, coords, {"left_out": ", ".join(self.left_out)})

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
    first, *_ = variables = [data[name] for data in datasets]
    return all(
        each.dtype.kind in "biuf"
        and _own_dims(each) == _own_dims(first)
        and all(first[dim].variable.equals(each[dim].variable) for dim in _own_dims(first))
        for each in variables
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


_MIXED = (schema.POSTERIOR, "posterior_predictive", "predictions")
_PROBABILITIES = "model_probabilities"


@usual_floats()
def average_models(
    models: Mapping[str, xr.DataTree],
    prior_probs: Mapping[str, float] | Sequence[float] | None = None,
    *,
    draws: int | None = None,
    random_seed: int | np.random.Generator | None = None,
) -> xr.DataTree:
    """Mix posterior draws and predictions of models by the posterior probabilities of the models.

    Parameters
    ----------
    models : mapping of str to DataTree
        What ``sample_evidence`` returned for each model, with predictions in the groups
        ``posterior_predictive`` and ``predictions`` where these are to be mixed as well.
    prior_probs : mapping of str to float, or sequence of float, optional
        Prior probability of each model, as in ``compare``.
    draws : int, optional
        Number of mixed draws. By default as many as possible without using a draw twice.
    random_seed : int or numpy.random.Generator, optional
        Chooses which draws of each model are taken, and mixes them.

    Returns
    -------
    DataTree
        - ``posterior``, and ``posterior_predictive`` and ``predictions`` where all results have
          them: draws of the variables that all models have, with the dimensions ``chain`` and
          ``draw``. The coordinate ``model`` names the model of each draw. The attribute
          ``left_out`` names variables that are not in all models, or differ in shape.
        - ``model_probabilities``: ``prob``, ``prob_mcse``, ``prior_prob``, ``log_evidence`` and
          ``mcse`` in nats, ``status``, and ``n_draws`` of each model.
        - ``posterior_average`` and so on: for each variable, along ``statistic``, the ``mean`` over
          models, from all their draws; its error ``mcse``; and the parts of this error:
          ``mcse_probs`` from the errors of the evidences, ``mcse_draws`` from the draws.
        - ``observed_data`` of the first model.

    Raises
    ------
    TypeError
        If ``models`` is not a mapping, or holds anything but DataTree.
    ValueError
        If the observed data differ, a result has no posterior or no evidence that is known, no
        variable is shared, predictions are not of all draws, or ``draws`` is too large.

    Warns
    -----
    EvidenceWarning
        If the status of an evidence is not ``"ok"``, because all probabilities depend on it; or if
        variables of the same name are left out because their shapes differ.

    Notes
    -----
    Each model gets its share of the draws, rounded. The error of the probabilities is not in the
    draws: quantiles of the mixture are those for the probabilities as they were estimated.
    ``mcse_probs`` tells what it does to a mean ``m = sum(p_k m_k)``, by the delta method:
    ``sqrt(sum((p_k (m_k - m) mcse_k)**2))``. It is zero where models agree, and small where one
    model has nearly all of the probability. See Hoeting et al. (1999).

    A variable of the same name may have another meaning in another model. A coefficient that some
    model does not have is not zero in the mixture: it is left out. Give that model a deterministic
    variable of value zero to include it.

    References
    ----------
    Hoeting, J. A., Madigan, D., Raftery, A. E. and Volinsky, C. T. (1999). Bayesian model
    averaging: a tutorial. Statistical Science 14, 382-417.

    Examples
    --------
    >>> import pymc as pm, pm_evidence as pe
    >>> results = {}
    >>> for name, sd in {"narrow": 1.0, "wide": 5.0}.items():
    ...     with pm.Model():
    ...         mu = pm.Normal("mu", 0, sd)
    ...         y = pm.Normal("y", mu, 1, observed=[0.5, 1.5])
    ...         results[name] = pe.sample_evidence(random_seed=1, progressbar=False)
    >>> mixed = pe.average_models(results, random_seed=1)
    >>> sorted({str(name) for name in mixed["posterior"]["model"].values.ravel()})
    ['narrow', 'wide']
    """
    check_models(models)
    for name in models:
        if not isinstance(name, str):
            raise TypeError(
                f"models must have names as keys, got {described(name)}; put them in quotes."
            )
    origins = [origin_of(dt, f"models[{name!r}]") for name, dt in models.items()]
    table = compare(models, prior_probs)
    table = table.loc[list(models)]  # in the order that was given
    prior = prior_of(list(models), prior_probs)
    _check_known(table)
    seed = resolve_seed(random_seed)
    groups = {
        group: SharedGroup.of(group, models, origins)
        for group in _MIXED
        if all(group in dt.children for dt in models.values())
    }
    shares = MixedDraws.of(models, table["prob"].to_numpy(), draws, seed)
    found = {name: group.mixed(shares) for name, group in groups.items()}
    averages = {f"{name}_average": group.average(table) for name, group in groups.items()}
    probabilities = xr.Dataset(
        {
            **{name: (MODEL, table[name].to_numpy()) for name in ("prob", "prob_mcse")},
            "prior_prob": (MODEL, prior),
            **{name: (MODEL, table[name].to_numpy()) for name in ("log_evidence", "mcse")},
            "status": (MODEL, np.array(table["status"], dtype=np.str_)),
            "n_draws": (MODEL, np.array([len(chosen) for chosen in shares.chosen])),
        },
        coords={MODEL: list(models)},
        attrs={schema.RANDOM_SEED: str(seed)},
    )
    tree = {**found, _PROBABILITIES: probabilities, **averages}
    first = next(iter(models.values()))
    if schema.OBSERVED_DATA in first.children:
        tree[schema.OBSERVED_DATA] = first[schema.OBSERVED_DATA].to_dataset()
    for group in tree.values():
        group.attrs = datatree.made_attrs(dict(group.attrs))
    return xr.DataTree.from_dict(tree)


def _check_known(table: pd.DataFrame) -> None:
    """Refuse probabilities that are not known, and warn of those that should not be relied on."""
    unknown = [str(name) for name in table.index[table["prob"].isna()]]
    if unknown:
        raise ValueError(
            "models must have evidences that are known, got none for some model, so that no "
            f"probability is known: {dict(table['log_evidence'])}; leave that model out, or run it "
            "again."
        )
    doubtful = {str(k): str(v) for k, v in table["status"].items() if v != Status.OK}
    if doubtful:
        listed = ", ".join(f"{name!r} ({status})" for name, status in doubtful.items())
        warn(
            f"the evidence of {listed} should not be relied on, and the probabilities of all "
            "models depend on it. Look at the statuses, and run these models again."
        )
