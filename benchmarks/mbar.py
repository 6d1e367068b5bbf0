"""Time of MBAR and of the other estimators of tempering, and of pymbar where it is installed.

States of a normal prior and a normal likelihood in 20 dimensions, on ladders of several lengths.
``python benchmarks/mbar.py [names ...] [--repeats 3]``; the name ``pymbar`` takes minutes.
"""

import contextlib
import io
import time
from collections.abc import Callable

import common
import numpy as np

from pm_evidence.estimators import (
    chained_bar,
    mbar,
    mbar_curve,
    multistate,
    multistate_curve,
    rts,
    rts_curve,
    stepping_stone,
    ti,
    ti_rb,
)

DIM, STRENGTH = 20, 15.0


def states(n_temperatures: int, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return temperatures, log normalising constants, and energies and rungs of ``n`` states."""
    beta = np.linspace(0.0, 1.0, n_temperatures) ** 2
    rung = np.repeat(np.arange(n_temperatures), n // n_temperatures)
    sd = 1.0 / np.sqrt(1.0 + STRENGTH * beta[rung])
    x = np.random.default_rng(1).normal(size=(rung.size, DIM)) * sd[:, None]
    log_z = -0.5 * DIM * np.log1p(STRENGTH * beta)
    return beta, log_z, 0.5 * STRENGTH * (x**2).sum(axis=1), rung


def seconds(task: Callable[[], object], repeats: int) -> tuple[float, object]:
    """Return the median time of a task, after one call that compiles, and its result."""
    result, times = task(), []
    for _ in range(repeats):
        started = time.perf_counter()
        result = task()
        times.append(time.perf_counter() - started)
    return float(np.median(times)), result


def tasks(n_temperatures: int, n: int) -> dict[str, Callable[[], object]]:
    """Return what is timed on one ladder, by name."""
    beta, log_z, energy, rung = states(n_temperatures, n)
    counts, groups = np.bincount(rung), np.arange(rung.size) % 16
    found: dict[str, Callable[[], object]] = {
        "mbar": lambda: mbar(beta, energy, rung),
        "mbar, 16 groups": lambda: mbar(beta, energy, rung, groups=groups),
        "mbar_curve": lambda: mbar_curve(beta, energy, rung),
        "mbar_curve, 16 groups": lambda: mbar_curve(beta, energy, rung, groups=groups),
        "stepping_stone": lambda: stepping_stone(beta, energy, rung),
        "chained_bar": lambda: chained_bar(beta, energy, rung),
        "ti": lambda: ti(beta, energy, rung),
        "rts": lambda: rts(beta, energy, log_z),
        "rts_curve, 16 groups": lambda: rts_curve(beta, energy, log_z, groups=groups),
        "ti_rb": lambda: ti_rb(beta, energy, log_z),
    }
    if n_temperatures <= 100:
        table = beta[:, None] * energy
        found["multistate"] = lambda: multistate(table, counts)
        found["multistate_curve"] = lambda: multistate_curve(table, counts)
        found["pymbar"] = lambda: pymbar_curve(table, counts)
    return found


def pymbar_curve(table: np.ndarray, counts: np.ndarray) -> object:
    """Return pymbar's value and error of the last state relative to the first."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        import pymbar

        solved = pymbar.MBAR(table, counts, solver_protocol="robust")
        found = solved.compute_free_energy_differences(compute_uncertainty=True)
    return -float(found["Delta_f"][0, -1]), float(found["dDelta_f"][0, -1])


def main() -> None:
    options = common.start(__doc__, repeats=3)
    for n_temperatures, n in ((20, 20_000), (100, 100_000), (1000, 20_000)):
        exact = states(n_temperatures, n)[1][-1]
        print(f"\n{n_temperatures} temperatures, {n:,} states, log Z {exact:.4f}\n")
        for name, task in tasks(n_temperatures, n).items():
            if options.names and name.split(",")[0] not in options.names:
                continue
            try:
                took, result = seconds(task, 1 if name == "pymbar" else options.repeats)
            except ImportError:
                continue
            last = getattr(result, "difference", None)
            shown = last(n_temperatures - 1) if last else result
            print(f"{name:24s}{took:10.3f} s  {shown}", flush=True)


if __name__ == "__main__":
    main()
