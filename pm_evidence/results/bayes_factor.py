"""The Bayes factor of two models, with its error and in words."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pm_evidence.core.concise import concise
from pm_evidence.core.html import facts
from pm_evidence.core.records import LogEvidence, RunRecord
from pm_evidence.estimators.intervals import interval
from pm_evidence.estimators.standard_errors import Spread, combined
from pm_evidence.results.compare import Source, check_same_data, entry_of

__all__ = ["BayesFactor", "factor_of_results"]

# Kass & Raftery (1995), section 3.2: upper ends on the scale of 2 ln B. "weak" is what they
# call "not worth more than a bare mention".
_WORDS = ((2.0, "weak"), (6.0, "positive"), (10.0, "strong"))


@dataclass(frozen=True, slots=True)
class BayesFactor:
    """The Bayes factor of a first model against a second.

    Parameters
    ----------
    log_bf : float
        Natural logarithm of the Bayes factor in nats; positive in favour of the first model.
    mcse : float
        Monte Carlo standard error of ``log_bf`` in nats, for independent runs.
    bf : float
        The Bayes factor itself; infinite or zero if a float cannot hold it.
    lower, upper : float
        95 % interval of ``log_bf`` in nats, of Student's t; NaN without ``mcse``.
    words : str
        Strength of the evidence in the categories of Kass and Raftery (1995), on the scale of
        ``2 log_bf``, and the model that it favours: weak (their "not worth more than a bare
        mention") below 2, positive below 6, strong below 10, very strong from 10 on.
    warning : str
        Why the Bayes factor should not be relied on, and what to do; empty if there is no reason.
    status : str
        ``"ok"``, or the name of the problem; of two results, that of the first which is not ok.
    estimator : str
        ``"two_evidences"``, or ``"bar"`` for Bennett's ratio of the work between two models.
    n_evaluations : int
        Density (or gradient) evaluations, posterior draws included; 0 if results were compared.
    record : RunRecord, optional
        The work of the paths between two models, from which ``pe.estimate`` computes all estimates
        again; None if results were compared.
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

    @classmethod
    def of(cls, found: LogEvidence, **facts: Any) -> "BayesFactor":
        """Return the Bayes factor whose log an estimate is, with further fields by name."""
        log_bf = found.value
        with np.errstate(over="ignore"):
            bf = float(np.exp(log_bf))
        interval = found.lower, found.upper
        words = _in_words(log_bf)
        return cls(
            log_bf,
            found.mcse,
            bf,
            *interval,
            words,
            status=found.status,
            estimator=found.estimator,
            **facts,
        )

    def __repr__(self) -> str:
        warning = f', status="{self.status}"' if self.status != "ok" else ""
        warning += f", warning={self.warning!r}" if self.warning else ""
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
    found = combined(*(Spread(each.mcse, each.dof) for each in (first, second)))
    known = first.value < np.inf and second.value < np.inf
    with np.errstate(invalid="ignore"):
        value = float(np.float64(first.value) - second.value) if known else float("nan")
    status = first.status if first.status != "ok" else second.status
    return LogEvidence(value, found.mcse, "two_evidences", status, *interval(value, found))


def _in_words(log_bf: float) -> str:
    if np.isnan(log_bf):
        return "the Bayes factor is not known, because the evidence of a model is not known"
    if log_bf == 0:
        return "no evidence for either model"
    scale = 2.0 * abs(log_bf)
    word = next((text for end, text in _WORDS if scale < end), "very strong")
    favoured = "first" if log_bf > 0 else "second"
    return f"{word} evidence for the {favoured} model"
