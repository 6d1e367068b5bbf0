"""Exact draws of latent values at any inverse temperature, and the kernels that move them."""

import numpy as np
from scipy.special import log_ndtr

from pm_evidence.families.gp_classification.latent import LatentPath
from pm_evidence.families.gp_classification.propagation import gaussian_of
from tests.families.gp_classification.problems import one_factor


def problem(reference, n=4):
    return LatentPath(one_factor(n, representation="latent", reference=reference)[0])


def exact(path, beta, n=20_000, seed=0):
    """Exact draws at ``beta`` by rejection: the ratio to a Gaussian is at most 1.

    From the prior this is the likelihood. From the other reference proposals are prior draws times
    the power of the Gaussian factors that remains, which is a Gaussian as well.
    """
    rng, parts = np.random.default_rng(seed), path.target.gaussians
    last, rest = parts[1.0], path.rest(beta)
    start = gaussian_of(path.target.factor, rest * last.precisions, rest * last.shifts)
    kept, found = [], 0
    while found < n:
        x = start.mean + rng.standard_normal((100_000, len(start.mean))) @ start.root.T
        accepted = np.log(rng.random(len(x))) < beta * log_ndtr(path.target.signs * x).sum(axis=1)
        kept.append(x[accepted])
        found += len(kept[-1])
    return path.at(np.concatenate(kept)[:n])
