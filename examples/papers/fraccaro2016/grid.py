"""The grid of covariance functions of Fraccaro, Paquet and Winther (2016), section 4.2.

Log Z of Gaussian process classification of the USPS digits at length scales and amplitudes from
short and small to those of Figure 2, which the paper found hardest of all, by adaptive
resample-move with 100 particles in an island, beside expectation propagation (EP).

    python examples/papers/fraccaro2016/grid.py FOLDER [--quick]

FOLDER receives every estimate with its seed, fraccaro2016_grid_runs.csv, from which an interrupted
run goes on; the table and the figure that follow.
"""

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd

import pm_evidence as pe
from examples.papers.fraccaro2016.figure2 import ADAPTIVE, Method, batch_of, run
from examples.papers.fraccaro2016.runs import kept, summary
from examples.real_data import usps

NAME = "fraccaro2016_grid"
LOG_LENGTHS, LOG_AMPLITUDES = (2.0, 2.75, 3.5, 4.1, 4.85), (0.0, 1.3, 2.6, 3.9, 5.1)
PARTICLES, ISLANDS, BATCHES = 100, 8, 1


def target(data: tuple[np.ndarray, ...], length: float, amplitude: float) -> pe.gp.GPClassification:
    """Return the classification with a covariance function, given the logs of its parameters."""
    options = {"length_scale": np.exp(length), "amplitude": np.exp(amplitude)}
    return pe.gp.GPClassification(*data, order="random", **options)


def method(length: float, amplitude: float) -> Method:
    """Return adaptive resample-move at a setting."""

    def made(data: tuple[np.ndarray, ...], size: int, n: int, seed: int) -> object:
        problem = target(data, length, amplitude)
        return run(problem, size * n, method=ADAPTIVE(islands=n), random_seed=seed)

    return Method(f"{length:g} {amplitude:g}", (PARTICLES,), (BATCHES,), made, ISLANDS)


def table(
    runs: pd.DataFrame, data: tuple[np.ndarray, ...], settings: Sequence[tuple[float, float]]
) -> pd.DataFrame:
    """Return the estimates of every setting, with those of EP and of its second order."""
    found = summary(runs).set_index("setting")
    rows = []
    for setting in settings:
        ep = target(data, *setting).expectation_propagation()
        estimates = found.loc[f"{setting[0]:g} {setting[1]:g}"].drop("size")
        names = dict(zip(("log_length", "log_amplitude"), setting, strict=True))
        rows.append(names | estimates.to_dict() | {"ep": ep.log_evidence, "ep2": ep.second_order})
    return pd.DataFrame(rows)


def draw(found: pd.DataFrame, file: Path) -> None:
    """Draw log Z and the standard deviation of its estimates at every setting."""
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for axis, column, title, decimals in (
        (axes[0], "log_mean", "log mean of Z (nats)", 0),
        (axes[1], "sd", "standard deviation of log Z (nats)", 2),
    ):
        values = found.pivot(index="log_amplitude", columns="log_length", values=column)
        image = axis.imshow(values, origin="lower", aspect="auto", cmap="viridis")
        middle = 0.5 * sum(image.get_clim())
        for (row, place), value in np.ndenumerate(values.to_numpy()):
            colour = "white" if value < middle else "black"
            axis.text(place, row, f"{value:.{decimals}f}", ha="center", va="center", color=colour)
        axis.set(title=title, xlabel="log of the length scale", ylabel="log of the amplitude")
        axis.set_xticks(range(len(values.columns)), [f"{x:g}" for x in values.columns])
        axis.set_yticks(range(len(values.index)), [f"{x:g}" for x in values.index])
    figure.savefig(file, dpi=100)
    plt.close(figure)


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the runs that are not there yet, the table and the figure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--quick", action="store_true", help="40 digits, and four settings")
    given = parser.parse_args(arguments)
    given.folder.mkdir(parents=True, exist_ok=True)
    inputs, labels = usps()[:2]
    chosen = np.arange(len(labels))
    if given.quick:
        chosen = np.random.default_rng(0).permutation(chosen)[:40]
    data, step = (inputs[chosen], labels[chosen]), 4 if given.quick else 1
    settings = [(x, y) for y in LOG_AMPLITUDES[::step] for x in LOG_LENGTHS[::step]]
    methods = [method(*setting) for setting in settings]
    methods[0].run((inputs[::40], labels[::40]), 10, 2, 0)  # times do not hold the compilation
    wanted = {
        (m.label, PARTICLES): (BATCHES, partial(batch_of, m, data, PARTICLES)) for m in methods
    }
    found = table(kept(given.folder / f"{NAME}_runs.csv", wanted), data, settings)
    found.to_csv(given.folder / f"{NAME}.csv", index=False, float_format="%.5g")
    print(found.to_string(index=False))
    draw(found, given.folder / f"{NAME}.png")


if __name__ == "__main__":
    main()
