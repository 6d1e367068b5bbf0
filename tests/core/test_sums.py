"""Sums in one order: right for every length, the same wherever the terms lie, and no other kind."""

from math import fsum
from pathlib import Path

import numba as nb
import numpy as np
import pytest
from numba.core.errors import TypingError

import pm_evidence
from pm_evidence.core.numerics import dot, fused, total


@pytest.fixture
def rng():
    """Numbers that cancel, so that an entry left out or taken twice shows."""
    return np.random.default_rng(1)


def test_every_length(rng):
    for n in (*range(70), 95, 96, 97, 500, 1000, 10_007):
        x, y = rng.normal(size=(2, n))
        bound = 1e-15 * max(n, 1)
        assert total(x) == pytest.approx(fsum(x), abs=bound), n
        assert dot(x, y) == pytest.approx(fsum(x * y), abs=bound), n


def test_order():
    """Every 32nd term, and then pairs: small terms are not lost in the order they come."""
    x = np.zeros(64)
    x[[0, 32]] = 1e16, -1e16
    x[1] = 1.0
    assert total(x) == 1.0
    x = np.zeros(64)
    x[[0, 1, 33]] = 1e16, 1.0, 1.0
    assert total(x) == 1e16 + 2.0


@pytest.mark.parametrize("n", [3, 8, 25, 40, 100])
def test_nothing_outside_is_read(n, rng):
    """What lies before and behind may be anything, NaN as well; and it may lie anywhere."""
    x, y = rng.normal(size=(2, n))
    expected = total(x), dot(x, y)
    for offset in range(1, 40):
        room = np.full((2, n + 100), np.nan)
        room[:, offset : offset + n] = x, y
        left, right = room[:, offset : offset + n]
        assert (total(left), dot(left, right)) == expected


def test_infinity_and_nan_stay():
    for place in (0, 7, 33, 99):
        x = np.ones(100)
        for value in (np.inf, -np.inf, np.nan):
            x[place] = value
            np.testing.assert_equal(total(x), value)


def test_other_arrays_are_refused():
    """Before they are compiled: their memory would be read as something else."""
    for array in (np.ones(8)[::2], np.ones((2, 2)), np.ones(4, int), np.ones(4, np.float32)):
        with pytest.raises(TypingError, match="contiguous vectors of float64"):
            total(array)


def test_fused():
    compiled = nb.njit(lambda x, y, z: fused(x, y, z))
    assert compiled(2.0, 3.0, 4.0) == 10.0
    # once rounded, or twice
    tiny = 2.0**-30
    assert compiled(1 + tiny, 1 - tiny, -1.0) in (-(tiny**2), 0.0)


def test_no_order_is_left_to_the_compiler():
    """It would give other digits to a process that compiled, and to one that found the code."""
    package = Path(pm_evidence.__file__).parent
    said = [
        (path.name, line.strip())
        for path in sorted(package.rglob("*.py"))
        for line in path.read_text().splitlines()
        if "fastmath" in line
    ]
    assert said == [("numba_graph.py", "with with_flags(numba__fastmath=False):")]
