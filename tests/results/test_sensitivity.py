"""The table of other priors: what it shows, and what it keeps."""

import numpy as np
import pandas as pd

from pm_evidence.core.records import LogEvidence
from pm_evidence.results.table import AS_WRITTEN, Row, SensitivityTable, sensitivity_table

RARE = LogEvidence(-33.0, 0.02, "bridge", "heavy_tail", message="Rare draws.")
ROWS = [
    Row("tau", AS_WRITTEN, 1.0, LogEvidence(-31.0, 0.01, "bridge", dof=15.0), 0.0, 0.0),
    Row("tau", "wide", np.nan, RARE, -2.0, 0.015, 12.0, "reweighted", 0.8, 150.0),
]


def test_it_shows_the_main_columns_and_explains_statuses():
    table = sensitivity_table(ROWS)
    text = str(table)
    assert isinstance(table, SensitivityTable)
    assert "-33.000(20)" in text and "-2.000(15)" in text and "reweighted" in text
    assert "tau, wide: heavy_tail: Rare draws. See docs/statuses.md#heavy_tail." in text
    assert "mcse" not in text.splitlines()[0]


def test_it_keeps_numbers_for_further_use():
    table = pd.DataFrame(sensitivity_table(ROWS))
    row = table.loc[("tau", "wide")]
    assert (row["pareto_k"], row["ess"], row["log_bf_dof"]) == (0.8, 150.0, 12.0)
    assert row["bf"] == np.exp(-2.0)
    assert table.loc[("tau", AS_WRITTEN), "factor"] == 1.0
