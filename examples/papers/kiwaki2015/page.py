"""Figures and tables of docs/kiwaki2015.md, from the tables of schedules.py.

Upper row of the first figure: the effective sample size of a run against the number of stages (the
paper's Figs. 3 and 6). Lower row: that of the weights that paths have accumulated up to beta, at
most stages (Fig. 4). Upper row of the second one: the schedules (Fig. 1). Lower row: log Z against
the number of stages (Figs. 2 and 5).

``python examples/papers/kiwaki2015/page.py`` writes docs/figures/kiwaki2015_sample_sizes.png and
kiwaki2015_log_z.png, and prints the tables in Markdown. By default it reads the files of
schedules.py that lie in docs/figures.
"""

import argparse
from pathlib import Path

import matplotlib as mpl
import pandas as pd
from scipy import stats

TABLES = Path(__file__).parents[3] / "docs" / "figures"
FIGURES = "kiwaki2015_sample_sizes.png", "kiwaki2015_log_z.png"
LEAST = 3  # runs with different seeds, from which differences have an interval
COLOURS = {"LINEAR": "#333333", "SM08": "#e69f00", "GMS13": "#56b4e9", "VAROPT": "#d55e00"}
TITLES = {
    "pcd20": "PCD(20)",
    "cd1_20": "CD1(20)",
    "cd25_20": "CD25(20)",
    "pcd500": "PCD(500)",
    "cd1_500": "CD1(500)",
    "cd25_500": "CD25(500)",
}
# Tables alone: machines with lower learning rates, which mix.
MIXING = {"pcd500_low": "PCD(500), low rate", "cd25_500_low": "CD25(500), low rate"}


def tables(folder=TABLES, base="data"):
    """Return the figures of the runs, the sample sizes of accumulated weights, and schedules."""
    kinds = "schedules", "path_ess", "beta"
    found = (pd.read_csv(Path(folder) / f"kiwaki2015_{kind}.csv") for kind in kinds)
    return tuple(table[table.base == base] for table in found)


def at_most_stages(table):
    """Return the rows with the largest number of stages of each machine."""
    return table[table.n_stages == table.groupby("machine").n_stages.transform("max")]


