"""Does coaching help, and equally in all schools? Four models of the eight schools, compared.

Rubin (1981) reports the effect of a coaching programme in eight schools with its standard error.
The models differ in what they say of the schools' true effects:

    complete pooling  one effect mu for all, no scatter between schools (tau = 0)
    half-normal       effects scatter around mu with standard deviation tau ~ HalfNormal(5)
    half-Cauchy       the same with tau ~ HalfCauchy(5)
    no pooling        every school by itself, with an effect from Normal(0, 25)

mu ~ Normal(0, 5) wherever it occurs. All four evidences are known to four decimals, by closed form
or by a one-dimensional integral, so the estimates can be held against them.

Run it with ``python examples/eight_schools.py``; it writes a plot to ``examples/results``.
"""

import sys
import time
from pathlib import Path

import matplotlib as mpl
import pandas as pd
import pymc as pm

import pm_evidence as pe

Y = [28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0]
SIGMA = [15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0]
COORDS = {"school": list("ABCDEFGH")}
SEED = 20260731
RESULTS = Path(__file__).parent / "results"

# Given tau the data are normal, which leaves one integral over tau; without tau it is none.
EXACT = {
    "complete pooling": -30.8442,
    "half-normal": -31.0362,
    "half-Cauchy": -31.3113,
    "no pooling": -34.8670,
}


def complete_pooling():
    """One effect for all schools."""
    with pm.Model(coords=COORDS) as model:
        mu = pm.Normal("mu", 0, 5)
        pm.Normal("y", mu, SIGMA, observed=Y, dims="school")
    return model


def no_pooling():
    """An effect for every school, which tells nothing about the others."""
    with pm.Model(coords=COORDS) as model:
        theta = pm.Normal("theta", 0, 25, dims="school")
        pm.Normal("y", theta, SIGMA, observed=Y, dims="school")
    return model


def half_normal():
    """Partial pooling; a scatter far beyond 5 is ruled out."""
    return _hierarchical(lambda: pm.HalfNormal("tau", 5))


def half_cauchy():
    """Partial pooling; the scatter may be far beyond 5."""
    return _hierarchical(lambda: pm.HalfCauchy("tau", 5))


def _hierarchical(scale):
    with pm.Model(coords=COORDS) as model:
        mu = pm.Normal("mu", 0, 5)
        tau = scale()
        theta = pm.Normal("theta", mu, tau, dims="school")
        pm.Normal("y", theta, SIGMA, observed=Y, dims="school")
    return model


MODELS = {
    "complete pooling": complete_pooling,
    "half-normal": half_normal,
    "half-Cauchy": half_cauchy,
    "no pooling": no_pooling,
}


def sample_all(**kwargs):
    """Return the evidence of every model as a DataTree, and the seconds that each took."""
    trees, seconds = {}, {}
    for i, (name, build) in enumerate(MODELS.items()):
        start = time.perf_counter()
        trees[name] = pe.sample_evidence(build(), random_seed=SEED + i, **kwargs)
        seconds[name] = time.perf_counter() - start
    return trees, seconds


def against_exact(table, seconds):
    """Return estimates beside exact values, in the order of the comparison."""
    checked = pd.DataFrame({"estimate": table["log_evidence"], "mcse": table["mcse"]})
    checked["exact"] = pd.Series(EXACT)
    checked["error"] = checked["estimate"] - checked["exact"]
    # independent normal effects are integrated in closed form: only rounding is left
    is_exact = checked["mcse"] == 0.0
    checked["error/mcse"] = (checked["error"] / checked["mcse"]).mask(is_exact, 0.0)
    checked["seconds"] = pd.Series(seconds)
    return checked


def show(title, table, decimals):
    """Print some columns of a table, each with its own number of decimals."""
    text = table.copy()
    for column, places in decimals.items():
        text[column] = text[column].map(f"{{:.{places}f}}".format)
    print(f"\n{title}\n\n{text[list(decimals)].rename_axis(None).to_string()}")


def plot(table, path):
    """Plot the comparison with the exact values as crosses."""
    collection = pe.plot_compare(
        table,
        backend="matplotlib",
        figure_kwargs={"figsize": (8, 3.6), "figsize_units": "inches"},
        visuals={"point_estimate": {"size": 12}},
    )
    axes = collection.get_viz("plot")
    exact = [EXACT[name] for name in table.index]
    height = range(len(table), 0, -1)
    axes.plot(exact, height, "x", color="C1", markersize=9, label="exact value")
    axes.legend(loc="upper left")
    collection.savefig(path)
    return path


def main(results=RESULTS):
    """Compare the models, print what came out, and plot it."""
    mpl.use("Agg")
    print("Log evidence of four models of the eight schools, some seconds each.")
    trees, seconds = sample_all(progressbar=sys.stdout.isatty())

    table = pe.compare(trees)
    print(f"\nComparison (nats; log_bf against the best model)\n\n{table}")

    columns = {"estimate": 4, "exact": 4, "error": 4, "mcse": 4, "error/mcse": 1, "seconds": 1}
    show(
        "Against the exact values",
        against_exact(table, seconds),
        columns,
    )

    factor = pe.bayes_factor(trees["complete pooling"], trees["half-Cauchy"])
    print(f"\nComplete pooling against half-Cauchy:\n{factor}.")

    results = Path(results)
    results.mkdir(parents=True, exist_ok=True)
    print(f"\nThe plot is in {plot(table, results / 'eight_schools.png')}.")
    return table


if __name__ == "__main__":
    main()
