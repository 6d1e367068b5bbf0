"""Figures and tables of docs/carlson2016.md, from the results of the other scripts.

``python examples/papers/carlson2016/page.py`` writes docs/figures/carlson2016_figure1.png to
carlson2016_figure5.png, and prints the tables in Markdown. By default it reads the files
carlson2016_figure1.csv to carlson2016_figure5.csv that lie in docs/figures. A figure whose file is
not there is left out, and so is a machine of Figure 3 that has not been run.
"""

import argparse
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd

TABLES = Path(__file__).parents[3] / "docs" / "figures"
ITERATIONS = (1, 2, 4, 6, 8)
VARIANTS = {
    "visible": "probabilities given the visible units",
    "both": "probabilities given both layers",
    "visible_counts": "counts, given the visible units",
    "both_counts": "counts, given both layers",
    "stochastic_mbar": "stochastic MBAR (Eq. 19)",
}
MACHINES = {"cd25_500": "500 hidden units", "pcd_100": "100 hidden units"}
# The same with a reference whose units are on with equal probability; tables alone.
UNIFORM = {f"{name} uniform": f"{title}, uniform" for name, title in MACHINES.items()}
METHODS = {"rts": "RTS", "rts_all": "RTS, nothing discarded", "ais": "AIS", "raise": "RAISE"}
COLOURS = {
    **{"RTS": "#d55e00", "TS": "#e69f00", "MBAR": "#333333", "TI-RB": "#0072b2"},
    **{"TI": "#56b4e9", "TI trapezoid": "#56b4e9", "TI corrected": "#009e73"},
    **{"TI Riemann": "#cc79a7", "AIS": "#0072b2", "RAISE": "#009e73"},
    "RTS, nothing discarded": "#e69f00",
}


def tables(folder=TABLES):
    """Return the tables of the figures that have one, by number."""
    files = {n: Path(folder) / f"carlson2016_figure{n}.csv" for n in range(1, 6)}
    return {n: pd.read_csv(file) for n, file in files.items() if file.is_file()}


