"""Products of variables of which neither factor has a known sign."""

import pymc as pm
import pytensor.tensor as pt
import pytest

from pm_evidence.targets.model.concavity import have_products_of_any_sign

A, B, X = pt.dscalar("a"), pt.dscalar("b"), pt.dvector("x")
MATRIX = pt.dmatrix("m")


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        (-((A * X) ** 2).sum(), True),
        (-((1.0 - (A + B) * X.sum()) ** 2), True),
        (-(pm.math.dot(pt.stack([A, B]), X[:2]) ** 2), True),
        (-(pm.math.sin(A) * X).sum(), True),
        (-((pm.math.exp(A) * X) ** 2).sum(), False),
        (-((pm.math.sigmoid(A) * X) ** 2).sum(), False),
        (-(A**2 * X).sum(), False),
        (-((A + X) ** 2).sum(), False),
        (-((A * B) ** 2) - (X**2).sum(), False),
        (-((3.0 * A + X * X[0]) ** 2).sum(), False),
    ],
)
def test_products(graph, expected):
    """Of a or b with x: squares and exponentials have one sign."""
    assert have_products_of_any_sign([A, B, X], [graph], {A, B}) == expected
    assert have_products_of_any_sign([A, B, X], [graph], {X}) == expected


def test_products_of_matrices():
    assert have_products_of_any_sign([MATRIX, X], [(MATRIX @ X).sum()], {X})
    assert not have_products_of_any_sign([MATRIX, X], [(pt.exp(MATRIX) @ X).sum()], {X})
