"""Speed of the lattice kernels, each as a ratio to a plain loop in the same process.

Rates are of attempted flips in one thread; rounds of all kernels take turns, so that other work on
the machine hits all of them. ``python benchmarks/lattice.py [--rounds 9]``
"""

import argparse
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from math import exp

import llvmlite.binding as llvm
import numba as nb
import numpy as np

from pm_evidence.core.contracts import Plan
from pm_evidence.core.random import next_word, streams
from pm_evidence.families.lattice.ising import SpinHeatBath, SpinMetropolis
from pm_evidence.families.lattice.lattice import DetouredPath, LatticePath
from pm_evidence.families.lattice.potts import ColourHeatBath
from pm_evidence.families.lattice.target import Ising, Potts, SwendsenWang
from pm_evidence.samplers.ais import AIS

BETA_C = np.log(1.0 + np.sqrt(2.0)) / 2.0
# What is aimed at, by the width of vectors in bits.
SPIN_GOALS = {512: 400, 256: 200, 128: 100}
COLOUR_GOALS = {512: 14, 256: 7, 128: 4}


@nb.njit
def plain_metropolis(chains, size, beta, n_flips):
    """The loop that one would write."""
    for m in range(len(chains)):
        x = chains[m]
        for _ in range(n_flips):
            i, j = np.random.randint(0, size), np.random.randint(0, size)  # noqa: NPY002
            near = x[(i - 1 + size) % size, j] + x[(i + 1) % size, j]
            near += x[i, (j - 1 + size) % size] + x[i, (j + 1) % size]
            change = 2.0 * beta * x[i, j] * near
            if change <= 0.0 or np.random.random() < exp(-change):  # noqa: NPY002
                x[i, j] = -x[i, j]


@nb.njit
def scalar_heat_bath(chains, q, neighbours, coupling, n_sweeps, chain_streams):
    """A good heat bath of one chain at a time: tables, and pieces of the total weight."""
    added = np.array([exp(k * coupling) - exp((k - 1) * coupling) for k in range(1, 5)])
    for m in range(len(chains)):
        x, stream = chains[m], chain_streams[m]
        for _ in range(n_sweeps):
            for i in range(len(neighbours)):
                a, b = x[neighbours[i, 0]], x[neighbours[i, 1]]
                c, d = x[neighbours[i, 2]], x[neighbours[i, 3]]
                w_a, w_b = added[0], added[int(b == a)]
                w_c = added[int(c == a) + int(c == b)]
                w_d = added[int(d == a) + int(d == b) + int(d == c)]
                t = (next_word(stream) >> nb.uint64(11)) * 2.0**-53 * (q + w_a + w_b + w_c + w_d)
                if t < q:
                    x[i] = nb.uint8(t)
                elif t < q + w_a:
                    x[i] = a
                elif t < q + w_a + w_b:
                    x[i] = b
                else:
                    x[i] = c if t < q + w_a + w_b + w_c else d


def rates(tasks: dict[str, tuple[Callable, int]], rounds: int) -> dict[str, float]:
    """Return flips per nanosecond of every task, medians over rounds in which all take turns."""
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for task, _ in tasks.values():
        task()  # compiles
    for _ in range(rounds):
        for name, (task, _) in tasks.items():
            started = time.perf_counter()
            task()
            seconds[name].append(time.perf_counter() - started)
    return {name: 1e-9 * tasks[name][1] / np.median(seconds[name]) for name in tasks}


def moves(path, kernel, n: int, beta: float) -> tuple[Callable, int]:
    """Return a task that moves ``n`` chains, and its number of flips."""
    state, chains = path.draw(n, np.random.SeedSequence(1)), streams(np.random.SeedSequence(2), n)
    state, _ = kernel.advance(path, state, beta, chains)
    flips = n * path.target.n_dim * kernel.n_sweeps
    return lambda: kernel.advance(path, state, beta, chains), flips


def vector_bits() -> int:
    """Return the width of vectors that Numba compiles for."""
    asked = nb.config.CPU_FEATURES  # NUMBA_CPU_FEATURES, to try narrower vectors
    features = llvm.get_host_cpu_features().flatten() if asked is None else asked
    return 512 if "+avx512f" in features else 256 if "+avx2" in features else 128


def spins(rounds: int, bits: int) -> None:
    size, n = 32, 1024
    path = LatticePath(Ising(size))
    chains = path.draw(32, np.random.SeedSequence(3)).to_draws()
    tasks = {
        "plain Metropolis loop": (
            lambda: plain_metropolis(chains, size, BETA_C, 2 * size**2),
            32 * 2 * size**2,
        ),
        "bit-sliced heat bath": moves(path, SpinHeatBath(20), n, BETA_C),
        "bit-sliced heat bath, detoured": moves(
            DetouredPath(path.target), SpinHeatBath(20), n, BETA_C
        ),
        "bit-sliced Metropolis": moves(path, SpinMetropolis(20), n, BETA_C),
        "bit-sliced Metropolis, random sites": moves(path, SpinMetropolis(20, "random"), n, BETA_C),
        "Swendsen-Wang": moves(path, SwendsenWang(1), 64, BETA_C),
    }
    show(f"Ising {size} x {size}, goal {SPIN_GOALS[bits]}", rates(tasks, rounds))


