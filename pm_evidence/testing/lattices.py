"""Exact log Z of Ising and Potts lattices: Kaufman's formula, transfer matrices, enumeration.

Everything is float64 and in nats. Log Z is the logarithm of the sum over states of
``exp(-beta E)``; take the target's ``log_n_states`` off for the value relative to the uniform
distribution.
"""

from dataclasses import dataclass
from itertools import product
from math import log, log1p, pi, sin, sinh, sqrt, tanh
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from pm_evidence.families.lattice.target import Ising, Potts

Floats = NDArray[np.float64]

_LARGEST_ENUMERATION = 2**20
_LARGEST_ROW = 2_000_000


def kaufman(shape: tuple[int, int], coupling: float) -> float:
    """Return log Z of the periodic Ising lattice in no field.

    Kaufman (1949), Eq. 33 of Beale (1996). The four products are summed in log space; the angles
    ``gamma`` come from ``cosh(gamma) - 1``, which loses no digits at the critical point.
    """
    if not coupling > 0.0:
        raise ValueError(
            f"coupling must be above 0 in Kaufman's formula, got {coupling!r}; log Z is that of "
            "the opposite sign on a lattice of even sizes, and n log 2 at 0."
        )
    rows, columns = shape
    s = sinh(2.0 * coupling)
    gamma = [2.0 * coupling + log(tanh(coupling))]  # keeps its sign
    for k in range(1, 2 * columns):
        d = (1.0 - s) ** 2 / s + 2.0 * sin(0.5 * pi * k / columns) ** 2
        gamma.append(log1p(d + sqrt(d * (d + 2.0))))
    half = 0.5 * rows * np.array(gamma)
    with np.errstate(divide="ignore"):
        log_2cosh = np.abs(half) + np.log1p(np.exp(-2.0 * np.abs(half)))
        log_2sinh = np.abs(half) + np.log(-np.expm1(-2.0 * np.abs(half)))
    terms = [log_2cosh[1::2], log_2sinh[1::2], log_2cosh[::2], log_2sinh[::2]]
    sums = np.array([term.sum() for term in terms])
    # above the critical temperature the last two nearly cancel, next to the first two
    scaled = np.exp(sums - sums.max()) * [1.0, 1.0, 1.0, -1.0 if half[0] < 0.0 else 1.0]
    log_sum = sums.max() + log(scaled.sum())
    return float(0.5 * rows * columns * log(2.0 * s) + log_sum - log(2.0))


def transfer_matrix(target: Ising | Potts, beta: float = 1.0) -> float:
    """Return log Z of a narrow two-dimensional lattice, free or periodic, in a field or not.

    Sites are added one by one. Periodic lattices need a pass for each first row; without a field,
    rows that differ by a renaming of colours or a symmetry of the row share one. Exact.
    """
    if len(target.sizes) != 2 or target.n_colours ** target.sizes[1] > _LARGEST_ROW:
        raise ValueError(
            "target must have two dimensions, and at most two million states a row, got sizes "
            f"{target.sizes} with {target.n_colours} colours; make the last size smaller."
        )
    bond, site, constant = _colour_form(target, beta)
    q, (rows, columns) = target.n_colours, target.sizes
    states = (q,) * columns
    like = np.zeros(states)
    colours = np.indices(states, dtype=np.int8)
    for k in range(columns - 1 + target.periodic):
        like += colours[k] == colours[(k + 1) % columns]
    log_row = bond * like + sum(site[colours[k]] for k in range(columns))
    shift = float(log_row.max())
    row = np.exp(log_row - shift)

    def step(v: Floats) -> Floats:
        for axis in range(columns):
            v = np.expm1(bond) * v + v.sum(axis=axis, keepdims=True)
        return v * row

    def after(v: Floats, n_rows: int, log_scale: float) -> tuple[Floats, float]:
        for _ in range(n_rows):
            v = step(v)
            log_scale += shift + log(v.max())
            v = v / v.max()
        return v, log_scale

    if not target.periodic:
        v, log_scale = after(row, rows - 1, shift)
        return float(log(v.sum()) + log_scale + constant)
    total = []
    for first, count in _first_rows(q, columns, symmetric=not site.any()).items():
        start = np.zeros(states)
        start[first] = 1.0
        v, log_scale = after(start, rows, 0.0)
        total.append(log(v[first]) + log_scale + log(count))
    return float(logsumexp(total) + constant)


