"""MBAR: exact answers, pymbar's numbers, intervals that hold, and what it cannot do."""

import numpy as np
import pytest

from pm_evidence.estimators import bar, mbar, mbar_curve, multistate, multistate_curve
from tests.estimators.ladders import (
    BETA,
    DEAD_Z,
    HALVES,
    HALVES_Z,
    LOG_Z,
    chains,
    coverage,
    draws,
    in_proportion,
)
from tests.estimators.refusals import check_refused

INF = np.inf


# --- values ---


@pytest.mark.parametrize("counts", [(1, 1, 1), (7, 2, 5), (0, 2, 5), (3, 0, 4), (9, 1, 0)])
@pytest.mark.parametrize(("dead", "exact"), [(False, HALVES_Z), (True, DEAD_Z)])
def test_exact_proportions(counts, dead, exact):
    """Samples in the proportions of their densities give log Z exactly, for any numbers of them.

    Without samples at ``beta = 0`` the others do not show where the likelihood is zero.
    """
    if dead and not counts[0]:
        exact = np.append(0.0, exact[1:] - np.log(3.0 / 4.0))
    energy, rung = in_proportion(counts, dead)
    curve = mbar_curve(HALVES, energy, rung)
    np.testing.assert_allclose(curve.log_z, exact - exact[0], atol=1e-11)
    assert mbar(HALVES, energy, rung).value == pytest.approx(exact[-1] - exact[0], abs=1e-11)


def test_two_states_are_bar():
    """Value and error of Bennett's acceptance ratio. Seed 1."""
    rng = np.random.default_rng(1)
    rung = np.repeat([0, 1], [300, 200])
    energy = draws(rng, rung, [0.0, 1.0], strength=3.0)
    found, two = mbar([0.0, 1.0], energy, rung), bar(energy[:300], energy[300:])
    assert found.value == pytest.approx(two.value, abs=1e-12)
    assert found.mcse == pytest.approx(two.mcse, rel=0.05)


# pymbar 4.0.3 for the samples below: log Z relative to the first state, and errors of differences.
PYMBAR_LOG_Z = [0.0, -0.43114238888952405, -0.7643200350075463, -1.1741400266305724]
PYMBAR_ERRORS = [
    [0.0, 0.09096766002859732, 0.1341207399482121, 0.1711817753360203],
    [0.09096766002859734, 0.0, 0.05800763135852424, 0.11259679999601334],
    [0.1341207399482121, 0.05800763135852424, 0.0, 0.0659861915947609],
    [0.17118177533602028, 0.11259679999601334, 0.0659861915947609, 0.0],
]


def normals(sd, mean, counts, seed):
    """Reduced potentials of normal densities at draws from them."""
    x = np.random.default_rng(seed).normal(size=sum(counts)) * np.repeat(sd, counts)
    x += np.repeat(mean, counts)
    return 0.5 * ((x - mean[:, None]) / sd[:, None]) ** 2


def errors(curve):
    size = range(len(curve.log_z))
    return [[curve.difference(j, i)[1] for j in size] for i in size]


def test_stored_numbers_of_pymbar():
    """Also with a state that no sample was drawn from. Seed 11."""
    sd, mean = np.array([1.0, 0.6, 0.4, 0.25]), np.array([0.0, 0.1, 0.2, 0.3])
    curve = multistate_curve(normals(sd, mean, [30, 0, 25, 20], 11), [30, 0, 25, 20])
    np.testing.assert_allclose(curve.log_z, PYMBAR_LOG_Z, atol=1e-10)
    np.testing.assert_allclose(errors(curve), PYMBAR_ERRORS, rtol=1e-8, atol=1e-12)


def test_pymbar_itself(seed=3):
    """Random states and numbers of samples, zeros among them."""
    pymbar = pytest.importorskip("pymbar")
    rng = np.random.default_rng(seed)
    size = 5 + seed
    counts = rng.integers(20, 200, size)
    counts[rng.integers(1, size - 1)] = 0
    sd, mean = np.exp(-0.3 * np.arange(size)), 0.1 * rng.normal(size=size)
    potential = normals(sd, mean, counts, seed)
    theirs = pymbar.MBAR(potential, counts, solver_protocol="robust")
    theirs = theirs.compute_free_energy_differences(compute_uncertainty=True)
    curve = multistate_curve(potential, counts)
    np.testing.assert_allclose(curve.log_z, -theirs["Delta_f"][0], atol=1e-8)
    np.testing.assert_allclose(errors(curve), theirs["dDelta_f"], rtol=1e-8, atol=1e-9)
    found = multistate(potential, counts)
    assert found.value == curve.log_z[-1]
    assert found.mcse == pytest.approx(curve.mcse[-1], rel=1e-12)
    assert found.dof == INF


