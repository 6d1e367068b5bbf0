"""Log evidences beside exact values and ``pm.sample_smc``: the picture of the front page.

Each row is a process of its own with one core and with empty folders for machine code. Its first
run is timed (processor seconds, with the import of pm_evidence and without that of PyMC), and two
more seeds follow in the same process. ``pm.sample_smc`` makes four chains of 1,000 draws, as in
``first_answer.py``, and its error is their standard error. Models and references are those of
``practitioners.py``.
``python benchmarks/beside_smc.py [model ...]`` measures; ``--draw`` draws what is stored.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pymc as pm

FIGURES = Path(__file__).parents[1] / "docs" / "figures"
RUNS, PICTURE = FIGURES / "beside_smc.csv", FIGURES / "beside_smc.png"
MODELS = {
    "eight_schools_half_normal_centred": "eight schools",
    "logistic_3": "logistic, 50 x 3",
    "german_credit": "logistic, 1,000 x 25",
    "radon_noncentred": "85 varying intercepts",
    "one_way_noncentred": "one-way layout",
    "poisson_glmm": "Poisson counts, effects",
    "galaxies": "mixture of three",
    "ordinal": "ordinal regression",
    "zero_inflated": "zero-inflated counts",
}
SIDES = {"pm_evidence": "tab:blue", "pm.sample_smc": "tab:orange"}


def evidence(what: str, model: pm.Model, seed: int) -> tuple[float, float, str]:
    """Return log evidence, its standard error, and a status."""
    if what == "pm_evidence":
        import pm_evidence as pe

        found = pe.log_evidence(
            pe.sample_evidence(model, cores=1, random_seed=seed, progressbar=False)
        )
        return found.value, found.mcse, str(found.status)
    idata = pm.sample_smc(1000, chains=4, model=model, cores=1, random_seed=seed, progressbar=False)
    chains = np.asarray(idata["sample_stats"]["log_marginal_likelihood"].values, dtype=object)
    last = np.array([np.ravel(np.asarray(chain[-1], dtype=float))[-1] for chain in chains])
    value = float(np.logaddexp.reduce(last) - np.log(last.size))
    return value, float(np.exp(last - value).std(ddof=1) / last.size**0.5), ""


def measure(what: str, name: str) -> None:
    """Print a row for each of three seeds."""
    from practitioner_models import CASES

    warnings.simplefilter("ignore")
    model = CASES[name].build()
    for seed in (1, 2, 3):
        started = time.process_time()
        value, mcse, status = evidence(what, model, seed)
        seconds = time.process_time() - started
        print(f"row,{name},{what},{seed},{value:.5f},{mcse:.5f},{status},{seconds:.2f}", flush=True)


def in_process(what: str, name: str) -> list[list[str]]:
    """Return the rows that a process of its own prints."""
    with tempfile.TemporaryDirectory() as folder:
        new = {
            "NUMBA_CACHE_DIR": f"{folder}/numba",
            "PYTENSOR_FLAGS": f"base_compiledir={folder}/pytensor",
            "OMP_NUM_THREADS": "1",
        }
        done = subprocess.run(
            [sys.executable, __file__, name, "--measure", what],
            env=os.environ | new, capture_output=True, text=True, check=True,
        )  # fmt: skip
    return [line.split(",")[1:] for line in done.stdout.splitlines() if line.startswith("row,")]


def draw() -> None:
    """Draw errors with intervals of two standard errors, and the seconds of a first run."""
    from matplotlib import pyplot as plt

    runs = pd.read_csv(RUNS)
    known = pd.read_csv(FIGURES / "practitioners.csv").groupby("model")["reference"].first()
    runs["error"] = runs["value"] - runs["model"].map(known)
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(7.2, 5.4), sharey=True, layout="constrained", width_ratios=[2.4, 1]
    )
    for side, colour in SIDES.items():
        rows = runs[runs["side"] == side]
        above = -0.2 if side == "pm_evidence" else 0.2
        place = rows["model"].map(list(MODELS).index) + above + 0.11 * (rows["seed"] - 2)
        left.errorbar(
            rows["error"], place, xerr=2 * rows["mcse"],
            fmt="o", ms=3, lw=1.2, capsize=2, color=colour, label=side,
        )  # fmt: skip
        first = rows[rows["seed"] == 1]
        right.barh(
            first["model"].map(list(MODELS).index) + above, first["seconds"],
            height=0.34, color=colour, label=side,
        )  # fmt: skip
    left.axvline(0.0, color="0.3", lw=0.8, zorder=0)
    left.set_xscale("symlog", linthresh=0.1, linscale=1.5)
    ticks = (-10, -1, -0.1, -0.05, 0, 0.05, 0.1, 1)
    left.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    left.set_xlim(-60, 2)
    left.set_yticks(range(len(MODELS)), MODELS.values())
    left.invert_yaxis()
    left.set_xlabel("error of the log evidence, nats (logs beyond ± 0.1)")
    left.set_title("Accuracy: three runs of each, ± 2 standard errors", fontsize=10)
    right.set_xlabel("processor seconds")
    right.set_title("Cost of a first run", fontsize=10)
    left.legend(loc="upper left", fontsize=8)
    for panel in (left, right):
        panel.grid(axis="x", lw=0.3)
        panel.set_axisbelow(True)
        panel.spines[["top", "right"]].set_visible(False)
    figure.savefig(PICTURE, dpi=120, metadata={"Software": None})
    plt.close(figure)


def main(options: argparse.Namespace) -> None:
    """Measure the models that are named, and draw all that is stored."""
    columns = ["model", "side", "seed", "value", "mcse", "status", "seconds"]
    for name in [] if options.draw else options.names or MODELS:
        new = [row for what in SIDES for row in in_process(what, name)]
        table = pd.DataFrame(new, columns=columns)
        if RUNS.is_file():
            old = pd.read_csv(RUNS, keep_default_na=False)
            table = pd.concat([old[old["model"] != name], table], ignore_index=True)
        table.to_csv(RUNS, index=False, lineterminator="\n")
        print(table[table["model"] == name].to_string(index=False, header=False), flush=True)
    draw()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="model")
    parser.add_argument("--draw", action="store_true")
    parser.add_argument("--measure", choices=SIDES, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.measure:
        measure(chosen.measure, chosen.names[0])
    else:
        main(chosen)
