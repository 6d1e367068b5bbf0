"""The references that all lattice results are held against, by independent methods."""

import numpy as np
import pytest

from pm_evidence.families.lattice.target import Ising, Potts
from pm_evidence.testing.lattices import enumeration, kaufman, transfer_matrix

BETA_C = np.log(1.0 + np.sqrt(2.0)) / 2.0
# Kaufman's formula with 50 digits, relative to the uniform distribution.
KAUFMAN = {
    8: (4.223205058157098, 15.78036123323265, 21.98316232339131, 84.35401778157192),
    16: (16.88558197655881, 61.19657841178689, 85.85053221067521, 335.3366295845958),
    32: (67.54232112692301, 242.8653666551588, 341.3222747211328, 1339.267076796703),
    64: (270.1692845076873, 969.5414318462733, 1363.209656405407, 5354.988865645133),
}
# Site-wise transfer matrices, by a separate program.
POTTS = {
    (3, 6): (75.268459042667, 75.571951800165, 145.123801548579),
    (10, 4): (42.049056925601, 48.720114917391, 66.354679229491),
    (10, 6): (94.477086773507, 106.725453258019, 146.419716818413),
}
TINY = [
    Ising((2, 3), 0.7, 0.3),
    Ising((3, 3), 0.7, -0.2),
    Ising((3, 4), 0.5, 0.3, periodic=False),
    Ising((4, 4), -0.4),
    Potts((3, 2), 3, 0.8),
    Potts((3, 3), 3, 1.2, periodic=False),
]


@pytest.mark.parametrize("size", KAUFMAN)
def test_kaufman(size):
    for beta, exact in zip((0.25, BETA_C, 0.5, 1.0), KAUFMAN[size], strict=True):
        relative = kaufman((size, size), beta) - size**2 * np.log(2.0)
        assert relative == pytest.approx(exact, abs=1e-9)


@pytest.mark.parametrize("beta", (0.05, 0.3, BETA_C, 0.8, 2.0))
def test_kaufman_is_the_sum_over_states(beta):
    for shape in ((4, 4), (3, 5), (5, 3), (2, 6)):
        exact = enumeration(Ising(shape)).log_z(beta)
        assert kaufman(shape, beta) == pytest.approx(exact, abs=1e-11)


@pytest.mark.parametrize("target", TINY, ids=repr)
def test_transfer_matrix_is_the_sum_over_states(target):
    for beta in (0.0, 0.6, 1.0):
        exact = enumeration(target).log_z(beta)
        assert transfer_matrix(target, beta) == pytest.approx(exact, abs=1e-11)
    assert transfer_matrix(target, 0.0) == pytest.approx(target.log_n_states, abs=1e-11)


def test_transfer_matrix_is_kaufman():
    for size, coupling in ((8, 0.3), (8, 1.0), (10, 0.5)):
        found = transfer_matrix(Ising(size, coupling))
        assert found == pytest.approx(kaufman((size, size), coupling), abs=1e-9)


@pytest.mark.parametrize(
    "case", [(3, 6), (10, 4), pytest.param((10, 6), marks=pytest.mark.slow)], ids=str
)
def test_transfer_matrix_of_potts(case):
    q, size = case
    for coupling, exact in zip((1.0, np.log(1 + np.sqrt(q)), 2.0), POTTS[case], strict=True):
        found = transfer_matrix(Potts(size, q, coupling))
        assert found == pytest.approx(exact, abs=1e-9)


@pytest.mark.parametrize(
    "target", [*TINY, Ising((2, 2, 3), 0.4, 0.2), Potts((2, 3, 2), 2)], ids=repr
)
def test_energies_by_two_programs(target):
    table = enumeration(target)
    np.testing.assert_allclose(target.energy(table.draws), table.energy, rtol=1e-13, atol=1e-13)
    assert np.array_equal(table.index(table.draws), np.arange(len(table.draws)))


def test_what_is_too_large_is_refused():
    with pytest.raises(ValueError, match="at most 1048576 states, got"):
        enumeration(Ising(5))
    with pytest.raises(ValueError, match="two million states a row"):
        transfer_matrix(Potts(8, 10))
    with pytest.raises(ValueError, match="coupling must be above 0"):
        kaufman((4, 4), -1.0)
