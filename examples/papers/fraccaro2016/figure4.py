"""Machines built unit by unit: Figure 4 of Fraccaro, Paquet and Winther (2016).

Log Z of two restricted Boltzmann machines with 784 x 500 units: the published CD25(500) of
Salakhutdinov and Murray (2008), and PCD(500), which examples/papers/kiwaki2015/train.py trains by
persistent contrastive divergence. Each run is one population. There are resample-move (rm), its
adaptive version (arm), which anticipates the next density (anticipate) or makes independent states
from training images (reseed), and annealed importance sampling in equal steps from units with the
base rates of the training images, where a run consists of 100 paths: along the geometric path
(ais), and along one through nine machines with averaged moments (mas). As in the paper, moves make
ten Gibbs sweeps, and particles are resampled, or added, at a share of 0.7.

    python examples/papers/fraccaro2016/figure4.py FOLDER [--particles 100 1000] [--runs 50]

FOLDER receives pcd500.npz where there is none yet; every run with its seed,
fraccaro2016_figure4_runs.csv, from which an interrupted call goes on; and the table, the
comparisons and the figure that follow.
"""

import argparse
import time
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import pm_evidence as pe
from examples.papers.fraccaro2016.runs import comparisons, kept, summary
from examples.papers.kiwaki2015.train import trained
from examples.real_data import mnist, published_rbm

NAME = "fraccaro2016_figure4"
BATCH = 10  # runs
MACHINES = ("cd25", "pcd")
MOVES = {"cd25": 1500, "pcd": 3000}  # Gibbs sweeps of new states
RESEED_SHARE = 5  # a batch has so many times fewer runs with new states
# Stages of annealed importance sampling; at 4000 a path takes as many sweeps as a particle, whose
# 7840 sweeps are of half of the units on average.
STAGES, PATHS = (1000, 4000, 10_000), 100
ANNEALED = "ais", "mas"  # along the geometric and along the moment-averaged path
COLOURS = {
    "rm": "tab:blue",
    "arm": "tab:orange",
    "anticipate": "tab:green",
    "ais": "tab:gray",
    "mas": "tab:purple",
    "reseed": "tab:red",
}


def machine(
    name: str, folder: Path, *, quick: bool = False, data: Path | None = None
) -> pe.rbm.RBM:
    """Return a machine with its training images; ``quick`` trains one update in 500."""
    train = mnist(data)[0]
    if name == "cd25":
        return pe.rbm.RBM(*published_rbm(data), data=train, base="data")
    file = folder / f"pcd500{'_quick' if quick else ''}.npz"
    if not file.exists():
        rbm = trained("pcd500", train, quick=quick)
        np.savez(file, W=rbm.W, visible_bias=rbm.visible_bias, hidden_bias=rbm.hidden_bias)
    with np.load(file) as found:
        parameters = found["W"], found["visible_bias"], found["hidden_bias"]
    return pe.rbm.RBM(*parameters, data=train, base="data")


def sampler(method: str, name: str, n_runs: int) -> pe.methods.ResampleMove:
    """Return a method of the figure, with its runs as islands."""
    options = {"islands": n_runs, "resample_below": 0.7}
    if method == "rm":
        return pe.methods.ResampleMove(**options)
    if method == "reseed":
        moves = MOVES[name]
        return pe.methods.ARM(generate="reseed", max_rounds=2, reseed_moves=moves, **options)
    generate = "copy" if method == "arm" else method
    return pe.methods.ARM(generate=generate, max_rounds=3, **options)


