"""A restricted Boltzmann machine from both ends: Figure 4C of Habeck (2017).

The machine is the published CD25(500) of Salakhutdinov and Murray (2008), trained on MNIST. It is
annealed with all of its units by block Gibbs sampling, and with the visible units summed out by
Metropolis flips. Reverse paths start from training images after 100 sweeps, as in the paper.

    python examples/papers/habeck2017/machines.py FOLDER [--paths N] [--quick]

FOLDER receives the table, the figure, and the work of each run, which is not made again.
"""

import argparse
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr

import pm_evidence as pe
from examples.real_data import mnist, published_rbm

# Number of stages of each kind of run, and in a quick trial.
STAGES = {"full": (10_000, 100), "marginal": (500, 10)}
ESTIMATORS = ("jarzynski", "bar", "jarzynski_reverse", "lower_bound", "upper_bound")
PAPER = {"full": 451.43, "marginal": 451.48}


def annealed(latent: str, n_stages: int, n_paths: int, folder: Path) -> xr.DataTree:
    """Return a run in both directions, from a file if it was made before."""
    file = folder / f"{latent}_{n_stages}_{n_paths}.nc"
    if not file.exists():
        machine = pe.rbm.RBM(*published_rbm(), data=mnist()[0], latent=latent)
        started = time.perf_counter()
        dt = pe.sample_evidence(
            machine,
            method=pe.methods.AIS(n_stages=n_stages),
            draws=n_paths,
            target_mcse=None,
            random_seed=1,
            progressbar=False,
        )
        dt["work"].attrs["seconds"] = time.perf_counter() - started
        dt.drop_nodes("posterior").to_netcdf(file, engine="h5netcdf")
    return xr.open_datatree(file, engine="h5netcdf")


def table(runs: dict[str, xr.DataTree]) -> pd.DataFrame:
    """Return the estimates of all runs."""
    rows = []
    for latent, dt in runs.items():
        found = pe.estimate(dt, ESTIMATORS)
        rows += [(latent, name, each.value, each.mcse, each.status) for name, each in found.items()]
    return pd.DataFrame(rows, columns=["annealed", "estimator", "log Z", "mcse", "status"])


def figure(runs: dict[str, xr.DataTree], path: Path) -> None:
    """Draw the distributions of minus the work in both directions, as the paper does."""
    from matplotlib import pyplot as plt

    drawn, axes = plt.subplots(figsize=(7.0, 4.0), layout="constrained")
    colours = {"full": ("#7fc97f", "#1b7837"), "marginal": ("#92c5de", "#2166ac")}
    bins = np.linspace(435.0, 480.0, 91)
    for latent, dt in runs.items():
        for direction, colour in zip(("forward", "reverse"), colours[latent], strict=True):
            values = -dt["work"][direction].values
            label = f"{latent}, {direction}"
            axes.hist(values, bins, density=True, histtype="step", color=colour, label=label)
    bar = pe.estimate(runs["full"], "bar")["bar"]
    axes.axvline(bar.value, color="black", linestyle=":", label=f"BAR, full: {bar.value:.2f}")
    axes.set(xlabel="minus work (nats)", ylabel="density", title="CD25(500): minus work")
    axes.legend()
    drawn.savefig(path, dpi=100)
    plt.close(drawn)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, print the table and draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--paths", type=int, default=1000)
    parser.add_argument("--quick", action="store_true", help="a hundredth of the stages")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore", pe.EvidenceWarning)  # the table holds the statuses
    options.folder.mkdir(parents=True, exist_ok=True)
    runs = {
        latent: annealed(latent, stages[options.quick], options.paths, options.folder)
        for latent, stages in STAGES.items()
    }
    found = table(runs)
    found.to_csv(options.folder / "habeck2017_figure4c.csv", index=False, float_format="%.6g")
    print(found.to_string(index=False, float_format="{:.3f}".format))
    for latent, dt in runs.items():
        print(f"{latent}: {dt['work'].attrs['seconds']:.0f} s; the paper: {PAPER[latent]}")
    figure(runs, options.folder / "habeck2017_figure4c.png")


if __name__ == "__main__":
    main()
