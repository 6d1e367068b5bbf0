"""Estimates that are kept one by one, and intervals of what follows from them."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import logsumexp

COLUMNS = ("setting", "size", "seed", "log_z", "particles", "seconds")
Batch = Callable[[int], Mapping[str, Any]]  # from a seed to the columns after it
LEVEL, RESAMPLES, SEED = 95.0, 4000, 2016
LEAST = 20  # estimates, from which the bootstrap says how much their variance varies


def kept(file: Path, wanted: Mapping[tuple[str, int], tuple[int, Batch]]) -> pd.DataFrame:
    """Return one row for each estimate, made now where the file does not have it yet.

    Parameters
    ----------
    file : Path
        Table that every batch is appended to when it is finished.
    wanted : mapping
        From setting and size to the number of batches, and what makes one. Batches of all settings
        take turns, so that an interrupted run has about as many of each, and they share what else
        the machine has to do.
    """
    if not file.exists():
        pd.DataFrame(columns=list(COLUMNS)).to_csv(file, index=False)
    found = pd.read_csv(file)
    there = set(zip(found["setting"], found["size"], found["seed"], strict=True))
    for seed in range(1, 1 + max((n for n, _ in wanted.values()), default=0)):
        for (setting, size), (n, make) in wanted.items():
            if seed > n or (setting, size, seed) in there:
                continue
            made = pd.DataFrame({"setting": setting, "size": size, "seed": seed} | make(seed))
            made.to_csv(file, mode="a", header=False, index=False, float_format="%.8g")
            print(f"{setting} {size} {seed}: {made['seconds'].sum():.0f} s", flush=True)
    return pd.read_csv(file)


def summary(found: pd.DataFrame) -> pd.DataFrame:
    """Return log mean of Z, mean and standard deviation of log Z, and costs, by setting."""
    rows = []
    for (setting, size), part in found.groupby(["setting", "size"], sort=False):
        log_z = part["log_z"].to_numpy()
        low, high = np.sqrt(np.percentile(variances(log_z), _edges()))
        rows.append(
            {
                "setting": setting,
                "size": size,
                "estimates": len(log_z),
                "log_mean": logsumexp(log_z) - np.log(len(log_z)),
                "mean": log_z.mean(),
                "sd": log_z.std(ddof=1),
                "sd_low": low,
                "sd_high": high,
                "particles": part["particles"].mean(),
                "seconds": part["seconds"].mean(),
            }
        )
    return pd.DataFrame(rows)


def comparisons(found: pd.DataFrame, pairs: Sequence[tuple[str, str]]) -> pd.DataFrame:
    """Return variance times cost of one setting over that of another, with intervals.

    A ratio below 1 says that the first is better, and is shown if the interval lies below 1. Pairs
    with fewer than 20 estimates are left out.
    """
    rows = []
    for size in found["size"].unique():
        for pair in pairs:
            parts = [found[(found["setting"] == s) & (found["size"] == size)] for s in pair]
            if min(map(len, parts)) < LEAST:
                continue
            first, second = (part["log_z"].to_numpy() for part in parts)
            drawn = variances(first) / variances(second)
            for cost in ("particles", "seconds"):
                factor = parts[0][cost].mean() / parts[1][cost].mean()
                low, high = factor * np.percentile(drawn, _edges())
                verdict = "shown" if high < 1.0 else "refuted" if low > 1.0 else "not decidable"
                ratio = factor * first.var(ddof=1) / second.var(ddof=1)
                rows.append((*pair, size, cost, ratio, low, high, verdict))
    columns = ["better", "worse", "size", "cost", "ratio", "low", "high", "verdict"]
    return pd.DataFrame(rows, columns=columns)


def variances(log_z: np.ndarray) -> np.ndarray:
    """Return the variances of bootstrap samples, which need no normal distribution."""
    # another stream for each set of estimates, so that those of two sets are independent
    rng = np.random.default_rng([SEED, len(log_z), int(abs(log_z.sum()) * 1e6)])
    samples = rng.choice(log_z, (RESAMPLES, len(log_z)))
    # a sample has the variance of the estimates times 1 - 1 / n
    return samples.var(axis=1, ddof=1) * len(log_z) / (len(log_z) - 1)


def _edges() -> tuple[float, float]:
    return 50.0 - LEVEL / 2.0, 50.0 + LEVEL / 2.0
