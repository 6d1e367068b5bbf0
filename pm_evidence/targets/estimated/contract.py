"""The contract of estimated likelihoods: particle filters and importance sampling of effects."""

from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["LikelihoodEstimator"]

Floats = NDArray[np.float64]
Streams = NDArray[np.uint64]


class LikelihoodEstimator(Protocol):
    """An unbiased estimate of a likelihood, as a function of parameters and seeds.

    Attributes
    ----------
    name : str
        Name of the model's variable.
    n_particles : int
        Number of particles of an estimate.
    auto : bool
        Whether the sampler chooses the number of particles.
    n_seeds : int
        Number of seeds of an estimate; each of them generates a part of its random numbers.
    """

    name: str
    n_particles: int
    auto: bool
    n_seeds: int

    def estimate(self, x: Floats, seeds: Streams) -> Floats:
        """Return the log of an estimate for each row of ``x``, shape ``(n,)``, in nats.

        Parameters
        ----------
        x : ndarray, shape (n, n_dim)
            Points on the unconstrained scale.
        seeds : ndarray of uint64, shape (n, n_seeds)
            Seeds; the same seeds give the same estimate.
        """
        ...

    def latent(
        self, x: Floats, seeds: Streams
    ) -> tuple[dict[str, tuple[tuple[str, ...], NDArray[Any]]], dict[str, Any]]:
        """Draw the latent variables that the likelihood integrates over, by their weights.

        Returns
        -------
        variables : dict
            Dimensions and values of each variable by name, with one value for each row of ``x``.
        coords : dict
            Labels of some of these dimensions.
        """
        ...

    def why_impossible(self, x: Floats, seeds: Streams, parameters: str) -> str:
        """Return why the estimate at one point is 0 or not a number; empty if it is neither.

        Parameters
        ----------
        x : ndarray, shape (n_dim,)
            The point.
        seeds : ndarray of uint64, shape (n_seeds,)
            Seeds.
        parameters : str
            How the point is named in the text.
        """
        ...

    def with_particles(self, n_particles: int) -> Self:
        """Return the estimator with another number of particles."""
        ...

    def with_seeds(self, n_seeds: int) -> Self:
        """Return the estimator with its random numbers divided into this many parts."""
        ...

    def cost(self) -> tuple[float, float]:
        """Return the cost of an estimate without particles, and per particle, in the same unit."""
        ...
