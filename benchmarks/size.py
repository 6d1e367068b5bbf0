"""Processor seconds of a first evidence of a model that is written as a loop over its groups.

Each row is a process of its own: the loop with an observed variable for each group, and the same
model without a loop, whose log evidence is the same number. ``python benchmarks/size.py [groups
...]``
"""

import subprocess
import sys
import time
import warnings

import numpy as np
import pymc as pm


def model_of(n: int, looped: bool) -> pm.Model:
    """Return groups of five normal values whose means have a common normal distribution."""
    data = np.random.default_rng(48).normal(np.arange(n)[:, None] % 3, 1.0, (n, 5))
    with pm.Model() as model:
        mean, scale = pm.Normal("mean", 0, 1), pm.HalfNormal("scale", 1)
        noise = pm.HalfNormal("noise", 1)
        of_group = pm.Normal("of_group", mean, scale, shape=n)
        if looped:
            for k in range(n):
                pm.Normal(f"y{k}", of_group[k], noise, observed=data[k])
        else:
            pm.Normal("y", of_group[:, None], noise, observed=data)
    return model


def measure(n: int, looped: bool) -> None:
    """Print the log evidence, its error, and the seconds of a run, import of PyMC excluded."""
    model, started = model_of(n, looped), time.process_time()
    import pm_evidence as pe

    warnings.simplefilter("ignore")
    dt = pe.sample_evidence(model, cores=1, random_seed=1, progressbar=False)
    found = pe.log_evidence(dt)
    print(f"{found} | {found.status} | {time.process_time() - started:.1f}")


def main() -> None:
    """Print a table."""
    if sys.argv[-1] in ("loop", "array"):
        measure(int(sys.argv[1]), sys.argv[2] == "loop")
        return
    print("| groups | written as | log evidence | status | CPU s |\n|---|---|---|---|---|")
    for n in map(int, sys.argv[1:] or (100, 500)):
        for kind in ("loop", "array"):
            command = [sys.executable, __file__, str(n), kind]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            print(f"| {n} | {kind} | {done.stdout.strip()} |", flush=True)


if __name__ == "__main__":
    main()
