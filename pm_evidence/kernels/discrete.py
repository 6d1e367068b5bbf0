"""Moves for discrete coordinates: exact Gibbs draws, and an integer random walk."""

from dataclasses import dataclass, replace
from math import exp, log
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_positive, check_share
from pm_evidence.core.codegen.numba import call_density, njit
from pm_evidence.core.contracts import MoveInfo
from pm_evidence.core.random import uniform
from pm_evidence.kernels.random_walk import acceptance_probability, accepts, move_towards
from pm_evidence.kernels.suitability import check_positions, checked_coordinates, checked_row
from pm_evidence.targets.layout import Particles

# A Gibbs draw evaluates the density at every value; with more values a random walk is cheaper.
MAX_GIBBS_SUPPORT = 32
# With more values than this a draw of one coordinate takes minutes.
_MOST_VALUES = 100_000
_LARGEST_WHOLE = 2.0**53  # beyond it floats cannot represent every whole number


@dataclass(frozen=True)
class DiscreteGibbs:
    """A sweep of exact draws from the full conditionals of coordinates with small support.

    Parameters
    ----------
    coordinates : ndarray of int64, shape (n_coordinates,)
        Positions in the flat vector, in the order of the sweep; the reversal runs backwards.
    lower, upper : ndarray of float64, shape (n_coordinates,)
        Least and greatest value of each, whole numbers. A coordinate whose present value lies
        outside is not changed, so that the density stays invariant. The kernel mixes only within
        the bounds.

    Raises
    ------
    ValueError
        If coordinates are not distinct positions, or bounds are not whole numbers in order.
    """

    coordinates: NDArray[np.int64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]

    def __post_init__(self) -> None:
        coordinates = checked_coordinates(self.coordinates)
        bounds = {name: getattr(self, name) for name in ("lower", "upper")}
        for name, values in bounds.items():
            bounds[name] = _whole_bounds(name, values, len(coordinates))
        bad = np.flatnonzero(bounds["lower"] > bounds["upper"])
        if bad.size:
            at = bad[0]
            raise ValueError(
                f"lower must not exceed upper, got lower={bounds['lower'][at]:g} and "
                f"upper={bounds['upper'][at]:g} at index {at}; exchange them."
            )
        n_values = (bounds["upper"] - bounds["lower"]).max() + 1.0
        if n_values > _MOST_VALUES:
            raise ValueError(
                f"lower and upper must leave at most {_MOST_VALUES:,} values, got {n_values:.0f}; "
                "use pe.kernels.IntegerWalk, which does not try them all."
            )
        for name, values in (("coordinates", coordinates), *bounds.items()):
            object.__setattr__(self, name, values)

    def check(self, target: Any) -> NDArray[np.int64]:
        """Return the coordinates that it moves.

        Raises
        ------
        ValueError
            If one is not a discrete coordinate of the target, or a bound exceeds the target's own.
        """
        where = check_positions(self.coordinates, target)
        wrong = (self.lower < target.lower[where]) | (self.upper > target.upper[where])
        if wrong.any():
            at = int(np.argmax(wrong))
            own = f"{target.lower[where[at]]:g} to {target.upper[where[at]]:g}"
            raise ValueError(
                f"lower and upper must lie within the variable's own bounds, {own}, got "
                f"{self.lower[at]:g} to {self.upper[at]:g} for coordinate {self.coordinates[at]}; "
                "a model may index an array by the value. Pass the variable's bounds."
            )
        return self.coordinates

    def advance(
        self, path: Any, state: Particles, beta: float, streams: NDArray[np.uint64]
    ) -> tuple[Particles, MoveInfo]:
        """Draw every coordinate of every member once; see ``contracts.Kernel``."""
        compiled = path.target.density
        x, log_density = state.x.copy(), state.log_density.copy()
        # writable copies, because the functions are compiled for such arrays
        sites = self.coordinates.copy(), self.lower.copy(), self.upper.copy()
        density = compiled.address, compiled.data
        changed, n_evaluations, n_nan = _gibbs_sweep(density, beta, sites, x, log_density, streams)
        share = changed / max(len(x) * len(self.coordinates), 1)
        info = MoveInfo(share, n_evaluations, n_nan)
        return Particles(x, log_density), info

    def reversed(self) -> Self:
        """Return the sweep in the opposite order."""
        return replace(
            self,
            coordinates=self.coordinates[::-1].copy(),
            lower=self.lower[::-1].copy(),
            upper=self.upper[::-1].copy(),
        )

    def settings(self) -> dict[str, float]:
        """Return no settings: the draws are exact."""
        return {}


