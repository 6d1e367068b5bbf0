"""The evidence of a compiled target in one call: that of `sample_evidence`, without its result."""

import numpy as np
import pymc as pm
import pytest
from scipy.stats import multivariate_normal

from pm_evidence.runs.repeated import evidence_of
from pm_evidence.targets.model.cache import target_of

pytestmark = pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")


def test_it_is_the_exact_evidence_and_the_seed_counts():
    y = np.array([0.5, 1.5])
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 1.0)
        pm.Normal("y", mu, 1.0, observed=y)
    target = target_of(model, reparameterise=True)
    found = [evidence_of(target, 0.1, 1, seed) for seed in (1, 1, 2)]
    exact = multivariate_normal(np.zeros(2), np.eye(2) + 1.0).logpdf(y)
    assert found[0] == found[1] != found[2]
    assert all(abs(each.value - exact) < 4 * each.mcse and each.status == "ok" for each in found)
