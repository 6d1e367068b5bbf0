"""Group effects with likelihoods that are not normal, and item response.

References: quadrature over the effect of each group, then importance sampling of the few
parameters that are left.
"""

from functools import cache

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from scipy.special import betaln, gammaln, log_expit, logsumexp

from pm_evidence.testing.systems import log_integral, log_normal
from tests.systems.random_effects import build_poisson_glmm_explicit, poisson_glmm

from .case import Case, Reference
from .importance import evidence_at_mode

__all__ = ["CASES"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Equal steps: the error of this rule falls exponentially for a smooth integrand that ends in zero.
_NODES = np.linspace(-6.5, 6.5, 53)
_LOG_WEIGHTS = log_normal(_NODES, 0.0, 1.0) + np.log(_NODES[1] - _NODES[0])

_PEOPLE, _ITEMS, _DIFFICULTY_SD = 200, 39, 2.0
_CUTS_SD = 3.0
_GROUPS, _TRIALS, _MEAN_SD = 500, 6, 1.5


def _log_half_normal(log_scale: Floats, width: float) -> Floats:
    """Log prior density of the log of a scale."""
    return np.log(2) + log_normal(np.exp(log_scale), 0.0, width) + log_scale


def log_groups(log_terms: Floats, n_groups: int) -> Floats:
    """Return the log marginal of rows that are sorted by groups of equal size.

    ``log_terms`` has shape ``(n_points, n_nodes, n_rows)``: the log likelihood of each row for
    each value of its group's standardised effect.
    """
    n_points, n_nodes, _ = log_terms.shape
    of_group = log_terms.reshape(n_points, n_nodes, n_groups, -1).sum(axis=-1)
    return logsumexp(of_group + _LOG_WEIGHTS[:, None], axis=1).sum(axis=-1)


@cache
def answers() -> Integers:
    """Return 1 for each right answer, shape (people, items)."""
    rng = np.random.default_rng(240)
    ability, difficulty = rng.normal(0, 1.1, size=_PEOPLE), rng.normal(0.3, 1.2, size=_ITEMS)
    logit = ability[:, None] - difficulty
    return (rng.random(logit.shape) < 1 / (1 + np.exp(-logit))).astype(np.int64)


def build_item_response() -> pm.Model:
    """Rasch model of 200 people and 39 items with a free spread of abilities."""
    with pm.Model() as model:
        spread = pm.HalfNormal("spread", 2)
        ability = pm.Normal("ability", 0, spread, shape=_PEOPLE)
        difficulty = pm.Normal("difficulty", 0, _DIFFICULTY_SD, shape=_ITEMS)
        logit = ability[:, None] - difficulty
        pm.Bernoulli("right", logit_p=logit, observed=answers())
    return model


def log_item_response() -> Reference:
    """The likelihood of a person depends on the ability through the number of right answers."""
    right_of_item = answers().sum(axis=0)
    scores, people = np.unique(answers().sum(axis=1), return_counts=True)

    def log_density(points: Floats) -> Floats:
        log_spread, difficulty = points[:, 0], points[:, 1:]
        ability = np.exp(log_spread)[:, None] * _NODES
        wrong = log_expit(difficulty[:, None, :] - ability[:, :, None]).sum(axis=-1)
        of_score = ability[:, :, None] * scores + (wrong + _LOG_WEIGHTS)[:, :, None]
        total = logsumexp(of_score, axis=1) @ people - difficulty @ right_of_item
        total = total + log_normal(difficulty, 0.0, _DIFFICULTY_SD).sum(axis=1)
        return total + _log_half_normal(log_spread, 2.0)

    return evidence_at_mode(log_density, np.zeros(1 + _ITEMS), draws=10_000, dof=100.0)


@cache
def ratings() -> tuple[Integers, Floats, Integers]:
    """Return group, covariate and rating from 0 to 3: 30 groups of 8."""
    rng = np.random.default_rng(30)
    group, x = np.repeat(np.arange(30), 8), rng.standard_normal(240)
    latent = 0.8 * x + rng.normal(0, 0.9, size=30)[group] + rng.logistic(size=240)
    return group, x, np.searchsorted([-1.5, 0.2, 1.8], latent).astype(np.int64)


def build_ordinal() -> pm.Model:
    """Ordered logistic regression with an effect of each group."""
    group, x, rating = ratings()
    with pm.Model() as model:
        cuts = pm.Normal(
            "cuts",
            0,
            _CUTS_SD,
            shape=3,
            transform=pm.distributions.transforms.ordered,
            initval=[-1.0, 0.0, 1.0],
        )
        slope = pm.Normal("slope", 0, 2)
        spread = pm.HalfNormal("spread", 1)
        effect = pm.Normal("effect", 0, spread, shape=30)
        pm.OrderedLogistic("y", eta=slope * x + effect[group], cutpoints=cuts, observed=rating)
    return model


def log_ordinal() -> Reference:
    """With the prior of the cut points normalised over ordered ones, which are one in 3!."""
    _, x, rating = ratings()

    def log_density(points: Floats) -> Floats:
        log_gaps, slope, log_spread = points[:, 1:3], points[:, 3], points[:, 4]
        cuts = np.cumsum(np.column_stack([points[:, 0], np.exp(log_gaps)]), axis=1)
        effect = np.exp(log_spread)[:, None, None] * _NODES[:, None]
        eta = slope[:, None, None] * x + effect
        ends = np.pad(cuts, ((0, 0), (1, 1)), constant_values=((0, 0), (-np.inf, np.inf)))
        above, below = ends[:, rating + 1][:, None] - eta, eta - ends[:, rating][:, None]
        # log(F(a) - F(b)) = log F(a) + log F(-b) + log(1 - exp(b - a)) of the logistic F
        with np.errstate(over="ignore"):
            gap = np.log(-np.expm1(-(above + below)))
        log_terms = log_expit(above) + log_expit(below) + gap
        log_prior = log_normal(cuts, 0.0, _CUTS_SD).sum(axis=1) + gammaln(4)
        log_prior = log_prior + log_gaps.sum(axis=1) + log_normal(slope, 0.0, 2.0)
        return log_groups(log_terms, 30) + log_prior + _log_half_normal(log_spread, 1.0)

    start = np.array([-1.0, 0.0, 0.0, 0.5, -0.5])
    return evidence_at_mode(log_density, start, draws=6000, dof=30.0, adapt=True)


@cache
def counts() -> tuple[Integers, Floats, Integers]:
    """Return group, covariate and count, a third of them zero: 40 groups of 6."""
    rng = np.random.default_rng(40)
    group, x = np.repeat(np.arange(40), 6), rng.standard_normal(240)
    rate = np.exp(0.9 + 0.4 * x + rng.normal(0, 0.6, size=40)[group])
    return group, x, rng.poisson(rate) * (rng.random(240) < 0.7)


def build_zero_inflated() -> pm.Model:
    """Poisson regression with additional zeros and an effect of each group."""
    group, x, count = counts()
    with pm.Model() as model:
        kept = pm.Beta("kept", 2, 2)
        intercept = pm.Normal("intercept", 0, 2)
        slope = pm.Normal("slope", 0, 1)
        spread = pm.HalfNormal("spread", 1)
        effect = pm.Normal("effect", 0, spread, shape=40)
        rate = pm.math.exp(intercept + slope * x + effect[group])
        pm.ZeroInflatedPoisson("y", psi=kept, mu=rate, observed=count)
    return model


def log_zero_inflated() -> Reference:
    """Quadrature over the effects, importance sampling of the other parameters."""
    _, x, count = counts()

    def log_density(points: Floats) -> Floats:
        logit_kept, intercept, slope, log_spread = points.T
        log_kept, log_lost = log_expit(logit_kept), log_expit(-logit_kept)
        effect = np.exp(log_spread)[:, None, None] * _NODES[:, None]
        log_rate = (intercept[:, None] + slope[:, None] * x)[:, None] + effect
        poisson = count * log_rate - np.exp(log_rate) - gammaln(count + 1)
        terms = log_kept[:, None, None] + poisson
        terms = np.where(count == 0, np.logaddexp(terms, log_lost[:, None, None]), terms)
        # the prior of the logit has its Jacobian
        log_prior = 2 * (log_kept + log_lost) - betaln(2, 2)
        log_prior = log_prior + log_normal(intercept, 0.0, 2.0) + log_normal(slope, 0.0, 1.0)
        return log_groups(terms, 40) + log_prior + _log_half_normal(log_spread, 1.0)

    start = np.array([0.5, 0.5, 0.0, -0.5])
    return evidence_at_mode(log_density, start, draws=6000, dof=30.0, adapt=True)


_METHOD = "quadrature over each effect, importance sampling of the other parameters"


@cache
def successes() -> Integers:
    """Return the number of successes in each of many small groups."""
    rng = np.random.default_rng(500)
    probability = 1 / (1 + np.exp(-(0.3 + rng.normal(size=_GROUPS))))
    return rng.binomial(_TRIALS, probability)


def build_binary_groups() -> pm.Model:
    """Binary rows in many small groups, such as pupils in classes."""
    group = np.repeat(np.arange(_GROUPS), _TRIALS)
    rows = (np.arange(_TRIALS) < successes()[:, None]).astype(np.int64).ravel()
    with pm.Model() as model:
        mean = pm.Normal("mean", 0, _MEAN_SD)
        spread = pm.HalfNormal("spread", 1)
        effect = pm.Normal("effect", 0, 1, shape=_GROUPS)
        pm.Bernoulli("y", logit_p=mean + spread * effect[group], observed=rows)
    return model


def log_binary_groups() -> Reference:
    """The likelihood of a group depends on its number of successes alone."""
    counts, groups = np.unique(successes(), return_counts=True)

    def log_density(mean: Floats, log_spread: Floats) -> Floats:
        total = log_normal(mean, 0.0, _MEAN_SD) + _log_half_normal(log_spread, 1.0)
        logit = mean[..., None] + np.exp(log_spread)[..., None] * _NODES
        for count, n_groups in zip(counts, groups, strict=True):
            terms = count * log_expit(logit) + (_TRIALS - count) * log_expit(-logit)
            total = total + n_groups * logsumexp(terms + _LOG_WEIGHTS, axis=-1)
        return total

    return Reference(log_integral(log_density, (-0.7, 1.3), (-1.0, 1.0), tolerance=1e-8))


CASES = (
    Case(
        "item_response",
        build_item_response,
        log_item_response,
        "simulated, 200 people, 39 items",
        "quadrature over abilities, importance sampling of the other parameters",
    ),
    Case(
        "binary_groups",
        build_binary_groups,
        log_binary_groups,
        "simulated, 500 groups of 6",
        "quadrature over mean, log scale, and the effect of each group",
    ),
    Case("ordinal", build_ordinal, log_ordinal, "simulated, 30 groups of 8", _METHOD),
    Case("zero_inflated", build_zero_inflated, log_zero_inflated, "simulated, 40 groups", _METHOD),
    Case(
        "poisson_glmm",
        build_poisson_glmm_explicit,
        lambda: Reference(poisson_glmm().log_evidence),
        "invented, 6 units of 3",
        "quadrature over intercept, log scale, and the effect of each unit",
    ),
)
