"""Realistic models with known log evidences: error and cost beside one run of NUTS.

Each model is run once, which compiles it, and then with a few seeds, on one core, until the error
is at most ``--target`` nats. Its evaluations are divided by the gradients of one run of
``pm.sample``: four chains of 1,000 tuning and 2,000 kept draws, counted once and stored in
``practitioners_nuts.csv`` (a count that is missing there is made). References come from closed
forms, quadrature, or importance sampling in NumPy; no run of the package is among them. Runs are
stored in ``docs/figures/practitioners.csv``, and table and picture are made from all that it holds.
``--peers`` runs ``pm.sample_smc`` as well, and dynesty and nautilus on up to ten dimensions if they
are installed. ``python benchmarks/practitioners.py [names] [--target 0.05] [--seeds 3] [--peers]``
``--all-variables`` integrates no local variables (``marginalise=False``), and stores nothing.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
from common import start
from practitioner_models import CASES, Case, Reference
from practitioner_models.nuts import NutsCount, count, stored_counts
from practitioner_models.peers import PEERS, Peer
from practitioner_models.results import (
    OursRun,
    markdown,
    markdown_of_peers,
    picture,
    replace_rows,
    summary,
)

import pm_evidence as pe

FIGURES = Path(__file__).parents[1] / "docs" / "figures"
RUNS, PEER_RUNS = FIGURES / "practitioners.csv", FIGURES / "practitioners_peers.csv"
PICTURE = FIGURES / "practitioners.png"


def timed_run(model: pm.Model, options: argparse.Namespace, seed: int) -> tuple[Any, float]:
    """Return the result of a run and its seconds of processor time."""
    started = time.process_time()
    dt = pe.sample_evidence(
        model,
        target_mcse=options.target,
        max_time=options.max_time,
        cores=1,
        random_seed=seed,
        progressbar=False,
        marginalise=False if options.all_variables else "auto",
    )
    return dt, time.process_time() - started


def measure(
    case: Case, reference: Reference, nuts: NutsCount | None, options: argparse.Namespace
) -> list[OursRun]:
    """Run a model once cold and with each seed warm."""
    model = case.build()
    dims = sum(np.size(value) for value in model.initial_point().values())
    gradients = nuts.gradients if nuts is not None else float("nan")
    _, first = timed_run(model, options, 0)
    rows = []
    for seed in range(1, options.seeds + 1):
        dt, seconds = timed_run(model, options, seed)
        found = pe.log_evidence(dt)
        evaluations = int(dt["log_evidence"].attrs["n_evaluations"])
        row = OursRun(
            model=case.name,
            dims=dims,
            near_gaussian=case.near_gaussian,
            seed=seed,
            target=options.target,
            reference=reference.log_evidence,
            reference_error=reference.error,
            error=found.value - reference.log_evidence,
            mcse=found.mcse,
            status=found.status,
            estimator=found.estimator,
            n_evaluations=evaluations,
            nuts_gradients=gradients,
            ratio=evaluations / gradients,
            cpu_seconds=seconds,
            first_seconds=first,
        )
        print(
            f"{case.name:37s} {row.error:+8.4f} {row.mcse:7.4f} {row.status:18s} "
            f"{row.estimator:12s} {evaluations:9d} {row.ratio:7.2f} {seconds:7.2f} {first:6.1f}",
            flush=True,
        )
        rows.append(row)
    return rows


def beside(case: Case, reference: Reference) -> list[Peer]:
    """Run the other packages."""
    found = []
    for name, run in PEERS.items():
        result = run(case)
        if isinstance(result, str):
            print(f"    {name}: {result}", flush=True)
            continue
        print(
            f"    {name}: {result.value - reference.log_evidence:+.3f} +- {result.error:.3f}, "
            f"{result.cpu_seconds:.1f} s",
            flush=True,
        )
        found.append(result)
    return found


def options_of(parser: argparse.ArgumentParser) -> None:
    """Add what this benchmark can be asked."""
    parser.add_argument("--target", type=float, default=0.05, help="nats")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--max-time", type=float, default=600.0, help="seconds of each run")
    parser.add_argument("--peers", action="store_true", help="run other packages, too")
    parser.add_argument(
        "--all-variables", action="store_true", help="integrate none of them; nothing is stored"
    )
    parser.add_argument("--nuts-only", action="store_true", help="count gradients of NUTS only")


def main() -> None:
    options = start(__doc__, add=options_of)
    print(
        f"{'model':37s} {'error':>8s} {'mcse':>7s} {'status':18s} {'estimator':12s} "
        f"{'evals':>9s} {'to NUTS':>7s} {'CPU s':>7s} {'first':>6s}"
    )
    for case in CASES.values():
        if options.names and not any(part in case.name for part in options.names):
            continue
        try:
            reference = case.reference()
        except FileNotFoundError as missing:
            print(f"{case.name}: left out. {missing}")
            continue
        nuts = count(case, reference.log_evidence)
        if options.nuts_only:
            print(nuts)
            continue
        rows = measure(case, reference, nuts, options)
        if options.all_variables:
            continue
        runs = replace_rows(RUNS, rows, case)
        table = summary(runs, list(CASES))
        picture(table, PICTURE)
        if options.peers and (found := beside(case, reference)):
            replace_rows(PEER_RUNS, found, case)
    if RUNS.is_file() and not options.all_variables:
        table = summary(pd.read_csv(RUNS), list(CASES))
        print(markdown(table, stored_counts()))
        if PEER_RUNS.is_file():
            print(markdown_of_peers(pd.read_csv(PEER_RUNS), dict(table["reference"])))


if __name__ == "__main__":
    sys.exit(main())
