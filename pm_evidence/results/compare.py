"""Models side by side: Bayes factors and posterior model probabilities with their errors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from pm_evidence.core.checks import check_flag, described, float_array
from pm_evidence.core.exceptions import usual_floats
from pm_evidence.core.records import LogEvidence, RunRecord, with_pointer
from pm_evidence.core.text import concise, facts
from pm_evidence.estimators.errors import Spread, combined, difference, half_width
from pm_evidence.results import schema
from pm_evidence.results.elpd import with_elpd
from pm_evidence.results.stored import estimate_of, evidence_of
from pm_evidence.results.table import EvidenceTable

Floats = NDArray[np.float64]


Source = xr.DataTree | LogEvidence

# Attribute of a table: what `report` says of the prior probabilities and of the runs, which are
# these attributes of results.
SETTINGS = "settings"
_REPORTED = ("random_seed", "potentials", "pm_evidence_version", "pymc_version")


@dataclass(frozen=True, slots=True)
class ComparedModel:
    """One model: its evidence, and the fingerprint of its data (empty when not known)."""

    evidence: LogEvidence
    fingerprint: str
    doubt: str


@usual_floats()
def compare(
    models: Mapping[str, Source],
    prior_probs: Mapping[str, float] | Sequence[float] | None = None,
    *,
    loo: bool = False,
) -> EvidenceTable:
    """Return a table of models with their evidence, best first.

    Parameters
    ----------
    models : mapping of str to DataTree or LogEvidence
        What ``sample_evidence`` or `attach_evidence` returned for each model, or bare evidences
        (whose data then cannot be checked).
    prior_probs : mapping of str to float, or sequence of float, optional
        Prior probability of each model, by name or in the order of ``models``; equal by default.
        They must be positive, and are divided by their sum.
    loo : bool
        Whether to add leave-one-out cross-validation by ``arviz.loo`` and ``arviz.compare``, and an
        explanation of why it differs from the evidence. The results need the group
        ``log_likelihood``, from ``idata_kwargs={"log_likelihood": True}``.

    Returns
    -------
    EvidenceTable
        A DataFrame. Index: name of the model. ``rank`` counts from 1; ``log_evidence`` and
        ``mcse`` in nats; ``log_bf`` (at most 0) and ``bf`` against the best model,
        ``log_bf_mcse`` in nats; ``prob`` and ``prob_mcse`` are posterior model
        probabilities; then ``estimator``, ``status`` and ``warning``, which is empty if there
        is nothing to warn of. The table shows a few of these columns, with the digits that the
        errors justify; ``pandas.DataFrame(table)`` shows all. With ``loo``, also ``elpd_loo`` and
        its standard error ``elpd_se``, ``p_loo``, ``elpd_diff`` (at most 0) to the model of the
        largest ``elpd_loo`` with ``elpd_diff_se``, ``loo_weight`` (by stacking), and
        ``learning_cost``, which is ``elpd_loo`` less ``log_evidence``, in nats.

    Raises
    ------
    TypeError
        If ``models`` is not a mapping, or holds anything but DataTree and LogEvidence (which have
        no LOO).
    ValueError
        If there is no model, the observed data differ, a model has no evidence or an incomplete
        one, the prior probabilities do not fit the models, or a result has no pointwise log
        likelihood for LOO.

    Notes
    -----
    Runs are assumed to be independent. A ranking counts as resolved if the 95 % interval of the
    difference excludes zero. This is a Student's t interval with the degrees of freedom of Welch
    and Satterthwaite; those of each model are in ``table.attrs["dof"]``. The errors of two
    evidences are added in quadrature. The error of a probability follows by the delta method, so it
    is reliable only if ``mcse`` is small compared with one nat. Models are ranked by evidence, not
    by probability; the two orders can differ if prior probabilities are not equal. A model whose
    evidence is not known (NaN, or plus infinity) comes last, and makes the probability of every
    model undefined; leave it out to compare the others.

    Errors of LOO are those of a sum over observations that could have been others; ``mcse`` is the
    error of a computation for these observations.

    Examples
    --------
    >>> from pm_evidence.core.records import LogEvidence
    >>> table = compare(
    ...     {
    ...         "flat": LogEvidence(-33.1, 0.02, "bar"),
    ...         "slope": LogEvidence(-30.8, 0.02, "bar"),
    ...     }
    ... )
    >>> table["log_bf"].round(2).to_dict()
    {'slope': 0.0, 'flat': -2.3}
    """
    check_models(models)
    check_flag("loo", loo)
    entries = {name: entry_of(f"models[{name!r}]", model) for name, model in models.items()}
    check_same_data({name: entry.fingerprint for name, entry in entries.items()})
    prior = prior_of(list(entries), prior_probs)
    table = _table(entries, prior).sort_values(
        "log_evidence", ascending=False, kind="stable", na_position="last"
    )
    table.insert(0, "rank", np.arange(1, len(table) + 1))
    table = _warn_of_ties(table, _reach(table, entries))
    plain = with_elpd(table, models) if loo else table
    table = EvidenceTable(plain)
    table.attrs |= plain.attrs
    table.attrs["dof"] = {name: entry.evidence.dof for name, entry in entries.items()}
    table.attrs[SETTINGS] = {
        "prior_probs": dict(zip(entries, prior.tolist(), strict=True)),
        "runs": {name: _settings(model) for name, model in models.items()},
    }
    return table


def check_models(models: Any) -> None:
    """Raise TypeError or ValueError unless models are named, and there is at least one."""
    if not isinstance(models, Mapping) or isinstance(models, xr.DataTree | xr.Dataset):
        raise TypeError(
            f"models must be a mapping of names to results, got {described(models)}; pass for "
            'example {"pooled": dt1, "hierarchical": dt2}.'
        )
    if not models:
        raise ValueError("models must name at least one model, got none; pass a mapping.")


def _settings(model: Source) -> dict[str, Any]:
    """Return how an evidence was computed; empty if it is a bare number."""
    if isinstance(model, LogEvidence):
        return {}
    attrs = model[schema.LOG_EVIDENCE].attrs
    return {name: attrs[name] for name in _REPORTED if name in attrs}


def entry_of(parameter: str, model: Source) -> ComparedModel:
    """Return the evidence of a model, which ``parameter`` names, and what is to be said of it."""
    if isinstance(model, LogEvidence):
        evidence, fingerprint = model, ""
        doubt = "Its data are not known: make sure that all models have the same data."
    else:
        group = evidence_of(model, parameter)
        evidence = estimate_of(model, parameter)
        fingerprint = str(group.attrs.get(schema.FINGERPRINT, ""))
        doubt = "It has no observed data to check: make sure that all models have the same data."
    doubts = [] if fingerprint else [doubt]
    if evidence.status != "ok":
        doubts.insert(0, f"{evidence.status}: {with_pointer(evidence.status, evidence.message)}")
    if not evidence.value < np.inf:
        doubts.append("Its log evidence is not known: run it again, or leave it out.")
    return ComparedModel(evidence, fingerprint, " ".join(doubts))


def check_same_data(fingerprints: Mapping[str, str]) -> None:
    """Raise ValueError if the data of models differ, by the fingerprints that are known of them."""
    groups: dict[str, list[str]] = {}
    for name, fingerprint in fingerprints.items():
        if fingerprint:
            groups.setdefault(fingerprint, []).append(repr(name))
    if len(groups) > 1:
        parts = " from ".join("{" + ", ".join(names) + "}" for names in groups.values())
        raise ValueError(
            f"models must have the same observed data, but these differ: {parts}; give every "
            "model the same observations (same values, shapes and units, no rows dropped, no "
            "transformation of the data in one of them) and sample its evidence again. For a "
            "distribution that counts from 1, such as pm.Geometric, shift the distribution instead "
            "of the data: pm.CustomDist('y', p, dist=lambda p, size: pm.Geometric.dist(p, "
            "size=size) - 1, observed=y)."
        )


def prior_of(names: list[str], prior_probs: Mapping[str, float] | Sequence[float] | None) -> Floats:
    """Return the prior probabilities in the order of ``names``, normalised."""
    if prior_probs is None:
        return np.full(len(names), 1.0 / len(names))
    if isinstance(prior_probs, Mapping):
        missing = [name for name in names if name not in prior_probs]
        unknown = [name for name in prior_probs if name not in names]
        if missing or unknown:
            raise ValueError(
                "prior_probs must name every model and no other; "
                f"missing: {missing}, unknown: {unknown}; the models are {names}."
            )
        prior_probs = [prior_probs[name] for name in names]
    weights = float_array("prior_probs", prior_probs)
    if weights.shape != (len(names),):
        raise ValueError(
            f"prior_probs must have one entry per model, {len(names)}, got shape "
            f"{weights.shape}; the models are {names}."
        )
    bad = ~(np.isfinite(weights) & (weights > 0))
    if bad.any():
        first = int(np.argmax(bad))
        raise ValueError(
            f"prior_probs must be positive and finite, got {weights[first]} for {names[first]!r}; "
            "leave a model out of the table to give it no probability."
        )
    return weights / weights.sum()


def _table(entries: Mapping[str, ComparedModel], prior: Floats) -> pd.DataFrame:
    """Return the table in the order of ``entries``, without ranks."""
    evidence = [entry.evidence for entry in entries.values()]
    value = np.array([item.value for item in evidence], np.float64)
    mcse = np.array([item.mcse for item in evidence], np.float64)
    value[value == np.inf] = np.nan  # the evidence is not known either
    best = int(np.argmax(np.where(np.isnan(value), -np.inf, value)))
    with np.errstate(invalid="ignore"):  # minus infinity against minus infinity is NaN
        log_bf = value - value[best]
    log_bf_mcse = np.hypot(mcse, mcse[best])
    log_bf_mcse[best] = 0.0
    prob, prob_mcse = _probabilities(value, mcse, prior)
    return pd.DataFrame(
        {
            "log_evidence": value,
            "mcse": mcse,
            "log_bf": log_bf,
            "log_bf_mcse": log_bf_mcse,
            "bf": np.exp(log_bf),
            "prob": prob,
            "prob_mcse": prob_mcse,
            "estimator": [item.estimator for item in evidence],
            "status": [item.status for item in evidence],
            "warning": [entry.doubt for entry in entries.values()],
        },
        index=pd.Index(list(entries), name="model"),
    )


def _probabilities(value: Floats, mcse: Floats, prior: Floats) -> tuple[Floats, Floats]:
    """Return posterior model probabilities and their errors by the delta method."""
    log_weight = value + np.log(prior)
    top = log_weight.max()
    if not np.isfinite(top):  # an evidence is not known, or none is positive
        return np.full(value.size, np.nan), np.full(value.size, np.nan)
    prob = np.exp(log_weight - top)
    prob /= prob.sum()
    # d p_i / d log Z_j = p_i (delta_ij - p_j); 1 - p_i is summed from the others, which does not
    # cancel when p_i is close to 1.
    jacobian = -np.outer(prob, prob)
    np.fill_diagonal(jacobian, 0.0)
    np.fill_diagonal(jacobian, -jacobian.sum(axis=1))
    # A model of probability zero contributes no error, however uncertain its evidence is.
    with np.errstate(invalid="ignore"):
        terms = np.where(jacobian == 0.0, 0.0, jacobian * mcse)
    return prob, np.sqrt((terms**2).sum(axis=1))


def _reach(table: pd.DataFrame, entries: Mapping[str, ComparedModel]) -> Floats:
    """Return half the length of the 95 % interval of each difference to the best model."""
    spreads = [Spread(e.mcse, e.dof) for e in (entries[name].evidence for name in table.index)]
    return np.array([half_width(combined(spreads[0], spread)) for spread in spreads])


# Nats by which two evidences may differ, with the 95 % interval, to be called equal: a Bayes factor
# of 1.1.
_EQUAL = 0.1


def _warn_of_ties(table: pd.DataFrame, reach: Floats) -> pd.DataFrame:
    """Add a warning to the best model and to those that the runs cannot distinguish from it."""
    log_bf = table["log_bf"].to_numpy()[1:]
    best = table.index[0]
    unsure = np.isfinite(log_bf) & np.isnan(reach[1:])
    tied = -log_bf < reach[1:]
    equal = tied & (reach[1:] - log_bf < _EQUAL)
    unresolved = "Ranking against {} not resolved by this run: the difference"
    texts = list(table["warning"])
    for which, text in (
        (equal, f"The data support {{}} as well: the evidences differ by less than {_EQUAL} nats."),
        (
            tied & ~equal,
            f"{unresolved} has a 95 % interval that includes zero; use more draws or islands.",
        ),
        (
            unsure,
            f"{unresolved} has no known error; look at the status of both runs, and use more "
            "draws.",
        ),
    ):
        rows = np.flatnonzero(which) + 1
        others = ", ".join(repr(table.index[row]) for row in rows)
        for row in (0, *rows) if rows.size else ():
            rival = others if row == 0 else repr(best)
            texts[row] = f"{texts[row]} {text.format(rival)}".strip()
    return table.assign(warning=texts)


@dataclass(frozen=True, slots=True, eq=False)
class ModelComparison:
    """A table of models, and the run of each."""

    table: EvidenceTable  # the models with their evidence, best first; see ``pe.compare``
    # The result for each model, as ``sample_evidence`` returned it, or as it was given
    results: Mapping[str, xr.DataTree]
    # The coarse results of those models that were run a second time, with more effort
    first_runs: Mapping[str, xr.DataTree] = field(default_factory=dict)
    # Models that could not be run, which are not in the table, and why
    failed: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return "\n".join([repr(self.table), *(f"{each}." for each in self._remarks())])

    def _repr_html_(self) -> str:
        remarks = "".join(f"<li>{escape(each)}</li>" for each in self._remarks())
        table = self.table._repr_html_() or ""
        return f"{table}<ul>{remarks}</ul>" if remarks else table

    def _remarks(self) -> list[str]:
        """Return what the table does not show."""
        found = [f"{name} is left out: {why}" for name, why in self.failed.items()]
        coarse = [name for name in self.results if name not in self.first_runs]
        if self.first_runs and coarse:
            names = ", ".join(coarse)
            found.append(f"Run once only, as the comparison needs no smaller error: {names}")
        return found


# Kass & Raftery (1995), section 3.2: upper ends on the scale of 2 ln B. "weak" is what they
# call "not worth more than a bare mention".
_WORDS = ((2.0, "weak"), (6.0, "positive"), (10.0, "strong"))
_MODELS = "for the first model", "for the second model"


@dataclass(frozen=True, slots=True)
class BayesFactor:
    """The Bayes factor of a first model against a second, or of a hypothesis against its model.

    Parameters
    ----------
    log_bf : float
        Natural logarithm of the Bayes factor in nats; positive in favour of the first model, or of
        the hypothesis.
    mcse : float
        Monte Carlo standard error of ``log_bf`` in nats, for independent runs.
    bf : float
        The Bayes factor itself; infinite or zero if a float cannot hold it.
    lower, upper : float
        95 % interval of ``log_bf`` in nats, of Student's t; NaN without ``mcse``.
    words : str
        Strength of the evidence in the categories of Kass and Raftery (1995), on the scale of
        ``2 log_bf``, and the model that it favours: weak (their "not worth more than a bare
        mention") below 2, positive below 6, strong below 10, very strong from 10 on. A Bayes factor
        within 0.1 nats of 1 is no evidence.
    warning : str
        Why the Bayes factor should not be relied on, and what to do; empty if there is no reason.
    status : str
        ``"ok"``, or the name of the problem; of two results, that of the first which is not ok.
    estimator : str
        ``"two_evidences"``; ``"bar"`` for Bennett's ratio of the work between two models;
        ``"savage_dickey"`` for the ratio of posterior and prior density at a point; ``"draws"`` for
        that of posterior and prior probability of a constraint.
    n_evaluations : int
        Density (or gradient) evaluations, posterior draws included; 0 if results were compared.
    record : RunRecord, optional
        The work of the paths between two models, from which ``pe.estimate`` computes all estimates
        again; None if results were compared.
    complement : BayesFactor, optional
        The Bayes factor of a constraint against its complement; None for other hypotheses.
    prior_prob, posterior_prob : float
        Probability of a constraint under the prior and the posterior; NaN for other hypotheses.
    """

    log_bf: float
    mcse: float
    bf: float
    lower: float
    upper: float
    words: str
    warning: str = ""
    status: str = "ok"
    estimator: str = "two_evidences"
    n_evaluations: int = 0
    record: RunRecord | None = field(default=None, repr=False, compare=False)
    complement: "BayesFactor | None" = None
    prior_prob: float = float("nan")
    posterior_prob: float = float("nan")

    @classmethod
    def of(
        cls, found: LogEvidence, sides: tuple[str, str] = _MODELS, **facts: Any
    ) -> "BayesFactor":
        """Return the Bayes factor whose log an estimate is, with further fields by name.

        ``sides`` are the words for what it favours if it is above 1, and below.
        """
        log_bf = found.value
        with np.errstate(over="ignore"):
            bf = float(np.exp(log_bf))
        named = {"status": found.status, "estimator": found.estimator, **facts}
        ends = found.lower, found.upper
        return cls(log_bf, found.mcse, bf, *ends, _in_words(log_bf, sides), **named)

    def __repr__(self) -> str:
        warning = f', status="{self.status}"' if self.status != "ok" else ""
        warning += f", warning={self.warning!r}" if self.warning else ""
        if self.complement is not None:
            shares = f"prior_prob={self.prior_prob:.3g}, posterior_prob={self.posterior_prob:.3g}"
            warning += f", {shares}, complement={self.complement!r}"
        return (
            f"BayesFactor(bf={self.bf:.3g}, log_bf={self.log_bf:.3f}, mcse={self.mcse:.3f}, "
            f'lower={self.lower:.3f}, upper={self.upper:.3f}, words="{self.words}"{warning})'
        )

    def __str__(self) -> str:
        text = f"{self.words}: log Bayes factor {concise(self.log_bf, self.mcse)}"
        return text if self.status == "ok" else f"{text} [{self.status}]"

    def _repr_html_(self) -> str:
        known = np.isfinite([self.lower, self.upper]).all()
        rows = [
            ("log Bayes factor", f"{concise(self.log_bf, self.mcse)} nats"),
            ("95 % interval", f"{self.lower:.3g} to {self.upper:.3g} nats" if known else ""),
            ("Bayes factor", f"{self.bf:.3g}"),
            ("in words", self.words),
            ("against the complement", "" if self.complement is None else str(self.complement)),
            ("status", self.status if self.status != "ok" else ""),
            ("warning", self.warning),
        ]
        return facts("BayesFactor", rows)


def factor_of_results(dt1: Source, dt2: Source) -> BayesFactor:
    """Return the Bayes factor of the first model against the second.

    Parameters
    ----------
    dt1, dt2 : DataTree or LogEvidence
        What ``sample_evidence`` or `attach_evidence` returned for each model.

    Returns
    -------
    BayesFactor
        The Bayes factor with its error, and in words.

    Raises
    ------
    TypeError
        If one is neither a DataTree nor a LogEvidence.
    ValueError
        If the observed data differ or one has no evidence.

    Notes
    -----
    The words are the category of Kass and Raftery (1995, section 3.2) that the estimate lies in.
    If the interval extends into other categories, the category is uncertain.

    Examples
    --------
    >>> from pm_evidence.core.records import LogEvidence
    >>> factor_of_results(LogEvidence(-30.8, 0.02, "bar"), LogEvidence(-33.1, 0.02, "bar")).words
    'positive evidence for the first model'
    """
    entries = {"dt1": entry_of("dt1", dt1), "dt2": entry_of("dt2", dt2)}
    check_same_data({name: entry.fingerprint for name, entry in entries.items()})
    first, second = (entry.evidence for entry in entries.values())
    doubts = [f"{name}: {entry.doubt}" for name, entry in entries.items() if entry.doubt]
    return BayesFactor.of(_log_ratio(first, second), warning=" ".join(doubts))


def _log_ratio(first: LogEvidence, second: LogEvidence) -> LogEvidence:
    """Return the difference of two log evidences; NaN if one of them is not known."""
    if not (first.value < np.inf and second.value < np.inf):
        first = replace(first, value=np.nan)
    return replace(difference(first, second), estimator="two_evidences")


def _in_words(log_bf: float, sides: tuple[str, str]) -> str:
    if np.isnan(log_bf):
        if sides != _MODELS:
            return "the Bayes factor is not known"
        return "the Bayes factor is not known, because the evidence of a model is not known"
    if abs(log_bf) < _EQUAL:
        return "no evidence for either model" if sides == _MODELS else "no evidence either way"
    return f"{strength_of(log_bf)} evidence {sides[log_bf < 0]}"


def strength_of(log_bf: float) -> str:
    """Return the category of Kass and Raftery (1995) of a log Bayes factor in nats."""
    return next((text for end, text in _WORDS if 2.0 * abs(log_bf) < end), "very strong")
