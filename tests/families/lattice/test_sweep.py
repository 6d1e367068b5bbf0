"""What the kernels of lattices share: the order of visits, and the lattices that they refuse."""

from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from pm_evidence.core.contracts import Tunable
from pm_evidence.families.gaussian.target import Gaussian
from pm_evidence.families.lattice.ising_kernels import SpinHeatBath
from pm_evidence.families.lattice.sweep import SweepKernel, VisitKernel
from pm_evidence.families.lattice.target import Ising, Potts


def test_there_is_nothing_to_learn():
    kernel = SweepKernel(3)
    assert not isinstance(kernel, Tunable) and kernel.reversed() is kernel
    assert kernel.settings() == {"n_sweeps": 3.0}
    with pytest.raises(FrozenInstanceError):
        kernel.n_sweeps = 1


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


def test_the_checkerboard_visits_one_colour_after_the_other():
    parity = np.indices((4, 6)).sum(axis=0).ravel() % 2
    visited = parity[VisitKernel().sites(Potts((4, 6)))]
    np.testing.assert_array_equal(visited, np.repeat([0, 1], 12))


def test_an_odd_periodic_lattice_has_no_checkerboard():
    """Two neighbours of one colour would be moved at once, and detailed balance be lost."""
    with pytest.raises(ValueError, match=r"order must not be 'checkerboard' on .*\(5, 4\)"):
        VisitKernel().check(Ising((5, 4)))
    for fine in (Ising((5, 4), periodic=False), Ising((6, 4))):
        np.testing.assert_array_equal(VisitKernel().check(fine), np.arange(fine.n_dim))
    assert len(VisitKernel(1, "sequential").check(Ising((5, 4)))) == 20


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: SweepKernel(0), "n_sweeps must be a whole number of at least 1, got 0"),
        (lambda: SweepKernel(10**7), "n_sweeps must be at most"),
        (
            lambda: VisitKernel(1, "spiral"),
            "order must be one of 'checkerboard', 'sequential', got",
        ),
        (lambda: VisitKernel(1, "sequential", 1), "backwards must be True or False, got 1"),
        (lambda: SpinHeatBath().check(Potts(4)), "SpinHeatBath must move a pe.Ising, got .* Potts"),
        (lambda: SweepKernel().check(Gaussian(2)), "must move a pe.Ising or pe.Potts, got"),
    ],
)
def test_what_is_wrong_is_named(build, message):
    with pytest.raises(ValueError, match=message):
        build()
