"""A mixture of Student-t densities: normalised, drawn from exactly, and well fitted."""

import numpy as np
from scipy import stats

from pm_evidence.core.shape import Shape
from pm_evidence.references.mixture import (
    StudentFit,
    StudentMixture,
    fit_components,
    student_dof,
    widened,
    with_wide,
)


def two_parts():
    near = StudentFit(Shape(np.zeros(2), np.eye(2)), 9)
    far = StudentFit(Shape(np.array([4.0, -1.0]), np.array([[0.5, 0.0], [0.3, 0.2]])), 9)
    return StudentMixture.of([near, far], np.log([3.0, 1.0]))


def test_density_is_that_of_scipy():
    x = np.random.default_rng(1).normal(size=(50, 2), scale=3.0)
    expected = 0.0
    for part, weight in zip(two_parts().components, (0.75, 0.25), strict=True):
        scale = part.shape.factor @ part.shape.factor.T
        expected += weight * stats.multivariate_t(part.shape.mean, scale, part.dof).pdf(x)
    np.testing.assert_allclose(two_parts().log_density(x), np.log(expected), rtol=1e-10)


def test_components_of_no_weight_are_left_out():
    mixture = two_parts().reweighted(np.array([1.0, 1e-9]))
    assert len(mixture.components) == 1
    np.testing.assert_allclose(np.exp(mixture.log_weight).sum(), 1.0)


def test_components_fit_what_one_cannot():
    """Two distant clusters, seed 4: the mean log density rises by more than a nat."""
    rng = np.random.default_rng(4)
    x = np.concatenate([rng.normal(-5, 1, (600, 3)), rng.normal(5, 0.5, (600, 3))])
    parts = fit_components(x, 2, rng)
    mixture = StudentMixture.of(parts, np.zeros(2))
    assert mixture.log_density(x).mean() > StudentFit.to(x).log_density(x).mean() + 1.0
    centres = sorted(part.shape.mean.mean() for part in parts)
    np.testing.assert_allclose(centres, [-5.0, 5.0], atol=0.3)
    assert all(part.dof == student_dof(3) for part in parts)


def test_a_wide_component_bounds_the_weights():
    """A density with lighter tails than the target has weights without a variance."""
    near, far = two_parts().components
    mixture = with_wide([near, far], np.log([3.0, 1.0]), widened(near))
    np.testing.assert_allclose(np.exp(mixture.log_weight), [0.7125, 0.2375, 0.05])
    wide = mixture.components[-1]
    assert wide.dof < near.dof
    np.testing.assert_allclose(wide.shape.factor, 1.5 * near.shape.factor)
    x = np.random.default_rng(3).normal(size=(20, 2), scale=5.0)
    assert (mixture.log_density(x) >= wide.log_density(x) + np.log(0.05) - 1e-12).all()
