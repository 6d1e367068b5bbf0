"""The estimated likelihood of grouped data."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from pytensor.graph.basic import Variable

from pm_evidence.core.checks import check_count
from pm_evidence.core.exceptions import ModelError
from pm_evidence.targets.estimated.random_effects.compile import GroupDensity
from pm_evidence.targets.estimated.random_effects.importance import (
    ANTITHETIC,
    QUASI,
    RANDOM,
    estimate_rows,
    evaluate_near_start,
    lattice_generator,
)

__all__ = ["DRAWS", "GroupEstimator"]

Floats = NDArray[np.float64]
Seeds = NDArray[np.uint64]

DRAWS = {"quasi": QUASI, "antithetic": ANTITHETIC, "random": RANDOM}
# Number of points at which evaluations are counted: the origin, and standard normal draws.
_N_COUNTED = 16


@dataclass(frozen=True)
class GroupEstimator:
    """Estimates the likelihood of grouped data, without bias.

    An estimate is a deterministic function of the free variables and of seeds.

    Parameters
    ----------
    name : str
        Name of the observed variable.
    density : GroupDensity
        The model in machine code.
    labels : ndarray, shape (n_groups,)
        Labels of the groups.
    n_particles : int
        Number of particles of every group.
    draws : {"quasi", "antithetic", "random"}
        How particles are drawn.
    auto : bool
        Whether the sampler chooses the number of particles.
    n_seeds : int
        Number of seeds of an estimate: the groups, in the order of their labels, are divided into
        as many blocks of equal length.
    """

    name: str
    density: GroupDensity
    labels: NDArray[Any]
    n_particles: int
    draws: str = "quasi"
    auto: bool = False
    n_seeds: int = 1
    _graphs: tuple[Variable, Variable, Variable] | None = field(default=None, repr=False)

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
            In nats; ``-inf`` if no particle has support, NaN if a density is NaN.
        """
        total: Floats = self.estimate_groups(x, seeds).sum(axis=1)
        return total

    def estimate_groups(self, x: Floats, seeds: Seeds) -> Floats:
        """Return the log estimate of every group by itself, shape ``(n, n_groups)``, in nats."""
        return self._run(x, seeds, with_effects=False)[0]

    def effects(self, x: Floats, seeds: Seeds) -> Floats:
        """Return draws of the effects of all groups, for their posterior.

        Parameters
        ----------
        x : ndarray, shape (n, n_dim)
            Flat unconstrained vectors, for example posterior draws.
        seeds : ndarray of uint64, shape (n, n_seeds)
            The seeds of the estimates at these vectors.

        Returns
        -------
        ndarray, shape (n, n_groups, ...)
            One of the particles that ``estimate`` averages over, drawn by its weight. With draws
            of ``x`` and ``seeds`` from the extended posterior they are exact; for given ``x`` they
            are consistent as the number of particles grows. NaN if no particle has support.
        """
        log_likelihood, z, _ = self._run(x, seeds, with_effects=True)
        z[~np.isfinite(log_likelihood)] = np.nan
        return self._to_effects(np.ascontiguousarray(x, float), z)

    def why_impossible(self, x: Floats, seeds: Any, parameters: str = "") -> str:
        """Return why an estimate is zero or not a number, and in which group."""
        row = np.asarray(x, float)[None]
        each = self.estimate_groups(row, np.atleast_1d(seeds).astype(np.uint64)[None])[0]
        if np.isfinite(each).all():
            return ""
        k = int(np.flatnonzero(~np.isfinite(each))[0])
        what = "not a number" if np.isnan(each[k]) else "zero"
        where = parameters or f"x={np.round(row[0], 4).tolist()}"
        return (
            f"the likelihood of {self.name!r} is {what} at {where} in group {self.labels[k]!r}. "
            "Look for data outside the emission's support, or for an overflow there."
        )

    def latent(
        self, x: Floats, seeds: Seeds
    ) -> tuple[dict[str, tuple[tuple[str, ...], NDArray[Any]]], dict[str, Any]]:
        """Draw the effects for every row of ``x``; see ``contract.LikelihoodEstimator``."""
        effects = self.effects(x, seeds)
        group = f"{self.name}_group"
        axes = tuple(f"{self.name}_effect_dim_{k}" for k in range(effects.ndim - 2))
        return {f"{self.name}_effects": ((group, *axes), effects)}, {group: self.labels}

    def with_particles(self, n_particles: int) -> Self:
        """Return the estimator with another number of particles, on the same machine code.

        Antithetic draws are made in pairs, so an odd number is increased by one.
        """
        n_particles = check_count("n_particles", n_particles, 2)
        if self.draws == "antithetic":
            n_particles += n_particles % 2
        return replace(self, n_particles=n_particles)

    def with_seeds(self, n_seeds: int) -> Self:
        """Return the estimator with another number of blocks, at most one per group."""
        n_seeds = min(check_count("n_seeds", n_seeds, 1), len(self.labels))
        return replace(self, n_seeds=n_seeds)

    def cost(self) -> tuple[float, float]:
        """Return the fixed cost of an estimate, and the cost of a particle.

        The unit is one pass over the densities of all groups. A particle counts as one, and so does
        every evaluation by Newton's method, whose derivatives take about as long as drawing a
        particle (within a third, for effects of one and two dimensions). The evaluations are
        counted at fixed points.
        """
        return self._fixed_cost, 1.0

    @cached_property
    def _fixed_cost(self) -> float:
        rng = np.random.Generator(np.random.PCG64(0))
        x = rng.standard_normal((_N_COUNTED, self._n_dim))
        x[0] = 0.0
        seeds = np.zeros((_N_COUNTED, self.n_seeds), np.uint64)
        _, _, n_evaluations = self.with_particles(2)._run(x, seeds, with_effects=False)
        return float(n_evaluations.mean())

    @property
    def _n_dim(self) -> int:
        assert self._graphs is not None
        return int(self._graphs[0].type.shape[0])

    def _run(
        self, x: Floats, seeds: Seeds, *, with_effects: bool
    ) -> tuple[Floats, Floats, NDArray[np.int64]]:
        x = np.ascontiguousarray(x, np.float64)
        seeds = np.ascontiguousarray(seeds, np.uint64)
        if seeds.shape != (len(x), self.n_seeds):
            raise ValueError(
                f"seeds must have shape {(len(x), self.n_seeds)}, one for every row of x and "
                f"every block, got {seeds.shape}."
            )
        density = self.density
        n_groups, n_dim = density.n_groups, density.n_effect_dim
        log_likelihood = np.empty((len(x), n_groups))
        chosen = np.full((len(x) if with_effects else 0, n_groups, n_dim), np.nan)
        n_evaluations = np.empty(len(x), np.int64)
        estimate_rows(
            x,
            seeds,
            density.addresses,
            *density.frames(),
            (density.n_parameters, n_groups, n_dim, self.n_particles),
            DRAWS[self.draws],
            np.array(lattice_generator(self.n_particles, n_dim)),
            log_likelihood,
            chosen,
            n_evaluations,
        )
        return log_likelihood, chosen, n_evaluations

    @cached_property
    def _value(self) -> Any:
        assert self._graphs is not None
        x, z, value = self._graphs
        return pm.compile([x, z], value, mode="FAST_COMPILE", on_unused_input="ignore")

    def _to_effects(self, x: Floats, z: Floats) -> Floats:
        return np.array([self._value(*row) for row in zip(x, z, strict=True)])

    def check_groups_are_separate(self) -> None:
        """Check that the density of each group depends only on the effect of that group.

        Raises
        ------
        ModelError
            If it depends on the effect of another group.
        """
        density = self.density
        n_groups = density.n_groups
        moved = np.zeros((3, n_groups, density.n_effect_dim))
        moved[1, ::2] = moved[2, 1::2] = 0.5
        at_start, even, odd = evaluate_near_start(
            np.zeros(self._n_dim),
            moved,
            density.addresses,
            *density.frames(),
            density.n_parameters,
        )
        others = np.where(np.arange(n_groups) % 2 == 0, odd, even)
        if not np.allclose(others, at_start, rtol=1e-9, atol=1e-9, equal_nan=True):
            raise ModelError(
                f"an observation of {self.name!r} may depend on the effect of its own group only, "
                "but the density of one group changes with another group's effect; use u in "
                "emission as the effects of the observations i, element by element."
            )
