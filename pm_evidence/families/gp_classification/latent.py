"""Latent values: their populations, the paths from a Gaussian to their posterior, and moves."""

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs
from scipy.special import log_ndtr

from pm_evidence.core.checks import check_choice, check_count, check_positive
from pm_evidence.core.contracts import MoveInfo
from pm_evidence.core.random import normals, uniforms
from pm_evidence.families.gp_classification.arithmetic import log_ndtr_and_hazards, times
from pm_evidence.families.gp_classification.propagation import GaussianApproximation, nearest
from pm_evidence.families.native import LinearPath, NativeKernel
from pm_evidence.targets.layout import Rows

Floats = NDArray[np.float64]


_MOST_LEAPFROGS = 100_000
METRICS = ("gaussian", "identity")
# Iterations of the implicit steps end when momenta and positions move by less than this, relatively
# to the largest. A trajectory on which they do not is rejected.
_TOLERANCE, _MOST_ITERATIONS = 1e-8, 100
# An iteration with a metric nearby leaves at most this share of the error of a velocity; where it
# might leave more, another metric is factorised.
_LARGEST_SHARE = 0.5
# Numbers of the matrices of members that move together.
_MOST_NUMBERS = 2**23


@dataclass(frozen=True, slots=True)
class LatentValues(Rows):
    """Latent values ``x``, with what weights need."""

    x: Floats  # shape (n, n_points): the values in the order of the data
    log_likelihood: Floats  # shape (n,): log probability of the labels given ``x``, in nats
    # shape (n,): log of the product of the Gaussian factors that approximate the likelihood, in
    # nats
    log_factors: Floats
    rows = ("x", "log_likelihood", "log_factors")


@dataclass(frozen=True)
class LatentPath(LinearPath):
    """``log f_beta(x) = (1 - beta) log q(x) + beta (log N(x; 0, K) + sum_i log Phi(y_i x_i))``.

    Fraccaro, Paquet and Winther (2016), Eq. 11, where ``q`` is the Gaussian of expectation
    propagation, and Eq. 12, where it is the prior. Both are normalised, so that the work of paths
    gives the log evidence.

    ``q`` is the prior times Gaussian factors, so that ``f_1 / q`` is a product of functions of one
    latent value each.
    """

    target: Any  # the data, their covariance, and the reference ``q``

    def rest(self, beta: float) -> float:
        """Return the power of expectation propagation's factors that is part of ``f_beta``.

        ``f_beta`` is the prior times these, times the likelihood to the power beta.
        """
        return 0.0 if self.target.reference == "prior" else 1.0 - beta

    def gaussian(self, beta: float) -> GaussianApproximation:
        """Return a Gaussian close to ``f_beta``, for kernels."""
        made = self.target.gaussians
        return nearest(made, beta) if self.target.reference == "prior" else made[1.0]

    def draw(self, n: int, seed: np.random.SeedSequence) -> LatentValues:
        """Return ``n`` independent draws from the reference."""
        reference = self.gaussian(0.0)
        noise = np.random.default_rng(seed).standard_normal((n, len(reference.mean)))
        return self.at(reference.mean + noise @ reference.root.T)

    def at(self, draws: NDArray[Any]) -> LatentValues:
        """Return the population at some latent values, shape ``(n, n_points)``."""
        x = np.array(draws, np.float64, order="C")
        log_likelihood = log_ndtr(self.target.signs * x).sum(axis=1)
        return LatentValues(x, log_likelihood, self.target.gaussians[1.0].log_factors(x))

    def energy(self, state: LatentValues, beta: float) -> Floats:
        """Return minus the derivative of the log density by beta, shape ``(n,)``, in nats."""
        if self.target.reference == "prior":
            return -state.log_likelihood
        energy: Floats = state.log_factors - self.target.expectation_propagation().log_normaliser
        return energy - state.log_likelihood


