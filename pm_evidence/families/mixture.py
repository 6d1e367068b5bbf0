"""Mixtures of normal distributions with conjugate priors, annealed by adding data points."""

from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from math import exp, log, sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pm_evidence.core.checks import (
    check_choice,
    check_count,
    check_finite,
    check_positive,
    float_array,
)
from pm_evidence.core.codegen.numba import nb, njit
from pm_evidence.core.contracts import AnnealingSetup, Kernel, MoveInfo, Path
from pm_evidence.core.random import fill_normal, uniform
from pm_evidence.core.random import streams as streams_of
from pm_evidence.families.native import (
    NativeTarget,
    OrderedKernel,
    along,
    checked_order,
    chosen_kernel,
    order_of,
)
from pm_evidence.kernels.cycle import Grows
from pm_evidence.paths.growing import GrowingPath
from pm_evidence.targets.layout import Rows

Floats = NDArray[np.float64]


# Rows of working space for each component: log densities, sums of points and of squares, numbers of
# points, log weights, and a normal draw.
ROOM = 6
_LOG_TERM, _SUM, _SQUARES, _COUNT, _CONSTANT, _NORMAL = range(ROOM)
_LOG_2_PI = log(2.0 * np.pi)


class Prior(NamedTuple):
    """The prior of a mixture, as compiled code reads it."""

    mean: float  # of the normal prior of the means
    precision: float
    alpha: float  # shape and scale of the inverse gamma prior of the variances
    beta: float
    concentration: float  # of the symmetric Dirichlet prior of the weights


@njit
def log_gamma_draw(stream, shape, room):
    """Return the log of a draw from the gamma distribution of some shape, with rate 1.

    Marsaglia and Tsang (2000); shapes below 1 as in their section 6. The log does not underflow
    where the draw would. ``room`` receives a normal draw.
    """
    boost = 0.0
    if shape < 1.0:
        boost = log(uniform(stream)) / shape
        shape += 1.0
    d = shape - 1.0 / 3.0
    c = 1.0 / sqrt(9.0 * d)
    while True:
        fill_normal(stream, room)
        x = room[0]
        v = 1.0 + c * x
        if v > 0.0:
            v = v * v * v
            if log(uniform(stream)) < 0.5 * x * x + d - d * v + d * log(v):
                return log(d) + log(v) + boost


@njit
def log_terms(variance, weight, room):
    """Compute ``log w_j - log(2 pi v_j) / 2`` for every component."""
    for j in range(weight.size):
        own = variance[min(j, variance.size - 1)]
        room[_CONSTANT, j] = log(weight[j]) - 0.5 * (_LOG_2_PI + log(own))


@njit
def draw_component(y, mean, variance, room, stream):
    """Draw the component of a point given the parameters.

    ``log_terms`` has to be called before. A component whose terms all underflow relative to the
    largest one is never drawn.
    """
    k = mean.size
    for j in range(k):
        deviation = y - mean[j]
        own = variance[min(j, variance.size - 1)]
        room[_LOG_TERM, j] = room[_CONSTANT, j] - 0.5 * deviation * deviation / own
    _add_up(room, k)
    return pick(room, k, stream)


@njit
def predict(new, y, component, prior, variance, k, room):
    """Return the log density of a new point given variances and components of the points so far.

    Means and weights are integrated out: those of each component given its points are normal and
    Dirichlet. ``pick`` then draws the component of the new point.
    """
    n = _count(y, component, room)
    for j in range(k):
        own, precision, centre = _given_points(j, prior, variance, room)
        spread = own + 1.0 / precision
        share = (room[_COUNT, j] + prior.concentration) / (n + k * prior.concentration)
        deviation = new - centre
        room[_LOG_TERM, j] = (
            log(share) - 0.5 * (_LOG_2_PI + log(spread)) - 0.5 * deviation * deviation / spread
        )
    return _add_up(room, k)


