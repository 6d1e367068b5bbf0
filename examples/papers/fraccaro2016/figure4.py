"""Machines built unit by unit: Figure 4 of Fraccaro, Paquet and Winther (2016).

Log Z of two restricted Boltzmann machines with 784 x 500 units: the published CD25(500) of
Salakhutdinov and Murray (2008), and PCD(500), which examples/papers/kiwaki2015/train.py trains by
persistent contrastive divergence. Each run is one population. There are resample-move (rm), its
adaptive version (arm), which anticipates the next density (anticipate) or makes independent states
from training images (reseed), and annealed importance sampling (ais) in equal steps from units with
the base rates of the training images, where a run consists of 100 paths. As in the paper, moves
make ten Gibbs sweeps, and particles are resampled, or added, at a share of 0.7.

    python examples/papers/fraccaro2016/figure4.py FOLDER [--particles 100 1000] [--runs 10]

FOLDER receives pcd500.npz where there is none yet, the runs, which are not made again,
fraccaro2016_figure4.csv and the figure.
"""

import argparse
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

import pm_evidence as pe

sys.path.append(str(Path(__file__).parents[2]))
from papers.kiwaki2015.train import trained
from real_data import mnist, published_rbm

SEED = 4
MACHINES = ("cd25", "pcd")
MOVES = {"cd25": 1500, "pcd": 3000}  # Gibbs sweeps of new states
RESEED_SHARE = 5  # runs with new states are so many times fewer
# Stages of annealed importance sampling; at 4000 a path takes as many sweeps as a particle, whose
# 7840 sweeps are of half of the units on average.
STAGES, PATHS = (1000, 4000, 10_000), 100
COLOURS = {
    "rm": "tab:blue",
    "arm": "tab:orange",
    "anticipate": "tab:green",
    "ais": "tab:gray",
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


def runs(
    rbm: pe.rbm.RBM, name: str, method: str, size: int, n_runs: int, file: Path
) -> dict[str, np.ndarray]:
    """Return log Z of each run, and processor seconds of a run, from a file if there is one."""
    if not file.exists():
        of_ais = method == "ais"
        options = {"draws": n_runs * (PATHS if of_ais else size)}
        if of_ais:
            chosen = pe.methods.AIS(n_stages=size, direction="forward")
            options |= {"schedule": "linear"}
        else:
            chosen = sampler(method, name, n_runs)
            options |= {"path": "units"}
        started = time.process_time()
        dt = pe.sample_evidence(
            rbm,
            method=chosen,
            target_mcse=None,
            random_seed=SEED,
            progressbar=False,
            cores=1,
            **options,
        )
        seconds = (time.process_time() - started) / n_runs
        log_weight = -dt["work"]["forward"].values.ravel()
        log_z = np.logaddexp.reduce(log_weight.reshape(n_runs, -1), axis=1)
        log_z -= np.log(log_weight.size / n_runs)
        np.savez(file, log_z=log_z, seconds=seconds)
        print(f"{file.stem}: {seconds:.1f} s each, {log_z.mean():.3f}", flush=True)
    with np.load(file) as found:
        return dict(found)


def table(
    folder: Path,
    methods: Sequence[str],
    particles: Sequence[int],
    n_runs: int,
    quick: bool,
    data: Path | None,
) -> pd.DataFrame:
    """Return log mean of Z, standard deviation of log Z and processor seconds of all methods."""
    rows = []
    machines = {name: machine(name, folder, quick=quick, data=data) for name in MACHINES}
    for method in methods:
        for name, rbm in machines.items():
            sizes = STAGES if method == "ais" else tuple(particles)
            for size in (10,) if quick and method == "ais" else sizes:
                n = max(n_runs // RESEED_SHARE, 2) if method == "reseed" else n_runs
                file = folder / f"figure4_{name}_{method}_{size}_{n}.npz"
                found = runs(rbm, name, method, size, n, file)
                log_z = found["log_z"]
                log_mean = np.logaddexp.reduce(log_z) - np.log(n)
                sd = log_z.std(ddof=1)
                rows.append((name, method, size, n, log_mean, sd, float(found["seconds"])))
    columns = ["machine", "method", "size", "runs", "log_mean", "sd", "seconds"]
    return pd.DataFrame(rows, columns=columns).sort_values("machine", kind="stable")


def figure(found: pd.DataFrame, path: Path) -> None:
    """Draw means with bars of one standard deviation, and standard deviations, against time."""
    from matplotlib import pyplot as plt

    drawn, axes = plt.subplots(2, 2, figsize=(9.0, 7.0), layout="constrained", sharex="col")
    for column, name in enumerate(MACHINES):
        for method, colour in COLOURS.items():
            rows = found[(found["machine"] == name) & (found["method"] == method)]
            if rows.empty:
                continue
            look = {"color": colour, "marker": "o", "label": method}
            axes[0, column].errorbar(
                rows["seconds"], rows["log_mean"], yerr=rows["sd"], capsize=3, **look
            )
            axes[1, column].plot(rows["seconds"], rows["sd"], **look)
        axes[0, column].set(xscale="log", title=name.upper(), ylabel="log mean of Z (nats)")
        axes[1, column].set(
            xscale="log",
            yscale="log",
            xlabel="processor seconds of a run",
            ylabel="sd of log Z (nats)",
        )
    handles, labels = axes[0, 0].get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside upper center", ncols=len(labels))
    drawn.savefig(path, dpi=100)
    plt.close(drawn)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, print and write the table, and draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--particles", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--methods", nargs="+", choices=list(COLOURS), default=list(COLOURS))
    parser.add_argument("--quick", action="store_true", help="machines and runs that take seconds")
    parser.add_argument("--data", type=Path, help="folder of real data")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore", pe.EvidenceWarning)  # the table holds the spread of the runs
    options.folder.mkdir(parents=True, exist_ok=True)
    sizes = options.particles, options.runs, options.quick, options.data
    found = table(options.folder, options.methods, *sizes)
    found.to_csv(options.folder / "fraccaro2016_figure4.csv", index=False, float_format="%.5g")
    print(found.to_string(index=False, float_format="{:.3f}".format))
    figure(found, options.folder / "fraccaro2016_figure4.png")


if __name__ == "__main__":
    main()
