"""Populations of latent values, and paths from a Gaussian to their posterior."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from pm_evidence.families.gp_classification.propagation import GaussianApproximation, nearest
from pm_evidence.targets.layout import Rows

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LatentValues(Rows):
    """Latent values ``x``, with what weights need."""

    x: Floats  # shape (n, n_points): the values in the order of the data
    log_likelihood: Floats  # shape (n,): log probability of the labels given ``x``, in nats
    # shape (n,): log of the product of the Gaussian factors that approximate the likelihood, in
    # nats
    log_factors: Floats
    rows = ("x", "log_likelihood", "log_factors")

    def __len__(self) -> int:
        return len(self.x)

    def to_draws(self) -> NDArray[Any]:
        """Return the values, shape ``(n, n_points)``."""
        return self.x


@dataclass(frozen=True)
class LatentPath:
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

    def log_ratio(self, state: LatentValues, start: float, stop: float) -> Floats:
        """Return the change of the log density between two inverse temperatures."""
        return (start - stop) * self.energy(state, start)

    def energy(self, state: LatentValues, beta: float) -> Floats:
        """Return minus the derivative of the log density by beta, shape ``(n,)``, in nats."""
        if self.target.reference == "prior":
            return -state.log_likelihood
        energy: Floats = state.log_factors - self.target.expectation_propagation().log_normaliser
        return energy - state.log_likelihood

    def order(self, state: LatentValues) -> NDArray[np.int64]:
        """Return the order of the energies."""
        return np.argsort(self.energy(state, 1.0), kind="stable")
