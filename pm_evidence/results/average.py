"""Posterior draws and predictions of several models, mixed by the probabilities of the models."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from pm_evidence.core.checks import check_kind, described
from pm_evidence.core.exceptions import usual_floats, warn
from pm_evidence.core.random import resolve_seed
from pm_evidence.core.statuses import Status
from pm_evidence.results import arviz_groups, schema
from pm_evidence.results.compare import compare, prior_of
from pm_evidence.results.mixed_draws import MODEL, SharedGroup, Shares

__all__ = ["average_models"]

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
    table = compare(_checked(models), prior_probs)
    table = table.loc[list(models)]  # in the order that was given
    prior = prior_of(list(models), prior_probs)
    _check_known(table)
    seed = resolve_seed(random_seed)
    groups = {name: SharedGroup.of(name, models) for name in _MIXED}
    shares = Shares.of(models, table["prob"].to_numpy(), draws, seed)
    found = {name: group.mixed(shares) for name, group in groups.items() if group is not None}
    averages = {
        f"{name}_average": group.average(table)
        for name, group in groups.items()
        if group is not None
    }
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
        group.attrs = arviz_groups.made_attrs(dict(group.attrs))
    return xr.DataTree.from_dict(tree)


def _checked(models: Any) -> Mapping[str, xr.DataTree]:
    """Return the results, if all of them have a posterior."""
    if not isinstance(models, Mapping) or isinstance(models, xr.DataTree | xr.Dataset):
        raise TypeError(
            f"models must be a mapping of names to results, got {described(models)}; pass for "
            'example {"pooled": dt1, "hierarchical": dt2}.'
        )
    if not models:
        raise ValueError("models must name at least one model, got none; pass a mapping.")
    for name, dt in models.items():
        if not isinstance(name, str):
            raise TypeError(f"models must have names as keys, got {described(name)}.")
        check_kind(f"models[{name!r}]", dt, xr.DataTree, "pass what sample_evidence returned")
        if schema.POSTERIOR not in dt.children:
            raise ValueError(
                f"models[{name!r}] must have the group 'posterior', got the groups "
                f"{', '.join(dt.children) or '(none)'}; pass what sample_evidence returned."
            )
    return models


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
