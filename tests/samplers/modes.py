"""Exact draws from posteriors of the deceptive systems, in the coordinates of the target."""

import numpy as np

from pm_evidence.paths.geometric import Posterior
from pm_evidence.targets.model.cache import target_of


def posterior_of(model):
    return Posterior(target_of(model, backend="numpy"))


def shares_of(case):
    """Return the share of each mode in the evidence, and its mean and standard deviation."""
    centres, sds = np.array(case.centres), np.array(case.sds)
    precision = 1 / sds**2 + 1 / case.prior_sd**2
    total = np.hypot(sds, case.prior_sd)
    log_share = np.log(case.weights) - case.dims * (0.5 * (centres / total) ** 2 + np.log(total))
    share = np.exp(log_share - log_share.max())
    return share / share.sum(), centres / sds**2 / precision, precision**-0.5


def draws_of_modes(case, n, rng, shares=None):
    """Return draws from the modes, by default in their right shares."""
    right, means, sds = shares_of(case)
    mode = rng.choice(len(right), size=n, p=right if shares is None else shares)
    return means[mode, None] + sds[mode, None] * rng.standard_normal((n, case.dims))


def draws_of_slab(case, n, rng):
    """Return draws from the slab of a spike and slab, on the scale where the cube is R^d."""
    x = np.clip(rng.normal(0.0, case.slab_sd, (n, case.dims)), -0.499, 0.499)
    return np.log((x + 0.5) / (0.5 - x))
