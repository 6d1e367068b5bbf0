"""Runs with a checkpoint, in this process or in one that is killed or interrupted."""

import json
import signal
import sys
import time
import warnings
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm

import pm_evidence as pe
from pm_evidence.runs import coarse_start
from pm_evidence.samplers import bridging
from pm_evidence.samplers.ais import _ReverseBlock
from pm_evidence.samplers.pilot import Pilot
from pm_evidence.samplers.sampler import ForwardBlock
from pm_evidence.samplers.tempering import TemperedBlock
from pm_evidence.targets.model.identity import identity_of
from tests.targets.model.described import MODELS

# Attributes of a result that say when and for how long it was made.
OF_TIME = {"sampling_time", "tuning_time", "created_at"}


def schools(errors: float = 10.0, first: float = 28.0) -> pm.Model:
    """Effects of eight schools."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 5)
        tau = pm.HalfNormal("tau", errors)
        theta = pm.Normal("theta", mu, tau, shape=4)
        pm.Normal("y", theta, 10.0, observed=np.array([first, 8.0, -3.0, 7.0]))
    return model


CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "routes": (schools, {"target_mcse": 0.012}),
    "smc": (schools, {"draws": 320, "method": pe.SMC(islands=8), "target_mcse": None}),
    "both": (schools, {"draws": 300, "method": "ais", "target_mcse": None}),
    "ladders": (schools, {"draws": 320, "method": "parallel_tempering", "target_mcse": None}),
    "gaussian": (pe.Gaussian, {"draws": 100, "target_mcse": None}),
    "lattice": (lambda: pe.Ising(6), {"draws": 1200, "target_mcse": None}),
}


@contextmanager
def watched(log: Path, seconds: float = 0.0) -> Any:
    """Write down every block, pilot, survey and fit that is computed, and slow each of them down.

    What is written down is real work of the samplers: the wrapped functions are those that evaluate
    densities.
    """

    def watching(name: str, function: Any) -> Any:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            time.sleep(seconds)
            made = function(*args, **kwargs)
            with log.open("a") as file:
                file.write(f"{name}\n")
            return made

        return wrapped

    places = [
        (ForwardBlock, "__call__"),
        (_ReverseBlock, "__call__"),
        (TemperedBlock, "__call__"),
        (bridging._Bridge, "__call__"),
        (Pilot, "_run"),
        (coarse_start, "explore"),
        (bridging, "survey"),
        (bridging, "fit_proposal"),
    ]
    kept = [(owner, name, getattr(owner, name)) for owner, name in places]
    for owner, name, function in kept:
        setattr(owner, name, watching(f"{getattr(owner, '__name__', owner)}.{name}", function))
    try:
        yield
    finally:
        for owner, name, function in kept:
            setattr(owner, name, function)


def run(case: str, checkpoint: Any = None, **options: Any) -> Any:
    """Return the result of a case."""
    make, arguments = CASES[case]
    arguments = {"random_seed": 3, "progressbar": False, **arguments, **options}
    return pe.sample_evidence(make(), checkpoint=checkpoint, **arguments)


def contents(dt: Any) -> dict[str, Any]:
    """Return all that a result holds, but for what depends on the clock."""
    found: dict[str, Any] = {}
    for group in dt.groups:
        dataset = dt[group].to_dataset()
        for name, variable in dataset.variables.items():
            values = variable.values
            found[f"{group}/{name}"] = (values.shape, values.dtype.str, values.tobytes())
        for name, value in dataset.attrs.items():
            if name not in OF_TIME:
                found[f"{group}@{name}"] = str(value)
    return found


def stored(checkpoint: Path) -> list[str]:
    """Return the names of the finished parts, without those that no function computes."""
    names = (path.name for path in checkpoint.glob("0*.zarr.zip"))
    return sorted(name.removesuffix(".zarr.zip") for name in names)


def main(case: str, checkpoint: str, log: str, seconds: float, options: dict[str, Any]) -> None:
    """Print what some models are; run a case, and print the status that it ends with."""
    print(json.dumps({name: identity_of(make()) for name, make in MODELS.items()}))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job would ignore it
    warnings.simplefilter("ignore")
    with watched(Path(log), seconds):
        try:
            dt = run(case, checkpoint, cores=2, **options)
        except KeyboardInterrupt:
            print(json.dumps({"status": "KeyboardInterrupt"}))
            return
    found = pe.log_evidence(dt)
    facts = {each.name: getattr(found, each.name) for each in fields(found)}
    n_islands = int(dt["work"].sizes["forward_block"])
    print(json.dumps({**facts, "n_islands": n_islands}))


if __name__ == "__main__":
    main(*json.loads(sys.argv[1]))
