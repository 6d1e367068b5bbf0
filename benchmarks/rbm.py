"""Speed of annealed restricted Boltzmann machines, as ratios within one process.

Rounds of all tasks take turns, so that other work on the machine hits all of them. Four tables: the
annealing step of a machine of 784 x 500 units against the same products by NumPy (sgemm, single
precision); two threads against one; an annealing step written in NumPy, in JAX and in PyDeep, the
last two if they are installed; and annealing of all units against that of the hidden units alone,
at equal cost, on the machine of Salakhutdinov and Murray (2008), which needs real data
(``PM_EVIDENCE_DATA``). ``OPENBLAS_NUM_THREADS=1 python benchmarks/rbm.py [names] [--repeats 9]``
with names among ``step``, ``threads``, ``others`` and ``latent``.
"""

import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from common import start

import pm_evidence as pe
from pm_evidence.core.numerics import ess_share
from pm_evidence.core.random import streams
from pm_evidence.families.rbm.target import KERNELS

sys.path.append(str(Path(__file__).parents[1] / "examples"))
from real_data import mnist, published_rbm

N_VISIBLE, N_HIDDEN, CHAINS = 784, 500, 256
FLOPS = 4 * N_VISIBLE * N_HIDDEN  # of a step of one chain: two products
SWEEPS = 10  # of a task
STAGES = 4000  # of the annealing of all units in ``latent``


def seconds(
    tasks: dict[str, Callable], rounds: int, clock: Callable = time.process_time
) -> dict[str, float]:
    """Return the median duration of every task over rounds in which all take turns.

    Processor time does not count the time in which other processes have the core.
    """
    found: dict[str, list[float]] = {name: [] for name in tasks}
    for task in tasks.values():
        task()  # compiles
    for _ in range(rounds):
        for name, task in tasks.items():
            started = clock()
            task()
            found[name].append(clock() - started)
    return {name: float(np.median(durations)) for name, durations in found.items()}


def random_machine(latent: str = "full") -> pe.rbm.RBM:
    rng = np.random.default_rng(1)
    w = rng.normal(0.0, 0.1, (N_VISIBLE, N_HIDDEN))
    return pe.rbm.RBM(
        w, np.full(N_VISIBLE, -1.0), np.zeros(N_HIDDEN), base="uniform", latent=latent
    )


def advance(machine: pe.rbm.RBM, n_stages: int = SWEEPS) -> Callable:
    """Return a task that moves chains through stages, one sweep at each."""
    path, kernel = machine.annealing_setup("auto").path, KERNELS[machine.latent][1]()
    state, chains = (
        path.draw(CHAINS, np.random.SeedSequence(1)),
        streams(np.random.SeedSequence(2), CHAINS),
    )
    beta = np.linspace(0.0, 1.0, n_stages + 1)[1:]
    return lambda: kernel.advance_many(path, state, beta, chains)


def products() -> Callable:
    """Return a task of the products of as many steps, by NumPy in single precision."""
    rng = np.random.default_rng(3)
    v = (rng.random((CHAINS, N_VISIBLE)) < 0.2).astype(np.float32)
    h = (rng.random((CHAINS, N_HIDDEN)) < 0.5).astype(np.float32)
    w = rng.normal(size=(N_VISIBLE, N_HIDDEN)).astype(np.float32)
    down = np.ascontiguousarray(w.T)
    hidden, visible = np.empty_like(h), np.empty_like(v)

    def task() -> None:
        for _ in range(SWEEPS):
            np.matmul(v, w, out=hidden)
            np.matmul(h, down, out=visible)

    return task


def numpy_steps(machine: pe.rbm.RBM) -> Callable:
    """Return a task of as many annealing steps in vectorised NumPy of single precision."""
    w, a, b = (x.astype(np.float32) for x in (machine.W, machine.visible_bias, machine.hidden_bias))
    down = np.ascontiguousarray(w.T)
    rng = np.random.default_rng(4)
    states = (rng.random((CHAINS, N_VISIBLE)) < 0.5).astype(np.float32)

    def drawn(inputs: np.ndarray, beta: float) -> np.ndarray:
        odds = np.exp(-np.float32(beta) * inputs)
        uniform = rng.random(inputs.shape, dtype=np.float32)
        return (uniform * (1 + odds) < 1).astype(np.float32)

    def task() -> None:
        v, log_weights = states, np.zeros(CHAINS)
        for beta in np.linspace(0.4, 0.6, SWEEPS):
            h = drawn(v @ w + b, beta)
            inputs = h @ down + a
            v = drawn(inputs, beta)
            log_weights += 1e-4 * (np.einsum("ij,ij->i", inputs, v) + h @ b)

    return task


