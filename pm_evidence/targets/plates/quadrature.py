"""Integrals over one continuous coordinate of each element, about all of its modes."""

from dataclasses import dataclass, fields, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from pm_evidence.targets.plates.integrals import (
    Counts,
    Nodes,
    NormalRule,
    Sum,
    weights,
)
from pm_evidence.targets.plates.programs import PlateProgram

Floats = NDArray[np.float64]
Found = list[tuple[NDArray[np.int64], Nodes]]

# Nodes of the first scan, over so many scales of the prior on both sides, and of the trapezoidal
# rule over the interval in which the density exceeds exp(-_DEEP) of its peak. For a normal density
# these are 6.6 deviations on both sides, with steps of 0.4. Fewer nodes often need another step.
_SCANNED, _REACH, _NODES, _DEEP = 17, 7.0, 33, 22.0
# Largest change of an integral by halving the number of nodes, and largest error, in nats: small,
# because derivatives are taken from differences of gradients. These use half of the nodes where the
# change is smaller than the last number.
_CHANGE, _TOLERANCE, _ENOUGH = 1e-3, 1e-5, 3e-6
# Where nodes that all elements have in common cost little: number of nodes over so many scales of
# the prior on both sides, and how often this number is doubled before elements have their own.
_COMMON, _COMMON_REACH, _MOST_DOUBLED = 73, 9.0, 3
# Difference of integrals between scans of different fineness that shows a missed mode, in nats.
_MISSED = 1e-3
# Most nodes, and most steps, before the interval is divided.
_MOST_NODES, _MOST_STEPS = 100, 40
# Nodes of a part of a divided interval, most parts, and the error in nats that is aimed at.
_OF_PART, _MOST_PARTS, _PART_ERROR = 17, 80, 1e-6
# Values of an element differ by hardly more than their rounding errors where its scale is this
# share of its location; the integral is then not known.
_RESOLVED = 1e-12
# A scan for modes that are narrow: most nodes, and most numbers that all operations together give.
_MOST_SCANNED, _MOST_NUMBERS = 2**14, 2e8


