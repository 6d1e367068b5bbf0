"""Paths along which the data of a PyMC model are added point by point."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_choice, check_count, described, plain_array
from pm_evidence.core.exceptions import NumericalError
from pm_evidence.core.numerics import ess_share
from pm_evidence.paths.geometric import EstimatedPath, GeometricPath, Posterior
from pm_evidence.targets.estimated.target import EstimatedTarget, TimesTarget, times_target
from pm_evidence.targets.layout import Particles
from pm_evidence.targets.model.data_points import DataPointsTarget, data_points_target, terms_of
from pm_evidence.targets.model.target import PyMCTarget

Floats = NDArray[np.float64]


_LEAST_PART = 1e-6  # of a data point, in a step


@dataclass(frozen=True, slots=True)
class Placed:
    """Particles whose log likelihood is that of the data points up to a place on the path."""

    particles: Any  # points with their log densities
    beta: float  # the place on the path, from 0 (no data) to 1 (all data)

    def __len__(self) -> int:
        return len(self.particles)

    def take(self, index: NDArray[np.int64]) -> Self:
        """Return the members at ``index`` as a new population."""
        return type(self)(self.particles.take(index), self.beta)

    def join(self, others: Sequence[Self]) -> Self:
        """Return this population followed by ``others``, which have the same place."""
        particles = self.particles.join([other.particles for other in others])
        return type(self)(particles, self.beta)

    def to_draws(self) -> Floats:
        """Return the points, shape ``(n, n_dim)``, with what else makes up a state."""
        return self.particles.to_draws()


@dataclass(frozen=True)
class DataPointsPath:
    """``log f_beta(x) = log prior(x) + sum_i w_i log p(y_i | x)`` with ``w_i`` from 0 to 1.

    With ``N`` data points in an order, ``w_i = clip(beta N - i, 0, 1)`` for ``i = 0, ..., N - 1``:
    they are added one after the other, and the last one, if need be, in parts. A step costs as
    much as the data that it adds, and a move as much as the data so far.

    Chopin (2002); Fraccaro, Paquet and Winther (2016), section 4.
    """

    target: Any  # the model, with its data in an order

    @property
    def prescribed(self) -> Floats | None:
        """The places at the ends of the batches that the user asks for, from 0 to 1, or None."""
        if self.target.batches is None:
            return None
        return np.cumsum([0, *self.target.batches]) / self.target.n_points

    def place(self, beta: float) -> float:
        """Return the number of data points at ``beta``; that of whole ones is exact."""
        place = beta * self.target.n_points
        whole = round(place)
        return float(whole) if abs(place - whole) < 0.1 * _LEAST_PART else place

    def at_place(self, beta: float) -> Any:
        """Return the path whose end is the density at ``beta``."""
        return GeometricPath(self.target.having(0.0, self.place(beta)))

    def cost_of_place(self, state: Placed, beta: float) -> int:
        """Return the density evaluations that `placed` needs."""
        return 0 if state.beta == beta else len(state)

    def placed(self, state: Placed, beta: float) -> Placed:
        """Return the population with the log likelihood, and its gradient, at ``beta``."""
        if state.beta == beta:
            return state
        target, x = self.at_place(beta).target, state.particles.x
        if target.discrete.size or target.differentiable is None:
            return Placed(target.evaluate(x), beta)
        return Placed(Particles(x, *target.differentiable.evaluate(x)), beta)

    def reached(self, state: Placed, beta: float, streams: NDArray[np.uint64]) -> Placed:
        """Return the population with the log likelihood at ``beta``; see ``contracts.Growing``."""
        return self.placed(state, beta)

    def part(self, start: float, stop: float) -> str:
        """Return the data points that a step adds, numbered as in the model, for messages."""
        first, last = int(self.place(start)), int(np.ceil(self.place(stop)))
        names = [self.target.name_of(index) for index in self.target.order[first:last]]
        return ", ".join(names[:3]) + (f" and {len(names) - 3} others" if len(names) > 3 else "")

    def draw(self, n: int, seed: np.random.SeedSequence) -> Placed:
        """Return ``n`` independent prior draws."""
        return Placed(self.at_place(0.0).draw(n, seed), 0.0)

    def at(self, draws: Floats) -> Placed:
        """Return the population at some points, shape ``(n, n_dim)``, with all data."""
        return Placed(self.at_place(1.0).at(draws), 1.0)

    def log_ratio(self, state: Placed, start: float, stop: float) -> Floats:
        """Return the log likelihood of the data between two places, shape ``(n,)``, in nats."""
        if stop < start:
            return -self.log_ratio(state, stop, start)
        first, last = self.place(start), self.place(stop)
        if first == last:
            return np.zeros(len(state))
        found = self.added(state, first, last)
        bad = np.isnan(found) | (found == np.inf)
        if bad.any():
            raise NumericalError(
                f"the log likelihood must be finite or -inf, got {found[bad][0]} for "
                f"{self.part(start, stop)} at "
                f"{self.target.describe(state.particles.x[np.flatnonzero(bad)[0]])}; look for NaN "
                "in the data, or for an overflow in the model at such values."
            )
        return found

    def added(self, state: Placed, first: float, last: float) -> Floats:
        """Return the log likelihood of the data between two numbers of data points."""
        found: Floats = (
            self.target.having(first, last).evaluate(state.particles.x).log_density[:, 1]
        )
        return found

    def energy(self, state: Placed, beta: float) -> Floats:
        """Return minus the slope of the log density: that of one data point, in nats."""
        n, place = self.target.n_points, np.floor(self.place(beta))
        place = min(place, n - 1)
        return -n * self.log_ratio(state, place / n, (place + 1.0) / n)

    def order(self, state: Placed) -> NDArray[np.int64]:
        """Return an order along the main direction of the population; see ``GeometricPath``."""
        return GeometricPath(self.target).order(state.particles)

    def posterior(self) -> Posterior | None:
        """Return the density with all data as a function of points in R^d, or None."""
        return self.at_place(1.0).posterior()

    def next_beta(self, state: Placed, beta: float, ess: float) -> float:
        """Return the place at which the weights have a given effective size.

        Data are added in portions, each twice as large as the one before, until the effective
        sample size is too small; the last portion is then halved until the place is found. Each
        data point is evaluated about three times.
        """
        n, start = self.target.n_points, self.place(beta)
        # where the likelihood is zero for some particles, no step is so short that it keeps them
        alive = ess_share(self.log_ratio(state, beta, (start + _LEAST_PART) / n))
        if alive == 0.0:
            return (start + _LEAST_PART) / n
        low, ratio, portion = start, np.zeros(len(state)), 1.0
        while low < n:
            high = min(np.floor(low) + portion, n)
            further = ratio + self.log_ratio(state, low / n, high / n)
            if ess_share(further) < ess * alive:
                break
            low, ratio, portion = high, further, 2.0 * portion
        else:
            return 1.0
        while high - low > (1.0 if low > start else _LEAST_PART):
            middle = 0.5 * (low + high)
            if high - low > 1.0:  # whole data points, if there is at least one
                middle = np.floor(middle)
            further = ratio + self.log_ratio(state, low / n, middle / n)
            if ess_share(further) >= ess * alive:
                low, ratio = middle, further
            else:
                high = middle
        return float(low if low > start else start + _LEAST_PART) / n


@dataclass(frozen=True)
class TimesPath(DataPointsPath):
    """``log f_beta`` of a state-space model with the data up to a time, estimated by a filter.

    Chopin, Jacob and Papaspiliopoulos (2013): a filter for each value of the parameters gives an
    unbiased estimate of the likelihood up to every time, and a move runs a new one.
    """

    target: TimesTarget  # the model, whose data are in the order of time

    def at_place(self, beta: float) -> EstimatedPath:
        """Return the path whose end is the density at ``beta``."""
        return EstimatedPath(self.target.up_to(self.place(beta)))

    def cost_of_place(self, state: Placed, beta: float) -> int:
        """Return 0: the estimates of all times are known."""
        return 0

    def placed(self, state: Placed, beta: float) -> Placed:
        """Return the population with the estimated log likelihood at ``beta``."""
        return Placed(self.at_place(beta).target.known(state.particles), beta)

    def added(self, state: Placed, first: float, last: float) -> Floats:
        """Return the estimated log density of the data between two times given those before."""
        found: Floats = state.particles.between(first, last)
        return found

    def posterior(self) -> None:
        """Return None: the density is only estimated."""


_ORDERS = ("auto", "given", "random", "informative")
_PRIOR_DRAWS = 200


@dataclass(frozen=True, kw_only=True, eq=False)
class DataPoints:
    """How the data of a PyMC model are added: ``path="data_points"`` with options.

    Data points are the entries of the observed variables along their first axis, through all
    variables one after the other. Potentials together count as one data point, the first one. Those
    of a `StateSpace`, which must be the only observed variable, are its times.

    Parameters
    ----------
    order : str or array_like of int
        ``"random"``; ``"given"``, the order of the model; ``"informative"``, points first whose log
        likelihood varies most between draws from the prior; or the index of each data point, from
        0, in the order in which they are added. ``"auto"``, the default, is random, and the order
        of time for a `StateSpace`, which takes no other.
    seed : int
        Seed of the random order.
    batches : int or sequence of int, optional
        Size of all batches in which data are added, or of each. By default every step adds as many
        data points as leave an effective sample size that the method sets, or a part of one.

    Raises
    ------
    ValueError, TypeError
        If an argument is of the wrong type or out of range.

    Notes
    -----
    Log Z does not depend on the order, but its error does. Where data are sorted by class or time,
    the first ones are a poor sample of all, and the posterior changes more on the way.

    Examples
    --------
    >>> import pymc as pm, pm_evidence as pe
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", 0, 1)
    ...     y = pm.Normal("y", mu, 1, observed=[0.5, 1.5, 0.2, 0.9])
    >>> dt = pe.sample_evidence(
    ...     model, path=pe.paths.DataPoints(batches=[1, 1, 2]), random_seed=1, progressbar=False
    ... )
    >>> dt["annealing"]["beta"].values
    array([0.  , 0.25, 0.5 , 1.  ])
    """

    order: Any = "auto"
    seed: int = 0
    batches: Any = None

    def __post_init__(self) -> None:
        if isinstance(self.order, str):
            check_choice("order", self.order, _ORDERS)
        check_count("seed", self.seed, 0)
        if self.batches is not None:
            for size in np.atleast_1d(plain_array("batches", self.batches)).tolist():
                check_count("batches", size, 1)

    def of(self, target: PyMCTarget | EstimatedTarget) -> DataPointsTarget | TimesTarget:
        """Return the target of a model whose data are added like this.

        Raises
        ------
        ModelError
            If the log likelihood of an observed variable is not a sum over data points.
        ValueError
            If the order or the batches do not hold each data point once, or the order is not that
            of time.
        """
        if isinstance(target, EstimatedTarget):
            return self._of_times(target)
        n = sum(term.n_points for term in terms_of(target.model))
        sizes = self._sizes(n)
        order = self._indices(target, n)
        return data_points_target(target, order, sizes)

    def _of_times(self, target: EstimatedTarget) -> TimesTarget:
        n = times_target(target, None).n_points
        named = isinstance(self.order, str) and self.order in ("auto", "given")
        if not named and not np.array_equal(self.order, np.arange(n)):
            raise ValueError(
                f"order must be that of time for a pe.StateSpace, got {described(self.order)}; "
                "leave it out."
            )
        return times_target(target, self._sizes(n))

    def _indices(self, target: PyMCTarget, n: int) -> NDArray[np.int64]:
        if not isinstance(self.order, str):
            order = np.asarray(self.order)
            if order.dtype.kind not in "iu" or not np.array_equal(np.sort(order), np.arange(n)):
                raise ValueError(
                    f"order must hold each of the numbers 0 to {n - 1} of the data points once, "
                    f"got {described(self.order)} of shape {order.shape}; count the data points "
                    "through all observed variables."
                )
            return order.astype(np.int64)
        first = int(bool(target.model.potentials))  # potentials are one point, and come first
        order = np.arange(n)
        if self.order in ("auto", "random"):
            order[first:] = first + np.random.default_rng(self.seed).permutation(n - first)
        elif self.order == "informative":
            given = data_points_target(target, order)
            x = given.having(0.0, 0.0).draw(_PRIOR_DRAWS, np.random.SeedSequence(self.seed)).x
            parts = (given.having(i, i + 1).evaluate(x).log_density[:, 1] for i in range(n))
            spread = np.array([part.var() for part in parts])
            spread[~np.isfinite(spread)] = np.inf
            order[first:] = first + np.argsort(-spread[first:], kind="stable")
        return order

    def _sizes(self, n: int) -> tuple[int, ...] | None:
        if self.batches is None:
            return None
        if np.ndim(self.batches) == 0:
            full, rest = divmod(n, int(self.batches))
            return (int(self.batches),) * full + (rest,) * (rest > 0)
        sizes = tuple(int(size) for size in self.batches)
        if sum(sizes) != n:
            raise ValueError(
                f"batches must hold all {n} data points, got sizes that add up to {sum(sizes)}; "
                "change the last one, or pass one number for batches of equal size."
            )
        return sizes
