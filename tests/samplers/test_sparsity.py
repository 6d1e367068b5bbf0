"""Matrices most of whose elements are zero are measured by few products, without any error."""

import numpy as np
import pytest

from pm_evidence.core import numerics as triangular
from pm_evidence.samplers.conditional import Sparsity

RNG = np.random.default_rng(1)


def arrow(m, k):
    """Effects that share k other variables."""
    matrix = np.diag(RNG.uniform(1.0, 2.0, m))
    shared = RNG.normal(size=(k, m - k))
    matrix[-k:, :-k], matrix[:-k, -k:] = shared, shared.T
    matrix[-k:, -k:] = m * k * np.eye(k) + 1.0
    return matrix


def walk(m):
    return np.diag(np.full(m, 2.1)) - np.eye(m, k=1) - np.eye(m, k=-1)


def crossed(p, q, share):
    """Effects of two classifications, some pairs of which are observed together."""
    matrix = (p + q) * np.eye(p + q)
    pairs = (RNG.random((p, q)) < share) * RNG.normal(size=(p, q))
    matrix[:p, p:], matrix[p:, :p] = pairs, pairs.T
    return matrix


def lattice(n):
    return np.kron(walk(n), np.eye(n)) + np.kron(np.eye(n), walk(n))


@pytest.mark.parametrize(
    ("matrix", "n_groups", "n_elements"),
    [
        (np.diag(RNG.uniform(1.0, 2.0, 40)), 1, 0),
        (arrow(60, 1), 2, 59),
        (arrow(60, 3), 4, 57 * 3 + 3),
        (walk(80), 5, 79),
        (crossed(60, 20, 1.0), 21, 60 * 20 + 190),
        (crossed(60, 20, 0.1), 21, 600),
        (lattice(12), 12, 1300),
    ],
)
def test_all_elements_are_found(matrix, n_groups, n_elements):
    order = RNG.permutation(len(matrix))
    matrix = matrix[np.ix_(order, order)]
    found = Sparsity.of(matrix)
    assert found.n_groups <= n_groups and found.pattern.row.size <= n_elements
    lengths = RNG.uniform(0.5, 2.0, len(matrix))
    ordered = matrix[np.ix_(found.order, found.order)]
    diagonal, below = found.elements(found.steps(lengths) @ ordered, lengths)
    lower = np.diag(diagonal)
    lower[found.pattern.row, found.pattern.column] = below
    np.testing.assert_allclose(lower, np.tril(ordered), atol=1e-10)
    pattern = found.pattern
    assert triangular.factorise(pattern, diagonal, below)
    factor = np.diag(diagonal)
    factor[pattern.row, pattern.column] = below
    np.testing.assert_allclose(factor @ factor.T, ordered, atol=1e-10)


def test_matrices_that_are_not_worth_it():
    """Dense ones, small ones, and such as are not known."""
    dense = arrow(40, 25)
    assert Sparsity.of(dense) is None
    assert Sparsity.of(np.eye(5)) is None
    assert Sparsity.of(np.full((40, 40), np.nan)) is None
