"""Many models in one call: each is run, and those that the comparison depends on are run longer."""

import inspect
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import hypot, log, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from pm_evidence.api.arguments import TARGET_MCSE, check_target
from pm_evidence.api.sample import sample_evidence
from pm_evidence.core.checks import check_text, described
from pm_evidence.core.exceptions import ModelError, NumericalError, usual_floats, warn
from pm_evidence.core.random import Phase, resolve_seed, seed_of_run
from pm_evidence.core.records import LogEvidence, Status
from pm_evidence.execution.display import titled
from pm_evidence.families.native import checked_native, is_native
from pm_evidence.results.compare import ModelComparison, check_same_data, compare, prior_of
from pm_evidence.results.observed import fingerprint
from pm_evidence.results.record import rechecked
from pm_evidence.results.stored import estimate_of, evidence_of
from pm_evidence.targets.model.cache import checked_data, model_in

# Error of the first run of each model, in nats.
_COARSE = 0.2
# A model is hopeless if its posterior odds against the best model are below this, although its
# evidence may be underestimated by this number of combined errors. Such errors are estimates from
# few draws, and count as at least this many nats.
_ODDS, _ERRORS, _LEAST_ERROR = 1e-3, 5.0, 0.1
_OWN = ("target", "model", "target_mcse", "random_seed", "progressbar")


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
    _check_options(options)
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
        if self.failed and isinstance(prior_probs, Mapping):
            prior_probs = {name: prior_probs[name] for name in self.results}
        elif self.failed and prior_probs is not None:
            given = dict(zip(self.models, prior_probs, strict=True))
            prior_probs = [given[name] for name in self.results]
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


def _check_options(options: Mapping[str, Any]) -> None:
    """Raise TypeError if an option is no argument of `sample_evidence`."""
    known = [n for n in inspect.signature(sample_evidence).parameters if n not in _OWN]
    for name in options:
        if name not in known:
            raise TypeError(
                f"options must be arguments of sample_evidence, got {name!r}; the others are "
                f"{', '.join(known)}."
            )


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
