"""A PyMC model some of whose likelihood is estimated: the target on the extended space.

Its states are pairs of parameters and the random words that an estimate of the likelihood is a
function of. On these the estimated posterior ``p(x) p(u) L(x, u) / Z`` is an ordinary density whose
marginal in ``x`` is the posterior itself and whose constant is the evidence itself, as ``L`` is
unbiased (Andrieu and Roberts 2009; Tran et al., section 3.1). All that anneals, forward or reverse,
holds for it as it stands.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from pytensor.graph.basic import Variable

from pm_evidence.core.contracts import LikelihoodEstimator
from pm_evidence.core.exceptions import NumericalError
from pm_evidence.targets.estimated.variable import estimated_variables, estimators_of, logp_of
from pm_evidence.targets.model.target import PyMCTarget

__all__ = ["SEED_BITS", "WORDS", "EstimatedParticles", "EstimatedTarget"]

Floats = NDArray[np.float64]
Words = NDArray[np.uint64]

SEED_BITS = 53  # so that a double holds a seed exactly
WORDS = "estimate_words"  # name in ``sample_stats``


@dataclass(frozen=True, slots=True)
class EstimatedParticles:
    """Points with their log prior, their estimated log likelihood and what it was estimated from.

    Parameters
    ----------
    x : ndarray, shape (n, n_dim)
        Points on the unconstrained scale.
    log_density : ndarray, shape (n, 2)
        Log prior (with Jacobian) and estimated log likelihood, in nats.
    seeds : ndarray of uint64, shape (n, n_seeds)
        Random words of 53 bits.
    """

    x: Floats
    log_density: Floats
    seeds: Words

    def __len__(self) -> int:
        return len(self.x)

    def take(self, index: NDArray[np.int64]) -> Self:
        """Return the members at ``index`` as a new population."""
        return type(self)(self.x[index], self.log_density[index], self.seeds[index])

    def join(self, others: Sequence[Self]) -> Self:
        """Return this population followed by ``others``."""
        parts = [self, *others]
        return type(self)(
            np.concatenate([p.x for p in parts]),
            np.concatenate([p.log_density for p in parts]),
            np.concatenate([p.seeds for p in parts]),
        )

    def to_draws(self) -> Floats:
        """Return points, estimates and seeds, shape ``(n, n_dim + 1 + n_seeds)``."""
        return np.hstack([self.x, self.log_density[:, 1:], self.seeds.astype(float)])


class EstimatedTarget(PyMCTarget):
    """The estimated posterior of a PyMC model over parameters and random words.

    Parameters
    ----------
    model, potentials_only, compile_kwargs
        As for ``PyMCTarget``, whose densities are here those of the prior, and of what of the
        likelihood is known exactly.

    Attributes
    ----------
    estimators : tuple of LikelihoodEstimator
        The rest of the likelihood.
    """

    differentiable = None

    def __init__(self, model: pm.Model, **options: Any) -> None:
        super().__init__(model, **options)
        self.estimators: tuple[LikelihoodEstimator, ...] = tuple(estimators_of(model))

    @property
    def n_seeds(self) -> int:
        """Number of random words of a state."""
        return sum(estimator.n_blocks for estimator in self.estimators)

    def settings(self) -> tuple[tuple[int, int], ...]:
        """Return the numbers of particles and of blocks of every estimator."""
        return tuple((estimator.n_particles, estimator.n_blocks) for estimator in self.estimators)

    def with_settings(self, settings: Sequence[tuple[int, int]]) -> "EstimatedTarget":
        """Return the target with other numbers of particles and blocks."""
        if tuple(settings) == self.settings():
            return self
        changed = object.__new__(type(self))  # copy would go by way of a pickle
        vars(changed).update(vars(self))
        changed.estimators = tuple(
            estimator.with_particles(n_particles).with_blocks(n_blocks)
            for estimator, (n_particles, n_blocks) in zip(self.estimators, settings, strict=True)
        )
        return changed

    def _log_likelihood(self) -> Variable:
        estimated = estimated_variables(self.model)
        exact = [rv for rv in self.model.observed_RVs if rv not in estimated]
        return self.model.potentiallogp + logp_of(self.model, exact)

    def draw(self, n: int, seed: np.random.SeedSequence) -> EstimatedParticles:  # type: ignore[override]
        """Return ``n`` independent draws from the normalised prior, with their estimates.

        Raises
        ------
        NumericalError
            If a log density or an estimate is NaN at a prior draw.
        """
        prior_seed, word_seed = seed.spawn(2)
        x = super().draw(n, prior_seed).x
        particles = self.estimated(x, self.draw_seeds(n, np.random.default_rng(word_seed)))
        estimates = particles.log_density[:, 1]
        if np.isnan(estimates).any() or (estimates == -np.inf).all():
            raise NumericalError(self._why(particles, ~np.isfinite(estimates)))
        return particles

    def _why(self, particles: EstimatedParticles, bad: NDArray[np.bool_]) -> str:
        """Return what is wrong with the first of some bad members."""
        rows = np.flatnonzero(bad)
        first = int(rows[np.argmax(np.isnan(particles.log_density[rows, 1]))])
        x, start = particles.x[first], 0
        count = f"the log likelihood is not finite at {rows.size} of {len(particles)} prior draws"
        for estimator in self.estimators:
            stop = start + estimator.n_blocks
            reason = estimator.why_impossible(
                x, particles.seeds[first, start:stop], self.describe(x)
            )
            if reason:
                return f"{count}. At the first, {reason}"
            start = stop
        return (
            f"{count}, first at {self.describe(x)}, by what of it is not estimated; "
            "model.point_logps() there names the variable."
        )

    def draw_seeds(self, n: int, rng: np.random.Generator) -> Words:
        """Return random words for ``n`` states, shape ``(n, n_seeds)``."""
        return rng.integers(2**SEED_BITS, size=(n, self.n_seeds), dtype=np.uint64)

    def estimated(self, x: Floats, seeds: Words) -> EstimatedParticles:
        """Return points with their log prior and estimated log likelihood.

        Nothing is estimated where the rest of the density is 0 already, or not a number.
        """
        log_density = self.density.evaluate(x)[0]
        alive = np.flatnonzero(np.isfinite(log_density.sum(axis=1)))
        start = 0
        for estimator in self.estimators:
            stop = start + estimator.n_blocks
            own = np.ascontiguousarray(seeds[alive, start:stop])
            log_density[alive, 1] += estimator.estimate(x[alive], own)
            start = stop
        return EstimatedParticles(x, log_density, seeds)

    def at(self, draws: Floats) -> EstimatedParticles:
        """Return the population whose ``to_draws`` is ``draws``; nothing is estimated again."""
        x = np.ascontiguousarray(draws[:, : self.n_dim])
        log_density = self.density.evaluate(x)[0]
        log_density[:, 1] = draws[:, self.n_dim]
        return EstimatedParticles(x, log_density, draws[:, self.n_dim + 1 :].astype(np.uint64))

    def posterior(self, draws: Floats) -> dict[str, NDArray[Any]]:
        """Return free variables and deterministics by name, each of shape ``(n, ...)``."""
        return super().posterior(draws[:, : self.n_dim])

    def sample_stats(self, draws: Floats) -> dict[str, NDArray[Any]]:
        """Return ``lp``, the estimated log likelihood and the words that it was made from."""
        state = self.at(draws)
        return {
            "lp": state.log_density.sum(axis=1),
            "log_likelihood_estimate": state.log_density[:, 1],
            WORDS: state.seeds.astype(np.int64),
        }

    def coords_and_dims(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the model's coordinates and the dimensions of its variables."""
        coords, dims = super().coords_and_dims()
        return coords, {**dims, WORDS: ["estimate_word"]}
