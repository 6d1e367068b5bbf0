"""RMSE against the number of temperatures: Figure 4 of Carlson et al. (2016).

The published machine with 500 hidden units is tempered with 10 to 1,000 temperatures. From a long
run of each, 10,000 states are drawn with replacement 200 times (as often as time allows for MBAR),
and every estimator is applied to them. The error of an estimate is its difference from that of RTS
from all states of its run: so the figure shows what the estimators make of the same states, and not
the error of a run of finite length, which is the same for all of them.

All runs have the same weights ``log_z``, which come from a run with 100 temperatures; between its
temperatures they are interpolated.

    python examples/papers/carlson2016/figure4.py FOLDER [--quick]

FOLDER receives the runs, which are not made again, and carlson2016_figure4.csv, from which page.py
draws the figure.
"""

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.interpolate import CubicSpline

import pm_evidence as pe

sys.path.append(str(Path(__file__).parent))
from algorithm1 import annealed_chains, initial_iterations, long_run
from machines import kept, machine

SEED = 4
N_CHAINS, DISCARDED = 100, 0.25
# Temperatures of the first run, and sweeps of its parts; see figure3.py.
N_FIRST, N_ITERATIONS, N_SWEEPS = 100, 6, 50


@dataclass(frozen=True)
class Sizes:
    """Sizes of the runs.

    Parameters
    ----------
    n_temperatures : tuple of int
        Numbers of temperatures.
    sweeps : int
        Sweeps of a run, of which the first quarter is discarded.
    n_states : int
        States that an estimate is made from.
    repeats : int
        Number of estimates.
    mbar : tuple of (int, int)
        Number of estimates of MBAR up to each number of temperatures.
    """

    n_temperatures: tuple[int, ...] = (10, 20, 50, 100, 200, 500, 1000)
    sweeps: int = 8000
    n_states: int = 10_000
    repeats: int = 200
    mbar: tuple[tuple[int, int], ...] = ((100, 20), (1000, 5))


FULL = Sizes()
QUICK = Sizes((10, 100), 40, 500, 5, ((1000, 2),))


def first_run(rbm: pe.rbm.RBM, sweeps: int) -> dict[str, np.ndarray]:
    """Return weights at 100 temperatures, and energies that their estimate is made from."""
    beta = np.linspace(0.0, 1.0, N_FIRST)
    chains, log_z, _ = annealed_chains(rbm, beta, N_CHAINS, [SEED, 0])
    rng = np.random.default_rng([SEED, 1])
    for found in initial_iterations(chains, rng, N_ITERATIONS, N_SWEEPS, log_z=log_z):
        log_z = found.log_z
    energy, _ = long_run(chains, log_z, sweeps, rng)
    curve = pe.estimators.rts_curve(beta, energy[int(DISCARDED * sweeps) :], log_z)
    return {"beta": beta, "log_z": curve.log_z}


def run(rbm: pe.rbm.RBM, first: Mapping[str, np.ndarray], size: int, sweeps: int):
    """Return weights at ``size`` temperatures, and the states of a run with them."""
    beta = np.linspace(0.0, 1.0, size)
    log_z = CubicSpline(first["beta"], first["log_z"])(beta)
    # chains start where annealing with 100 temperatures left them
    chains, _, _ = annealed_chains(rbm, first["beta"], N_CHAINS, [SEED, size])
    chains.rung = np.rint(chains.beta[chains.rung] * (size - 1)).astype(np.int16)
    chains.beta, chains.kernels = beta, (chains.kernels[0],) * (size - 1)
    chains.accepted, chains.moved = np.zeros((2, size))
    rng = np.random.default_rng([SEED, size, 1])
    energy, rung = long_run(chains, log_z, sweeps, rng)
    kept = slice(int(DISCARDED * sweeps), None)
    return {"beta": beta, "log_z": log_z, "energy": energy[kept], "rung": rung[kept]}


def estimators(found: Mapping[str, np.ndarray]) -> dict[str, Callable]:
    """Return the estimators of log Z from some states of a run."""
    beta, log_z, made = found["beta"], found["log_z"], pe.estimators
    return {
        "RTS": lambda energy, rung: made.rts(beta, energy, log_z),
        "TS": lambda energy, rung: made.ts(rung, log_z),
        "MBAR": lambda energy, rung: made.mbar(beta, energy, rung),
        "TI": lambda energy, rung: made.ti(beta, energy, rung, rule="trapezoid"),
        "TI corrected": lambda energy, rung: made.ti(beta, energy, rung, rule="corrected"),
        "TI-RB": lambda energy, rung: made.ti_rb(beta, energy, log_z, rule="trapezoid"),
    }


def rows_of(found: Mapping[str, np.ndarray], sizes: Sizes) -> list[dict]:
    """Return bias, standard deviation and RMSE of the estimators from the states of a run."""
    size, energy, rung = len(found["beta"]), found["energy"].ravel(), found["rung"].ravel()
    whole = pe.estimators.rts(found["beta"], found["energy"], found["log_z"])
    at_most = next(n for limit, n in sizes.mbar if size <= limit)
    rows = []
    for name, estimate in estimators(found).items():
        rng, started = np.random.default_rng([SEED, size, 2]), time.process_time()
        values = []
        for _ in range(min(at_most if name == "MBAR" else sizes.repeats, sizes.repeats)):
            index = rng.integers(energy.size, size=sizes.n_states)
            values.append(estimate(energy[index], rung[index]).value)
        error = np.array(values) - whole.value
        figures = {
            "repeats": len(values),
            "bias": error.mean(),
            "sd": error.std(ddof=1),
            "rmse": np.sqrt(np.mean(error**2)),
            "seconds": (time.process_time() - started) / len(values),
            "whole": whole.value,
            "whole_mcse": whole.mcse,
        }
        rows.append({"n_temperatures": size, "estimator": name, **figures})
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, and write and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", type=Path, help="folder of real data")
    parser.add_argument("--quick", action="store_true", help="an untrained machine, few sweeps")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore", pe.EvidenceWarning)  # errors are measured here
    sizes, name = (QUICK, "cd1_10") if options.quick else (FULL, "cd25_500")
    rbm = machine(name, options.folder, quick=options.quick, data=options.data)
    stem = f"figure4_{name}_{sizes.sweeps}"
    first = kept(options.folder / f"{stem}_first.npz", lambda: first_run(rbm, sizes.sweeps))
    rows: list[dict] = []
    for size in sizes.n_temperatures:
        file = options.folder / f"{stem}_{size}.npz"
        found = kept(file, lambda n=size: run(rbm, first, n, sizes.sweeps))
        rows += rows_of(found, sizes)
        print(f"{size} temperatures: all states {rows[-1]['whole']:.3f}", flush=True)
    table = pd.DataFrame(rows)
    table.to_csv(options.folder / "carlson2016_figure4.csv", index=False, float_format="%.5g")
    print(table.pivot(index="n_temperatures", columns="estimator", values="rmse").to_string())


if __name__ == "__main__":
    main()
