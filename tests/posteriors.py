"""Posterior draws as pm.sample returns them, from exact draws or from chains."""

import numpy as np
import pymc as pm
import xarray as xr

from pm_evidence.targets.model.cache import target_of


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
            **options,
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
