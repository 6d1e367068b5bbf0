"""Many models in one call, of which close ones are run longer; and a paragraph about them."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import hypot, log, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from pm_evidence.api.arguments import TARGET_MCSE, check_target
from pm_evidence.api.sample import passed_on, sample_evidence
from pm_evidence.core.checks import check_text, described
from pm_evidence.core.exceptions import ModelError, NumericalError, usual_floats, warn
from pm_evidence.core.random import Phase, resolve_seed, seed_of_run
from pm_evidence.core.records import LogEvidence, Status
from pm_evidence.core.text import concise
from pm_evidence.execution.display import titled
from pm_evidence.families.native import checked_native, is_native
from pm_evidence.results.compare import (
    SETTINGS,
    ModelComparison,
    check_same_data,
    compare,
    prior_of,
    strength_of,
)
from pm_evidence.results.datatree import rechecked
from pm_evidence.results.stored import estimate_of, evidence_of, fingerprint
from pm_evidence.targets.model.cache import checked_data, model_in
from pm_evidence.targets.model.upstream import priors_as_text

# Error of the first run of each model, in nats.
_COARSE = 0.2
# A model is hopeless if its posterior odds against the best model are below this, although its
# evidence may be underestimated by this number of combined errors. Such errors are estimates from
# few draws, and count as at least this many nats.
_ODDS, _ERRORS, _LEAST_ERROR = 1e-3, 5.0, 0.1


@usual_floats()
def compare_models(
    models: Mapping[str, Any],
    *,
    prior_probs: Mapping[str, float] | Sequence[float] | None = None,
    target_mcse: float | None = TARGET_MCSE,
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool = True,
    **options: Any,
) -> ModelComparison:
    """Estimate the evidence of several models, and compare them.

    Parameters
    ----------
    models : mapping of str to pymc.Model, Bambi model, native target or DataTree
        The models by name, at least two. Results of ``sample_evidence`` that are there already are
        taken as they are.
    prior_probs : mapping of str to float, or sequence of float, optional
        Prior probability of each model; equal by default. See `compare`.
    target_mcse : float, optional
        Error in nats up to which the log Bayes factor of each model against the best one should be
        known, unless the model is hopeless (see Notes); None for a single round of every model.
    random_seed : int or numpy.random.Generator, optional
        The same seed gives the same numbers, bit for bit.
    progressbar : bool
        Whether to show the progress of each run.
    **options
        Any other argument of `sample_evidence`, which holds for every run. With ``checkpoint``,
        each run has a folder of its own in that folder.

    Returns
    -------
    ModelComparison
        With ``table``, which `compare` makes, and ``results``, the DataTree for each model.

    Raises
    ------
    TypeError
        If ``models`` is not a mapping of names to models, or an option is unknown.
    ValueError
        If there are fewer than two models, the observed data differ, or an argument is wrong.
        Data are compared before anything is sampled.
    ModelError
        If a model has no well-defined evidence.
    NumericalError
        If no model could be run.
    KeyboardInterrupt
        Upon Ctrl-C before any model has an estimate. Later, Ctrl-C ends the comparison, and what
        is known until then is returned.

    Warns
    -----
    EvidenceWarning
        If an estimate should not be relied on, or a model could not be run.

    Notes
    -----
    Each model is first run with an error of 0.2 nats, which is cheap. A model is hopeless if its
    posterior odds against the best model are below 1/1000 even if their log is five of its errors
    larger than estimated, and its status is ``"ok"``. Hopeless models are not run again, nor is the
    best model if all others are hopeless. Every other model is run a second time with an error of
    ``target_mcse / sqrt(2)``, which makes the error of the difference of two models
    ``target_mcse``. It is run again even if the error of its first run is as small, because a first
    run searches little for further modes. If the best model changes, the rule is applied again; no
    model is run more than twice.

    First runs are kept in ``first_runs``. They are independent of the second ones: a second run
    that finds clearly less evidence than the first has the status ``"missed_mass"``. A model whose
    run fails numerically is left out of the table and named in ``failed``; the others are not lost.

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
    >>> found.table["log_bf"].round(1).to_dict()
    {'narrow': 0.0, 'wide': -1.1}
    """
    for name in options:
        if name not in passed_on():
            raise TypeError(
                f"options must be arguments of sample_evidence, got {name!r}; the others are "
                f"{', '.join(passed_on())}."
            )
    if target_mcse is not None:
        check_target(target_mcse)
    known = _checked(models)
    prior = dict(zip(known, np.log(prior_of(list(known), prior_probs)), strict=True))
    options = {**options, "progressbar": progressbar}
    stored = options.get("checkpoint") is not None and random_seed is None
    runs = _Runs(known, prior, None if stored else resolve_seed(random_seed), options)
    mcse = None if target_mcse is None else target_mcse / sqrt(2.0)
    for name, model in known.items():
        runs.start(name, model, mcse if mcse is None else max(mcse, _COARSE))
    if mcse is not None:
        while needed := runs.needed(mcse):
            runs.again(needed, mcse)
    return runs.comparison(prior_probs)


@dataclass
class _Runs:
    """The runs of all models so far."""

    models: dict[str, Any]  # the models, or results
    prior: dict[str, float]  # log prior probability of each
    seed: int | None  # seed of all runs; None if each has a checkpoint that stores its own
    options: dict[str, Any]  # arguments of every run
    interrupted: bool = False
    results: dict[str, xr.DataTree] = field(default_factory=dict)
    first: dict[str, xr.DataTree] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def start(self, name: str, model: Any, mcse: float | None) -> None:
        """Run a model for the first time, or take the result that is there."""
        if isinstance(model, xr.DataTree):
            self.results[name] = model
            return
        found = self._sampled(name, mcse, 0)
        if found is not None:
            self.results[name] = found

    def again(self, name: str, mcse: float) -> None:
        """Run a model for the second time."""
        before = self.results[name]
        found = self._sampled(name, mcse, 1)
        if found is None or self.interrupted:  # the first run remains
            self.first |= {} if self.interrupted else {name: before}
            return
        self.first[name] = before
        coarse = self._evidence(name)
        self.results[name] = rechecked(found, coarse) if coarse.status == Status.OK else found

    def needed(self, mcse: float) -> str | None:
        """Return the best model that has to be run again, or None."""
        if len(self.results) < 2 or self.interrupted:
            return None
        order = sorted(self.results, key=self._log_weight, reverse=True)
        rivals = [name for name in order[1:] if not self._is_hopeless(name, order[0])]
        if not rivals and self._evidence(order[0]).status == Status.OK:
            return None
        for name in [order[0], *rivals]:
            done = name in self.first or isinstance(self.models[name], xr.DataTree)
            evidence = self._evidence(name)
            enough = evidence.status == Status.OK and evidence.mcse <= mcse
            if not done and not (enough and mcse >= _COARSE):
                return name
        return None

    def comparison(self, prior_probs: Any) -> ModelComparison:
        """Return the table and all results."""
        if self.failed and prior_probs is not None:
            if not isinstance(prior_probs, Mapping):
                prior_probs = dict(zip(self.models, prior_probs, strict=True))
            prior_probs = {name: prior_probs[name] for name in self.results}
        ordered = {name: self.results[name] for name in self.models if name in self.results}
        table = compare(ordered, prior_probs)
        return ModelComparison(table, ordered, self.first, self.failed)

    def _sampled(self, name: str, mcse: float | None, number: int) -> xr.DataTree | None:
        """Return the result of a run; None, with a warning, if it failed or was not made."""
        if self.interrupted:
            self.failed[name] = "Ctrl-C came before it was run"
            return None
        options = {**self.options, **self._own(name, number), "target_mcse": mcse}
        try:
            with titled(f"{name}, second run" if number else name):
                found: xr.DataTree = sample_evidence(self.models[name], **options)
        except KeyboardInterrupt:
            if not self.results:
                raise
            self.interrupted = True
            self.failed |= {} if name in self.results else {name: "Ctrl-C ended its run"}
            warn(f"the run of models[{name!r}] was interrupted: the comparison is incomplete.")
            return None
        except NumericalError as error:
            if len(self.models) - len(self.failed) < 2 and name not in self.results:
                raise
            self.failed |= {} if name in self.results else {name: str(error)}
            warn(f"models[{name!r}] could not be run: {error}")
            return None
        self.interrupted = estimate_of(found, name).status == Status.INTERRUPTED
        return found

    def _own(self, name: str, number: int) -> dict[str, Any]:
        """Return the options that only one run has: its seed, and its folder for a checkpoint."""
        index = list(self.models).index(name)
        own: dict[str, Any] = {"random_seed": None}
        if self.seed is not None:
            own["random_seed"] = seed_of_run(self.seed, Phase.MODELS, index, number)
        folder = self.options.get("checkpoint")
        if isinstance(folder, str | os.PathLike):
            own["checkpoint"] = Path(folder) / f"model-{index}-run-{number}"
        return own

    def _evidence(self, name: str) -> LogEvidence:
        return estimate_of(self.results[name], f"models[{name!r}]")

    def _log_weight(self, name: str) -> float:
        value = self._evidence(name).value
        return value + self.prior[name] if value < np.inf else -np.inf

    def _is_hopeless(self, name: str, best: str) -> bool:
        """Return whether a model cannot have a posterior probability that matters."""
        one, other = self._evidence(name), self._evidence(best)
        error = max(hypot(one.mcse, other.mcse), _LEAST_ERROR)
        odds = self._log_weight(name) - self._log_weight(best)
        return one.status == Status.OK and odds + _ERRORS * error < log(_ODDS)


def _checked(models: Any) -> dict[str, Any]:
    """Return the models and results by name, after comparing their data."""
    if not isinstance(models, Mapping) or isinstance(models, xr.DataTree | xr.Dataset):
        raise TypeError(
            f"models must be a mapping of names to models, got {described(models)}; pass for "
            'example {"pooled": model_1, "hierarchical": model_2}.'
        )
    if len(models) < 2:
        raise ValueError(
            f"models must name at least two models, got {len(models)}; use sample_evidence for a "
            "single model."
        )
    known, data = dict[str, Any](), dict[str, str]()
    for name, model in models.items():
        check_text("names of models", name)
        known[name], data[name] = _known(f"models[{name!r}]", model)
    check_same_data(data)
    return known


def _known(parameter: str, model: Any) -> tuple[Any, str]:
    """Return a model or result, and the fingerprint of its data."""
    if isinstance(model, xr.DataTree):
        return model, str(evidence_of(model, parameter).attrs["fingerprint"])
    found = model_in(model)
    if found is not None:
        try:
            return found, fingerprint(checked_data(found))
        except ModelError as error:
            raise ModelError(f"{parameter}: {error}") from error
    if is_native(model):
        native = checked_native(model)
        return native, fingerprint(native.observed_data())
    raise TypeError(
        f"{parameter} must be a pymc.Model, a Bambi model, a native target or a result of "
        f"sample_evidence, got {described(model)}; pass the model itself."
    )


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
