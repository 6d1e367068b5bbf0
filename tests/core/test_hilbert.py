"""An order in space: neighbours along the curve are neighbours in space."""

import itertools

import numpy as np
import pytest

from pm_evidence.targets.estimated.particle_filter import _along, order_along_curve


@pytest.mark.parametrize(("d", "bits"), [(2, 1), (2, 4), (3, 2), (4, 2)])
def test_curve_fills_the_grid_step_by_step(d, bits):
    """A Hilbert curve visits every cell once, and only ever steps to an adjacent one."""
    cells = np.array(list(itertools.product(range(2**bits), repeat=d)), np.int64)
    position = np.array([_along(cell.copy(), bits) for cell in cells])
    assert sorted(position) == list(range(len(cells)))
    steps = np.abs(np.diff(cells[np.argsort(position)], axis=0)).sum(axis=1)
    assert (steps == 1).all()


def test_one_dimension_is_sorted():
    """In one dimension the order is by value."""
    points = np.random.default_rng(1).normal(size=(50, 1))
    np.testing.assert_array_equal(order_along_curve(points), np.argsort(points[:, 0]))


@pytest.mark.parametrize("d", [2, 3, 10, 70])
def test_order_is_a_permutation_whatever_the_points(d):
    """Ties, constants and values that are not finite must not lose a particle."""
    points = np.random.default_rng(1).normal(size=(40, d))
    points[3] = points[4]
    points[:, 0] = 1.0
    assert sorted(order_along_curve(points)) == list(range(40))
    points[5, 1] = np.nan
    points[6, 1] = np.inf
    assert sorted(order_along_curve(points)) == list(range(40))


def test_neighbours_are_near():
    """Sorting is worth its cost only if neighbours are much nearer than others."""
    points = np.random.default_rng(1).normal(size=(1000, 2))
    ordered = points[order_along_curve(points)]
    near = np.linalg.norm(np.diff(ordered, axis=0), axis=1).mean()
    any_two = np.linalg.norm(np.diff(points, axis=0), axis=1).mean()
    assert near < 0.1 * any_two
