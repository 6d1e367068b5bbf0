"""Scales whose priors contradict the data: effects or noise explain these, at two peaks."""

from functools import cache

import numpy as np
import pymc as pm
import pytest
from scipy import stats
from scipy.special import logsumexp

import pm_evidence as pe
from tests.repeated_runs import repeat_model

pytestmark = pytest.mark.slow

N_GROUPS, N_EACH = 6, 5
EFFECTS = np.random.default_rng(1).normal(size=N_GROUPS)
Y = EFFECTS[:, None] + 0.3 * np.random.default_rng(2).normal(size=(N_GROUPS, N_EACH))
LOG_EFFECTS, LOG_NOISE = np.linspace(-11.0, 4.0, 91), np.linspace(-5.0, 3.0, 81)
MEANS, PLACES = np.linspace(-3.0, 3.0, 81), np.linspace(-5.0, 5.0, 801)


def of_groups(shape, scale, dof):
    """Return a model of groups, the variance of which is expected to be tiny."""
    with pm.Model() as model:
        between, within = pm.InverseGamma("between", shape, scale), pm.InverseGamma("within", 1, 1)
        mean = pm.Normal("mean", 0, 1)
        effect = pm.Normal("effect", mean, pm.math.sqrt(between), shape=N_GROUPS)
        sd = pm.math.sqrt(within)
        if np.isinf(dof):
            pm.Normal("y", effect[:, None], sd, observed=Y)
        else:
            pm.StudentT("y", dof, effect[:, None], sigma=sd, observed=Y)
    return model


@cache
def log_density(shape, scale, dof):
    """Return the log density of the variances on a grid, by quadrature over mean and effects."""
    density = stats.norm() if np.isinf(dof) else stats.t(dof)
    noise = np.exp(0.5 * LOG_NOISE)[:, None, None]
    apart = Y[:, :, None] - PLACES
    likelihood = [density.logpdf(apart / sd).sum(axis=1) - N_EACH * np.log(sd) for sd in noise]
    found = np.empty((LOG_EFFECTS.size, LOG_NOISE.size))
    for i, spread in enumerate(np.exp(0.5 * LOG_EFFECTS)):
        of_group = narrow if spread < 0.2 else wide
        for j, each in enumerate(likelihood):
            total = of_group(each, spread).sum(axis=0) + stats.norm.logpdf(MEANS)
            found[i, j] = logsumexp(total) + np.log(MEANS[1] - MEANS[0])
    prior = stats.invgamma(shape, scale=scale).logpdf(np.exp(LOG_EFFECTS)) + LOG_EFFECTS
    of_noise = stats.invgamma(1, scale=1).logpdf(np.exp(LOG_NOISE)) + LOG_NOISE
    return found + prior[:, None] + of_noise


