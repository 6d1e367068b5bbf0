"""``raise_log_likelihood``: conservative likelihoods of restricted Boltzmann machines."""

from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pm_evidence.api.arguments import (
    check_memory,
    checked_cores,
    checked_executor,
    chosen_schedule,
)
from pm_evidence.core.checks import check_count, check_flag, check_kind
from pm_evidence.core.contracts import Kernel, Path
from pm_evidence.core.exceptions import exceptions_of_users, usual_floats
from pm_evidence.core.interrupts import interruptible
from pm_evidence.core.progress import silent
from pm_evidence.core.random import resolve_seed
from pm_evidence.execution.blocks import run_blocks
from pm_evidence.execution.counter import counting
from pm_evidence.families.rbm.checks import checked_states
from pm_evidence.families.rbm.conservative import RaiseBlock, RaiseLikelihood, raise_likelihood
from pm_evidence.families.rbm.target import RBM
from pm_evidence.samplers.ais import AIS
from pm_evidence.samplers.planning import Schedule

__all__ = ["raise_log_likelihood"]

Floats = NDArray[np.float64]

_MOST_PATHS = 1_000_000


@interruptible()
@exceptions_of_users()
@usual_floats()
def raise_log_likelihood(
    machine: RBM,
    visible: ArrayLike,
    *,
    n_stages: int = 1000,
    n_paths: int = 1,
    schedule: str | Schedule | Sequence[float] | Floats = "adaptive",
    kernel: str | Kernel = "auto",
    path: str | Path = "auto",
    cores: int | None = None,
    executor: Executor | None = None,
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool = True,
) -> RaiseLikelihood:
    """Estimate the log-likelihood of visible states, such as a test set, from below.

    Annealing from the reference to the machine makes estimates of log Z that are too low on
    average, and likelihoods that are too high (``machine.log_likelihood(test, log_z)``). Reverse
    paths that start at the examples themselves make likelihoods that are too low. If both agree,
    both can be relied on.

    Parameters
    ----------
    machine : RBM
        The machine.
    visible : array_like of 0 and 1, shape (n_examples, n_visible)
        The examples.
    n_stages : int
        Number of stages of a path.
    n_paths : int
        Number of paths from each example.
    schedule, kernel, path, cores, executor, random_seed, progressbar
        As for `sample_evidence`.

    Returns
    -------
    RaiseLikelihood
        ``average``, in nats for each example with the error of the paths; ``of_examples``; and
        ``examples_mcse``, the error from the scatter over the examples.

    Raises
    ------
    ValueError, TypeError
        If an argument is of the wrong type or out of range, or ``visible`` is not binary.

    Notes
    -----
    RAISE (Burda, Grosse and Salakhutdinov 2015); see ``families.rbm.conservative`` for the
    derivation. Estimates are unbiased on the scale of likelihoods for the model of a forward path's
    end, which has been annealed incompletely. They are consistent for the machine's likelihood as
    stages are added; more paths alone remove the other part of the bias, that of the logarithm.

    Examples
    --------
    >>> import numpy as np, pm_evidence as pe
    >>> rng = np.random.default_rng(1)
    >>> machine = pe.RBM(rng.normal(0, 0.5, (12, 8)), np.zeros(12), np.zeros(8))
    >>> test = rng.integers(2, size=(100, 12))
    >>> low = pe.raise_log_likelihood(machine, test, random_seed=1, progressbar=False)
    >>> dt = pe.sample_evidence(machine, draws=100, random_seed=1, progressbar=False)
    >>> found = machine.log_likelihood(test, pe.log_evidence(dt))
    >>> bool(abs(low.average.value - found.value) < 0.1)
    True
    """
    check_kind("machine", machine, RBM, "pass a pe.RBM, or what pe.train_rbm returned")
    examples = checked_states("visible", visible, machine.n_visible)
    check_count("n_paths", n_paths, 1, _MOST_PATHS)
    check_memory(len(examples) * n_paths)
    check_flag("progressbar", progressbar)
    sampler = AIS(n_stages=n_stages, direction="forward")
    chosen, seed = chosen_schedule(schedule, sampler), resolve_seed(random_seed)
    workers, elsewhere = checked_cores(cores), checked_executor(executor)
    setup = machine.with_path(machine.annealing_setup(kernel), path)
    size = setup.n_paths
    plan = chosen.plan(setup, sampler, size, seed, silent)[1]
    # row of the example that each path starts from; the paths of an example follow each other
    row = np.repeat(np.arange(len(examples)), n_paths)
    parts = np.split(row, np.arange(size, len(row), size))
    tasks = [
        RaiseBlock(machine, setup.path, plan, block, examples[part], seed)
        for block, part in enumerate(parts)
    ]
    finished: list[int] = []
    with counting("RAISE", len(tasks), progressbar) as show:

        def done(block: int, record: Any) -> None:
            finished.append(block)
            show(len(finished))

        records = run_blocks(tasks, cores=workers, executor=elsewhere, done=done)
    work = np.concatenate([record.work for record in records])
    return raise_likelihood(machine, examples, work.reshape(len(examples), n_paths))
