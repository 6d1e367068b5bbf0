"""Functions of many draws at once."""

import numpy as np
import pytensor.tensor as pt
import pytest

from pm_evidence.targets.model import vectorised
from pm_evidence.targets.model.vectorised import RowFunction

X = np.random.default_rng(0).normal(size=(5, 3))


@pytest.fixture(params=[True, False], ids=["together", "one by one"])
def function(request, monkeypatch):
    """A function of vectors, evaluated together or, as if PyTensor could not do so, one by one."""
    if not request.param:
        monkeypatch.setattr(vectorised, "vectorised", lambda *_: None)
    x, factor = pt.vector("x", shape=(3,)), pt.scalar("factor")
    return RowFunction([x], [factor * x.sum(), x[:2], factor * pt.ones(2)], [factor])


def test_rows(function):
    """Draws would be mixed up, or an output that is the same for all would lack its dimension."""
    total, part, constant = function([X], [np.array(2.0)])
    assert np.allclose(total, 2.0 * X.sum(axis=1), rtol=1e-14)
    assert np.array_equal(part, X[:, :2])
    assert np.array_equal(constant, np.full((5, 2), 2.0))


def test_no_rows(function):
    """A block without draws would end with an error of NumPy."""
    assert [len(value) for value in function([X[:0]], [np.array(2.0)])] == [0, 0, 0]
