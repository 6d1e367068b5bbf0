"""How often two normal modes of unequal width are both found, by default, beyond the tests.

The wide mode has a standard deviation of 0.9, the narrow one a third of it and 30 % of the
evidence. Their centres are 6 apart in every coordinate, root mean square, in a random direction. A
run is right within five of its errors; one that is wrong and says ``"ok"`` is counted beside.
``python benchmarks/unequal_modes.py``
"""

import sys

import numpy as np
import pymc as pm
from common import start

import pm_evidence as pe

WIDE, RATIO, HALF, SHARE = 0.9, 3.0, 3.0, 0.3
DIMS, PRIOR_SDS = (4, 6, 8, 10), (5.0, 10.0)


def build(dims: int) -> pm.Model:
    """Two modes whose places, widths and weights are data, so that they compile once."""
    with pm.Model() as model:
        centre, sd = pm.Data("centre", np.zeros((2, dims))), pm.Data("sd", np.ones(2))
        log_weight, prior_sd = pm.Data("log_weight", np.zeros(2)), pm.Data("prior_sd", 1.0)
        x = pm.Normal("x", 0, prior_sd, shape=dims)
        parts = pm.logp(pm.Normal.dist(centre, sd[:, None]), x[None]).sum(axis=1)
        pm.Potential("modes", pm.math.logsumexp(log_weight + parts))
    return model


def place(model: pm.Model, dims: int, prior_sd: float, seed: int) -> None:
    """Put the modes somewhere, with a total evidence of one."""
    rng = np.random.default_rng([dims, seed])
    direction = rng.normal(size=dims)
    direction *= HALF * dims**0.5 / np.linalg.norm(direction)
    centre, sd = np.stack([-direction, direction]), np.array([WIDE / RATIO, WIDE])
    total = np.hypot(prior_sd, sd)[:, None]
    overlap = -0.5 * ((centre / total) ** 2 + np.log(2 * np.pi * total**2)).sum(axis=1)
    log_weight = np.log([SHARE, 1 - SHARE]) - overlap
    values = {"centre": centre, "sd": sd, "log_weight": log_weight, "prior_sd": prior_sd}
    with model:
        pm.set_data(values)


def main() -> None:
    options = start(__doc__, repeats=20)
    print(f"{'dimensions':>10s} {'prior sd':>8s} {'right':>6s} {'wrong and ok':>12s} {'runs':>5s}")
    for dims in DIMS:
        model = build(dims)
        for prior_sd in PRIOR_SDS:
            right = wrong = 0
            for seed in range(options.repeats):
                place(model, dims, prior_sd, seed)
                dt = pe.sample_evidence(model, random_seed=seed, progressbar=False)
                found = pe.log_evidence(dt)
                near = abs(found.value) <= 5 * found.mcse
                right += near
                wrong += not near and found.status == "ok"
            print(
                f"{dims:10d} {prior_sd:8.0f} {right:6d} {wrong:12d} {options.repeats:5d}",
                flush=True,
            )


if __name__ == "__main__":
    sys.exit(main())
