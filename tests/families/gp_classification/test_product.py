"""Products of matrices with the values of many members."""

import numpy as np
import pytest

from pm_evidence.families.gp_classification.product import BLOCK, add, multiply, width_of


@pytest.mark.parametrize("k", [1, 7, 8, 21])
@pytest.mark.parametrize("width", [8, 24, 64])
def test_products_agree_with_numpy(k, width):
    """All remainders of eight rows."""
    rng = np.random.default_rng(k)
    matrix, values = rng.standard_normal((40, k)), rng.standard_normal((k, width))
    out = np.full((BLOCK, width), np.nan)
    multiply(matrix, values, 5, 30, out)
    np.testing.assert_allclose(out[:25], (matrix @ values)[5:30], atol=1e-13)
    add(out[0], 2.0, values[0])
    np.testing.assert_allclose(out[0], (matrix @ values)[5] + 2.0 * values[0], atol=1e-13)


def test_width_is_in_whole_vectors():
    assert [width_of(n) for n in (1, 8, 9, 64, 100, 1000)] == [8, 8, 16, 64, 56, 64]
