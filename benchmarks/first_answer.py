"""Processor seconds of the first and of a second evidence, beside those of PyMC's samplers.

Every row is a process of its own with one core and with empty folders for machine code, as on a
machine that has run nothing before. Seconds include the import of the package, and not that of
PyMC, which all three need. The models are those of ``practitioners.py``; ``pm.sample`` makes four
chains of 1,000 tuning and 1,000 kept draws. Runs that take longer than ``--most`` seconds are
stopped. ``python benchmarks/first_answer.py [model ...] [--most 100] [--ours]``
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

import pymc as pm

WHAT = ("pm_evidence", "pm.sample", "pm.sample_smc")


def caller(what: str, model: pm.Model) -> Callable[[], Any]:
    """Return a function that runs one of the three."""
    common = {"cores": 1, "random_seed": 1, "progressbar": False}
    if what == "pm.sample":
        return lambda: pm.sample(1000, tune=1000, chains=4, model=model, **common)
    if what == "pm.sample_smc":
        return lambda: pm.sample_smc(1000, chains=4, model=model, **common)

    def evidence() -> Any:
        import pm_evidence as pe

        return pe.sample_evidence(model, **common)

    return evidence


def measure(what: str, name: str) -> None:
    """Print the seconds of a first and of a second call."""
    from practitioner_models import CASES

    warnings.simplefilter("ignore")
    call = caller(what, CASES[name].build())
    for _ in range(2):
        started = time.process_time()
        call()
        print(f"{time.process_time() - started:.2f}", flush=True)


def in_process(what: str, name: str, most: float) -> list[str]:
    """Return what a process of its own prints: seconds, or fewer of them if it takes too long."""
    with tempfile.TemporaryDirectory() as folder:
        new = {
            "NUMBA_CACHE_DIR": f"{folder}/numba",
            "PYTENSOR_FLAGS": f"base_compiledir={folder}/pytensor",
            "OMP_NUM_THREADS": "1",
        }
        command = [sys.executable, __file__, name, "--measure", what]
        try:
            done = subprocess.run(
                command, env=os.environ | new, capture_output=True, text=True, timeout=most
            )
            return done.stdout.split() or ["failed"]
        except subprocess.TimeoutExpired as late:
            return (late.stdout or b"").decode().split() or [f"above {most:g}"]


def main(options: argparse.Namespace) -> None:
    """Print a table with a row for each model."""
    from practitioner_models import CASES

    sides = WHAT[:1] if options.ours else WHAT
    print(f"| model | {' | '.join(f'{what}: first | second' for what in sides)} |")
    print(f"|---|{'---|---|' * len(sides)}")
    for name in options.names or CASES:
        cells = [(*in_process(what, name, options.most), "", "")[:2] for what in sides]
        print(f"| {name} | {' | '.join(' | '.join(pair) for pair in cells)} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="model")
    parser.add_argument("--most", type=float, default=100.0)
    parser.add_argument("--ours", action="store_true")
    parser.add_argument("--measure", choices=WHAT, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.measure:
        measure(chosen.measure, chosen.names[0])
    else:
        main(chosen)
