"""Gaussian process classification of USPS digits: Figure 2 of Fraccaro, Paquet and Winther (2016).

Log Z of 767 threes and fives at the setting that they found hardest, by adaptive resample-move
(ARM), resample-move (RM) and annealed importance sampling (AIS) with several kernels, against the
processor time of one estimate: of one island of particles, or of one path. Labels with a star begin
at the Gaussian of expectation propagation (EP), the others at the prior.

    python examples/papers/fraccaro2016/figure2.py FOLDER [--points 100] [--stored] [--quick]

FOLDER receives every estimate with its seed, fraccaro2016_figure2_runs.csv, from which an
interrupted run goes on; the table and the comparisons that follow, and the figure. With --points
only the first of the digits in random order; names then end in _100_points.
With --stored no more runs are made.
"""

import argparse
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd

import pm_evidence as pe
from examples.papers.fraccaro2016.runs import comparisons, kept, summary
from examples.real_data import usps
from pm_evidence.extending import MoveInfo
from pm_evidence.families.gp_classification.latent import LatentHMC, RiemannianHMC
from pm_evidence.families.gp_classification.noisy import SliceGibbs
from pm_evidence.families.gp_classification.propagation import ExpectationPropagation

LENGTH_SCALE, AMPLITUDE = np.exp(4.85), np.exp(5.1)
EXACT = -105.84  # within 0.01: annealed both ways from the Gaussian of EP
NAME = "fraccaro2016_figure2"
LEAST_POWER = 1e-4  # the first power after 0 of a geometric progression; the paper names none


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
        Number of batches of each size.
    run : callable
        From the digits, a size, a number of estimates and a seed to what `pe.sample_evidence`
        returns.
    batch : int
        Number of estimates of a batch.
    """

    label: str
    sizes: tuple[int, ...]
    repeats: tuple[int, ...]
    run: Callable[..., Any]
    batch: int = 8


def target(data: tuple[np.ndarray, ...], **options: Any) -> pe.gp.GPClassification:
    """Return the classification of the digits."""
    return pe.gp.GPClassification(*data, length_scale=LENGTH_SCALE, amplitude=AMPLITUDE, **options)


def run(problem: pe.gp.GPClassification, draws: int, **options: Any) -> Any:
    """Return one round of a method; the figure shows how good its estimates are."""
    options |= {"target_mcse": None, "cores": 1, "progressbar": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pe.EvidenceWarning)
        return pe.sample_evidence(problem, draws=draws, **options)


class Still(SliceGibbs):
    """Leaves particles where they are."""

    def advance(self, path: Any, state: Any, beta: float, streams: Any) -> tuple[Any, MoveInfo]:
        """Return the state as it is."""
        return state, MoveInfo(1.0, 0)


def by_particles(
    sampler: Callable[..., Any], order: str, times: int = 1, kernel: Any = "auto"
) -> Callable[..., Any]:
    """Return a method that adds data points one by one to islands of some times the particles."""

    def made(data: tuple[np.ndarray, ...], size: int, n: int, seed: int) -> Any:
        options = {"method": sampler(islands=n), "kernel": kernel, "random_seed": seed}
        return run(target(data, order=order), times * size * n, **options)

    return made


def by_stages(reference: str, kernel: Any, geometric: bool = False) -> Callable[..., Any]:
    """Return a method that anneals latent values along independent paths.

    The powers of the likelihood are a geometric progression, as in the paper, or spaced by a power.
    """

    def made(data: tuple[np.ndarray, ...], size: int, n: int, seed: int) -> Any:
        problem = target(data, representation="latent", reference=reference)
        # the likelihood matters at very small powers already
        schedule = np.linspace(0.0, 1.0, size + 1) ** (1 if reference == "ep" else 4)
        if geometric:
            schedule = np.append(0.0, np.geomspace(LEAST_POWER, 1.0, size))
        method = pe.methods.AIS(direction="forward")
        options = {"method": method, "kernel": kernel, "schedule": schedule}
        return run(problem, n, random_seed=seed, **options)

    return made


PLAIN = pe.methods.ResampleMove
ADAPTIVE = pe.methods.ARM
# As in the paper: each island decides for itself, and goes on until the threshold is met.
AS_PUBLISHED = partial(pe.methods.ARM, decide="island", max_rounds=50, while_rising=False)


STILL = Still()
PLAIN_HMC, RIEMANNIAN = LatentHMC(0.02, 200, "identity"), RiemannianHMC(0.1, 10)

METHODS = (
    Method("RM, random order", (100,), (6,), by_particles(PLAIN, "random")),
    Method("ARM, random order", (100,), (3,), by_particles(ADAPTIVE, "random"), 16),
    Method("ARM as published, random order", (100,), (6,), by_particles(AS_PUBLISHED, "random")),
    # as many particles as take the time of resample-move with 100
    Method("no moves, random order", (10_000,), (3,), by_particles(PLAIN, "random", 1, STILL), 16),
    Method("AIS rotations*", (50, 100), (1, 1), by_stages("ep", LatentHMC()), 64),
)
# What takes hours: 1000 particles of each, and the other methods of the paper.
LONG = (
    Method("RM", (100, 1000), (6, 6), by_particles(PLAIN, "informative")),
    Method("ARM", (100, 1000), (3, 3), by_particles(ADAPTIVE, "informative"), 16),
    Method("ARM as published", (100, 1000), (6, 6), by_particles(AS_PUBLISHED, "informative")),
    Method("RM times 4, random order", (100,), (6,), by_particles(PLAIN, "random", 4)),
    Method("RM, random order", (1000,), (6,), by_particles(PLAIN, "random")),
    Method("ARM, random order", (1000,), (3,), by_particles(ADAPTIVE, "random"), 16),
    Method("AIS rotations", (300, 1000), (1, 1), by_stages("prior", LatentHMC()), 64),
    Method("AIS HMC*", (50,), (6,), by_stages("ep", PLAIN_HMC)),
    Method("AIS HMC", (100,), (6,), by_stages("prior", PLAIN_HMC)),
    Method(
        "AIS HMC*, geometric",
        (1000, 2000),
        (3, 3),
        by_stages("ep", PLAIN_HMC, geometric=True),
    ),
    Method("AIS RMHMC*", (5,), (6,), by_stages("ep", RiemannianHMC(0.3, 3))),
)
# With the settings of the paper, but for the rotations, which it does not have.
PATHS = (
    Method("AIS rotations*", (50,), (1,), by_stages("ep", LatentHMC()), 64),
    Method("AIS HMC*", (1000, 2000), (1, 1), by_stages("ep", PLAIN_HMC, geometric=True), 64),
    Method("AIS HMC", (1000,), (1,), by_stages("prior", PLAIN_HMC, geometric=True), 64),
    Method("AIS RMHMC*", (25, 50), (1, 1), by_stages("ep", RIEMANNIAN, geometric=True), 64),
)
# The digits are already in random order.
FEW = (
    *(
        Method(label, (100,), (n_batches,), by_particles(sampler, "given", times), 16)
        for label, n_batches, sampler, times in (
            ("RM", 24, PLAIN, 1),
            ("ARM", 24, ADAPTIVE, 1),
            ("ARM as published", 12, AS_PUBLISHED, 1),
            ("ARM, islands decide", 12, partial(ADAPTIVE, decide="island"), 1),
            ("ARM, anticipate", 12, partial(ADAPTIVE, generate="anticipate"), 1),
            ("RM, optimal allocation", 12, partial(PLAIN, allocation="optimal"), 1),
            ("RM times 5", 12, PLAIN, 5),
        )
    ),
    Method("no moves, times 40", (100,), (12,), by_particles(PLAIN, "given", 40, STILL), 16),
    *PATHS,
)
QUICK = tuple(
    Method(m.label, m.sizes[:1] if "AIS" not in m.label else (20,), (1,), m.run, 4)
    for m in METHODS + LONG
    if not any(word in m.label for word in ("RMHMC", "times", "geometric")) and m.sizes != (1000,)
)
# Pairs of about the same cost: where log Z has a standard deviation of more than one nat, its
# variance falls faster than in proportion to the cost. ARM as published has 4 or 5 times the
# particles that it begins with.
PAIRS = (
    ("ARM, random order", "RM, random order"),
    ("ARM as published, random order", "RM times 4, random order"),
    ("ARM", "RM"),
    ("ARM as published", "RM times 5"),
    ("ARM, islands decide", "RM"),
    ("ARM, anticipate", "RM"),
    ("RM, optimal allocation", "RM"),
    ("no moves, times 40", "RM"),
)


def compared(runs: pd.DataFrame) -> pd.DataFrame:
    """Return variance times cost of pairs of settings, and of paths over resample-move."""
    parts = [comparisons(runs, PAIRS)]
    plain = (runs["setting"] == "RM") & (runs["size"] == 100)
    for label, size in ((method.label, size) for method in PATHS for size in method.sizes):
        paths = (runs["setting"] == label) & (runs["size"] == size)
        found = comparisons(runs[paths | plain].assign(size=size), [(label, "RM")])
        parts.append(found[found["cost"] == "seconds"])
    return pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True)


def batch_of(method: Method, data: tuple[np.ndarray, ...], size: int, seed: int) -> dict[str, Any]:
    """Return log Z of every island or path of a batch, its particles at a step, and its seconds."""
    started = time.process_time()
    dt = method.run(data, size, method.batch, seed)
    seconds = time.process_time() - started
    blocks = pe.to_record(dt).of("forward")
    log_z = -np.concatenate([block.work for block in blocks])
    particles = np.concatenate(
        [np.full(len(block.work), block.trace.particles.mean()) for block in blocks]
    )
    return {"log_z": log_z, "particles": particles, "seconds": seconds / len(log_z)}


def draw(found: pd.DataFrame, file: Path, ep: ExpectationPropagation, exact: float | None) -> None:
    """Draw the figure: log mean and standard deviation of the estimates against their time."""
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    colours = plt.get_cmap("tab10")
    groups = list(found.groupby("setting", sort=False))
    for k, (name, part) in enumerate(groups):
        style = {"marker": "s" if name.endswith("*") else "o", "color": colours(k), "label": name}
        axes[0].plot(part.seconds, part.log_mean, **style)
        bars = part.sd - part.sd_low, part.sd_high - part.sd
        axes[1].errorbar(part.seconds, part.sd, yerr=bars, capsize=2, **style)
    axes[0].axhline(ep.log_evidence, color="0.5", linestyle=":", label="EP")
    axes[0].axhline(ep.second_order, color="0.5", label="EP, second order")
    if exact is not None:
        axes[0].axhline(exact, color="0.2", linestyle="--", label="annealed both ways")
    middle = ep.log_evidence if exact is None else exact
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
    """Make the runs that are not there yet, the tables and the figure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--points", type=int, help="number of digits, RM and ARM only")
    parser.add_argument("--only", nargs="+", help="labels of the methods to run")
    parser.add_argument("--long", action="store_true", help="also settings that take hours")
    parser.add_argument("--stored", action="store_true", help="make no more runs")
    parser.add_argument("--quick", action="store_true", help="90 data points, and short runs")
    given = parser.parse_args(arguments)
    given.folder.mkdir(parents=True, exist_ok=True)
    inputs, labels = usps()[:2]
    chosen, methods, name = np.arange(len(labels)), METHODS + LONG * given.long, NAME
    if given.quick:
        chosen, methods = chosen[361:451], QUICK
    elif given.points:
        # the order that GPClassification(order="random") has by default
        chosen = np.random.default_rng(0).permutation(len(labels))[: given.points]
        methods, name = FEW, f"{NAME}_{given.points}_points"
    data = inputs[chosen], labels[chosen]
    methods = [m for m in methods if given.only is None or m.label in given.only]
    for method in () if given.stored else methods:  # so that times do not hold the compilation
        if "RMHMC" not in method.label:
            method.run((inputs[::40], labels[::40]), 10, 2, 0)
    wanted = {
        (method.label, size): (n, partial(batch_of, method, data, size))
        for method in methods
        for size, n in zip(method.sizes, method.repeats, strict=False)
    }
    runs = kept(given.folder / f"{name}_runs.csv", {} if given.stored else wanted)
    found, pairs = summary(runs), compared(runs)
    found.to_csv(given.folder / f"{name}.csv", index=False, float_format="%.5g")
    pairs.to_csv(given.folder / f"{name}_compared.csv", index=False, float_format="%.4g")
    print(found.to_string(index=False))
    print(pairs.to_string(index=False))
    if not given.points:
        ep = target(data).expectation_propagation()
        exact = None if given.quick else EXACT
        draw(found, given.folder / f"{name}.png", ep, exact)


if __name__ == "__main__":
    main()
