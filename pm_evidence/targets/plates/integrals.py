"""Integrals over the elements of a plate, for many points and all elements at once.

Every rule places nodes, evaluates the density of each element there, and returns the log of the
sum with the weight of each node. The weights give the gradient by Fisher's identity, and draws.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pm_evidence.targets.plates.programs import PlateProgram

Floats = NDArray[np.float64]

# Nodes of the trapezoidal rule at first. Densities below exp(-_DEEP) of the peak are left out: of a
# normal density, the two tails beyond six standard deviations.
_NODES, _DEEP = 33, 25.0
# Most halvings of the window, or doublings of it or of the nodes, and most nodes.
_MOST_STEPS, _MOST_NODES = 40, 1025
# The prior is covered out to so many scales at first.
_REACH = 7.0
# Largest change of an integral by the halving of the number of nodes, in nats. The error is about
# its square; derivatives by differences of gradients need it as small.
_TOLERANCE = 1e-4
# Gradients use every second node where the change is smaller than this.
_ENOUGH = 1e-7
# Sums over counts start with so many terms, and end with at most so many.
_COUNTS, _MOST_COUNTS = 32, 8192


@dataclass(frozen=True, eq=False)
class Nodes:
    """The nodes of an integral for some points.

    Parameters
    ----------
    log_integral : ndarray, shape (n, n_elements)
        In nats.
    error : ndarray, shape (n, n_elements)
        Its estimated error in nats; infinite where the rule did not settle.
    nodes : ndarray, shape (n, m, n_elements, n_coordinates)
        Values of the coordinates.
    weight : ndarray, shape (n, m, n_elements)
        Share of each node in the integral; the sums over nodes are 1.
    step : ndarray, shape (n, n_elements)
        Distance between nodes, 0 where nodes are all the values that there are.
    log_slope : ndarray, shape (n, m, n_elements), or None
        Of continuous coordinates, the log of the derivative with respect to the scale of equal
        distances.
    """

    log_integral: Floats
    error: Floats
    nodes: Floats
    weight: Floats


class Rule(Protocol):
    """How the elements of a plate are integrated."""

    program: PlateProgram

    def integrate(self, x: Floats) -> list[tuple[NDArray[np.int64], Nodes]]:
        """Return nodes for the rows of ``x``, in groups of rows."""
        ...


def rule_of(program: PlateProgram, points: Floats) -> "Sum | Counts | NormalRule | Quadrature":
    """Return the rule for a plate.

    Parameters
    ----------
    program : PlateProgram
        The density of the elements.
    points : ndarray, shape (n, n_dim)
        Points at which it is tried whether log densities are quadratic.
    """
    if program.plate.rule == "sum":
        return Sum.of(program)
    if program.plate.rule == "counts":
        return Counts(program)
    return NormalRule(program) if is_quadratic(program, points) else Quadrature(program)


def _weights(log_terms: Floats) -> tuple[Floats, Floats]:
    """Return the log of the sum over nodes, shape ``(n, n_elements)``, and the share of each."""
    top = log_terms.max(axis=1, keepdims=True)
    finite = np.isfinite(top)
    with np.errstate(all="ignore"):
        share = np.where(finite, np.exp(log_terms - np.where(finite, top, 0.0)), 0.0)
        total = share.sum(axis=1, keepdims=True)
        share /= np.where(total > 0.0, total, 1.0)
        return (np.where(finite, top, -np.inf) + np.log(total))[:, 0], share


@dataclass(frozen=True, eq=False)
class Sum:
    """The sum over all joint values of discrete coordinates.

    Parameters
    ----------
    program : PlateProgram
        The density of the elements.
    values : ndarray, shape (m, n_elements, n_coordinates)
        All joint values; those that an element lacks repeat its first ones.
    lacks : ndarray of bool, shape (m, n_elements)
        Which these are.
    """

    program: PlateProgram
    values: Floats
    lacks: NDArray[np.bool_]

    @classmethod
    def of(cls, program: PlateProgram) -> "Sum":
        """Return the rule for a plate whose coordinates have bounds."""
        lower = program.plate.lower
        sizes = (program.plate.upper - lower + 1).astype(np.int64)
        number = sizes.prod(axis=1)
        k = np.arange(number.max())[:, None]
        lacks = k >= number
        rest, values = np.where(lacks, 0, k), np.empty((*lacks.shape, sizes.shape[1]))
        for c in range(sizes.shape[1]):
            values[..., c] = rest % sizes[:, c] + lower[:, c]
            rest = rest // sizes[:, c]
        return cls(program, values, lacks)

    def integrate(self, x: Floats) -> list[tuple[NDArray[np.int64], Nodes]]:
        """Return all values with their shares."""
        nodes = np.broadcast_to(self.values, (len(x), *self.values.shape))
        log_terms = np.where(self.lacks, -np.inf, self.program.values(x, nodes))
        total, weight = _weights(log_terms)
        return [(np.arange(len(x)), Nodes(total, np.zeros(total.shape), nodes, weight))]


@dataclass(frozen=True, eq=False)
class Counts:
    """The sum over counts without a bound, until the tail is negligible.

    The tail is bounded by that of a geometric series with the ratio of the last two terms, which
    decreases for all usual distributions of counts.
    """

    program: PlateProgram

    def integrate(self, x: Floats) -> list[tuple[NDArray[np.int64], Nodes]]:
        """Return counts with their shares."""
        m, rows, found = _COUNTS, np.arange(len(x)), list[tuple[NDArray[np.int64], Nodes]]()
        lower = self.program.plate.lower
        while rows.size:
            values = lower + np.arange(m)[:, None, None]
            nodes = np.broadcast_to(values, (len(rows), *values.shape))
            log_terms = self.program.values(x[rows], nodes)
            total, weight = _weights(log_terms)
            with np.errstate(all="ignore"):
                ratio = np.exp(log_terms[:, -1] - log_terms[:, -2])
                tail = np.where(ratio < 1.0, weight[:, -1] * ratio / (1.0 - ratio), np.inf)
            tail[(weight[:, -1] == 0.0) & (weight[:, : m // 2].sum(axis=1) > 0.0)] = 0.0
            settled = (tail < 1e-12) | (m >= _MOST_COUNTS) | ~np.isfinite(total)
            done = settled.all(axis=1)
            if done.any():
                part = total[done], tail[done], nodes[done], weight[done]
                found.append((rows[done], Nodes(*part)))
            rows, m = rows[~done], 2 * m
        return found


def is_quadratic(program: PlateProgram, points: Floats) -> bool:
    """Return whether the log density of every element is quadratic, tried at some points."""
    if program.plate.positions.shape[1] != 1 or program.is_heavy:
        return False
    location, scale = (each[..., 0] for each in program.places(points))
    steps = np.array([-1.0, 0.0, 1.0, -3.1, 0.37, 2.3])
    nodes = location[:, None] + scale[:, None] * steps[:, None]
    f = program.values(points, nodes[..., None])
    if not np.isfinite(f).all():
        f = f[np.isfinite(f).all(axis=(1, 2))]
        if not len(f):
            return False
    a, b, c = _parabola(f[:, 0], f[:, 1], f[:, 2])
    t = steps[3:, None]
    predicted = a[:, None] + b[:, None] * t + c[:, None] * t**2
    size = np.abs(f).max(axis=1, keepdims=True) + 1.0
    return bool((np.abs(f[:, 3:] - predicted) <= 1e-9 * size).all() and (c < 0.0).all())


def _parabola(low: Floats, middle: Floats, high: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the coefficients of the parabola through values at -1, 0 and 1."""
    return middle, 0.5 * (high - low), 0.5 * (high + low) - middle


