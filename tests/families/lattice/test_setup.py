"""How lattices are annealed unless the user says otherwise."""

import pytest

from pm_evidence.families.lattice.ising_kernels import SpinHeatBath
from pm_evidence.families.lattice.path import DetouredPath, LatticePath
from pm_evidence.families.lattice.potts_kernels import ColourHeatBath
from pm_evidence.families.lattice.setup import Detour, lattice_setup
from pm_evidence.families.lattice.target import Ising, Potts

KERNELS = {"heat_bath": SpinHeatBath}
DETOUR = Detour(height=0.25, stages_per_site=10, most_moves=10**6)


@pytest.mark.parametrize(
    ("target", "path"),
    [
        (Ising(4), DetouredPath),
        (Ising(4, field=0.1), LatticePath),
        (Ising(4, coupling=-1.0), LatticePath),
        (Ising(4, coupling=0.0), LatticePath),
    ],
)
def test_only_attraction_without_a_field_has_a_transition_to_go_round(target, path):
    setup = lattice_setup(target, "auto", KERNELS, DETOUR)
    assert type(setup.path) is path and setup.path.target == target
    if path is DetouredPath:
        assert setup.path == DetouredPath(target, 0.25)


@pytest.mark.parametrize(
    ("size", "n_stages"),
    [
        (4, 1000),  # 160 stages at ten a site, and a thousand at the least
        (16, 2560),
        (32, 976 + 24),  # 1,024 sites: a million moves allow for 976 stages
        (20, 2500),  # of 4,000 wanted
    ],
)
def test_stages_grow_with_the_sites_as_far_as_they_are_affordable(size, n_stages):
    assert lattice_setup(Ising(size), "auto", KERNELS, DETOUR).n_stages == n_stages


def test_odd_periodic_lattices_are_swept_site_after_site():
    """A checkerboard has two neighbours of one colour at their seam."""
    orders = {
        target: lattice_setup(target, "auto", KERNELS, DETOUR).kernel.order
        for target in (Ising((4, 6)), Ising((5, 6)), Ising((5, 6), periodic=False))
    }
    assert list(orders.values()) == ["checkerboard", "sequential", "checkerboard"]


def test_kernels_of_the_user():
    kernel = SpinHeatBath(n_sweeps=3)
    assert lattice_setup(Ising(4), kernel, KERNELS, DETOUR).kernel is kernel
    for wrong, message in (
        ("wolf", "kernel must be one of 'auto', 'heat_bath', got 'wolf'"),
        (ColourHeatBath(), "kernel must be one of auto, heat_bath or such a kernel object, got"),
        (SpinHeatBath(), "order must not be 'checkerboard'"),
    ):
        with pytest.raises(ValueError, match=message):
            lattice_setup(Ising(5), wrong, KERNELS, DETOUR)


def test_targets_name_their_own_kernels():
    assert isinstance(Ising(4).annealing_setup("auto").kernel, SpinHeatBath)
    assert isinstance(Potts(4, 3).annealing_setup("auto").kernel, ColourHeatBath)