@dataclass(frozen=True)
class IntegerWalk:
    """A sweep of Metropolis steps on whole numbers, symmetric with geometric tails.

    Proposals outside the target's bounds are rejected without an evaluation of the density, because
    a model may use the value as an index of an array. If the target has no bounds, the density has
    to be zero outside the support.

    Parameters
    ----------
    coordinates : ndarray of int64, shape (n_coordinates,)
        Positions in the flat vector, in the order of the sweep; the reversal runs backwards.
    spread : ndarray of float64, shape (n_coordinates,)
        Typical distance of a proposal before scaling, at least 1; learnt from the population.
    scale : float
        Common factor of all distances.
    target_accept : float
        Mean acceptance probability that tuning aims at.

    Raises
    ------
    ValueError
        If coordinates are not distinct positions, or a distance is not a number of at least 1.
    """

    coordinates: NDArray[np.int64]
    spread: NDArray[np.float64]
    scale: float = 1.0
    target_accept: float = 0.4

    def __post_init__(self) -> None:
        coordinates = checked_coordinates(self.coordinates)
        spread = checked_row("spread", self.spread, len(coordinates))
        if spread.min() < 1.0:
            raise ValueError(
                "spread must be at least 1, the least step of a whole number, got "
                f"{spread.min():g}; pass 1 if you do not know it."
            )
        check_positive("scale", self.scale)
        check_share("target_accept", self.target_accept, 0.4)
        object.__setattr__(self, "coordinates", coordinates)
        object.__setattr__(self, "spread", spread)

    def check(self, target: Any) -> NDArray[np.int64]:
        """Return the coordinates that it moves.

        Raises
        ------
        ValueError
            If one is not a discrete coordinate of the target.
        """
        check_positions(self.coordinates, target)
        return self.coordinates

    def advance(
        self, path: Any, state: Particles, beta: float, streams: NDArray[np.uint64]
    ) -> tuple[Particles, MoveInfo]:
        """Propose a step of every coordinate of every member; see ``contracts.Kernel``."""
        target = path.target
        compiled = target.density
        x, log_density = state.x.copy(), state.log_density.copy()
        lower, upper = np.full(x.shape[1], -np.inf), np.full(x.shape[1], np.inf)
        lower[target.discrete], upper[target.discrete] = target.lower, target.upper
        # a writable copy, because the function is compiled for such arrays
        spread = np.maximum(self.scale * self.spread, 1.0)
        sites = self.coordinates.copy(), spread, lower, upper
        density = compiled.address, compiled.data
        acceptance, n_nan = _integer_sweep(density, beta, sites, x, log_density, streams)
        n_evaluations = len(x) * len(self.coordinates)
        info = MoveInfo(acceptance / max(n_evaluations, 1), n_evaluations, n_nan)
        return Particles(x, log_density), info

    def learn(self, path: Any, state: Particles) -> Self:
        """Return the kernel with distances learnt from a population."""
        low, high = np.quantile(state.x[:, self.coordinates], (0.1, 0.9), axis=0)
        return replace(self, spread=np.maximum(0.5 * (high - low), 1.0))

    def adjust(self, info: MoveInfo) -> Self:
        """Return the kernel with its scale moved towards an acceptance of ``target_accept``."""
        scale = move_towards(self.scale, info.acceptance, self.target_accept)
        return replace(self, scale=float(np.clip(scale, 1e-3, 1e3)))

    def without_exploration(self) -> Self:
        """Return the kernel itself: it never explores."""
        return self

    def reversed(self) -> Self:
        """Return the sweep in the opposite order."""
        return replace(
            self, coordinates=self.coordinates[::-1].copy(), spread=self.spread[::-1].copy()
        )

    def settings(self) -> dict[str, float]:
        """Return the scale."""
        return {"integer_scale": self.scale}


