"""Second derivatives by differences: exact where the density is normal, and none is overlooked."""

import numpy as np
import pymc as pm
import pytest

from pm_evidence.paths.geometric import Posterior
from pm_evidence.samplers.conditional import STEP, Differences
from pm_evidence.targets.model.cache import target_of

M = 30


def coupled(depends_on_length):
    """Values that are independent where their length is short."""
    with pm.Model() as model:
        log_length = pm.Normal("log_length", 0, 2)
        f = pm.Normal("f", 0, 1, shape=M)
        coupling = pm.math.exp(-pm.math.exp(-2.0 * log_length)) if depends_on_length else 0.0
        pm.Potential("together", -0.5 * coupling * f.sum() ** 2)
        pm.Poisson("y", pm.math.exp(f), observed=np.ones(M, int))
    return Posterior(target_of(model))


def measured(posterior, log_length):
    """Return differences and the second derivatives by ``f`` at a length."""
    x = np.zeros(M + 1)
    x[0] = log_length
    differences = Differences(posterior)
    steps = STEP * np.eye(M + 1)[1:]
    change = differences.change(x, differences.height(x)[1], steps)[:, 1:] / STEP
    return differences, change


def test_differences_of_gradients():
    differences, matrix = measured(coupled(True), 1.0)
    expected = -2.0 * np.eye(M) - np.exp(-np.exp(-2.0))
    np.testing.assert_allclose(matrix, expected, atol=1e-2)
    assert differences.n_evaluations == M + 1


@pytest.mark.parametrize("depends_on_length", [True, False])
def test_none_is_overlooked_that_is_zero_at_one_point(depends_on_length):
    """At the first point, where the length is short, all derivatives off the diagonal are zero."""
    posterior = coupled(depends_on_length)
    differences, matrix = measured(posterior, -4.0)
    assert np.abs(matrix - np.diag(np.diag(matrix))).max() < 1e-9 * np.abs(matrix).max()
    tests = posterior.draw_prior(5, np.random.default_rng(1))
    before = differences.n_evaluations
    found = differences.sparsity(matrix, np.arange(1, M + 1), np.ones(M), tests)
    assert (found is None) is depends_on_length
    if found is not None:
        assert found.n_groups == 1 and differences.n_evaluations - before == 5 * 3
