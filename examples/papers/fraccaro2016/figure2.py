"""Gaussian process classification of USPS digits: Figure 2 of Fraccaro, Paquet and Winther (2016).

Log Z of 767 threes and fives at the setting that they found hardest, by adaptive resample-move
(ARM), resample-move (RM) and annealed importance sampling (AIS) with several kernels, against the
processor time of one estimate: of one island of particles, or of one path. Labels with a star begin
at the Gaussian of expectation propagation (EP), the others at the prior.

    python examples/papers/fraccaro2016/figure2.py FOLDER [--quick]

FOLDER receives the runs, which are not made again, and fraccaro2016_figure2.csv and .png. An hour
and a half on an idle core; with --quick 90 data points and a minute.
"""

import argparse
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from scipy.special import logsumexp

import pm_evidence as pe
from examples.real_data import usps
from pm_evidence.families.gp_classification.kernels import LatentHMC, RiemannianHMC

LENGTH_SCALE, AMPLITUDE = np.exp(4.85), np.exp(5.1)
EXACT = -105.84  # within 0.01: annealed both ways from the Gaussian of EP
NAME = "fraccaro2016_figure2"
SEED = 1


@dataclass(frozen=True)
class Method:
    """A line of the figure.

    Parameters
    ----------
    label : str
        As in the figure of the paper; a star says that the estimate starts from EP.
    sizes : tuple of int
        Numbers of particles or of stages.
    repeats : tuple of int
        Number of estimates of each size.
    run : callable
        From the digits, a size, a number of estimates to what `pe.sample_evidence` returns.
    """

    label: str
    sizes: tuple[int, ...]
    repeats: tuple[int, ...]
    run: Callable[..., Any]


def target(data: tuple[np.ndarray, ...], **options: Any) -> pe.gp.GPClassification:
    """Return the classification of the digits."""
    return pe.gp.GPClassification(*data, length_scale=LENGTH_SCALE, amplitude=AMPLITUDE, **options)


def run(problem: pe.gp.GPClassification, draws: int, **options: Any) -> Any:
    """Return one round of a method; the figure shows how good its estimates are."""
    options |= {"target_mcse": None, "random_seed": SEED, "cores": 1, "progressbar": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pe.EvidenceWarning)
        return pe.sample_evidence(problem, draws=draws, **options)


def by_particles(sampler: Callable[..., Any], order: str) -> Callable[..., Any]:
    """Return a method that adds data points one by one to islands of particles."""

    def made(data: tuple[np.ndarray, ...], size: int, repeats: int) -> Any:
        method = sampler(islands=repeats)
        return run(target(data, order=order), size * repeats, method=method)

    return made


def by_stages(reference: str, kernel: Any) -> Callable[..., Any]:
    """Return a method that anneals latent values along independent paths."""

    def made(data: tuple[np.ndarray, ...], size: int, repeats: int) -> Any:
        problem = target(data, representation="latent", reference=reference)
        # the likelihood matters at very small powers already
        schedule = np.linspace(0.0, 1.0, size + 1) ** (1 if reference == "ep" else 4)
        method = pe.methods.AIS(direction="forward")
        return run(problem, repeats, method=method, kernel=kernel, schedule=schedule)

    return made


def arm(islands: int) -> pe.methods.ARM:
    """Return ARM as in the paper: each island decides for itself."""
    return pe.methods.ARM(islands=islands, decide="island", max_rounds=50)


METHODS = (
    Method("ARM", (100, 1000), (16, 8), by_particles(arm, "informative")),
    Method("RM", (100, 1000), (16, 8), by_particles(pe.methods.ResampleMove, "informative")),
    Method("AIS rotations", (300, 1000), (64, 32), by_stages("prior", LatentHMC())),
    Method("AIS rotations*", (50, 100, 300), (64, 64, 32), by_stages("ep", LatentHMC())),
    Method("AIS HMC*", (50,), (8,), by_stages("ep", LatentHMC(0.02, 200, "identity"))),
    Method("AIS HMC", (100,), (8,), by_stages("prior", LatentHMC(0.02, 200, "identity"))),
    Method("ARM, random order", (100, 1000), (16, 4), by_particles(arm, "random")),
    Method(
        "RM, random order", (100, 1000), (16, 4), by_particles(pe.methods.ResampleMove, "random")
    ),
    Method("AIS RMHMC*", (5,), (2,), by_stages("ep", RiemannianHMC(0.3, 3))),
)
QUICK = tuple(
    Method(m.label, m.sizes[:1] if "AIS" not in m.label else (20,), (4,), m.run)
    for m in METHODS
    if "RMHMC" not in m.label
)