@dataclass(frozen=True, eq=False)
class NormalRule:
    """The integral of the exponential of a quadratic function, from three values of it.

    The three are placed about the peak again, because rounding is smaller there. Two nodes give the
    mean of any quadratic function exactly, and so the gradient.
    """

    program: PlateProgram

    def integrate(self, x: Floats) -> list[tuple[NDArray[np.int64], Nodes]]:
        """Return two nodes, of equal weights, about the mean of every element."""
        middle, step = (each[..., 0] for each in self.program.places(x))
        steps = np.array([-1.0, 0.0, 1.0])[:, None]
        with np.errstate(all="ignore"):
            for _ in range(2):
                nodes = middle[:, None] + step[:, None] * steps
                f = self.program.values(x, nodes[..., None])
                a, b, c = _parabola(f[:, 0], f[:, 1], f[:, 2])
                top, spread = -b / (2 * c), 1 / np.sqrt(-2 * c)
                total = a - b**2 / (4 * c) + np.log(step * spread) + 0.5 * np.log(2 * np.pi)
                middle, step = middle + step * top, step * spread
                if (spread > 1e-3).all() and (np.abs(top) < 1e3).all():
                    break
            total = np.where(np.isfinite(total), total, -np.inf)
            nodes = middle[:, None] + step[:, None] * np.array([-1.0, 1.0])[:, None]
        weight = np.where(np.isfinite(nodes), 0.5, 0.0)
        nodes = np.where(np.isfinite(nodes), nodes, 0.0)[..., None]
        return [(np.arange(len(x)), Nodes(total, np.zeros(total.shape), nodes, weight))]


