"""The number of particles at each stage for which the variance of log Z is least."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pm_evidence.schedules import optimal_allocation


def test_theorem():
    """Eq. 6 and 7 of Fraccaro et al. (2016) are wrong otherwise."""
    found = optimal_allocation([0.04, 0.36], 1000)
    assert np.allclose(found.particles, [250.0, 750.0])
    assert np.isclose(found.variance, (0.2 + 0.6) ** 2 / 1000.0)


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=20), st.integers(0, 2**32 - 1))
def test_no_other_allocation_is_better(variance, seed):
    """The optimum would not be one."""
    found = optimal_allocation(variance, 100.0)
    assert np.isclose(found.particles.sum(), 100.0)
    assert np.isclose((variance / found.particles).sum(), found.variance)
    other = 100.0 * np.random.default_rng(seed).dirichlet(np.ones(len(variance)))
    assert (variance / np.maximum(other, 1e-300)).sum() >= found.variance * (1.0 - 1e-9)


def test_stages_without_variance():
    """Zero over zero would be a number of particles."""
    assert np.array_equal(optimal_allocation([0.0, 0.0], 10).particles, [5.0, 5.0])


@pytest.mark.parametrize("variance", [[-1.0], [np.nan], [np.inf, 1.0], [], [[1.0]]])
def test_wrong_variances_are_refused(variance):
    """They would become numbers of particles."""
    with pytest.raises(ValueError, match="variance must be one number of at least 0"):
        optimal_allocation(variance, 10)


def test_wrong_numbers_are_refused():
    """Negative particles would be allocated."""
    with pytest.raises(ValueError, match="n_particles must be"):
        optimal_allocation([1.0], 0)
