"""Which method for which model: all of them with their defaults on exact systems.

The error is the root mean square error against the exact value over all runs, whatever their
status. Seconds are of the processor in one thread, warm: a first run, which compiles, is not
counted. The cost of an error of 0.01 nats is ``seconds * (rmse / 0.01)**2``; where a method misses
a part of the posterior, no effort buys that error, and the cost only says how far off it is.
``python benchmarks/which_method.py [system ...]``
"""

import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from common import start

import pm_evidence as pe
from pm_evidence.testing import deceptive_systems, exact_systems
from pm_evidence.testing.lattices import transfer_matrix

TARGET_ERROR = 0.01
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


@dataclass(frozen=True)
class Case:
    """A system, what kind it is of, and the methods that it is run with."""

    name: str
    kind: str
    build: Callable[[], Any]
    exact: float
    methods: tuple[str, ...] = ("smc", "ais", "parallel_tempering", "simulated_tempering")


def cases() -> list[Case]:
    systems = exact_systems() | deceptive_systems()
    found = [
        Case(name, kind, systems[name].build, systems[name].log_evidence)
        for name, kind in KINDS.items()
    ]
    for name, lattice in (("Ising, 4 x 4", pe.Ising(4)), ("Potts, 4 x 4, q = 3", pe.Potts(4, q=3))):
        exact = transfer_matrix(lattice) - lattice.log_n_states
        found.append(Case(name, "lattice", lambda lattice=lattice: lattice, exact, ("auto",)))
    return found


def measure(case: Case, target: Any, method: str, repeats: int) -> str:
    """Return a row of the table."""
    rows, estimators = [], []
    for seed in range(repeats + 1):
        started = time.process_time()
        dt = pe.sample_evidence(target, method=method, cores=1, random_seed=seed, progressbar=False)
        seconds = time.process_time() - started
        if not seed:
            continue
        found = pe.log_evidence(dt)
        covered = found.lower <= case.exact <= found.upper
        evaluations = dt["log_evidence"].attrs["n_evaluations"]
        error = found.value - case.exact
        rows.append((error**2, found.mcse, found.status == "ok", covered, seconds, evaluations))
        estimators.append(found.estimator)
    square, mcse, ok, inside, seconds, evaluations = np.mean(rows, axis=0)
    used = dt["log_evidence"].attrs["method"] if method == "auto" else method
    often = Counter(estimators).most_common(1)[0][0]
    cost = seconds * square / TARGET_ERROR**2
    return (
        f"{case.name:37s} {case.kind:26s} {used:19s} {often:11s} {square**0.5:8.4f} {mcse:8.4f} "
        f"{ok:5.0%} {inside:5.0%} {seconds:7.2f} {evaluations:11.3g} {cost:10.3g}"
    )


def main() -> None:
    options = start(__doc__)
    print(f"{options.repeats} runs each with default settings, one thread; errors in nats")
    print(f"to {TARGET_ERROR}: CPU seconds * (rmse / {TARGET_ERROR})**2")
    print(
        f"{'system':37s} {'kind':26s} {'method':19s} {'recommended':11s} {'rmse':>8s} {'mcse':>8s} "
        f"{'ok':>5s} {'in 95':>5s} {'CPU s':>7s} {'evaluations':>11s} {f'to {TARGET_ERROR}':>10s}"
    )
    for case in cases():
        if not options.names or any(part in case.name for part in options.names):
            target = case.build()
            for method in case.methods:
                print(measure(case, target, method, options.repeats), flush=True)


if __name__ == "__main__":
    sys.exit(main())
