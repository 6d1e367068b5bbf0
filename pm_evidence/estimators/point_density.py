"""The density of a posterior at a point of some coordinates, from draws and log densities."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.shape import learn_shape, squares
from pm_evidence.estimators.reweighting import Reweighted, reweighted

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

# A coordinate moves with the point if this depends on it more than by chance: if the share of its
# variance that is explained exceeds this number over the number of draws, for each coordinate.
_BY_CHANCE = 10.0
# The least share of draws that lie at least as far from their centre as the point does. A part of
# the posterior that exists near the point alone has draws only if the point lies among them.
LEAST_BEYOND = 0.01


def point_density(
    x: Floats,
    log_density: Floats,
    origin: Whole,
    held: Whole,
    others: Whole,
    movable: NDArray[np.bool_],
    at: Floats,
    log_density_at: Callable[[Floats], Floats],
) -> tuple[Reweighted, float]:
    """Return the log density at a point, and the share of draws that lie at least as far away.

    Chen (1994), Eq. 2.3: for draws ``(u, v)`` of a density ``f`` and any density ``w`` of ``u``,
    the mean of ``w(u) f(at, v) / f(u, v)`` is the marginal density of ``u`` at the point. It is
    used in coordinates ``v - B u`` with the slopes ``B`` of a regression, a change of coordinates
    of determinant one, so that it has no variance if ``f`` is normal. ``B`` and ``w``, a normal
    density, are fitted to draws of even origin and used with those of odd origin, and the reverse.

    ``x`` has shape ``(n, d)`` and ``log_density`` shape ``(n,)``, with coordinates ``held`` and
    ``others``; only the ``movable`` of the latter change with the point ``at``, shape ``(q,)``.
    ``log_density_at`` returns the log density at the point and some ``others``.
    """
    log_term, beyond = np.empty(len(x)), np.empty(len(x), dtype=bool)
    parity = np.unique(origin, return_inverse=True)[1] % 2
    for half in (0, 1):
        mine, its = parity == half, parity != half
        u, v = x[its][:, held], x[its][:, others]
        shape = learn_shape(u, dense=True)
        slopes = np.where(movable[:, None], _slopes(u, v), 0.0)
        moved = x[mine][:, others] + (at - x[mine][:, held]) @ slopes.T
        distance = squares(shape.whitened(x[mine][:, held]))
        log_w = -0.5 * (distance + held.size * np.log(2.0 * np.pi)) - shape.log_volume
        log_term[mine] = log_w + log_density_at(moved) - log_density[mine]
        beyond[mine] = distance >= squares(shape.whitened(at[None]))
    return reweighted(log_term, origin, -np.inf), float(beyond.mean())


def _slopes(u: Floats, v: Floats) -> Floats:
    """Return the slopes of a regression of ``v`` on ``u``, shape ``(d, q)``; 0 if by chance."""
    n, q = u.shape
    u, v = u - u.mean(axis=0), v - v.mean(axis=0)
    slopes: Floats = np.linalg.lstsq(u, v, rcond=None)[0].T
    explained, total = squares(slopes @ u.T), squares(v.T)
    is_real = explained * n > _BY_CHANCE * q * total
    return np.where(is_real[:, None], slopes, 0.0)