@dataclass(frozen=True, eq=False)
class Quadrature:
    """The integral over the interval in which the density of an element is not negligible.

    A scan over the prior finds this interval, which grows or shrinks until it holds the density.
    The error of the trapezoidal rule falls exponentially with the number of nodes for smooth
    densities. By halving this number once and twice, one sees how fast. Where the error stays
    large, as with a narrow mode beside a wide one, the interval is divided again and again.
    """

    program: PlateProgram  # the density of the elements
    n_scanned: int = _SCANNED  # number of nodes of the scan
    n_final: int = _NODES  # about how many nodes an integral has
    is_common: bool = False  # whether all elements have the same nodes

    @property
    def n_nodes(self) -> int:
        """About how many nodes an integral takes, with those of earlier steps."""
        if self.is_common:
            return self.n_scanned
        return self.n_scanned + _NODES + self.n_final

    @property
    def n_elements(self) -> int:
        """Number of elements that are integrated: of those that are the same, one."""
        return self.program.first.size if self.is_common else self.program.plate.n_elements

    def resolving(self, points: Floats) -> "Quadrature":
        """Return the rule with a scan that is fine enough for all modes at some points.

        The scan becomes finer until a scan that is as fine as the cost allows finds no more.
        """
        finest = self.finer(len(points))
        if finest.n_scanned <= 2 * self.n_scanned:
            return self
        fine = finest.log_integrals(points)
        rule = self
        while rule.n_scanned < finest.n_scanned:
            with np.errstate(all="ignore"):
                change = np.abs(rule.log_integrals(points) - fine)
            if not (change > _MISSED).any():
                break
            rule = replace(rule, n_scanned=4 * rule.n_scanned - 3)
        return rule

    def finer(self, n_points: int) -> "Quadrature":
        """Return the rule with a scan that is as fine as its cost at some points allows."""
        numbers = max(self.program.n_numbers * n_points, 1)
        most = int(min(_MOST_SCANNED, _MOST_NUMBERS / numbers)) // 4 * 4 + 1
        return replace(self, n_scanned=max(most, 2 * self.n_scanned - 1))

    def log_integrals(self, x: Floats) -> Floats:
        """Return the log integral of every distinct element, shape ``(n, n_elements)``, in nats."""
        result = np.empty((len(x), self.n_elements))
        for rows, found in self.integrate(x):
            own = self.is_common and found.same is None
            result[rows] = found.log_integral[:, self.program.first if own else slice(None)]
        return result

    def integrate(self, x: Floats) -> Found:
        """Return nodes for the rows of ``x``, in groups that settled at the same step."""
        location, scale = (each[..., 0] for each in self.program.places(x))
        scale = np.where(np.isfinite(scale) & (scale > 0.0), scale, 1.0)
        lost = (scale < _RESOLVED * np.abs(location)).any(axis=1)
        if lost.any():
            kept = np.flatnonzero(~lost)
            known = self.integrate(x[kept]) if kept.size else []
            unknown = np.flatnonzero(lost), self._unknown(location[lost])
            return [*((kept[rows], nodes) for rows, nodes in known), unknown]
        if self.is_common:
            return self._in_common(x, location[:, :1], scale[:, :1])
        low, high = np.full((2, *location.shape), _REACH)
        low = -low
        rows, m, found = np.arange(len(x)), self.n_scanned, Found()
        for _ in range(_MOST_STEPS):
            scan = _Scan.of(self, x[rows], location[rows], scale[rows], low[rows], high[rows], m)
            done = scan.settled.all(axis=1)
            if done.any():
                found.append((rows[done], scan.nodes(done)))
            rows, scan = rows[~done], scan.take(~done)
            if not rows.size:
                return found
            low[rows], high[rows], narrowed = scan.narrowed()
            stuck = ~(narrowed | scan.settled).all(axis=1)
            if m >= _NODES and stuck.any():
                if m > _MOST_NODES:
                    where = x[rows[stuck]], location[rows[stuck]], scale[rows[stuck]]
                    found.append((rows[stuck], self._divided(*where, scan.take(stuck))))
                    rows = rows[~stuck]
                m = 2 * m - 1
            else:
                m = _NODES
            if not rows.size:
                return found
        where = x[rows], location[rows], scale[rows]
        found.append((rows, self._divided(*where, scan)))
        return found

    def _unknown(self, location: Floats) -> Nodes:
        """Return integrals that are not known, with a node at the location of each element."""
        same = self.program.same if self.is_common else None
        nodes = (location[:, :1] if self.is_common else location)[:, None, :, None]
        one = np.ones((len(location), 1, self.n_elements))
        unknown = np.nan * one[:, 0]
        return Nodes(unknown, np.inf * one[:, 0], nodes, one, 0.0 * one, same=same)

    def _in_common(self, x: Floats, location: Floats, scale: Floats) -> Found:
        """Return nodes that all elements have in common: many of them cost little."""
        rows, m, found = np.arange(len(x)), self.n_scanned, Found()
        high = np.full((len(x), 1), _COMMON_REACH)
        low = -high
        for step in range(_MOST_DOUBLED + 1):
            given = x[rows], location[rows], scale[rows], low[rows], high[rows]
            scan = _Scan.of(self, *given, m)
            done = scan.settled.all(axis=1)
            if done.any():
                found.append((rows[done], scan.nodes(done)))
            if step < _MOST_DOUBLED:
                below, above = (at.any(axis=1) & ~done for at in (scan.at_low, scan.at_high))
                width = high - low
                low[rows[below]] -= 0.5 * width[rows[below]]
                high[rows[above]] += 0.5 * width[rows[above]]
            rows, m = rows[~done], 2 * m - 1
            if not rows.size:
                return found
        own = replace(self, is_common=False, n_scanned=_SCANNED)
        return found + [(rows[some], nodes) for some, nodes in own.integrate(x[rows])]

    def at(self, x: Floats, location: Floats, scale: Floats, z: Floats) -> tuple[Floats, Floats]:
        """Return values, and log densities with respect to ``z``, at ``z`` of shape ``(n, m, k)``.

        These are distances from the location in units of the scale, which are stretched where the
        prior has heavy tails.
        """
        u, log_slope = z, np.log(scale)[:, None]
        if self.program.is_heavy:
            u, log_slope = 3.0 * np.sinh(z / 3.0), log_slope + np.log(np.cosh(z / 3.0))
        u = location[:, None] + scale[:, None] * u
        return u, self.program.values(x, u[..., None]) + log_slope

    def _divided(self, x: Floats, location: Floats, scale: Floats, scan: "_Scan") -> Nodes:
        """Return nodes of an interval that is divided where the error is largest.

        The first parts are those on both sides of the highest node, and the one around it.
        """
        at, step = scan.z, scan.log_terms.argmax(axis=1)[:, None]
        last = at.shape[1] - 1
        low, high = at[:, :1], at[:, -1:]
        left = np.take_along_axis(at, np.maximum(step - 1, 0), 1)
        right = np.take_along_axis(at, np.minimum(step + 1, last), 1)
        edges = np.concatenate([low, left, right, high], axis=1)
        unit, weight, coarse = _rule()
        start, width = edges[:, :-1], np.diff(edges, axis=1)

        def added(start: Floats, width: Floats) -> dict[str, Floats]:
            n, _, e = start.shape
            z = start[:, :, None] + width[:, :, None] * unit[:, None]
            u, log_f = self.at(x, location, scale, z.reshape(n, -1, e))
            u, log_f = u.reshape(z.shape), log_f.reshape(z.shape)
            with np.errstate(all="ignore"):
                top = log_f.max(axis=2, keepdims=True)
                top = np.where(np.isfinite(top), top, 0.0)
                f = np.exp(log_f - top) * width[:, :, None]
                total, rough = ((f * w[:, None]).sum(axis=2) for w in (weight, coarse))
                log_total = np.log(np.maximum(total, 0.0)) + top[:, :, 0]
                log_error = np.log(np.abs(total - rough)) + top[:, :, 0]
                log_share = np.log(weight[:, None] * width[:, :, None]) + log_f
            return {
                "start": start,
                "width": width,
                "total": log_total,
                "error": log_error,
                "u": u,
                "log_f": log_f,
                "log_share": log_share,
            }

        every = added(start, width)
        while True:
            total = np.logaddexp.reduce(every["total"], axis=1)
            with np.errstate(all="ignore"):
                error = np.exp(np.logaddexp.reduce(every["error"], axis=1) - total)
            error = np.where(np.isfinite(total), error, 0.0)
            if (error < _PART_ERROR).all() or every["total"].shape[1] >= _MOST_PARTS:
                break
            worst = every["error"].argmax(axis=1)[:, None]
            start = np.take_along_axis(every["start"], worst, 1)
            half = 0.5 * np.take_along_axis(every["width"], worst, 1)
            new = added(np.concatenate([start, start + half], 1), np.concatenate([half, half], 1))
            for name, old in every.items():
                index = worst if old.ndim == 3 else worst[:, :, None]
                np.put_along_axis(old, index, new[name][:, :1], 1)
                every[name] = np.concatenate([old, new[name][:, 1:]], axis=1)
        order = every["start"].argsort(axis=1, kind="stable")[:, :, None]
        n, _, e = every["total"].shape
        u, log_f, log_share = (
            np.take_along_axis(every[name], order, 1).reshape(n, -1, e)
            for name in ("u", "log_f", "log_share")
        )
        log_integral, share = weights(log_share)
        log_density = self.per_value(u, log_f, scale, location)
        error = np.where(scan.at_low | scan.at_high, np.inf, error)
        return Nodes(log_integral, error, u[..., None], share, log_density)

    def per_value(self, u: Floats, log_terms: Floats, scale: Floats, location: Floats) -> Floats:
        """Return the log density with respect to values from that with respect to distances."""
        result = log_terms - np.log(scale)[:, None]
        if self.program.is_heavy:
            far = (u - location[:, None]) / (3.0 * scale[:, None])
            result = result - 0.5 * np.log1p(far**2)
        return result


