"""Training of restricted Boltzmann machines by contrastive divergence."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import (
    check_choice,
    check_count,
    check_finite,
    check_flag,
    check_kind,
    check_positive,
)
from pm_evidence.families.rbm.target import RBM
from pm_evidence.training.parameters import Parameters
from pm_evidence.training.tracking import Tracker, TrackLogZ

Singles = NDArray[np.float32]

REPORT_EVERY = 50  # updates between two reports
_ALGORITHMS = ("cd", "pcd", "tempering")
_BATCH = 100
# Larger numbers are mistakes: the training would not end, or not fit in memory.
_MOST_STEPS, _MOST_ROWS = 10**9, 10**6


@dataclass(frozen=True)
class Training:
    """The settings of a training; checked when it is made."""

    # Contrastive divergence, persistent contrastive divergence, or the tempered chains of ``track``
    algorithm: str = "cd"
    # Gibbs steps of each update; 1 for tempered chains, whose sweeps ``track`` gives
    steps: int = 1
    n_updates: int = 10_000  # number of updates
    # Rows of data of each update; None for 100, or all rows if there are fewer
    batch_size: int | None = None
    learning_rate: float = 0.05  # step size of the first update
    # Whether the step size falls linearly, to ``learning_rate / n_updates`` at the last update
    linear_decay: bool = False
    weight_decay: float = 0.0  # strength of the penalty ``weight_decay / 2 * sum(W**2)``
    n_chains: int | None = None  # number of persistent chains; None for as many as rows of a batch
    track: TrackLogZ | None = None  # how log Z is tracked; None if it is not

    def __post_init__(self) -> None:
        check_choice("algorithm", self.algorithm, _ALGORITHMS)
        for name in ("steps", "n_updates"):
            check_count(name, getattr(self, name), 1, _MOST_STEPS)
        for name in ("batch_size", "n_chains"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name), 1, _MOST_ROWS)
        check_positive("learning_rate", self.learning_rate)
        check_flag("linear_decay", self.linear_decay)
        if check_finite("weight_decay", self.weight_decay, 0.0) < 0.0:
            raise ValueError(
                f"weight_decay must not be negative, got {self.weight_decay}; pass 0 for none."
            )
        if self.algorithm != "pcd" and self.n_chains is not None:
            raise ValueError(
                f"n_chains must be left out unless algorithm is 'pcd', got {self.n_chains}; "
                "contrastive divergence runs one chain from each row of a batch, and "
                "pe.rbm.TrackLogZ "
                "has the number of tempered chains."
            )
        track, tempered = self.track, self.algorithm == "tempering"
        if track is None and tempered:
            raise ValueError(
                "track must be given if algorithm is 'tempering', got None; pass "
                "pe.rbm.TrackLogZ()."
            )
        if track is not None:
            check_kind("track", track, TrackLogZ, "pass pe.rbm.TrackLogZ()")
        if tempered and self.steps != 1:
            raise ValueError(
                f"steps must be left out if algorithm is 'tempering', got {self.steps}; pass "
                "pe.rbm.TrackLogZ(n_sweeps=...)."
            )

    def rate(self, update: int) -> float:
        """Return the step size of an update, counted from 0."""
        return self.learning_rate * (1.0 - self.linear_decay * update / self.n_updates)

    def rows(self, n_rows: int) -> int:
        """Return the number of rows of a batch."""
        size = min(_BATCH, n_rows) if self.batch_size is None else self.batch_size
        if size > n_rows:
            raise ValueError(
                f"batch_size must be at most the number of rows of data, {n_rows:,}, got {size}; "
                "pass fewer."
            )
        return size


def train(
    data: NDArray[np.uint8],
    n_hidden: int,
    training: Training,
    seed: np.random.SeedSequence,
    report: Callable[[int], None],
    *,
    start: RBM | None = None,
    validation: NDArray[np.uint8] | None = None,
) -> RBM:
    """Return the machine after training, with the data that it was trained on.

    The gradient of the mean log likelihood is the mean of ``v h'`` over the data less that over the
    model. Contrastive divergence replaces the second mean by that of Gibbs chains that start at the
    batch and run for ``steps`` steps (Hinton 2002); persistent contrastive divergence by
    that of chains that continue over updates (Tieleman 2008); tempering by that of tempered chains,
    weighted by the probability that they are at ``beta = 1`` given their states (Carlson et al.
    2016). In all means hidden units enter with their probabilities, given visible units that are 0
    or 1. Weights begin at small normal numbers, hidden biases at 0 and visible biases at the log
    odds of the data (Hinton 2010, section 8).
    """
    size, rng = training.rows(len(data)), np.random.default_rng(seed)
    if start is None:
        rbm = Parameters.first(data, n_hidden, rng)
    else:
        rbm = Parameters.of(start, np.float32)
    tracker = None
    if training.track is not None:
        tracker = Tracker(training.track, rbm, data, validation, seed.spawn(1)[0])
    drawn = _negatives(training, data, size, tracker, rng)
    batches, rate = _batches(len(data), size, rng), 0.0
    for update in range(training.n_updates):
        if tracker is not None and not tracker.visit(rbm, update, rate):
            report(training.n_updates)
            return tracker.finished(data)
        batch = data[next(batches)].astype(np.float32)
        with np.errstate(over="ignore", invalid="ignore"):  # found by the check below
            gradient = rbm.gradient(batch, *drawn(rbm, batch))
            rbm.climb(gradient, training.rate(update), training.weight_decay)
        done, at_end = update + 1, update + 1 == training.n_updates
        if tracker is not None or at_end or done % REPORT_EVERY == 0:
            rbm.check(done, training.learning_rate)
        if at_end or done % REPORT_EVERY == 0:
            report(done)
        if training.algorithm == "tempering":
            rate = training.rate(update)
    if tracker is not None:
        tracker.visit(rbm, training.n_updates, rate, last=True)
        return tracker.finished(data)
    return rbm.machine(data=data)


def _negatives(
    training: Training,
    data: NDArray[np.uint8],
    size: int,
    tracker: Tracker | None,
    rng: np.random.Generator,
) -> Callable[[Parameters, Singles], tuple[Singles, Singles | None]]:
    """Return a function that draws from the model, given its parameters and a batch.

    It returns visible units, shape ``(n, n_visible)``, and their weights, shape ``(n,)``; None if
    these are equal.
    """
    if tracker is not None and training.algorithm == "tempering":
        return lambda rbm, batch: tracker.samples()
    if training.algorithm == "cd":
        return lambda rbm, batch: (rbm.gibbs(batch, training.steps, rng), None)
    n_chains = size if training.n_chains is None else training.n_chains
    chains = data[rng.integers(len(data), size=n_chains)].astype(np.float32)

    def persistent(rbm: Parameters, batch: Singles) -> tuple[Singles, None]:
        nonlocal chains
        chains = rbm.gibbs(chains, training.steps, rng)
        return chains, None

    return persistent


def _batches(n_rows: int, size: int, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    """Yield rows of batches without end; a row is in one batch of an epoch, or left out of it."""
    while True:
        order = rng.permutation(n_rows)
        for start in range(0, n_rows - size + 1, size):
            yield order[start : start + size]
