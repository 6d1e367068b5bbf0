"""States on a ladder of temperatures whose log normalising constants are known exactly."""

import numpy as np

from pm_evidence.schedules import rising

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
    sd = 1.0 / np.sqrt(1.0 + strength * rising("beta", beta)[rung])
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


def tempering(rng, n_iterations, n_chains, guess, prior, correlation=0.8, beta=BETA):
    """Simulated tempering in equilibrium: energy and rung, ``(n_iterations, n_chains)``.

    An AR(1) step at the chain's temperature is followed by a draw of the temperature given the
    state. ``guess`` are the log normalising constants that the sampler assumes.
    """
    exact, sd = log_z(beta), 1.0 / np.sqrt(1.0 + STRENGTH * beta)
    weight = np.log(prior) - guess
    marginal = np.exp(weight + exact - (weight + exact).max())
    k = rng.choice(len(beta), n_chains, p=marginal / marginal.sum())
    x = rng.normal(size=(n_chains, DIM)) * sd[k][:, None]
    energy, rung = np.empty((n_iterations, n_chains)), np.empty((n_iterations, n_chains), int)
    for t in range(n_iterations):
        noise = rng.normal(size=x.shape) * sd[k][:, None]
        x = correlation * x + np.sqrt(1.0 - correlation**2) * noise
        energy[t] = 0.5 * STRENGTH * (x**2).sum(axis=1)
        logs = weight - beta * energy[t][:, None]
        share = np.cumsum(np.exp(logs - logs.max(axis=1, keepdims=True)), axis=1)
        k = (rng.random(n_chains)[:, None] * share[:, -1:] > share).sum(axis=1)
        rung[t] = k
    return energy, rung


# --- two and three states whose shares are ratios of small numbers ---

HALVES = np.array([0.0, 0.5, 1.0])
_LOW, _HIGH = 0.0, 2.0 * np.log(2.0)
# prior (1/2, 1/2) and likelihoods 1 and 1/4
HALVES_Z = np.log([1.0, 3.0 / 4.0, 5.0 / 8.0])
# prior (1/2, 1/4, 1/4) and likelihoods 1, 1/4 and 0
DEAD_Z = np.log([1.0, 5.0 / 8.0, 9.0 / 16.0])


def in_proportion(counts=(1, 1, 1), dead=False):
    """States in exactly the proportions of their temperatures: energy and rung.

    Parameters are how often the smallest such set of each temperature is repeated, and whether
    there is a state of likelihood zero.
    """
    values = [_LOW, _HIGH, np.inf]
    shares = [(2, 1, 1), (4, 1, 0), (8, 1, 0)] if dead else [(1, 1, 0), (2, 1, 0), (4, 1, 0)]
    energy = [np.tile(np.repeat(values, share), n) for share, n in zip(shares, counts, strict=True)]
    return np.concatenate(energy), np.repeat(np.arange(3), [len(part) for part in energy])


# Energies in exactly the proportions of simulated tempering: assumed constants, prior, energies.
IN_SHARES = {
    "no constants": (np.zeros(3), None, np.repeat([_LOW, _HIGH], [12, 7])),
    "constants": (np.log([1.0, 0.5, 0.25]), None, np.repeat([_LOW, _HIGH], [7, 3])),
    "prior": (np.zeros(3), [1.0, 2.0, 4.0], np.repeat([_LOW, _HIGH], [7, 3])),
}
DEAD_IN_SHARES = np.repeat([_LOW, _HIGH, np.inf], [24, 7, 4])  # uniform prior, constants of zero