def markdown(header, rows):
    """Return a table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def sample_sizes(runs):
    """Return the table of effective sample sizes, in percent of the paths.

    Where there are several seeds, a cell has the mean and its standard error.
    """
    names = list(dict.fromkeys(runs.schedule))
    rows = []
    for machine, title in (TITLES | MIXING).items():
        own = runs[runs.machine == machine]
        for n_stages, group in own.groupby("n_stages"):
            ess = 100.0 * group.groupby("schedule").ess.agg(["mean", "sem"]).loc[names]
            cells = [
                f"{mean:.1f}" + (f" ± {error:.1f}" if error == error else "")
                for mean, error in zip(ess["mean"], ess["sem"], strict=True)
            ]
            best = ess["mean"] == ess["mean"].max()
            cells = [f"**{x}**" if b else x for x, b in zip(cells, best, strict=True)]
            rows.append([title, f"{n_stages:,}", f"{group.seed.nunique()}", *cells])
    return markdown(["machine", "K", "runs", *names], rows)


def differences(runs):
    """Return the table of VAROPT's lead in effective sample size, in percent of the paths.

    Intervals of 95 % are by the t distribution, from differences between runs of the same seed.
    """
    others, rows = [name for name in COLOURS if name != "VAROPT"], []
    for machine, title in (TITLES | MIXING).items():
        for n_stages, group in runs[runs.machine == machine].groupby("n_stages"):
            ess = 100.0 * group.pivot(index="seed", columns="schedule", values="ess")
            if len(ess) < LEAST:
                continue
            cells = []
            for name in others:
                lead = ess["VAROPT"] - ess[name]
                low, high = stats.t.interval(0.95, len(lead) - 1, lead.mean(), stats.sem(lead))
                text = f"{lead.mean():+.1f} ({low:+.1f} to {high:+.1f})"
                cells.append(f"**{text}**" if low > 0.0 or high < 0.0 else text)
            rows.append([title, f"{n_stages:,}", f"{len(ess)}", *cells])
    return markdown(["machine", "K", "runs", *(f"VAROPT - {name}" for name in others)], rows)


def log_z(runs):
    """Return the table of log Z at most stages, without decelerations."""
    rows = []
    for machine, title in (TITLES | MIXING).items():
        first = runs[(runs.machine == machine) & (runs.seed == 0)]
        group = at_most_stages(first).set_index("schedule")
        exact = group.exact.iloc[0]
        cells = [f"{group.log_z[x]:.2f} ± {group.mcse[x]:.2f}" for x in COLOURS]
        known = "not enumerated" if pd.isna(exact) else f"{exact:.2f}"
        linear = f"{group.predicted_sd['VAROPT']:.2f}, {group.sd['VAROPT']:.2f}"
        rows.append([title, f"{group.n_stages.iloc[0]:,}", known, *cells, linear])
    return markdown(["machine", "K", "exact", *COLOURS, "sd of VAROPT: predicted, found"], rows)


def draw(runs, shares, beta, out=TABLES):
    """Draw both figures and return the paths of their files."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    size = {"figsize": (15, 5.4), "layout": "constrained"}
    of_ess, upper_lower = plt.subplots(2, len(TITLES), sharey="row", **size)
    for (upper, lower), (name, title) in zip(upper_lower.T, TITLES.items(), strict=True):
        on_the_way = at_most_stages(shares[shares.machine == name])
        for schedule, colour in COLOURS.items():
            rows = runs[(runs.machine == name) & (runs.schedule == schedule)]
            rows = rows.groupby("n_stages", as_index=False).ess.mean()
            steps = on_the_way[on_the_way.schedule == schedule]
            upper.plot(rows.n_stages, rows.ess, "o-", color=colour, label=schedule)
            lower.plot(steps.beta, steps.share, color=colour)
        label_stages(upper, rows.n_stages)
        upper.set_title(title)
        lower.set(xlabel="beta", ylim=(0, 1))
    label_rows(upper_lower, "ESS (share of paths)", "ESS of accumulated weights")

    of_log_z, upper_lower = plt.subplots(2, len(TITLES), **size)
    for (upper, lower), (name, title) in zip(upper_lower.T, TITLES.items(), strict=True):
        own = runs[runs.machine == name]
        for k, (schedule, colour) in enumerate(COLOURS.items()):
            steps = beta[(beta.machine == name) & (beta.schedule == schedule)]
            upper.plot(steps.stage, steps.beta, color=colour, label=schedule)
            found = own[own.schedule == schedule].groupby("n_stages").log_z.agg(["mean", "std"])
            place = found.index * 1.06 ** (k - 1.5)  # side by side
            lower.errorbar(place, found["mean"], found["std"], fmt="o-", color=colour, capsize=2)
        if own.exact.notna().any():
            lower.axhline(own.exact.iloc[0], color="0.6", linestyle="--")
        label_stages(lower, found.index)
        upper.set(title=title, xlabel="share of the stages")
    label_rows(upper_lower, "beta", "log Z (nats)")

    files = [Path(out) / name for name in FIGURES]
    for fig, file in zip((of_ess, of_log_z), files, strict=True):
        fig.savefig(file, dpi=80)
        plt.close(fig)
    return files


def label_stages(axis, n_stages):
    """Label the axis of the number of stages."""
    axis.set(xscale="log", xlabel="number of stages K")
    axis.set_xticks(n_stages, [f"{n:,}" for n in n_stages])
    axis.minorticks_off()


def label_rows(axes, upper, lower):
    """Label the rows of a figure, whose first panel has the legend."""
    axes[0, 0].set_ylabel(upper)
    axes[1, 0].set_ylabel(lower)
    axes[0, 0].legend(frameon=False, fontsize="small")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=Path, default=TABLES, help="folder of the csv files")
    parser.add_argument("--out", type=Path, default=TABLES, help="folder of the figures")
    given = parser.parse_args()
    runs, shares, beta = tables(given.tables)
    print(*draw(runs, shares, beta, given.out), sep="\n")
    print(sample_sizes(runs), differences(runs), log_z(runs), sep="\n\n")
