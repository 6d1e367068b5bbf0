"""States on a ladder of temperatures whose log normalising constants are known exactly."""

import numpy as np

from pm_evidence.estimators.tempered import checked_beta

BETA = np.linspace(0.0, 1.0, 6) ** 2
DIM, STRENGTH = 2, 8.0
# States of zero likelihood: one coordinate of the prior is positive with this probability.
ALIVE = 0.5


def log_z(beta=BETA, dim=DIM, strength=STRENGTH):
    """Prior N(0, I), energy ``strength |x|**2 / 2``: log Z at every temperature."""
    return -0.5 * dim * np.log1p(strength * np.asarray(beta))


LOG_Z = float(log_z()[-1])


def draws(rng, rung, beta=BETA, dim=DIM, strength=STRENGTH):
    """Energies of independent draws at the given temperatures, of the shape of ``rung``."""
    sd = 1.0 / np.sqrt(1.0 + strength * checked_beta(beta)[rung])
    x = rng.normal(size=(*rung.shape, dim)) * sd[..., None]
    return 0.5 * strength * (x**2).sum(axis=-1)


def chains(rng, n_iterations, n_chains, correlation, beta=BETA, dim=DIM, strength=STRENGTH):
    """Ladders of AR(1) chains, one for each temperature: energy, rung and groups.

    Every chain starts from its stationary density, so that expectations are those of `draws`.
    """
    rung = np.tile(np.arange(len(beta)), n_chains)
    noise = rng.normal(size=(n_iterations, rung.size, dim))
    x = noise[0]
    energy = np.empty((n_iterations, rung.size))
    sd = 1.0 / np.sqrt(1.0 + strength * np.asarray(beta)[rung])
    for t in range(n_iterations):
        if t:
            x = correlation * x + np.sqrt(1.0 - correlation**2) * noise[t]
        energy[t] = 0.5 * strength * ((sd[:, None] * x) ** 2).sum(axis=-1)
    groups = np.repeat(np.arange(n_chains), len(beta))
    return energy, np.broadcast_to(rung, energy.shape), groups


def coverage(found, exact):
    """Share of intervals that hold the exact value."""
    return float(np.mean([e.lower <= exact <= e.upper for e in found]))
