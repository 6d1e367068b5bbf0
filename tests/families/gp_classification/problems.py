"""Small problems of Gaussian process classification whose log evidence is known exactly."""

import numpy as np
from scipy.special import ndtr

import pm_evidence as pe

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(120)


def one_factor(n=12, **options):
    """``K = b b' + diag(d)``: given one normal factor, labels are independent of each other."""
    loadings = 2.0 * np.cos(np.arange(n))
    own = 0.5 + 0.5 * np.sin(np.arange(n)) ** 2
    labels = np.where(np.arange(n) % 3, 1, -1)
    covariance = np.outer(loadings, loadings) + np.diag(own)
    target = pe.gp.GPClassification(None, labels, covariance=covariance, **options)
    given = ndtr(labels * loadings * _NODES[:, None] / np.sqrt(1.0 + own))
    total = _WEIGHTS @ given.prod(axis=1)
    return target, float(np.log(total / _WEIGHTS.sum()))


def pair(correlation, **options):
    """Two points: the probability of equal or opposite signs is an angle."""
    covariance = np.array([[2.0, correlation], [correlation, 3.0]])
    target = pe.gp.GPClassification(None, [1, -1], covariance=covariance, **options)
    angle = np.arcsin(-correlation / np.sqrt(3.0 * 4.0))
    return target, float(np.log(0.25 + angle / (2.0 * np.pi)))


def triple(**options):
    """Three points: the orthant probability is a sum of three angles."""
    x = np.array([0.0, 0.7, 2.0])
    target = pe.gp.GPClassification(x, [1, -1, 1], length_scale=1.5, amplitude=3.0, **options)
    covariance = target.noisy_covariance * np.outer(target.signs, target.signs)
    scale = np.sqrt(covariance.diagonal())
    r = covariance / np.outer(scale, scale)
    angles = np.arcsin(r[0, 1]) + np.arcsin(r[0, 2]) + np.arcsin(r[1, 2])
    return target, float(np.log(0.125 + angles / (4.0 * np.pi)))


def curve(n=10, **options):
    """A squared exponential on a line."""
    x = np.linspace(-2.0, 2.0, n)
    return pe.gp.GPClassification(x, np.abs(x) > 1.0, length_scale=1.0, amplitude=2.0, **options)


def exact_draws(target, n, seed=0):
    """Exact draws of ``z`` by rejection from the prior; rows in the order of the data."""
    rng, kept, found = np.random.default_rng(seed), [], 0
    factor = np.linalg.cholesky(target.noisy_covariance)
    while found < n:
        z = rng.standard_normal((200_000, target.n_dim)) @ factor.T
        kept.append(z[(np.sign(z) == target.signs).all(axis=1)])
        found += len(kept[-1])
    return np.concatenate(kept)[:n]


__all__ = ["curve", "exact_draws", "one_factor", "pair", "triple"]
