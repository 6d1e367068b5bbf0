"""The solution of the equations of MBAR: its influence values, covariance and overlap."""

import numpy as np
import pytest

from pm_evidence.estimators.errors import clusters
from pm_evidence.estimators.mbar import solve
from tests.estimators.ladders import BETA, draws

EMPTY = [0, 6, 1, 0, 8, 5], [5, 0, 6, 7, 0, 4], [0, 9, 0, 0, 0, 0], [4, 0, 0, 0, 0, 4]


def solved(energy, rung):
    counts = np.bincount(rung, minlength=len(BETA))
    return solve(BETA, np.ascontiguousarray(energy)[None], rung, counts)


def states(counts, seed, repeats=1):
    rung = np.repeat(np.arange(len(BETA)), counts)
    energy = draws(np.random.default_rng(seed), rung)
    return np.tile(energy, repeats), np.tile(rung, repeats)


def curve(found):
    return found.log_z - found.log_z[0]


@pytest.mark.parametrize("counts", [[6, 5, 4, 3, 7, 5], *EMPTY])
def test_the_equations_hold(counts):
    """Weights of every state add up to one, also of states without samples. Seed 1."""
    energy, rung = states(counts, 1)
    found = solved(energy, rung)
    weight = np.exp(-np.outer(BETA, energy) - found.log_z[:, None] - found.log_density)
    np.testing.assert_allclose(weight.sum(axis=1), 1.0, rtol=1e-11)
    np.testing.assert_allclose(found.products, weight @ weight.T, rtol=1e-8)


@pytest.mark.parametrize("counts", [[6, 5, 4, 3, 7, 5], *EMPTY])
def test_influence_is_the_effect_of_one_more_sample(counts):
    """By how much log Z changes if one sample counts 201 times instead of 200. Seed 2.

    The number of samples at its temperature changes with it, as it does in simulated tempering.
    """
    energy, rung = states(counts, 2)
    many, of_many = np.tile(energy, 200), np.tile(rung, 200)
    plain = solved(many, of_many)
    for k in (2, len(BETA) - 1):
        influence = plain.influence(k)
        assert abs(influence.sum()) < 1e-10
        for i in range(0, energy.size, 4):
            more = solved(np.append(many, energy[i]), np.append(of_many, rung[i]))
            change = curve(more)[k] - curve(plain)[k]
            assert change == pytest.approx(influence[i], rel=0.02, abs=2e-6)


def test_clustered_covariance_is_that_of_the_influence():
    """Matrix and vector are made in two ways. Seed 4."""
    energy, rung = states([30] * 6, 4)
    found, dependence = solved(energy, rung), clusters(energy.shape, np.arange(180) % 12)
    clustered, dof = found.clustered_covariance(dependence)
    for k in (1, 5):
        spread = dependence.spread(found.influence(k))
        assert np.sqrt(clustered[k, k]) == pytest.approx(spread.mcse, rel=1e-6)
        assert dof == spread.dof == 11.0


def test_one_cluster_has_no_covariance():
    energy, rung = states([2] * 6, 5)
    clustered, _ = solved(energy, rung).clustered_covariance(clusters((12,), np.zeros(12, int)))
    assert np.isnan(clustered).all()


def test_narrowest_cut_is_found_in_any_order():
    """Temperatures 0, 1, 2 and 3, 4, 5 are far apart; states come in a mixed order."""
    order = np.array([3, 0, 5, 1, 4, 2])
    middle = np.array([0.0, 0.5, 1.0, 7.0, 7.5, 8.0])[order]
    x = np.random.default_rng(6).normal(size=600) + np.repeat(middle, 100)
    potential = 0.5 * (x - middle[:, None]) ** 2
    found = solve(np.ones(6), potential, np.repeat(np.arange(6), 100), np.full(6, 100))
    common, most, lower = found.narrowest
    assert common < 10.0 and most == 150.0
    assert {frozenset(order[lower])} <= {frozenset({0, 1, 2}), frozenset({3, 4, 5})}


def test_two_equal_states_overlap_completely():
    """Half of the samples of each: the number that `most` says."""
    found = solve(np.zeros(2), np.zeros((1, 40)), np.repeat([0, 1], 20), np.array([20, 20]))
    common, most, _ = found.narrowest
    assert common == pytest.approx(10.0) and most == 10.0


def test_without_overlap_there_is_no_error():
    potential = np.array([[0.0] * 5 + [1e6] * 5, [1e6] * 5 + [0.0] * 5])
    found = solve(np.ones(2), potential, np.repeat([0, 1], 5), np.array([5, 5]))
    assert found.narrowest[0] == 0.0
    assert np.isnan(found.covariance()).all() and np.isnan(found.influence(1)).all()
