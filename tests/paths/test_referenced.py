"""The path from a reference: kernels leave it invariant, and its end is the posterior."""

from functools import cache

import numpy as np
import pytest

import pm_evidence as pe
from pm_evidence.kernels.cycle import choose_kernel
from pm_evidence.paths.geometric import ReferencedPath
from pm_evidence.references.mixture import StudentMixture
from pm_evidence.references.target import ReferencedTarget
from pm_evidence.targets.model.cache import target_of
from pm_evidence.testing import check_kernel
from tests.references.densities import InPython
from tests.systems.exact import exact_systems

WIDE = pe.references.StudentT([0.5, 0.5], [3.0, 3.0], dof=6)


@cache
def compiled(name):
    return target_of(exact_systems()[name].build())


def path_of(reference, name="gaussian_2", **kwargs):
    return ReferencedPath(ReferencedTarget(compiled(name), reference, **kwargs))


@pytest.mark.parametrize("kernel", ["hmc", "random_walk"])
def test_kernels_leave_it_invariant(kernel):
    """A kernel that distorts the densities between reference and posterior biases the evidence."""
    path = path_of(WIDE)
    check_kernel(choose_kernel(path.target, kernel), path)


def test_kernels_leave_it_invariant_with_an_object_of_the_users_own():
    """The function in Python is called from compiled loops."""
    path = path_of(InPython(WIDE))
    check_kernel(choose_kernel(path.target), path, n=500)


def test_densities_between():
    """Weights at the stages would be those of another path. A tenth of it begins at the prior."""
    path = path_of(WIDE)
    state = path.draw(50, np.random.SeedSequence(1))
    posterior = path.posterior().log_density(state.x)
    prior = path.target.model.evaluate(state.x).log_density[:, 0]
    reference = np.logaddexp(np.log(0.9) + WIDE.log_density(state.x), np.log(0.1) + prior)
    expected = 0.5 * (posterior - reference)
    np.testing.assert_allclose(path.log_ratio(state, 0.25, 0.75), expected, rtol=1e-9)


def test_the_posterior_is_that_of_the_model():
    """The survey would search in draws from the reference, which may miss a mode."""
    path = path_of(WIDE)
    posterior = path.posterior()
    assert posterior.target is path.target.model
    mixed = path_of(pe.references.Normal([0.0], [1.0]), "spike_and_slab")
    assert mixed.posterior() is None  # there are discrete coordinates


def test_what_is_known_from_the_prior():
    """A density of some of the coordinates cannot be a part of the proposal."""
    known = StudentMixture.of([WIDE.fitted], np.zeros(1))
    assert path_of(WIDE, known=known).known is known
    assert path_of(WIDE).known is None
    one = pe.references.Normal([0.0], [1.0])
    mixture = StudentMixture.of([one.fitted], np.zeros(1))
    assert path_of(one, "spike_and_slab", known=mixture).known is None
