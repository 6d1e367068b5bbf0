"""Densities averaged over labellings are normalised, symmetric, and densities of their draws."""

from dataclasses import dataclass
from itertools import permutations

import numpy as np
import pytest

from pm_evidence.core.shape import Shape
from pm_evidence.references.mixture import Relabelled, StudentFit
from pm_evidence.targets.model.exchangeable import Relabelling

MAPS = np.array([np.eye(3)[list(order)] for order in permutations(range(3))])
RELABELLING = Relabelling(("mean",), MAPS)
FACTOR = np.array([[0.5, 0.0, 0.0], [0.2, 0.6, 0.0], [-0.1, 0.3, 0.4]])


@dataclass(frozen=True)
class Hidden:
    """A component that is not known to be a Student-t density."""

    fit: StudentFit

    def draw(self, n, rng):
        return self.fit.draw(n, rng)

    def log_density(self, x):
        return self.fit.log_density(x)


@pytest.mark.parametrize("dof", [9.0, np.inf])
@pytest.mark.parametrize("mean", [[-2.0, 0.0, 1.0], [0.3, 0.2, 0.1]])
def test_the_compiled_density_is_the_average(dof, mean):
    fit = StudentFit(Shape(np.array(mean), FACTOR), dof)
    x = np.random.default_rng(81).normal(0.0, 3.0, size=(200, 3))
    compiled = Relabelled(fit, RELABELLING).log_density(x)
    parts = [fit.log_density(x @ each.T) for each in MAPS]
    np.testing.assert_allclose(compiled, np.logaddexp.reduce(parts, axis=0) - np.log(6))
    np.testing.assert_allclose(Relabelled(Hidden(fit), RELABELLING).log_density(x), compiled)


def test_draws_have_this_density():
    fit = StudentFit(Shape(np.array([-0.7, 0.0, 0.4]), FACTOR), 9.0)
    density, rng = Relabelled(fit, RELABELLING), np.random.default_rng(83)
    x = density.draw(60_000, rng)
    assert np.abs(x.mean(axis=0) + 0.1).max() < 0.03
    # importance sampling of another normalised density
    other = StudentFit(Shape(np.zeros(3), 0.5 * np.eye(3)), np.inf)
    weight = np.exp(other.log_density(x) - density.log_density(x))
    assert abs(weight.mean() - 1.0) < 4 * weight.std() / len(x) ** 0.5 < 0.02


def test_aligned_draws_have_one_labelling():
    fit = StudentFit(Shape(np.array([-4.0, 0.0, 3.0]), 0.5 * FACTOR), 9.0)
    density, rng = Relabelled(fit, RELABELLING), np.random.default_rng(84)
    x = density.draw(1000, rng)
    aligned = density.aligned(x)
    np.testing.assert_allclose(np.sort(aligned, axis=1), np.sort(x, axis=1))
    assert (np.diff(aligned, axis=1) > 0).mean() > 0.99 > (np.diff(x, axis=1) > 0).mean()
