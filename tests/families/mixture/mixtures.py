"""Small mixtures whose evidence is known, and how it is computed."""

from itertools import product

import numpy as np
from scipy.special import gammaln, logsumexp

import pm_evidence as pe

Y = np.array([-2.1, 1.9, -1.4, 1.5, 0.3, 2.6, -0.8])
PRIOR = {"mean_mu": 0.5, "mean_sigma": 2.0, "variance_alpha": 2.5, "variance_beta": 1.5}


def mixture(n_components=2, y=Y, **options):
    return pe.mixtures.GaussianMixture(y, n_components, **PRIOR | options)


def log_group(y, variance, mu, sigma):
    """Log density of points with a common normal mean that is integrated out, at each variance."""
    n = len(y)
    if not n:
        return np.zeros_like(variance)
    total = variance + n * sigma**2
    residual = y - mu
    square = (residual**2).sum() - sigma**2 / total * residual.sum() ** 2
    return -0.5 * (n * np.log(2 * np.pi) + (n - 1) * np.log(variance) + np.log(total)) - (
        0.5 * square / variance
    )


def log_evidence(target):
    """All assignments of points to components, and a quadrature over log variances.

    The trapezoidal rule is exact to more than ten digits: the integrand and its derivatives vanish
    at both ends.
    """
    y, k, a, b = target.y, target.n_components, target.variance_alpha, target.variance_beta
    log_v = np.linspace(-12.0, 30.0, 4001)
    v, step = np.exp(log_v), log_v[1] - log_v[0]
    log_prior = a * np.log(b) - gammaln(a) - a * log_v - b / v + np.log(step)
    groups = {
        member: log_group(y[np.array(member, bool)], v, target.mean_mu, target.mean_sigma)
        for member in product([0, 1], repeat=len(y))
    }
    alone = {member: logsumexp(log_prior + row) for member, row in groups.items()}
    terms, c = [], target.weights_a
    for z in product(range(k), repeat=len(y)):
        counts = np.bincount(z, minlength=k)
        log_p = gammaln(k * c) - gammaln(k * c + len(y)) + (gammaln(c + counts) - gammaln(c)).sum()
        parts = [tuple(int(each == j) for each in z) for j in range(k)]
        if target.variances == "equal":
            log_p += logsumexp(log_prior + sum(groups[part] for part in parts))
        else:
            log_p += sum(alone[part] for part in parts)
        terms.append(log_p)
    return float(logsumexp(terms))
