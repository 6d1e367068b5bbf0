"""What the benchmark measures: a row for each run, a table, and a picture."""

from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
import pandas as pd

from .case import Case
from .nuts import NutsCount
from .peers import Peer

__all__ = ["OursRun", "markdown", "markdown_of_peers", "picture", "replace_rows", "summary"]

_FIVE, _TENTH = 5.0, 0.1
_MEDIANS = [
    "dims",
    "near_gaussian",
    "mcse",
    "n_evaluations",
    "nuts_gradients",
    "ratio",
    "cpu_seconds",
    "first_seconds",
    "reference",
    "reference_error",
]


@dataclass(frozen=True)
class OursRun:
    """One run of ours, warm, beside the reference and one run of NUTS."""

    model: str
    dims: int
    near_gaussian: bool
    seed: int
    target: float
    reference: float
    reference_error: float
    error: float
    mcse: float
    status: str
    estimator: str
    n_evaluations: int
    nuts_gradients: float
    ratio: float
    cpu_seconds: float
    first_seconds: float

    @classmethod
    def columns(cls) -> list[str]:
        """Return the names of the columns."""
        return [field.name for field in fields(cls)]


def replace_rows(path: Path, rows: list[OursRun] | list[Peer], case: Case) -> pd.DataFrame:
    """Put the rows of a model into a stored table, in the place of older ones; return the table."""
    new = pd.DataFrame([{"model": case.name} | asdict(row) for row in rows])
    if path.is_file():
        old = pd.read_csv(path)
        new = pd.concat([old[old["model"] != case.name], new], ignore_index=True)
    new.to_csv(path, index=False, float_format="%.9g", lineterminator="\n")
    return new


def summary(runs: pd.DataFrame, order: list[str]) -> pd.DataFrame:
    """Return a row for each model: medians over seeds, and the root mean square error."""
    groups = runs.groupby("model")
    table = groups[_MEDIANS].median()
    table["rmse"] = groups["error"].apply(lambda error: float(np.sqrt(np.mean(error**2))))
    table["ok"] = groups["status"].apply(lambda status: float((status == "ok").mean()))
    for name in ("estimator", "status"):
        table[name] = groups[name].agg(lambda found: found.mode()[0])
    table["runs"] = groups.size()
    return table.loc[[name for name in order if name in table.index]]


def markdown(table: pd.DataFrame, counts: dict[str, NutsCount]) -> str:
    """Return a table in Markdown, and what it comes to."""
    lines = [
        "| model | d | log Z | error | mcse | status | estimator | evaluations | one NUTS run "
        "| ratio | s, warm | s, first call |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, row in table.iterrows():
        scaled = "about " if name in counts and counts[name].scaled else ""
        nuts = f"{scaled}{_thousands(row['nuts_gradients'])}" if row["nuts_gradients"] > 0 else "-"
        ratio = f"{row['ratio']:.2g}" if row["ratio"] > 0 else "-"
        lines.append(
            f"| {name} | {row['dims']:.0f} | {row['reference']:.2f} | {row['rmse']:.3f} "
            f"| {row['mcse']:.3f} | {row['status']} | {row['estimator']} "
            f"| {_thousands(row['n_evaluations'])} | {nuts} | {ratio} "
            f"| {row['cpu_seconds']:.1f} | {row['first_seconds']:.1f} |"
        )
    ratio = table["ratio"].dropna()
    near = ratio[table["near_gaussian"].astype(bool)]
    lines.append(
        f"\nMedian ratio {ratio.median():.2g}; {(ratio > _FIVE).sum()} of {ratio.size} above "
        f"{_FIVE:g}; near a normal density {(near <= _TENTH).sum()} of {near.size} at most "
        f"{_TENTH:g}."
    )
    return "\n".join(lines)


def markdown_of_peers(peers: pd.DataFrame, references: dict[str, float]) -> str:
    """Return a table of other packages in Markdown."""
    lines = [
        "| model | package | error | its own error | likelihoods | s |",
        "|---|---|---|---|---|---|",
    ]
    for row in peers.itertuples():
        calls = _thousands(row.evaluations) if row.evaluations > 0 else "-"
        lines.append(
            f"| {row.model} | {row.name} | {row.value - references[row.model]:+.3f} "
            f"| {row.error:.3f} | {calls} | {row.cpu_seconds:.1f} |"
        )
    return "\n".join(lines)


def _thousands(n: float) -> str:
    return f"{n / 1000:,.0f}k" if n >= 10_000 else f"{n / 1000:.1f}k"


def picture(table: pd.DataFrame, path: Path) -> None:
    """Draw cost against one run of NUTS, and the error of log Z, of each model."""
    from matplotlib import pyplot as plt
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    table = table[::-1]
    place = np.arange(len(table))
    colour = np.where(table["near_gaussian"].astype(bool), "tab:blue", "tab:orange")
    height = 0.8 + 0.22 * len(table)
    figure, (cost, error) = plt.subplots(
        1, 2, figsize=(9, height), sharey=True, layout="constrained"
    )
    cost.scatter(table["ratio"], place, c=colour, s=22)
    cost.set_xscale("log")
    for at, style in ((_TENTH, ":"), (1.0, "-"), (_FIVE, ":")):
        cost.axvline(at, color="0.6", lw=0.8, ls=style, zorder=0)
    cost.set_yticks(place, table.index, fontsize=8)
    cost.set_xlabel("evaluations / gradients of one NUTS run")
    cost.set_title("cost (blue: near a normal density)", fontsize=9)
    error.scatter(table["rmse"].clip(lower=1e-4), place, c=colour, s=22, label="error")
    error.scatter(table["mcse"], place, marker="|", c="0.3", s=60, label="mcse")
    error.set_xscale("log")
    error.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
    error.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    error.xaxis.set_minor_formatter(NullFormatter())
    error.set_xlabel("nats")
    error.set_title("root mean square error, and mcse (bars)", fontsize=9)
    for panel in (cost, error):
        panel.grid(axis="y", lw=0.3)
    figure.savefig(path, dpi=120)
    plt.close(figure)
