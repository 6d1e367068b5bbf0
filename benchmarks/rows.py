"""Logistic regressions of many rows: in this process, and on the workers of a Dask cluster.

Each row is a process of its own. ``python benchmarks/rows.py`` measures 10^6 x 20 and 10^7 x 10
rows in this process, and 10^6 x 20 on one, two and four workers of this machine. With
``--simulated 64`` there are so many workers, each with as many rows: the first evaluates its rows,
and the others wait as long, so that what the cluster adds is measured.
"""

import argparse
import resource
import subprocess
import sys
import time
import warnings
from typing import Any

import numpy as np
import pymc as pm

HERE = ((1_000_000, 20), (10_000_000, 10))
ON_WORKERS = ((1_000_000, 20, 1), (1_000_000, 20, 2), (1_000_000, 20, 4))
SIMULATED = ((100_000, 20), (1_000_000, 20))
_POINTS, _ROUNDS = 16, 12


def data_of(n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Return covariates and binary data."""
    rng = np.random.default_rng(48)
    x = rng.normal(size=(n, d))
    return x, (x @ rng.normal(scale=0.3, size=d) > rng.logistic(size=n)).astype(np.int64)


def model_of(x: Any, y: Any, client: Any = None) -> pm.Model:
    """Return the model, of arrays or of Dask arrays."""
    import pm_evidence as pe

    with pm.Model() as model:
        slopes = pm.Normal("slopes", 0.0, 1.0, shape=x.shape[1])
        if client is None:
            pm.Bernoulli("y", logit_p=x @ slopes, observed=y)
        else:
            pe.rows_on_workers(
                "y",
                lambda x, y: pm.logp(pm.Bernoulli.dist(logit_p=x @ slopes), y),
                (x, y),
                client=client,
            )
    return model


def timed(model: pm.Model) -> str:
    """Return the log evidence, the evaluations, and the seconds of a first and a second run."""
    import pm_evidence as pe

    seconds = []
    for seed in (1, 2):
        started = time.perf_counter()
        dt = pe.sample_evidence(model, target_mcse=0.05, random_seed=seed, progressbar=False)
        seconds.append(time.perf_counter() - started)
    found = pe.log_evidence(dt)
    n = dt["log_evidence"].attrs["n_evaluations"]
    return f"{found} | {found.status} | {n} | {seconds[0]:.1f}, {seconds[1]:.1f}"


def here(n: int, d: int) -> str:
    """Measure a run in this process, and the memory that it adds."""
    x, y = data_of(n, d)
    model = model_of(x, y)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    measured = timed(model)
    added = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e6
    return f"this process | {measured} | {(x.nbytes + y.nbytes) / 1e9:.2f}, {added:.2f}"


def on_workers(n: int, d: int, n_workers: int) -> str:
    """Measure a run on workers that are processes of this machine."""
    import dask.array as da
    from dask.distributed import Client, LocalCluster

    x, y = data_of(n, d)
    size = -(-n // n_workers)
    options = {"threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(n_workers=n_workers, **options) as cluster, Client(cluster) as client:
        arrays = da.from_array(x, chunks=(size, -1)), da.from_array(y, chunks=size)
        return f"{n_workers} workers | {timed(model_of(*arrays, client))} |"


def waited(seconds: float) -> None:
    """Wait as a worker that evaluates its rows."""
    time.sleep(seconds)


def simulated(n: int, d: int, n_workers: int) -> str:
    """Measure evaluations of which one worker evaluates its rows and the others wait."""
    import dask.array as da
    from dask.distributed import Client, LocalCluster

    from pm_evidence.targets.model.rows_on_workers import _sums

    x, y = data_of(n, d)
    options = {"processes": False, "threads_per_worker": 1, "dashboard_address": None}
    options |= {"memory_limit": 0}
    with LocalCluster(n_workers=n_workers, **options) as cluster, Client(cluster) as client:
        arrays = da.from_array(x, chunks=(-1, -1)), da.from_array(y, chunks=-1)
        rows = model_of(*arrays, client).potentials[0].owner.op.rows
        points = [np.random.default_rng(1).normal(scale=0.1, size=(_POINTS, d))]
        rows.sums(points, with_gradient=True)
        alone, seconds = np.inf, []
        for _ in range(_ROUNDS):
            started = time.perf_counter()
            first = client.submit(_sums, rows.sent, points, True, *rows.chunks[0], pure=False)
            count = n_workers - 1 if np.isfinite(alone) else 0
            others = client.map(waited, [alone] * count, pure=False) if count else []
            client.gather([first, *others])
            seconds.append(time.perf_counter() - started)
            alone = min(alone, seconds[0])
        return f"{n_workers} workers, simulated | {1e3 * np.median(seconds[1:]):.0f} ms"


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulated", type=int, default=0, help="number of workers")
    parser.add_argument("--case", nargs="+", help="print the row of one case")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.case:
        kind, *sizes = options.case
        print({"here": here, "workers": on_workers, "simulated": simulated}[kind](*map(int, sizes)))
        return
    cases = [("here", *c) for c in HERE] + [("workers", *c) for c in ON_WORKERS]
    if options.simulated:
        counts = (1, options.simulated)
        cases = [("simulated", *c, n) for c in SIMULATED for n in counts]
        print("| rows of a worker | where | an evaluation of 16 points |\n|---|---|---|")
    else:
        print("| rows | where | log evidence | status | evaluations | first, second s | GB |")
        print("|---|---|---|---|---|---|---|")
    for case in cases:
        command = [sys.executable, __file__, "--case", *map(str, case)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        print(f"| {case[1]:,} x {case[2]} | {done.stdout.strip()}", flush=True)


if __name__ == "__main__":
    main()