def estimates(dt: Any) -> np.ndarray:
    """Return log Z of every island or path, in nats."""
    blocks = pe.to_record(dt).of("forward")
    return -np.concatenate([block.work for block in blocks])


def kept(file: Path, make: Callable[[], Any]) -> tuple[np.ndarray, float]:
    """Return the estimates of a run and their processor time, from its file if there is one."""
    if not file.exists():
        started = time.process_time()
        found = estimates(make())
        seconds = time.process_time() - started
        np.savez(file, log_z=found, seconds=seconds / len(found))
        print(f"{file.stem}: {seconds:.0f} s", flush=True)
    with np.load(file) as archive:
        return archive["log_z"], float(archive["seconds"])


def table(data: tuple[np.ndarray, ...], folder: Path, methods: Sequence[Method]) -> pd.DataFrame:
    """Return log mean and standard deviation of the estimates of all methods."""
    rows = []
    for method in methods:
        name = method.label.lower().translate(str.maketrans({" ": "_", ",": "", "*": "_ep"}))
        for size, repeats in zip(method.sizes, method.repeats, strict=True):
            log_z, seconds = kept(
                folder / f"{name}_{size}.npz",
                lambda m=method, s=size, r=repeats: m.run(data, s, r),
            )
            rows.append(
                {
                    "method": method.label,
                    "size": size,
                    "estimates": len(log_z),
                    "log_mean": logsumexp(log_z) - np.log(len(log_z)),
                    "sd": log_z.std(ddof=1),
                    "seconds": seconds,
                }
            )
    ep = target(data).expectation_propagation()
    rows.append({"method": "EP", "size": 0, "estimates": 1, "log_mean": ep.log_evidence})
    return pd.DataFrame(rows)


def draw(found: pd.DataFrame, file: Path, exact: float | None) -> None:
    """Draw the figure: log mean and standard deviation of the estimates against their time."""
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    colours = plt.get_cmap("tab10")
    groups = [(name, part) for name, part in found.groupby("method", sort=False) if name != "EP"]
    for k, (name, part) in enumerate(groups):
        style = {"marker": "s" if name.endswith("*") else "o", "color": colours(k), "label": name}
        axes[0].plot(part.seconds, part.log_mean, **style)
        axes[1].plot(part.seconds, part.sd, **style)
    ep = float(found[found.method == "EP"].log_mean.iloc[0])
    axes[0].axhline(ep, color="0.5", linestyle=":", label="EP")
    if exact is not None:
        axes[0].axhline(exact, color="0.2", label="annealed both ways")
    middle = ep if exact is None else exact
    axes[0].set_ylim(middle - 6.0, middle + 4.0)
    axes[0].set_ylabel("log mean of Z (nats)")
    axes[1].set_yscale("log")
    axes[1].set_ylim(top=30.0)
    axes[1].set_ylabel("standard deviation of log Z (nats)")
    for axis in axes:
        axis.set_xscale("log")
        axis.set_xlabel("processor time of one estimate (s)")
    axes[0].legend(fontsize=7)
    figure.savefig(file, dpi=150)
    plt.close(figure)


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the runs that are not there yet, the table and the figure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--quick", action="store_true", help="90 data points, and short runs")
    given = parser.parse_args(arguments)
    given.folder.mkdir(parents=True, exist_ok=True)
    inputs, labels = usps()[:2]
    chosen = slice(361, 451) if given.quick else slice(None)
    data = inputs[chosen], labels[chosen]
    found = table(data, given.folder, QUICK if given.quick else METHODS)
    found.to_csv(given.folder / f"{NAME}.csv", index=False)
    draw(found, given.folder / f"{NAME}.png", None if given.quick else EXACT)
    print(found.to_string(index=False))


if __name__ == "__main__":
    main()
