"""Heat bath of Potts lattices, 64 chains side by side.

On square lattices a colour is drawn without a branch, in single precision. Where the uniform number
lies so near a border between two colours that rounding could matter, it is given further digits
and the colour is decided in double precision: the result is that of 76 random bits throughout.
"""

from dataclasses import dataclass
from math import exp, expm1
from typing import Any

import numba as nb
import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.contracts import MoveInfo
from pm_evidence.core.random import next_word, uniform
from pm_evidence.kernels.lattice import VisitKernel
from pm_evidence.targets.colours import NOBODY, SIDE, Colours, count_colours, count_like
from pm_evidence.targets.lattice import Potts

__all__ = ["ColourHeatBath"]

_TWO_POW_MINUS_24 = 2.0**-24
# Of the total weight. Rounding moves a border by at most 13 units of 2**-24: 1 from the 24 digits
# of the uniform number, 4 from the weights, 4 from their sum, 1 from the product, 3 from what is
# taken off one after the other.
_DOUBT = nb.float32(32.0 * _TWO_POW_MINUS_24)
# Largest log weight whose exponential single precision holds with ease.
_LARGEST_LOG_WEIGHT = 40.0
# Constants of exact type: a wider one would widen, and halve the speed of, all that it touches.
_ZERO, _HALF, _ONE = nb.float32(0.0), nb.float32(0.5), nb.float32(1.0)
_UNIT = nb.float32(_TWO_POW_MINUS_24)
_ZERO_BYTE, _ONE_BYTE, _TWO_BYTE = nb.uint8(0), nb.uint8(1), nb.uint8(2)
# Parts of the two working arrays. With fewer arrays there is less to check for overlap before a
# loop may run in vectors: colours drawn, whether each is in doubt, and the favoured colours;
# four words of each generator, and what was drawn from it.
_DOUBTED, _FAVOURED, _RANDOM = SIDE, 2 * SIDE, 4 * SIDE
_NOBODY = nb.uint8(NOBODY)


@dataclass(frozen=True)
class ColourHeatBath(VisitKernel):
    """Draws every colour from its distribution given its neighbours, site by site.

    Parameters
    ----------
    n_sweeps : int
        Number of times that every site is visited.
    order : str
        ``"checkerboard"``, or ``"sequential"`` for periodic lattices of odd sizes.
    backwards : bool
        Whether sites are visited in the opposite order.

    Notes
    -----
    Every chain draws from its own stream only. In a detoured path a favoured colour is drawn for
    every chain first, given its state; see ``DetouredPath``. Lattices of three dimensions and
    negative couplings are moved chain by chain, ten times slower.
    """

    def advance(
        self, path: Any, state: Colours, beta: float, streams: NDArray[np.uint64]
    ) -> tuple[Colours, MoveInfo]:
        """Move every member; see ``contracts.Kernel``."""
        target: Potts = path.target
        geometry = target.geometry
        order = self.sites(target)
        coupling, field = beta * target.coupling, path.field(beta)
        tally = state.counts(target).T.copy() if path.needs_counts else np.empty((0, target.q), int)
        sites, like = state.sites.copy(), np.empty(len(state), np.int64)
        wide = len(target.sizes) == 2 and 0.0 <= 4.0 * coupling + field <= _LARGEST_LOG_WEIGHT
        move = _sweep_wide if wide and coupling >= 0.0 else _sweep_one_by_one
        move(
            sites, geometry.ghosted, order, self.n_sweeps, target.q, coupling, field, streams, tally
        )
        _count(sites, geometry.forward, like, tally)
        moved = Colours(sites, like, state.sizes, tally if path.needs_counts else None)
        return moved, MoveInfo(1.0, len(state) * target.n_dim * self.n_sweeps)


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _sweep_wide(sites, neighbours, order, n_sweeps, q, coupling, field, streams, tally):
    """Move all chains of a square lattice in place."""
    words, result = np.empty(5 * SIDE, np.uint32), np.zeros(3 * SIDE, np.uint8)
    colours, doubted = result[:SIDE], result[_DOUBTED:_FAVOURED]
    favoured, random = result[_FAVOURED:], words[_RANDOM:]
    exact = np.array([exp(k * coupling) - exp((k - 1) * coupling) for k in range(1, 5)])
    extra = expm1(field)
    one, two = nb.float32(exact[0]), nb.float32(exact[1])
    three, four = nb.float32(exact[2]), nb.float32(exact[3])
    n_sites = len(neighbours)
    weights = nb.float32(q), one, two, three, four, nb.float32(extra)
    for group in range(sites.shape[0]):
        x, first = sites[group], group * SIDE
        last = min(first + SIDE, streams.shape[0])
        own = streams[first:last]
        if field != 0.0:
            _favour(favoured, field, tally[first:last], own)
        _seed(own, words)
        for _ in range(n_sweeps):
            for i in order:
                _fill(words)
                a, b = x[neighbours[i, 0]], x[neighbours[i, 1]]
                c, d = x[neighbours[i, 2]], x[neighbours[i, 3]]
                at_edge = False
                for side in range(4):
                    at_edge |= neighbours[i, side] == n_sites
                if field == 0.0 and not at_edge:
                    _draw(a, b, c, d, words, weights, result)
                elif field == 0.0:
                    _draw_at_edge(a, b, c, d, words, weights, result)
                elif at_edge:
                    _draw_in_field_at_edge(a, b, c, d, words, weights, result)
                else:
                    _draw_in_field(a, b, c, d, words, weights, result)
                x[i] = colours
                if _any(doubted):
                    for k in range(last - first):
                        if doubted[k]:
                            u = (random[k] >> nb.uint32(8)) + uniform(own[k])
                            u *= _TWO_POW_MINUS_24
                            near = a[k], b[k], c[k], d[k]
                            x[i, k] = _draw_exactly(u, near, favoured[k], q, exact, extra)


