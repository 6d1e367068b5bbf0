"""Models side by side: Bayes factors and posterior model probabilities with their errors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from pm_evidence.core.checks import check_flag, described, float_array
from pm_evidence.core.exceptions import usual_floats
from pm_evidence.core.records import LogEvidence
from pm_evidence.core.statuses import with_pointer
from pm_evidence.estimators.intervals import half_width
from pm_evidence.estimators.standard_errors import Spread, combined
from pm_evidence.results import schema
from pm_evidence.results.elpd import with_elpd
from pm_evidence.results.stored import estimate_of, evidence_of
from pm_evidence.results.table import EvidenceTable

__all__ = ["Entry", "Source", "check_same_data", "compare", "entry_of", "prior_of"]

Floats = NDArray[np.float64]
Source = xr.DataTree | LogEvidence


@dataclass(frozen=True, slots=True)
class Entry:
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
    if not isinstance(models, Mapping) or isinstance(models, xr.DataTree | xr.Dataset):
        raise TypeError(
            f"models must be a mapping of names to results, got {described(models)}; pass for "
            'example {"pooled": dt1, "hierarchical": dt2}.'
        )
    if not models:
        raise ValueError("models must name at least one model, got none; pass a mapping.")
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
    return table


def entry_of(parameter: str, model: Source) -> Entry:
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
    return Entry(evidence, fingerprint, " ".join(doubts))


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


def _table(entries: Mapping[str, Entry], prior: Floats) -> pd.DataFrame:
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


def _reach(table: pd.DataFrame, entries: Mapping[str, Entry]) -> Floats:
    """Return half the length of the 95 % interval of each difference to the best model."""
    spreads = [Spread(e.mcse, e.dof) for e in (entries[name].evidence for name in table.index)]
    return np.array([half_width(combined(spreads[0], spread)) for spread in spreads])


def _warn_of_ties(table: pd.DataFrame, reach: Floats) -> pd.DataFrame:
    """Add a warning to the best model and to those that the runs cannot distinguish from it."""
    log_bf = table["log_bf"].to_numpy()[1:]
    best = table.index[0]
    unsure = np.flatnonzero(np.isfinite(log_bf) & np.isnan(reach[1:])) + 1
    tied = np.flatnonzero(-log_bf < reach[1:]) + 1
    texts = list(table["warning"])
    for rows, reason, remedy in (
        (tied, "has a 95 % interval that includes zero", "use more draws or islands."),
        (unsure, "has no known error", "look at the status of both runs, and use more draws."),
    ):
        if not rows.size:
            continue
        others = ", ".join(repr(table.index[row]) for row in rows)
        for row in (0, *rows):
            rival = others if row == 0 else repr(best)
            text = f"Ranking against {rival} not resolved by this run: the difference {reason}; "
            texts[row] = f"{texts[row]} {text}{remedy}".strip()
    return table.assign(warning=texts)
