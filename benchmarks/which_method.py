"""Which method for which model: all of them with their defaults on exact systems.

The error is the root mean square error against the exact value over all runs, whatever their
status. Seconds are of the processor in one thread, warm: a first run, which compiles, is not
counted. The cost of an error of 0.01 nats is ``seconds * (rmse / 0.01)**2``; where a method misses
a part of the posterior, no effort buys that error, and the cost only says how far off it is. "auto"
is what users get who choose no method; behind it stands the route that most runs ended on.
``python benchmarks/which_method.py [system ...] [--methods auto smc] [--target-mcse 0.01]``
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from common import start
from practitioner_models import CASES

import pm_evidence as pe
from pm_evidence.testing.lattices import transfer_matrix
from tests.systems.exact import deceptive_systems, exact_systems

TARGET_ERROR = 0.01
METHODS = ("auto", "smc", "ais", "parallel_tempering", "simulated_tempering")
KINDS = {
    "eight_schools_half_cauchy_noncentred": "hierarchical",
    "eight_schools_half_cauchy_centred": "hierarchical, funnel",
    "one_way_centred": "hierarchical, funnel",
    "student_t_groups": "hierarchical, heavy tails",
    "gaussian_10": "Gaussian",
    "correlated_gaussian_50": "Gaussian, correlated",
    "bimodal_10": "two modes",
    "gaussian_shells": "two thin shells",
    "two_widths_6": "two unequal modes",
    "label_switching": "symmetric modes",
    "spike_20": "spike in a slab",
    "spike_and_slab": "discrete and continuous",
    "change_point": "discrete and continuous",
    "hidden_markov": "discrete states",
}
REGRESSIONS = {"logistic_3": "regression", "poisson_glmm": "regression, random effects"}


@dataclass(frozen=True)
class Case:
    """A system, what kind it is of, and the methods that it is run with."""

    name: str
    kind: str
    build: Callable[[], Any]
    exact: float
    methods: tuple[str, ...] = METHODS


def cases() -> list[Case]:
    systems = exact_systems() | deceptive_systems()
    found = [
        Case(name, kind, systems[name].build, systems[name].log_evidence)
        for name, kind in KINDS.items()
    ]
    for name, kind in REGRESSIONS.items():
        case = CASES[name]
        found.append(Case(name, kind, case.build, case.reference().log_evidence))
    for name, lattice in (
        ("Ising, 4 x 4", pe.lattices.Ising(4)),
        ("Potts, 4 x 4, q = 3", pe.lattices.Potts(4, q=3)),
    ):
        exact = transfer_matrix(lattice) - lattice.log_n_states
        found.append(Case(name, "lattice", lambda lattice=lattice: lattice, exact, ("auto",)))
    return found


def measure(case: Case, target: Any, method: str, options: argparse.Namespace) -> str:
    """Return a row of the table."""
    rows, estimators, ways = [], [], []
    for seed in range(options.repeats + 1):
        started = time.process_time()
        dt = pe.sample_evidence(
            target,
            method=method,
            target_mcse=options.target_mcse,
            cores=1,
            random_seed=seed,
            progressbar=False,
        )
        seconds = time.process_time() - started
        if not seed:
            continue
        found = pe.log_evidence(dt)
        covered = found.lower <= case.exact <= found.upper
        attrs = dt["log_evidence"].attrs
        error = found.value - case.exact
        row = (error**2, found.mcse, found.status == "ok", covered, seconds, attrs["n_evaluations"])
        rows.append(row)
        estimators.append(found.estimator)
        ways.append(attrs.get("route") or attrs["method"])
    square, mcse, ok, inside, seconds, evaluations = np.mean(rows, axis=0)
    used = f"auto: {most_common(ways)}" if method == "auto" else method
    cost = seconds * square / TARGET_ERROR**2
    return (
        f"{case.name:37s} {case.kind:26s} {used:19s} {most_common(estimators):11s} "
        f"{square**0.5:8.4f} {mcse:8.4f} {ok:5.0%} {inside:5.0%} {seconds:7.2f} "
        f"{evaluations:11.3g} {cost:10.3g}"
    )


def most_common(names: list[str]) -> str:
    """Return the name that occurs most often."""
    return Counter(names).most_common(1)[0][0]


def options_of(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this benchmark."""
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--target-mcse", type=float, default=0.02)


def main() -> None:
    options = start(__doc__, add=options_of)
    print(f"{options.repeats} runs each, target {options.target_mcse} nats, one thread")
    print(f"to {TARGET_ERROR}: CPU seconds * (rmse / {TARGET_ERROR})**2; errors in nats")
    print(
        f"{'system':37s} {'kind':26s} {'method':19s} {'recommended':11s} {'rmse':>8s} {'mcse':>8s} "
        f"{'ok':>5s} {'in 95':>5s} {'CPU s':>7s} {'evaluations':>11s} {f'to {TARGET_ERROR}':>10s}"
    )
    for case in cases():
        if not options.names or any(part in case.name for part in options.names):
            target = case.build()
            for method in case.methods:
                if method in options.methods:
                    print(measure(case, target, method, options), flush=True)


if __name__ == "__main__":
    sys.exit(main())