@dataclass(frozen=True)
class LatentHMC(NativeKernel):
    """Hamiltonian trajectories of all latent values, with fresh momenta; reversible.

    Parameters
    ----------
    step_size : float
        Mean step. Each trajectory draws its own step within 20 % of it, which avoids periodic
        trajectories.
    n_leapfrogs : int
        Number of steps of a trajectory.
    metric : {"gaussian", "identity"}
        In which coordinates momenta are standard normal: those in which a Gaussian near the density
        is, or the latent values themselves. The latter is plain HMC with leapfrog steps, the
        baseline of Fraccaro, Paquet and Winther (2016), which mixes slowly where latent values are
        highly correlated; they used 200 steps of 0.02.

    Notes
    -----
    With the metric "gaussian", trajectories of the Gaussian are exact rotations, and momenta are
    changed by the force of the rest of the density between them (Shahbaba, Lan, Johnson and Neal
    2014). That the Gaussian is an approximation has no influence on the distribution that the
    moves leave invariant. Four rotations by 0.4 make a quarter of a turn, after which
    positions would be independent of their start if the density were the Gaussian.
    """

    step_size: float = 0.4
    n_leapfrogs: int = 4
    metric: str = "gaussian"

    def __post_init__(self) -> None:
        check_positive("step_size", self.step_size)
        check_count("n_leapfrogs", self.n_leapfrogs, 1, _MOST_LEAPFROGS)
        check_choice("metric", self.metric, METRICS)

    def advance(
        self, path: Any, state: LatentValues, beta: float, streams: NDArray[np.uint64]
    ) -> tuple[LatentValues, MoveInfo]:
        """Move every member along one trajectory; see ``contracts.Kernel``."""
        density, n = _Density(path, beta, self.metric), len(state)
        momentum = normals(streams, path.target.n_dim).T
        step = self.step_size * (0.8 + 0.4 * uniforms(streams, 1)[:, 0])
        position = density.positions(state.x.T)
        _, log_density, force = density.at(position)
        start = log_density - 0.5 * (momentum**2).sum(axis=0)
        momentum = momentum + 0.5 * step * force
        for leap in range(self.n_leapfrogs):
            if leap:
                momentum = momentum + step * force
            position, momentum = density.moved(position, momentum, step)
            x, log_density, force = density.at(position)
        momentum = momentum + 0.5 * step * force
        log_ratio = log_density - 0.5 * (momentum**2).sum(axis=0) - start
        accepted = np.log(uniforms(streams, 1)[:, 0]) < log_ratio
        acceptance = np.exp(np.minimum(np.nan_to_num(log_ratio, nan=-np.inf), 0.0)).mean()
        moved = state.replaced(path.at(x.T), accepted)
        return moved, MoveInfo(float(acceptance), n * (self.n_leapfrogs + 1))


class _Density:
    """The density at ``beta`` in the coordinates of a metric, of one member in each column.

    It is that of a Gaussian, plus beta times the log likelihood, plus the log of Gaussian factors.
    In the metric "gaussian", positions are ``t`` with ``x = mean + root t``, and the Gaussian is
    ``exp(-t't / 2)``; otherwise they are the latent values, and it is the prior.
    """

    def __init__(self, path: LatentPath, beta: float, metric: str) -> None:
        gaussians, self.maps = path.target.gaussians, metric == "gaussian"
        self.beta, self.signs = beta, path.target.signs[:, None].astype(np.float64)
        self.near = path.gaussian(beta) if self.maps else gaussians[0.0]
        last, power = gaussians[1.0], path.rest(beta)
        self.precisions = (power * last.precisions - self.near.precisions)[:, None]
        self.shifts = (power * last.shifts - self.near.shifts)[:, None]
        if not self.maps:
            self.precision = np.ascontiguousarray(self.near.inverse.T @ self.near.inverse)

    def positions(self, x: Floats) -> Floats:
        """Return the positions of latent values."""
        return times(self.near.inverse, x - self.near.mean[:, None]) if self.maps else x

    def at(self, position: Floats) -> tuple[Floats, Floats, Floats]:
        """Return latent values at positions, their log densities, and forces."""
        if self.maps:
            x, gaussian = times(self.near.root, position) + self.near.mean[:, None], position
        else:
            x, gaussian = position, times(self.precision, position)
        log_likelihood, hazards = log_ndtr_and_hazards(self.signs * x)
        log_density = self.beta * log_likelihood - 0.5 * position * gaussian
        log_density += x * (self.shifts - 0.5 * self.precisions * x)
        slope = self.beta * self.signs * hazards + self.shifts - self.precisions * x
        if self.maps:
            force = times(np.ascontiguousarray(self.near.root.T), slope)
        else:
            force = slope - gaussian
        return x, log_density.sum(axis=0), force

    def moved(self, position: Floats, momentum: Floats, step: Floats) -> tuple[Floats, Floats]:
        """Return positions and momenta after a step in which the rest of the density is at rest.

        Standard normal positions move along circles, and other ones straight on.
        """
        if not self.maps:
            return position + step * momentum, momentum
        a, b = np.cos(step), np.sin(step)
        return a * position + b * momentum, a * momentum - b * position


