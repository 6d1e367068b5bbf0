"""Leave-one-out cross-validation beside the evidence, and why the two differ."""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from pm_evidence.core.text import concise
from pm_evidence.estimators.errors import spread
from pm_evidence.results import schema
from pm_evidence.results.stored import not_a_tree

Floats = NDArray[np.float64]


# Batches that chains of a Markov chain are cut into, in all.
_BATCHES = 16


def origin_of(dt: xr.DataTree, parameter: str) -> NDArray[np.int64]:
    """Return the source of each posterior draw of a result, chain after chain.

    Draws of other samplers, to which an evidence was added, belong to batches of neighbouring
    draws: 16 in all, or one for each chain if there are more chains.
    """
    if isinstance(dt, xr.DataTree) and schema.POSTERIOR in dt.children:
        posterior = dt[schema.POSTERIOR]
        if schema.DRAWN_FROM not in posterior.attrs:
            n_chains, n_draws = (posterior.sizes[name] for name in schema.SAMPLE_DIMS)
            n = -(-_BATCHES // max(n_chains, 1))
            batch = np.arange(n_draws) * n // max(n_draws, 1)
            return (np.arange(n_chains)[:, None] * n + batch).ravel()
    _, origin = drawn_with_origin(dt, parameter)
    flat: NDArray[np.int64] = origin.transpose(*schema.SAMPLE_DIMS).to_numpy().ravel()
    return flat.astype(np.int64)


def drawn_with_origin(dt: Any, parameter: str) -> tuple[xr.Dataset, xr.DataArray]:
    """Return the posterior of a result, and the origin of each draw."""
    if not isinstance(dt, xr.DataTree):
        raise TypeError(not_a_tree(parameter, dt))
    if schema.POSTERIOR not in dt.children:
        raise ValueError(
            f"{parameter} must have the group {schema.POSTERIOR!r}, got the groups "
            f"{', '.join(dt.children) or '(none)'}; make it with sample_evidence, for a model with "
            "free variables."
        )
    posterior = dt[schema.POSTERIOR].to_dataset()
    stats = dt[schema.SAMPLE_STATS].to_dataset() if schema.SAMPLE_STATS in dt.children else {}
    if schema.DRAWN_FROM not in posterior.attrs or schema.DRAW_ORIGIN not in stats:
        raise ValueError(
            f"{parameter} must hold the origin of its posterior draws "
            f"(sample_stats[{schema.DRAW_ORIGIN!r}], and the attribute "
            f"{schema.DRAWN_FROM!r} of the posterior), got draws of another sampler or of an "
            "earlier version of this package; use arviz.summary for draws of pm.sample, or "
            "sample again with sample_evidence."
        )
    origin = stats[schema.DRAW_ORIGIN]
    _check_draws(posterior, origin, parameter)
    return posterior.drop_attrs(), origin


def _check_draws(posterior: xr.Dataset, origin: xr.DataArray, parameter: str) -> None:
    """Raise ValueError if draws are not numbers, or if any of them has no origin."""
    of_draws = {
        str(name): values
        for name, values in posterior.data_vars.items()
        if set(schema.SAMPLE_DIMS) <= set(values.dims)
    }
    kinds = {name: values.dtype.kind for name, values in of_draws.items()}
    if origin.dtype.kind not in "iu" or set(origin.dims) != set(schema.SAMPLE_DIMS):
        raise ValueError(
            f"{parameter} must hold one whole number for each draw as "
            f"sample_stats[{schema.DRAW_ORIGIN!r}], got dtype {origin.dtype} and "
            f"{origin.dims}; read the original file that sample_evidence wrote."
        )
    if (
        len(of_draws) < len(posterior.data_vars)
        or not of_draws
        or not set(kinds.values()) <= set("biuf")
    ):
        raise ValueError(
            f"{parameter} must hold numbers for each chain and draw in its group "
            f"{schema.POSTERIOR!r}, got dtypes {kinds}; read the original file that "
            "sample_evidence wrote."
        )
    if not origin.size:
        raise ValueError(
            f"{parameter} must hold at least one posterior draw, got none; select more draws."
        )
    for name in schema.SAMPLE_DIMS:
        if origin.sizes.get(name) != posterior.sizes.get(name):
            raise ValueError(
                f"{parameter} must hold the origin of each of its {posterior.sizes.get(name)} "
                f"entries along {name!r}, got {origin.sizes.get(name)}; make the same "
                "selection in all groups."
            )


EXPLANATION = "explanation"  # the attribute of a table that holds what is written below it
_LOG_LIKELIHOOD = "log_likelihood"
_POINT = "pointwise_observation"
_FEWEST_POINTS, _FEWEST_MODELS = 2, 2
_CLEAR = 2.0  # standard errors from which on a difference of elpd counts as one
_MEANING = (
    "The log evidence predicts the data one after the other, the first from the prior alone, so "
    "that it includes what it costs to learn the parameters. LOO predicts each observation from "
    "all others, where the prior hardly matters."
)


def with_elpd(table: pd.DataFrame, models: Mapping[str, Any]) -> pd.DataFrame:
    """Return a table of evidences with columns of leave-one-out cross-validation."""
    found = {name: _loo(f"models[{name!r}]", dt) for name, dt in models.items()}
    sizes = {name: elpd.n_data_points for name, (elpd, _) in found.items()}
    if len(set(sizes.values())) > 1:
        raise ValueError(
            "models must have log likelihoods of the same observations for LOO, got "
            f"{sizes}; write the likelihoods so that they have one value for each observation."
        )
    rows = pd.DataFrame(
        {
            "elpd_loo": {name: float(elpd.elpd) for name, (elpd, _) in found.items()},
            "elpd_se": {name: float(elpd.se) for name, (elpd, _) in found.items()},
            "p_loo": {name: float(elpd.p) for name, (elpd, _) in found.items()},
        }
    )
    rows = rows.join(_differences({name: elpd for name, (elpd, _) in found.items()}))
    table = table.join(rows)
    table["learning_cost"] = table["elpd_loo"] - table["log_evidence"]
    notes = {name: note for name, (_, note) in found.items()}
    table["warning"] = [
        f"{text} {notes[str(name)]}".strip() for name, text in table["warning"].items()
    ]
    table.attrs[EXPLANATION] = _explanation(table)
    return table


def _loo(parameter: str, dt: Any) -> tuple[Any, str]:
    """Return ArviZ's result of a model, and what it warned of."""
    from arviz_stats import loo

    if not isinstance(dt, xr.DataTree):
        raise TypeError(f"{not_a_tree(parameter, dt)} loo=True needs its pointwise log likelihood.")
    log_likelihood = _pointwise(parameter, dt)
    data = {"log_likelihood": xr.Dataset({"observed": log_likelihood})}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = loo(
            xr.DataTree.from_dict(data),
            pointwise=True,
            reff=_efficiency(log_likelihood, dt, parameter),
        )
    texts = [str(each.message) for each in caught if issubclass(each.category, UserWarning)]
    high = int((found.pareto_k > found.good_k).sum())
    if high:
        texts = [
            f"LOO: {high} of {found.n_data_points} observations have a Pareto k above "
            f"{found.good_k:.2f}, so that elpd_loo may be wrong; see arviz.loo."
        ]
    return found, " ".join(texts)


def _pointwise(parameter: str, dt: xr.DataTree) -> xr.DataArray:
    """Return the log likelihood of all observations, one after the other."""
    if _LOG_LIKELIHOOD not in dt.children or not dt[_LOG_LIKELIHOOD].data_vars:
        raise ValueError(
            f"{parameter} must have the group 'log_likelihood' for LOO, got the groups "
            f"{', '.join(dt.children)}; sample with idata_kwargs={{'log_likelihood': True}}, or "
            "add it by pm.compute_log_likelihood(dt, model=model)."
        )
    columns = []
    for name, values in dt[_LOG_LIKELIHOOD].data_vars.items():
        if not set(schema.SAMPLE_DIMS) <= set(values.dims) or values.dtype.kind != "f":
            raise ValueError(
                f"{parameter} must have log likelihoods of each chain and draw, got {name!r} with "
                f"the dimensions {values.dims} and dtype {values.dtype}; make them with PyMC."
            )
        ordered = values.transpose(*schema.SAMPLE_DIMS, ...).values
        columns.append(ordered.reshape(*ordered.shape[:2], -1))
    flat = np.concatenate(columns, axis=2)
    if flat.shape[2] < _FEWEST_POINTS:
        raise ValueError(
            f"{parameter} must have two observations or more for LOO, got {flat.shape[2]}: its "
            "likelihood is that of all data together. Leave out loo=True."
        )
    return xr.DataArray(flat, dims=(*schema.SAMPLE_DIMS, _POINT))


def _efficiency(log_likelihood: xr.DataArray, dt: xr.DataTree, parameter: str) -> float:
    """Return how many independent draws each draw is worth, at most 1.

    Draws of this package are no time series, which ArviZ would take them for.
    """
    total = log_likelihood.sum(_POINT).values.ravel()
    deviation = (total - total.mean()) / total.size
    error = spread((deviation, origin_of(dt, parameter))).mcse
    if not error > 0.0 or not np.isfinite(error):
        return 1.0
    return float(np.clip(total.var() / error**2 / total.size, 1.0 / total.size, 1.0))


def _differences(found: Mapping[str, Any]) -> pd.DataFrame:
    """Return differences to the model of the largest elpd, with their errors, and weights."""
    from arviz_stats import compare

    if len(found) < _FEWEST_MODELS:
        return pd.DataFrame({"elpd_diff": 0.0, "elpd_diff_se": 0.0, "loo_weight": 1.0}, list(found))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Pareto k, which are reported for each model
        compared = compare(dict(found), round_to="none")
    columns = {"elpd_diff": "elpd_diff", "dse": "elpd_diff_se", "weight": "loo_weight"}
    return compared[list(columns)].rename(columns=columns).astype(float)


def _explanation(table: pd.DataFrame) -> str:
    """Return why evidence and LOO differ for the models of a table."""
    if len(table) < _FEWEST_MODELS or table["log_evidence"].isna().any():
        return _MEANING
    by_evidence, by_loo = str(table.index[0]), str(table["elpd_loo"].idxmax())
    parts = [_MEANING]
    second = table.iloc[1]
    margin = concise(-float(second["log_bf"]), float(second["log_bf_mcse"]))
    if by_evidence == by_loo:
        parts.append(f"Both prefer {by_evidence!r}.")
        worse = table.drop(index=by_loo)["elpd_diff"].idxmax()
    else:
        parts.append(f"The evidence prefers {by_evidence!r}, by {margin} nats, LOO {by_loo!r}.")
        worse = by_evidence
    row = table.loc[worse]
    difference = concise(-float(row["elpd_diff"]), float(row["elpd_diff_se"]))
    clear = -float(row["elpd_diff"]) > _CLEAR * float(row["elpd_diff_se"])
    of_loo = "" if clear else ", which is no clear difference"
    parts.append(f"LOO prefers {by_loo!r} to {worse!r} by {difference}{of_loo}.")
    costs = table["learning_cost"].sort_values()
    listed = ", ".join(f"{value:.3g} for {name!r}" for name, value in costs.items())
    parts.append(f"Learning the parameters from their priors costs, in nats: {listed}.")
    return " ".join(parts)
