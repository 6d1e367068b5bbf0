"""Cost of the evidence of a Gaussian as its dimension grows.

The cost of an error of 0.01 nats is ``(what the run took) * (mcse / 0.01)**2``. It is computed with
the stated error, which is less noisy than the root mean square error next to it. A run is one round
of 16,000 draws in all, 1,000 on each of 16 islands.
``python benchmarks/scaling.py``
"""

import argparse
import time

import numpy as np
import pymc as pm
import xarray as xr

import pm_evidence as pe
from pm_evidence.testing import gaussian

TARGET_ERROR = 0.01
DRAWS = 16_000
ESTIMATORS = ("smc", "bridge")


def run(model: pm.Model, seed: int) -> xr.DataTree:
    """Return one round of a fixed number of draws."""
    return pe.sample_evidence(
        model, draws=DRAWS, target_mcse=None, random_seed=seed, progressbar=False
    )


def measure(n_dims: int, repeats: int) -> dict[str, dict[str, float]]:
    """Return error, density evaluations and seconds of each estimator at one dimension."""
    system = gaussian(n_dims)
    model = system.build()
    run(model, 0)
    errors: dict[str, list[float]] = {name: [] for name in ESTIMATORS}
    stated: dict[str, list[float]] = {name: [] for name in ESTIMATORS}
    evaluations, seconds = [], []
    for seed in range(1, repeats + 1):
        started = time.perf_counter()
        dt = run(model, seed)
        seconds.append(time.perf_counter() - started)
        evaluations.append(dt["log_evidence"].attrs["n_evaluations"])
        for name in ESTIMATORS:
            evidence = pe.log_evidence(dt, estimator=name)
            errors[name].append(evidence.value - system.log_evidence)
            stated[name].append(evidence.mcse)
    rows = {}
    for name in ESTIMATORS:
        rmse = float(np.sqrt(np.mean(np.square(errors[name]))))
        mcse = float(np.sqrt(np.mean(np.square(stated[name]))))
        factor = (mcse / TARGET_ERROR) ** 2
        rows[name] = {
            "rmse": rmse,
            "mcse": mcse,
            "evaluations": float(np.mean(evaluations)) * factor,
            "seconds": float(np.median(seconds)) * factor,
        }
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--dims", type=int, nargs="+", default=[10, 20, 50, 100, 200])
    options = parser.parse_args()
    results = {}
    for d in options.dims:
        results[d] = measure(d, options.repeats)
        print(f"d = {d} done", flush=True)
    log_dims = np.log(options.dims)
    for name in ESTIMATORS:
        print(f"\n{name}: to an error of {TARGET_ERROR} nats, {options.repeats} runs each")
        print(f"{'d':>5s} {'rmse':>9s} {'mcse':>9s} {'evaluations':>13s} {'seconds':>9s}")
        for d, rows in results.items():
            row = rows[name]
            errors = f"{row['rmse']:9.5f} {row['mcse']:9.5f}"
            print(f"{d:5d} {errors} {row['evaluations']:13.3g} {row['seconds']:9.3g}")
        for quantity in ("evaluations", "seconds"):
            logs = np.log([rows[name][quantity] for rows in results.values()])
            print(f"{quantity} grow as d^{np.polyfit(log_dims, logs, 1)[0]:.2f}")


if __name__ == "__main__":
    main()
