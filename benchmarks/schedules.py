"""Annealing schedules: variance of the log weights of forward paths at an equal number of stages.

Each schedule runs ``AIS(direction="forward")`` with as many stages as the adaptive schedule has,
with equal seeds, one round of ``PATHS`` paths a run. Columns: mean over runs of the variance of the
log weights (square nats) with its standard error; the same divided by that of the adaptive
schedule; the variance that the schedule predicted (median over runs); the effective share of the
paths; the root mean square error of log Z (nats), against the exact value where there is one, else
against the median of all runs; evaluations of the density or gradient per path, without the pilot;
and those of the whole run in millions. Under a heavy-tailed prior a few paths have log weights of
minus millions, so the variance is that of the paths with a weight of more than ``exp(-30)`` times
the mean. ``python benchmarks/schedules.py [system ...]``
"""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from common import logistic_regression, start

import pm_evidence as pe
from pm_evidence.core.numerics import ess_share, log_mean_exp
from tests.systems.exact import exact_systems

PATHS = 512
NAMES = (
    "eight_schools_half_cauchy_noncentred",
    "eight_schools_half_cauchy_centred",
    "correlated_gaussian_50",
    "change_point",
    "spike_and_slab",
)


def targets() -> dict[str, tuple[Callable[[], Any], float, int]]:
    """Return what builds each target, its exact log Z (NaN if not known), and a number of stages.

    The number is about the default of AIS.
    """
    systems = exact_systems()
    found = {name: (systems[name].build, systems[name].log_evidence, 60) for name in NAMES}
    gaussian, ising = pe.mixtures.Gaussian(), pe.lattices.Ising(16)
    return found | {
        "logistic_regression": (logistic_regression, np.nan, 60),
        "Gaussian": (lambda: gaussian, gaussian.log_evidence, 200),
        "Ising 16": (lambda: ising, np.nan, 2000),
    }


def schedules(n_stages: int) -> dict[str, Any]:
    """Return the schedules that are compared with the adaptive one."""
    return {
        "linear": "linear",
        "sm08": "sm08",
        "gms13": "gms13",
        "varopt": "varopt",
        "varopt, steps <= 3 / K": pe.schedules.VarOpt(largest_step=3.0 / n_stages),
        "varopt, steps <= 10 / K": pe.schedules.VarOpt(largest_step=min(10.0 / n_stages, 1.0)),
    }


def measure(target: Any, schedule: Any, n_stages: int, repeats: int) -> dict[str, Any]:
    """Return the figures of repeated runs of one schedule."""
    rows = []
    for seed in range(repeats):
        dt = pe.sample_evidence(
            target,
            method=pe.methods.AIS(direction="forward", n_stages=n_stages),
            schedule=schedule,
            draws=PATHS,
            target_mcse=None,
            cores=1,
            random_seed=seed,
            progressbar=False,
        )
        work, facts = dt["work"]["forward"].values, dt["log_evidence"].attrs
        alive = work[work - 30.0 < -log_mean_exp(-work)]
        per_path = dt["work"]["forward_n_evaluations"].values.sum() / PATHS
        predicted = float(facts["schedule_predicted_variance"])
        rows.append(
            (
                alive.var(ddof=1),
                predicted,
                ess_share(-work),
                log_mean_exp(-work),
                per_path,
                facts["n_evaluations"] / 1e6,
            )
        )
    table = np.array(rows)
    return {
        "table": table,
        "stages": dt["annealing"].sizes["stage"],
        "error": table[:, 0].std(ddof=1) / repeats**0.5,
    }


def main() -> None:
    options = start(__doc__, repeats=8)
    print(f"{options.repeats} runs of {PATHS} forward paths, one thread, equal seeds")
    print(
        f"{'target':36s} {'schedule':24s} {'stages':>6s} {'variance':>9s} {'error':>7s} "
        f"{'ratio':>6s} {'predicted':>9s} {'ESS':>6s} {'rmse':>7s} {'per path':>8s} {'in all':>7s}"
    )
    for name, (build, exact, n_stages) in targets().items():
        if options.names and not any(part in name for part in options.names):
            continue
        target = build()
        found = {"adaptive": measure(target, "adaptive", n_stages, options.repeats)}
        n_stages = found["adaptive"]["stages"]
        for label, schedule in schedules(n_stages).items():
            found[label] = measure(target, schedule, n_stages, options.repeats)
        values = np.concatenate([each["table"][:, 3] for each in found.values()])
        truth = exact if np.isfinite(exact) else float(np.median(values))
        base = found["adaptive"]["table"][:, 0].mean()
        for label, each in found.items():
            variance, _, ess, _, per_path, in_all = each["table"].mean(axis=0)
            predicted = np.median(each["table"][:, 1])
            rmse = np.sqrt(np.mean((each["table"][:, 3] - truth) ** 2))
            print(
                f"{name:36s} {label:24s} {each['stages']:6d} {variance:9.3f} {each['error']:7.3f} "
                f"{variance / base:6.2f} {predicted:9.3f} {ess:6.3f} {rmse:7.4f} {per_path:8.0f} "
                f"{in_all:7.2f}",
                flush=True,
            )


if __name__ == "__main__":
    sys.exit(main())
