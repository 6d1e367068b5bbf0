"""A mixture, a covariance matrix, and a normal density in very many dimensions."""

from functools import cache
from itertools import permutations

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from scipy.special import betaln, gammaln, logsumexp

from pm_evidence.testing import gaussian
from pm_evidence.testing.systems import LOG_2PI, log_normal

from . import data
from .case import Case, Nuts, Reference
from .importance import evidence_at_mode, reference_from_weights

__all__ = ["CASES"]

Floats = NDArray[np.float64]

# Priors of Chib (1995) for the galaxies: means, variances, weights.
_PARTS, _MEAN, _MEAN_SD, _SHAPE, _RATE = 3, 20.0, 10.0, 3.0, 20.0
# Of the Gibbs sampler: power of the likelihood, sweeps from one proposal to the next.
_POWER, _THIN = 0.9, 20


def build_galaxies() -> pm.Model:
    """Mixture of three normals with free variances, whose labels can be exchanged."""
    with pm.Model() as model:
        weight = pm.Dirichlet("weight", np.ones(_PARTS))
        mean = pm.Normal("mean", _MEAN, _MEAN_SD, shape=_PARTS)
        variance = pm.InverseGamma("variance", _SHAPE, _RATE, shape=_PARTS)
        pm.NormalMixture(
            "y", w=weight, mu=mean, sigma=pm.math.sqrt(variance), observed=data.galaxies()
        )
    return model


def _log_inverse_gamma(x: Floats, shape: Floats, rate: Floats) -> Floats:
    return shape * np.log(rate) - gammaln(shape) - (shape + 1) * np.log(x) - rate / x


def _log_dirichlet(weight: Floats, a: Floats) -> Floats:
    log_norm = gammaln(a.sum(axis=-1)) - gammaln(a).sum(axis=-1)
    return log_norm + ((a - 1) * np.log(weight)).sum(axis=-1)


def _gibbs(y: Floats, kept: int, rng: np.random.Generator) -> list[Floats]:
    """Return parameters of full conditionals of a Gibbs sampler, shape ``(kept, 3)`` each.

    They are mean and sd of the normal of each mean, shape and rate of the inverse gamma of each
    variance, and the parameters of the Dirichlet distribution of the weights. Data count with the
    power ``_POWER``, so that the tails are heavier than those of the posterior.
    """
    mean, variance = np.array([10.0, 20.0, 30.0]), np.full(_PARTS, 5.0)
    weight = np.full(_PARTS, 1 / _PARTS)
    conditionals = []
    for sweep in range(-500, _THIN * kept):
        score = np.log(weight) + log_normal(y[:, None], mean, np.sqrt(variance))
        label = (score + rng.gumbel(size=score.shape)).argmax(axis=1)
        size = _POWER * np.bincount(label, minlength=_PARTS)
        total = _POWER * np.bincount(label, y, minlength=_PARTS)
        sd = (size / variance + _MEAN_SD**-2) ** -0.5
        centre = sd**2 * (total / variance + _MEAN / _MEAN_SD**2)
        mean = rng.normal(centre, sd)
        square = _POWER * np.bincount(label, (y - mean[label]) ** 2, minlength=_PARTS)
        shape, rate = _SHAPE + size / 2, _RATE + square / 2
        variance = rate / rng.gamma(shape)
        weight = rng.dirichlet(1.0 + size)
        if sweep >= 0 and sweep % _THIN == 0:
            conditionals.append((centre, sd, shape, rate, 1.0 + size))
    return [np.array(part) for part in zip(*conditionals, strict=True)]


