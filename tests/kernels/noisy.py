"""Estimated likelihoods whose noise has a known law: test doubles on exact systems."""

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtr, ndtri

from pm_evidence.paths.geometric import EstimatedPath
from pm_evidence.targets.estimated.target import SEED_BITS, EstimatedParticles, EstimatedTarget
from tests.kernels.exact import SYSTEMS, System

_WORDS = 2.0**SEED_BITS


def normals_of(seeds):
    """Return the standard normal number that each word stands for."""
    return ndtri((seeds.astype(float) + 0.5) / _WORDS)


def words_of(normals):
    """Return the words of some normal numbers."""
    return np.minimum(ndtr(normals) * _WORDS, _WORDS - 1).astype(np.uint64)


@dataclass(frozen=True)
class NormalNoise:
    """Normal noise of the log likelihood, of variance ``gamma2 / n_particles``; unbiased.

    Every word adds an equal part. With ``slope`` the variance depends on the first coordinate.
    """

    gamma2: float = 100.0
    n_particles: int = 100
    n_seeds: int = 1
    slope: float = 0.0
    auto: bool = False
    fixed_cost: float = 0.0
    name: str = "noise"

    def sd(self, x):
        """Standard deviation of the part of one word."""
        even = np.sqrt(self.gamma2 / self.n_particles / self.n_seeds)
        return even * (1.0 + self.slope * np.tanh(x[:, :1]))

    def estimate(self, x, seeds):
        sd = self.sd(x)
        return (sd * normals_of(seeds) - 0.5 * sd**2).sum(axis=1)

    def words_at(self, beta, x, rng):
        """Return draws of the words given ``x``, from their density to the power of ``beta``."""
        return words_of(beta * self.sd(x) + rng.normal(size=(len(x), self.n_seeds)))

    def with_particles(self, n_particles):
        return replace(self, n_particles=n_particles)

    def with_seeds(self, n_seeds):
        return replace(self, n_seeds=n_seeds)

    def why_impossible(self, x, seeds, parameters):
        estimate = self.estimate(x[None], seeds[None])[0]
        return "" if np.isfinite(estimate) else f"the estimate is {estimate} at {parameters}."


@dataclass(frozen=True)
class Half(NormalNoise):
    """An estimate that is zero for one word in four."""

    def estimate(self, x, seeds):
        return np.where(seeds[:, 0] < 2.0 ** (SEED_BITS - 2), -np.inf, np.log(4.0 / 3.0))

    def words_at(self, beta, x, rng):
        return rng.integers(2 ** (SEED_BITS - 2), 2**SEED_BITS, size=(len(x), 1), dtype=np.uint64)


@dataclass(frozen=True)
class Broken(NormalNoise):
    """An estimate that is NaN for one word in four: the density is what is defined."""

    def estimate(self, x, seeds):
        return np.where(seeds[:, 0] < 2.0 ** (SEED_BITS - 2), np.nan, 0.0)

    words_at = Half.words_at


def noisy_target(target, *estimators):
    """The estimated form of an exact target: its likelihood times the noise of all estimators."""
    return EstimatedTarget(target, estimators)


@dataclass(frozen=True)
class NoisySystem:
    """An exact system with noise; exact at every ``beta`` if the noise has no slope."""

    exact: System
    path: EstimatedPath

    @property
    def target(self):
        return self.path.target

    def population(self, beta, n, seed):
        rng = np.random.default_rng(seed)
        x = np.ascontiguousarray(self.exact.draw(beta, n, rng), dtype=float)
        words = [one.words_at(beta, x, rng) for one in self.target.estimators]
        found: EstimatedParticles = self.target.estimated(x, np.hstack(words))
        return found


def noisy(name, *estimators):
    exact = SYSTEMS[name]()
    target = noisy_target(exact.path.target, *(estimators or (NormalNoise(),)))
    return NoisySystem(exact, EstimatedPath(target))
