"""What several benchmarks share: a model, and a quiet start that no other timing disturbs."""

import argparse
import fcntl
import logging
import pathlib
import tempfile
import warnings
from collections.abc import Callable

import numpy as np
import pymc as pm


def logistic_regression() -> pm.Model:
    """500 observations, 10 covariates and an intercept."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(500, 10))
    y = rng.random(500) < 1 / (1 + np.exp(-x @ rng.normal(0, 0.7, size=10)))
    with pm.Model() as model:
        intercept = pm.Normal("intercept", 0, 2)
        slope = pm.Normal("slope", 0, 1, shape=10)
        pm.Bernoulli("y", logit_p=intercept + x @ slope, observed=y.astype(int))
    return model


def start(
    description: str | None,
    repeats: int = 10,
    add: Callable[[argparse.ArgumentParser], None] | None = None,
) -> argparse.Namespace:
    """Read the command line, silence the libraries, and wait until no other benchmark runs.

    ``add`` adds arguments of a benchmark's own, in the place of ``--repeats``.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("names", nargs="*", help="parts of names; all by default")
    if add is not None:
        add(parser)
    else:
        parser.add_argument("--repeats", type=int, default=repeats)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("pymc").setLevel(logging.ERROR)
    options.lock = (pathlib.Path(tempfile.gettempdir()) / "pm_evidence_benchmark.lock").open("w")
    fcntl.flock(options.lock, fcntl.LOCK_EX)
    return options