def batch_of(
    rbm: pe.rbm.RBM, averaged: Any, name: str, method: str, size: int, seed: int
) -> dict[str, Any]:
    """Return log Z of each run of a batch, its particles at a step, and processor seconds."""
    n_runs = max(BATCH // RESEED_SHARE, 2) if method == "reseed" else BATCH
    options: dict[str, Any] = {"draws": n_runs * (PATHS if method in ANNEALED else size)}
    if method in ANNEALED:
        options["method"] = pe.methods.AIS(n_stages=size, direction="forward")
        options |= {"schedule": "linear", "path": averaged if method == "mas" else "geometric"}
    else:
        options |= {"method": sampler(method, name, n_runs), "path": "units"}
    if method == "mas":
        averaged.learn()  # once, and not counted
    started = time.process_time()
    dt = pe.sample_evidence(
        rbm, target_mcse=None, random_seed=seed, progressbar=False, cores=1, **options
    )
    seconds = (time.process_time() - started) / n_runs
    log_weight = -dt["work"]["forward"].values.ravel()
    log_z = np.logaddexp.reduce(log_weight.reshape(n_runs, -1), axis=1)
    log_z -= np.log(log_weight.size / n_runs)
    blocks = pe.to_record(dt).of("forward")
    particles = PATHS if method in ANNEALED else [b.trace.particles.mean() for b in blocks]
    return {"log_z": log_z, "particles": particles, "seconds": seconds}


def made(
    folder: Path,
    methods: Sequence[str],
    particles: Sequence[int],
    n_runs: int,
    quick: bool,
    data: Path | None,
    names: Sequence[str] = MACHINES,
) -> pd.DataFrame:
    """Return the runs of all methods, made now where the file does not have them."""
    wanted = {}
    for name in names:
        rbm = machine(name, folder, quick=quick, data=data)
        averaged = pe.paths.MomentAveragedPath(rbm)
        for method in methods:
            sizes = STAGES if method in ANNEALED else tuple(particles)
            for size in (10,) if quick and method in ANNEALED else sizes:
                make = partial(batch_of, rbm, averaged, name, method, size)
                wanted[f"{name} {method}", size] = -(-n_runs // BATCH), make
    return kept(folder / f"{NAME}_runs.csv", wanted)


def figure(found: pd.DataFrame, path: Path) -> None:
    """Draw means with bars of one standard deviation, and standard deviations, against time."""
    from matplotlib import pyplot as plt
    from matplotlib.ticker import LogLocator, NullFormatter

    names = [name for name in MACHINES if found["setting"].str.startswith(name).any()]
    size = 0.5 + 4.5 * len(names), 7.0
    drawn, axes = plt.subplots(
        2, len(names), figsize=size, layout="constrained", sharex="col", squeeze=False
    )
    for column, name in enumerate(names):
        for method, colour in COLOURS.items():
            rows = found[found["setting"] == f"{name} {method}"]
            if rows.empty:
                continue
            look = {"color": colour, "marker": "o", "label": method}
            axes[0, column].errorbar(
                rows["seconds"], rows["log_mean"], yerr=rows["sd"], capsize=3, **look
            )
            bars = rows["sd"] - rows["sd_low"], rows["sd_high"] - rows["sd"]
            axes[1, column].errorbar(rows["seconds"], rows["sd"], yerr=bars, capsize=3, **look)
        axes[0, column].set(xscale="log", title=name.upper(), ylabel="log mean of Z (nats)")
        axes[1, column].set(
            xscale="log",
            xlabel="processor seconds of a run",
            ylabel="sd of log Z (nats)",
            ylim=(0.0, None),
        )
        axes[1, column].xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes[1, column].xaxis.set_major_formatter("{x:g}")
        axes[1, column].xaxis.set_minor_formatter(NullFormatter())
    handles, labels = axes[0, 0].get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside upper center", ncols=3)
    drawn.savefig(path, dpi=100)
    plt.close(drawn)


def compared_all(rows: pd.DataFrame) -> pd.DataFrame:
    """Return comparisons at equal numbers of particles, and with AIS of most stages."""
    methods = ("arm", "rm"), ("anticipate", "rm"), ("anticipate", "arm"), ("mas", "ais")
    pairs = [(f"{name} {a}", f"{name} {b}") for name in MACHINES for a, b in methods]
    parts = [comparisons(rows, pairs)]
    arm, ais = (rows["setting"].str.endswith(f" {method}") for method in ("arm", "ais"))
    for size in rows["size"][arm].unique():
        both = rows[(arm & (rows["size"] == size)) | (ais & (rows["size"] == max(STAGES)))]
        both = both.assign(size=size)
        parts.append(comparisons(both, [(f"{name} arm", f"{name} ais") for name in MACHINES]))
    return pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, print and write the table, and draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--particles", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--runs", type=int, default=50, help="in batches of ten")
    parser.add_argument("--machines", nargs="+", choices=MACHINES, default=list(MACHINES))
    parser.add_argument("--methods", nargs="+", choices=list(COLOURS), default=list(COLOURS))
    parser.add_argument("--quick", action="store_true", help="machines and runs that take seconds")
    parser.add_argument("--data", type=Path, help="folder of real data")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore", pe.EvidenceWarning)  # the table holds the spread of the runs
    options.folder.mkdir(parents=True, exist_ok=True)
    sizes = options.particles, options.runs, options.quick, options.data, options.machines
    rows = made(options.folder, options.methods, *sizes)
    found, compared = summary(rows), compared_all(rows)
    found.to_csv(options.folder / f"{NAME}.csv", index=False, float_format="%.5g")
    compared.to_csv(options.folder / f"{NAME}_compared.csv", index=False, float_format="%.4g")
    print(found.to_string(index=False))
    print(compared.to_string(index=False))
    figure(found, options.folder / f"{NAME}.png")


if __name__ == "__main__":
    main()
