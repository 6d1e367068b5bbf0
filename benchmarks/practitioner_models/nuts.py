"""Gradients of one run of NUTS, counted once and stored.

A whole run has four chains of 1,000 tuning and 2,000 kept draws. A gradient is a step of the
leapfrog rule, tuning included; the one at the start of each trajectory is not counted. Where a
gradient is expensive the run is shorter. The mean number of steps of its kept draws then stands for
those of the draws that it lacks, tuning included: tuning takes most of its steps at its beginning.
"""

import csv
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
import pymc as pm
import pytensor

from .case import Case, Nuts

__all__ = ["STORED", "NutsCount", "count", "stored_counts"]

STORED = Path(__file__).parents[1] / "practitioners_nuts.csv"
WHOLE = Nuts()
# Nats by which a log evidence differs that belongs to another model.
_SAME = 0.1


@dataclass(frozen=True)
class NutsCount:
    """A row of the table: what was run, and the gradients of a whole run."""

    name: str
    log_evidence: float
    gradients: int
    scaled: bool
    chains: int
    tune: int
    draws: int
    steps_tuning: float
    steps_kept: float
    divergent: int
    cpu_seconds: float
    pymc: str = pm.__version__
    pytensor: str = pytensor.__version__
    numpy: str = np.__version__


def stored_counts(path: Path = STORED) -> dict[str, NutsCount]:
    """Return the counts that have been stored, by model."""
    if not path.is_file():
        return {}
    casts = {field.name: field.type for field in fields(NutsCount)}

    def parsed(row: dict[str, str]) -> NutsCount:
        values = {
            key: text == "True" if casts[key] is bool else casts[key](text)
            for key, text in row.items()
        }
        return NutsCount(**values)

    with path.open(newline="", encoding="utf-8") as file:
        return {row["name"]: parsed(row) for row in csv.DictReader(file)}


def count(case: Case, log_evidence: float, path: Path = STORED) -> NutsCount | None:
    """Return the count of a case, from the store if it is there; None without a gradient.

    A count is that of the same model if its log evidence is.
    """
    if case.nuts is None:
        return None
    known = stored_counts(path)
    found = known.get(case.name)
    if found is not None and abs(found.log_evidence - log_evidence) < _SAME:
        return found
    known[case.name] = _run(case, case.nuts, log_evidence)
    _write(known, path)
    return known[case.name]


def _write(counts: dict[str, NutsCount], path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        names = [field.name for field in fields(NutsCount)]
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(counts[name]) for name in sorted(counts))


def _run(case: Case, nuts: Nuts, log_evidence: float) -> NutsCount:
    started = time.process_time()
    idata = pm.sample(
        model=case.build(),
        chains=nuts.chains,
        tune=nuts.tune,
        draws=nuts.draws,
        cores=1,
        nuts_sampler="pymc",
        random_seed=1,
        discard_tuned_samples=False,
        compute_convergence_checks=False,
        quiet=True,
        progressbar=False,
    )
    seconds = time.process_time() - started
    tuning = float(idata["warmup_sample_stats"]["n_steps"].mean())
    kept = float(idata["sample_stats"]["n_steps"].mean())
    return NutsCount(
        name=case.name,
        log_evidence=round(log_evidence, 3),
        gradients=_of_whole_run(nuts.tune, tuning, kept),
        scaled=nuts != WHOLE,
        chains=nuts.chains,
        tune=nuts.tune,
        draws=nuts.draws,
        steps_tuning=round(tuning, 2),
        steps_kept=round(kept, 2),
        divergent=int(idata["sample_stats"]["diverging"].sum()),
        cpu_seconds=round(seconds, 1),
    )


def _of_whole_run(tune: int, tuning: float, kept: float) -> int:
    """Return the gradients of a whole run from mean steps of tuning and of kept draws."""
    missing = WHOLE.tune - tune
    return round(WHOLE.chains * (tune * tuning + (missing + WHOLE.draws) * kept))
