"""Ising and Potts lattices from both ends: Figures 3, 4A and 4B of Habeck (2017).

Everything runs on the plain path, straight in beta, with the paper's kernels: single-site
Metropolis, a site drawn at random for every step. M paths go forward from random states and M
back from ordered states that have relaxed at beta 1. Beside them stands what the package does by
itself, a heat bath on a path that goes round the phase transition.

    python examples/papers/habeck2017/lattices.py ising          # the paper's setting; 2 minutes
    python examples/papers/habeck2017/lattices.py potts          # a hundredth of its budget
    python examples/papers/habeck2017/lattices.py potts --paper  # all of it: 2 hours

Both print tables, and write the first one and a figure. The Potts runs are stored one by one and
not made again, so that they may be made in several sittings.
"""

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd

import pm_evidence as pe
from pm_evidence.core.contracts import Plan
from pm_evidence.families.lattice.lattice import LatticePath
from pm_evidence.schedules import linear
from pm_evidence.testing.lattices import kaufman

SEED = 20171204
RESULTS = Path(__file__).parent / "results"

SIZE = 32
# Ising: stages, paths in each direction, and sweeps a stage; the paper's N = 1000 is about one.
ISING_STAGES, ISING_PATHS, SWEEPS = 1000, 1000, (1, 2, 3, 5, 10, 20)
# Potts: paths in each direction of a repetition, stages of Figure 4A, steps of Figure 4B at
# POSTERIOR_STAGES stages, and steps of a whole path.
POTTS_PATHS, POTTS_STAGES, BUDGET = 100, (1000, 10_000, 100_000), 10**9
FEW_STAGES = (100, 1000, 10_000)  # where the budget is small
POSTERIOR_STAGES, POSTERIOR_DRAWS = 1000, 20_000
POSTERIOR_STEPS = (10**5, 10**6, 10**7)  # and 10**8 in the paper, which takes hours
PAPER_POTTS = 1742.0  # its reference value, from parallel tempering, which is 1.8 low
# For q = 10, 32 x 32 and coupling 2 at beta 1, relative to the uniform distribution: expansion
# about the ordered states, from exact results at L = 5, 6 and 7. Good to 1e-4.
POTTS_32_LOG_EVIDENCE = 1743.7872
# Before reverse paths set off, ordered states relax for so many sweeps at beta 1.
RELAXING_SWEEPS = 100
# What the package does by itself: in the time of one repetition of the paper's setting, about, and
# as it comes.
OWN_ISING: tuple[dict[str, Any], ...] = ({"method": pe.methods.AIS(n_stages=1000)}, {})
OWN_POTTS: tuple[dict[str, Any], ...] = ({"method": pe.methods.AIS(n_stages=65_536)}, {})

ESTIMATORS = {
    "lower_bound": "lower bound",
    "jarzynski": "forward AIS",
    "bar": "BAR",
    "histogram": "histogram",
    "jarzynski_reverse": "reverse AIS",
    "upper_bound": "upper bound",
}
LOOKS = {
    # the colours of the paper; histogram on top of BAR, with which it agrees
    "upper_bound": ("#1f78b4", "o-", 4),
    "jarzynski_reverse": ("#33a02c", "o-", 4),
    "bar": ("#fb9a99", "s-", 7),
    "histogram": ("#e31a1c", "x--", 5),
    "jarzynski": ("#8fce5f", "o-", 4),
    "lower_bound": ("#7fb8dd", "o-", 4),
}
BLUE, GREEN = "#1f78b4", "#33a02c"


# --- simulation ---


