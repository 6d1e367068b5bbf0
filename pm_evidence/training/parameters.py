"""The parameters of a machine in training: Gibbs steps, gradients, and updates."""

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.exceptions import NumericalError
from pm_evidence.families.rbm.moment_average import Machine
from pm_evidence.families.rbm.target import LARGEST, RBM

Singles = NDArray[np.float32]
# Standard deviation of the first weights (Hinton 2010, section 8).
_FIRST_SD = 0.01


class Parameters(Machine):
    """Parameters in single precision, which an update overwrites."""

    @classmethod
    def first(cls, data: NDArray[np.uint8], n_hidden: int, rng: np.random.Generator) -> Self:
        """Return the parameters before the first update."""
        n_rows, n_visible = data.shape
        ones = data.sum(axis=0, dtype=np.int64) + 0.5  # finite log odds of units that never change
        return cls(
            rng.normal(0.0, _FIRST_SD, size=(n_visible, n_hidden)).astype(np.float32),
            np.log(ones / (n_rows + 1.0 - ones)).astype(np.float32),
            np.zeros(n_hidden, np.float32),
        )

    def machine(self, **options: Any) -> RBM:
        """Return a machine with these parameters, in double precision."""
        W, a, b = (x.astype(np.float64) for x in self.arrays)
        return RBM(W, a, b, **options)

    def hidden_probability(self, v: Singles) -> Singles:
        """Return the probabilities of hidden units, shape ``(n, n_hidden)``."""
        probability: Singles = 1.0 / _inverse_probability(v @ self.W + self.hidden_bias)
        return probability

    def gibbs(self, v: Singles, steps: int, rng: np.random.Generator) -> Singles:
        """Return visible units after steps that draw all hidden and then all visible units."""
        for _ in range(steps):
            h = bernoulli(v @ self.W + self.hidden_bias, rng)
            v = bernoulli(h @ self.W.T + self.visible_bias, rng)
        return v

    def moments(self, v: Singles, weights: Singles | None = None) -> "Parameters":
        """Return means of ``v h'``, ``v`` and ``h``, in the place of the parameters they belong to.

        Hidden units enter with their probabilities.
        """
        h = self.hidden_probability(v)
        if weights is None:
            products: Singles = v.T @ h
            products /= np.float32(len(v))
            return Parameters(products, v.mean(axis=0), h.mean(axis=0))
        weighted: Singles = weights[:, None] * v
        return Parameters(weighted.T @ h, weights @ v, weights @ h)

    def gradient(self, batch: Singles, drawn: Singles, weights: Singles | None = None) -> Machine:
        """Return the estimated gradient of the mean log likelihood, in nats."""
        return self.moments(batch).plus(self.moments(drawn, weights), -1.0)

    def climb(self, gradient: Machine, rate: float, weight_decay: float) -> None:
        """Add a gradient times a step size, and shrink the weights."""
        weights, step = self.W, np.float32(rate)
        if weight_decay:
            weights *= np.float32(1.0 - rate * weight_decay)
        for own, change in zip(self.arrays, gradient.arrays, strict=True):
            own += step * change

    def check(self, done: int, learning_rate: float) -> None:
        """Raise NumericalError if a parameter is not finite, or too large for a machine."""
        if not all((np.abs(x) <= LARGEST).all() for x in self.arrays):
            raise NumericalError(
                f"learning_rate must be small enough to keep the weights below {LARGEST:g} nats, "
                f"got {learning_rate:g}, with which they are not after {done} updates; pass a "
                "smaller one."
            )


def _inverse_probability(field: Singles) -> Singles:
    """Return ``1 + exp(-field)``, in place; infinite where a probability underflows."""
    np.negative(field, out=field)
    with np.errstate(over="ignore"):
        np.exp(field, out=field)
    field += np.float32(1.0)
    return field


def bernoulli(field: Singles, rng: np.random.Generator) -> Singles:
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
