"""Sparse lower triangular matrices, against dense ones."""

import numpy as np
import pytest

from pm_evidence.core import numerics as triangular
from pm_evidence.core.numerics import Pattern


def banded(m):
    """A positive definite matrix with two bands, whose factor has no further elements."""
    rng = np.random.default_rng(m)
    matrix = np.diag(rng.uniform(3.0, 4.0, m))
    for apart in (1, 2):
        values = rng.uniform(-1.0, 1.0, m - apart)
        matrix += np.diag(values, apart) + np.diag(values, -apart)
    return matrix


def parts(matrix):
    pattern = Pattern.of(matrix != 0.0)
    return pattern, np.diag(matrix).copy(), matrix[pattern.row, pattern.column]


def dense(pattern, diagonal, below):
    matrix = np.diag(diagonal)
    matrix[pattern.row, pattern.column] = below
    return matrix


def test_a_pattern_holds_what_is_below_the_diagonal_by_columns():
    pattern = Pattern.of(np.array([[1, 1, 1], [0, 0, 1], [1, 1, 1]], bool))
    assert list(pattern.start) == [0, 1, 2, 2]
    assert list(pattern.row) == [2, 2] and list(pattern.column) == [0, 1]
    assert Pattern.full(4).row.size == 6 and Pattern.full(1).row.size == 0


@pytest.fixture(params=["whole", "used elements"])
def stored(request, monkeypatch):
    """Whether small matrices are left to LAPACK, or to the compiled loops of larger ones."""
    if request.param == "used elements":
        monkeypatch.setattr(triangular, "_SMALL", 0)


@pytest.mark.parametrize("m", [3, 7, 40])
@pytest.mark.usefixtures("stored")
def test_the_factor_is_that_of_cholesky(m):
    matrix = banded(m)
    pattern, diagonal, below = parts(matrix)
    assert triangular.factorise(pattern, diagonal, below)
    found = dense(pattern, diagonal, below)
    np.testing.assert_allclose(found, np.linalg.cholesky(matrix), atol=1e-14)


@pytest.mark.parametrize("value", [-1.0, 0.0, np.nan])
@pytest.mark.usefixtures("stored")
def test_a_matrix_that_is_not_positive_definite_has_none(value):
    matrix = banded(7)
    matrix[4, 4] = value
    pattern, diagonal, below = parts(matrix)
    assert not triangular.factorise(pattern, diagonal, below)


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (triangular.multiply, lambda a, x: a @ x),
        (triangular.multiply_by_transposed, lambda a, x: a.T @ x),
    ],
)
def test_products(kernel, expected):
    lower = np.tril(banded(9))
    pattern, diagonal, below = parts(lower)
    x = np.random.default_rng(1).normal(size=9)
    found = x.copy()
    kernel(pattern.start, pattern.row, diagonal, below, found)
    np.testing.assert_allclose(found, expected(lower, x), atol=1e-13)


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (triangular.multiply_rows_by_transposed, lambda a, x: a.T @ x),
        (triangular.solve_rows, np.linalg.solve),
        (triangular.solve_rows_transposed, lambda a, x: np.linalg.solve(a.T, x)),
    ],
)
@pytest.mark.usefixtures("stored")
def test_products_and_inverses_of_rows(kernel, expected):
    lower = np.tril(banded(9))
    pattern, diagonal, below = parts(lower)
    x = np.random.default_rng(1).normal(size=(3, 9))
    found = x.copy()
    kernel(pattern, diagonal, below, found)
    np.testing.assert_allclose(found, expected(lower, x.T).T, atol=1e-13)
