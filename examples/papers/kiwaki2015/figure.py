"""Effective sample sizes of annealing schedules on six machines, from the tables of schedules.py.

Upper row: the effective sample size of a run against the number of stages (the paper's Figs. 3
and 6). Lower row: that of the weights that paths have accumulated up to beta, at most stages
(Fig. 4). ``python examples/papers/kiwaki2015/figure.py`` writes
docs/figures/kiwaki2015_sample_sizes.png.
"""

from pathlib import Path

import matplotlib as mpl
import pandas as pd

RESULTS = Path(__file__).parents[2] / "results"
FIGURE = Path(__file__).parents[3] / "docs" / "figures" / "kiwaki2015_sample_sizes.png"
COLOURS = {"LINEAR": "#333333", "SM08": "#e69f00", "GMS13": "#56b4e9", "VAROPT": "#d55e00"}
TITLES = {
    "pcd20": "PCD(20)",
    "cd1_20": "CD1(20)",
    "cd25_20": "CD25(20)",
    "pcd500": "PCD(500)",
    "cd1_500": "CD1(500)",
    "cd25_500": "CD25(500)",
}


def main(results=RESULTS, out=FIGURE, base="data"):
    """Draw the figure and return the path of its file."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    table = pd.read_csv(Path(results) / "kiwaki2015_schedules.csv")
    shares = pd.read_csv(Path(results) / "kiwaki2015_path_ess.csv")
    fig, axes = plt.subplots(2, len(TITLES), figsize=(15, 5.4), sharey="row", layout="constrained")
    for (upper, lower), (name, title) in zip(axes.T, TITLES.items(), strict=True):
        for schedule, colour in COLOURS.items():
            rows = table[
                (table.machine == name) & (table.base == base) & (table.schedule == schedule)
            ]
            upper.plot(rows.n_stages, rows.ess, "o-", color=colour, label=schedule)
            steps = shares[
                (shares.machine == name) & (shares.base == base) & (shares.schedule == schedule)
            ]
            lower.plot(steps.beta, steps.share, color=colour)
        upper.set(xscale="log", title=title, xlabel="number of stages K")
        lower.set(xlabel="beta", ylim=(0, 1))
    axes[0, 0].set_ylabel("ESS (share of paths)")
    axes[1, 0].set_ylabel("ESS of accumulated weights")
    axes[0, 0].legend(frameon=False)
    fig.savefig(out, dpi=110)
    plt.close(fig)
    return Path(out)


if __name__ == "__main__":
    print(main())