@njit
def _count(y, component, room):
    """Add up points and their number for every component; return the number of all of them."""
    room[_COUNT] = 0.0
    room[_SUM] = 0.0
    n = 0
    for i in range(y.size):
        if component[i] >= 0:
            room[_COUNT, component[i]] += 1.0
            room[_SUM, component[i]] += y[i]
            n += 1
    return n


@njit
def _given_points(j, prior, variance, room):
    """Return the variance of a component, and precision and mean of its mean given its points."""
    own = variance[min(j, variance.size - 1)]
    precision = prior.precision + room[_COUNT, j] / own
    return own, precision, (prior.precision * prior.mean + room[_SUM, j] / own) / precision


@njit
def _add_up(room, k):
    """Replace log terms by cumulative sums up to a factor; return the log of the sum of all."""
    largest = -np.inf
    for j in range(k):
        largest = max(largest, room[_LOG_TERM, j])
    total = 0.0
    for j in range(k):
        total += exp(room[_LOG_TERM, j] - largest)
        room[_LOG_TERM, j] = total
    return largest + log(total)


@njit
def pick(room, k, stream):
    """Return a component, drawn in proportion to the terms that were added up last."""
    threshold = uniform(stream) * room[_LOG_TERM, k - 1]
    chosen = 0
    while chosen < k - 1 and room[_LOG_TERM, chosen] <= threshold:
        chosen += 1
    return chosen


@njit
def draw_weights(component, prior, weight, room, stream):
    """Draw the weights given the components of the points: a Dirichlet distribution."""
    k = weight.size
    room[_COUNT, :k] = 0.0
    for i in range(component.size):
        if component[i] >= 0:
            room[_COUNT, component[i]] += 1.0
    largest = -np.inf
    for j in range(k):
        shape = prior.concentration + room[_COUNT, j]
        room[_LOG_TERM, j] = log_gamma_draw(stream, shape, room[_NORMAL, :1])
        largest = max(largest, room[_LOG_TERM, j])
    total = 0.0
    for j in range(k):
        weight[j] = exp(room[_LOG_TERM, j] - largest)
        total += weight[j]
    for j in range(k):
        weight[j] /= total


@njit
def draw_means(y, component, prior, mean, variance, room, stream):
    """Draw the means given variances and components: normal distributions.

    ``y`` and ``component`` are in the same order.
    """
    _count(y, component, room)
    for j in range(mean.size):
        _, precision, centre = _given_points(j, prior, variance, room)
        fill_normal(stream, room[_NORMAL, :1])
        mean[j] = centre + room[_NORMAL, 0] / sqrt(precision)


@njit
def draw_variances(y, component, prior, mean, variance, room, stream):
    """Draw the variances given means and components: inverse gamma distributions."""
    k = variance.size
    room[_COUNT, :k] = 0.0
    room[_SQUARES, :k] = 0.0
    for i in range(y.size):
        if component[i] >= 0:
            own = min(nb.int64(component[i]), k - 1)
            deviation = y[i] - mean[component[i]]
            room[_COUNT, own] += 1.0
            room[_SQUARES, own] += deviation * deviation
    for j in range(k):
        shape = prior.alpha + 0.5 * room[_COUNT, j]
        log_draw = log_gamma_draw(stream, shape, room[_NORMAL, :1])
        variance[j] = (prior.beta + 0.5 * room[_SQUARES, j]) * exp(-log_draw)


ABSENT = -1  # in place of the component of a point that has not been added yet


@dataclass(frozen=True, slots=True)
class MixtureStates(Rows):
    """A population of parameters and assignments."""

    step: int  # number of points that have been added
    # shape (n, k): parameters of the components; ``variance`` has one column if all components
    # share it
    mean: Floats
    variance: Floats
    weight: Floats
    # shape (n, n_points): component of each point, in the order of the data; ``ABSENT`` if it is
    # not there yet
    component: NDArray[np.int8]
    rows = ("mean", "variance", "weight", "component")

    def __len__(self) -> int:
        return len(self.mean)

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """The arrays in the order of the coordinates of a draw."""
        return self.mean, self.variance, self.weight, self.component

    def to_draws(self) -> Floats:
        """Return means, variances, weights and components, shape ``(n, n_dim)``."""
        return np.hstack([rows.astype(np.float64) for rows in self.arrays])