@dataclass(frozen=True, eq=False)
class Quadrature:
    """The trapezoidal rule about all modes of an element.

    Its error falls exponentially with the number of nodes for smooth densities. Nodes cover the
    prior at first, then the interval in which the density is not negligible, which grows or shrinks
    until it holds the density and the sum over every second node is nearly the same: the error of
    the sum over all nodes is about the square of this difference.

    Parameters
    ----------
    program : PlateProgram
        The density of the elements.
    finer : int
        By how many times more nodes are used at first.
    """

    program: PlateProgram
    finer: int = 1

    def integrate(self, x: Floats) -> list[tuple[NDArray[np.int64], Nodes]]:
        """Return nodes for the rows of ``x``, in groups that settled at the same number of nodes."""
        location, scale = (each[..., 0] for each in self.program.places(x))
        scale = np.where(np.isfinite(scale) & (scale > 0.0), scale, 1.0)
        n, n_elements = location.shape
        m = self.finer * (_NODES - 1) + 1
        low, high = np.full((n, n_elements), -_REACH), np.full((n, n_elements), _REACH)
        rows, found = np.arange(n), list[tuple[NDArray[np.int64], Nodes]]()
        for step in range(_MOST_STEPS):
            z = low[rows, None] + (high - low)[rows, None] * np.linspace(0.0, 1.0, m)[:, None]
            u, log_slope = self._mapped(z)
            u = location[rows, None] + scale[rows, None] * u
            log_terms = self.program.values(x[rows], u[..., None])
            log_terms = log_terms + log_slope
            total, weight = _weights(log_terms)
            half = 2.0 * weight[:, ::2].sum(axis=1)
            log_step = np.log(scale * (high - low) / (m - 1))[rows]
            total = total + log_step
            change = np.abs(half - 1.0)
            top = log_terms.max(axis=1)
            with np.errstate(all="ignore"):
                at_low = log_terms[:, 0] - top > -_DEEP + 2.0
                at_high = log_terms[:, -1] - top > -_DEEP + 2.0
            nothing = ~np.isfinite(top)
            settled = ((change < _TOLERANCE / self.finer) & ~at_low & ~at_high) | nothing
            done = settled.all(axis=1)
            last = step == _MOST_STEPS - 1
            if last or m > _MOST_NODES:
                done[:] = True
            if done.any():
                error = np.where(settled, change**2, np.inf)
                part = total[done], error[done], u[done][..., None], weight[done]
                found.append((rows[done], Nodes(*part)))
            rows, left = rows[~done], ~done
            if not rows.size:
                break
            resolved = self._narrowed(
                low, high, rows, z[left], log_terms[left], top[left],
                at_low[left], at_high[left], settled[left],
            )
            if not resolved:
                m = 2 * m - 1
        return found

    def _narrowed(
        self, low: Floats, high: Floats, rows: Any, z: Floats, log_terms: Floats, top: Floats,
        at_low: Any, at_high: Any, settled: Any,
    ) -> bool:
        """Move the ends of the windows; return whether all that need it become much narrower."""
        m = z.shape[1]
        with np.errstate(all="ignore"):
            counts = log_terms - top[:, None] > -_DEEP
        first = counts.argmax(axis=1)
        final = m - 1 - counts[:, ::-1].argmax(axis=1)
        width = z[:, -1] - z[:, 0]
        start = np.take_along_axis(z, np.maximum(first - 1, 0)[:, None], 1)[:, 0]
        stop = np.take_along_axis(z, np.minimum(final + 1, m - 1)[:, None], 1)[:, 0]
        start = np.where(at_low, z[:, 0] - width, start)
        stop = np.where(at_high, z[:, -1] + width, stop)
        moved = ~settled
        low[rows], high[rows] = (
            np.where(moved, start, low[rows]),
            np.where(moved, stop, high[rows]),
        )
        finer = (stop - start) < 0.75 * width
        return bool((finer | at_low | at_high)[moved].all())

    def _mapped(self, z: Floats) -> tuple[Floats, Any]:
        """Return values in units of the scale, and the log of their derivative."""
        if not self.program.is_heavy:
            return z, 0.0
        return 3.0 * np.sinh(z / 3.0), np.log(np.cosh(z / 3.0))


