"""A PyMC model as a target that is sampled in better coordinates than its own."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
import pymc as pm
import pytensor
from numpy.typing import NDArray

from pm_evidence.targets.compile.densities import Density
from pm_evidence.targets.layout import FlatVariable
from pm_evidence.targets.model import coordinates
from pm_evidence.targets.model.concavity import find_hyperparameters
from pm_evidence.targets.model.log_density import DensityGraphs, density_graphs
from pm_evidence.targets.model.prior import PriorSampler, prior_sampler
from pm_evidence.targets.model.target import PyMCTarget

Floats = NDArray[np.float64]


_COMPILED = ("density", "differentiable", "_graphs")


class ExchangedTarget(PyMCTarget):
    """A model whose compiled densities read arrays that can be exchanged without compiling again.

    The graphs of a derived class hold ``_arrays`` as shared variables, one for each.
    """

    # not known, because the arrays are not those of the graphs
    is_log_concave = False

    @property
    def hyperparameters(self) -> tuple[FlatVariable, ...] | None:
        """Always None: not known, for the same reason."""
        return None

    _base: Self | None = None
    _arrays: Sequence[NDArray[Any]]

    @cached_property
    def density(self) -> Density:
        """Log prior and log likelihood, without gradients."""
        if self._base is None:
            return self._compiled(self.graphs(), None)
        return self._base.density.reading(self._exchanged())

    @cached_property
    def differentiable(self) -> Density | None:
        """Log prior and log likelihood with gradients; None if there is no gradient."""
        if self._base is None:
            found: Density | None = PyMCTarget.differentiable.func(self)  # type: ignore[attr-defined]
            return found
        compiled = self._base.differentiable
        return None if compiled is None else compiled.reading(self._exchanged())

    def _exchanged(self) -> list[tuple[NDArray[Any], NDArray[Any]]]:
        assert self._base is not None
        return list(zip(self._base._arrays, self._arrays, strict=True))

    def _copy(self) -> Self:
        """Return a target with the code of this one, whose arrays are still to be exchanged."""
        copy = object.__new__(type(self))
        vars(copy).update({k: v for k, v in vars(self).items() if k not in _COMPILED})
        copy._base = self._base or self
        return copy


def has_better_coordinates(model: pm.Model) -> bool:
    """Return whether a model has variables that other coordinates than its own are known for."""
    return bool(
        coordinates.location_scale_variables(model) or coordinates.covariance_factors(model)
    )


class ReparameterisedTarget(ExchangedTarget):
    """The posterior of a PyMC model over a flat vector of partly centred coordinates.

    Variables whose scale is a free variable are centred by an amount from 0 to 1, which is read by
    the compiled densities as data: `centred_by` gives the target in other coordinates without
    compiling again. Cholesky factors with an LKJ prior are sampled as standard deviations and
    correlations. All variables that users see are those of the model.

    The evidence is the same number in all coordinates, and so is the likelihood of prior draws.
    """

    def __init__(
        self,
        model: pm.Model,
        *,
        compile_kwargs: Mapping[str, Any] | None = None,
        backend: str = "numba",
    ) -> None:
        self.variables = coordinates.location_scale_variables(model)
        self.factors = coordinates.covariance_factors(model)
        super().__init__(model, compile_kwargs=compile_kwargs, backend=backend)
        self.coordinates = coordinates.Coordinates(model, self.variables, self.layout, self.factors)
        self._non_centred = coordinates.Centring.common(0.0, len(self.variables))
        self._set(self._non_centred)

    def _set(self, centring: coordinates.Centring) -> None:
        self.centring = centring
        self._arrays = centring.arrays()

    def centred_by(self, centring: coordinates.Centring) -> Self:
        """Return the target in coordinates of another centring; nothing is compiled again."""
        copy = self._copy()
        copy._set(centring)
        return copy

    def centred(self) -> Self:
        """Return the target in coordinates in which all effects are centred."""
        return self.centred_by(coordinates.Centring.common(1.0, len(self.variables)))

    # a worker rebuilds the target from the model and these settings
    def settings(self) -> coordinates.Centring:
        """Return what distinguishes this target from others of the same model."""
        return self.centring

    def with_settings(self, settings: coordinates.Centring) -> Self:
        """Return the target of the same model with other settings."""
        return self.centred_by(settings)

    def _prior_sampler(self) -> PriorSampler:
        return prior_sampler(self.model, self.variables, self.factors)

    def _prior_points(self, n: int, seed: np.random.SeedSequence) -> Floats:
        drawn = self._prior.draw(n, seed)
        return self.coordinates.converted(drawn, self._non_centred, self.centring)

    def _new_graphs(self) -> DensityGraphs:
        amount, log_unit = (pytensor.shared(array, borrow=True) for array in self._arrays)
        return density_graphs(
            self.model,
            self.layout,
            coordinates=lambda values: coordinates.partly_centred(
                self.model, self.variables, values, amount, log_unit, self.factors
            ),
        )

    @cached_property
    def hyperparameters(self) -> tuple[FlatVariable, ...] | None:
        """A few variables given which the posterior is log-concave; see ``PyMCTarget``.

        Given the scale and the location of a variable, a change of its coordinates is linear.
        """
        return find_hyperparameters(self)

    # the model's own variables ----------------------------------------------------------------

    def effects(self, z: Floats) -> list[coordinates.Effects]:
        """Return the partly centred variables at points ``z``, shape ``(n, n_dim)``."""
        return self.coordinates.effects(z, self.centring)

    def from_model(self, x: Floats) -> Floats:
        """Return points in the coordinates of the model in those of this target."""
        return self.coordinates.from_model(x, self.centring)

    def rows_of(self, draws: Mapping[str, NDArray[Any]], parameter: str) -> Floats:
        """Return posterior draws as points; see ``PyMCTarget``."""
        return self.from_model(super().rows_of(draws, parameter))

    def posterior(self, draws: Floats) -> dict[str, NDArray[Any]]:
        """Return free variables and deterministics by name, each of shape ``(n, ...)``."""
        return super().posterior(self.coordinates.to_model(draws, self.centring))

    def describe(self, x: Floats, limit: int = 6) -> str:
        """Return a point as text, on the constrained scale, for messages."""
        return super().describe(self.coordinates.to_model(x[None, :], self.centring)[0], limit)

    def sample_stats(
        self, draws: Floats, log_density: Floats | None = None
    ) -> dict[str, NDArray[Any]]:
        """Return ``lp``, the log posterior density of the model's values, shape ``(n,)``."""
        lp = super().sample_stats(draws, log_density)["lp"]
        return {"lp": lp - self.coordinates.log_jacobian(draws, self.centring)}
