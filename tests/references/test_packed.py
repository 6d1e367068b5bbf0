"""Mixtures as arrays: the layout that compiled code reads."""

import numpy as np
import pytest

from pm_evidence.references.packed import N_OF_COMPONENT, N_OF_MIXTURE, packed
from tests.references.densities import InPython, references

POSITIONS = np.arange(3)


@pytest.mark.parametrize("name", references(3))
def test_every_density_of_the_package_has_a_compiled_form(name):
    """Arrays of another length would make compiled code read outside of them."""
    found = packed(references(3)[name], POSITIONS, n_circular=2)
    at, n = N_OF_MIXTURE, int(found.numbers[0])
    for _ in range(n):
        at += N_OF_COMPONENT + 9 + int(found.numbers[at + 3])
    assert at == found.numbers.size
    assert found.numbers[1] == pytest.approx(-2.0 * np.log(2.0 * np.pi))


def test_an_object_of_the_users_own_has_none():
    """It is called in Python instead."""
    assert packed(InPython(references(3)["normal"]), POSITIONS) is None


def test_no_reference_is_a_constant():
    """Models whose variables are all circular or discrete have no coordinates to fit."""
    found = packed(None, POSITIONS, n_circular=1)
    assert found.numbers[0] == 0.0 and found.positions.size == 0


def test_the_mass_of_the_prior_is_a_part():
    """Without it the evidence under ordered transforms would be off by the log of a factorial."""
    found = packed(references(3)["dense"], POSITIONS)
    assert list(found.beside_prior(-0.7, 0.1).numbers[2:4]) == [-0.7, 0.1]
    assert list(found.numbers[2:4]) == [0.0, 0.0]
