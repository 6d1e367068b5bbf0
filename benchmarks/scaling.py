"""Cost of the evidence of a Gaussian as its dimension grows.

The cost of an error of 0.01 nats is ``(what the run took) * (mcse / 0.01)**2``. It is computed with
the stated error, which is less noisy than the root mean square error next to it. A run is one round
of 16,000 draws in all, 1,000 on each of 16 islands. ``python benchmarks/scaling.py``

With ``--cores``, the efficiency of whole default runs on two cores, and over two Dask workers: the
time on one core over twice the time on two. Runs on one core, on two and over Dask follow each
other, and the best and the median ratio are printed. Beside them stands the efficiency that the
processor time of the serial parts allows, which other processes on the machine do not change.
``python benchmarks/scaling.py --cores [model ...] [--target-mcse 0.005]``
"""

import argparse
import logging
import time
from concurrent.futures import Executor
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from common import start
from practitioner_models import CASES
from workers import recorded

import pm_evidence as pe
from pm_evidence.testing import gaussian

TARGET_ERROR = 0.01
DRAWS = 16_000
ESTIMATORS = ("smc", "bridge")
PARALLEL = ("eight_schools_half_normal_noncentred", "german_credit", "lkj_covariance")


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


def timed(model: pm.Model, target: float, cores: int, executor: Executor | None = None) -> float:
    """Return the seconds of a run with a target error."""
    where: dict[str, Any] = {"cores": cores, "executor": executor}
    started = time.perf_counter()
    pe.sample_evidence(model, target_mcse=target, random_seed=1, progressbar=False, **where)
    return time.perf_counter() - started


def allowed(name: str) -> float:
    """Return the efficiency on two cores that the serial share of processor time allows."""
    parts = recorded(name).parts
    total = sum(part.seconds.sum() for part in parts)
    serial = sum(part.seconds.sum() for part in parts if part.kind == "serial")
    return float(1.0 / (1.0 + serial / total))


def efficiencies(names: list[str], repeats: int, target: float) -> None:
    """Print a table of the efficiency of whole runs on two cores and over two workers."""
    from dask.distributed import Client, LocalCluster

    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    print("| model | one core | two cores | two Dask workers | from processor time |")
    print("|---|---|---|---|---|")
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        executor = client.get_executor()
        for name in names:
            model = CASES[name].build()
            timed(model, target, 2)
            timed(model, target, 2, executor)
            one, two, dask = np.array(
                [
                    (
                        timed(model, target, 1),
                        timed(model, target, 2),
                        timed(model, target, 2, executor),
                    )
                    for _ in range(repeats)
                ]
            ).T
            cells = [f"{one.min():.2f} s"]
            for other in (two, dask):
                ratio = one / (2 * other)
                cells.append(f"{ratio.max():.2f} (median {np.median(ratio):.2f})")
            print(f"| {name} | {' | '.join(cells)} | {allowed(name):.2f} |", flush=True)


def options_of(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this benchmark."""
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--dims", type=int, nargs="+", default=[10, 20, 50, 100, 200])
    parser.add_argument("--cores", action="store_true")
    parser.add_argument("--target-mcse", type=float, default=0.02)


def main() -> None:
    options = start(__doc__, add=options_of)
    if options.cores:
        efficiencies(options.names or list(PARALLEL), options.repeats, options.target_mcse)
        return
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
