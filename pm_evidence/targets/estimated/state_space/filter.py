"""Likelihoods of state-space models, estimated without bias by particle filters."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_count
from pm_evidence.core.resampling import CODES
from pm_evidence.targets.estimated.state_space.compile import FilterCode
from pm_evidence.targets.estimated.state_space.filter_loop import Options, Record, filter_many, run

__all__ = ["FilterRun", "ParticleFilter"]

Floats = NDArray[np.float64]
Seeds = NDArray[np.uint64]

# Cost of a time without its particles (calls, allocations and a stream), in units of the work on
# one particle. It was measured on a stochastic volatility model.
_PARTICLES_A_STEP = 30.0


@dataclass(frozen=True)
class FilterRun:
    """The result of one run of a filter.

    Parameters
    ----------
    log_likelihood : float
        Log of the estimate, in nats.
    states : ndarray, shape (n_times, n_particles, ...)
        Particles at every time.
    weights : ndarray, shape (n_times, n_particles)
        Their normalised weights given the data up to then.
    ancestors : ndarray of int64, shape (n_times, n_particles)
        Index of the particle at the previous time that each comes from; meaningless at time 0.
    log_increments : ndarray, shape (n_times,)
        Log of the estimated density of each observation given those before, in nats.
    ess : ndarray, shape (n_times,)
        Effective sample size at every time.

    Notes
    -----
    If a run ends because no particle has any weight, all is NaN from that time on, except the log
    increment, which is ``-inf`` at that time.
    """

    log_likelihood: float
    states: Floats
    weights: Floats
    ancestors: NDArray[np.int64]
    log_increments: Floats
    ess: Floats


@dataclass(frozen=True, eq=False)
class ParticleFilter:
    """Estimates the likelihood of a state-space model, without bias.

    An estimate is a deterministic function of the free variables and of seeds.

    Parameters
    ----------
    name : str
        Name of the observed variable.
    code : FilterCode
        The model in machine code.
    observed : ndarray, shape (n_times,) or (n_times, k)
        The data, NaN where missing.
    kinds : ndarray of int64, shape (n_times,)
        Which rows are complete.
    state_shape : tuple of int
        Shape of a state.
    n_particles : int
        Number of particles.
    resampling : str
        One of ``core.resampling.SCHEMES``.
    ess : float
        Particles are resampled when their effective sample size falls below this share.
    auto : bool
        Whether the sampler chooses the number of particles.
    n_seeds : int
        Number of seeds of an estimate: times are divided into as many blocks of equal length. With
        more than one, particles are sorted before they are resampled, so that a block whose seed is
        kept changes little.
    """

    name: str
    code: FilterCode
    observed: Floats
    kinds: NDArray[np.int64]
    state_shape: tuple[int, ...]
    n_particles: int
    resampling: str = "systematic"
    ess: float = 0.5
    auto: bool = False
    n_seeds: int = 1

    def estimate(self, x: Floats, seeds: Seeds) -> Floats:
        """Return the log of an unbiased estimate of the likelihood.

        Parameters
        ----------
        x : ndarray, shape (n, n_dim)
            Flat unconstrained vectors.
        seeds : ndarray of uint64, shape (n, n_seeds)
            Seeds of the random numbers (auxiliary variables).

        Returns
        -------
        ndarray, shape (n,)
            In nats; ``-inf`` if no particle has any weight at some time, which ``why_impossible``
            explains; NaN if a density is NaN or a parameter is out of range.
        """
        x, seeds = self._checked(x, seeds)
        log_likelihood = np.empty(len(x))
        filter_many(x, seeds, self._model, self._options, log_likelihood)
        return log_likelihood

    def with_particles(self, n_particles: int) -> Self:
        """Return the estimator with another number of particles, on the same machine code."""
        return replace(self, n_particles=check_count("n_particles", n_particles, 2))

    def with_seeds(self, n_seeds: int) -> Self:
        """Return the estimator with another number of blocks, at most one for each time."""
        n_seeds = min(check_count("n_seeds", n_seeds, 1), len(self.observed))
        return replace(self, n_seeds=n_seeds)

    def cost(self) -> tuple[float, float]:
        """Return the fixed cost of an estimate, and the cost of a particle.

        The unit is the cost of one particle over all times.
        """
        return _PARTICLES_A_STEP, 1.0

    # states -----------------------------------------------------------------------------------

    def run(self, x: Floats, seeds: Any) -> FilterRun:
        """Run one filter and keep all its particles.

        Parameters
        ----------
        x : ndarray, shape (n_dim,)
            A flat unconstrained vector.
        seeds : int, or ndarray of uint64, shape (n_seeds,)
            Seeds of the random numbers; those of an estimate give that estimate.
        """
        rows, checked = self._checked(np.asarray(x)[None], np.atleast_1d(seeds)[None])
        n_times, n = len(self.observed), self.n_particles
        size = int(np.prod(self.state_shape))
        record = Record(
            np.full((n_times, n, size), np.nan),
            np.full((n_times, n), np.nan),
            np.zeros((n_times, n), np.int64),
            np.full(n_times, np.nan),
            np.full(n_times, np.nan),
        )
        log_likelihood = run(
            rows[0],
            checked[0],
            self._model,
            self._options,
            np.empty(self.code.n_precomputed),
            record,
        )
        states = record.states.reshape(n_times, n, *self.state_shape)
        return FilterRun(float(log_likelihood), states, *record[1:])

    def filtered(
        self, x: Floats, seeds: Any, quantiles: Sequence[float] = (0.05, 0.5, 0.95)
    ) -> tuple[Floats, Floats]:
        """Return mean and quantiles of the state at every time, given the data up to then.

        Parameters
        ----------
        x : ndarray, shape (n_dim,)
            A flat unconstrained vector.
        seeds : int, or ndarray of uint64, shape (n_seeds,)
            Seeds of the random numbers.
        quantiles : sequence of float
            Probabilities.

        Returns
        -------
        mean : ndarray, shape (n_times, ...)
            Weighted means of the particles.
        quantiles : ndarray, shape (n_times, n_quantiles, ...)
            Their weighted quantiles; consistent as the number of particles grows.
        """
        done = self.run(x, seeds)
        mean = np.einsum("tn,tn...->t...", done.weights, done.states)
        levels = np.array(
            [_quantiles(*row, quantiles) for row in zip(done.states, done.weights, strict=True)]
        )
        return mean, levels

    def path(self, x: Floats, seeds: Any) -> Floats:
        """Return one path of the state given all data, shape ``(n_times, ...)``.

        Parameters
        ----------
        x : ndarray, shape (n_dim,)
            A flat unconstrained vector, for example a posterior draw.
        seeds : int, or ndarray of uint64, shape (n_seeds,)
            The seeds of the estimate at this vector.

        Returns
        -------
        ndarray, shape (n_times, ...)
            The ancestors of a particle that is drawn by its final weight; NaN if no particle
            has any weight at some time. With draws of ``x`` and ``seeds`` from the extended
            posterior it is an exact draw (Andrieu, Doucet and Holenstein 2010); for given ``x`` it
            is consistent as the number of particles grows.
        """
        return self._path_of(self.run(x, seeds), seeds)

    def _path_of(self, done: FilterRun, seeds: Any) -> Floats:
        path = np.full((len(self.observed), *self.state_shape), np.nan)
        if not np.isfinite(done.log_likelihood):
            return path
        entropy = [int(seed) for seed in np.atleast_1d(seeds)]
        draw = np.random.default_rng(entropy).random()
        edges = np.cumsum(done.weights[-1])
        chosen = int(np.searchsorted(edges, draw * edges[-1], side="right"))
        for t in range(len(path) - 1, -1, -1):
            path[t] = done.states[t, chosen]
            chosen = done.ancestors[t, chosen]
        return path

    def latent(
        self, x: Floats, seeds: Seeds
    ) -> tuple[dict[str, tuple[tuple[str, ...], NDArray[Any]]], dict[str, Any]]:
        """Draw a path for every row of ``x``; see ``contract.LikelihoodEstimator``.

        Also returned are the effective sample size of the filters, as a share of the particles, and
        the log density of each observation given those before.
        """
        time = f"{self.name}_time"
        axes = tuple(f"{self.name}_state_dim_{k}" for k in range(len(self.state_shape)))
        paths, shares, increments = [], [], []
        for row, own in zip(x, seeds, strict=True):
            done = self.run(row, own)
            paths.append(self._path_of(done, own))
            shares.append(done.ess / self.n_particles)
            increments.append(done.log_increments)
        variables = {
            f"{self.name}_states": ((time, *axes), np.array(paths)),
            f"{self.name}_ess": ((time,), np.array(shares)),
            f"{self.name}_log_density": ((time,), np.array(increments)),
        }
        return variables, {}

    def why_impossible(self, x: Floats, seeds: Any, parameters: str = "") -> str:
        """Return why an estimate is zero or not a number: the time, the data and the states there.

        Parameters
        ----------
        x : ndarray, shape (n_dim,)
            A flat unconstrained vector.
        seeds : int, or ndarray of uint64, shape (n_seeds,)
            Seeds of the estimate.
        parameters : str
            How ``x`` is named in the message; the vector itself if left out.

        Returns
        -------
        str
            Empty if the estimate is finite.
        """
        done = self.run(x, seeds)
        if np.isfinite(done.log_likelihood):
            return ""
        where = parameters or f"x={np.round(np.asarray(x), 4).tolist()}"
        reached = np.flatnonzero(np.isnan(done.log_increments))
        t = int(reached[0]) if reached.size else len(done.log_increments) - 1
        impossible = np.flatnonzero(done.log_increments == -np.inf)
        if not impossible.size:
            return (
                f"the likelihood of {self.name!r} is not a number at {where}, at time {t}: a "
                "density is NaN there, or a parameter is out of range."
            )
        t = int(impossible[0])
        finite = done.states[t][np.isfinite(done.states[t])]
        span = f"between {finite.min():.4g} and {finite.max():.4g}" if finite.size else "not finite"
        return (
            f"the likelihood of {self.name!r} is zero at {where}: no particle can have emitted "
            f"{np.round(self.observed[t], 4).tolist()} at time {t}, where their states are {span}. "
            "Look at the emission's support, or use more particles or a guided filter."
        )

    # -------------------------------------------------------------------------------------------

    def _checked(self, x: Floats, seeds: Any) -> tuple[Floats, Seeds]:
        x = np.ascontiguousarray(x, np.float64)
        seeds = np.ascontiguousarray(seeds, np.uint64)
        if seeds.shape != (len(x), self.n_seeds):
            raise ValueError(
                f"seeds must have shape {(len(x), self.n_seeds)}, one for every row of x and "
                f"every block, got {seeds.shape}."
            )
        return x, seeds

    @property
    def _model(self) -> tuple[Any, ...]:
        rows = self.observed.reshape(len(self.observed), -1)
        size = int(np.prod(self.state_shape))
        return self.code.calls, self.code.frames, rows, self.kinds, size

    @property
    def _options(self) -> Options:
        scheme = CODES[self.resampling]
        return Options(self.n_particles, self.code.n_precomputed, scheme, self.ess)


def _quantiles(states: Floats, weights: Floats, probabilities: Sequence[float]) -> Floats:
    """Return weighted quantiles of particles, shape ``(n_quantiles, ...)``."""
    flat = states.reshape(len(states), -1)
    result = np.empty((len(probabilities), flat.shape[1]))
    for k in range(flat.shape[1]):
        order = np.argsort(flat[:, k])
        edges = np.cumsum(weights[order])
        at = np.searchsorted(edges, np.asarray(probabilities) * edges[-1])
        result[:, k] = flat[order[np.minimum(at, len(order) - 1)], k]
    return result.reshape(len(probabilities), *states.shape[1:])
