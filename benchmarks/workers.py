"""How long a run would take with many workers, from the measured durations of its parts.

A default run on one core records its parts in order, with their processor time: work that only the
calling process does, work on rows, and blocks. The same parts are then placed on workers as
``execution.blocks`` and ``execution.rows`` place them. What is added are the costs of a cluster,
which are constants below: sending a task, the network, the data of the model, and stragglers. A run
of which each evaluation takes longer has the same parts, and rows and blocks that take longer.
``python benchmarks/workers.py [model ...]``
"""

import heapq
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import cloudpickle
import numpy as np
from common import start
from practitioner_models import CASES

import pm_evidence as pe
from pm_evidence.api import sample as entry
from pm_evidence.core.interrupts import silent
from pm_evidence.core.rows import divided_by
from pm_evidence.execution import blocks as divided
from pm_evidence.runs import rounds

MODELS = ("german_credit", "item_response", "logistic_50000_x_20")
WORKERS = (1, 2, 16, 64, 1024)
SLOWER = (1, 100, 10_000)
# Threads of the calling process; seconds that it spends on each task that it sends, and until a
# worker has it; bytes per second.
CORES, DISPATCH, LATENCY, BANDWIDTH = 2, 1e-3, 0.01, 1e8
# One task in a hundred takes three times as long; all others vary by 10 %.
STRAGGLERS, DELAY, SPREAD = 0.01, 3.0, 0.1


@dataclass(frozen=True)
class Part:
    """A part of a run: its tasks in seconds, their bytes, and, of blocks, the rows of each step."""

    seconds: np.ndarray
    n_bytes: float = 0.0
    kind: str = "serial"
    steps: tuple[tuple[np.ndarray, ...], ...] = ()


@dataclass
class Record:
    """The parts of a run, in order."""

    parts: list[Part] = field(default_factory=list)
    model_bytes: float = 0.0
    _since: float = field(default_factory=time.process_time)

    def begin(self) -> float:
        """End a serial part."""
        now = time.process_time()
        self.parts.append(Part(np.array([now - self._since])))
        return now

    def end(self, part: Part) -> None:
        """Add a part that has just ended."""
        self.parts.append(part)
        self._since = time.process_time()

    def divide(self, work: Any, read: Sequence[Any], written: Sequence[Any]) -> None:
        """Do work on rows, and note how long it takes."""
        started, n = self.begin(), len(written[0])
        work(*read, *written)
        seconds = time.process_time() - started
        n_bytes = sum(array.nbytes for array in read) + 2 * sum(a.nbytes for a in written)
        self.end(Part(np.full(n, seconds / max(n, 1)), n_bytes, "rows"))

    def run_blocks(self, tasks: Sequence[Any], **options: Any) -> list[Any]:
        """Run blocks one after the other, and note how long each takes."""
        self.begin()
        results, seconds, steps, n_bytes = [], [], [], 0.0
        for position, task in enumerate(tasks):
            inside = Record()
            started = time.process_time()
            with divided_by(inside.divide):
                results.append(task(silent))
            seconds.append(time.process_time() - started)
            steps.append(tuple(part.seconds for part in inside.parts if part.kind == "rows"))
            options.get("done", lambda *_: None)(position, results[-1])
        for task, result in zip(tasks, results, strict=True):
            n_bytes += len(cloudpickle.dumps(task)) + len(cloudpickle.dumps(result))
        self.end(Part(np.array(seconds), n_bytes, "blocks", tuple(steps)))
        return results


def recorded(name: str) -> Record:
    """Return the parts of a default run, the second in its process, so that nothing compiles."""
    model = CASES[name].build()
    options = {"random_seed": 1, "progressbar": False, "cores": 1}
    pe.sample_evidence(model, target_mcse=0.5, **options)
    kept = rounds.run_divided, entry.dividing_rows
    record = Record()
    rounds.run_divided = record.run_blocks
    entry.dividing_rows = lambda cores, executor: divided_by(record.divide)
    try:
        pe.sample_evidence(model, **options)
    finally:
        rounds.run_divided, entry.dividing_rows = kept
    record.begin()
    record.model_bytes = len(cloudpickle.dumps(model))
    return record