def narrow(log_likelihood, spread):
    """Return the log likelihood of every group given the mean, for effects near it."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(12)
    at = MEANS[:, None] + spread * nodes
    there = np.array([np.interp(at, PLACES, row) for row in log_likelihood])
    return logsumexp(there, axis=2, b=weights / np.sqrt(2 * np.pi))


def wide(log_likelihood, spread):
    """Return the log likelihood of every group given the mean, by the trapezoidal rule."""
    weights = stats.norm.pdf(PLACES, MEANS[:, None], spread) * (PLACES[1] - PLACES[0])
    top = log_likelihood.max(axis=1)[:, None]
    return np.log(np.exp(log_likelihood - top) @ weights.T + 1e-300) + top


def exact(shape, scale, dof):
    cell = (LOG_EFFECTS[1] - LOG_EFFECTS[0]) * (LOG_NOISE[1] - LOG_NOISE[0])
    return logsumexp(log_density(shape, scale, dof)) + np.log(cell)


def n_peaks(shape, scale, dof):
    profile = logsumexp(log_density(shape, scale, dof), axis=1)
    inner = profile[1:-1]
    return np.count_nonzero((inner > profile[:-2]) & (inner >= profile[2:]))


@pytest.mark.parametrize(("shape", "scale"), [(3, 0.002), (2, 0.0005)])
def test_both_peaks_are_found_where_the_posterior_is_concave_given_the_scales(shape, scale):
    """Few prior draws, and none of the chains that start from them, reach the second peak."""
    assert n_peaks(shape, scale, np.inf) == 2
    value = exact(shape, scale, np.inf)
    runs = repeat_model(of_groups(shape, scale, np.inf), value, range(3), cores=1, target_mcse=0.05)
    assert runs.ok.all() and runs.beyond(4.0) == 0.0


@pytest.mark.filterwarnings("ignore::pm_evidence.core.exceptions.EvidenceWarning")
@pytest.mark.parametrize(("shape", "scale"), [(3, 0.01), (2, 0.0005)])
def test_other_posteriors_are_right_or_not_ok(shape, scale):
    """Annealing from the prior ends at the first peak. A survey finds the second one.

    Further draws would not change that: the run ends.
    """
    assert n_peaks(shape, scale, 5.0) == 2
    value = exact(shape, scale, 5.0)
    for seed in range(3):
        dt = pe.sample_evidence(
            of_groups(shape, scale, 5.0), target_mcse=0.05, random_seed=seed, progressbar=False
        )
        best = pe.log_evidence(dt)
        assert best.status != "ok" or abs(best.value - value) < 5.0 * best.mcse


def test_many_scales():
    """One of four classifications has effects, which no prior draw of its scale allows."""
    rng = np.random.default_rng(1)
    n, group = 60, rng.integers(0, 6, (4, 60))
    y = 0.8 * rng.normal(size=6)[group[1]] + 0.3 * rng.normal(size=n)
    with pm.Model() as model:
        total = 0.0
        for k, index in enumerate(group):
            variance = pm.InverseGamma(f"variance{k}", 3, 0.002)
            effect = pm.Normal(f"effect{k}", 0, pm.math.sqrt(variance), shape=6)
            total = total + effect[index]
        pm.Normal("y", total, pm.math.sqrt(pm.InverseGamma("noise", 1, 1)), observed=y)
    value, error = by_importance_sampling(group, y)
    for seed in range(2):
        dt = pe.sample_evidence(model, target_mcse=0.05, random_seed=seed, progressbar=False)
        best = pe.log_evidence(dt)
        assert best.status == "ok"
        assert abs(best.value - value) < 4.0 * np.hypot(best.mcse, error)


def by_importance_sampling(group, y, n=6000):
    """Return the log evidence from draws of the log variances, of which the likelihood is known."""
    from scipy.optimize import minimize

    squares = [(index[:, None] == index).astype(float) for index in group]
    prior, noise = stats.invgamma(3, scale=0.002), stats.invgamma(1, scale=1)

    def log_density(x):
        variance = np.exp(x)
        covariance = variance[4] * np.eye(y.size)
        covariance += sum(v * square for v, square in zip(variance[:4], squares, strict=True))
        factor = np.linalg.cholesky(covariance)
        scaled = np.linalg.solve(factor, y)
        found = -0.5 * (y.size * np.log(2 * np.pi) + scaled @ scaled)
        found -= np.log(np.diag(factor)).sum()
        return found + prior.logpdf(variance[:4]).sum() + noise.logpdf(variance[4]) + x.sum()

    start = np.array([-7.0, -1.0, -7.0, -7.0, -2.0])
    peak = minimize(lambda x: -log_density(x), start, method="BFGS")
    fitted = stats.multivariate_t(peak.x, 1.5 * peak.hess_inv, df=6)
    draws = fitted.rvs(n, random_state=1)
    log_weight = np.array([log_density(x) for x in draws]) - fitted.logpdf(draws)
    weight = np.exp(log_weight - log_weight.max())
    value = np.log(weight.mean()) + log_weight.max()
    return value, weight.std() / weight.mean() / np.sqrt(n)