def test_a_ladder_is_a_table():
    """Powers of one likelihood need no table; groups and empty temperatures as well. Seed 2."""
    rng = np.random.default_rng(2)
    counts = np.array([40, 0, 30, 50, 20, 0])
    rung = np.repeat(np.arange(6), counts)
    energy, labels = draws(rng, rung), rng.integers(0, 12, rung.size)
    for groups in (None, labels):
        found = mbar(BETA, energy, rung, groups=groups)
        table = multistate(np.outer(BETA, energy), counts, groups=groups)
        assert found.value == pytest.approx(table.value, abs=1e-10)
        assert found.mcse == pytest.approx(table.mcse, rel=1e-7)
        one = mbar_curve(BETA, energy, rung, groups=groups)
        other = multistate_curve(np.outer(BETA, energy), counts, groups=groups)
        np.testing.assert_allclose(one.covariance, other.covariance, rtol=1e-6, atol=1e-12)
        assert one.mcse[-1] == pytest.approx(found.mcse, rel=1e-7)
        assert (one.dof, found.dof) == ((INF, INF) if groups is None else (11.0, 11.0))


# --- errors ---


@pytest.mark.parametrize(
    ("n", "m"),
    [
        (80, 10),
        pytest.param(300, 3, marks=pytest.mark.slow),
        pytest.param(1200, 1, marks=pytest.mark.slow),
    ],
)
def test_coverage_of_ladders(n, m):
    """Correlated chains, 200 repetitions: groups, and batches of few groups. Seed 6.

    The error of independent states would cover 65 to 70 %.
    """
    rng, found, plain = np.random.default_rng(6), [], []
    for _ in range(200):
        energy, rung, groups = chains(rng, n, m, 0.8)
        found.append(mbar(BETA, energy, rung, groups=groups))
        plain.append(mbar(BETA, energy.ravel(), rung.ravel()))
    assert 0.90 <= coverage(found, LOG_Z) <= 0.99
    assert coverage(plain, LOG_Z) < 0.85


# --- what it cannot do ---


def test_temperatures_without_overlap():
    energy = np.repeat([1e4, 9e3, 1e2, 0.0], 20) + np.tile(np.arange(20.0), 4)
    found = mbar([0.0, 0.001, 0.5, 1.0], energy, np.repeat(np.arange(4), 20))
    assert found.status == "no_overlap"
    assert "beta=0 to beta=0.001 and of beta=0.5 to beta=1 hardly overlap" in found.message
    groups = np.tile(np.arange(10), 8)
    again = mbar([0.0, 0.001, 0.5, 1.0], energy, np.repeat(np.arange(4), 20), groups=groups)
    assert again.status == "no_overlap" and np.isnan(again.mcse)


def test_an_end_that_the_others_do_not_reach():
    """No state at beta = 1, and the weights there are those of a few states. Seed 8."""
    rung = np.repeat([0, 1], 60)
    energy = draws(np.random.default_rng(8), rung, [0.0, 0.02, 1.0], dim=8, strength=30.0)
    found = mbar([0.0, 0.02, 1.0], energy, rung)
    assert found.status == "no_overlap" and "no sample was drawn from beta=1" in found.message
    table = multistate(np.outer([0.0, 0.02, 1.0], energy), [60, 60, 0])
    assert "no sample was drawn from state 2" in table.message


TABLE = np.zeros((2, 4))


def test_wrong_tables():
    cases = [
        (np.zeros((1, 4)), [4], r"potential must have shape \(n_states, n\)"),
        (np.zeros((2, 0)), [0, 0], r"potential must have shape \(n_states, n\)"),
        (np.zeros(4), [2, 2], r"potential must have shape \(n_states, n\)"),
        ([[0.0, np.nan], [0.0, 0.0]], [1, 1], "potential must be a number or inf, got nan"),
        ([[0.0, 1e200], [0.0, 0.0]], [1, 1], "potential must be infinite or between"),
        ([[INF, 0.0], [0.0, 0.0]], [1, 1], "potential must be finite where a sample was drawn"),
        ([[0.0, 0.0], [INF, INF]], [2, 0], "potential must be finite at one sample or more"),
        (TABLE, [2, 1], "potential must have a row for each of 2 counts and as many columns"),
        (TABLE, [2, 1, 1], "potential must have a row for each of 3 counts"),
        (TABLE, [5, -1], "counts must be a row of numbers of samples"),
        (TABLE, [4], "counts must be a row of numbers of samples"),
        (TABLE, [[2], [2]], "counts must be a row of numbers of samples"),
        (TABLE, [2.0, 2.0], "counts must hold whole numbers"),
    ]
    check_refused(multistate, [((table, counts), f"^{text}") for table, counts, text in cases])
