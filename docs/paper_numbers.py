"""Compare the numbers of paper.md and announcement.md with the stored runs in figures/.

    python docs/paper_numbers.py [--write]

Each number of the two texts stands in one of the phrases below, and is computed from the runs;
``--write`` writes it anew. Digits in code, citations and names of files are none of these.
"""

import argparse
import re
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd

HERE = Path(__file__).parent
PAGES = (HERE / "paper.md", HERE / "announcement.md")
ROW = "| {NAME_models} | {NAME_rms} | {NAME_own} | {NAME_within} % | {NAME_seconds} |"
PHRASES = (
    # pyproject.toml
    "pm_evidence {version}: Bayesian",
    "Python {python} and PyMC {pymc}, or later",
    "Apache {licence}",
    # benchmarks/beside_smc.py
    "shows {models} models of practitioners",
    "On {models} models with known log evidence, all {runs} runs were within two standard errors",
    "All {runs} runs of `pm_evidence` are within two",
    "at most {largest} nats away",
    "the largest error is {largest} nats",
    "first run took {least} to {most} processor seconds",
    "between {least} and {most} processor seconds",
    "`pm.sample_smc` took {smc_least} to {smc_most} seconds",
    "between {smc_least} and {smc_most} seconds",
    "Of its {runs} runs, {smc_within} are within two of their standard errors",
    "above one nat on {smc_off} of the models",
    "more than one nat off on {smc_off} of the models",
    "the largest is {smc_largest} nats",
    # benchmarks/practitioners.py
    "a larger set of {all_models} models",
    "up to {dims} parameters",
    "we made {all_runs} runs to a standard error of at most {target} nats",
    "{all_within} % of the runs are within two",
    "The root mean square error is {rms} nats",
    "half of the models take at most {median_cost} times as many",
    "the most expensive one {largest_cost} times",
    "Single runs take up to {largest_run} times",
    "| `pm.sample_smc` " + ROW.replace("NAME", "sample_smc"),
    "| dynesty " + ROW.replace("NAME", "dynesty"),
    "| nautilus " + ROW.replace("NAME", "nautilus"),
    "| `pm_evidence` " + ROW.replace("NAME", "same"),
    "a first call takes {first_call} seconds",
)
UNCOUNTED = re.compile(
    r"^---\n.*?^---$|^```.*?^```$|`[^`]*`|\[@[^\]]*\]|\]\([^)]*\)", re.MULTILINE | re.DOTALL
)


def rms(errors):
    """Return the root mean square."""
    return float(np.sqrt(np.mean(np.square(errors))))


def row(name, runs, models):
    """Return the numbers of a row of the table, of runs with columns error, mcse, cpu_seconds."""
    return {
        f"{name}_models": f"{models}",
        f"{name}_rms": f"{rms(runs['error']):.3f}",
        f"{name}_own": f"{runs['mcse'].median():.3f}",
        f"{name}_within": f"{100 * within_two(runs).mean():.0f}",
        f"{name}_seconds": f"{runs['cpu_seconds'].median():.1f}",
    }


def within_two(runs):
    """Return which runs are within two of their standard errors, and of rounding."""
    return runs["error"].abs() <= 2 * runs["mcse"] + 1e-9


def of_project():
    """Return the versions that pyproject.toml states."""
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (pymc,) = (each for each in project["dependencies"] if each.startswith("pymc>"))
    return {
        "version": project["version"],
        "python": project["requires-python"].removeprefix(">="),
        "pymc": pymc.removeprefix("pymc>=").split(",")[0],
        "licence": project["license"].removeprefix("Apache-"),
    }


def numbers():
    """Return all numbers, as they are written."""
    figures = HERE / "figures"
    ours = pd.read_csv(figures / "practitioners.csv")
    known = ours.groupby("model")["reference"].first()
    beside = pd.read_csv(figures / "beside_smc.csv")
    beside["error"] = beside["value"] - beside["model"].map(known)
    package, smc = (beside[beside["side"] == side] for side in ("pm_evidence", "pm.sample_smc"))
    first, smc_first = (runs.loc[runs["seed"] == 1, "seconds"] for runs in (package, smc))
    smc_rms = smc.groupby("model")["error"].agg(rms)
    peers = pd.read_csv(figures / "practitioners_peers.csv").rename(columns={"error": "mcse"})
    peers["error"] = peers["value"] - peers["model"].map(known)
    cost = ours.groupby("model")["ratio"].median()
    same = ours[ours["model"].isin(peers.loc[peers["name"] == "sample_smc", "model"])]
    if not (within_two(package).all() and (ours["status"] == "ok").all()):
        raise ValueError("a run is not ok, or not within two errors: write the texts anew.")
    found = of_project() | {
        "models": f"{package['model'].nunique()}",
        "runs": f"{len(package)}",
        "largest": f"{package['error'].abs().max():.3f}",
        "least": f"{first.min():.1f}",
        "most": f"{first.max():.1f}",
        "smc_least": f"{smc_first.min():.1f}",
        "smc_most": f"{smc_first.max():.1f}",
        "smc_within": f"{within_two(smc).sum()}",
        "smc_off": f"{(smc_rms > 1).sum()}",
        "smc_largest": f"{smc_rms.max():.1f}",
        "all_models": f"{ours['model'].nunique()}",
        "all_runs": f"{len(ours)}",
        "dims": f"{ours['dims'].max():,}",
        "target": f"{ours['target'].max():g}",
        "all_within": f"{100 * within_two(ours).mean():.0f}",
        "rms": f"{rms(ours['error']):.3f}",
        "median_cost": f"{cost.median():.3f}",
        "largest_cost": f"{cost.max():.2f}",
        "largest_run": f"{ours['ratio'].max():.1f}",
        "first_call": f"{same.groupby('model')['first_seconds'].first().median():.1f}",
    }
    for name, runs in peers.groupby("name"):
        found |= row(name, runs, len(runs))
    return found | row("same", same, same["model"].nunique())


def pattern(phrase):
    """Return a pattern of a phrase, in which each number is a group, and a space a line break."""
    parts = [re.escape(part).replace(r"\ ", r"\s+") for part in re.split(r"\{\w+\}", phrase)]
    return re.compile(r"(\d[\d.,]*\d|\d)".join(parts))


def updated(text, values):
    """Return a text with the numbers that are computed, and the phrases that it has."""
    seen = []
    for phrase in PHRASES:
        names = re.findall(r"\{(\w+)\}", phrase)

        def anew(match, names=names):
            at, parts = match.start(), []
            for i, name in enumerate(names, 1):
                parts += [match.string[at : match.start(i)], values[name]]
                at = match.end(i)
            return "".join(parts) + match.string[at : match.end()]

        text, n = pattern(phrase).subn(anew, text)
        seen += [phrase] * (n > 0)
    return text, seen


def unchecked(text):
    """Return the digits of a text that stand in no phrase."""
    for phrase in PHRASES:
        text = pattern(phrase).sub("", text)
    return re.findall(r"\S*\d\S*", UNCOUNTED.sub("", text))


def main():
    """Say which pages differ from the runs, or write them anew."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true")
    write, values = parser.parse_args().write, numbers()
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        new, _ = updated(text, values)
        if write:
            page.write_text(new, encoding="utf-8")
        print(f"{page.name}: {'as the runs are' if new == text else 'differs from the runs'}")
        for digits in unchecked(new):
            print(f"{page.name}: {digits} stands in no phrase")


if __name__ == "__main__":
    main()
