"""The table of evidences under other priors."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pm_evidence.core.records import LogEvidence
from pm_evidence.core.statuses import Status, with_pointer
from pm_evidence.results.table import ShownTable

__all__ = ["AS_WRITTEN", "Row", "SensitivityTable", "sensitivity_table"]

AS_WRITTEN = "as written"


@dataclass(frozen=True)
class Row:
    """The evidence under one prior of a variable.

    Parameters
    ----------
    variable, prior : str
        The variable, and the name of its prior.
    factor : float
        What its spread is multiplied by; NaN for another distribution.
    evidence : LogEvidence
        Log evidence in nats, with the status of the row.
    log_bf, log_bf_mcse, log_bf_dof : float
        Log Bayes factor against the model as it is written, its error and the degrees of freedom of
        the error.
    how : str
        ``"as written"``, ``"reweighted"`` or ``"new run"``.
    pareto_k, ess : float
        Of the weights of the draws; NaN without weights.
    """

    variable: str
    prior: str
    factor: float
    evidence: LogEvidence
    log_bf: float
    log_bf_mcse: float
    log_bf_dof: float = float("inf")
    how: str = AS_WRITTEN
    pareto_k: float = float("nan")
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