def colours(rounds: int, bits: int) -> None:
    size, n, beta = 32, 256, 0.7
    path = LatticePath(Potts(size))
    target = path.target
    chains = path.draw(64, np.random.SeedSequence(3)).to_draws().reshape(64, -1)
    own = streams(np.random.SeedSequence(4), 64)
    near = target.geometry.neighbours.copy()
    tasks = {
        "scalar heat bath": (
            lambda: scalar_heat_bath(chains, target.q, near, beta * target.coupling, 2, own),
            64 * 2 * target.n_dim,
        ),
        "branch-free heat bath": moves(path, ColourHeatBath(10), n, beta),
        "branch-free heat bath, detoured": moves(DetouredPath(target), ColourHeatBath(10), n, beta),
        "Swendsen-Wang": moves(path, SwendsenWang(1), 64, beta),
    }
    show(f"Potts q = 10, {size} x {size}, goal {COLOUR_GOALS[bits]}", rates(tasks, rounds))


def show(title: str, found: dict[str, float]) -> None:
    first = next(iter(found.values()))
    print(f"\n{title}\n{'':38s}{'flips/ns':>9s}{'ratio':>8s}")
    for name, rate in found.items():
        print(f"{name:38s}{rate:9.3f}{rate / first:8.1f}")


def sizes(rounds: int) -> None:
    tasks = {}
    for size in (32, 64, 128, 256, 512):
        n_sweeps = max(1, 20 * 32**2 // size**2)
        tasks[f"L = {size}"] = moves(LatticePath(Ising(size)), SpinHeatBath(n_sweeps), 512, BETA_C)
    found = rates(tasks, rounds)
    print("\nbit-sliced heat bath of 512 chains by size, with copy and energies\n")
    for name, rate in found.items():
        print(f"{name:10s}{1e3 / rate:8.1f} ps a flip")


def annealing(rounds: int) -> None:
    print("\nannealing by AIS.run_block, as a share of the rate of sweeps alone\n")
    for label, path, kind, n in (
        ("Ising 32 x 32", LatticePath(Ising(32)), SpinHeatBath, 1024),
        ("Ising 32 x 32, Metropolis", LatticePath(Ising(32)), SpinMetropolis, 1024),
        ("Ising 32 x 32, detoured", DetouredPath(Ising(32)), SpinHeatBath, 1024),
        ("Ising 128 x 128", LatticePath(Ising(128)), SpinHeatBath, 512),
        ("Potts 32 x 32", LatticePath(Potts(32)), ColourHeatBath, 512),
        ("Potts 32 x 32, detoured", DetouredPath(Potts(32)), ColourHeatBath, 512),
    ):
        # long tasks on both sides, so that a busy machine slows both alike; defaults have 65,536
        # stages and 3072
        n_stages = 4000 if isinstance(path.target, Ising) else 400
        for n_sweeps in (1, 10):
            kernel = kind(n_sweeps)
            count = n_stages // n_sweeps
            plan = Plan(np.linspace(0.0, 1.0, count + 1), (kernel,) * count)
            flips = n * path.target.n_dim * n_sweeps * count
            tasks = {
                "raw": moves(path, kind(n_stages // 4), n, 0.5),
                "run": (lambda p=path, w=plan, m=n: AIS().run_block(p, w, 0, m, 1), flips),
            }
            found = rates(tasks, rounds)
            share = found["run"] / found["raw"]
            row = f"{label:26s}{n:6d} chains, {n_sweeps:2d} sweeps a stage"
            print(f"{row}{found['run']:8.2f} flips/ns{share:6.0%}")


def threads(rounds: int) -> None:
    """Two threads against one, each thread with chains of its own."""
    print("\ntwo threads against one\n")
    for label, path, kernel, n in (
        ("bit-sliced heat bath", LatticePath(Ising(32)), SpinHeatBath(400), 512),
        ("branch-free heat bath", LatticePath(Potts(32)), ColourHeatBath(20), 512),
    ):
        task, flips = moves(path, kernel, n, 0.5)
        with ThreadPoolExecutor(2) as pool:

            def both(task=task, pool=pool):
                wait([pool.submit(task), pool.submit(task)])

            found = rates({"one": (task, flips), "two": (both, 2 * flips)}, rounds)
        print(f"{label:26s}{found['two'] / found['one']:6.2f} times")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    bits = vector_bits()
    print(f"{nb.config.CPU_NAME or llvm.get_host_cpu_name()}, vectors of {bits} bits")
    spins(options.rounds, bits)
    colours(options.rounds, bits)
    sizes(options.rounds)
    annealing(options.rounds)
    threads(options.rounds)


if __name__ == "__main__":
    main()
