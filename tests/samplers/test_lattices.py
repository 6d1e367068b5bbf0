"""Annealing of lattices against exact log Z, both ways."""

import numpy as np
import pytest

from pm_evidence.core.contracts import Plan
from pm_evidence.estimators.bar import bar
from pm_evidence.families.lattice.ising_kernels import SpinHeatBath, SpinMetropolis
from pm_evidence.families.lattice.path import DetouredPath, LatticePath
from pm_evidence.families.lattice.potts_kernels import ColourHeatBath
from pm_evidence.families.lattice.target import Ising, Potts
from pm_evidence.samplers.ais import AIS
from pm_evidence.testing.lattices import (
    POTTS_32_LOG_EVIDENCE,
    enumeration,
    ordered_draws,
    transfer_matrix,
)

ISING_8 = 84.35401778157192  # Kaufman's formula, beta 1, relative to the uniform distribution


def anneal(path, kernel, n_stages, n, n_moves=30):
    """Return forward and reverse work on a straight schedule."""
    plan = Plan(np.linspace(0.0, 1.0, n_stages + 1), (kernel,) * n_stages)
    forward = AIS().run_block(path, plan, 0, n, seed=1)
    start = ordered_draws(path.target, n, seed=2)
    reverse = AIS().run_reverse(path, plan, 0, start, None, 3, n_moves=n_moves)
    return forward, reverse


def check(path, kernel, exact, n_stages=200, n=1024, largest_error=0.1):
    """Check Bennett's estimate at five standard errors: a false alarm in two million."""
    forward, reverse = anneal(path, kernel, n_stages, n)
    work = forward.work.ravel(), reverse.work.ravel()
    found = bar(*work)
    assert found.status == "ok"
    assert found.mcse < largest_error
    assert abs(found.value - exact) < 5.0 * found.mcse
    return found


@pytest.mark.parametrize("order", ("checkerboard", "sequential", "random"))
@pytest.mark.parametrize("kind", (SpinHeatBath, SpinMetropolis))
def test_ising_8(kind, order):
    check(LatticePath(Ising(8)), kind(1, order), ISING_8)


def test_ising_8_detoured():
    check(DetouredPath(Ising(8), 0.2), SpinHeatBath(), ISING_8)


def test_free_edges_and_field():
    target = Ising((6, 5), 0.6, 0.1, periodic=False)
    check(LatticePath(target), SpinHeatBath(), transfer_matrix(target) - target.log_n_states)


POTTS = {
    (3, 6): 145.123801548579 - 36 * np.log(3.0),  # transfer matrices, E = -2 sum delta
    (10, 4): 66.354679229491 - 16 * np.log(10.0),
    (10, 6): 146.419716818413 - 36 * np.log(10.0),
}


@pytest.mark.parametrize("height", (0.0, 0.5))
@pytest.mark.parametrize("case", POTTS, ids=str)
def test_potts(case, height):
    q, size = case
    target = Potts(size, q)
    path = DetouredPath(target, height) if height else LatticePath(target)
    check(path, ColourHeatBath(), POTTS[case], n=512, largest_error=0.15)


def test_potts_on_a_cube():
    target = Potts((2, 3, 2), 3, 0.6, periodic=False)
    exact = enumeration(target).log_z() - target.log_n_states
    check(LatticePath(target), ColourHeatBath(), exact, n=500)


@pytest.mark.slow
def test_habecks_potts_model():
    """The detour closes the gap between the two directions at the first-order transition."""
    path = DetouredPath(Potts(), 0.4)
    check(path, ColourHeatBath(), POTTS_32_LOG_EVIDENCE, 6000, 512, 0.15)
