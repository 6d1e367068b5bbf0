"""RTS, AIS and RAISE at matched cost: Figure 3 of Carlson et al. (2016).

Log Z of the published machine with 500 hidden units and of one with 100, which is trained here.
Each estimate is made with 100 chains, paths or test images, and the methods are compared at the
number of Gibbs sweeps that each of these makes in all.

- RTS: 100 equal steps of beta. Of the first 500 sweeps or so, 200 anneal the chains, which gives
  the first weights, and six initial iterations take 50 each. The long run follows, of which the
  first quarter is discarded for the estimates called "rts", and nothing for "rts_all".
- AIS: as many equal steps of beta as there are sweeps, one sweep at each.
- RAISE: the same in reverse, from test images.

The true value comes from annealing in both directions, whose reverse paths start from training
images. Paths in one direction and tempered chains hardly find what is rare among their states, and
their log Z is too low if that matters. A long run of RTS is printed for comparison.

A machine whose name ends in "uniform" begins with units that are on with equal probability, in
place of the base rates of the training images: RTS and AIS alone, up to as many sweeps as RTS has.

    python examples/papers/carlson2016/figure3.py FOLDER [--quick]

FOLDER receives the runs, which are not made again, and carlson2016_figure3.csv, from which page.py
draws the figure.
"""

import argparse
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr
from scipy.special import logsumexp

import pm_evidence as pe

sys.path.append(str(Path(__file__).parent))
from algorithm1 import annealed_chains, initial_iterations, long_run, uniform_temperatures
from machines import kept, machine, test_images

SEED = 3
N_TEMPERATURES, N_CHAINS = 100, 100
N_ITERATIONS, N_SWEEPS = 6, 50
DISCARDED = 0.25  # of the long run
BOOTSTRAP = 2000  # estimates from 100 of the paths


@dataclass(frozen=True)
class Sizes:
    """Sizes of the runs on a machine.

    Parameters
    ----------
    sweeps : tuple of int
        Total numbers of sweeps that estimates of RTS and RAISE are made from.
    repeats : int
        Number of runs of RTS.
    paths : dict of int to int
        Number of paths of AIS for each number of sweeps; estimates take 100 of them.
    images : int
        Number of test images of RAISE; estimates take 100 of them.
    long : int
        Sweeps of the long run of RTS.
    reference : (int, int)
        Number of sweeps, and of paths in each direction, that give the true value.
    """

    sweeps: tuple[int, ...] = (1000, 2000, 5000, 10_000)
    repeats: int = 10
    paths: tuple[tuple[int, int], ...] = (
        (1000, 600),
        (2000, 600),
        (5000, 600),
        (10_000, 600),
        (20_000, 400),
        (50_000, 300),
    )
    images: int = 200
    long: int = 50_000
    reference: tuple[int, int] = (20_000, 400)


FULL = Sizes()
QUICK = Sizes((600, 700), 2, ((100, 100), (200, 100)), 100, 700, (300, 100))
MACHINES = ("cd25_500", "pcd_100", "cd25_500 uniform", "pcd_100 uniform")


def rts_run(rbm: pe.rbm.RBM, n_sweeps: int, seed: Sequence[int]) -> dict[str, np.ndarray]:
    """Return energies and weights of a long run, and the number of sweeps before it.

    The run has ``n_sweeps`` in all, including those that learn the weights.
    """
    beta = np.linspace(0.0, 1.0, N_TEMPERATURES)
    chains, log_z, before = annealed_chains(rbm, beta, N_CHAINS, [*seed, 0])
    rng = np.random.default_rng([*seed, 1])
    for found in initial_iterations(chains, rng, N_ITERATIONS, N_SWEEPS, log_z=log_z):
        log_z = found.log_z
        before += N_SWEEPS
    uniform_temperatures(chains, rng)
    energy, _ = long_run(chains, log_z, n_sweeps - before, rng)
    return {"beta": beta, "log_z": log_z, "energy": energy, "before": np.array(before)}


def rts_estimate(found: dict[str, np.ndarray], n_sweeps: int, discarded: float) -> pe.LogEvidence:
    """Return the estimate of a run that ends after ``n_sweeps``."""
    stop = n_sweeps - int(found["before"])
    energy = found["energy"][int(discarded * stop) : stop]
    return pe.estimators.rts(found["beta"], energy, found["log_z"])


def annealed(
    rbm: pe.rbm.RBM, n_sweeps: int, n_paths: int, direction: str, seed: int
) -> xr.DataTree:
    """Return the result of annealing with equal steps of beta."""
    return pe.sample_evidence(
        rbm,
        method=pe.methods.AIS(n_stages=n_sweeps, direction=direction),
        schedule="linear",
        draws=n_paths,
        target_mcse=None,
        random_seed=seed,
        progressbar=False,
        cores=1,
    )


def ais_weights(rbm: pe.rbm.RBM, n_sweeps: int, n_paths: int) -> np.ndarray:
    """Return log weights of annealed paths."""
    return -annealed(rbm, n_sweeps, n_paths, "forward", SEED)["work"]["forward"].values


