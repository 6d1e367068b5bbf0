"""Training of restricted Boltzmann machines by contrastive divergence."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import (
    check_choice,
    check_count,
    check_finite,
    check_flag,
    check_positive,
    described,
    plain_array,
)
from pm_evidence.core.exceptions import NumericalError
from pm_evidence.families.rbm.target import RBM

__all__ = ["REPORT_EVERY", "Training", "binary_rows", "train"]

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]

REPORT_EVERY = 50  # updates between two reports
_ALGORITHMS = ("cd", "pcd")
_BATCH = 100
# Larger numbers are mistakes: the training would not end, or not fit in memory.
_MOST_STEPS, _MOST_ROWS = 10**9, 10**6
# Standard deviation of the first weights (Hinton 2010, section 8).
_FIRST_SD = 0.01
# How data are made binary, by the range of their values.
_SPINS = "data > 0"
_SHARES = "data > 0.5, or rng.random(data.shape) < data"
_BYTES = "data > 127, or rng.random(data.shape) < data / 255"


@dataclass(frozen=True)
class Training:
    """The settings of a training; checked when it is made.

    Parameters
    ----------
    algorithm : {"cd", "pcd"}
        Contrastive divergence, or persistent contrastive divergence.
    steps : int
        Gibbs steps of each update.
    n_updates : int
        Number of updates.
    batch_size : int or None
        Rows of data of each update; None for 100, or all rows if there are fewer.
    learning_rate : float
        Step size of the first update.
    linear_decay : bool
        Whether the step size falls linearly, to ``learning_rate / n_updates`` at the last update.
    weight_decay : float
        Strength of the penalty ``weight_decay / 2 * sum(W**2)``.
    n_chains : int or None
        Number of persistent chains; None for as many as rows of a batch.
    """

    algorithm: str = "cd"
    steps: int = 1
    n_updates: int = 10_000
    batch_size: int | None = None
    learning_rate: float = 0.05
    linear_decay: bool = False
    weight_decay: float = 0.0
    n_chains: int | None = None

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
                "contrastive divergence runs one chain from each row of a batch."
            )

    def rate(self, update: int) -> float:
        """Return the step size of an update, counted from 0."""
        return self.learning_rate * (1.0 - self.linear_decay * update / self.n_updates)

    def rows(self, n_rows: int) -> int:
        """Return the number of rows of a batch.

        Raises
        ------
        ValueError
            If a batch would have more rows than the data.
        """
        size = min(_BATCH, n_rows) if self.batch_size is None else self.batch_size
        if size > n_rows:
            raise ValueError(
                f"batch_size must be at most the number of rows of data, {n_rows:,}, got {size}; "
                "pass fewer."
            )
        return size


def binary_rows(data: Any) -> NDArray[np.uint8]:
    """Return binary data as uint8, shape ``(n_rows, n_visible)``.

    Parameters
    ----------
    data : array_like, shape (n_rows, n_visible)
        Numbers or booleans; only 0 and 1.

    Raises
    ------
    ValueError
        If it has another shape, no entries, or any other value.
    """
    array = plain_array("data", data)
    if array.dtype.kind not in "biuf":
        raise ValueError(
            f"data must hold numbers 0 and 1, got {described(data)}; convert it with "
            ".astype(float), or look for entries that are not numbers."
        )
    if array.ndim != 2 or array.size == 0:
        raise ValueError(
            f"data must have one row for each observation, got an array of shape {array.shape}; "
            "images, for example, need data.reshape(len(data), -1)."
        )
    if not ((array == 0) | (array == 1)).all():
        low, high = array.min(), array.max()
        if not np.isfinite([low, high]).all():
            remedy = "leave out or fill the entries that are not finite"
        else:
            rule = _SPINS if low < 0 else _SHARES if high <= 1 else _BYTES
            remedy = f"binarise them, {rule}"
        raise ValueError(
            f"data must hold 0 and 1 only, got values from {low:g} to {high:g}; {remedy}."
        )
    return np.ascontiguousarray(array, np.uint8)


def train(
    data: NDArray[np.uint8],
    n_hidden: int,
    training: Training,
    seed: np.random.SeedSequence,
    report: Callable[[int], None],
) -> RBM:
    """Return the machine after training, with the data that it was trained on.

    Parameters
    ----------
    data : ndarray of uint8, shape (n_rows, n_visible)
        From ``binary_rows``.
    n_hidden : int
        Number of hidden units.
    training : Training
        Settings.
    seed : SeedSequence
        Seed of all random numbers.
    report : callable
        Called with the number of finished updates, after every 50 of them and at the end.

    Raises
    ------
    ValueError
        If a batch would have more rows than ``data``.
    NumericalError
        If the weights are no longer finite.

    Notes
    -----
    The gradient of the mean log likelihood is the mean of ``v h'`` over the data less that over the
    model. Contrastive divergence replaces the second mean by that of Gibbs chains that start at the
    batch and run for ``steps`` steps (Hinton 2002); persistent contrastive divergence by
    that of chains that continue over updates (Tieleman 2008). In both means hidden units enter
    with their probabilities, given visible units that are 0 or 1. Weights begin at small normal
    numbers, hidden biases at 0 and visible biases at the log odds of the data (Hinton 2010,
    section 8).
    """
    size, rng = training.rows(len(data)), np.random.default_rng(seed)
    rbm = _Singles.start(data, n_hidden, rng)
    chains = None
    if training.algorithm == "pcd":
        n_chains = size if training.n_chains is None else training.n_chains
        chains = data[rng.integers(len(data), size=n_chains)].astype(np.float32)
    batches = _batches(len(data), size, rng)
    for update in range(training.n_updates):
        batch = data[next(batches)].astype(np.float32)
        with np.errstate(over="ignore", invalid="ignore"):  # found by the check below
            drawn = rbm.gibbs(batch if chains is None else chains, training.steps, rng)
            rbm.climb(rbm.gradient(batch, drawn), training.rate(update), training.weight_decay)
        if chains is not None:
            chains = drawn
        done = update + 1
        if done % REPORT_EVERY == 0 or done == training.n_updates:
            rbm.check(done, training.learning_rate)
            report(done)
    W, a, b = (x.astype(np.float64) for x in (rbm.weights, rbm.visible, rbm.hidden))
    return RBM(W, a, b, data=data)


@dataclass(frozen=True)
class _Singles:
    """Parameters in single precision, which an update overwrites.

    Parameters
    ----------
    weights : ndarray of float32, shape (n_visible, n_hidden)
    visible : ndarray of float32, shape (n_visible,)
    hidden : ndarray of float32, shape (n_hidden,)
    """

    weights: Singles
    visible: Singles
    hidden: Singles

    @classmethod
    def start(cls, data: NDArray[np.uint8], n_hidden: int, rng: np.random.Generator) -> "_Singles":
        """Return the parameters before the first update."""
        n_rows, n_visible = data.shape
        ones = data.sum(axis=0, dtype=np.int64) + 0.5  # finite log odds of units that never change
        return cls(
            rng.normal(0.0, _FIRST_SD, size=(n_visible, n_hidden)).astype(np.float32),
            np.log(ones / (n_rows + 1.0 - ones)).astype(np.float32),
            np.zeros(n_hidden, np.float32),
        )

    def hidden_probability(self, v: Singles) -> Singles:
        """Return the probabilities of hidden units, shape ``(n, n_hidden)``."""
        probability: Singles = 1.0 / _inverse_probability(v @ self.weights + self.hidden)
        return probability

    def gibbs(self, v: Singles, steps: int, rng: np.random.Generator) -> Singles:
        """Return visible units after steps that draw all hidden and then all visible units."""
        for _ in range(steps):
            h = _bernoulli(v @ self.weights + self.hidden, rng)
            v = _bernoulli(h @ self.weights.T + self.visible, rng)
        return v

    def gradient(self, batch: Singles, drawn: Singles) -> "_Singles":
        """Return the estimated gradient of the mean log likelihood, in nats.

        Parameters
        ----------
        batch : ndarray of float32, shape (n_rows, n_visible)
            Rows of the data.
        drawn : ndarray of float32, shape (n_chains, n_visible)
            Draws from the model.
        """
        of_data, of_model = self.hidden_probability(batch), self.hidden_probability(drawn)
        n_rows, n_chains = np.float32(len(batch)), np.float32(len(drawn))
        return _Singles(
            batch.T @ of_data / n_rows - drawn.T @ of_model / n_chains,
            batch.mean(axis=0) - drawn.mean(axis=0),
            of_data.mean(axis=0) - of_model.mean(axis=0),
        )

    def climb(self, gradient: "_Singles", rate: float, weight_decay: float) -> None:
        """Add a gradient times a step size, and shrink the weights."""
        weights, step = self.weights, np.float32(rate)
        if weight_decay:
            weights *= np.float32(1.0 - rate * weight_decay)
        for own, change in (
            (weights, gradient.weights),
            (self.visible, gradient.visible),
            (self.hidden, gradient.hidden),
        ):
            own += step * change

    def check(self, done: int, learning_rate: float) -> None:
        """Raise NumericalError if a parameter is not finite."""
        if not all(np.isfinite(x).all() for x in (self.weights, self.visible, self.hidden)):
            raise NumericalError(
                f"learning_rate must be small enough to keep the weights finite, got "
                f"{learning_rate:g}, with which they are not after {done} updates; pass a smaller "
                "one."
            )


def _batches(n_rows: int, size: int, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    """Yield rows of batches without end; a row is in one batch of an epoch, or left out of it."""
    while True:
        order = rng.permutation(n_rows)
        for start in range(0, n_rows - size + 1, size):
            yield order[start : start + size]


def _inverse_probability(field: Singles) -> Singles:
    """Return ``1 + exp(-field)``, in place; infinite where a probability underflows."""
    np.negative(field, out=field)
    with np.errstate(over="ignore"):
        np.exp(field, out=field)
    field += np.float32(1.0)
    return field


def _bernoulli(field: Singles, rng: np.random.Generator) -> Singles:
    """Return units that are 1 with the probabilities ``1 / (1 + exp(-field))``, in place."""
    n = field.size
    # two uniform numbers from 64 bits: four times as fast as random(dtype=float32); their offset
    # keeps an infinite inverse probability from being multiplied by zero
    words = rng.integers(0, 2**64, size=(n + 1) // 2, dtype=np.uint64).view(np.uint32)[:n]
    uniform = words.reshape(field.shape).astype(np.float32)
    uniform += np.float32(0.5)
    uniform *= np.float32(2.0**-32)
    uniform *= _inverse_probability(field)
    np.less(uniform, np.float32(1.0), out=field)
    return field