@nb.njit(cache=True, nogil=True, error_model="numpy", inline="always")
def _swap(v, other, t):
    """Return ``other`` if ``t`` is not negative, else ``v``, without a branch."""
    return other if t >= _ZERO else v


@nb.njit(cache=True, nogil=True, error_model="numpy", inline="always")
def _nearer(near, t):
    """Return the smaller of ``near`` and the size of ``t``."""
    size = t if t >= _ZERO else -t
    return near if near < size else size


def _drawing(*, in_field: bool, at_edge: bool) -> Any:
    """Return a compiled function that draws 64 colours given four neighbours.

    The total weight is cut into ``q`` pieces of 1, and for each neighbour a piece of what it adds
    to the weight of its colour, given the neighbours before it. In a field a last piece is for the
    colour that is favoured; at an edge pieces of neighbours that are not there are empty.
    """

    @nb.njit(cache=True, nogil=True, error_model="numpy")
    def draw(a_, b_, c_, d_, words, weights, result):
        q, one, two, three, four, extra = weights
        cap = q + _HALF
        for k in range(SIDE):
            a, b, c, d = a_[k], b_[k], c_[k], d_[k]
            same_b = nb.uint8(b == a)
            same_c = nb.uint8(nb.uint8(c == a) + nb.uint8(c == b))
            same_d = nb.uint8(nb.uint8(d == a) + nb.uint8(nb.uint8(d == b) + nb.uint8(d == c)))
            w_a = one
            w_b = two if same_b > _ZERO_BYTE else one
            w_c = two if same_c > _ZERO_BYTE else one
            w_c = three if same_c > _ONE_BYTE else w_c
            w_d = two if same_d > _ZERO_BYTE else one
            w_d = three if same_d > _ONE_BYTE else w_d
            w_d = four if same_d > _TWO_BYTE else w_d
            if at_edge:
                w_a = w_a if a != _NOBODY else _ZERO
                w_b = w_b if b != _NOBODY else _ZERO
                w_c = w_c if c != _NOBODY else _ZERO
                w_d = w_d if d != _NOBODY else _ZERO
            total = (q + w_a) + (w_b + w_c) + w_d
            z = a
            if in_field:
                z = result[_FAVOURED + k]
                w_z = _ONE + (w_a if z == a else _ZERO) + (w_b if z == b else _ZERO)
                w_z = w_z + (w_c if z == c else _ZERO) + (w_d if z == d else _ZERO)
                total = total + w_z * extra
            digits = nb.int32(words[_RANDOM + k] >> nb.uint32(8))
            t = nb.float32(digits) * _UNIT * total
            low = t if t < cap else cap
            whole = nb.int32(low)
            v = nb.uint8(whole)
            rest = low - nb.float32(whole)
            near = rest if rest < _HALF else _ONE - rest
            near = near if t < cap else total
            t = t - q
            near, v = _nearer(near, t), _swap(v, a, t)
            t = t - w_a
            near, v = _nearer(near, t), _swap(v, b, t)
            t = t - w_b
            near, v = _nearer(near, t), _swap(v, c, t)
            t = t - w_c
            near, v = _nearer(near, t), _swap(v, d, t)
            if in_field:
                t = t - w_d
                near, v = _nearer(near, t), _swap(v, z, t)
            result[k] = v
            result[_DOUBTED + k] = nb.uint8(near < _DOUBT * total)

    return draw


