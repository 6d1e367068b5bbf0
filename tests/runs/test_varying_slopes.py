"""Intercepts and slopes of groups with an LKJ prior of their covariance, in two forms."""

import numpy as np
import pymc as pm
import pytest
from scipy import stats
from scipy.special import logsumexp

import pm_evidence as pe
from tests.repeated_runs import repeat_model

pytestmark = pytest.mark.slow

N_GROUPS, N_EACH, SIGMA, ETA = 10, 30, 0.5, 2.0
GROUP = np.repeat(np.arange(N_GROUPS), N_EACH)
RNG = np.random.default_rng(1)
X = RNG.normal(size=GROUP.size)
SLOPES = RNG.multivariate_normal([0.5, -0.3], [[0.64, 0.16], [0.16, 0.25]], size=N_GROUPS)
Y = SLOPES[GROUP, 0] + SLOPES[GROUP, 1] * X + SIGMA * RNG.normal(size=GROUP.size)


def build(*, centred):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 1.0, shape=2)
        sds = pm.HalfNormal.dist(1.0, shape=2)
        chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=ETA, sd_dist=sds)
        if centred:
            theta = pm.MvNormal("theta", mu, chol=chol, shape=(N_GROUPS, 2))
        else:
            noise = pm.Normal("noise", 0.0, 1.0, shape=(N_GROUPS, 2))
            theta = pm.Deterministic("theta", mu + noise @ chol.T)
        pm.Normal("y", theta[GROUP, 0] + theta[GROUP, 1] * X, SIGMA, observed=Y)
    return model


def exact(n=50):
    """Quadrature over standard deviations and correlation; all else is normal."""
    node, weight = np.polynomial.legendre.leggauss(n)
    sd, log_weight_sd = 2.5 * (node + 1.0), np.log(2.5 * weight)
    log_sd = stats.halfnorm.logpdf(sd) + log_weight_sd
    log_rho = stats.beta.logpdf((node + 1.0) / 2.0, ETA, ETA) - np.log(2.0) + np.log(weight)
    design = np.stack([np.ones_like(X), X], axis=1).reshape(N_GROUPS, N_EACH, 2)
    gram = design.swapaxes(1, 2) @ design / SIGMA**2
    pull = np.einsum("jni,jn->ji", design, Y.reshape(N_GROUPS, N_EACH)) / SIGMA**2
    terms = []
    for one, log_one in zip(sd, log_sd, strict=True):
        two, rho = np.meshgrid(sd, node, indexing="ij")
        covariance = np.empty((n, n, 1, 2, 2))
        covariance[..., 0, 0], covariance[..., 1, 1] = one**2, two[..., None] ** 2
        covariance[..., 0, 1] = covariance[..., 1, 0] = (rho * one * two)[..., None]
        prior = np.linalg.inv(covariance)
        inverse = np.linalg.inv(prior + gram)
        log_z = 0.5 * N_GROUPS * np.linalg.slogdet(prior[:, :, 0])[1]
        log_z -= 0.5 * np.linalg.slogdet(prior + gram)[1].sum(axis=2)
        log_z += 0.5 * np.einsum("ji,abjik,jk->ab", pull, inverse, pull)
        # the common mean, whose prior is standard normal
        smoothed = prior @ inverse
        linear = np.einsum("abjik,jk->abi", smoothed, pull)
        precision = (prior - smoothed @ prior).sum(axis=2) + np.eye(2)
        log_z -= 0.5 * np.linalg.slogdet(precision)[1]
        log_z += 0.5 * (linear * np.linalg.solve(precision, linear[..., None])[..., 0]).sum(axis=2)
        terms.append(log_z + log_one + log_sd[:, None] + log_rho)
    constant = -0.5 * Y.size * np.log(2 * np.pi * SIGMA**2) - 0.5 * (Y @ Y) / SIGMA**2
    return constant + logsumexp(terms)


@pytest.fixture(scope="module")
def exact_value():
    value = exact()
    assert exact(40) == pytest.approx(value, abs=1e-3)
    return value


@pytest.mark.parametrize("centred", [True, False])
def test_both_forms_are_right(exact_value, centred):
    """They cost about the same."""
    given = {"target_mcse": 0.05, "cores": 1, "random_seed": 2, "progressbar": False}
    dt = pe.sample_evidence(build(centred=centred), **given)
    best, attrs = pe.log_evidence(dt), dt["log_evidence"].attrs
    assert best.status == "ok" and abs(best.value - exact_value) < 3.0 * best.mcse
    assert attrs["n_evaluations"] < 40_000 and attrs["route"] == "importance"
    assert attrs["marginalised"]
    # draws come back in the variables of the model
    assert dt["posterior"]["theta"].shape[2:] == (N_GROUPS, 2)


@pytest.mark.parametrize(("centred", "target_mcse"), [(True, 0.05), (True, 0.02), (False, 0.05)])
def test_coverage(exact_value, centred, target_mcse):
    model, options = build(centred=centred), {"target_mcse": target_mcse, "cores": 1}
    found = repeat_model(model, exact_value, range(60), **options)
    assert found.ok.mean() >= 0.95 and found.coverage >= 0.87
    assert np.abs(found.z).max() < 4.0
