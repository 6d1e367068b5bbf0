"""Lattices: bonds, states of lowest energy, the order of visits, and what they refuse."""

import numpy as np
import pytest

from pm_evidence.families.gaussian import Gaussian
from pm_evidence.families.lattice.ising import SpinHeatBath
from pm_evidence.families.lattice.lattice import LatticeKernel, VisitKernel, geometry
from pm_evidence.families.lattice.target import Ising, Potts
from pm_evidence.testing.lattices import enumeration


def test_every_bond_is_there_once():
    for sizes in ((4, 6), (3, 5), (4, 2, 6)):
        for periodic in (True, False):
            bonds = geometry(sizes, periodic)
            n_sites = int(np.prod(sizes))
            ends = list(map(tuple, bonds.bonds))
            target = Ising(sizes, periodic=periodic)
            assert len(ends) == target.n_bonds == bonds.degree.sum() // 2
            both = sorted([*ends, *((j, i) for i, j in ends)])
            listed = [(i, j) for i in range(n_sites) for j in bonds.ghosted[i] if j < n_sites]
            assert both == sorted(listed)


def test_what_is_wrong_is_named():
    for build, message in (
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
    ):
        with pytest.raises(ValueError, match=message):
            build()


# --- states of lowest energy, against all states of small lattices ---


UNIQUE = {
    "spins": Ising((2, 4), 0.5),
    "spins up": Ising((2, 4), 0.5, 0.3),
    "spins down": Ising((2, 4), 0.5, -0.3),
    "alternating spins": Ising((2, 4), -0.5),
    "free alternating spins": Ising((3, 3), -0.5, periodic=False),
    "like colours": Potts((2, 3), 3, 1.0),
}


@pytest.mark.parametrize("target", UNIQUE.values(), ids=UNIQUE)
def test_no_state_lies_lower(target):
    """With a field the other ordered state is drawn, too, but as rarely as its weight."""
    states = target.ground_states(200, np.random.default_rng(1))
    assert states.shape == (200, *target.sizes)
    lowest = enumeration(target).energy.min()
    energy = target.energy(states)
    np.testing.assert_allclose(energy.min(), lowest, rtol=1e-12)
    if not getattr(target, "field", 0.0):
        np.testing.assert_allclose(energy, lowest, rtol=1e-12)


@pytest.mark.parametrize("field", [0.0, 0.02, -0.1])
def test_ordered_states_are_drawn_by_their_weights(field):
    """20,000 draws, seed 2; the share of spins up misses by five errors at 6e-7."""
    target, n = Ising((4, 4), 1.0, field), 20_000
    states = target.ground_states(n, np.random.default_rng(2))
    both = np.stack([np.ones((4, 4), np.int8), -np.ones((4, 4), np.int8)])
    weight = np.exp(-target.energy(both))
    share = weight[0] / weight.sum()
    up = (states.reshape(n, -1) == 1).all(axis=1)
    assert (up | (states.reshape(n, -1) == -1).all(axis=1)).all()
    assert abs(up.mean() - share) < 5.0 * np.sqrt(share * (1.0 - share) / n)


def test_colours_that_repel_each_other_are_drawn_evenly():
    """Their ground states are too many to list: reverse paths relax from independent colours."""
    target = Potts((4, 4), 3, -1.0)
    states = target.ground_states(5000, np.random.default_rng(3))
    counts = np.bincount(states.ravel(), minlength=3)
    assert (np.abs(counts / states.size - 1 / 3) < 5.0 * np.sqrt(2 / 9 / states.size)).all()
    assert len(np.unique(states.reshape(5000, -1), axis=0)) > 4900


# --- what kernels share: the order of visits, and the lattices that they refuse ---


@pytest.mark.parametrize("order", ["checkerboard", "sequential"])
def test_the_reversal_visits_sites_in_the_opposite_order(order):
    """A forward path with the same order in reverse would be biased."""
    target, kernel = Ising((4, 6)), VisitKernel(1, order)
    there, back = kernel.sites(target), kernel.reversed().sites(target)
    np.testing.assert_array_equal(back, there[::-1])
    assert sorted(there) == list(range(24)) and kernel.reversed().reversed() == kernel
    assert not there.flags.writeable
    if order == "sequential":
        np.testing.assert_array_equal(there, np.arange(24))


def test_an_odd_periodic_lattice_has_no_checkerboard():
    """Two neighbours of one colour would be moved at once, and detailed balance be lost."""
    with pytest.raises(ValueError, match=r"order must not be 'checkerboard' on .*\(5, 4\)"):
        VisitKernel().check(Ising((5, 4)))
    for fine in (Ising((5, 4), periodic=False), Ising((6, 4))):
        np.testing.assert_array_equal(VisitKernel().check(fine), np.arange(fine.n_dim))
    assert len(VisitKernel(1, "sequential").check(Ising((5, 4)))) == 20


def test_what_kernels_refuse():
    for build, message in (
        (lambda: LatticeKernel(0), "n_sweeps must be a whole number of at least 1, got 0"),
        (lambda: LatticeKernel(10**7), "n_sweeps must be at most"),
        (lambda: VisitKernel(1, "spiral"), "order must be one of 'checkerboard', 'sequential'"),
        (lambda: VisitKernel(1, "sequential", 1), "backwards must be True or False, got 1"),
        (
            lambda: SpinHeatBath().check(Potts(4)),
            "SpinHeatBath must move a pe.lattices.Ising, got .* Potts",
        ),
        (
            lambda: LatticeKernel().check(Gaussian(2)),
            "must move a pe.lattices.Ising or pe.lattices.Potts, got",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            build()