_draw = _drawing(in_field=False, at_edge=False)
_draw_at_edge = _drawing(in_field=False, at_edge=True)
_draw_in_field = _drawing(in_field=True, at_edge=False)
_draw_in_field_at_edge = _drawing(in_field=True, at_edge=True)


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _draw_exactly(u, near, favoured, q, exact, extra):
    """Return the colour at ``u`` in the same pieces, in double precision."""
    added, of_favoured, total = np.empty(4), 1.0, float(q)
    for k in range(4):
        same = 0
        for j in range(k):
            same += near[j] == near[k]
        added[k] = 0.0 if near[k] == _NOBODY else exact[same]
        total += added[k]
        if near[k] == favoured:
            of_favoured += added[k]
    t = u * (total + of_favoured * extra)
    if t < q:
        return nb.uint8(t)
    t -= q
    last = favoured
    for k in range(4):
        if added[k] > 0.0:
            if t < added[k]:
                return near[k]
            t -= added[k]
            if extra == 0.0:
                last = near[k]  # where rounding leaves nothing else
    return last


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _sweep_one_by_one(sites, neighbours, order, n_sweeps, q, coupling, field, streams, tally):
    """Move all chains of any lattice in place, at any coupling."""
    weight, favoured = np.empty(q), np.zeros(SIDE, np.uint8)
    n_sides = neighbours.shape[1]
    powers = np.array(
        [exp(coupling * k - max(coupling * n_sides, 0.0)) for k in range(n_sides + 1)]
    )
    boost = exp(field)
    for group in range(sites.shape[0]):
        x, first = sites[group], group * SIDE
        last = min(first + SIDE, streams.shape[0])
        own = streams[first:last]
        if field != 0.0:
            _favour(favoured, field, tally[first:last], own)
        for k in range(last - first):
            for _ in range(n_sweeps):
                for i in order:
                    weight[:] = 0.0
                    for side in range(n_sides):
                        colour = x[neighbours[i, side], k]
                        if colour != _NOBODY:
                            weight[colour] += 1.0
                    total = 0.0
                    for colour in range(q):
                        weight[colour] = powers[int(weight[colour])]
                        if field != 0.0 and colour == favoured[k]:
                            weight[colour] *= boost
                        total += weight[colour]
                    t, colour = uniform(own[k]) * total, 0
                    while colour < q - 1 and t >= weight[colour]:
                        t -= weight[colour]
                        colour += 1
                    x[i, k] = colour


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _favour(favoured, field, tally, streams):
    """Draw the favoured colour of every chain given how many sites have each."""
    n, q = tally.shape
    for k in range(n):
        most, total = tally[k].max(), 0.0
        for c in range(q):
            total += exp(field * (tally[k, c] - most))
        t, c = uniform(streams[k]) * total, 0
        while c < q - 1:
            t -= exp(field * (tally[k, c] - most))
            if t < 0.0:
                break
            c += 1
        favoured[k] = c


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _seed(streams, words):
    """Seed 64 xoshiro128++ streams from those of the chains; surplus ones follow the first."""
    for k in range(SIDE):
        if k < streams.shape[0]:
            for half in range(2):
                word = next_word(streams[k])
                words[2 * half * SIDE + k] = nb.uint32(word)
                words[(2 * half + 1) * SIDE + k] = nb.uint32(word >> nb.uint64(32))
            words[k] |= nb.uint32(1)  # all zeros is the only fixed point
        else:
            for part in range(4):
                words[part * SIDE + k] = words[part * SIDE]


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _fill(words):
    """Draw 32 random bits for each chain (Blackman and Vigna 2021) into the last 64 words."""
    for k in range(SIDE):
        a, b, c, d = words[k], words[SIDE + k], words[2 * SIDE + k], words[3 * SIDE + k]
        total = nb.uint32(a + d)
        rolled = nb.uint32(nb.uint32(total << nb.uint32(7)) | nb.uint32(total >> nb.uint32(25)))
        shifted = nb.uint32(b << nb.uint32(9))
        c = nb.uint32(c ^ a)
        d = nb.uint32(d ^ b)
        words[k] = nb.uint32(a ^ d)
        words[SIDE + k] = nb.uint32(b ^ c)
        words[2 * SIDE + k] = nb.uint32(c ^ shifted)
        words[3 * SIDE + k] = nb.uint32(
            nb.uint32(d << nb.uint32(11)) | nb.uint32(d >> nb.uint32(21))
        )
        words[_RANDOM + k] = nb.uint32(rolled + a)


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _any(flags):
    found = nb.uint8(0)
    for k in range(SIDE):
        found = nb.uint8(found | flags[k])
    return found != 0


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _count(sites, forward, like, tally):
    """Count like bonds, and colours if ``tally`` has room."""
    for group in range(sites.shape[0]):
        first = group * SIDE
        count_like(sites[group], forward, like[first : first + SIDE])
        if tally.shape[0]:
            count_colours(sites[group], tally[first : first + SIDE])