def raise_weights(rbm: pe.rbm.RBM, n_sweeps: int, images: np.ndarray) -> np.ndarray:
    """Return minus the log weights of reverse paths from images, each an estimate of log Z."""
    found = pe.rbm.raise_log_likelihood(
        rbm,
        images,
        n_stages=n_sweeps,
        schedule="linear",
        random_seed=SEED,
        progressbar=False,
        cores=1,
    )
    return -(found.of_examples + rbm.free_energy(images))


def bootstrapped(values: np.ndarray, log_mean: bool) -> np.ndarray:
    """Return estimates from 100 of the values, drawn with replacement: their (log) means."""
    rng = np.random.default_rng(SEED)
    drawn = values[rng.integers(len(values), size=(BOOTSTRAP, N_CHAINS))]
    if log_mean:
        return logsumexp(drawn, axis=1) - np.log(N_CHAINS)
    return drawn.mean(axis=1)


def reference(rbm: pe.rbm.RBM, n_sweeps: int, n_paths: int) -> dict[str, np.ndarray]:
    """Return log Z by annealing in both directions, its standard error and its status."""
    found = pe.log_evidence(annealed(rbm, n_sweeps, n_paths, "both", SEED + 1), estimator="bar")
    return {name: np.array(getattr(found, name)) for name in ("value", "mcse", "status")}


def estimates_of(name: str, folder: Path, sizes: Sizes, quick: bool, data: Path | None):
    """Return estimates by method and number of sweeps, and the true value with its error."""
    known, _, uniform = name.partition(" ")
    rbm = machine(known, folder, quick=quick, data=data)
    file = folder / f"figure3_{known}_both_{sizes.reference[0]}_{sizes.reference[1]}.npz"
    both = kept(file, lambda: reference(rbm, *sizes.reference))
    truth = float(both["value"]), float(both["mcse"])
    print(f"true value: {truth[0]:.3f} +- {truth[1]:.3f} [{both['status']}]", flush=True)
    if uniform:
        rbm, name = replace(rbm, base="uniform"), f"{known}_uniform"
    images = test_images(sizes.images, data)
    found: dict[tuple[str, int], np.ndarray] = {}
    for n_sweeps, n_paths in sizes.paths:
        if uniform and n_sweeps > max(sizes.sweeps):
            continue
        file = folder / f"figure3_{name}_ais_{n_sweeps}_{n_paths}.npz"
        weights = kept(file, lambda n=n_sweeps, m=n_paths: {"x": ais_weights(rbm, n, m)})["x"]
        found["ais", n_sweeps] = bootstrapped(weights, log_mean=True)
    for n in () if uniform else sizes.sweeps:
        file = folder / f"figure3_{name}_raise_{n}_{sizes.images}.npz"
        values = kept(file, lambda n=n: {"x": raise_weights(rbm, n, images)})["x"]
        found["raise", n] = bootstrapped(values, log_mean=False)
    every: dict[tuple[str, int], list[float]] = {}
    for repeat in range(sizes.repeats):
        last = max(sizes.sweeps)
        file = folder / f"figure3_{name}_rts_{last}_{repeat}.npz"
        run = kept(file, lambda r=repeat, n=last: rts_run(rbm, n, [SEED, r]))
        for method, share in (("rts", DISCARDED), ("rts_all", 0.0)):
            for n in sizes.sweeps:
                values = every.setdefault((method, n), [])
                values.append(rts_estimate(run, n, share).value)
    found |= {key: np.array(values) for key, values in every.items()}
    if not uniform:
        file = folder / f"figure3_{name}_reference_{sizes.long}.npz"
        run = kept(file, lambda: rts_run(rbm, sizes.long, [SEED, 1000]))
        print(f"RTS from {sizes.long:,} sweeps: {rts_estimate(run, sizes.long, DISCARDED)}")
    return found, truth


def table(folder: Path, names: Sequence[str], sizes: Sizes, quick: bool, data: Path | None):
    """Return mean, bias, standard deviation and RMSE of the methods at each number of sweeps."""
    rows = []
    for name in names:
        print(name, flush=True)
        found, (truth, error) = estimates_of(name, folder, sizes, quick, data)
        for (method, n), values in found.items():
            rmse = np.sqrt(np.mean((values - truth) ** 2))
            row = (values.mean(), values.mean() - truth, values.std(ddof=1), rmse)
            rows.append((name, method, n, *row, truth, error))
    columns = ["machine", "method", "sweeps", "mean", "bias", "sd", "rmse", "truth", "truth_error"]
    return pd.DataFrame(rows, columns=columns)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, and write and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", choices=MACHINES, help="one machine, not both")
    parser.add_argument("--data", type=Path, help="folder of real data")
    parser.add_argument("--quick", action="store_true", help="an untrained machine, few sweeps")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore", pe.EvidenceWarning)  # errors are measured here
    names, sizes = MACHINES, FULL
    if options.quick:
        names, sizes = ("pcd_100", "pcd_100 uniform"), QUICK
    if options.only:
        names = (options.only,)
    found = table(options.folder, names, sizes, options.quick, options.data)
    file = options.folder / "carlson2016_figure3.csv"
    if file.exists():
        old = pd.read_csv(file)
        found = pd.concat([old[~old.machine.isin(names)], found], ignore_index=True)
    found.to_csv(file, index=False, float_format="%.6g")
    print(found.pivot_table(index=["machine", "sweeps"], columns="method", values="rmse"))


if __name__ == "__main__":
    main()
