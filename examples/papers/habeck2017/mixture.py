"""How many components has the galaxy data? Section 6.4 of Habeck (2017).

The 82 velocities of MASS (in 1000 km/s; the 78th is 26.69, a typing error of that copy for 26.96)
are modelled by mixtures of 1 to 8 normal distributions, with mean ~ N(20, sd 10), variance ~
InverseGamma(3, 20) and weights ~ Dirichlet(1). Data points are added one by one in random order:
by resample-move, and along forward and reverse paths. The same models are also annealed as PyMC
models, with the components of the points summed out of the likelihood.

    python examples/papers/habeck2017/mixture.py FOLDER [--components 2 3] [--pymc 2 3]

FOLDER receives the runs, which are not made again, habeck2017_mixture.csv and two figures.
"""

import argparse
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

import pm_evidence as pe

sys.path.append(str(Path(__file__).parents[2]))
from real_data import load_csv

SEED = 64
PRIOR = {"mean_mu": 20.0, "mean_sigma": 10.0, "variance_alpha": 3.0, "variance_beta": 20.0}
MCSE, MOST_PATHS = 0.05, 12_000
DIRECTIONS = ("jarzynski", "bar", "jarzynski_reverse")


def galaxies(data: Path | None = None) -> np.ndarray:
    """Return the velocities in 1000 km/s, in rising order."""
    return load_csv("galaxies", data)["velocity_mass"].to_numpy() / 1000.0


def pymc_mixture(y: np.ndarray, k: int) -> Any:
    """Return the mixture as a PyMC model, with the components of the points summed out."""
    import pymc as pm

    with pm.Model(coords={"part": np.arange(k)}) as model:
        mean = pm.Normal("mean", PRIOR["mean_mu"], PRIOR["mean_sigma"], dims="part")
        alpha, beta = PRIOR["variance_alpha"], PRIOR["variance_beta"]
        variance = pm.InverseGamma("variance", alpha, beta, dims="part")
        if k == 1:
            pm.Normal("y", mean[0], variance[0] ** 0.5, observed=y)
        else:
            weight = pm.Dirichlet("weight", np.ones(k), dims="part")
            pm.NormalMixture("y", w=weight, mu=mean, sigma=variance**0.5, observed=y)
    return model


def run(name: str, target: Any, method: str, folder: Path, quick: bool) -> xr.DataTree:
    """Return a run, from a file if it was made before."""
    file = folder / f"{name}{'_quick' if quick else ''}.nc"
    if not file.exists():
        limits = {"draws": 320, "target_mcse": None} if quick else {"target_mcse": MCSE}
        if method == "ais" and not quick:
            limits |= {"draws": 4000, "max_draws": MOST_PATHS}
        started = time.process_time()
        dt = pe.sample_evidence(
            target, method=method, random_seed=SEED, progressbar=False, cores=1, **limits
        )
        dt["work"].attrs["seconds"] = time.process_time() - started
        dt.drop_nodes("posterior").to_netcdf(file, engine="h5netcdf")
        print(f"{name}: {pe.log_evidence(dt)}", flush=True)
    return xr.open_datatree(file, engine="h5netcdf")


def rows_of(k: int, way: str, dt: xr.DataTree) -> list[tuple[Any, ...]]:
    """Return the estimates of a run as rows of the table."""
    names = DIRECTIONS if way == "paths" else (str(dt["log_evidence"].attrs["recommended"]),)
    seconds = float(dt["work"].attrs["seconds"])
    found = pe.estimate(dt, list(names))
    return [
        (k, way, name, found[name].value, found[name].mcse, found[name].status, seconds)
        for name in names
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, print and write the table, and draw the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--components", type=int, nargs="+", default=list(range(1, 9)))
    parser.add_argument("--pymc", type=int, nargs="*", default=[2, 3, 4])
    parser.add_argument("--quick", action="store_true", help="320 particles, and no rounds")
    parser.add_argument("--data", type=Path, help="folder of real data")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore", pe.EvidenceWarning)  # the table holds the statuses
    options.folder.mkdir(parents=True, exist_ok=True)
    y, rows, native = galaxies(options.data), [], {}
    for k in options.components:
        target = pe.mixtures.GaussianMixture(y, k, **PRIOR)
        dt = run(f"resample_move_{k}", target, "auto", options.folder, options.quick)
        native[f"{k}"] = dt
        rows += rows_of(k, "resample-move", dt)
        paths = run(f"paths_{k}", target, "ais", options.folder, options.quick)
        rows += rows_of(k, "paths", paths)
    for k in options.pymc:
        dt = run(f"pymc_{k}", pymc_mixture(y, k), "auto", options.folder, options.quick)
        rows += rows_of(k, "PyMC", dt)
    columns = ["components", "way", "estimator", "log_evidence", "mcse", "status", "seconds"]
    table = pd.DataFrame(rows, columns=columns).sort_values("components", kind="stable")
    table.to_csv(options.folder / "habeck2017_mixture.csv", index=False, float_format="%.4f")
    print(table.to_string(index=False, float_format="{:.3f}".format))
    compared = pe.compare(native)
    print(compared[["log_evidence", "mcse", "prob", "prob_mcse", "status"]].sort_index())
    for quantity in ("evidence", "probability"):
        drawn = pe.plot_compare(compared, backend="matplotlib", quantity=quantity)
        drawn.savefig(options.folder / f"habeck2017_mixture_{quantity}.png")


if __name__ == "__main__":
    main()
