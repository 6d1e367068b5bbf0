"""Exact values of the deceptive systems, and of pairs of models, by other computations."""

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import gammaln, logsumexp

from tests.systems import deceptive, pairs
from tests.systems.exact import deceptive_systems
from tests.systems.random_effects import poisson_glmm

SYSTEMS = deceptive_systems()


def joint(name, rows):
    """Log density of a model on the scale of its variables, without Jacobians."""
    model = SYSTEMS[name].build()
    logp = model.compile_logp(jacobian=False)
    (value,) = model.value_vars
    transform = model.rvs_to_transforms[model.free_RVs[0]]
    points = [row if transform is None else np.log((row + 0.5) / (0.5 - row)) for row in rows]
    return np.array([logp({value.name: point}) for point in points])


@pytest.mark.parametrize("name", [name for name in SYSTEMS if "widths" in name])
def test_modes(name):
    """Prior times likelihood over the exact posterior is the evidence, at every point."""
    case = deceptive._MODES[name]
    rng = np.random.default_rng(1)
    sds, centres = np.array(case.sds), np.array(case.centres)
    precision = 1 / sds**2 + 1 / case.prior_sd**2
    means, spread = centres / sds**2 / precision, precision**-0.5
    overlap = stats.norm.logpdf(centres, 0, np.hypot(sds, case.prior_sd))
    log_share = np.log(case.weights) + case.dims * overlap
    log_share -= logsumexp(log_share)
    rows = rng.normal(means[0], 2.0, (10, case.dims))
    parts = stats.norm.logpdf(rows[:, None], means[:, None], spread[:, None]).sum(axis=2)
    log_posterior = logsumexp(parts + log_share, axis=1)
    np.testing.assert_allclose(joint(name, rows) - log_posterior, SYSTEMS[name].log_evidence)


@pytest.mark.parametrize("name", ["spike_20", "spike_5"])
def test_spikes(name):
    """The density is that of a slab and a spike, and the cube cuts off next to nothing."""
    case = deceptive._SPIKES[name]
    rows = np.random.default_rng(2).normal(case.centre, 0.02, (10, case.dims))
    slab = stats.norm.logpdf(rows, 0, 0.1).sum(axis=1)
    spike = np.log(case.weight) + stats.norm.logpdf(rows, case.centre, case.spike_sd).sum(axis=1)
    np.testing.assert_allclose(joint(name, rows), np.logaddexp(slab, spike))
    assert SYSTEMS[name].log_evidence == pytest.approx(np.log1p(case.weight), abs=1e-4)


@pytest.mark.slow
def test_banana():
    """A sum over a grid of the joint density, which is smooth along and across the ridge."""
    model = SYSTEMS["banana"].build()
    logp = model.compile_logp(jacobian=False)
    across = np.linspace(-0.3, 0.3, 61)  # from the ridge, eight standard deviations each way
    along = np.linspace(-9.0, 9.0, 181)
    joint = [[logp({"a": a, "b": 1.01 + a**2 + d}) for d in across] for a in along]
    step = (across[1] - across[0]) * (along[1] - along[0])
    total = logsumexp(joint) + np.log(step)
    assert SYSTEMS["banana"].log_evidence == pytest.approx(total, abs=1e-6)


def test_separated():
    """A sum over a fine grid of the angles of one coefficient; the three are alike."""
    model = SYSTEMS["separated"].build()
    logp = model.compile_logp(jacobian=False)
    angles = (np.arange(400) + 0.5) / 400 * np.pi - np.pi / 2
    b = 2.5 * np.tan(angles)
    log_jacobian = -stats.cauchy(0, 2.5).logpdf(b)
    zero = logp({"b": np.zeros(3)})
    one = logsumexp([logp({"b": np.array([x, 0.0, 0.0])}) for x in b] + log_jacobian)
    others = 2.0 / 3.0 * zero  # the density of the two that are zero
    found = 3 * (one - np.log(400) - others)
    assert SYSTEMS["separated"].log_evidence == pytest.approx(found, abs=1e-3)


def test_horseshoe():
    """The mean likelihood of 400,000 draws from the prior, within 4 errors. Seed 3."""
    rng = np.random.default_rng(3)
    scale = np.abs(rng.standard_cauchy((400_000, 1)) * rng.standard_cauchy((400_000, 3)))
    likelihood = stats.norm.pdf([0.05, -0.1, 3.0], 0.0, np.hypot(0.2, scale)).prod(axis=1)
    exact, error = np.exp(SYSTEMS["horseshoe"].log_evidence), likelihood.std() / 400_000**0.5
    assert likelihood.mean() == pytest.approx(exact, abs=4 * error)
    logp = SYSTEMS["horseshoe"].build().compile_logp()
    at = {"tau_log__": 0.1, "local_log__": np.zeros(3), "beta": np.ones(3)}
    scales = stats.halfcauchy.logpdf(np.exp(0.1)) + 0.1 + 3 * stats.halfcauchy.logpdf(1.0)
    rest = stats.norm.logpdf(1.0, 0.0, np.exp(0.1)) * 3
    rest += stats.norm.logpdf([0.05, -0.1, 3.0], 1.0, 0.2).sum()
    assert logp(at) == pytest.approx(scales + rest)