def markdown(header, rows):
    """Return a table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def of_iterations(table):
    """Return log Z at beta = 1 and the deviation of the shares, by iteration."""
    n = table.k.max()
    deviation = (np.exp(table.log_share) * n - 1.0).abs()
    table = table.assign(
        deviation=deviation.groupby([table.variant, table.iteration]).transform("max")
    )
    last = table[table.k == n].set_index(["iteration", "variant"])
    rows = [
        [str(i), *(f"{last.log_z[i, v]:.1f} ({last.deviation[i, v]:.2f})" for v in VARIANTS)]
        for i in sorted(table.iteration.unique())
    ]
    return markdown(["iteration", *VARIANTS.values()], rows)


def of_mixture(table):
    """Return the RMSE of all estimators with most samples."""
    last = table[table.n_samples == table.n_samples.max()].set_index(
        ["n_temperatures", "estimator"]
    )
    names = list(dict.fromkeys(table.estimator))
    rows = [
        [str(size), *(f"{last.rmse[size, name]:.3f}" for name in names)]
        for size in sorted(table.n_temperatures.unique())
    ]
    return markdown(["temperatures", *names], rows)


def of_methods(table, machine):
    """Return bias and RMSE of the methods by number of sweeps."""
    found = table[table.machine == machine].set_index(["sweeps", "method"])
    rows = []
    for sweeps in sorted(set(found.index.get_level_values("sweeps"))):
        cells = [
            f"{found.bias[sweeps, m]:+.2f}, {found.rmse[sweeps, m]:.2f}"
            if (sweeps, m) in found.index
            else ""
            for m in METHODS
        ]
        rows.append([f"{sweeps:,}", *cells])
    return markdown(["sweeps", *METHODS.values()], rows)


def of_temperatures(table):
    """Return the RMSE of all estimators by number of temperatures."""
    names = list(dict.fromkeys(table.estimator))
    found = table.set_index(["n_temperatures", "estimator"])
    rows = []
    for size in sorted(table.n_temperatures.unique()):
        whole = f"{found.whole[size, 'RTS']:.2f} ± {found.whole_mcse[size, 'RTS']:.2f}"
        rows.append([f"{size:,}", *(f"{found.rmse[size, name]:.3f}" for name in names), whole])
    return markdown(["temperatures", *names, "RTS from all states"], rows)


def of_tracking(table):
    """Return log Z and likelihoods at the checkpoints, tracked and by annealing."""
    rows = []
    for row in table.dropna().itertuples():
        cells = [f"{row.log_z:.2f} ± {row.mcse:.2f}", f"{row.ais:.2f} ± {row.ais_mcse:.2f}"]
        cells += [
            f"{getattr(row, name):.2f}, {getattr(row, f'ais_{name}'):.2f}"
            for name in ("train", "validation")
        ]
        rows.append([f"{row.update:,}", *cells])
    header = ["update", "log Z, tracked", "log Z, AIS", "training rows", "validation rows"]
    return markdown(header, rows)


def draw_iterations(table, plt):
    """Draw log Z and log shares after some iterations (Figure 1)."""
    fig, axes = plt.subplots(2, len(VARIANTS), figsize=(17, 6), sharey="row", layout="constrained")
    colours = mpl.colormaps["viridis"](np.linspace(0.0, 0.85, len(ITERATIONS)))
    for (upper, lower), (variant, title) in zip(axes.T, VARIANTS.items(), strict=True):
        own = table[table.variant == variant]
        for i, colour in zip(ITERATIONS, colours, strict=True):
            rows = own[own.iteration == i]
            upper.plot(rows.k, rows.log_z, color=colour, label=f"iteration {i}")
            lower.plot(rows.k, rows.log_share, color=colour)
        upper.plot(rows.k, rows.exact, color="black", linestyle="--", label="exact")
        n = table.k.max()
        lower.axhline(-np.log(n), color="black", linestyle="--")
        upper.set(title=title)
        lower.set(xlabel="temperature k", ylim=(-30, 1))
    axes[0, 0].set_ylabel("log Z of temperature k (nats)")
    axes[1, 0].set_ylabel("log share of temperature k")
    axes[0, 0].legend(frameon=False)
    return fig


def draw_mixture(table, plt):
    """Draw the RMSE against the number of samples (Figure 2)."""
    sizes = sorted(table.n_temperatures.unique())
    fig, axes = plt.subplots(
        1,
        len(sizes),
        figsize=(4.4 * len(sizes), 4),
        sharey=True,
        layout="constrained",
        squeeze=False,
    )
    for axis, size in zip(axes[0], sizes, strict=True):
        own = table[table.n_temperatures == size]
        for name in dict.fromkeys(own.estimator):
            rows = own[own.estimator == name]
            axis.plot(rows.n_samples, rows.rmse, "o-", color=COLOURS[name], label=name)
        axis.set(title=f"{size} temperatures", xlabel="number of samples", yscale="log")
    axes[0, 0].set_ylabel("RMSE of log Z (nats)")
    axes[0, -1].legend(frameon=False)
    return fig


def draw_methods(table, plt):
    """Draw mean and RMSE against the number of sweeps (Figure 3)."""
    names = [name for name in MACHINES if name in set(table.machine)]
    fig, axes = plt.subplots(
        len(names), 2, figsize=(10, 4 * len(names)), layout="constrained", squeeze=False
    )
    for name, (left, right) in zip(names, axes, strict=True):
        own = table[table.machine == name]
        truth = own.truth.iloc[0]
        left.axhline(truth, color="black", linestyle="--", label=f"true: {truth:.2f}")
        for method, label in METHODS.items():
            rows = own[own.method == method]
            left.plot(rows.sweeps, rows["mean"], "o-", color=COLOURS[label], label=label)
            right.plot(rows.sweeps, rows.rmse, "o-", color=COLOURS[label], label=label)
        left.set(title=MACHINES[name], ylabel="mean of the estimates (nats)")
        right.set(title=MACHINES[name], ylabel="RMSE (nats)", yscale="log")
        for axis in (left, right):
            axis.set(xscale="log", xlabel="Gibbs sweeps of each chain")
        left.legend(frameon=False)
    return fig


def draw_temperatures(table, plt):
    """Draw the RMSE against the number of temperatures (Figure 4)."""
    fig, axis = plt.subplots(figsize=(6, 4.2), layout="constrained")
    for name in dict.fromkeys(table.estimator):
        rows = table[table.estimator == name]
        axis.plot(rows.n_temperatures, rows.rmse, "o-", color=COLOURS[name], label=name)
    axis.set(xscale="log", yscale="log", xlabel="number of temperatures", ylabel="RMSE (nats)")
    axis.legend(frameon=False)
    return fig


def draw_tracking(table, plt):
    """Draw likelihoods during the training, and the difference of both log Z (Figure 5)."""
    fig, (upper, lower) = plt.subplots(
        2, 1, figsize=(7, 6), layout="constrained", sharex=True, height_ratios=(2.5, 1)
    )
    checked = table.dropna()
    for name, colour in (("train", "#0072b2"), ("validation", "#d55e00")):
        upper.plot(table["update"], table[name], color=colour, lw=0.8, label=f"{name}, tracked")
        drawn = {"color": colour, "markerfacecolor": "white", "label": f"{name}, AIS"}
        upper.plot(checked["update"], checked[f"ais_{name}"], "o", **drawn)
    best = table["update"][table.validation.idxmax()]
    upper.axvline(best, color="0.5", linestyle=":", label="best validation likelihood")
    upper.set(ylabel="mean log likelihood (nats)")
    upper.legend(frameon=False, fontsize="small")
    error = 2.0 * np.hypot(checked.mcse, checked.ais_mcse)
    difference = checked.log_z - checked.ais
    lower.errorbar(checked["update"], difference, error, fmt="o", color="0.2", markersize=4)
    lower.axhline(0.0, color="0.5", linewidth=0.8)
    lower.set(xlabel="update", ylabel="log Z: tracked - AIS")
    return fig


DRAWN = {
    1: draw_iterations,
    2: draw_mixture,
    3: draw_methods,
    4: draw_temperatures,
    5: draw_tracking,
}


def draw(found, folder=TABLES):
    """Draw the figures and return the paths of their files."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    files = []
    for number, table in found.items():
        fig = DRAWN[number](table, plt)
        files.append(Path(folder) / f"carlson2016_figure{number}.png")
        fig.savefig(files[-1], dpi=80)
        plt.close(fig)
    return files


def texts(found):
    """Return the tables of the page in Markdown, in the order of the figures."""
    makers = {1: of_iterations, 2: of_mixture, 4: of_temperatures, 5: of_tracking}
    made = []
    for number, table in found.items():
        if number in makers:
            made.append(makers[number](table))
        else:
            names = [name for name in MACHINES | UNIFORM if name in set(table.machine)]
            made += [of_methods(table, name) for name in names]
    return made


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=Path, default=TABLES, help="folder of the csv files")
    parser.add_argument("--out", type=Path, default=TABLES, help="folder of the figures")
    parser.add_argument("--only", type=int, choices=range(1, 6), help="one figure, not all")
    given = parser.parse_args()
    results = tables(given.tables)
    if given.only:
        results = {given.only: results[given.only]}
    print(*draw(results, given.out), sep="\n")
    print(*texts(results), sep="\n\n")
