"""Posterior draws as pm.sample returns them, from exact draws or from chains."""

import numpy as np
import pymc as pm
import xarray as xr

from pm_evidence.core.random import streams
from pm_evidence.runs.defaults import annealing_setup
from pm_evidence.samplers.planning import Pilot
from pm_evidence.targets.model.cache import target_of

# moves of a chain before the first draw, and for each draw
_PILOT, _BURN_IN, _MOVES = 400, 100, 3


def posterior_tree(model, draws, **stats):
    """A DataTree with draws, each of shape ``(n_chains, n_draws, ...)``, and the model's data."""
    target = target_of(model)
    groups = {"posterior": _dataset(draws), "observed_data": _plain(target.observed_data())}
    if target.constant_data():
        groups["constant_data"] = _plain(target.constant_data())
    if stats:
        groups["sample_stats"] = _dataset(stats)
    return xr.DataTree.from_dict(groups)


def sampled(model, seed=1, draws=1000, chains=4, **options):
    """What pm.sample returns, without its output."""
    with model:
        return pm.sample(
            draws,
            chains=chains,
            cores=1,
            random_seed=seed,
            progressbar=False,
            quiet=True,
            compute_convergence_checks=False,
            compile_kwargs={"mode": "NUMBA"},
            **options,
        )


def chains_of(model, n_trees, seed=1, n_chains=4, n_draws=1000):
    """As many trees of HMC chains, which are moved at once: much faster than pm.sample.

    Chains start from an annealed population, with a kernel that was tuned on it, and their first
    moves are dropped.
    """
    target = target_of(model)
    setup, n = annealing_setup(target, "auto"), n_trees * n_chains
    plan = Pilot(max(n, _PILOT), 10, 0.7).run(setup.path, setup.kernel, seed)
    rng, words = np.random.default_rng(seed), streams(np.random.SeedSequence(seed), n)
    state, draws = plan.population.take(rng.permutation(len(plan.population))[:n]), []
    for move in range(_BURN_IN + n_draws * _MOVES):
        state, _ = plan.kernels[-1].advance(setup.path, state, 1.0, words)
        if move >= _BURN_IN and (move - _BURN_IN) % _MOVES == 0:
            draws.append(state.x.copy())
    x = np.swapaxes(draws, 0, 1).reshape(n_trees, n_chains, n_draws, -1)
    return [_tree_of_points(model, target, each) for each in x]


def _tree_of_points(model, target, x):
    named = target.posterior(x.reshape(-1, x.shape[-1]))
    free = [rv.name for rv in model.free_RVs]
    return posterior_tree(
        model, {name: named[name].reshape(*x.shape[:2], *named[name].shape[1:]) for name in free}
    )


def autoregressive(rng, n_chains, n_draws, correlation, size=1):
    """Stationary chains of standard normal values, shape ``(n_chains, n_draws, size)``."""
    x = rng.standard_normal((n_draws, n_chains, size))
    noise = np.sqrt(1.0 - correlation**2)
    for t in range(1, n_draws):
        x[t] = correlation * x[t - 1] + noise * x[t]
    return x.swapaxes(0, 1)


def _dataset(draws):
    return xr.Dataset(
        {
            name: (("chain", "draw", *(f"{name}_{i}" for i in range(np.ndim(x) - 2))), x)
            for name, x in draws.items()
        },
        coords={"chain": np.arange(len(next(iter(draws.values()))))},
    )


def _plain(arrays):
    return xr.Dataset(
        {name: ([f"{name}_{i}" for i in range(np.ndim(x))], x) for name, x in arrays.items()}
    )
