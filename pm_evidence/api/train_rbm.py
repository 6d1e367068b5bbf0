"""Restricted Boltzmann machines: training on binary data, and conservative likelihoods."""

from collections.abc import Sequence
from concurrent.futures import Executor
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pm_evidence.api import arguments
from pm_evidence.api.arguments import entry
from pm_evidence.core.checks import check_count, check_flag, check_kind, described
from pm_evidence.core.contracts import Kernel, Path
from pm_evidence.core.exceptions import usual_floats
from pm_evidence.core.random import resolve_seed
from pm_evidence.execution.blocks import run_blocks
from pm_evidence.execution.display import counting
from pm_evidence.families.rbm.conservative import RaiseBlock, RaiseLikelihood, raise_likelihood
from pm_evidence.families.rbm.target import RBM, checked_states
from pm_evidence.samplers.ais import AIS
from pm_evidence.samplers.planning import Planning, Schedule
from pm_evidence.training.tracking import TrackLogZ
from pm_evidence.training.train import Training, train

Floats = NDArray[np.float64]


_MOST_HIDDEN = 100_000


@usual_floats()
def train_rbm(
    data: ArrayLike,
    n_hidden: int,
    *,
    algorithm: str = "cd",
    steps: int = 1,
    n_updates: int = 10_000,
    batch_size: int | None = None,
    learning_rate: float = 0.05,
    linear_decay: bool = False,
    weight_decay: float = 0.0,
    n_chains: int | None = None,
    track: TrackLogZ | None = None,
    validation: ArrayLike | None = None,
    start: RBM | None = None,
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool = True,
) -> RBM:
    """Train a restricted Boltzmann machine on binary data by contrastive divergence.

    It makes machines on which estimates of log Z can be tried. Neither the learning rate nor the
    number of updates is tuned. With ``track=pe.rbm.TrackLogZ()`` log Z is estimated all along, and
    with it the mean log-likelihoods of data and ``validation``.

    Parameters
    ----------
    data : array_like, shape (n_rows, n_visible)
        Observations, of 0 and 1 (booleans or numbers). Grey images must be binarised first: ``x >
        127`` for bytes, or ``rng.random(x.shape) < x / 255``.
    n_hidden : int
        Number of hidden units.
    algorithm : {"cd", "pcd", "tempering"}
        Contrastive divergence, whose chains start at the rows of each batch; persistent
        contrastive divergence, whose chains continue from update to update; or the tempered chains
        of ``track``, which also continue, and move between modes more easily.
    steps : int
        Gibbs steps of each update: the k of CD-k. Tempered chains make the sweeps of ``track``.
    n_updates : int
        Number of updates of the parameters.
    batch_size : int, optional
        Rows of each update; 100 by default, or all rows if there are fewer.
    learning_rate : float
        Step size: the parameters move by this times the estimated gradient of the mean log
        likelihood in nats.
    linear_decay : bool
        Whether the step size falls linearly towards 0 over the updates. Persistent chains need
        this to approach a maximum of the likelihood.
    weight_decay : float
        Strength of the penalty ``weight_decay / 2 * sum(W**2)``.
    n_chains : int, optional
        Number of persistent chains; as many as rows of a batch by default.
    track : TrackLogZ, optional
        How log Z is tracked; required by ``algorithm="tempering"``.
    validation : array_like, shape (n_validation, n_visible), optional
        Other observations, for a training with ``track``. The machine with their largest mean
        log-likelihood, among the points of the history, is returned.
    start : RBM, optional
        The machine that the training continues from, with ``n_hidden`` hidden units.
    random_seed : int or numpy.random.Generator, optional
        The same seed gives the same parameters on one machine with one number of BLAS threads.
        Other machines round matrix products differently.
    progressbar : bool
        Whether to show progress.

    Returns
    -------
    RBM
        The machine, with ``data`` as its data: reverse paths start from them. Its ``history`` is a
        `TrainingHistory` if ``track`` is given.

    Raises
    ------
    ValueError
        If ``data`` are not binary, or an option is out of range.
    NumericalError
        If the parameters become infinite because the learning rate is too large.

    Notes
    -----
    Hinton (2002) for contrastive divergence, Tieleman (2008) for persistent chains, Carlson et al.
    (2016) for tempered ones. The products are in single precision. Steps are those of plain
    stochastic gradient ascent. CD does not climb the likelihood: it stops where ``steps`` Gibbs
    steps from the data leave the statistics of the data unchanged.

    Examples
    --------
    Two units that are always equal, and a third that does not depend on them:

    >>> import numpy as np
    >>> import pm_evidence as pe
    >>> data = [[0, 0, 0], [0, 0, 1], [1, 1, 0], [1, 1, 1]]
    >>> rbm = pe.rbm.train_rbm(
    ...     data, 1, steps=5, n_updates=3000, learning_rate=0.5, random_seed=1, progressbar=False
    ... )
    >>> bool(rbm.W[0, 0] * rbm.W[1, 0] > 4.0), bool(abs(rbm.W[2, 0]) < 0.5)
    (True, True)
    """
    check_count("n_hidden", n_hidden, 1, _MOST_HIDDEN)
    training = Training(
        algorithm=algorithm,
        steps=steps,
        n_updates=n_updates,
        batch_size=batch_size,
        learning_rate=learning_rate,
        linear_decay=linear_decay,
        weight_decay=weight_decay,
        n_chains=n_chains,
        track=track,
    )
    check_flag("progressbar", progressbar)
    rows = checked_states("data", data)
    training.rows(len(rows))
    others = _checked_validation(validation, rows.shape[1], track)
    if start is not None:
        check_kind("start", start, RBM, "pass what pe.rbm.train_rbm returned")
        if start.W.shape != (rows.shape[1], n_hidden):
            raise ValueError(
                f"start must have {rows.shape[1]} visible and {n_hidden} hidden units, as data and "
                f"n_hidden say, got {start.W.shape}; change n_hidden, or leave start out."
            )
    seed: Any = np.random.SeedSequence(resolve_seed(random_seed))
    with counting("Training", training.n_updates, progressbar) as report:
        return train(rows, n_hidden, training, seed, report, start=start, validation=others)