def simulate(target, kernel, n_stages, n_paths, steps, repetition=0):
    """Return blocks of forward and of reverse paths on the plain path.

    ``steps`` is how many sites a stage visits, here only to tell settings apart and to know how
    many stages' worth of moves let ordered states relax.
    """
    path, plan = LatticePath(target), Plan(linear(n_stages), (kernel,) * n_stages)
    setting = np.random.SeedSequence([SEED, n_stages, steps])
    seed = int(setting.generate_state(1)[0])
    forward = pe.methods.AIS().run_block(path, plan, repetition, n_paths, seed)
    start = target.ground_states(n_paths, np.random.default_rng([seed, repetition]))
    n_moves = -(-RELAXING_SWEEPS * target.n_dim // steps)
    reverse = pe.methods.AIS().run_reverse(
        path, plan, repetition, start, None, seed, n_moves=n_moves
    )
    return forward, reverse


def estimates(forward, reverse):
    """Return the six estimates of two arrays of work."""
    of = pe.estimators
    found = (
        of.lower_bound(forward),
        of.jarzynski(forward),
        of.bar(forward, reverse),
        of.histogram(forward, reverse),
        of.jarzynski_reverse(reverse),
        of.upper_bound(reverse),
    )
    return dict(zip(ESTIMATORS, found, strict=True))


def rows(work, **setting):
    """Return a row of a table for every estimate."""
    return [
        {**setting, "estimator": name, "value": found.value, "mcse": found.mcse}
        for name, found in estimates(*work).items()
    ]


def summary(table, by):
    """Return the first repetition, and mean and standard deviation of all."""
    groups = table.groupby([by, "estimator"], sort=False)["value"]
    found = groups.agg(first="first", mean="mean", sd="std", repetitions="count")
    return found.reindex(list(ESTIMATORS), level="estimator")


def own(target, exact, **options):
    """Return a run of the package by itself, in one thread, and print what it found."""
    kwargs = {"cores": 1, "random_seed": 1, "progressbar": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pe.EvidenceWarning)
        pe.sample_evidence(
            target, draws=10, target_mcse=None, method=pe.methods.AIS(n_stages=2), **kwargs
        )  # compiles
    started = time.perf_counter()
    dt = pe.sample_evidence(target, target_mcse=None, **options, **kwargs)
    seconds = time.perf_counter() - started
    found = pe.log_evidence(dt)
    n_stages, n_paths = dt["annealing"].sizes["stage"], dt["work"]["forward"].size
    print(
        f"  K = {n_stages:6d}, M = {n_paths:5d}, {seconds:7.2f} s: {found.value:9.3f} "
        f"+- {found.mcse:.3f}, error {found.value - exact:+.3f}, status {found.status}"
    )
    return dt


# --- Figure 3 ---


def ising_energy(size, beta, step=1e-4):
    """Return the exact mean energy of the Ising lattice, by the slope of its log Z."""
    log_z = [[kaufman((size, size), b + sign * step) for sign in (-1, 1)] for b in beta]
    return -np.diff(log_z, axis=1)[:, 0] / (2.0 * step)


def figure3(blocks, table, exact, path):
    """Draw work densities, energies near the transition, and estimates against N."""
    from matplotlib import pyplot as plt

    figure, (density, energy, evidence) = plt.subplots(
        1, 3, figsize=(12.0, 3.8), layout="constrained"
    )
    names = (r"$p_f(W)$", r"$p_r(W)$")
    bins = np.histogram_bin_edges(np.concatenate([block.work for block in blocks]), 80)
    for block, color, name in zip(blocks, (BLUE, GREEN), names, strict=True):
        height = np.histogram(block.work, bins, density=True)[0]
        density.stairs(height, bins, fill=True, color=color, alpha=0.3)
        density.stairs(height, bins, color=color, label=name)
    density.axvline(-exact, color="k", ls="--", label=r"$-\log Z$")
    density.set(xlabel="work W (nats)", ylabel="density", ylim=(0.0, None))
    density.locator_params(axis="x", nbins=5)

    beta = linear(len(blocks[0].trace.energy_mean))
    ends = beta[:-1], beta[1:]  # where forward and reverse paths were moved last
    for block, at, color, name in zip(blocks, ends, (BLUE, GREEN), "fr", strict=True):
        energy.plot(at, block.trace.energy_mean, color=color, label=rf"$\langle E\rangle_{name}$")
    zoom = np.linspace(0.4, 0.7, 121)
    size = round(blocks[0].draws[0].size ** 0.5)
    energy.plot(zoom, ising_energy(size, zoom), "k--", label=r"$\langle E\rangle_\beta$")
    low, high = -2.0 * size**2, -0.9 * size**2
    energy.set(xlim=(0.4, 0.7), ylim=(low, high), xlabel=r"inverse temperature $\beta$")
    energy.set_ylabel("mean energy")

    _draw_estimates(evidence, table, "N", exact)
    # as in the paper, the lower bound leaves the picture where N is small
    evidence.set(xlabel="steps at each temperature N", ylim=(exact - 14.0, exact + 20.0))
    for axes, letter in zip((density, energy, evidence), "ABC", strict=True):
        axes.set_title(letter, loc="left", fontweight="bold")
        columns = 2 if axes is evidence else 1
        axes.legend(frameon=False, fontsize="small", loc="upper right", ncols=columns)
    figure.savefig(path, dpi=100)
    plt.close(figure)


def _draw_estimates(axes, table, by, exact):
    """Draw means over repetitions, with bars of one standard deviation."""
    found = summary(table, by)
    for name, (color, look, size) in LOOKS.items():
        part = found.xs(name, level="estimator")
        error = part["sd"].fillna(0.0)
        axes.errorbar(
            part.index, part["mean"], error, fmt=look, color=color, ms=size, label=ESTIMATORS[name]
        )
    axes.axhline(exact, color="k", ls="--", lw=0.8, label=r"$\log Z$")
    low, high = axes.get_ylim()
    top = high + 0.35 * (high - low)  # room for the legend
    axes.set(xscale="log", ylabel="log evidence (nats)", ylim=(low, top))


def ising(
    out=RESULTS,
    *,
    repetitions=10,
    size=SIZE,
    n_stages=ISING_STAGES,
    n_paths=ISING_PATHS,
    sweeps=SWEEPS,
    own_stages=OWN_ISING,
):
    """Run the Ising lattice at every number of sweeps, draw Figure 3; return the table."""
    target = pe.lattices.Ising(size)
    exact = kaufman((size, size), 1.0) - target.log_n_states
    found: list[dict[str, Any]] = []
    shown, seconds = None, {}
    for n_sweeps in sweeps:
        kernel, steps = pe.kernels.SpinMetropolis(n_sweeps, "random"), n_sweeps * target.n_dim
        simulate(target, kernel, 2, n_paths, steps)  # compiles
        started = time.perf_counter()
        for repetition in range(repetitions):
            blocks = simulate(target, kernel, n_stages, n_paths, steps, repetition)
            shown = shown or blocks
            found += rows([block.work for block in blocks], N=steps, repetition=repetition)
        seconds[steps] = (time.perf_counter() - started) / repetitions
    table = pd.DataFrame(found)

    print(f"Ising {size} x {size}: K = {n_stages}, M = {n_paths}; log Z = {exact:.3f}\n")
    print(summary(table, "N").to_string(float_format="{:.3f}".format))
    print("\nSeconds of a repetition, both directions: ", end="")
    print(", ".join(f"N = {steps}: {value:.2f}" for steps, value in seconds.items()))
    print("\nThe package by itself")
    for options in own_stages:
        own(target, exact, **options)
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    figure3(shown, table, exact, out / "figure3.png")
    summary(table, "N").to_csv(out / "figure3.csv", float_format="%.7g")
    return table


# --- Figure 4, A and B ---


def stored_run(target, n_stages, n_steps, repetition, store):
    """Return the file of a repetition, there or not yet."""
    name = f"L{target.sizes[0]}_K{n_stages}_N{n_steps}_M{POTTS_PATHS}_{repetition}.npz"
    return Path(store) / name


def potts_run(target, n_stages, n_steps, repetition, store):
    """Return the work of both directions and the seconds of a repetition, made or stored."""
    file = stored_run(target, n_stages, n_steps, repetition, store)
    if not file.exists():
        started, kernel = time.perf_counter(), pe.kernels.ColourMetropolis(n_steps=n_steps)
        blocks = simulate(target, kernel, n_stages, POTTS_PATHS, n_steps, repetition)
        work = {key: b.work for key, b in zip(("forward", "reverse"), blocks, strict=True)}
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_suffix(".part.npz")
        np.savez(partial, **work, seconds=time.perf_counter() - started)
        partial.rename(file)  # a run that is cut off leaves no half of a file
    with np.load(file) as kept:
        return (kept["forward"], kept["reverse"]), float(kept["seconds"])


def posterior(work, label):
    """Return draws of log Z given the work of both directions, and print a summary."""
    log_z = pe.estimators.histogram_draws(*work, draws=POSTERIOR_DRAWS, random_seed=SEED)
    low, high = np.quantile(log_z, (0.025, 0.975))
    print(
        f"  {label:12s}: mean {log_z.mean():9.3f}, sd {log_z.std():.3f}, "
        f"95 % from {low:.3f} to {high:.3f}"
    )
    return log_z


def figure4(table, posteriors, exact, reference, path):
    """Draw estimates against K at one budget, and posteriors of log Z at one K."""
    from matplotlib import pyplot as plt

    figure, (evidence, density) = plt.subplots(1, 2, figsize=(9.5, 4.0), layout="constrained")
    _draw_estimates(evidence, table, "K", exact)
    evidence.set_xlabel("number of temperatures K")
    colors = plt.get_cmap("viridis")(np.linspace(0.0, 0.85, len(posteriors)))
    for (label, log_z), color in zip(posteriors.items(), colors, strict=True):
        height, edges = np.histogram(log_z, 40, density=True)
        density.stairs(height, edges, fill=True, color=color, alpha=0.3)
        density.stairs(height, edges, color=color, label=label)
    density.axvline(exact, color="k", ls="--", lw=0.8, label=r"$\log Z$")
    if reference is not None:
        label = f"the paper's {reference:.0f}"
        evidence.axhline(reference, color="0.5", ls=":", label=label)
        density.axvline(reference, color="0.5", ls=":", label=label)
    density.set(xlabel="log evidence (nats)", ylabel="posterior density")
    density.set(yscale="log", ylim=(2e-3, None))
    for axes, letter in zip((evidence, density), "AB", strict=True):
        axes.set_title(letter, loc="left", fontweight="bold")
        columns = 2 if axes is evidence else 1
        axes.legend(frameon=False, fontsize="small", loc="upper right", ncols=columns)
    figure.savefig(path, dpi=100)
    plt.close(figure)


def potts(
    out=RESULTS,
    *,
    repetitions=10,
    budget=BUDGET // 100,
    stages=FEW_STAGES,
    posterior_stages=POSTERIOR_STAGES,
    posterior_steps=None,
    size=SIZE,
    exact=POTTS_32_LOG_EVIDENCE,
    stored=False,
    own_potts=({},),
):
    """Run the Potts lattice at every number of stages, draw Figure 4; return the table."""
    target, out = pe.lattices.Potts(size), Path(out)
    store = out / "potts"
    found, seconds = [], {}
    for n_stages in stages:
        taken = []
        for repetition in range(repetitions):
            setting = target, n_stages, budget // n_stages, repetition, store
            if stored and not stored_run(*setting).exists():
                continue
            work, of_run = potts_run(*setting)
            taken.append(of_run)
            found += rows(work, K=n_stages, repetition=repetition)
        seconds[n_stages] = np.mean(taken)
    table = pd.DataFrame(found)

    print(f"Potts {size} x {size}: K N = {budget:.0e}, M = {POTTS_PATHS}; log Z = {exact:.3f}\n")
    print(summary(table, "K").to_string(float_format="{:.3f}".format))
    print("\nSeconds of a repetition, both directions: ", end="")
    print(", ".join(f"K = {n_stages}: {value:.1f}" for n_stages, value in seconds.items()))
    print("\nThe package by itself")
    *_, dt = [own(target, exact, **options) for options in own_potts]
    print(f"\nPosterior of log Z at K = {posterior_stages}, first repetition, and of the last run")
    posteriors = {}
    whole = budget // posterior_stages
    for n_steps in posterior_steps or (whole // 10, whole):
        setting = target, posterior_stages, n_steps, 0, store
        if stored and not stored_run(*setting).exists():
            continue
        work, _ = potts_run(*setting)
        label = f"N = {n_steps:.0e}"
        posteriors[label] = posterior(work, label)
    work = [dt["work"][direction].to_numpy() for direction in ("forward", "reverse")]
    posteriors["by itself"] = posterior(work, "by itself")
    out.mkdir(parents=True, exist_ok=True)
    reference = PAPER_POTTS if size == SIZE else None
    figure4(table, posteriors, exact, reference, out / "figure4.png")
    summary(table, "K").to_csv(out / "figure4.csv", float_format="%.7g")
    return table


# --- all of it ---


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lattice", choices=("ising", "potts"))
    parser.add_argument("--out", default=RESULTS, help="folder of the figures and stored runs")
    parser.add_argument("--repetitions", type=int, default=10)
    parser.add_argument("--budget", type=float, default=BUDGET // 100, help="Potts: K times N")
    parser.add_argument("--stages", type=int, nargs="+", default=FEW_STAGES, help="Potts: K")
    parser.add_argument("--paper", action="store_true", help="Potts: the paper's budget and K")
    parser.add_argument("--stored", action="store_true", help="Potts: make no more runs")
    given = parser.parse_args()
    mpl.use("Agg")
    if given.lattice == "ising":
        ising(given.out, repetitions=given.repetitions)
        return
    kwargs: dict[str, Any] = {"repetitions": given.repetitions, "stored": given.stored}
    budget, stages = int(given.budget), given.stages
    if given.paper:
        budget, stages = BUDGET, POTTS_STAGES
        kwargs |= {"own_potts": OWN_POTTS, "posterior_steps": POSTERIOR_STEPS}
    potts(given.out, budget=budget, stages=stages, **kwargs)


if __name__ == "__main__":
    main()