@pytest.mark.slow
def test_one_way():
    """A sum over a grid of the multivariate normal density of all data."""
    group, y = deceptive.funnel_data()
    same = (group[:, None] == group).astype(float)
    log_tau, log_sigma = np.linspace(-14, 7, 106), np.linspace(-1.6, 2.0, 73)
    total = np.empty((log_tau.size, log_sigma.size))
    for i, tau in enumerate(np.exp(log_tau)):
        for j, sigma in enumerate(np.exp(log_sigma)):
            cov = 100.0 + tau**2 * same + sigma**2 * np.eye(len(y))
            total[i, j] = stats.multivariate_normal.logpdf(y, cov=cov)
            total[i, j] += stats.halfcauchy.logpdf([tau, sigma], scale=2.0).sum()
    total += log_tau[:, None] + log_sigma
    step = np.log(np.diff(log_tau)[0] * np.diff(log_sigma)[0])
    for name in ("one_way_centred", "one_way_noncentred"):
        assert SYSTEMS[name].log_evidence == pytest.approx(logsumexp(total) + step, abs=1e-4)


def test_many_means():
    """A sum over a grid of the product of normal densities, the common mean integrated out."""
    y = deceptive.means_data()
    log_tau = np.linspace(-8.0, 1.5, 400)
    terms = []
    for tau in np.exp(log_tau):
        variance = 1.0 + tau**2
        rest = stats.norm.logpdf(y, y.mean(), variance**0.5).sum()
        rest += 0.5 * np.log(2 * np.pi * variance / y.size)
        of_mean = stats.norm.logpdf(y.mean(), 0, np.hypot(5.0, (variance / y.size) ** 0.5))
        terms.append(rest + of_mean + stats.halfnorm.logpdf(tau, scale=2.0) + np.log(tau))
    exact = logsumexp(terms) + np.log(np.diff(log_tau)[0])
    assert SYSTEMS["many_means"].log_evidence == pytest.approx(exact, abs=1e-6)


def test_random_effects_are_integrated_unit_by_unit():
    """The Poisson mixed model on a grid of intercept and scale, and of each unit's effect.

    These are trapezoids with a step of 0.2, whose error in such smooth densities is far below 1e-4
    nats.
    """
    counts = np.array([3, 1, 4, 0, 0, 1, 9, 12, 7, 2, 2, 5, 1, 0, 0, 6, 3, 8])
    exposure = np.array([1, 0.5, 1.5, 1, 0.5, 1, 2, 2, 1, 1, 0.5, 1.5, 1, 1, 0.5, 1, 0.5, 2])
    step = 0.2
    b, log_s, z = (np.arange(low, high, step) for low, high in ((-5, 5), (-9, 1.9), (-8, 8)))
    effect = b[:, None, None] + np.exp(log_s)[:, None] * z
    total = stats.norm.logpdf(b, 0, 1.5)[:, None] + stats.halfnorm.logpdf(np.exp(log_s)) + log_s
    weight = stats.norm.logpdf(z) + np.log(step)
    for y, e in zip(counts.reshape(6, 3).sum(1), exposure.reshape(6, 3).sum(1), strict=True):
        rate = np.exp(np.minimum(effect, 50.0))
        total = total + logsumexp(y * effect - e * rate + weight, axis=-1)
    constant = (counts * np.log(exposure) - gammaln(counts + 1)).sum()
    found = logsumexp(total) + constant + 2.0 * np.log(step)
    # the scale below exp(-9) is left out: 1e-4 of the prior
    assert poisson_glmm().log_evidence == pytest.approx(found, abs=5e-4)


# --- pairs of models ---


def test_all_pairs_are_pairs_of_models_of_the_same_data():
    for pair in pairs.model_pairs().values():
        first, second = pair.build()
        assert np.isfinite(pair.log_bf) and first is not second
        data = [m.rvs_to_values[m["y"]].data for m in (first, second)]
        np.testing.assert_array_equal(*data)


def test_counts():
    def density(rate, of_counts):
        likelihood = of_counts(pairs._COUNTS, rate).prod()
        return likelihood * stats.gamma.pdf(rate, 2.0, scale=2.0)

    def geometric_pmf(k, rate):
        return rate**k / (1 + rate) ** (k + 1)

    poisson, geometric = (
        integrate.quad(density, 0, 60, args=(pmf,), epsabs=0.0, limit=200)[0]
        for pmf in (stats.poisson.pmf, geometric_pmf)
    )
    exact = pairs.model_pairs()["count_likelihood"].log_bf
    assert np.log(poisson / geometric) == pytest.approx(exact, abs=1e-6)


def test_logistic_regression_of_one_covariate():
    def density(b, a):
        return np.exp(pairs._log_joint(np.array([[a, b]]))[0] + 45.0)

    found = integrate.dblquad(density, -4, 4, -4, 6, epsabs=1e-8)[0]
    assert np.log(found) - 45.0 == pytest.approx(pairs._log_logistic(2), abs=1e-5)


def test_groups_by_importance_sampling():
    """Means of the likelihood over prior draws of the scales near where it is large."""
    rng = np.random.default_rng(1)
    between, within = rng.uniform(0.05, 0.6, 4000), rng.uniform(0.55, 0.85, 4000)
    fixed = np.column_stack([np.full(pairs._GROUP.size, 3.0), pairs._BASEMENT])
    groups = np.eye(40)[pairs._GROUP]
    value = [
        pairs._log_marginal(np.hstack([fixed, b * groups]), w)
        for b, w in zip(between, within, strict=True)
    ]
    value = value + pairs._log_half_normal(between, 0.5) + pairs._log_half_normal(within, 1.0)
    found = pairs._log_sum(value) - np.log(4000) + np.log(0.55 * 0.3)
    assert found == pytest.approx(pairs._log_grouped(covariate=False), abs=0.15)
