"""Mixtures whose components can be relabelled: one density for all labellings."""

from itertools import product

import numpy as np
import pymc as pm
import pytest
from scipy.special import gammaln, logsumexp
from scipy.stats import multivariate_normal

import pm_evidence as pe

pytestmark = pytest.mark.slow

DATA = np.array([-3.1, -2.5, -2.0, 0.3, 0.8, 2.9, 3.4, 4.1])
SD, PRIOR_SD = 0.7, 3.0


@pytest.fixture(scope="module")
def three():
    """Three normals of known variance."""
    with pm.Model() as model:
        weight = pm.Dirichlet("weight", np.ones(3))
        mean = pm.Normal("mean", 0.0, PRIOR_SD, shape=3)
        pm.NormalMixture("y", weight, mean, SD, observed=DATA)
    return model


@pytest.fixture(scope="module")
def exact():
    """The sum over all assignments of data to components, in which all else is integrated out."""
    log_marginal = {}
    for members in product([False, True], repeat=len(DATA)):
        y = DATA[list(members)]
        covariance = SD**2 * np.eye(len(y)) + PRIOR_SD**2
        log_marginal[members] = multivariate_normal.logpdf(y, cov=covariance) if len(y) else 0.0
    terms = []
    for labels in product(range(3), repeat=len(DATA)):
        members = [tuple(label == k for label in labels) for k in range(3)]
        counts = np.array([sum(each) for each in members])
        log_prior = gammaln(3) - gammaln(3 + len(DATA)) + gammaln(1 + counts).sum()
        terms.append(log_prior + sum(log_marginal[each] for each in members))
    return logsumexp(terms)


def test_one_density_for_all_labellings(three, exact):
    dt = pe.sample_evidence(three, target_mcse=0.05, cores=1, random_seed=5, progressbar=False)
    found, attrs = pe.log_evidence(dt), dt["log_evidence"].attrs
    assert attrs["relabelled"] == "weight, mean" and attrs["route"] == "importance"
    assert found.status == "ok" and found.mcse <= 0.05
    assert abs(found.value - exact) < 3 * found.mcse
    # without the labels, several times as much is needed
    assert attrs["n_evaluations"] < 20_000
    # draws have all labellings, equally often
    order = np.argsort(dt["posterior"]["mean"].values.reshape(-1, 3), axis=1)
    share = np.bincount(order @ [9, 3, 1], minlength=27) / len(order)
    share = share[share > 0]
    assert len(share) == 6 and share.min() > 0.08 and share.max() < 0.3


@pytest.mark.parametrize("target_mcse", [0.05, 0.02])
def test_coverage(three, exact, target_mcse):
    given = {"target_mcse": target_mcse, "cores": 1, "progressbar": False}
    found = [pe.log_evidence(pe.sample_evidence(three, random_seed=s, **given)) for s in range(60)]
    assert all(each.status == "ok" for each in found)
    z = np.array([(each.value - exact) / each.mcse for each in found])
    assert np.mean(np.abs(z) < 2.0) >= 0.87 and np.abs(z).max() < 4.0