def gradient_of(program: PlateProgram, x: Floats, found: Nodes) -> Floats:
    """Return the gradient of the sum of the log integrals with respect to all free variables."""
    nodes, weight = found.nodes, found.weight
    if weight.shape[1] % 2 and program.plate.rule == "quadrature" and (found.error < _ENOUGH**2).all():
        half = weight[:, ::2]
        nodes, weight = nodes[:, ::2], half / half.sum(axis=1, keepdims=True)
    # where a density is negligible, its derivatives may not be finite
    best = np.take_along_axis(nodes, weight.argmax(axis=1)[:, None, :, None], axis=1)
    negligible = weight < 1e-12
    nodes = np.where(negligible[..., None], best, nodes)
    return program.gradient(x, nodes, np.where(negligible, 0.0, weight))


def drawn(found: Nodes, rule: Any, rng: np.random.Generator) -> Floats:
    """Return a draw of the coordinates of every element, shape ``(n, n_elements, n_coordinates)``."""
    n, m, n_elements = found.weight.shape
    if isinstance(rule, NormalRule):
        centre = found.nodes.mean(axis=1)
        spread = 0.5 * np.abs(found.nodes[:, 1] - found.nodes[:, 0])
        return centre + spread * rng.standard_normal(centre.shape)
    uniform = rng.random((n, n_elements))
    nodes, weight = found.nodes, found.weight
    if isinstance(rule, Quadrature):
        nodes, weight = _dense(nodes[..., 0], weight)
        nodes = nodes[..., None]
    cumulated = np.cumsum(weight, axis=1)
    k = (cumulated < uniform[:, None] * cumulated[:, -1:]).sum(axis=1)
    k = np.minimum(k, weight.shape[1] - 1)
    found_at = np.take_along_axis(nodes, k[:, None, :, None], axis=1)[:, 0]
    if isinstance(rule, Quadrature):
        width = np.abs(nodes[:, 1, :, 0] - nodes[:, 0, :, 0])[..., None]
        found_at = found_at + width * (rng.random(found_at.shape) - 0.5)
    return found_at


def _dense(nodes: Floats, weight: Floats, n_between: int = 8) -> tuple[Floats, Floats]:
    """Return nodes and weights with further nodes between, by cubic interpolation of the log."""
    with np.errstate(all="ignore"):
        log_weight = np.maximum(np.log(weight), -60.0)
    left, right = log_weight[:, :-1], log_weight[:, 1:]
    before = np.concatenate([2 * left[:, :1] - right[:, :1], left[:, :-1]], axis=1)
    after = np.concatenate([right[:, 1:], 2 * right[:, -1:] - left[:, -1:]], axis=1)
    t = (np.arange(n_between) / n_between)[:, None]
    shape = (*left.shape[:2], n_between, left.shape[2])
    p0, p1, p2, p3 = (each[:, :, None] for each in (before, left, right, after))
    value = p1 + 0.5 * t * (
        p2 - p0 + t * (2 * p0 - 5 * p1 + 4 * p2 - p3 + t * (3 * (p1 - p2) + p3 - p0))
    )
    between = nodes[:, :-1, None] + (nodes[:, 1:] - nodes[:, :-1])[:, :, None] * t
    flat = len(nodes), shape[1] * n_between, shape[3]
    return between.reshape(flat), np.exp(value).reshape(flat)