def _checked_validation(
    validation: ArrayLike | None, n_visible: int, track: TrackLogZ | None
) -> NDArray[np.uint8] | None:
    """Return validation data as uint8."""
    if validation is None:
        return None
    if track is None:
        raise ValueError(
            f"validation needs track, got {described(validation)} with track=None; pass "
            "track=pe.rbm.TrackLogZ(), by which likelihoods are estimated."
        )
    rows = checked_states("validation", validation)
    if rows.shape[1] != n_visible:
        raise ValueError(
            f"validation must have the {n_visible} columns of data, got shape {rows.shape}; pass "
            "rows of the same kind."
        )
    return rows


_MOST_PATHS = 1_000_000


@entry()
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
    >>> machine = pe.rbm.RBM(rng.normal(0, 0.5, (12, 8)), np.zeros(12), np.zeros(8))
    >>> test = rng.integers(2, size=(100, 12))
    >>> low = pe.rbm.raise_log_likelihood(machine, test, random_seed=1, progressbar=False)
    >>> dt = pe.sample_evidence(machine, draws=100, random_seed=1, progressbar=False)
    >>> found = machine.log_likelihood(test, pe.log_evidence(dt))
    >>> bool(abs(low.average.value - found.value) < 0.1)
    True
    """
    check_kind("machine", machine, RBM, "pass a pe.rbm.RBM, or what pe.rbm.train_rbm returned")
    examples = checked_states("visible", visible, machine.n_visible)
    check_count("n_paths", n_paths, 1, _MOST_PATHS)
    arguments.check_memory(len(examples) * n_paths)
    check_flag("progressbar", progressbar)
    sampler = AIS(n_stages=n_stages, direction="forward")
    chosen, seed = arguments.chosen_schedule(schedule, sampler), resolve_seed(random_seed)
    workers, elsewhere = arguments.checked_cores(cores), arguments.checked_executor(executor)
    setup = machine.with_path(machine.annealing_setup(kernel), path)
    size = setup.n_paths
    plan = chosen.plan(Planning(setup, sampler, size, seed))[1]
    # row of the example that each path starts from; the paths of an example follow each other
    row = np.repeat(np.arange(len(examples)), n_paths)
    parts = np.split(row, np.arange(size, len(row), size))
    tasks = [
        RaiseBlock(machine, setup.path, plan, block, examples[part], seed)
        for block, part in enumerate(parts)
    ]
    numbers = count(1)
    with counting("RAISE", len(tasks), progressbar) as show:
        records = run_blocks(
            tasks, cores=workers, executor=elsewhere, done=lambda *_: show(next(numbers))
        )
    work = np.concatenate([record.work for record in records])
    return raise_likelihood(machine, examples, work.reshape(len(examples), n_paths))
