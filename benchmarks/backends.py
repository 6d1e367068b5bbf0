"""numba and JAX: cost of a gradient, of the first call and of a whole run, on a few models.

Every backend of a model has a process of its own, with an empty folder for PyTensor's compiled
code; the kernels of the package are compiled beforehand. The first call includes compilation and
the import of JAX, the second is a run with the target of the first. Times are those of a clock, on
as many cores as the machine has; a gradient is that of a population of 20 (a member of an island)
and of 320 points. Runs aim at an error of 0.05 nats. ``python benchmarks/backends.py [part of a
name ...]``
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable

import numpy as np
import pymc as pm
from common import start
from practitioner_models import CASES

import pm_evidence as pe
from pm_evidence.targets.model.cache import target_of

NAMES = (
    "eight_schools_half_cauchy_noncentred",
    "german_credit",
    "item_response",
    "logistic_50000_x_20",
    "gp_marginal",
    "ode",
)
BACKENDS = ("numba", "jax")
TARGET = 0.05
AT_LEAST = 0.5  # seconds of each timing of a gradient


def seconds(call: Callable[[], object]) -> float:
    """Least time of one call, over repetitions for half a second."""
    call()
    best, until = np.inf, time.perf_counter() + AT_LEAST
    while time.perf_counter() < until:
        started = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - started)
    return best


def measure(name: str, backend: str) -> None:
    """Print the times of one backend as JSON."""
    warnings.simplefilter("ignore")
    model = CASES[name].build()

    def run() -> tuple[float, pe.LogEvidence]:
        started = time.perf_counter()
        dt = pe.sample_evidence(
            model, backend=backend, target_mcse=TARGET, random_seed=1, progressbar=False
        )
        return time.perf_counter() - started, pe.log_evidence(dt)

    first, found = run()
    second, _ = run()
    target = target_of(model, backend=backend, reparameterise=True)
    per_gradient = {}
    for n in (20, 320):
        x = target.draw(n, np.random.SeedSequence(1)).x
        per_gradient[n] = seconds(lambda x=x: target.differentiable.evaluate(x)) / n
    print(json.dumps([per_gradient[20], per_gradient[320], first, second, found.value, found.mcse]))


def in_process(name: str, backend: str) -> list[float]:
    """Return the times of one backend in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, __file__, "--measure", name, backend],
            env=os.environ | {"PYTENSOR_FLAGS": f"base_compiledir={folder}"},
            capture_output=True,
            text=True,
            check=True,
        )
    times: list[float] = json.loads(done.stdout.splitlines()[-1])
    return times


def main() -> None:
    """Print a table with a row for each backend of each model."""
    options = start(__doc__)
    with pm.Model() as tiny:
        x = pm.Normal("x")
        pm.Normal("y", x, 1, observed=1.0)
    pe.sample_evidence(tiny, progressbar=False)  # compiles the kernels of the package
    print(
        "| model | backend | gradient of 20, us | of 320 | first call, s | second | log Z | mcse |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for name in NAMES:
        if options.names and not any(part in name for part in options.names):
            continue
        for backend in BACKENDS:
            few, many, first, second, value, mcse = in_process(name, backend)
            print(
                f"| {name} | {backend} | {1e6 * few:.3g} | {1e6 * many:.3g} | {first:.1f} "
                f"| {second:.1f} | {value:.2f} | {mcse:.3f} |",
                flush=True,
            )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        measure(*sys.argv[2:4])
    else:
        main()