def delayed(seconds: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return how long tasks take on workers that are not equally fast."""
    seconds = seconds * np.exp(SPREAD * rng.standard_normal(seconds.size))
    return np.where(rng.random(seconds.size) < STRAGGLERS, DELAY, 1.0) * seconds


def stepwise(part: Part, slower: float, n_workers: int, rng: np.random.Generator) -> float:
    """Return when the last block ends if the rows of each step of each block are sent."""
    free, sent_until, last = [0.0] * n_workers, 0.0, 0.0
    waiting = [(0.0, block, 0) for block in range(len(part.steps))]
    while waiting:
        now, block, step = heapq.heappop(waiting)
        last = max(last, now)
        if step == len(part.steps[block]):
            continue
        end = now
        for seconds in delayed(slower * part.steps[block][step], rng):
            sent_until = max(sent_until, now) + DISPATCH
            done = max(sent_until + LATENCY, heapq.heappop(free)) + seconds
            heapq.heappush(free, done)
            end = max(end, done + LATENCY)
        heapq.heappush(waiting, (end, block, step + 1))
    return last


def makespan(
    seconds: np.ndarray, n_workers: int, n_bytes: float, rng: np.random.Generator
) -> float:
    """Return when the last task ends: each goes to the worker that is free first."""
    if not seconds.size:
        return 0.0
    seconds = delayed(seconds, rng)
    each = DISPATCH + n_bytes / seconds.size / BANDWIDTH
    free, last = [0.0] * n_workers, 0.0
    for position, duration in enumerate(seconds):
        sent = (position + 1) * each + LATENCY
        end = max(sent, heapq.heappop(free)) + duration
        heapq.heappush(free, end)
        last = max(last, end)
    return last + LATENCY


def duration(record: Record, n_workers: int, slower: float, seed: int = 0) -> float:
    """Return the duration of a run on workers.

    Parameters
    ----------
    record : Record
        Its parts.
    n_workers : int
        Number of workers; 1 for no executor, on one core.
    slower : float
        How much longer each evaluation takes than in the recorded run.
    seed : int
        Seed of the stragglers.
    """
    rng, total, sent_model = np.random.default_rng(seed), 0.0, 0
    rows = [part.seconds.mean() for part in record.parts if part.kind == "rows"]
    divides_blocks = slower * max(rows) > divided._WORTH_DIVIDING_BLOCKS
    for part in record.parts:
        if part.kind == "serial":
            total += part.seconds.sum()
            continue
        seconds = slower * part.seconds
        work = float(seconds.sum())
        if n_workers == 1:
            total += work
        elif part.kind == "blocks" and divides_blocks:
            total += stepwise(part, slower, n_workers, rng)
        elif part.kind == "blocks":
            total += makespan(seconds, n_workers, part.n_bytes, rng)
        elif work <= CORES * divided._WORTH_SENDING:
            total += work / CORES if work > divided._WORTH_A_THREAD else work
        else:
            size = max(int(divided._PART_SENT / seconds.mean()), 1)
            parts = np.add.reduceat(seconds, np.arange(0, seconds.size, size))
            new = max(min(parts.size, n_workers) - sent_model, 0)
            sent_model += new
            n_bytes = part.n_bytes + new * record.model_bytes
            # where threads of the calling process are faster, they do the work
            total += min(makespan(parts, n_workers, n_bytes, rng), work / CORES)
    return total


def main() -> None:
    options = start(__doc__, repeats=20)
    names = [name for name in CASES if name in (options.names or MODELS)]
    print("| model | evaluations take | one core | " + " | ".join(map(str, WORKERS[1:])) + " |")
    print("|---|---|---|" + "---|" * (len(WORKERS) - 1))
    for name in names:
        record = recorded(name)
        serial = sum(part.seconds.sum() for part in record.parts if part.kind == "serial")
        for slower in SLOWER:
            one = duration(record, 1, slower)
            cells = [f"{one:,.1f} s"]
            for n in WORKERS[1:]:
                took = np.mean([duration(record, n, slower, i) for i in range(options.repeats)])
                cells.append(f"{took:,.1f} s ({one / took:.1f})")
            times = "as measured" if slower == 1 else f"{slower:,} times as long"
            print(f"| {name} | {times} | " + " | ".join(cells) + " |", flush=True)
        print(f"<!-- {name}: {serial:.2f} s serial, model of {record.model_bytes / 1e6:.1f} MB -->")


if __name__ == "__main__":
    main()
