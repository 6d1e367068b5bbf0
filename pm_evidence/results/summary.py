"""Posterior summaries with Monte Carlo errors that account for how the draws were made."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from pm_evidence.core.checks import check_choice, check_share, described
from pm_evidence.core.exceptions import usual_floats
from pm_evidence.core.text import decimals
from pm_evidence.estimators.errors import spread
from pm_evidence.results import schema
from pm_evidence.results.elpd import drawn_with_origin

Floats = NDArray[np.float64]
Functions = Mapping[str, Callable[[xr.Dataset], Any]]

_STATISTIC = "summary"  # dimension of the statistics in the output of ArviZ
_MOST_DECIMALS = 300  # of a float


@usual_floats()
def summary(
    dt: xr.DataTree,
    var_names: str | Sequence[str] | None = None,
    *,
    funcs: Functions | None = None,
    filter_vars: str | None = None,
    coords: Mapping[str, Any] | None = None,
    ci_prob: float | None = None,
    ci_kind: str | None = None,
    round_to: int | str = "auto",
) -> pd.DataFrame:
    """Summarise the posterior of a run, with Monte Carlo errors that are valid for its draws.

    Parameters
    ----------
    dt : DataTree
        From ``sample_evidence`` or ``simulate_and_certify``.
    var_names : str or sequence of str, optional
        Variables of the group ``posterior``; all of them by default. With an empty list only
        ``funcs`` are summarised.
    funcs : mapping of str to callable, optional
        Functions of the posterior by name. Each is called with the posterior as a Dataset and
        returns a DataArray with its dimensions ``chain`` and ``draw``, and any others; for example
        ``{"ratio": lambda d: d["a"] / d["b"]}``.
    filter_vars : {None, "like", "regex"}, optional
        How ``var_names`` are read, as in ``arviz.summary``.
    coords : mapping, optional
        Labels to select, as in ``arviz.summary``.
    ci_prob : float, optional
        Probability of the credible interval; ``rcParams["stats.ci_prob"]`` of ArviZ by default.
    ci_kind : {"eti", "hdi"}, optional
        Kind of the interval: equal tails or highest density; ``rcParams["stats.ci_kind"]`` by
        default.
    round_to : int or {"auto", "none"}
        Number of decimals. With ``"auto"`` every number has the digits that its error justifies.

    Returns
    -------
    pandas.DataFrame
        One row for each variable or component. ``mean``, ``sd`` and the ends of the interval are
        those of ``arviz.summary``. ``mcse_mean`` and ``mcse_sd`` are the Monte Carlo standard
        errors of ``mean`` and ``sd``, and ``ess_mean`` is the number of independent draws whose
        mean has the same error. ``mcse_eti89_lb`` and ``mcse_eti89_ub`` (if ``ci_prob`` is 0.89)
        are those of the ends of the interval, which are quantiles; an interval of highest density
        has none. They are NaN if all draws come from one island or path, and that of a quantile
        also if there are too few draws beyond it.

    Raises
    ------
    TypeError
        If ``dt`` is not a DataTree, or ``funcs`` is not a mapping of names to functions.
    ValueError
        If ``dt`` has no posterior, does not hold the origin of its draws, or a function returns
        anything but one value for each draw; and in the cases in which ``arviz.summary`` raises it.

    Notes
    -----
    ``arviz.summary`` treats every chain as a time series. The draws of this package do not form
    time series: draws of one island share ancestors, and draws of independent paths were resampled
    by their weights. Draws of a tempered chain do, but chains of a ladder exchange them.
    ``sample_stats["origin"]`` holds the island, path, ladder or draw of the fitted density that
    each draw comes from, and the attribute ``drawn_from`` of ``posterior`` tells which of these it
    is. Draws of different origin are independent. Therefore the variance of a mean
    is the sum over origins of the squared sum of the deviations ``(x - mean) / n`` of their draws,
    times ``k / (k - 1)`` for ``k`` origins: the variance of a ratio estimate from ``k`` clusters.
    Draws count as often as they were resampled, and so do islands. The error of ``sd`` follows by
    the delta method, and that of a quantile from the error of the share of draws below it, by the
    method of Woodruff (1952): half the distance of the quantiles one error above and below.

    With 16 islands an error has 15 degrees of freedom, so a 95 % interval extends 2.13 errors to
    each side. The error is not reliable if most draws, or most draws beyond a quantile, come from
    a few islands or paths. With 320 draws, 95 % intervals covered the ends of an 89 % interval in
    91 % of 200 runs, and with 3,200 draws in 93 %.

    Examples
    --------
    >>> import pymc as pm, pm_evidence as pe
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", 0, 1)
    ...     y = pm.Normal("y", mu, 1, observed=[0.5, 1.5])
    >>> dt = pe.sample_evidence(model, draws=400, random_seed=1, progressbar=False)
    >>> table = pe.summary(dt, funcs={"square": lambda d: d["mu"] ** 2})
    >>> list(table.index), list(table.columns)[-3:]
    (['mu', 'square'], ['mcse_sd', 'mcse_eti89_lb', 'mcse_eti89_ub'])
    """
    from arviz_base import dataset_to_dataframe, rcParams
    from arviz_stats import summary as of_arviz

    _check_names(var_names, filter_vars)
    _check_look(coords, ci_prob, ci_kind, round_to)
    posterior, origin = drawn_with_origin(dt, "dt")
    data = _selected(posterior, var_names, filter_vars, coords)
    data = data.assign(_evaluated(posterior, {} if funcs is None else funcs))
    if not data.data_vars:
        raise ValueError(
            "var_names must name at least one variable if there are no funcs, got none; leave it "
            "out for all of them."
        )
    numbers = data.map(lambda values: values.astype(np.float64))  # bools cannot be subtracted
    found = of_arviz(
        numbers, kind="stats", ci_prob=ci_prob, ci_kind=ci_kind, fmt="xarray", round_to="none"
    )
    tail = 0.5 * (1.0 - (rcParams["stats.ci_prob"] if ci_prob is None else ci_prob))
    ends = [str(name) for name in found[_STATISTIC].values if str(name).startswith("eti")]
    quantiles = dict(zip(ends, (tail, 1.0 - tail), strict=False))  # an "hdi" has none
    errors = _errors(numbers, quantiles, origin)
    table = dataset_to_dataframe(
        xr.concat([found, errors], dim=_STATISTIC), sample_dims=[_STATISTIC]
    ).T
    return _rounded(table, round_to)


def _check_names(var_names: Any, filter_vars: Any) -> None:
    several = isinstance(var_names, list | tuple) and all(isinstance(v, str) for v in var_names)
    if not (var_names is None or isinstance(var_names, str) or several):
        raise TypeError(
            f"var_names must be a name or a list of names, got {described(var_names)}; leave it "
            "out for all variables."
        )
    if filter_vars is not None:
        check_choice("filter_vars", filter_vars, ("like", "regex"))


def _check_look(coords: Any, ci_prob: Any, ci_kind: Any, round_to: Any) -> None:
    if coords is not None and not isinstance(coords, Mapping):
        raise TypeError(
            f"coords must be a mapping of dimensions to labels, got {described(coords)}; pass for "
            'example {"school": ["A", "B"]}.'
        )
    if ci_prob is not None:
        check_share("ci_prob", ci_prob, 0.9)
    if ci_kind is not None:
        check_choice("ci_kind", ci_kind, ("eti", "hdi"))
    whole = isinstance(round_to, int) and not isinstance(round_to, bool)
    if not (isinstance(round_to, str) and round_to in ("auto", "none")) and not (
        whole and abs(round_to) <= _MOST_DECIMALS
    ):
        raise ValueError(
            f"round_to must be a number of decimals, 'auto' or 'none', got {described(round_to)}; "
            "leave it out for the digits that the errors justify."
        )


def _selected(
    posterior: Any,  # a Dataset, which ArviZ accepts although its annotation does not say so
    var_names: str | Sequence[str] | None,
    filter_vars: str | None,
    coords: Mapping[str, Any] | None,
) -> xr.Dataset:
    """Return the requested variables, each with the requested labels."""
    from arviz_base import extract

    if isinstance(var_names, Sequence) and not len(var_names):
        return xr.Dataset()
    options: dict[str, Any] = {"var_names": var_names, "filter_vars": filter_vars}
    try:
        data: Any = extract(posterior, combined=False, keep_dataset=True, **options)
    except (KeyError, re.error) as error:
        names = ", ".join(map(repr, posterior.data_vars))
        raise ValueError(
            f"var_names must be among {names}, got {described(var_names)}; leave it out for all."
        ) from error
    try:
        selected: xr.Dataset = data if coords is None else data.sel(dict(coords))
    except (KeyError, TypeError, ValueError) as error:
        there = {str(name): list(labels.values) for name, labels in data.coords.items()}
        raise ValueError(
            f"coords must select labels that the posterior has, {described(there)}, got "
            f"{described(coords)}; leave it out for all."
        ) from error
    if set(schema.SAMPLE_DIMS) - set(selected.dims):
        raise ValueError(
            f"coords must not select chains or draws, got {described(coords)}; select from dt."
        )
    return selected


def _evaluated(posterior: xr.Dataset, funcs: Functions) -> dict[str, xr.DataArray]:
    """Return the functions of the posterior."""
    if not isinstance(funcs, Mapping) or not all(callable(func) for func in funcs.values()):
        raise TypeError(
            f"funcs must be a mapping of names to functions, got {described(funcs)}; pass for "
            'example {"ratio": lambda d: d["a"] / d["b"]}.'
        )
    found = {}
    for name, func in funcs.items():
        values = func(posterior)
        sizes = dict(values.sizes) if isinstance(values, xr.DataArray) else {}
        if any(sizes.get(dim) != posterior.sizes[dim] for dim in schema.SAMPLE_DIMS):
            raise ValueError(
                f"funcs[{name!r}] must return a DataArray with all of the posterior's chains and "
                f"draws, got {sizes or described(values)}; do not average over them."
            )
        found[str(name)] = values
    return found


def _errors(
    numbers: xr.Dataset, quantiles: Mapping[str, float], origin: xr.DataArray
) -> xr.Dataset:
    """Return ``ess_mean`` and the errors of mean, standard deviation and quantiles."""
    _, index = np.unique(origin.transpose(*schema.SAMPLE_DIMS).to_numpy(), return_inverse=True)
    blocks = index.ravel()

    def of_draws(draws: Floats) -> Floats:
        x = draws.ravel()
        of_ends = (_of_quantile(x, p, blocks) for p in quantiles.values())
        return np.array([*_of_mean_and_sd(x, blocks), *of_ends])

    found: xr.Dataset = xr.apply_ufunc(
        of_draws,
        numbers,
        input_core_dims=[list(schema.SAMPLE_DIMS)],
        output_core_dims=[[_STATISTIC]],
        vectorize=True,
    )
    statistics = ["ess_mean", "mcse_mean", "mcse_sd", *(f"mcse_{name}" for name in quantiles)]
    return found.assign_coords({_STATISTIC: statistics})


def _of_mean_and_sd(x: Floats, origin: NDArray[np.int64]) -> tuple[float, float, float]:
    """Return the effective number of draws, and the errors of mean and standard deviation."""
    deviation = x - x.mean()
    variance = float(np.mean(deviation**2))
    of_mean = spread((deviation / x.size, origin)).mcse
    if not variance > 0.0:
        return float("nan"), of_mean, of_mean
    of_variance = spread(((deviation**2 - variance) / x.size, origin)).mcse
    ess = variance / of_mean**2 if of_mean != 0.0 else float("inf")
    return ess, of_mean, of_variance / (2.0 * variance**0.5)


def _of_quantile(x: Floats, probability: float, origin: NDArray[np.int64]) -> float:
    """Return the error of a quantile, by the method of Woodruff (1952) for clusters."""
    below = x <= np.quantile(x, probability)
    error = spread(((below - below.mean()) / x.size, origin)).mcse
    low, high = probability - error, probability + error
    if not 0.0 < low <= high < 1.0:
        return float("nan")  # one end of its interval is beyond all draws
    return float(0.5 * np.diff(np.quantile(x, [low, high]))[0])


def _rounded(table: pd.DataFrame, round_to: int | str) -> pd.DataFrame:
    """Return the table with the requested decimals."""
    if round_to == "none":
        return table
    if round_to != "auto":
        return table.round(int(round_to))
    unrounded = table.copy()
    for column in table.columns:
        own = f"mcse_{str(column).removeprefix('mcse_')}"
        errors = unrounded[own if own in table.columns else "mcse_mean"]
        is_count = column == "ess_mean"
        table[column] = [
            round(float(value), 0 if is_count else decimals(float(error)))
            for value, error in zip(unrounded[column], errors, strict=True)
        ]
    return table
