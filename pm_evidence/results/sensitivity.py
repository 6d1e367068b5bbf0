"""Tables of evidences under other priors, and of the calibration of model probabilities."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from pm_evidence.core.exceptions import NumericalError
from pm_evidence.core.records import LogEvidence, Status, with_pointer
from pm_evidence.core.text import facts
from pm_evidence.estimators.calibration import (
    CalibrationTest,
    calibration_test,
    model_probabilities,
    wrong_models,
)
from pm_evidence.results.table import ShownTable

AS_WRITTEN = "as written"


@dataclass(frozen=True)
class Row:
    """The evidence under one prior of a variable."""

    variable: str  # the variable, and the name of its prior
    prior: str
    factor: float  # what its spread is multiplied by; NaN for another distribution
    evidence: LogEvidence  # log evidence in nats, with the status of the row
    # Log Bayes factor against the model as it is written, its error and the degrees of freedom of
    # the error
    log_bf: float
    log_bf_mcse: float
    log_bf_dof: float = float("inf")
    how: str = AS_WRITTEN  # ``"as written"``, ``"reweighted"`` or ``"new run"``
    pareto_k: float = float("nan")  # of the weights of the draws; NaN without weights
    ess: float = float("nan")


class SensitivityTable(ShownTable):
    """A DataFrame from ``pe.prior_sensitivity``, which shows only its main columns.

    These are log evidence, log Bayes factor against the model as it is written, how both were
    computed, and the status.
    """

    _main = ("log_evidence", "log_bf", "how", "status")
    _needed = frozenset(
        {"log_evidence", "log_bf", "how", "status", "warning", "mcse", "log_bf_mcse"}
    )


def sensitivity_table(rows: Sequence[Row]) -> SensitivityTable:
    """Return the table of some rows, in their order."""
    evidence = [row.evidence for row in rows]
    with np.errstate(over="ignore"):
        bf = np.exp([row.log_bf for row in rows])
    table = pd.DataFrame(
        {
            "factor": [row.factor for row in rows],
            "log_evidence": [each.value for each in evidence],
            "mcse": [each.mcse for each in evidence],
            "log_bf": [row.log_bf for row in rows],
            "log_bf_mcse": [row.log_bf_mcse for row in rows],
            "bf": bf,
            "how": [row.how for row in rows],
            "pareto_k": [row.pareto_k for row in rows],
            "ess": [row.ess for row in rows],
            "status": [str(each.status) for each in evidence],
            "warning": [_warning(each) for each in evidence],
            "dof": [each.dof for each in evidence],
            "log_bf_dof": [row.log_bf_dof for row in rows],
        },
        index=pd.MultiIndex.from_tuples(
            [(row.variable, row.prior) for row in rows], names=["variable", "prior"]
        ),
    )
    return SensitivityTable(table)


def _warning(evidence: LogEvidence) -> str:
    if evidence.status == Status.OK:
        return ""
    return f"{evidence.status}: {with_pointer(evidence.status, evidence.message)}"


# Level at which probabilities are called miscalibrated: the rate of false alarms.
_LEVEL = 0.01
# A shift is found with a probability of 80 % at a level of 5 % if it is so many errors large.
_ERRORS_TO_FIND = 1.96 + 0.84
# Share of runs with another status than ok from which on the message names them.
_MANY = 0.05


@dataclass(frozen=True, eq=False)
class Calibration:
    """Whether posterior model probabilities are right, on data sets whose model is known."""

    # ``log_evidence`` and ``mcse`` in nats, ``status`` and ``prob`` of each data set and model,
    # ``drawn_from``, the model that each data set came from, and ``prior_prob``
    runs: xr.Dataset
    test: CalibrationTest  # the test of all probabilities together, and the logarithmic score
    # For each model: ``n_drawn``, the number of data sets from it; ``prior_prob``; ``mean_prob``
    # and ``mean_prob_se``, its mean posterior probability, which is ``prior_prob`` on average;
    # ``detectable_shift``, how large an error of its log evidence, in nats, must be to be found by
    # these data sets with a probability of 80 %
    models: pd.DataFrame
    # For each pair of a right and a wrong model: ``n``, the number of data sets from the right one;
    # ``mean_bf`` in favour of the wrong model, which is 1 on average, with ``mcse``; ``unseen``,
    # the share of this mean that belongs to larger Bayes factors than any that occurred;
    # ``p_value``; ``status``, ``"heavy_tail"`` where few data sets carry the mean, so that it is no
    # evidence against the law
    bayes_factors: pd.DataFrame
    # ``"ok"``; ``"miscalibrated"`` if the p value is below 0.01; ``"failed"`` if runs failed;
    # ``"interrupted"``
    status: str
    message: str  # what the status means here

    @property
    def p_value(self) -> float:
        """Probability of so large a deviation if all probabilities are calibrated."""
        return self.test.p_value

    def __str__(self) -> str:
        return "\n".join(f"{name}: {text}" for name, text in self._facts() if text)

    def __repr__(self) -> str:
        return (
            f"Calibration(n={self.runs.sizes['data_set']}, p_value={self.p_value:.4f}, "
            f'status="{self.status}")'
        )

    def _repr_html_(self) -> str:
        return facts("Calibration", self._facts())

    def _facts(self) -> list[tuple[str, str]]:
        test, shift = self.test, self.models["detectable_shift"]
        found = ", ".join(f"{value:.2g} ({name})" for name, value in shift.items())
        return [
            ("data sets", str(self.runs.sizes["data_set"])),
            ("p value of calibration", f"{test.p_value:.4f}"),
            (
                "log score",
                f"{test.log_score:.3f}, expected {test.expected_log_score:.3f} "
                f"with a standard deviation of {test.log_score_sd:.3f}",
            ),
            ("errors of log evidence that would be found", f"{found} nats"),
            ("status", self.status),
            ("message", with_pointer(self.status, self.message)),
        ]


def calibration_of(
    runs: xr.Dataset, rng: np.random.Generator, *, interrupted: bool = False
) -> Calibration:
    """Return the calibration of some runs."""
    failed = runs["log_evidence"].isnull().any("model").values
    if failed.all():
        raise NumericalError("every data set had a run that failed; sample_evidence says why.")
    kept = runs.isel(data_set=np.flatnonzero(~failed))
    names = [str(name) for name in runs["model"].values]
    log_evidence = kept["log_evidence"].transpose("data_set", "model").values
    prior = runs["prior_prob"].values
    label = np.array([names.index(str(name)) for name in kept["drawn_from"].values], np.int64)
    probability = model_probabilities(log_evidence, prior)
    test = calibration_test(probability, label, rng)
    pairs = wrong_models(log_evidence, probability, label, rng)
    bayes_factors = pd.DataFrame(
        {
            "right": [names[pair.right] for pair in pairs],
            "wrong": [names[pair.wrong] for pair in pairs],
            "n": [pair.n for pair in pairs],
            "mean_bf": [pair.mean_bf for pair in pairs],
            "mcse": [pair.mcse for pair in pairs],
            "unseen": [pair.unseen for pair in pairs],
            "p_value": [pair.p_value for pair in pairs],
            "status": [str(Status.HEAVY_TAIL if pair.heavy else Status.OK) for pair in pairs],
        }
    ).set_index(["right", "wrong"])
    models = _models(names, prior, probability, label)
    status, message = _status(runs, test, int(failed.sum()), interrupted=interrupted)
    runs = kept.assign(prob=(("data_set", "model"), probability))
    return Calibration(runs, test, models, bayes_factors, str(status), message)


def _models(
    names: list[str],
    prior: NDArray[np.float64],
    probability: NDArray[np.float64],
    label: NDArray[np.int64],
) -> pd.DataFrame:
    n = len(label)
    information = (probability * (1.0 - probability)).sum(axis=0)
    with np.errstate(divide="ignore"):
        shift = _ERRORS_TO_FIND / np.sqrt(information)
    return pd.DataFrame(
        {
            "n_drawn": np.bincount(label, minlength=len(names)),
            "prior_prob": prior,
            "mean_prob": probability.mean(axis=0),
            "mean_prob_se": probability.std(axis=0, ddof=1) / np.sqrt(n),
            "detectable_shift": shift,
        },
        index=pd.Index(names, name="model"),
    )


def _status(
    runs: xr.Dataset, test: CalibrationTest, n_failed: int, *, interrupted: bool
) -> tuple[Status, str]:
    n, parts, status = runs.sizes["data_set"], [], Status.OK
    if interrupted:
        status = Status.INTERRUPTED
        parts.append(f"Ctrl-C ended the runs after {n} data sets.")
    if n_failed:
        status = Status.FAILED
        parts.append(f"{n_failed} of {n} data sets are left out, because a run failed.")
    if test.p_value < _LEVEL:
        status = Status.MISCALIBRATED
        parts.insert(0, f"The probabilities are not those of the models (p = {test.p_value:.2g}).")
    doubtful = runs["status"].values != str(Status.OK)
    share = float(doubtful.mean())
    if share > _MANY:
        kinds, counts = np.unique(runs["status"].values[doubtful], return_counts=True)
        found = ", ".join(f"{kind} {count}" for kind, count in zip(kinds, counts, strict=True))
        parts.append(f"{share:.0%} of the runs are not ok ({found}).")
    return status, " ".join(parts)
