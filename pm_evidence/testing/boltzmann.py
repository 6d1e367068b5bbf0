"""Exact log Z and moments of restricted Boltzmann machines with one small layer.

The sum runs over all states of the smaller layer; units of the other layer are independent given
these, so that they are summed in closed form. Everything is float64 and in nats.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from pm_evidence.core.checks import described, float_array, real_number
from pm_evidence.families.rbm.target import checked_parameters, checked_states

Floats = NDArray[np.float64]

_MOST_SUMMED = 26  # units of the smaller layer: 2**26 states of 784 units take some minutes
_BLOCK_BITS = 8  # blocks of 256 states fit into the cache of a core
# A product of so many factors between 1 and 2 is finite; the logarithm is taken once for all.
_FACTORS = 512


@dataclass(frozen=True)
class BoltzmannMoments:
    """Exact moments of a restricted Boltzmann machine at one point of the geometric path.

    Parameters
    ----------
    log_z : float
        Log of the normalising constant, in nats.
    energy_mean, energy_variance : float
        Mean and variance of ``-d log f_beta / d beta``, in nats and square nats. Without a base
        this is the energy ``E(v, h)``; a base adds ``base . v``.
    visible : ndarray, shape (n_visible,)
        Probability that a visible unit is 1.
    hidden : ndarray, shape (n_hidden,)
        Probability that a hidden unit is 1.
    """

    log_z: float
    energy_mean: float
    energy_variance: float
    visible: Floats
    hidden: Floats


@dataclass(frozen=True)
class _Layers:
    """A machine at one point of the path, seen from the smaller layer ``s``.

    The density of ``s`` and the other layer ``t`` is
    ``exp(s_bias . s + t_bias . t + beta s' W t)``; ``s_slope`` and ``t_slope`` are the derivatives
    of the biases with respect to beta.
    """

    W: Floats
    s_bias: Floats
    t_bias: Floats
    s_slope: Floats
    t_slope: Floats
    beta: float

    def blocks(self) -> Iterator[tuple[Floats, Floats]]:
        """Yield states of the smaller layer and ``s' W``, 256 states or fewer at a time."""
        n = len(self.s_bias)
        low = min(n, _BLOCK_BITS)
        s = np.empty((2**low, n))
        s[:, :low] = _bits(np.arange(2**low), low)
        of_low = s[:, :low] @ self.W[:low]
        for number in range(2 ** (n - low)):
            s[:, low:] = _bits(np.array([number]), n - low)
            yield s, of_low + s[0, low:] @ self.W[low:]

    def log_weight(self, s: Floats, field: Floats) -> Floats:
        """Return the log of the sum over ``t``, for every state ``s``; ``field`` is on ``t``."""
        return s @ self.s_bias + _sum_softplus(field)


def exact_log_z(W: Any, a: Any, b: Any, beta: float = 1.0, base: Any = None) -> float:
    """Return log Z of a restricted Boltzmann machine, by summing over its smaller layer.

    Parameters
    ----------
    W : array_like, shape (n_visible, n_hidden)
        Weights.
    a, b : array_like, shape (n_visible,) and (n_hidden,)
        Biases of the visible and of the hidden units.
    beta : float
        Inverse temperature, or the point of the path, from 0 to 1 if there is a ``base``.
    base : array_like, shape (n_visible,), optional
        Visible biases of a base-rate model; zeros by default.

    Returns
    -------
    float
        ``log sum_vh f_beta(v, h)`` in nats, where units are 0 and 1 and ``log f_beta = (1 - beta)
        base . v + beta (a . v + b . h + v' W h)``.

    Raises
    ------
    ValueError
        If shapes do not match, an entry is not finite, or the smaller layer has more than 26
        units.

    Notes
    -----
    With hidden units in the smaller layer, Z is the sum over h of ``exp(b . h)`` times the product
    over i of ``1 + exp(a_i + (W h)_i)``. The path is the geometric one of Salakhutdinov and Murray
    (2008) between a base-rate model, with visible biases ``base``, and the machine, except that
    base-rate model and machine share the hidden units here. The sum over 2**20 states of 784 units
    takes 5 to 15 s; memory does not grow with the number of states.

    Examples
    --------
    >>> from pm_evidence.testing import exact_log_z, sine_rbm
    >>> round(exact_log_z(*sine_rbm(16, 12)), 9)
    22.551961061
    """
    layers = _layers(W, a, b, beta, base)
    tops = [
        logsumexp(layers.log_weight(s, layers.t_bias + layers.beta * drive))
        for s, drive in layers.blocks()
    ]
    return float(logsumexp(tops))


def exact_moments(W: Any, a: Any, b: Any, beta: float = 1.0, base: Any = None) -> BoltzmannMoments:
    """Return log Z, mean and variance of the energy, and the probabilities of all units.

    Parameters
    ----------
    W, a, b, beta, base
        As in `exact_log_z`.

    Returns
    -------
    BoltzmannMoments
        Exact up to rounding, at the point ``beta`` of the path of `exact_log_z`.

    Raises
    ------
    ValueError
        As `exact_log_z`.

    Notes
    -----
    Given the smaller layer, mean and variance of the energy are sums over independent units. Blocks
    are merged by the law of total variance, so that no large numbers are subtracted.

    Examples
    --------
    >>> from pm_evidence.testing import exact_moments, sine_rbm
    >>> moments = exact_moments(*sine_rbm(16, 12))
    >>> round(moments.energy_mean, 6), moments.hidden.shape
    (-5.942327, (12,))
    """
    layers = _layers(W, a, b, beta, base)
    total = _Moments(-np.inf, 0.0, 0.0, np.zeros(len(layers.s_bias)), np.zeros(len(layers.t_bias)))
    for s, drive in layers.blocks():
        total = total.merged(_part(layers, s, drive))
    units = (total.s, total.t) if _hidden_is_larger(np.shape(W)) else (total.t, total.s)
    return BoltzmannMoments(total.log_z, -total.mean, total.variance, *units)


def log_marginal(v: Any, W: Any, a: Any, b: Any) -> Floats:
    """Return ``log sum_h exp(-E(v, h))`` of visible states.

    The mean over data less `exact_log_z` is the average log likelihood.

    Parameters
    ----------
    v : array_like, shape (n, n_visible)
        States, of 0 and 1 or booleans.
    W, a, b : array_like
        As in `exact_log_z`.

    Returns
    -------
    ndarray, shape (n,)
        Logs of unnormalised probabilities, in nats.

    Raises
    ------
    ValueError
        If shapes do not match, a state is not binary, or a parameter is not finite.

    Examples
    --------
    >>> import numpy as np
    >>> from pm_evidence.testing import exact_log_z, log_marginal
    >>> rbm = np.zeros((3, 2)), np.zeros(3), np.zeros(2)
    >>> bool(np.isclose(log_marginal([[0, 1, 1]], *rbm) - exact_log_z(*rbm), -3 * np.log(2))[0])
    True
    """
    W, a, b = checked_parameters(W, a, b, ("a", "b"))
    states = checked_states("v", v, len(a))
    parts = np.array_split(states, max(1, len(states) // 1024))
    found: Floats = np.concatenate(
        [x @ a + _sum_softplus(x @ W + b) for x in (part.astype(np.float64) for part in parts)]
    )
    return found


def sine_rbm(n_visible: int, n_hidden: int) -> tuple[Floats, Floats, Floats]:
    """Return weights, visible and hidden biases of a machine without random numbers.

    ``W[i, j] = 0.8 sin(1 + 3 i + 7 j + 0.1 i j)``, ``a[i] = 0.3 cos(i)`` and
    ``b[j] = -0.2 sin(1 + j)``, with indices from 0. Log Z is 22.551961061038 nats for 16 x 12
    units, 36.804172283238 for 30 x 16, and 110.322726535573 for 100 x 20.

    Parameters
    ----------
    n_visible, n_hidden : int
        Number of units of each layer.

    Returns
    -------
    W : ndarray of float64, shape (n_visible, n_hidden)
        Weights.
    visible_bias : ndarray of float64, shape (n_visible,)
        Biases of the visible units.
    hidden_bias : ndarray of float64, shape (n_hidden,)
        Biases of the hidden units.

    Examples
    --------
    >>> from pm_evidence.testing import sine_rbm
    >>> [x.shape for x in sine_rbm(16, 12)]
    [(16, 12), (16,), (12,)]
    """
    i, j = np.arange(n_visible), np.arange(n_hidden)
    W = 0.8 * np.sin(1.0 + 3.0 * i[:, None] + 7.0 * j + 0.1 * i[:, None] * j)
    return W, 0.3 * np.cos(i), -0.2 * np.sin(1.0 + j)


@dataclass(frozen=True)
class _Moments:
    """Moments over a part of the states; ``mean`` and ``variance`` are of ``d log f / d beta``."""

    log_z: float
    mean: float
    variance: float
    s: Floats
    t: Floats

    def merged(self, other: "_Moments") -> "_Moments":
        """Return the moments over both parts."""
        log_z = float(np.logaddexp(self.log_z, other.log_z))
        p, q = np.exp(self.log_z - log_z), np.exp(other.log_z - log_z)
        between = p * q * (self.mean - other.mean) ** 2
        return _Moments(
            log_z,
            float(p * self.mean + q * other.mean),
            float(p * self.variance + q * other.variance + between),
            p * self.s + q * other.s,
            p * self.t + q * other.t,
        )


def _part(layers: _Layers, s: Floats, drive: Floats) -> _Moments:
    """Return the moments over one block of states."""
    field = layers.t_bias + layers.beta * drive
    log_weight = layers.log_weight(s, field)
    log_z = float(logsumexp(log_weight))
    weight = np.exp(log_weight - log_z)
    with np.errstate(over="ignore"):  # a probability of 0
        probability = 1.0 / (1.0 + np.exp(-field))
    slope = layers.t_slope + drive
    means = s @ layers.s_slope + (probability * slope).sum(axis=1)
    inside = (probability * (1.0 - probability) * slope**2).sum(axis=1)
    mean = weight @ means
    variance = weight @ (inside + (means - mean) ** 2)
    return _Moments(log_z, float(mean), float(variance), weight @ s, weight @ probability)


def _sum_softplus(field: Floats) -> Floats:
    """Return the sum over the last axis of ``log(1 + exp(field))``; ``field`` has two axes."""
    small = np.exp(-np.abs(field))
    small += 1.0
    total: Floats = np.maximum(field, 0.0).sum(axis=1)
    for start in range(0, field.shape[1], _FACTORS):
        total += np.log(np.multiply.reduce(small[:, start : start + _FACTORS], axis=1))
    return total


def _layers(W: Any, a: Any, b: Any, beta: float, base: Any) -> _Layers:
    """Return the checked machine at ``beta``, seen from its smaller layer."""
    W, a, b = checked_parameters(W, a, b, ("a", "b"))
    start = np.zeros_like(a) if base is None else float_array("base", base)
    if start.shape != a.shape or not np.isfinite(start).all():
        raise ValueError(
            f"base must have one finite number for each of the {len(a)} visible units, got "
            f"{described(base)}; leave it out for zeros."
        )
    number = real_number(beta)
    if number is None or not np.isfinite(number):
        raise ValueError(f"beta must be a finite number, got {described(beta)}; try 1.")
    if min(W.shape) > _MOST_SUMMED:
        raise ValueError(
            f"W must have at most {_MOST_SUMMED} visible or hidden units, so that their states can "
            f"be summed, got shape {W.shape}; estimate log Z of larger machines."
        )
    visible = (1.0 - number) * start + number * a, a - start
    hidden = number * b, b
    if _hidden_is_larger(W.shape):
        return _Layers(W, visible[0], hidden[0], visible[1], hidden[1], number)
    W = np.ascontiguousarray(W.T)
    return _Layers(W, hidden[0], visible[0], hidden[1], visible[1], number)


def _hidden_is_larger(shape: tuple[int, ...]) -> bool:
    return shape[1] > shape[0]


def _bits(numbers: NDArray[np.int64], n: int) -> Floats:
    """Return the lowest ``n`` bits of numbers, shape ``(len(numbers), n)``."""
    return ((numbers[:, None] >> np.arange(n)) & 1).astype(np.float64)