def _colour_form(target: Ising | Potts, beta: float) -> tuple[float, Floats, float]:
    """Return log weights of a like bond and of a site by colour, and their common constant."""
    if isinstance(target, Potts):
        return beta * target.coupling, np.zeros(target.q), 0.0
    # x_i x_j = 2 delta - 1
    constant = -beta * (target.coupling * target.n_bonds + target.field * target.n_dim)
    site = np.array([0.0, 2.0 * beta * target.field])
    return 2.0 * beta * target.coupling, site, constant


def _first_rows(q: int, length: int, *, symmetric: bool) -> dict[tuple[int, ...], int]:
    """Return rows and how many rows each stands for."""
    if not symmetric:
        return dict.fromkeys(product(range(q), repeat=length), 1)
    counts: dict[tuple[int, ...], int] = {}
    rows: list[tuple[int, ...]] = [()]
    for _ in range(length):
        rows = [(*row, c) for row in rows for c in range(min(max(row, default=-1) + 2, q))]
    for row in rows:
        turned = [row[k:] + row[:k] for k in range(length)]
        turned += [other[::-1] for other in turned]
        least = min(_renamed(other) for other in turned)
        names = 1
        for used in range(max(row) + 1):
            names *= q - used
        counts[least] = counts.get(least, 0) + names
    return counts


def _renamed(row: tuple[int, ...]) -> tuple[int, ...]:
    """Return a row with its colours numbered in the order of their appearance."""
    names: dict[int, int] = {}
    return tuple(names.setdefault(c, len(names)) for c in row)


@dataclass(frozen=True)
class Enumeration:
    """All states of a tiny lattice."""

    draws: NDArray[np.int8]  # shape (n_states, *sizes): in the target's own coordinates
    energy: Floats  # shape (n_states,): energies in nats at beta 1

    def log_z(self, beta: float = 1.0) -> float:
        """Return log Z, not relative to the uniform distribution."""
        return float(logsumexp(-beta * self.energy))

    def probability(self, beta: float = 1.0) -> Floats:
        """Return the probability of every state."""
        log_weight = -beta * self.energy
        probability: Floats = np.exp(log_weight - logsumexp(log_weight))
        return probability

    def index(self, draws: NDArray[Any]) -> NDArray[np.int64]:
        """Return which state each draw is."""
        values = np.unique(self.draws)
        digits = np.searchsorted(values, draws.reshape(len(draws), -1))
        n_sites = digits.shape[1]
        found: NDArray[np.int64] = digits @ (len(values) ** np.arange(n_sites)[::-1])
        return found


def enumeration(target: Ising | Potts) -> Enumeration:
    """Return all states of a lattice with at most about a million.

    The energies are summed bond by bond, by other code than the targets' own.
    """
    n_states = target.n_colours**target.n_dim
    if n_states > _LARGEST_ENUMERATION:
        raise ValueError(
            f"target must have at most {_LARGEST_ENUMERATION} states, got {n_states}; take a "
            "smaller shape."
        )
    colours = np.array(list(product(range(target.n_colours), repeat=target.n_dim)), np.int8)
    ising = isinstance(target, Ising)
    draws = (2 * colours - 1 if ising else colours).astype(np.int8)
    draws = draws.reshape(n_states, *target.sizes)
    energy = np.zeros(n_states)
    for axis, size in enumerate(target.sizes, start=1):
        other = np.roll(draws, -1, axis=axis)
        bonds = draws * other if ising else draws == other
        if not target.periodic:
            bonds = bonds.take(range(size - 1), axis=axis)
        energy -= target.coupling * bonds.reshape(n_states, -1).sum(axis=1, dtype=float)
    if isinstance(target, Ising):
        energy -= target.field * draws.reshape(n_states, -1).sum(axis=1, dtype=float)
    return Enumeration(draws, energy)
