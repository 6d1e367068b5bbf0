"""Lattices: their bonds, and what they refuse."""

import numpy as np
import pytest

from pm_evidence.families.lattice.lattice import geometry
from pm_evidence.families.lattice.target import Ising, Potts


def test_every_bond_is_there_once():
    for sizes in ((4, 6), (3, 5), (4, 2, 6)):
        for periodic in (True, False):
            bonds = geometry(sizes, periodic)
            n_sites = int(np.prod(sizes))
            ends = [(i, j) for i in range(n_sites) for j in bonds.forward[i] if j != i]
            target = Ising(sizes, periodic=periodic)
            assert len(ends) == target.n_bonds == bonds.degree.sum() // 2
            both = sorted([*ends, *((j, i) for i, j in ends)])
            listed = [(i, j) for i in range(n_sites) for j in bonds.ghosted[i] if j < n_sites]
            assert both == sorted(listed)


def test_checkerboard_lists_each_site_once_and_no_neighbours_within_a_half():
    bonds = geometry((4, 6), True)
    assert sorted(bonds.checkerboard) == list(range(24))
    first = set(bonds.checkerboard[:12])
    assert not any(j in first for i in first for j in bonds.neighbours[i])


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Ising(1), "shape must be a whole number of at least 2, got 1"),
        (lambda: Ising((4, 4.5)), "shape must be a whole number of at least 2, got 4.5"),
        (lambda: Ising((4,)), "two or three sizes"),
        (lambda: Ising(4, np.nan), "coupling must be a finite number, got nan; try 1"),
        (lambda: Ising(4, field=np.inf), "field must be a finite number, got inf; try 0"),
        (lambda: Ising(4, periodic=1), "periodic must be True or False, got 1"),
        (lambda: Potts(4, 1), "q must be a whole number of at least 2, got 1"),
        (lambda: Potts(4, 300), "q must be at most 250, got 300"),
        (lambda: Potts(4, coupling="2"), "coupling must be a finite number, got '2'"),
        (lambda: Ising(2).check(np.zeros((3, 2, 2))), "values -1 or 1 only, got"),
        (lambda: Potts(2, 3).check(np.full((3, 2, 2), 3)), "values 0 to 2 only, got"),
        (lambda: Potts(2, 3).check(np.zeros((3, 4))), r"shape \(n, 2, 2\), got \(3, 4\)"),
    ],
)
def test_what_is_wrong_is_named(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_what_goes_into_the_record():
    target = Ising((2, 2, 3), 0.5, 0.25)
    draws = np.ones((2, 2, 2, 3), np.int8)
    assert target.sample_stats(draws)["energy"] == pytest.approx([-0.5 * 36 - 3.0] * 2)
    assert target.posterior(draws)["x"].shape == (2, 2, 2, 3)
    coords, dims = target.coords_and_dims()
    assert [len(coords[name]) for name in dims["x"]] == [2, 2, 3]
    assert Ising(3) == Ising((3, 3))