def jax_steps(machine: pe.rbm.RBM) -> Callable:
    """Return the same in JAX, as one compiled loop."""
    import jax
    import jax.numpy as jnp

    parameters = machine.W, machine.visible_bias, machine.hidden_bias
    w, a, b = (jnp.asarray(x, jnp.float32) for x in parameters)

    def drawn(key, inputs, beta):
        return jax.random.bernoulli(key, jax.nn.sigmoid(beta * inputs)).astype(jnp.float32)

    def step(carry, beta):
        v, log_weights, key = carry
        key, first, second = jax.random.split(key, 3)
        h = drawn(first, v @ w + b, beta)
        inputs = h @ w.T + a
        v = drawn(second, inputs, beta)
        return (v, log_weights + 1e-4 * ((inputs * v).sum(1) + h @ b), key), None

    betas, key = jnp.linspace(0.4, 0.6, SWEEPS), jax.random.PRNGKey(0)
    begin = (jnp.zeros((CHAINS, N_VISIBLE)), jnp.zeros(CHAINS), key)
    loop = jax.jit(lambda carry: jax.lax.scan(step, carry, betas)[0])
    return lambda: jax.block_until_ready(loop(begin))


def pydeep_steps(machine: pe.rbm.RBM) -> Callable:
    """Return annealing by the estimator of PyDeep, which has a stage for each step."""
    from pydeep.rbm import estimator, model

    rbm = model.BinaryBinaryRBM(
        N_VISIBLE,
        N_HIDDEN,
        initial_weights=machine.W,
        initial_visible_bias=machine.visible_bias,
        initial_hidden_bias=machine.hidden_bias,
        initial_visible_offsets=0.0,
        initial_hidden_offsets=0.0,
    )
    return lambda: estimator.annealed_importance_sampling(rbm, CHAINS, 1, SWEEPS)


def step(repeats: int) -> None:
    found = seconds({"step": advance(random_machine()), "sgemm": products()}, repeats)
    print(f"\nannealing step, {N_VISIBLE} x {N_HIDDEN} units, {CHAINS} chains, one thread\n")
    for name, duration in found.items():
        each = duration / (CHAINS * SWEEPS)
        print(f"{name:8s}{1e6 * each:8.2f} us a chain{1e-9 * FLOPS / each:10.1f} GFLOP/s")
    print(f"ratio of rates {found['sgemm'] / found['step']:.2f}")


def threads(repeats: int) -> None:
    machine = random_machine()
    own = [advance(machine, 5 * SWEEPS) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        tasks = {"one": own[0], "two": lambda: wait([pool.submit(task) for task in own])}
        found = seconds(tasks, repeats, time.perf_counter)
    print(f"\ntwo threads do {2 * found['one'] / found['two']:.2f} times the work of one")


def others(repeats: int) -> None:
    machine = random_machine()
    tasks = {"pm_evidence": advance(machine), "NumPy, float32": numpy_steps(machine)}
    for name, module, make in (("JAX", "jax", jax_steps), ("PyDeep", "pydeep", pydeep_steps)):
        if find_spec(module) is None:
            print(f"\n{name}: not installed")
        else:
            tasks[name] = make(machine)
    found = seconds(tasks, repeats)
    print("\nannealing steps, products, draws and weights, one thread\n")
    for name, duration in found.items():
        each = 1e6 * duration / (CHAINS * SWEEPS)
        print(f"{name:18s}{each:8.2f} us a chain{duration / found['pm_evidence']:8.2f} times")


def latent(repeats: int) -> None:
    """Annealing of all units, and of the hidden ones, with numbers of stages of the same cost."""
    train, _ = mnist()
    parameters = published_rbm()
    machines = {
        name: pe.rbm.RBM(*parameters, data=train, latent=name, base="data")
        for name in ("full", "marginal")
    }
    lengths = {"full": 20 * SWEEPS, "marginal": SWEEPS}
    found = seconds({name: advance(m, lengths[name]) for name, m in machines.items()}, repeats)
    cost = {name: found[name] / (CHAINS * lengths[name]) for name in machines}
    stages = {"full": STAGES, "marginal": round(STAGES * cost["full"] / cost["marginal"])}
    print("\nall units, and the hidden ones with the visible ones summed out\n")
    variance, taken = {}, {}
    for name, machine in machines.items():
        started = time.process_time()
        work = forward_work(machine, stages[name])
        taken[name] = time.process_time() - started
        variance[name] = work.var(ddof=1)
        print(
            f"{name:9s}{1e6 * cost[name]:8.1f} us a sweep and chain{stages[name]:7d} stages  "
            f"log Z {np.logaddexp.reduce(-work) - np.log(len(work)):.2f}  "
            f"sd {np.sqrt(variance[name]):.2f}  ESS {len(work) * ess_share(-work):.0f} of "
            f"{len(work)}  {taken[name]:.0f} s"
        )
    ratio = {name: variance[name] * taken[name] for name in machines}
    print(
        "variance of the log weights times processor time, marginal to full: "
        f"{ratio['marginal'] / ratio['full']:.2f}"
    )


def forward_work(machine: pe.rbm.RBM, n_stages: int) -> np.ndarray:
    """Return the work of 512 forward paths of equal steps."""
    dt = pe.sample_evidence(
        machine,
        schedule=pe.schedules.Linear(),
        method=pe.methods.AIS(n_stages=n_stages, direction="forward"),
        draws=512,
        target_mcse=None,
        random_seed=1,
        progressbar=False,
        cores=1,
    )
    return dt["work"]["forward"].values


def main() -> None:
    options = start(__doc__.splitlines()[0], repeats=9)
    chosen = options.names or ["step", "threads", "others", "latent"]
    for name in chosen:
        {"step": step, "threads": threads, "others": others, "latent": latent}[name](
            options.repeats
        )


if __name__ == "__main__":
    main()