@dataclass(frozen=True)
class RiemannianHMC(NativeKernel):
    """Generalised leapfrog trajectories in a metric that depends on the state; reversible.

    Parameters
    ----------
    step_size : float
        Leapfrog step.
    n_leapfrogs : int
        Number of steps of a trajectory.

    Notes
    -----
    Girolami and Calderhead (2011), section 6, with the metric that Fraccaro, Paquet and Winther
    (2016) use for Gaussian processes: the inverse of ``K`` plus beta times the Fisher information
    of the labels (and plus ``1 - beta`` times the Gaussian factors if they are part of the
    reference). Each step factorises and inverts a matrix of all data points, and factorises more
    where the metric changes much: this kernel is for comparisons.
    """

    step_size: float = 0.1
    n_leapfrogs: int = 10

    def __post_init__(self) -> None:
        check_positive("step_size", self.step_size)
        check_count("n_leapfrogs", self.n_leapfrogs, 1, _MOST_LEAPFROGS)

    def advance(
        self, path: Any, state: LatentValues, beta: float, streams: NDArray[np.uint64]
    ) -> tuple[LatentValues, MoveInfo]:
        """Move every member along one trajectory; see ``contracts.Kernel``."""
        n, k = state.x.shape
        noise, threshold = normals(streams, 2 * k), np.log(uniforms(streams, 1)[:, 0])
        x, log_ratio = state.x.copy(), np.empty(n)
        size = max(_MOST_NUMBERS // k**2, 1)
        for start in range(0, n, size):
            rows = slice(start, start + size)
            with np.errstate(over="ignore", invalid="ignore"):  # implicit steps that diverge
                here = _Points(path, beta, x[rows])
                proposal, log_ratio[rows] = self._trajectories(here, noise[rows])
            accepted = threshold[rows] < log_ratio[rows]
            x[rows][accepted] = proposal[accepted]
        acceptance = np.exp(np.minimum(log_ratio, 0.0)).mean()
        return path.at(x), MoveInfo(float(acceptance), n * self.n_leapfrogs)

    def _trajectories(self, here: "_Points", noise: Floats) -> tuple[Floats, Floats]:
        """Return the ends of trajectories and the logs of their acceptance ratios, in nats."""
        momentum = here.momentum(noise)
        start, step = here.hamiltonian(momentum), self.step_size
        found = np.isfinite(start)
        for _ in range(self.n_leapfrogs):
            half, kicked = _half_kicked(here, momentum, step)
            x, moved = _moved(here, half, step)
            found &= kicked & moved
            # those that are not found stay where they are, and are rejected
            here = _Points(here.path, here.beta, np.where(found[:, None], x, here.x))
            momentum = half - 0.5 * step * here.slope(half)
        log_ratio = start - here.hamiltonian(momentum)
        return here.x, np.where(found & np.isfinite(log_ratio), log_ratio, -np.inf)


class _Points:
    """States with their metrics ``M = inv(K) + diag(d)``, one in each row, at ``beta``.

    The density is the prior times the likelihood to the power beta, and Gaussian factors. With
    ``B = I + sqrt(d) K sqrt(d)``, the inverse of a metric is ``K - K sqrt(d) inv(B) sqrt(d) K``.
    No row depends on the others.
    """

    def __init__(self, path: LatentPath, beta: float, x: Floats) -> None:
        target, last, self.rest = path.target, path.target.gaussians[1.0], path.rest(beta)
        self.path, self.beta, self.x = path, beta, x  # shape (n, k): latent values
        self.covariance, self.factor = target.prior_covariance, target.factor
        self.signs = target.signs.astype(np.float64)
        self.precisions, self.shifts = self.rest * last.precisions, self.rest * last.shifts
        # what the likelihood adds to the metric, and by which factor it changes with x
        information, change = self._information(x)
        self.d = self.precisions + information
        self.root = np.sqrt(self.d)
        log_likelihood, self.hazards = log_ndtr_and_hazards(self.signs * x)
        self.log_likelihood = log_likelihood.sum(axis=1)
        self.inverse = np.empty((*x.shape, x.shape[1]))
        self.log_volume = np.array([self._invert(m) for m in range(len(x))])
        # times the diagonal of the inverse metric, which is (1 - diagonal) / d
        shares = np.divide(information, self.d, out=np.zeros_like(x), where=self.d > 0.0)
        self.derivative = information * change
        diagonal = self.inverse[:, *np.diag_indices(x.shape[1])]
        self._of_volume = 0.5 * shares * change * (1.0 - diagonal)

    def _information(self, x: Floats) -> tuple[Floats, Floats]:
        above, below = (log_ndtr_and_hazards(t)[1] for t in (x, -x))
        return self.beta * above * below, below - above - 2.0 * x

    def _invert(self, m: int) -> float:
        """Set ``inv(B)`` of a row, and return half of the log determinant of B."""
        lower, failed = self._factor(self.root[m])
        if failed:
            self.inverse[m] = np.nan
            return np.nan
        log_volume = np.log(lower.diagonal()).sum()
        inverse = dpotri(lower, lower=1, overwrite_c=1)[0]
        self.inverse[m] = np.tril(inverse) + np.tril(inverse, -1).T
        return float(log_volume)

    def _factor(self, root: Floats) -> tuple[Floats, int]:
        """Return the Cholesky factor of B, given the root of ``d``, and whether there is none."""
        matrix = root[:, None] * self.covariance * root
        matrix[np.diag_indices(len(matrix))] += 1.0
        factor: tuple[Floats, int] = dpotrf(matrix.T, lower=1, overwrite_a=1)
        return factor

    def velocity(self, momentum: Floats, rows: Any = slice(None)) -> Floats:
        """Return ``inv(M)`` times momenta of some rows."""
        product, root = times(self.covariance, momentum.T).T, self.root[rows]
        inner = root * np.matmul(self.inverse[rows], (root * product)[..., None])[..., 0]
        velocity: Floats = product - times(self.covariance, inner.T).T
        return velocity

    def momentum(self, noise: Floats) -> Floats:
        """Return draws from ``N(0, M)``, each made of twice as many standard normal draws."""
        first, second = np.split(noise, 2, axis=1)
        draw = np.array([_solve(self.factor, row, trans=1) for row in first])
        return draw + self.root * second

    def hamiltonian(self, momentum: Floats) -> Floats:
        """Return minus the log density of states and momenta, up to a constant, in nats."""
        white = np.array([_solve(self.factor, row) for row in self.x])
        log_density = self.beta * self.log_likelihood - 0.5 * (white**2).sum(axis=1)
        log_density += (self.x * (self.shifts - 0.5 * self.precisions * self.x)).sum(axis=1)
        kinetic = 0.5 * (momentum * self.velocity(momentum)).sum(axis=1)
        hamiltonian: Floats = kinetic + self.log_volume - log_density
        return hamiltonian

    @cached_property
    def _steady(self) -> Floats:
        """The part of the slopes that does not depend on momenta."""
        prior = np.array([_solve(self.factor, _solve(self.factor, row), trans=1) for row in self.x])
        likelihood = self.beta * self.signs * self.hazards
        rest = self.shifts - self.precisions * self.x
        steady: Floats = prior - likelihood - rest + self._of_volume
        return steady

    def slope(self, momentum: Floats, rows: Any = slice(None)) -> Floats:
        """Return the gradients of the Hamiltonian by the latent values, of some rows."""
        velocity = self.velocity(momentum, rows)
        return self._steady[rows] - 0.5 * self.derivative[rows] * velocity**2

    def moved(
        self, momentum: Floats, x: Floats, velocity: Floats, rows: Any, known: dict[int, Any]
    ) -> Floats:
        """Return nearly ``inv(M(x))`` times momenta, given a velocity that is nearly the same.

        If the velocity does not change, it is that with the metric at ``x``. Equations are solved
        with the metric here where that is close, and otherwise with another one, which ``known``
        keeps by its row for later calls.
        """
        d = self.precisions + self._information(x)[0]
        found, close = np.empty_like(x), self._are_close(d, self.d[rows])
        near = rows[close]
        change = (d - self.d[rows])[close]
        found[close] = self.velocity(momentum[close] - change * velocity[close], near)
        for m in np.flatnonzero(~close):
            row = int(rows[m])
            if row not in known or not self._are_close(d[m], known[row][0]):
                known[row] = d[m], *self._factor(np.sqrt(d[m]))
            at, lower, failed = known[row]
            product = self.covariance @ (momentum[m] - (d[m] - at) * velocity[m])
            inner = np.sqrt(at) * dpotrs(lower, np.sqrt(at) * product, lower=1)[0]
            found[m] = np.nan if failed else product - self.covariance @ inner
        return found

    def _are_close(self, d: Floats, other: Floats) -> Any:
        """Return whether iterations with one metric find velocities with another one.

        The sum bounds the eigenvalues of the inverse of one metric times the difference.
        """
        variances = 1.0 / np.maximum(other, 1.0 / self.covariance.diagonal())
        return (np.abs(d - other) * variances).sum(axis=-1) < _LARGEST_SHARE


def _half_kicked(here: _Points, momentum: Floats, step: float) -> tuple[Floats, NDArray[np.bool_]]:
    """Return momenta after half a step, which are given implicitly, and which are found."""
    half, active = momentum.copy(), np.arange(len(momentum))
    for _ in range(_MOST_ITERATIONS):
        new = momentum[active] - 0.5 * step * here.slope(half[active], active)
        done = _close(new - half[active], new)
        half[active] = new
        active = active[~done]
        if not active.size:
            break
    return half, ~np.isin(np.arange(len(momentum)), active)


def _moved(here: _Points, momentum: Floats, step: float) -> tuple[Floats, NDArray[np.bool_]]:
    """Return states after a step, which are given implicitly, and which are found.

    Velocities with the metric of the end are found by iterations with that of the start where both
    are close, so that no other is factorised.
    """
    first = here.velocity(momentum)
    known: dict[int, Any] = {}
    velocity, x = first.copy(), here.x + step * first
    active = np.arange(len(x))
    for _ in range(_MOST_ITERATIONS):
        new = here.moved(momentum[active], x[active], velocity[active], active, known)
        moved = here.x[active] + 0.5 * step * (first[active] + new)
        done = _close(new - velocity[active], new) & _close(moved - x[active], moved)
        velocity[active], x[active] = new, moved
        active = active[~done]
        if not active.size:
            break
    return x, ~np.isin(np.arange(len(x)), active)


def _close(change: Floats, value: Floats) -> NDArray[np.bool_]:
    """Return in which rows a change of positions or momenta is small."""
    close: NDArray[np.bool_] = np.abs(change).max(axis=1) <= _TOLERANCE * (
        1.0 + np.abs(value).max(axis=1)
    )
    return close


_solve = partial(solve_triangular, lower=True, check_finite=False)
