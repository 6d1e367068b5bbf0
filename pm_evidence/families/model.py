"""The base class of targets that anneal a PyMC model along a path defined by the user."""

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from pm_evidence.families.native import NativeTarget
from pm_evidence.targets.model.cache import target_of

__all__ = ["ModelTarget"]


class ModelTarget(NativeTarget):
    """A PyMC model that is annealed along the path of a derived class.

    Derive from it and define `annealing_setup`.

    Parameters
    ----------
    model : pymc.Model
        The model; it is compiled here.

    Attributes
    ----------
    compiled : object
        The compiled model: ``draw(n, seed)`` returns prior draws, and ``evaluate(x)`` returns the
        points ``x``, shape ``(n, n_dim)``, with their log densities. ``continuous`` and
        ``discrete`` are the positions of the continuous and discrete coordinates.
    """

    method: ClassVar[str] = "smc"

    def __init__(self, model: Any) -> None:
        self.compiled = target_of(model)
        self.n_dim = self.compiled.n_dim

    @property
    def log_prior_mass(self) -> float:  # type: ignore[override]
        """Log of the prior mass within the constraints, in nats."""
        return self.compiled.log_prior_mass

    def posterior(self, draws: npt.NDArray[np.float64]) -> dict[str, npt.NDArray[Any]]:
        """Return free variables and deterministics by name, each of shape ``(n, ...)``."""
        return self.compiled.posterior(draws)

    def sample_stats(self, draws: npt.NDArray[np.float64]) -> dict[str, npt.NDArray[Any]]:
        """Return ``lp``, the log posterior density up to the evidence, shape ``(n,)``."""
        return self.compiled.sample_stats(draws)

    def observed_data(self) -> dict[str, npt.NDArray[Any]]:
        """Return the observed data by name."""
        return self.compiled.observed_data()

    def constant_data(self) -> dict[str, npt.NDArray[Any]]:
        """Return ``pm.Data`` that are not observed, by name."""
        return self.compiled.constant_data()

    def coords_and_dims(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the model's coordinates and the dimensions of its variables."""
        return self.compiled.coords_and_dims()
