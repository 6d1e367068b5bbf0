"""A paragraph about a comparison of models, for a paper."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from pm_evidence.core.checks import described
from pm_evidence.core.text import concise
from pm_evidence.results.compare import SETTINGS, ModelComparison, strength_of
from pm_evidence.targets.model.cache import model_in
from pm_evidence.targets.model.upstream import priors_as_text

_ESTIMATORS = {
    "bridge": "bridge sampling (Meng and Wong 1996)",
    "importance": "importance sampling from a fitted density",
    "smc": "sequential Monte Carlo (Del Moral, Doucet and Jasra 2006)",
    "bar": "annealed paths in both directions with Bennett's ratio (Bennett 1976)",
}
_LONG = "0" * 12  # a seed with as many digits was not chosen by a person
_PACKAGES = {"pm_evidence_version": "pm_evidence", "pymc_version": "PyMC"}


def report(comparison: Any, models: Mapping[str, Any] | None = None) -> str:
    """Return a paragraph that describes a comparison of models, for a paper.

    Parameters
    ----------
    comparison : EvidenceTable or ModelComparison
        From `compare` or `compare_models`.
    models : mapping of str to pymc.Model or Bambi model, optional
        The models by name, whose priors the text then names. Results do not hold them.

    Returns
    -------
    str
        Text for ``print``: the models and their priors, the log evidences with standard errors, the
        Bayes factors in the categories of Kass and Raftery (1995), posterior probabilities with the
        prior ones, and how all was computed, with versions and seeds. Problems that the table
        warns of are named.

    Raises
    ------
    TypeError
        If ``comparison`` is neither a table nor a comparison, or a model is none.
    ValueError
        If the names of ``models`` are not those of the table.

    Examples
    --------
    >>> import pymc as pm, pm_evidence as pe
    >>> def normal(sigma):
    ...     with pm.Model() as model:
    ...         mu = pm.Normal("mu", 0, sigma)
    ...         pm.Normal("y", mu, 1, observed=[0.5, 1.5])
    ...     return model
    >>> models = {"narrow": normal(1), "wide": normal(5)}
    >>> found = pe.compare_models(models, random_seed=1, progressbar=False)
    >>> print(pe.report(found, models).split(". ")[0])
    We compared 2 models of the same data by their evidence (marginal likelihood)
    """
    table = comparison.table if isinstance(comparison, ModelComparison) else comparison
    if not isinstance(table, pd.DataFrame) or SETTINGS not in table.attrs:
        raise TypeError(
            f"comparison must be what compare or compare_models returned, got "
            f"{described(comparison)}; pass the table as it was returned."
        )
    names = [str(name) for name in table.index]
    parts = [
        f"We compared {len(names)} models of the same data by their evidence (marginal "
        "likelihood).",
        *_priors(names, models),
        _evidences(table),
        *_factors(table),
        *_probabilities(table),
        _how(table),
        *(f"Note on {name}: {text}" for name, text in table["warning"].items() if text),
    ]
    return " ".join(parts)


def _priors(names: list[str], models: Any) -> list[str]:
    """Return the priors of each model in words."""
    if models is None:
        return []
    if not isinstance(models, Mapping) or sorted(map(str, models)) != sorted(names):
        given = sorted(map(str, models)) if isinstance(models, Mapping) else described(models)
        raise ValueError(f"models must name the models of the table, {names}, got {given}.")
    found = []
    for name in names:
        model = model_in(models[name])
        if model is None:
            raise TypeError(
                f"models[{name!r}] must be a pymc.Model or a Bambi model, got "
                f"{described(models[name])}; pass the model itself."
            )
        found.append(f"The priors of {name} were {', '.join(priors_as_text(model))}.")
    return found


def _evidences(table: pd.DataFrame) -> str:
    values = [
        f"{concise(float(row['log_evidence']), float(row['mcse']))} for {name}"
        for name, row in table.iterrows()
    ]
    return (
        f"The log evidences, in nats, were {_listed(values)}, with Monte Carlo standard errors of "
        "the last digits in parentheses."
    )


def _factors(table: pd.DataFrame) -> list[str]:
    """Return the Bayes factors of the best model against each of the others."""
    if len(table) < 2:
        return []
    best, others = table.index[0], table.iloc[1:]
    texts = []
    for name, row in others.iterrows():
        log_bf = -float(row["log_bf"])
        if np.isfinite(log_bf):
            factor, error = np.exp(min(log_bf, 700.0)), concise(log_bf, float(row["log_bf_mcse"]))
            texts.append(f"{factor:.3g} against {name} (log {error}, {strength_of(log_bf)})")
        else:
            texts.append(f"unknown against {name}")
    return [
        f"The Bayes factor of {best} was {_listed(texts)}; words for the strength of evidence are "
        "those of Kass and Raftery (1995)."
    ]


def _probabilities(table: pd.DataFrame) -> list[str]:
    prior = table.attrs[SETTINGS]["prior_probs"]
    if len(table) < 2 or not np.isfinite(table["prob"]).all():
        return []
    values = [
        f"{concise(float(row['prob']), float(row['prob_mcse']))} for {name}"
        for name, row in table.iterrows()
    ]
    if np.ptp(list(prior.values())) < 1e-12:  # by rounding
        given = "equal prior probabilities"
    else:
        given = "prior probabilities of "
        given += _listed([f"{prior[name]:.3g} for {name}" for name in table.index])
    return [f"With {given}, the posterior probabilities were {_listed(values)}."]


def _how(table: pd.DataFrame) -> str:
    """Return estimators, seeds and versions."""
    runs: Mapping[str, Mapping[str, Any]] = table.attrs[SETTINGS]["runs"]
    used = dict.fromkeys(_ESTIMATORS.get(name, name) for name in table["estimator"])
    versions = {
        f"{package} {run[key]}"
        for run in runs.values()
        for key, package in _PACKAGES.items()
        if key in run
    }
    text = f"Evidences were estimated by {_listed(list(used))}"
    text += f" in {_listed(sorted(versions, reverse=True))}" if versions else ""
    chosen = {name: str(run.get("random_seed", _LONG)) for name, run in runs.items()}
    seeds = [f"{seed} for {name}" for name, seed in chosen.items() if len(seed) < len(_LONG)]
    text += f" (random seeds {_listed(seeds)})" if seeds else ""
    if "prior" in {run.get("potentials") for run in runs.values()}:
        text += "; potentials belong to the prior, which was normalised"
    return f"{text}."


def _listed(texts: list[str]) -> str:
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)