def log_galaxies() -> Reference:
    """Dual importance sampling (Lee and Robert, 2016).

    The proposal is the mean of the full conditionals of a Gibbs sampler at thinned sweeps, taken
    over all permutations of the labels.
    """
    y, rng, n = data.galaxies(), np.random.default_rng(82), 12_000
    conditionals = _gibbs(y, 800, rng)
    chosen = rng.integers(len(conditionals[0]), size=n)
    centre, sd, shape, rate, a = (part[chosen] for part in conditionals)
    mean, variance = rng.normal(centre, sd), rate / rng.gamma(shape)
    weight = rng.gamma(a)
    weight = weight / weight.sum(axis=1, keepdims=True)
    parts = np.log(weight)[:, None] + log_normal(
        y[:, None], mean[:, None], np.sqrt(variance)[:, None]
    )
    log_target = logsumexp(parts, axis=2).sum(axis=1) + log_normal(mean, _MEAN, _MEAN_SD).sum(1)
    log_target = log_target + _log_inverse_gamma(variance, _SHAPE, _RATE).sum(1) + gammaln(_PARTS)
    log_q = np.concatenate(
        [
            _log_proposal(conditionals, mean[rows], variance[rows], weight[rows])
            for rows in np.array_split(np.arange(n), n // 100)
        ]
    )
    return reference_from_weights(log_target - log_q)


def _log_proposal(conditionals: list[Floats], mean: Floats, variance: Floats, weight: Floats):
    centre, sd, shape, rate, a = conditionals
    # log density of draw i under part k of conditional m for label l: shape (i, m, k, l)
    x, v, w = (part[:, None, None, :] for part in (mean, variance, weight))
    term = log_normal(x, centre[..., None], sd[..., None])
    term = term + _log_inverse_gamma(v, shape[..., None], rate[..., None])
    term = term + (a[..., None] - 1) * np.log(w)
    log_norm = gammaln(a.sum(axis=1)) - gammaln(a).sum(axis=1)
    index = np.arange(_PARTS)
    total = [term[:, :, index, list(order)].sum(-1) for order in permutations(range(_PARTS))]
    found = logsumexp(np.stack(total, axis=-1), axis=-1) + log_norm
    return logsumexp(found, axis=1) - np.log(len(a)) - np.log(len(total))


# Three variables with an unknown covariance matrix.
_ETA, _SCALE, _CENTRE_SD = 2.0, 1.5, 3.0


@cache
def triples() -> Floats:
    """Return 100 values of three correlated variables."""
    factor = np.array([[1.0, 0.0, 0.0], [0.7, 0.9, 0.0], [-0.3, 0.5, 1.4]])
    rng = np.random.default_rng(100)
    return np.array([0.5, -1.0, 2.0]) + rng.standard_normal((100, 3)) @ factor.T


def build_lkj() -> pm.Model:
    """Means and covariance of three variables."""
    with pm.Model() as model:
        scales = pm.HalfNormal.dist(_SCALE, shape=3)
        factor, _, _ = pm.LKJCholeskyCov("factor", n=3, eta=_ETA, sd_dist=scales)
        mean = pm.Normal("mean", 0, _CENTRE_SD, shape=3)
        pm.MvNormal("y", mean, chol=factor, observed=triples())
    return model


def log_lkj() -> Reference:
    """Importance sampling of log scales, partial correlations and means.

    In the density of Lewandowski, Kurowicka and Joe (2009) the partial correlations are
    independent: ``(1 + r) / 2`` is Beta with both parameters ``eta + (3 - 1 - k) / 2``, where ``k``
    variables have been given, plus one half each for ``k = 0``.
    """
    y = triples()
    n, centre = len(y), y.mean(axis=0)
    scatter = (y - centre).T @ (y - centre)
    beta = np.array([_ETA + 0.5, _ETA + 0.5, _ETA])

    def log_density(points: Floats) -> Floats:
        log_scale, fisher_z, mean = points[:, :3], points[:, 3:6], points[:, 6:]
        r = np.tanh(fisher_z)
        log_half = np.stack([-np.logaddexp(0, -2 * fisher_z), -np.logaddexp(0, 2 * fisher_z)])
        # Beta density of (1 + r) / 2 with the Jacobian of the Fisher transform
        log_prior = (beta * log_half.sum(0) - betaln(beta, beta) + np.log(2)).sum(axis=1)
        left = np.sqrt(1 - r**2)
        factor = np.zeros((len(points), 3, 3))
        factor[:, 0, 0], factor[:, 1, 0], factor[:, 1, 1] = 1, r[:, 0], left[:, 0]
        factor[:, 2, 0], factor[:, 2, 1] = r[:, 1], r[:, 2] * left[:, 1]
        factor[:, 2, 2] = left[:, 1] * left[:, 2]
        factor = np.exp(log_scale)[:, :, None] * factor
        shift = centre - mean
        inverse = np.linalg.inv(factor)
        square = ((inverse @ scatter) * inverse).sum(axis=(1, 2))
        square = square + n * ((inverse @ shift[..., None])[..., 0] ** 2).sum(axis=1)
        log_det = np.log(np.diagonal(factor, axis1=1, axis2=2)).sum(axis=1)
        total = -n * (1.5 * LOG_2PI + log_det) - 0.5 * square + log_prior
        total = total + log_normal(mean, 0.0, _CENTRE_SD).sum(axis=1)
        scale = np.exp(log_scale)
        return total + (np.log(2) + log_normal(scale, 0.0, _SCALE) + log_scale).sum(axis=1)

    start = np.concatenate([np.zeros(6), centre])
    return evidence_at_mode(log_density, start, draws=60_000, dof=30.0)


def _gaussian(dims: int) -> Case:
    return Case(
        f"gaussian_{dims}",
        lambda: gaussian(dims).build(),
        lambda: Reference(gaussian(dims).log_evidence),
        "simulated",
        "conjugate",
        near_gaussian=True,
        nuts=Nuts(chains=1, tune=300, draws=100),
    )


CASES = (
    Case(
        "galaxies",
        build_galaxies,
        log_galaxies,
        "velocities of 82 galaxies, priors of Chib (1995)",
        "dual importance sampling over a Gibbs sampler",
    ),
    Case(
        "lkj_covariance",
        build_lkj,
        log_lkj,
        "simulated, 100 rows of 3",
        "importance sampling from a Student-t density at the mode",
        near_gaussian=True,
    ),
    _gaussian(2000),
)