@dataclass(frozen=True)
class MixtureGibbs(OrderedKernel):
    """Draws means and weights, then the components of all points, and then the variances.

    Means and weights are integrated out of the densities of the path. So they do not belong to the
    state: each sweep draws them first and leaves them behind. Its reversal draws them first as
    well, and then the variances and the components.
    """

    def advance(
        self, path: Any, state: MixtureStates, beta: float, streams: NDArray[np.uint64]
    ) -> tuple[MixtureStates, MoveInfo]:
        """Move every member, with the points that it has; see ``contracts.Kernel``."""
        target, moved = path.target, [rows.copy() for rows in state.arrays]
        _sweep(target.y, target.prior, self.n_sweeps, self.backwards, *moved, streams)
        return MixtureStates(state.step, *moved), MoveInfo(1.0, len(state) * self.n_sweeps)


@njit
def _sweep(y, prior, n_sweeps, backwards, mean, variance, weight, component, streams):
    room = np.empty((ROOM, mean.shape[1]))
    for m in range(len(mean)):
        stream, z = streams[m], component[m]
        for _ in range(n_sweeps):
            draw_means(y, z, prior, mean[m], variance[m], room, stream)
            draw_weights(z, prior, weight[m], room, stream)
            if backwards:
                draw_variances(y, z, prior, mean[m], variance[m], room, stream)
            log_terms(variance[m], weight[m], room)
            for i in range(y.size):
                if z[i] >= 0:
                    z[i] = draw_component(y[i], mean[m], variance[m], room, stream)
            if not backwards:
                draw_variances(y, z, prior, mean[m], variance[m], room, stream)


@njit
def fill_parameters(prior, mean, variance, weight, streams):
    """Fill the parameters of every member with draws from the prior."""
    nothing, nowhere = np.empty(0), np.empty(0, np.int8)
    room = np.empty((ROOM, mean.shape[1]))
    for m in range(len(mean)):
        draw_weights(nowhere, prior, weight[m], room, streams[m])
        draw_variances(nothing, nowhere, prior, mean[m], variance[m], room, streams[m])
        draw_means(nothing, nowhere, prior, mean[m], variance[m], room, streams[m])


