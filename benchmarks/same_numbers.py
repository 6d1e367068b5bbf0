"""Whether a change of the code left the numbers of some twenty runs as they were, to the last bit.

``python benchmarks/same_numbers.py --save before.json`` before the change, and
``--compare before.json`` after it, on one machine. Every estimate of every run is compared, and all
arrays of the result.
"""

import argparse
import hashlib
import json
import pathlib
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pymc as pm

import pm_evidence as pe
from pm_evidence.testing import deceptive_systems, exact_systems

SYSTEMS = exact_systems() | deceptive_systems()
SMALL = {"draws": 400, "target_mcse": None}


def exact(name: str, **kwargs: Any) -> Callable[[], Any]:
    """Return what runs an exact system."""
    return lambda: run(SYSTEMS[name].build(), **SMALL | kwargs)


def run(target: Any, **kwargs: Any) -> Any:
    """Run with a seed and no display."""
    return pe.sample_evidence(target, random_seed=11, progressbar=False, **kwargs)


def state_space() -> pm.Model:
    """A local level with noise, by a particle filter."""
    rng = np.random.default_rng(1)
    y = np.cumsum(rng.normal(0, 0.5, size=30)) + rng.normal(size=30)
    with pm.Model() as model:
        level, noise = pm.HalfNormal("level", 1), pm.HalfNormal("noise", 1)
        pe.StateSpace(
            "y",
            init=lambda: pm.Normal.dist(0, 2),
            transition=lambda h, t: pm.Normal.dist(h, level),
            emission=lambda h, t: pm.Normal.dist(h, noise),
            observed=y,
        )
    return model


def random_effects() -> pm.Model:
    """Counts in groups."""
    rng = np.random.default_rng(2)
    group = np.repeat(np.arange(8), 5)
    counts = rng.poisson(np.exp(0.5 + 0.5 * rng.normal(size=8)[group]))
    with pm.Model() as model:
        mu, sigma = pm.Normal("mu", 0, 1), pm.HalfNormal("sigma", 1)
        pe.RandomEffects(
            "y",
            effects=lambda: pm.Normal.dist(0, sigma),
            emission=lambda u, i: pm.Poisson.dist(pm.math.exp(mu + u)),
            groups=group,
            observed=counts,
        )
    return model


def potential() -> pm.Model:
    """A prior that a potential is part of."""
    with pm.Model() as model:
        x = pm.Normal("x", 0, 1, shape=2)
        pm.Potential("near", -((x[0] - x[1]) ** 2))
        pm.Normal("y", x, 1, observed=[0.3, 0.8])
    return model


def reverse_from_draws() -> Any:
    """Paths back from the user's own draws."""
    model = SYSTEMS["normal_mean"].build()
    with model:
        idata = pm.sample(
            200, tune=200, chains=2, cores=1, random_seed=3, progressbar=False, quiet=True
        )
    return run(model, method=pe.AIS(reverse_start=idata), draws=200, target_mcse=None)


RUNS: dict[str, Callable[[], Any]] = {
    "smc normal_mean": exact("normal_mean"),
    "smc until the error": exact("gamma_poisson", draws=200, target_mcse=0.004),
    "smc bimodal": exact("bimodal_10"),
    "smc one_way_centred": exact("one_way_centred"),
    "smc zero_sum": exact("zero_sum"),
    "smc von_mises": exact("von_mises"),
    "smc discrete": exact("hidden_markov"),
    "smc walked discrete": exact("poisson_captures"),
    "smc without chains": exact(
        "beta_binomial", method=pe.SMC(chain_length=1, resample_below=0.6, resampling="ssp")
    ),
    "smc random_walk": exact("mvnormal_mean", kernel="random_walk"),
    "smc named schedule": exact("normal_mean", schedule="sm08"),
    "smc no free variable": exact("no_free_variable"),
    "ais both ways": exact("normal_mean", method="ais"),
    "ais forward": exact("ordered_three", method=pe.AIS(direction="forward")),
    "ais from draws": reverse_from_draws,
    "certify": lambda: pe.simulate_and_certify(
        SYSTEMS["normal_mean"].build(), draws=200, random_seed=5, progressbar=False
    ),
    "potentials in the prior": lambda: run(potential(), potentials="prior", **SMALL),
    "aisel state space": lambda: run(state_space(), **SMALL),
    "aisel random effects": lambda: run(random_effects(), **SMALL),
    "aisel paths": lambda: run(
        random_effects(), method=pe.AISEL(resampling=None), draws=200, target_mcse=None
    ),
    "gaussian": lambda: run(pe.Gaussian(), draws=500, target_mcse=None),
    "ising": lambda: run(pe.Ising((6, 6), 0.4), draws=500, target_mcse=None),
    "ising clusters": lambda: run(
        pe.Ising((6, 6), 0.4), kernel="swendsen_wang", draws=200, target_mcse=None
    ),
    "potts": lambda: run(pe.Potts((6, 6), 3, 0.9), draws=500, target_mcse=None),
}


def digest(dt: Any) -> dict[str, str]:
    """Return the estimates of a result as text, and a hash of each of its groups."""
    found = {}
    for name in dt["log_evidence"]["estimator"].values:
        estimate = pe.log_evidence(dt, estimator=str(name))
        found[str(name)] = f"{estimate.value!r} {estimate.mcse!r} {estimate.status}"
    for group, node in dt.children.items():
        sha = hashlib.sha256()
        for name in sorted(node.variables):
            values = node[name].values
            if values.dtype.kind in "biuf" and "time" not in name:
                sha.update(name.encode() + np.ascontiguousarray(values).tobytes())
        found[f"group {group}"] = sha.hexdigest()[:16]
    return found


def main() -> None:
    """Save the numbers, or compare them with those saved."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", type=pathlib.Path)
    parser.add_argument("--compare", type=pathlib.Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    before = json.loads(options.compare.read_text()) if options.compare else {}
    after = {}
    for name, result in RUNS.items():
        after[name] = digest(result())
        old = before.get(name)
        changed = [key for key in old if old[key] != after[name].get(key)] if old else []
        verdict = "" if old is None else f"CHANGED: {', '.join(changed)}" if changed else "same"
        first = next(iter(after[name].items()))
        print(f"{name:24} {first[0]:12} {first[1]:50} {verdict}", flush=True)
    if options.save:
        options.save.write_text(json.dumps(after, indent=1))


if __name__ == "__main__":
    main()
