"""What a run does for the code in it: it divides work on rows, and keeps what is learnt."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from pm_evidence.core.digest import keeping, kept
from pm_evidence.core.rows import divided_by, over_rows


def double(x, into):
    into[:] = 2 * x


class Halves:
    """Divides all work into two parts, and notes on how many rows."""

    def __init__(self):
        self.sizes = []

    def __call__(self, work, read, written):
        n = len(written[0])
        for part in (slice(0, n // 2), slice(n // 2, n)):
            self.sizes.append(part.stop - part.start)
            work(*(array[part] for array in (*read, *written)))


def doubled(n=7):
    into = np.zeros(n)
    over_rows(double, (np.arange(n),), (into,))
    return into


def test_division_sees_all_rows_and_ends_with_its_context():
    halves = Halves()
    with divided_by(halves):
        assert np.array_equal(doubled(), 2 * np.arange(7))
    doubled()
    assert halves.sizes == [3, 4]


def test_work_inside_of_divided_work_is_not_divided():
    halves = Halves()

    def nested(into):
        over_rows(double, (np.arange(len(into)),), (into,))

    with divided_by(halves):
        over_rows(nested, (), (np.zeros(6),))
    assert halves.sizes == [3, 3]


def test_another_thread_does_its_work_alone():
    """A block that runs in a thread must not wait for the threads of its run."""
    halves = Halves()
    with divided_by(halves):
        thread = threading.Thread(target=doubled)
        thread.start()
        thread.join()
    assert halves.sizes == []


def test_without_a_run_everything_is_computed():
    """With one it is asked for in one place, and kept by the run."""
    assert kept("trial", lambda: 3) == 3
    with keeping(lambda name, compute: (name, compute() + 1)):
        assert kept("trial", lambda: 3) == ("trial", 4)
    assert kept("trial", lambda: 3) == 3


FAULTS = """
import resource, sys
import numpy as np
import pytest
from pm_evidence.core.rows import keep_freed_memory

if sys.argv[1] == "kept":
    keep_freed_memory()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for counted in (False, True):
    before = faults()
    for _ in range(200):
        x = np.ones(32_768)
        y = x + 1.0
        del x, y
print(faults() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="an option of glibc")
def test_a_process_that_is_to_free_memory_at_once_keeps_some():
    """Counted in page faults: an array of 256 kB takes 64 of them each time, or none."""
    counts = {}
    for asked in ("kept", "usual"):
        done = subprocess.run(
            [sys.executable, "-c", FAULTS, asked],
            env=os.environ | {"MALLOC_TRIM_THRESHOLD_": "65536"},
            capture_output=True,
            text=True,
            check=True,
        )
        counts[asked] = int(done.stdout)
    assert counts["usual"] > 10_000 > 100 * counts["kept"]