@dataclass(frozen=True)
class DataAnnealingPath(GrowingPath):
    """Densities of the first ``n`` points, for ``n`` from 0 to the number of all points.

    ``f_n`` is the joint density of the variances, of the components ``z_i`` of the first ``n``
    points and of these points, from which means and weights are integrated out. The weight of a new
    point is its density given variances and components, and its component is then drawn.

    Habeck (2017), section 6.4, where means and weights belong to the state, and the work has a
    larger variance; Chopin (2002), "A sequential particle filter method for static
    models".
    """

    target: Any  # data, prior, and the order of the points

    @property
    def n_steps(self) -> int:
        """Number of points."""
        return len(self.target.y)

    def draw(self, n: int, seed: np.random.SeedSequence) -> MixtureStates:
        """Return ``n`` independent draws from the prior, without points."""
        target, k = self.target, self.target.n_components
        mean, weight = np.empty((n, k)), np.empty((n, k))
        variance = np.empty((n, target.n_variances))
        fill_parameters(target.prior, mean, variance, weight, streams_of(seed, n))
        component = np.full((n, len(target.y)), ABSENT, np.int8)
        return MixtureStates(0, mean, variance, weight, component)

    def at(self, draws: NDArray[Any]) -> MixtureStates:
        """Return the population of some draws; see ``GaussianMixture.check``."""
        mean, variance, weight, component = (
            np.array(part, order="C") for part in self.target.split(draws)
        )
        step = int((component[0] != ABSENT).sum()) if len(draws) else 0
        return MixtureStates(step, mean, variance, weight, component.astype(np.int8))

    def smoothed(self, state: MixtureStates) -> Floats:
        """Return the log density of the next point, shape ``(n,)``, in nats."""
        nowhere, unused = np.empty((0, 0), np.int8), np.empty((0, 4), np.uint64)
        return self._next(state, nowhere, unused)

    def extended(self, state: MixtureStates, streams: NDArray[np.uint64]) -> MixtureStates:
        """Return the states with the next point, whose component is drawn given the rest."""
        component = state.component.copy()
        self._next(state, component, streams)
        return replace(state, step=state.step + 1, component=component)

    def shrunk(self, state: MixtureStates) -> MixtureStates:
        """Return the states without the point that was added last."""
        component = state.component.copy()
        component[:, self.target.point_order[state.step - 1]] = ABSENT
        return replace(state, step=state.step - 1, component=component)

    def _next(
        self, state: MixtureStates, out: NDArray[np.int8], streams: NDArray[np.uint64]
    ) -> Floats:
        """Return log densities of the next point; draw its components if there is room for them."""
        target, log_density = self.target, np.empty(len(state))
        point = int(target.point_order[state.step])
        _next_point(
            point, target.y, target.prior, state.variance, state.component,
            target.n_components, out, streams, log_density,
        )  # fmt: skip
        return log_density


@njit
def _next_point(point, y, prior, variance, component, k, out, streams, log_density):
    """Compute the log density of a point for every member, and draw its component into ``out``."""
    room = np.empty((ROOM, k))
    for m in range(log_density.size):
        log_density[m] = predict(y[point], y, component[m], prior, variance[m], k, room)
        if len(out):
            out[m, point] = pick(room, k, streams[m])


_LARGEST = 1e50  # squares of data, and sums of them, are far from overflow
# Draws of the inverse gamma distribution overflow for smaller shapes.
_LEAST_ALPHA, _LEAST_CONCENTRATION, _LARGEST_SHAPE = 0.1, 1e-3, 1e8
_UNIT_SUM = 1e-6


def checked_data(y: Any) -> Floats:
    """Return data points as float64."""
    found = float_array("y", y)
    if found.ndim != 1 or not found.size:
        raise ValueError(
            "y must be one row of data points, shape (n_points,) with at least one of them, got "
            f"shape {found.shape}; a mixture is univariate."
        )
    if not (np.abs(found) <= _LARGEST).all():
        wrong = found[~(np.abs(found) <= _LARGEST)][0]
        raise ValueError(
            f"y must hold finite numbers of at most {_LARGEST:g} in size, got {wrong}; leave out "
            "missing points, or choose other units."
        )
    return found


# Bounds of the parameters of the prior.
_BOUNDS = {
    "mean_sigma": (1.0 / _LARGEST, _LARGEST),
    "variance_alpha": (_LEAST_ALPHA, _LARGEST_SHAPE),
    "variance_beta": (1.0 / _LARGEST, _LARGEST),
    "weights_a": (_LEAST_CONCENTRATION, _LARGEST_SHAPE),
}
_MOST_COMPONENTS = 100  # their numbers are bytes
_MOST_SEED = 2**63
_PATHS = 256