@dataclass(frozen=True, eq=False)
class _Scan:
    """Densities at equal distances, and whether their sum is the integral of each element."""

    rule: Quadrature
    location: Floats
    scale: Floats
    z: Floats
    u: Floats
    log_terms: Floats
    total: Floats
    share: Floats
    change: Floats
    error: Floats
    at_low: NDArray[np.bool_]
    at_high: NDArray[np.bool_]

    @classmethod
    def of(
        cls,
        rule: Quadrature,
        x: Floats,
        location: Floats,
        scale: Floats,
        low: Floats,
        high: Floats,
        m: int,
    ) -> "_Scan":
        """Return the densities at ``m`` nodes between two ends, shape ``(n, n_elements)``."""
        z = low[:, None] + (high - low)[:, None] * np.linspace(0.0, 1.0, m)[:, None]
        u, log_terms = rule.at(x, location, scale, z)
        total, share = weights(log_terms)
        change, former = (np.abs(k * share[:, ::k].sum(axis=1) - 1.0) for k in (2, 4))
        # the exponent grows with the number of nodes, by 2 to 4 if this doubles: 3/2 is cautious
        error = change * np.sqrt(change / np.maximum(np.maximum(former, change), 1e-300))
        with np.errstate(all="ignore"):
            ends = log_terms[:, [0, -1]] - log_terms.max(axis=1, keepdims=True) > 2.0 - _DEEP
        total = total + np.log((high - low) / (m - 1))
        ends_at = ends[:, 0], ends[:, 1]
        return cls(rule, location, scale, z, u, log_terms, total, share, change, error, *ends_at)

    @property
    def settled(self) -> NDArray[np.bool_]:
        """Which elements need no further step, shape ``(n, n_elements)``."""
        good = (self.change < _CHANGE) & (self.error < _TOLERANCE)
        return (good & ~self.at_low & ~self.at_high) | ~np.isfinite(self.total)

    def take(self, rows: NDArray[np.bool_]) -> "_Scan":
        """Return some rows."""
        if rows.all():
            return self
        names = [each.name for each in fields(self) if each.name != "rule"]
        return replace(self, **{name: getattr(self, name)[rows] for name in names})

    def nodes(self, rows: NDArray[np.bool_]) -> Nodes:
        """Return the nodes of some rows."""
        part = self.take(rows)
        halved = bool((part.change < _ENOUGH).all())
        nodes = part.u[..., None]
        same = self.rule.program.same if self.rule.is_common else None
        return Nodes(part.total, part.error, nodes, part.share, None, True, halved, same)

    def narrowed(self) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        """Return the ends of the interval for the next step, and where it is another one."""
        m = self.z.shape[1]
        with np.errstate(all="ignore"):
            level = self.log_terms - self.log_terms.max(axis=1, keepdims=True) + _DEEP
        inside = level > 0.0
        first, last = inside.argmax(axis=1), m - 1 - inside[:, ::-1].argmax(axis=1)
        low, high = self.z[:, 0], self.z[:, -1]
        width = high - low
        start = self._crossing(level, first, -1)
        stop = self._crossing(level, last, 1)
        start = np.where(self.at_low, low - self._further(level[:, 0], level[:, 1]), start)
        stop = np.where(self.at_high, high + self._further(level[:, -1], level[:, -2]), stop)
        other = (stop - start < 0.75 * width) | self.at_low | self.at_high
        settled = self.settled
        return np.where(settled, low, start), np.where(settled, high, stop), other

    def _further(self, end: Floats, before: Floats) -> Floats:
        """Return how far beyond an end the density becomes negligible, at most once the width."""
        width = self.z[:, -1] - self.z[:, 0]
        with np.errstate(all="ignore"):
            steps = end / (before - end)
        share = np.where(steps > 0.0, (steps + 0.1) / (self.z.shape[1] - 1), 1.0)
        return width * np.minimum(np.where(np.isfinite(share), share, 1.0), 1.0)

    def _crossing(self, level: Floats, k: NDArray[np.int64], step: int) -> Floats:
        """Return where the density becomes negligible beyond the last node where it is not.

        It falls faster than the line between the nodes, so that the distance is increased a little.
        It may end anywhere before the next node, which is taken where nodes are close.
        """
        beyond = np.clip(k + step, 0, level.shape[1] - 1)
        inner, outer = (np.take_along_axis(level, i[:, None], 1)[:, 0] for i in (k, beyond))
        z, end = (np.take_along_axis(self.z, i[:, None], 1)[:, 0] for i in (k, beyond))
        with np.errstate(all="ignore"):
            share = inner / (inner - outer)
        chord = np.isfinite(share) & np.isfinite(outer) & (level.shape[1] < _NODES)
        share = np.where(chord, np.clip(1.15 * share + 0.05, 0.0, 1.0), 1.0)
        return z + share * (end - z)


