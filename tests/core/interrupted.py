"""A process that is interrupted at given moments, and then runs to the end."""

import hashlib
import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numba  # noqa: F401  (its compiler is patched before anything is compiled)
from numba.core.codegen import JITCodeLibrary
from numba.core.event import Listener, register

MODULE = "pytensor.link.numba.dispatch.scan"  # one of the last to fill the table


class Moment:
    """Sends SIGINT to this process when something has happened a number of times."""

    def __init__(self) -> None:
        self.count = 0

    def set(self, count: int) -> None:
        self.count = count

    def happens(self) -> None:
        self.count -= 1
        if self.count == 0:
            PASSES.clear()
            signal.raise_signal(signal.SIGINT)


PASSES: list[str] = []  # of numba, since the last signal


IMPORT, REWRITE, PASS, LLVM = (Moment() for _ in range(4))


class _Finder:
    """Tells when the table of implementations is about to be filled up."""

    def find_spec(self, name: str, *_: Any) -> None:
        if name == MODULE:
            IMPORT.happens()


class _Passes(Listener):
    def on_start(self, event: Any) -> None:
        PASSES.append(event.kind)
        PASS.happens()

    def on_end(self, event: Any) -> None:
        pass


def _before(function: Callable[..., Any], moment: Moment) -> Callable[..., Any]:
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        moment.happens()
        return function(*args, **kwargs)

    return wrapped


def _patch() -> None:
    sys.meta_path.insert(0, _Finder())
    register("numba:run_pass", _Passes())
    # LLVM calls this one back, and ctypes prints and forgets what it raises
    compiled = JITCodeLibrary._object_compiled_hook.__func__
    JITCodeLibrary._object_compiled_hook = classmethod(_before(compiled, LLVM))


_patch()

import pymc as pm  # noqa: E402
from pytensor.graph.fg import FunctionGraph  # noqa: E402

import pm_evidence as pe  # noqa: E402
from pm_evidence.targets.model.cache import target_of  # noqa: E402

FunctionGraph.change_node_input = _before(FunctionGraph.change_node_input, REWRITE)


def build() -> pm.Model:
    """Return a small model, whose terms are still several operations."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 5)
        pm.Normal("y", mu, [1.0, 2.0, 1.5, 1.0], observed=[2.0, 8.0, -3.0, 7.0])
    return model


@contextmanager
def counted(found: list[int], moment: Moment) -> Iterator[None]:
    """Add the number of passes from the signal to the interrupt, or -1 where nothing stopped."""
    try:
        yield
        found.append(-1)
    except KeyboardInterrupt:
        found.append(len(PASSES))
    moment.set(0)


def main(moments: list[tuple[str, int]]) -> None:
    """Run into every moment, then to the end, and print what came out."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job would ignore it
    model = build()
    arguments: dict[str, Any] = {"draws": 100, "random_seed": 3, "progressbar": False, "cores": 1}
    passes: list[int] = []
    for name, count in moments:
        moment = globals()[name]
        moment.set(count)
        with counted(passes, moment):
            pe.sample_evidence(model, **arguments)
    again = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    dt = pe.sample_evidence(model, **arguments)
    draws = dt["posterior"]["mu"].values
    target = target_of(model)
    print(
        json.dumps(
            {
                "passes": passes,
                "handler": again,
                "digest": hashlib.sha256(draws.tobytes()).hexdigest(),
                "value": pe.log_evidence(dt).value,
                "slow_ops": target.differentiable.slow_ops,
            }
        )
    )


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