@dataclass(frozen=True, eq=False, repr=False)
class GaussianMixture(NativeTarget):
    """A mixture of univariate normal distributions, annealed by adding data points one by one.

    The prior is ``mean_j ~ Normal(mean_mu, mean_sigma)``, ``variance_j ~
    InverseGamma(variance_alpha, variance_beta)`` and ``weights ~ Dirichlet(weights_a)``, all
    independent, with the parameters of ``pm.Normal``, ``pm.InverseGamma`` and ``pm.Dirichlet``.
    The log evidence is the log of the marginal density of the data. It counts all labellings of
    the components, so that nothing has to be added for label switching.

    Parameters
    ----------
    y : array_like, shape (n_points,)
        Data points.
    n_components : int
        Number of components, up to 100.
    mean_mu, mean_sigma : float
        Mean and standard deviation of the prior of the means.
    variance_alpha, variance_beta : float
        Shape and scale of the inverse gamma prior of the variances (not of standard deviations).
    weights_a : float
        Concentration of the symmetric Dirichlet prior of the weights.
    variances : {"unequal", "equal"}
        Whether every component has a variance of its own, or all share one.
    order : {"random", "given"} or array_like of int, shape (n_points,)
        Order in which points are added: shuffled, as they are given, or by their indices. The log
        evidence does not depend on it, but its error does.
    order_seed : int
        Seed of the random order.

    Raises
    ------
    ValueError
        If data are not finite numbers in one row, a parameter of the prior is out of range, or the
        order does not name every point once.

    Notes
    -----
    Habeck (2017), section 6.4: the density after ``n`` stages is that of the first ``n`` points,
    so that the number of stages is the number of points. Forward paths add a point and draw the
    components of the points and the parameters in turn (Gibbs sampling); reverse paths
    (``method="ais"``) remove the points in the opposite order. Unlike in the paper, means and
    weights are integrated out of the weight of a new point; see `DataAnnealingPath`. With the usual
    method, resample-move, the error is smaller than that of independent paths.

    Examples
    --------
    >>> import numpy as np, pm_evidence as pe
    >>> y = np.array([-2.1, -1.9, -1.6, 1.5, 1.8, 2.3])
    >>> target = pe.mixtures.GaussianMixture(
    ...     y, 2, mean_mu=0, mean_sigma=3, variance_alpha=2, variance_beta=0.5
    ... )
    >>> dt = pe.sample_evidence(target, random_seed=1, progressbar=False)
    >>> pe.log_evidence(dt).status
    'ok'
    """

    y: ArrayLike
    n_components: int
    _: KW_ONLY
    mean_mu: float
    mean_sigma: float
    variance_alpha: float
    variance_beta: float
    weights_a: float = 1.0
    variances: str = "unequal"
    order: str | ArrayLike = "random"
    order_seed: int = 0
    method = "resample_move"
    variables = ("mean", "variance", "weight", "component")
    _constants = ("mean_mu", *_BOUNDS)

    def __post_init__(self) -> None:
        object.__setattr__(self, "y", checked_data(self.y))
        check_count("n_components", self.n_components, 1, _MOST_COMPONENTS)
        object.__setattr__(self, "mean_mu", check_finite("mean_mu", self.mean_mu, 0.0))
        if abs(self.mean_mu) > _LARGEST:
            raise ValueError(
                f"mean_mu must be at most {_LARGEST:g} in size, got {self.mean_mu:g}; choose other "
                "units."
            )
        for name, (least, most) in _BOUNDS.items():
            number = check_positive(name, getattr(self, name))
            if not least <= number <= most:
                raise ValueError(
                    f"{name} must be from {least:g} to {most:g}, got {number:g}; choose another "
                    "prior, or other units."
                )
            object.__setattr__(self, name, number)
        check_choice("variances", self.variances, ("unequal", "equal"))
        order = checked_order("order", self.order, self.n_points, "points", ("random", "given"))
        object.__setattr__(self, "order", order)
        check_count("order_seed", self.order_seed, 0, _MOST_SEED)

    def __repr__(self) -> str:
        return f"GaussianMixture({self.n_points} points, {self.n_components} components)"

    @property
    def n_points(self) -> int:
        """Number of data points."""
        return len(np.asarray(self.y))

    @property
    def n_variances(self) -> int:
        """Number of variances: one for each component, or one in all."""
        return 1 if self.variances == "equal" else self.n_components

    @property
    def n_dim(self) -> int:  # type: ignore[override]
        """Number of means, variances and weights, and of components of points."""
        return 2 * self.n_components + self.n_variances + self.n_points

    @cached_property
    def point_order(self) -> NDArray[np.int64]:
        """Indices of the points in the order in which they are added."""
        return order_of(self.order, self.n_points, self.order_seed)

    @property
    def prior(self) -> Prior:
        """The prior, as compiled code reads it."""
        return Prior(
            self.mean_mu,
            self.mean_sigma**-2,
            self.variance_alpha,
            self.variance_beta,
            self.weights_a,
        )

    def annealing_setup(self, kernel: str | Kernel) -> AnnealingSetup:
        """Return the path along which points are added, and Gibbs sampling.

        Raises
        ------
        ValueError
            If another kernel is requested.
        """
        moves = chosen_kernel(kernel, {"gibbs": MixtureGibbs}, "a mixture")
        grows: Any = Grows(moves)  # its reversal is of another class
        return AnnealingSetup(
            DataAnnealingPath(self), grows, n_stages=self.n_points, n_paths=_PATHS, stepwise=True
        )

    def with_path(self, setup: AnnealingSetup, path: str | Path) -> AnnealingSetup:
        """Return the setup along a path: ``"auto"`` or ``"data"``, or a path object."""
        return along(setup, path, self, {"data": None})

    def split(self, draws: NDArray[Any]) -> list[NDArray[Any]]:
        """Return means, variances, weights and components of draws, shape ``(n, n_dim)``."""
        ends = np.cumsum([self.n_components, self.n_variances, self.n_components])
        return np.split(draws, ends, axis=1)

    def check(self, draws: NDArray[Any], name: str = "draws") -> Floats:
        """Return parameters and components of points, shape ``(n, n_dim)``, as float64.

        Raises
        ------
        ValueError
            If they have another shape, or values that are not those of a draw.
        """
        found, k = float_array(name, draws), self.n_components
        if found.ndim != 2 or found.shape[1] != self.n_dim or not len(found):
            raise ValueError(
                f"{name} must have the shape (n, {self.n_dim}): {k} means, {self.n_variances} "
                f"variances, {k} weights and {self.n_points} components in every row, got "
                f"{found.shape}; put them side by side in this order."
            )
        mean, variance, weight, component = self.split(found)
        for rule, good in {
            "finite means": np.isfinite(mean),
            "finite variances above 0": (variance > 0.0) & np.isfinite(variance),
            "weights of at least 0": weight >= 0.0,
            "weights that sum to 1": np.abs(weight.sum(axis=1, keepdims=True) - 1.0) < _UNIT_SUM,
            f"components from 0 to {k - 1}": np.isin(component, np.arange(k)),
        }.items():
            if not good.all():
                row = int(np.argmin(good.all(axis=1)))
                raise ValueError(
                    f"{name} must hold {rule}, got other values in row {row}; look for NaN, and "
                    "for columns in another order."
                )
        return found

    def posterior(self, draws: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Return means, variances, weights, and the component of each point.

        Their shapes are ``(n, n_components)``, ``(n, n_variances)``, ``(n, n_components)`` and
        ``(n, n_points)``.
        """
        parts = dict(zip(self.variables, self.split(draws), strict=True))
        return parts | {"component": parts["component"].astype(np.int64)}

    def observed_data(self) -> dict[str, NDArray[Any]]:
        """Return the data points ``y``."""
        return {"y": np.asarray(self.y)}

    def coords_and_dims(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the numbers of the components and of the points, and names of dimensions."""
        coords = {"part": np.arange(self.n_components), "point": np.arange(self.n_points)}
        shared = self.variances == "equal"
        dims = {"mean": ["part"], "weight": ["part"], "component": ["point"], "y": ["point"]}
        return coords, dims if shared else dims | {"variance": ["part"]}
