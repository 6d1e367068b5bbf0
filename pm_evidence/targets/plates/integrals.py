"""Integrals over the elements of a plate, for many points and all elements at once.

Every rule places nodes, evaluates the density of each element there, and returns the log of the
sum with the weight of each node. The weights give the gradient by Fisher's identity, and draws.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from pm_evidence.targets.compile.numpy_graph import NotBatchedError
from pm_evidence.targets.plates.programs import PlateProgram

Floats = NDArray[np.float64]

# Fewest and most terms of a sum over counts, and the share of the tail at which it ends.
_COUNTS, _MOST_COUNTS, _TAIL = 32, 8192, 1e-12
# Parts of the interval about a node from which draws come, and largest number of numbers of all
# parts at once (memory).
_BETWEEN, _MOST_NUMBERS = 16, 16_000_000


@dataclass(frozen=True, eq=False)
class Nodes:
    """The nodes of an integral for some points."""

    log_integral: Floats  # shape (n, n_elements): in nats
    # shape (n, n_elements): its estimated error in nats; infinite where the rule did not settle
    error: Floats
    nodes: Floats  # shape (n, m, n_elements, n_coordinates): values of the coordinates
    # shape (n, m, n_elements): share of each node in the integral; the sums over nodes are 1
    weight: Floats
    # shape (n, m, n_elements): of continuous coordinates, at nodes in rising order, if these are
    # not even
    log_density: Floats | None = None
    even: bool = False  # whether nodes are those of the trapezoidal rule
    halved: bool = False  # whether every second node gives nearly the same
    # shape (n_elements,): where nodes are common, which of the distinct elements each element is;
    # the arrays above then hold the distinct ones
    same: NDArray[np.int64] | None = None

    @property
    def count(self) -> Floats:
        """How often each of the elements counts."""
        if self.same is None:
            return np.ones(self.log_integral.shape[1])
        return np.bincount(self.same).astype(float)

    def totals(self) -> tuple[Floats, Floats]:
        """Return the sums over elements of log integrals and of errors, each of shape ``(n,)``."""
        return self.log_integral @ self.count, self.error @ self.count

    def repeated(self, n: int) -> "Nodes":
        """Return the nodes of one point for ``n`` points that are the same."""
        return self._changed(lambda value: np.broadcast_to(value, (n, *value.shape[1:])))

    def part(self, rows: slice) -> "Nodes":
        """Return the nodes of some of the points."""
        return self._changed(lambda value: value[rows])

    def _changed(self, change: Callable[[Floats], Floats]) -> "Nodes":
        arrays = {each.name: getattr(self, each.name) for each in fields(self)}
        changed: dict[str, Any] = {
            name: change(value)
            for name, value in arrays.items()
            if isinstance(value, np.ndarray) and name != "same"
        }
        return replace(self, **changed)


class Rule(Protocol):
    """How the elements of a plate are integrated."""

    program: PlateProgram

    @property
    def n_elements(self) -> int:
        """Number of elements that are integrated."""
        ...

    @property
    def n_nodes(self) -> int:
        """About how many nodes an integral takes, each of which costs an evaluation."""
        ...

    def finer(self, n_points: int) -> Self:
        """Return a rule with more nodes, for a test at some points."""
        ...

    def integrate(self, x: Floats) -> list[tuple[NDArray[np.int64], Nodes]]:
        """Return nodes for the rows of ``x``, in groups of rows."""
        ...


def weights(log_terms: Floats) -> tuple[Floats, Floats]:
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
    """The sum over all joint values of discrete coordinates."""

    program: PlateProgram  # the density of the elements
    # shape (m, n_elements, n_coordinates): all joint values; those that an element lacks repeat its
    # first ones
    values: Floats
    lacks: NDArray[np.bool_]  # shape (m, n_elements): which these are

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

    @property
    def n_nodes(self) -> int:
        """Number of joint values."""
        return len(self.values)

    @property
    def n_elements(self) -> int:
        """Number of elements that are integrated."""
        return self.program.plate.n_elements

    def finer(self, n_points: int) -> Self:
        """Return the same rule, which has no error."""
        return self

    def integrate(self, x: Floats) -> list[tuple[NDArray[np.int64], Nodes]]:
        """Return all values with their shares."""
        nodes = np.broadcast_to(self.values, (len(x), *self.values.shape))
        log_terms = np.where(self.lacks, -np.inf, self.program.values(x, nodes))
        total, weight = weights(log_terms)
        return [(np.arange(len(x)), Nodes(total, np.zeros(total.shape), nodes, weight))]


@dataclass(frozen=True, eq=False)
class Counts:
    """The sum over counts without a bound, until the tail is negligible.

    The tail is bounded by that of a geometric series with the ratio of the last two terms, which
    decreases for all usual distributions of counts.
    """

    program: PlateProgram
    n_nodes: int = _COUNTS  # how many terms are summed first

    @classmethod
    def of(cls, program: PlateProgram, x: Floats) -> Self:
        """Return the rule that starts with as many terms as half of some points need.

        NotBatchedError is raised if the most terms are not enough for half of them.
        """
        found = [nodes for _, nodes in cls(program).integrate(x)]
        ended = [(np.isfinite(n.log_integral) & (n.error < _TAIL)).all(axis=1) for n in found]
        if 2 * np.concatenate(ended).sum() < len(x):
            raise NotBatchedError(f"sums over counts need more than {_MOST_COUNTS} terms")
        needed = sorted(n.weight.shape[1] for n in found for _ in n.weight)
        return cls(program, needed[len(needed) // 2])

    @property
    def n_elements(self) -> int:
        """Number of elements that are integrated."""
        return self.program.plate.n_elements

    def finer(self, n_points: int) -> Self:
        """Return the same rule, which has no error."""
        return self

    def integrate(self, x: Floats) -> list[tuple[NDArray[np.int64], Nodes]]:
        """Return counts with their shares."""
        m, rows, found = self.n_nodes, np.arange(len(x)), list[tuple[NDArray[np.int64], Nodes]]()
        lower = self.program.plate.lower
        while rows.size:
            values = lower + np.arange(m)[:, None, None]
            nodes = np.broadcast_to(values, (len(rows), *values.shape))
            log_terms = self.program.values(x[rows], nodes)
            total, weight = weights(log_terms)
            with np.errstate(all="ignore"):
                ratio = np.exp(log_terms[:, -1] - log_terms[:, -2])
                tail = np.where(ratio < 1.0, weight[:, -1] * ratio / (1.0 - ratio), np.inf)
            rises = log_terms[:, -1] > log_terms[:, -2]
            tail[(weight[:, -1] == 0.0) & (weight[:, : m // 2].sum(axis=1) > 0.0) & ~rises] = 0.0
            # where all terms are zero so far, as below a number that was seen, there may be more
            undefined = np.isnan(total) | (total == np.inf)
            settled = (tail < _TAIL) | (m >= _MOST_COUNTS) | undefined
            done = settled.all(axis=1)
            if done.any():
                part = total[done], tail[done], nodes[done], weight[done]
                found.append((rows[done], Nodes(*part)))
            rows, m = rows[~done], 2 * m
        return found


@dataclass(frozen=True, eq=False)
class NormalRule:
    """The integral of the exponential of a quadratic function, from a few values of it.

    Of ``k`` coordinates, 1 + k (k + 3) / 2 values give all coefficients. They are placed about the
    peak again, along axes in which the curvature is one, because rounding is smaller there. Two
    nodes on each axis give the mean of any quadratic function exactly, and so the gradient.
    """

    program: PlateProgram

    @property
    def n_nodes(self) -> int:
        """Number of values, about two places."""
        k = self.program.plate.positions.shape[1]
        return 2 * (1 + k * (k + 3) // 2)

    @property
    def n_elements(self) -> int:
        """Number of elements that are integrated."""
        return self.program.plate.n_elements

    def finer(self, n_points: int) -> Self:
        """Return the same rule, which has no error."""
        return self

    def integrate(self, x: Floats) -> list[tuple[NDArray[np.int64], Nodes]]:
        """Return nodes of equal weights on both sides of the mean of every element."""
        centre, scale = self.program.places(x)
        k = centre.shape[-1]
        axes = scale[..., None] * np.eye(k)  # shape (n, n_elements, k, k): in columns
        volume = np.log(scale).sum(axis=-1)
        first, second = np.triu_indices(k, 1)
        one = np.eye(k)
        steps = np.concatenate([np.zeros((1, k)), one, -one, one[first] + one[second]])
        with np.errstate(all="ignore"):
            for _ in range(2):
                nodes = centre[:, None] + np.einsum("neij,mj->nmei", axes, steps)
                f = np.moveaxis(self.program.values(x, nodes), 1, -1)
                middle, above, below = f[..., :1], f[..., 1 : k + 1], f[..., k + 1 : 2 * k + 1]
                slope, precision = 0.5 * (above - below), np.empty((*f.shape[:2], k, k))
                precision[..., range(k), range(k)] = 2.0 * middle - (above + below)
                mixed = above[..., first] + above[..., second] - f[..., 2 * k + 1 :] - middle
                precision[..., first, second] = precision[..., second, first] = mixed
                root = _inverse_root(precision)
                along = np.einsum("neij,nei->nej", root, slope)  # the peak, in the axes' lengths
                axes = axes @ root
                centre = centre + np.einsum("neij,nej->nei", axes, along)
                lengths = np.diagonal(root, axis1=-2, axis2=-1)
                volume = volume + np.log(lengths).sum(axis=-1)
                total = middle[..., 0] + 0.5 * (along**2).sum(axis=-1) + volume
                total = total + 0.5 * k * np.log(2 * np.pi)
                if (lengths > 1e-3).all() and (np.abs(root @ along[..., None]) < 1e3).all():
                    break
            total = np.where(np.isfinite(total), total, -np.inf)
            sides = np.sqrt(k) * np.concatenate([-one, one])
            nodes = centre[:, None] + np.einsum("neij,mj->nmei", axes, sides)
        known = np.isfinite(nodes).all(axis=(1, -1))[:, None]
        weight = np.where(known, np.full((2 * k, 1), 0.5 / k), 0.0)
        nodes = np.where(known[..., None], nodes, 0.0)
        return [(np.arange(len(x)), Nodes(total, np.zeros(total.shape), nodes, weight))]

    def drawn(self, found: Nodes, rng: np.random.Generator) -> Floats:
        """Return draws of the coordinates, shape ``(n, n_elements, n_coordinates)``."""
        centre, k = found.nodes.mean(axis=1), found.nodes.shape[-1]
        axes = (found.nodes[:, k:] - centre[:, None]) / np.sqrt(k)
        normal = rng.standard_normal(centre.shape)
        return np.asarray(centre + np.einsum("njei,nej->nei", axes, normal))


def _inverse_root(a: Floats) -> Floats:
    """Return triangular matrices ``w`` with ``w.T @ a @ w = 1``; NaN where ``a`` has no root."""
    k = a.shape[-1]
    root = np.zeros(a.shape)
    for j in range(k):
        column = np.broadcast_to(np.eye(k)[j], a.shape[:-1])
        for i in range(j):
            column = column - (root[..., i] * a[..., j]).sum(axis=-1, keepdims=True) * root[..., i]
        length = np.einsum("...i,...ij,...j", column, a, column)
        root[..., j] = column / np.sqrt(length)[..., None]
    return root


def gradient_of(program: PlateProgram, x: Floats, found: Nodes) -> Floats:
    """Return the gradient of the sum of the log integrals with respect to all free variables."""
    nodes, weight = found.nodes, found.weight
    if found.same is not None:
        weight = weight * found.count
    if found.halved:
        half, total = weight[:, ::2], weight.sum(axis=1, keepdims=True)
        nodes, weight = nodes[:, ::2], half * (total / half.sum(axis=1, keepdims=True))
    negligible = weight < 1e-12
    if found.same is None:
        # where a density is negligible, its derivatives may not be finite
        best = np.take_along_axis(nodes, weight.argmax(axis=1)[:, None, :, None], axis=1)
        nodes = np.where(negligible[..., None], best, nodes)
    return program.gradient(x, nodes, np.where(negligible, 0.0, weight))


def drawn(found: Nodes, rule: Any, rng: np.random.Generator) -> Floats:
    """Return coordinates of every element, shape ``(n, n_elements, n_coordinates)``."""
    if isinstance(rule, NormalRule):
        return rule.drawn(found, rng)
    n, m, n_distinct = found.weight.shape
    element = np.arange(n_distinct) if found.same is None else found.same
    n_rows = max(_MOST_NUMBERS // (_BETWEEN * max(element.size, m * n_distinct)), 1)
    if n > n_rows:
        parts = [found.part(slice(k, k + n_rows)) for k in range(0, n, n_rows)]
        return np.concatenate([drawn(part, rule, rng) for part in parts])
    if found.even and found.same is None:
        return _between(found, element, rng)
    nodes, weight, width, log_density = found.nodes, found.weight, None, found.log_density
    if found.even:
        with np.errstate(divide="ignore"):
            log_density = np.log(weight)
    if log_density is not None:
        dense, log_density = _dense(nodes[..., 0]), _dense(log_density)
        width = np.gradient(dense, axis=1)
        weight = np.exp(log_density - log_density.max(axis=1, keepdims=True)) * width
        nodes = dense[..., None]
    k = _chosen(weight, element, rng.random((n, element.size)))
    at = _taken(nodes, k, element)
    if width is None:
        return at
    spread = _taken(width, k, element)
    return np.asarray(at + (spread * (rng.random(spread.shape) - 0.5))[..., None])


def _taken(values: Floats, k: NDArray[np.int64], element: NDArray[np.int64]) -> Floats:
    """Return values at node ``k`` of every element, from those of distinct elements or of all."""
    return values[np.arange(len(values))[:, None], k, element if values.shape[2] > 1 else 0]


def _chosen(weight: Floats, element: NDArray[np.int64], uniform: Floats) -> NDArray[np.int64]:
    """Return one node of each element with probabilities as its weights, shape ``(n, k)``."""
    n, m, n_distinct = weight.shape
    cumulated = np.cumsum(weight, axis=1)
    cumulated /= np.where(cumulated[:, -1:] > 0.0, cumulated[:, -1:], 1.0)
    # one ordered list: the numbers of each row and each distinct element begin at another integer
    first = np.arange(n)[:, None] * n_distinct + np.arange(n_distinct)
    ordered = np.minimum(cumulated, 1.0).transpose(0, 2, 1) + first[..., None]
    k = np.searchsorted(ordered.ravel(), first[:, element] + uniform) - first[:, element] * m
    return np.clip(k, 0, m - 1)


def _between(found: Nodes, element: NDArray[np.int64], rng: np.random.Generator) -> Floats:
    """Return draws by even nodes: from the interval about one, in which the log is a parabola.

    The mass of such an interval is that of the parabola of the density itself.
    """
    n, weight, u = len(found.weight), found.weight, found.nodes[..., 0]
    inner = weight[:, 1:-1]
    mass = inner + (weight[:, :-2] - 2 * inner + weight[:, 2:]) / 24
    k = _chosen(np.maximum(mass, 0.0), element, rng.random((n, element.size)))
    with np.errstate(divide="ignore"):
        low, middle, high = (
            np.maximum(np.log(_taken(weight, k + step, element)), -700.0) for step in (0, 1, 2)
        )
    t = ((np.arange(_BETWEEN) + 0.5) / _BETWEEN - 0.5)[:, None]
    log_f = 0.5 * t * (high - low)[:, None] + 0.5 * t**2 * (high + low - 2 * middle)[:, None]
    part = _chosen(np.exp(log_f), np.arange(element.size), rng.random((n, element.size)))
    t = (part + rng.random(part.shape)) / _BETWEEN - 0.5
    low, middle, high = (_taken(u, k + step, element) for step in (0, 1, 2))
    values = middle + 0.5 * t * (high - low) + 0.5 * t**2 * (high + low - 2 * middle)
    return np.asarray(values[..., None])


def _dense(values: Floats, n_between: int = 8) -> Floats:
    """Return values at equal distances with further ones between, by cubic interpolation."""
    values = (
        np.maximum(values, values.max(axis=1, keepdims=True) - 80.0)
        if (np.isneginf(values).any())
        else values
    )
    left, right = values[:, :-1], values[:, 1:]
    before = np.concatenate([2 * left[:, :1] - right[:, :1], left[:, :-1]], axis=1)
    after = np.concatenate([right[:, 1:], 2 * right[:, -1:] - left[:, -1:]], axis=1)
    t = (np.arange(n_between) / n_between)[:, None]
    p0, p1, p2, p3 = (each[:, :, None] for each in (before, left, right, after))
    between = p1 + 0.5 * t * (
        p2 - p0 + t * (2 * p0 - 5 * p1 + 4 * p2 - p3 + t * (3 * (p1 - p2) + p3 - p0))
    )
    return between.reshape(len(values), -1, values.shape[2])
