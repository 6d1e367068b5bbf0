"""Densities of users in Python: called by address, and checked before they are used."""

import numpy as np
import pytest

from pm_evidence.references.in_python import check_reference, density_in_python
from tests.references.densities import InPython, references

NORMAL = references(2)["normal"]


def test_compiled_code_gets_the_users_numbers():
    """Wrong positions would evaluate the density at other variables."""
    density = density_in_python(InPython(NORMAL), np.array([2, 0]), 3)
    x = np.random.default_rng(1).normal(size=(5, 3))
    np.testing.assert_allclose(density.values(x)[:, 0], NORMAL.log_density(x[:, [2, 0]]))
    assert density.slow_ops == ("InPython",)


def test_an_exception_is_a_density_that_is_not_known():
    """An exception inside of machine code cannot be raised there."""

    class Fails(InPython):
        def log_density(self, x):
            raise RuntimeError("no")

    found = density_in_python(Fails(NORMAL), np.arange(2), 2).values(np.zeros((1, 2)))
    assert np.isnan(found).all()


class Short(InPython):
    def draw(self, n, rng):
        return self.density.draw(n, rng)[:, 0]


class Infinite(InPython):
    def log_density(self, x):
        return np.full(len(x), -np.inf)


class Whole(InPython):
    def log_density(self, x):
        return float(self.density.log_density(x).sum())


@pytest.mark.parametrize(
    ("kind", "method"), [(Short, "draw"), (Infinite, "log_density"), (Whole, "log_density")]
)
def test_objects_that_break_the_contract_are_refused(kind, method):
    """Weights of the wrong shape would be broadcast without a sign."""
    check_reference(InPython(NORMAL), 2)
    with pytest.raises(ValueError, match=rf"reference\.{method}"):
        check_reference(kind(NORMAL), 2)
