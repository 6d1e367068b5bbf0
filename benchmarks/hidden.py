"""Evidence of models with thousands of hidden variables that are not groups of a plate.

Random walks of Poisson counts, and crossed effects of as many levels of both factors, each run in a
process of its own. ``python benchmarks/hidden.py [kind:states_or_levels[:rows] ...] [--seeds 2]``.
The log evidence of crossed effects of normal data has a reference:
a normal density given three scales, whose second factor is eliminated, and a quadrature over
these scales.
"""

import argparse
import resource
import subprocess
import sys
import time
import warnings
from itertools import product
from typing import Any

import numpy as np
import pymc as pm
import scipy.linalg
import scipy.optimize
import scipy.sparse as sp

CASES = (
    "walk:10000",
    "walk:100000",
    "normal:50:2500",
    "normal:200:10000",
    "normal:500:25000",
    "poisson:50:2500",
    "poisson:200:10000",
    "poisson:500:25000",
    "poisson:2000:100000",
)


def data_of(kind: str, n: int, rows: int) -> tuple[Any, ...]:
    """Return simulated levels and data."""
    rng = np.random.default_rng(1)
    if kind == "walk":
        x = np.cumsum(0.1 * rng.normal(size=n))
        return (rng.poisson(np.exp(np.clip(1.0 + x, -5.0, 6.0))),)
    i, j = rng.integers(n, size=rows), rng.integers(n, size=rows)
    a, b = 0.7 * rng.normal(size=n), 0.5 * rng.normal(size=n)
    mean = 0.5 + a[i] + b[j]
    return i, j, rng.normal(mean, 1.0) if kind == "normal" else rng.poisson(np.exp(mean))


def model_of(kind: str, n: int, rows: int) -> pm.Model:
    """Return a model with its simulated data."""
    data = data_of(kind, n, rows)
    with pm.Model() as model:
        if kind == "walk":
            start, step = pm.Normal.dist(0, 2), pm.HalfNormal("step", 1)
            x = pm.GaussianRandomWalk("x", 0, step, init_dist=start, steps=n - 1)
            pm.Poisson("y", pm.math.exp(x), observed=data[0])
            return model
        i, j, y = data
        a, b = pm.HalfNormal("scale_a", 1), pm.HalfNormal("scale_b", 1)
        mean = pm.Normal("mean", 0, 1)
        mean = mean + pm.Normal("a", 0, a, shape=n)[i] + pm.Normal("b", 0, b, shape=n)[j]
        if kind == "normal":
            pm.Normal("y", mean, pm.HalfNormal("noise", 1), observed=y)
        else:
            pm.Poisson("y", pm.math.exp(mean), observed=y)
    return model


def exact(n: int, rows: int) -> float:
    """Return the log evidence of the crossed effects of normal data."""
    i, j, y = data_of("normal", n, rows)
    columns = np.concatenate([i, np.full(rows, n), n + 1 + j])
    design = sp.csc_array((np.ones(3 * rows), (np.tile(np.arange(rows), 3), columns)))
    square, with_data = sp.csc_array(design.T @ design), design.T @ y
    kept = slice(0, n + 1)
    within, between = square[kept, kept].toarray(), square[kept, n + 1 :]
    counts = square.diagonal()[n + 1 :]

    def given(logs: Any) -> float:
        scale_a, scale_b, noise = np.exp(logs)
        prior = np.append(np.full(n, scale_a**-2), 1.0)
        rest = counts / noise**2 + scale_b**-2
        cross = between / noise**2
        reduced = within / noise**2 + np.diag(prior) - ((cross / rest) @ cross.T).toarray()
        factor = scipy.linalg.cholesky(reduced, lower=True)
        slope = with_data / noise**2
        white = scipy.linalg.solve_triangular(
            factor, slope[kept] - cross @ (slope[n + 1 :] / rest), lower=True
        )
        squares = y @ y / noise**2 - white @ white - (slope[n + 1 :] ** 2 / rest).sum()
        log_det = 0.5 * np.log(prior).sum() - n * logs[1] - 0.5 * np.log(rest).sum()
        log_det -= np.log(np.diag(factor)).sum() + rows * (0.5 * np.log(2.0 * np.pi) + logs[2])
        hyper = 1.5 * np.log(2.0 / np.pi) - 0.5 * (np.exp(logs) ** 2).sum() + logs.sum()
        return float(log_det - 0.5 * squares + hyper)

    start = np.log([0.7, 0.5, 1.0])
    options = {"xatol": 1e-4, "fatol": 1e-3}
    top = scipy.optimize.minimize(lambda x: -given(x), start, method="Nelder-Mead", options=options)
    width = np.array([(2.0 * n) ** -0.5, (2.0 * n) ** -0.5, (2.0 * rows) ** -0.5]) * 1.1
    nodes = np.linspace(-5.0, 5.0, 11)
    values = [given(top.x + width * np.array(z)) for z in product(nodes, repeat=3)]
    return float(np.logaddexp.reduce(values) + np.log(width * (nodes[1] - nodes[0])).sum())


def measure(kind: str, n: int, rows: int, seed: int) -> None:
    """Print log evidence, error, status, processor seconds and peak memory of a run."""
    model, started = model_of(kind, n, rows), time.process_time()
    import pm_evidence as pe

    warnings.simplefilter("ignore")
    try:
        dt = pe.sample_evidence(model, target_mcse=0.05, random_seed=seed, progressbar=False)
        best = pe.log_evidence(dt)
        found = f"{best.value:.3f} | {best.mcse:.3f} | {best.status}"
    except pe.ModelError as error:
        found = f"- | - | {str(error).split(':')[0]}"
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"{found} | {time.process_time() - started:.0f} | {memory:.1f}")


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=list(CASES))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--seed", type=int, help="print the row of one case and one seed")
    options = parser.parse_args()
    cases = [(kind, *map(int, (*sizes, 0)[:2])) for kind, *sizes in map(_split, options.cases)]
    if options.seed is not None:
        measure(*cases[0], options.seed)
        return
    print("| kind | states or levels | rows | exact | log evidence | error | status | CPU s | GB |")
    print("|---|---|---|---|---|---|---|---|---|")
    for (kind, n, rows), name in zip(cases, options.cases, strict=True):
        reference = f"{exact(n, rows):.3f}" if kind == "normal" else ""
        for seed in range(1, options.seeds + 1):
            command = [sys.executable, __file__, name, "--seed", str(seed)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            print(f"| {kind} | {n} | {rows} | {reference} | {done.stdout.strip()} |", flush=True)


def _split(case: str) -> list[str]:
    return case.split(":")


if __name__ == "__main__":
    main()
