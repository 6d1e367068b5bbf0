"""Hamiltonian Monte Carlo on a population, with a metric estimated from the population."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_flag, check_positive, check_share
from pm_evidence.core.codegen.numba import call_density, njit
from pm_evidence.core.contracts import MoveInfo
from pm_evidence.core.random import fill_normal, normals, uniform, uniforms
from pm_evidence.core.rows import over_rows
from pm_evidence.core.shape import Shape, learn_shape
from pm_evidence.kernels.random_walk import acceptance_probability, accepts, move_towards
from pm_evidence.kernels.suitability import check_shape, check_shape_options
from pm_evidence.targets.compile.numba_density import CompiledDensity, densities_with_gradients
from pm_evidence.targets.layout import Particles

Floats = NDArray[np.float64]


def _leapfrog(
    density: Callable[[Floats], tuple[Floats, Any]],
    x: Floats,
    log_density: Floats,
    gradient: Floats,
    momentum: Floats,
    sizes: Floats,
    n_leapfrogs: NDArray[np.int64],
    beta: float,
    factor: Floats,
    free: Any,
) -> tuple[Floats, ...]:
    """Return positions, log densities, gradients and momenta at the ends of trajectories.

    Coordinates ``free`` move. A trajectory that leaves the support stops there.
    """
    is_dense = factor.shape[1] == factor.shape[0]

    def force(gradient: Floats) -> Floats:
        slope = (gradient[:, 0] + beta * gradient[:, 1])[:, free]
        return slope @ factor if is_dense else slope * factor[:, 0]

    def along(momentum: Floats) -> Floats:
        return momentum @ factor.T if is_dense else momentum * factor[:, 0]

    moving, leap = np.isfinite(log_density[:, 0] + beta * log_density[:, 1]), 0
    while (moves := moving & (leap < n_leapfrogs)).any():
        kick = (0.5 if leap == 0 else 1.0) * sizes[:, None]
        new_momentum = momentum + kick * force(gradient)
        new_x = x.copy()
        new_x[:, free] += sizes[:, None] * along(new_momentum)
        new_density, new_gradient = density(new_x)
        x = np.where(moves[:, None], new_x, x)
        log_density = np.where(moves[:, None], new_density, log_density)
        gradient = np.where(moves[:, None, None], new_gradient, gradient)
        momentum = np.where(moves[:, None], new_momentum, momentum)
        moving &= np.isfinite(new_density[:, 0] + beta * new_density[:, 1]) | ~moves
        leap += 1
    return x, log_density, gradient, momentum + 0.5 * sizes[:, None] * force(gradient)


# A dense metric of more coordinates costs more memory, at every stage, than it is worth.
MOST_DIMENSIONS = 256
# Members of the population at which the curvature is measured, and the difference of coordinates,
# in standard deviations, between two gradients.
_POINTS, _DIFFERENCE = 4, 1e-4
# A scale that the curvature gives must explain this share of the variance in most directions. The
# curvature at the modes of a distribution, or along a bent ridge, explains far less.
_EXPLAINED = 0.5


def curvature(target: Any, state: Particles, beta: float, scale: Floats) -> tuple[Floats, int]:
    """Return the mean curvature of a population in units of its scales."""
    free, d = target.continuous, scale.size
    total = np.zeros((d, d))
    chosen = np.linspace(0, len(state) - 1, min(_POINTS, len(state))).astype(int)
    for x in state.x[chosen]:
        around = np.repeat(x[None], d + 1, axis=0)
        around[np.arange(d), free] += _DIFFERENCE * scale
        gradient = densities_with_gradients(target, around)[1][:, :, free]
        with np.errstate(over="ignore", invalid="ignore"):  # gradients may be infinite
            slope = gradient[:, 0] + beta * gradient[:, 1]
            total -= (slope[:d] - slope[d]) / _DIFFERENCE * scale
    total /= len(chosen)
    return 0.5 * (total + total.T), len(chosen) * (d + 1)


def shape_of_curvature(x: Floats, diagonal: Shape, found: Floats) -> tuple[Shape | None, float]:
    """Return the shape that a curvature gives to a population, and how much it can gain."""
    if not np.isfinite(found).all():
        return None, 1.0
    precision, direction = np.linalg.eigh(found)
    variance = np.mean((diagonal.whitened(x) @ direction) ** 2, axis=0)
    inverse = 1.0 / np.maximum(precision, np.finfo(float).tiny)
    smaller = np.minimum(inverse, np.where(variance > 0.0, variance, 1.0))
    gain = float(np.sqrt(max(precision[-1], 1.0)))
    if not np.median(smaller / np.maximum(variance, smaller)) > _EXPLAINED:
        return None, gain
    root = direction * np.sqrt(smaller)
    # the triangular factor of root @ root.T, without forming a product that rounds to singular
    upper = np.linalg.qr(root.T, mode="r")
    factor = upper.T * np.sign(np.diag(upper))
    scale = diagonal.factor[:, :1]
    return Shape(diagonal.mean, scale * factor), gain


@njit
def move_along(position, free, factor, size, direction):
    """Move the free coordinates of ``position`` by ``size`` times the factor times a direction."""
    d = free.size
    if factor.shape[1] == d and d > 1:
        for j in range(d):
            total = 0.0
            for m in range(j + 1):
                total += factor[j, m] * direction[m]
            position[free[j]] += size * total
        return
    scale = factor.reshape(d)
    for j in range(d):
        position[free[j]] += size * scale[j] * direction[j]


@njit
def pull_back(gradient, beta, free, factor, force):
    """Set ``force`` to the transposed factor times the gradient of the log density at beta."""
    d = free.size
    if factor.shape[1] == d and d > 1:
        force[:] = 0.0
        for j in range(d):
            slope = gradient[0, free[j]] + beta * gradient[1, free[j]]
            for m in range(j + 1):
                force[m] += factor[j, m] * slope
        return
    scale = factor.reshape(d)
    for j in range(d):
        force[j] = scale[j] * (gradient[0, free[j]] + beta * gradient[1, free[j]])


@njit
def squared_distance(position, free, mean, factor, work):
    """Return the squared Mahalanobis distance from the mean; ``work`` is overwritten."""
    d = free.size
    dense = factor.shape[1] == d
    total = 0.0
    for j in range(d):
        residual = position[free[j]] - mean[j]
        if dense:
            for m in range(j):
                residual -= factor[j, m] * work[m]
            work[j] = residual / factor[j, j]
        else:
            work[j] = residual / factor[j, 0]
        total += work[j] * work[j]
    return total


_MAX_LEAPFROGS = 64
# While the path length is tuned, half of the members make more steps: one more plus this share.
_CONTRAST = 0.2
_PATH_LENGTHS = (0.5, 8.0)
# The curvature is measured where steps are so short that correlations must limit them, and its
# metric is used if steps can be this many times longer with it.
_SHORT_STEP, _GAIN = 0.2, 4.0


@dataclass(frozen=True)
class HMC:
    """Leapfrog trajectories with fresh momenta; reversible.

    Positions move in coordinates whitened by the population's shape, so that one step size and
    one path length fit all directions.

    Parameters
    ----------
    step_size : float
        Mean leapfrog step in units of the population's standard deviations. Each trajectory draws
        its own step within 20 % of it, which avoids periodic trajectories.
    path_length : float
        Length of a trajectory in the same units.
    shape : Shape, optional
        Location and scale of the continuous coordinates; learnt from the population if left out.
    dense : bool, optional
        Whether the metric holds correlations; by default if the population is large enough.
    target_accept : float
        Mean acceptance probability that tuning aims at. Beskos et al. (2013) find that 0.651 is
        optimal for positions in high dimension. The evidence depends on energies, which do not
        change at all if a proposal is rejected: hence a higher rate.
    exploring : bool
        Whether members try two path lengths, which ``adjust`` compares. A frozen kernel does not.
    curved : bool
        Whether the shape is that of the curvature of the density, see `shape_of_curvature`.

    Raises
    ------
    ValueError, TypeError
        If an argument is of the wrong type or out of range.
    """

    step_size: float = 0.7
    path_length: float = 1.5
    shape: Shape | None = None
    dense: bool | None = None
    target_accept: float = 0.85
    exploring: bool = False
    curved: bool = False

    def __post_init__(self) -> None:
        check_positive("step_size", self.step_size)
        check_positive("path_length", self.path_length)
        check_shape_options(self.shape, self.dense)
        check_share("target_accept", self.target_accept, 0.85)
        check_flag("exploring", self.exploring)
        check_flag("curved", self.curved)

    def check(self, target: Any) -> NDArray[np.int64]:
        """Return the coordinates that it moves, all continuous ones.

        Raises
        ------
        ValueError
            If the target has no gradient or no continuous coordinate, or ``shape`` has the wrong
            size.
        """
        if not target.continuous.size or target.differentiable is None:
            raise ValueError(
                "kernel HMC needs a gradient and continuous variables, and this target has none; "
                "use kernel='auto'."
            )
        check_shape(self.shape, target.continuous.size)
        moved: NDArray[np.int64] = target.continuous
        return moved

    def advance(
        self, path: Any, state: Particles, beta: float, streams: NDArray[np.uint64]
    ) -> tuple[Particles, MoveInfo]:
        """Move every member along one trajectory at ``beta``; see ``contracts.Kernel``."""
        chains, info = self._chains(path, state, beta, 1, streams)
        return Particles(*(np.ascontiguousarray(each[:, 1]) for each in chains)), info

    def advance_repeatedly(
        self, path: Any, state: Particles, beta: float, n_moves: int, streams: NDArray[np.uint64]
    ) -> tuple[Particles, MoveInfo]:
        """Move every member several times; see ``samplers.sampler.MovesRepeatedly``."""
        chains, info = self._chains(path, state, beta, n_moves, streams)
        return Particles(*(np.concatenate(each.swapaxes(0, 1)) for each in chains)), info

    def _chains(
        self, path: Any, state: Particles, beta: float, n_moves: int, streams: NDArray[np.uint64]
    ) -> tuple[list[NDArray[np.float64]], MoveInfo]:
        """Return points, log densities and gradients, each of shape ``(n, 1 + n_moves, ...)``."""
        target, n = path.target, len(state)
        shape = self.shape or learn_shape(state.x[:, target.continuous], self.dense)
        known = state.gradient
        if known is None:
            known = densities_with_gradients(target, state.x)[1]
        chains = [_room(each, n_moves) for each in (state.x, state.log_density, known)]
        n_leapfrogs = self._n_leapfrogs(n)
        report = np.zeros((n, 4))
        if not isinstance(target.differentiable, CompiledDensity):
            for k in range(1, n_moves + 1):
                for each in chains:
                    each[:, k] = each[:, k - 1]
                rows = [each[:, k] for each in chains]
                self._move(target, rows, beta, shape, n_leapfrogs, streams, report)
                target.wrap(rows[0])
        else:
            work = _Trajectories(target, beta, shape, self.step_size, self.exploring)
            over_rows(work, (n_leapfrogs,), (*chains, streams, report))
        info = MoveInfo(
            acceptance=float(report[:, 0].mean()) / n_moves,
            n_evaluations=n_moves * int(n_leapfrogs.sum()) + (n if state.gradient is None else 0),
            n_nan=int(report[:, 1].sum()),
            reach=_reach(report, n_leapfrogs) if self.exploring else 0.0,
        )
        return chains, info

    def _move(
        self,
        target: Any,
        rows: Sequence[Floats],
        beta: float,
        shape: Shape,
        n_leapfrogs: NDArray[np.int64],
        streams: NDArray[np.uint64],
        report: Floats,
    ) -> None:
        """Move every row in place, and add to ``report``, as the compiled trajectories do.

        Every row draws the same random numbers from its stream as there, in the same order.
        """
        x, log_density, gradient = rows
        size = target.continuous.size
        free = slice(None) if size == x.shape[1] else target.continuous
        momentum, draws = normals(streams, size), uniforms(streams, 2)
        sizes = self.step_size * (0.8 + 0.4 * draws[:, 0])
        at, how = (x, log_density, gradient, momentum), (sizes, n_leapfrogs, beta, shape.factor)
        with np.errstate(all="ignore"):
            ends = _leapfrog(target.differentiable.evaluate, *at, *how, free)
        proposal, new_density, new_gradient, last = ends
        start = log_density[:, 0] + beta * log_density[:, 1]
        with np.errstate(invalid="ignore", over="ignore"):
            log_ratio = new_density[:, 0] + beta * new_density[:, 1] - start
            failed = np.isnan(log_ratio) | (log_ratio == np.inf)
            log_ratio += 0.5 * ((momentum**2).sum(axis=1) - (last**2).sum(axis=1))
        moving = np.isfinite(start)  # a path of weight zero is not moved
        report[:, 1] += moving & failed & np.isfinite(proposal.sum(axis=1))
        possible = moving & ~failed & ~np.isnan(log_ratio)
        acceptance = np.where(possible, np.exp(np.minimum(log_ratio, 0.0)), 0.0)
        report[:, 0] += acceptance
        if self.exploring:
            before = shape.squared_distances(x[:, free])
            report[:, 3] += np.where(moving & ~failed, before, 0.0)
            some = acceptance > 0.0
            after = shape.squared_distances(proposal[some][:, free])
            report[some, 2] += acceptance[some] * (after - before[some]) ** 2
        accepted = possible & (np.log(draws[:, 1]) < log_ratio)
        x[accepted], log_density[accepted] = proposal[accepted], new_density[accepted]
        gradient[accepted] = new_gradient[accepted]

    def _n_leapfrogs(self, n: int) -> NDArray[np.int64]:
        steps = min(self.path_length / self.step_size, _MAX_LEAPFROGS)
        if not self.exploring:
            return np.full(n, np.clip(round(steps), 1, _MAX_LEAPFROGS), np.int64)
        n_leapfrogs = np.full(n, np.clip(int(steps), 1, _MAX_LEAPFROGS), np.int64)
        n_leapfrogs[::2] += 1 + (_CONTRAST * n_leapfrogs[::2]).astype(np.int64)
        return n_leapfrogs

    def learn(self, path: Any, state: Particles) -> Self:
        """Return the kernel with its metric learnt from a population."""
        shape = learn_shape(state.x[:, path.target.continuous], self.dense)
        return replace(self, shape=shape)

    def with_curvature(self, path: Any, state: Particles, beta: float) -> tuple[Self, int]:
        """Return the kernel with the metric of the curvature if this allows longer steps."""
        x, diagonal = state.x[:, path.target.continuous], self.shape
        wanted = self.dense is not False and (self.curved or self.step_size < _SHORT_STEP)
        if diagonal is None or diagonal.is_dense or not wanted or x.shape[1] > MOST_DIMENSIONS:
            return replace(self, curved=False), 0
        found, spent = curvature(path.target, state, beta, diagonal.factor[:, 0])
        shape, gain = shape_of_curvature(x, diagonal, found)
        curved = shape is not None and gain > _GAIN
        step_size = self.step_size * gain ** (int(curved) - int(self.curved))
        step_size = min(step_size, self.path_length)
        kernel = replace(self, shape=shape if curved else diagonal, step_size=step_size)
        return replace(kernel, curved=curved), spent

    def adjust(self, info: MoveInfo) -> Self:
        """Return the kernel with step size and path length adapted to a report."""
        step_size = move_towards(self.step_size, info.acceptance, self.target_accept)
        path_length = float(np.clip(self.path_length * 1.1**info.reach, *_PATH_LENGTHS))
        return replace(self, step_size=min(step_size, path_length), path_length=path_length)

    def without_exploration(self) -> Self:
        """Return the kernel with one path length for all members."""
        return replace(self, exploring=False)

    def reversed(self) -> Self:
        """Return the kernel itself: fresh momenta make it reversible."""
        return self

    def settings(self) -> dict[str, float]:
        """Return step size and path length."""
        return {"step_size": self.step_size, "path_length": self.path_length}


def _room(first: NDArray[np.float64], n_moves: int) -> NDArray[np.float64]:
    """Return an array for the states of chains, shape ``(n, 1 + n_moves, ...)``, with the first."""
    room = np.empty((len(first), 1 + n_moves, *first.shape[1:]))
    room[:, 0] = first
    return room


def _reach(report: NDArray[np.float64], n_leapfrogs: NDArray[np.int64]) -> float:
    """Return 1 if longer trajectories give more independent energies per evaluation, else -1.

    If neighbouring states of a chain have the correlation ``r``, its effective size is the share
    ``(1 - r) / (1 + r)`` of its length. The result is 0 if both are equal, or not known.
    """
    if len(report) < 4:
        return 0.0
    spread = 2.0 * report[:, 3].var()
    gains = []
    for start in (0, 1):  # the longer ones, the shorter ones
        loss = min(report[start::2, 2].mean() / spread, 1.9) if spread > 0 else 0.0
        gains.append(loss / (2.0 - loss) / n_leapfrogs[start])
    return float(np.sign(gains[0] - gains[1]))


@dataclass(frozen=True)
class _Trajectories:
    """Work on rows: the chain of every member."""

    target: Any
    beta: float
    shape: Shape
    step_size: float
    exploring: bool

    def __call__(self, *rows: NDArray[Any]) -> None:
        target, compiled = self.target, self.target.differentiable
        density, free = (compiled.address, compiled.data), (target.continuous, target.period)
        shape = self.shape.mean, self.shape.factor
        _trajectories(density, self.beta, free, shape, self.step_size, self.exploring, *rows)


@njit
def _trajectories(
    density, beta, coordinates, shape, step, explores,
    n_leapfrogs, x, log_density, gradient, streams, report,
):  # fmt: skip
    """Fill every row, a chain of which the first state is given.

    ``report`` receives, by row and added up over moves, the acceptance probability and 1 for a
    density of NaN; if the kernel explores, also the expected squared change of the squared distance
    from the mean (Hoffman, Radul and Sountsov 2021, Eq. 5) and that distance, which measure how
    energies mix.
    """
    (address, data), (free, period), (mean, factor) = density, coordinates, shape
    n, length, n_dim = x.shape
    d = free.size
    momentum, force = np.empty(d), np.empty(d)
    proposal = np.empty(n_dim)
    new_density = np.empty(2)
    new_gradient = np.empty((2, n_dim))
    for i, k in np.ndindex(n, length - 1):
        last, now = (i, k), (i, k + 1)
        x[now], log_density[now], gradient[now] = x[last], log_density[last], gradient[last]
        start = log_density[i, k, 0] + beta * log_density[i, k, 1]
        if not np.isfinite(start):  # a path of weight zero is not moved
            continue
        fill_normal(streams[i], momentum)
        size = step * (0.8 + 0.4 * uniform(streams[i]))
        proposal[:] = x[now]
        kinetic = _half_square(momentum)
        pull_back(gradient[now], beta, free, factor, force)
        failed = False
        for leap in range(n_leapfrogs[i]):
            for j in range(d):
                momentum[j] += (0.5 if leap == 0 else 1.0) * size * force[j]
            move_along(proposal, free, factor, size, momentum)
            failed = call_density(address, proposal, new_density, new_gradient, data) != 0
            if failed or not np.isfinite(new_density[0] + beta * new_density[1]):
                break
            pull_back(new_gradient, beta, free, factor, force)
        for j in range(d):
            momentum[j] += 0.5 * size * force[j]
        log_ratio = new_density[0] + beta * new_density[1] - start
        if failed or np.isnan(log_ratio) or log_ratio == np.inf:
            report[i, 1] += 1.0 if failed or np.isfinite(proposal.sum()) else 0.0
            continue
        log_ratio += kinetic - _half_square(momentum)
        acceptance = acceptance_probability(log_ratio)
        report[i, 0] += acceptance
        if explores:
            before = squared_distance(x[now], free, mean, factor, force)
            report[i, 3] += before
            if acceptance > 0.0:
                after = squared_distance(proposal, free, mean, factor, force)
                report[i, 2] += acceptance * (after - before) ** 2
        if accepts(log_ratio, streams[i]):
            for j in free:
                if period[j] > 0.0:
                    proposal[j] -= period[j] * np.round(proposal[j] / period[j])
            x[now], log_density[now], gradient[now] = proposal, new_density, new_gradient


@njit
def _half_square(v):
    total = 0.0
    for j in range(v.size):
        total += v[j] * v[j]
    return 0.5 * total
