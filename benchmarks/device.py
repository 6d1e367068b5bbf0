"""JAX on the device that it finds: programs, trips to the device, and seconds of two runs.

Each model has a process of its own. A trip evaluates one block of a population: its points go to
the device, and densities and gradients come back. Runs aim at an error of 0.05 nats, the second
with another seed. No program is on disk before; those of JAX itself, which copy constants, do not
count. A gradient is timed at populations of 20, 320 and 4,096 points.
``python benchmarks/device.py [part of a name ...]`` takes four minutes on a GPU; ``--small`` has
data sets of a hundredth, for a processor.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from functools import partial
from typing import Any

import numpy as np
import pymc as pm
from practitioner_models import CASES

import pm_evidence as pe
from pm_evidence.core.jax import device_name, load_jax
from pm_evidence.targets.compile.jax_density import _Program
from pm_evidence.targets.model.cache import target_of

LIMIT = 100.0  # seconds for a model
POPULATIONS = (20, 320, 4096)
PROGRAMS = "/jax/core/compile/backend_compile_duration"


def logistic(n: int, d: int) -> pm.Model:
    """Return a logistic regression."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(n, d)) / d**0.5
    y = rng.random(n) < 1.0 / (1.0 + np.exp(-x @ rng.normal(size=d)))
    with pm.Model() as model:
        coefficients = pm.Normal("coefficients", 0, 1, shape=d)
        pm.Bernoulli("y", logit_p=pm.math.dot(x, coefficients), observed=y)
    return model


def process(n: int) -> pm.Model:
    """Return a Gaussian process with noise, of which the latent values are integrated."""
    rng = np.random.default_rng(2)
    x = np.linspace(0, 10, n)
    with pm.Model() as model:
        length, height = pm.LogNormal("length", 0, 1), pm.HalfNormal("height", 1)
        covariance = height**2 * pm.gp.cov.ExpQuad(1, length)
        process = pm.gp.Marginal(cov_func=covariance)
        noise = pm.HalfNormal("noise", 1)
        process.marginal_likelihood("y", x[:, None], np.sin(x) + rng.normal(0, 0.3, n), noise)
    return model


def models(*, small: bool) -> dict[str, Any]:
    """Return the models by name."""
    share = 100 if small else 1
    return {
        "logistic, 200,000 x 100": partial(logistic, 200_000 // share, 100),
        "item response": CASES["item_response"].build,
        "German credit": CASES["german_credit"].build,
        "eight schools": CASES["eight_schools_half_cauchy_centred"].build,
        "Gaussian process, 500": partial(process, 500 // min(share, 5)),
    }


def measure(name: str, *, small: bool) -> None:
    """Print what one model takes."""
    warnings.simplefilter("ignore")
    seen: Counter[str] = Counter()

    def note(event: str, _: float, fun_name: str = "", **__: Any) -> None:
        seen["programs"] += event == PROGRAMS and fun_name != "jit(stage)"

    load_jax().monitoring.register_event_duration_secs_listener(note)
    compiled = _Program.compiled.func

    def counted(program: Any) -> Any:
        function = compiled(program)

        def call(*arguments: Any) -> Any:
            seen["trips"] += 1
            return function(*arguments)

        return call

    _Program.compiled.func = counted
    model, runs = models(small=small)[name](), []
    for seed in (1, 2):
        seen.clear()
        started = time.perf_counter()
        dt = pe.sample_evidence(
            model, backend="jax", target_mcse=0.05, random_seed=seed, progressbar=False
        )
        runs.append((time.perf_counter() - started, seen["programs"], seen["trips"]))
    target = target_of(model, backend="jax")
    gradients = []
    for n in POPULATIONS:
        x = target.draw(n, np.random.SeedSequence(1)).x
        target.differentiable.evaluate(x)
        started, calls = time.perf_counter(), 0
        while time.perf_counter() - started < 0.5:
            target.differentiable.evaluate(x)
            calls += 1
        gradients.append((time.perf_counter() - started) / calls / n * 1e6)
    found = pe.log_evidence(dt)
    row = {"runs": runs, "gradients": gradients, "found": f"{found} {found.status}"}
    print(json.dumps(row | {"device": device_name()}))


def main() -> None:
    """Print a table."""
    small, names = "--small" in sys.argv, [a for a in sys.argv[1:] if a != "--small"]
    if names[:1] == ["measure"]:
        measure(names[1], small=small)
        return
    print("| model | first, s | programs | trips | second, s | programs | trips |", end="")
    print(" gradient at 20, 320, 4,096 points, µs | log evidence |\n" + "|---" * 9 + "|")
    for name in models(small=small):
        if names and not any(part in name for part in names):
            continue
        command = [sys.executable, __file__, "measure", name, *(["--small"] if small else [])]
        try:
            with tempfile.TemporaryDirectory() as folder:
                done = subprocess.run(
                    command,
                    env=os.environ | {"JAX_COMPILATION_CACHE_DIR": folder},
                    capture_output=True,
                    text=True,
                    timeout=LIMIT,
                    check=True,
                )
        except subprocess.TimeoutExpired:
            print(f"| {name} | not ended after {LIMIT:.0f} s |" + " |" * 7, flush=True)
            continue
        row = json.loads(done.stdout.splitlines()[-1])
        times = " | ".join(f"{t:.1f} | {programs} | {trips}" for t, programs, trips in row["runs"])
        gradients = ", ".join(f"{each:.3g}" for each in row["gradients"])
        print(f"| {name} | {times} | {gradients} | {row['found']} |", flush=True)
    print(f"Device: {row['device']}")


if __name__ == "__main__":
    main()