@cache
def _rule() -> tuple[Floats, Floats, Floats]:
    """Return nodes and weights on [0, 1] of Clenshaw and Curtis, and weights of half of them."""

    def of(n: int) -> Floats:
        k = np.arange(n + 1)
        j = np.arange(1, n // 2 + 1)
        b = np.where(j == n / 2, 1.0, 2.0)
        c = np.where((k == 0) | (k == n), 1.0, 2.0)
        terms = b / (4 * j**2 - 1) * np.cos(2 * np.pi * np.outer(k, j) / n)
        return np.asarray(0.5 * c / n * (1.0 - terms.sum(axis=1)))

    n = _OF_PART - 1
    coarse = np.zeros(n + 1)
    coarse[::2] = of(n // 2)
    return 0.5 * (1.0 - np.cos(np.pi * np.arange(n + 1) / n)), of(n), coarse


def rule_of(program: PlateProgram, points: Floats) -> Sum | Counts | NormalRule | Quadrature:
    """Return the rule for a plate."""
    if program.plate.rule == "sum":
        return Sum.of(program)
    if program.plate.rule == "counts":
        return Counts.of(program, points)
    if program.is_normal:
        return NormalRule(program)
    rule = Quadrature(program)
    if program.has_common_nodes:
        places = program.places(points)
        if all((each == each[:, :1]).all() for each in places):
            rule = replace(rule, n_scanned=_COMMON, is_common=True)
    rule = rule.resolving(points)
    n_final = max(found.weight.shape[1] for _, found in rule.integrate(points))
    return replace(rule, n_final=n_final)