def _whole_bounds(name: str, values: Any, n: int) -> NDArray[np.float64]:
    found = checked_row(name, values, n)
    bad = np.flatnonzero((found != np.floor(found)) | (np.abs(found) > _LARGEST_WHOLE))
    if bad.size:
        raise ValueError(
            f"{name} must hold whole numbers, got {found[bad[0]]:g} at index {bad[0]}; pass the "
            "least and the greatest value that the variable can take."
        )
    return found


@njit
def _gibbs_sweep(density, beta, sites, x, log_density, streams):
    """Move every row in place; return the changes, the evaluations and the count of NaN."""
    (address, data), (coordinates, lower, upper) = density, sites
    n, n_dim = x.shape
    widest = 1
    for c in range(coordinates.size):
        widest = max(widest, int(upper[c] - lower[c]) + 1)
    densities = np.empty((widest, 2))
    weights = np.empty(widest)
    no_gradient = np.empty((2, n_dim))
    changed, n_evaluations, n_nan = 0, 0, 0
    for i in range(n):
        if not np.isfinite(log_density[i, 0] + beta * log_density[i, 1]):
            continue
        for c in range(coordinates.size):
            k = coordinates[c]
            old = x[i, k]
            if old < lower[c] or old > upper[c]:  # its conditional probability is not computed
                continue
            n_values = int(upper[c] - lower[c]) + 1
            top = -np.inf
            for v in range(n_values):
                value = lower[c] + v
                if value == old:
                    densities[v] = log_density[i]
                else:
                    x[i, k] = value
                    n_evaluations += 1
                    if call_density(address, x[i], densities[v], no_gradient, data) != 0:
                        densities[v, :] = np.nan
                weights[v] = densities[v, 0] + beta * densities[v, 1]
                if np.isnan(weights[v]) or weights[v] == np.inf:
                    weights[v] = -np.inf
                    n_nan += 1
                top = max(top, weights[v])
            total = 0.0
            for v in range(n_values):
                weights[v] = exp(weights[v] - top) if weights[v] > -np.inf else 0.0
                total += weights[v]
            left = uniform(streams[i]) * total
            chosen = -1
            for v in range(n_values):
                if weights[v] > 0.0:
                    chosen = v
                    left -= weights[v]
                    if left <= 0.0:
                        break
            x[i, k] = lower[c] + chosen
            log_density[i] = densities[chosen]
            changed += x[i, k] != old
    return changed, n_evaluations, n_nan


@njit
def _integer_sweep(density, beta, sites, x, log_density, streams):
    """Move every row in place; return summed acceptance probabilities and the count of NaN."""
    (address, data), (coordinates, spread, lower, upper) = density, sites
    n, n_dim = x.shape
    new_density = np.empty(2)
    no_gradient = np.empty((2, n_dim))
    acceptance, n_nan = 0.0, 0
    for i in range(n):
        for c in range(coordinates.size):
            start = log_density[i, 0] + beta * log_density[i, 1]
            if not np.isfinite(start):
                break
            k = coordinates[c]
            old = x[i, k]
            # distance - 1 is geometric with mean spread - 1
            distance = 1.0
            if spread[c] > 1.0:
                distance += np.floor(log(uniform(streams[i])) / log(1.0 - 1.0 / spread[c]))
            value = old + distance if uniform(streams[i]) < 0.5 else old - distance
            if value < lower[k] or value > upper[k]:
                continue
            x[i, k] = value
            failed = call_density(address, x[i], new_density, no_gradient, data) != 0
            log_ratio = new_density[0] + beta * new_density[1] - start
            if failed or np.isnan(log_ratio) or log_ratio == np.inf:
                n_nan += 1
                x[i, k] = old
                continue
            acceptance += acceptance_probability(log_ratio)
            if accepts(log_ratio, streams[i]):
                log_density[i] = new_density
            else:
                x[i, k] = old
    return acceptance, n_nan
