"""Approximations about the peak of many hyperparameters: right, or none."""

import numpy as np
import pymc as pm
import pytest
from scipy import stats
from scipy.special import logsumexp

import pm_evidence as pe
from pm_evidence.core.shape import learn_shape
from pm_evidence.paths.geometric import Posterior
from pm_evidence.samplers.conditional import ConditionalFits
from pm_evidence.samplers.nested_laplace import ascended, designed, explore, is_same_peak
from pm_evidence.targets.model.cache import target_of

SIZES = (8, 12, 20, 6)
SCALES = np.array([0.8, 0.4, 0.6, 0.3])


def groups(n, seed=0):
    """Return the group of every row in each classification, and the effects' sum."""
    rng = np.random.default_rng(seed)
    index = [rng.integers(0, size, n) for size in SIZES]
    effects = [scale * rng.normal(size=size) for scale, size in zip(SCALES, SIZES, strict=True)]
    return rng, index, sum(effect[i] for effect, i in zip(effects, index, strict=True))


def crossed(observe, index):
    """Return a model of crossed effects with a scale each, and with what is observed of them."""
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", 1, shape=len(SIZES))
        effect = pm.Normal("effect", 0, scale[np.repeat(np.arange(len(SIZES)), SIZES)])
        of_rows = np.stack(index, axis=1) + np.append(0, np.cumsum(SIZES[:-1]))
        observe(pm.Normal("intercept", 0, 3) + effect[of_rows].sum(axis=1))
    return model


@pytest.fixture(scope="module")
def normal():
    """Return a model of normal data with five scales, and its log evidence.

    The latter is an average over draws of the scales from a Student-t density about their peak, of
    the normal density of the data given these, which is known. Its error is below 0.01.
    """
    rng, index, total = groups(240)
    y = 1.0 + total + 0.6 * rng.normal(size=240)

    def observe(total):
        pm.Normal("y", total, pm.HalfNormal("noise", 1), observed=y)

    design = np.hstack([np.eye(size)[i] for size, i in zip(SIZES, index, strict=True)])
    design = np.column_stack([design, np.ones(len(y))])  # of all effects and the intercept
    squares, products = design.T @ design, design.T @ y

    def log_joint(log_scales):
        """The normal density of y by that of the 47 effects given y, whose matrices are small."""
        scales = np.exp(log_scales)
        variance, of_effects = scales[-1] ** 2, np.append(np.repeat(scales[:-1], SIZES), 3.0) ** 2
        factor = np.linalg.cholesky(np.diag(1.0 / of_effects) + squares / variance)
        z = np.linalg.solve(factor, products / variance)
        log_det = np.log(of_effects).sum() + 2.0 * np.log(np.diag(factor)).sum()
        log_likelihood = 0.5 * (z @ z - y @ y / variance - log_det)
        log_likelihood -= 0.5 * len(y) * np.log(2.0 * np.pi * variance)
        return log_likelihood + (stats.halfnorm.logpdf(scales) + log_scales).sum()

    peak = np.log([*SCALES, 0.6])
    deviations = np.array([0.3, 0.3, 0.25, 0.6, 0.06])
    for _ in range(2):
        density = stats.multivariate_t(peak, np.diag(deviations**2), df=5, seed=1)
        x = density.rvs(2500)
        log_weight = np.array([log_joint(each) for each in x]) - density.logpdf(x)
        weight = np.exp(log_weight - logsumexp(log_weight))
        peak = weight @ x
        deviations = np.sqrt(weight @ (x - peak) ** 2)
    error = np.sqrt((weight**2).sum() - 1.0 / len(x))
    assert error < 0.02
    return crossed(observe, index), logsumexp(log_weight) - np.log(len(x)), error


def fits_of(model, seed):
    """Return what makes approximations in centred coordinates, and draws of the prior."""
    target = target_of(model, reparameterise=True)
    posterior = Posterior(target.centred())
    positions = target.layout.positions_of(target.hyperparameters)
    prior = posterior.draw_prior(20, np.random.default_rng(seed))
    shape = learn_shape(prior, dense=False)
    return ConditionalFits(posterior, positions, shape, prior[:5]), prior


def test_ascents_lead_to_the_same_peak(normal):
    tops = []
    for seed in range(4):
        conditional, prior = fits_of(normal[0], seed)
        first = next(fit for x in prior if (fit := conditional.first(x)) is not None)
        tops.append(ascended(conditional, first))
    (peak, step), *others = tops
    assert all(is_same_peak(peak, other, step) for other, _ in others)
    apart = conditional.near(peak, peak.values + 2.0 * step)
    assert not is_same_peak(peak, apart, step)


def test_points_describe_a_normal_model(normal):
    model, exact, _ = normal
    conditional, prior = fits_of(model, 0)
    first = next(fit for x in prior if (fit := conditional.first(x)) is not None)
    design = designed(conditional, *ascended(conditional, first))
    assert design.is_even and design.covers_tails
    assert logsumexp(design.log_weight) == pytest.approx(exact, abs=0.3)
    assert conditional.n_evaluations < 20_000


@pytest.mark.slow
def test_the_evidence_of_many_hyperparameters_is_cheap_and_right(normal):
    model, exact, error = normal
    for seed in range(3):
        found = pe.sample_evidence(model, target_mcse=0.05, random_seed=seed, cores=1)
        found = found["log_evidence"]
        best = found.dataset.isel(estimator=0)
        assert best.status == "ok" and found.attrs["route"] == "importance"
        assert abs(best.value - exact) < 4.0 * np.hypot(best.mcse, error)
        assert found.attrs["n_evaluations"] < 40_000


@pytest.mark.slow
def test_a_long_tail_is_not_taken_for_a_normal_density():
    """Binary data say little of the scales: these may be zero, of which the points say nothing."""
    rng, index, total = groups(300)
    y = rng.binomial(1, 1.0 / (1.0 + np.exp(-total)))
    model = crossed(lambda total: pm.Bernoulli("y", logit_p=total, observed=y), index)
    with model:
        extra = pm.HalfNormal("extra", 1)
        pm.Potential("fifth", -0.5 * pm.Normal("one", 0, extra) ** 2)
    target = target_of(model, reparameterise=True)
    positions = target.layout.positions_of(target.hyperparameters)
    assert positions.size == 5
    found = explore(Posterior(target.centred()), positions, 2, 0, np.random.default_rng(1))
    assert not found.complete and not found.components and found.n_evaluations > 0
