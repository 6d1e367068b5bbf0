"""Runs with a checkpoint, in this process or in one that interrupts and then kills itself."""

import json
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm

import pm_evidence as pe
from pm_evidence.core.interrupts import Progress
from pm_evidence.runs import importance
from pm_evidence.samplers import bridge as bridging
from pm_evidence.samplers.ais import _ReverseBlock
from pm_evidence.samplers.planning import Pilot
from pm_evidence.samplers.sampler import ForwardBlock
from pm_evidence.samplers.tempering import TemperedBlock
from pm_evidence.targets.model.cache import identity_of
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
    "smc": (schools, {"draws": 320, "method": pe.methods.SMC(islands=8), "target_mcse": None}),
    "both": (schools, {"draws": 300, "method": "ais", "target_mcse": None}),
    "ladders": (schools, {"draws": 320, "method": "parallel_tempering", "target_mcse": None}),
    "gaussian": (pe.mixtures.Gaussian, {"draws": 100, "target_mcse": None}),
    "lattice": (lambda: pe.lattices.Ising(6), {"draws": 1200, "target_mcse": None}),
}


PARTS = (
    (ForwardBlock, "__call__"),
    (_ReverseBlock, "__call__"),
    (TemperedBlock, "__call__"),
    (bridging._Bridge, "__call__"),
    (Pilot, "_run"),
    (importance, "_in_time"),
    (importance, "explore"),
    (bridging, "survey"),
    (bridging, "fit_proposal"),
)


class Moment:
    """Calls a function when something happens for the given time, from 1."""

    def __init__(self, number: int, action: Callable[..., Any]) -> None:
        self.number, self.action, self.count = number, action, 0
        self._lock = threading.Lock()

    def __call__(self, *args: Any) -> None:
        with self._lock:
            self.count += 1
            now = self.count == self.number
        if now:
            self.action(*args)


def is_in(name: str, frame: Any) -> bool:
    """Return whether a function of this name is under way."""
    while frame is not None:
        if frame.f_code.co_name == name:
            return True
        frame = frame.f_back
    return False


def interrupt(*args: Any) -> None:
    """Send SIGINT to the main thread; in a block, wait until that thread has told it to stop."""
    if threading.current_thread() is threading.main_thread():
        signal.raise_signal(signal.SIGINT)
        return
    report, started = args[-1], time.monotonic()
    main = threading.main_thread().ident or 0
    while not is_in("_collect", sys._current_frames()[main]):  # it may still submit blocks
        time.sleep(0.002)
    signal.pthread_kill(main, signal.SIGINT)
    while time.monotonic() - started < 120.0:
        report(Progress(0, 0, 0.5, 0.5, 0.5, 0.0))
        time.sleep(0.002)
    raise AssertionError("the block is not stopped")


def kill(*_: Any) -> None:
    """End this process as nobody can prevent."""
    os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def replaced(owner: Any, name: str, before: Callable[..., Any], after: Callable[..., Any]) -> Any:
    """Let a function be preceded and followed by others, which get its arguments."""
    function = getattr(owner, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        before(*args)
        made = function(*args, **kwargs)
        after(*args)
        return made

    setattr(owner, name, wrapped)
    try:
        yield
    finally:
        setattr(owner, name, function)


@contextmanager
def watched(log: Path, begins: Callable[..., Any] = lambda *_: None) -> Any:
    """Write down every block, pilot, survey and fit that is computed; call a function before it.

    What is written down is real work of the samplers: the wrapped functions are those that evaluate
    densities.
    """
    with ExitStack() as stack:
        for owner, name in PARTS:
            line = f"{getattr(owner, '__name__', owner)}.{name}\n"

            def note(*_: Any, line: str = line) -> None:
                with log.open("a") as file:
                    file.write(line)

            stack.enter_context(replaced(owner, name, begins, note))
        yield


@contextmanager
def killed_at(moment: Moment, log: Path) -> Any:
    """Meet a moment before each part, and before and after a file gets its name."""
    with watched(log, moment), replaced(os, "replace", moment, moment):
        yield


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


def main(case: str, folder: str, interrupted_at: int, dies_at: int) -> None:
    """Print what some models are; run a case that is interrupted, and one that ends the process."""
    print(json.dumps({name: identity_of(make()) for name, make in MODELS.items()}))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job would ignore it
    warnings.simplefilter("ignore")
    place = Path(folder)
    if interrupted_at:
        with watched(place / "log of interrupted", Moment(interrupted_at, interrupt)):
            dt = run(case, place / "interrupted", cores=1)
        found = pe.log_evidence(dt)
        facts = {each.name: getattr(found, each.name) for each in fields(found)}
        n_islands = int(dt["work"].sizes["forward_block"])
        print(json.dumps({**facts, "n_islands": n_islands}), flush=True)
    with killed_at(Moment(dies_at, kill), place / "log of killed"):
        run(case, place / "killed", cores=2)


if __name__ == "__main__":
    main(*json.loads(sys.argv[1]))
