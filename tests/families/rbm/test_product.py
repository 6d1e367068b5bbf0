"""Products by tables are those of a matrix product."""

import numpy as np
import pytest

from pm_evidence.core.codegen.singles import aligned
from pm_evidence.families.rbm.product import COLUMNS, ENTRIES, TABLES, multiply
from pm_evidence.families.rbm.state import pack


@pytest.mark.parametrize(("n", "rows", "columns"), [(1, 64, 64), (5, 192, 128), (40, 832, 512)])
def test_sums_of_rows(n, rows, columns):
    """Every row of every table is used, so one wrong sum would show; 1e-5 is single precision."""
    rng = np.random.default_rng(1)
    weights = rng.normal(size=(rows, columns)).astype(np.float32)
    bias = rng.normal(size=columns).astype(np.float32)
    states = rng.integers(2, size=(n, rows))
    out = aligned((n, columns))
    multiply(pack(states), weights, bias, aligned((TABLES, ENTRIES, COLUMNS)), out)
    exact = bias + states @ weights.astype(float)
    np.testing.assert_allclose(out, exact, atol=2e-5)


def test_every_entry_of_every_table():
    """All sixteen patterns of all four rows, with whole numbers, which have no rounding."""
    rows = 64
    weights = (2.0 ** (np.arange(rows) % 20))[:, None] * np.ones((1, 64))
    patterns = (np.arange(16)[:, None] >> np.arange(4)) & 1
    states = np.zeros((16 * 16, rows), np.uint8)
    for table in range(16):
        states[16 * table : 16 * table + 16, 4 * table : 4 * table + 4] = patterns
    out = aligned((len(states), 64))
    zeros = np.zeros(64, np.float32)
    tables = aligned((TABLES, ENTRIES, COLUMNS))
    multiply(pack(states), weights.astype(np.float32), zeros, tables, out)
    np.testing.assert_array_equal(out, states @ weights)
