"""A PyMC model as a target: prior draws, log densities and results; in better coordinates too."""

import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from math import prod
from typing import Any, Self

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.backends import arviz
from pymc.logprob.transforms import CircularTransform
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.type import TensorType

from pm_evidence.core.jax import device_name
from pm_evidence.targets.compile.jax_density import compile_jax_density
from pm_evidence.targets.compile.numba_density import (
    CompiledDensity,
    Density,
    compile_density,
    log_densities,
    offer_jax,
)
from pm_evidence.targets.compile.numpy_density import by_compiled_rows, numpy_density
from pm_evidence.targets.layout import FlatVariable, Layout, Particles
from pm_evidence.targets.model import checks, coordinates, prior
from pm_evidence.targets.model.concavity import find_hyperparameters, is_concave_in, is_log_concave
from pm_evidence.targets.model.log_density import (
    DensityGraphs,
    density_graphs,
    discrete_prior_graph,
    gradient_graphs,
)
from pm_evidence.targets.plates.curvature import Curvature

Floats = NDArray[np.float64]

_ACCEPTANCE_DRAWS = 1000


class PyMCTarget:
    """The posterior of a PyMC model over one flat vector of unconstrained values."""

    def __init__(
        self,
        model: pm.Model,
        *,
        potentials_only: bool = False,
        compile_kwargs: Mapping[str, Any] | None = None,
        left_out: Sequence[Variable] = (),
        backend: str = "numba",
    ) -> None:
        checks.check_model(model)
        self.backend = backend
        self.model = model
        self.potentials_only = potentials_only
        self.compile_kwargs = dict(compile_kwargs or {})
        self._left_out = tuple(left_out)
        self._prior = self._prior_sampler()
        self.log_order_mass = self._prior.log_order_mass
        self.layout: Layout = self._prior.layout
        self.n_dim = self.layout.size
        self._keeps_support = checks.coordinates_on_support(model, self.layout)
        self._describe_coordinates()

    def _prior_sampler(self) -> prior.PriorSampler:
        return prior.prior_sampler(self.model)

    def _prior_points(self, n: int, seed: np.random.SeedSequence) -> Floats:
        """Return ``n`` prior draws in the target's own coordinates, shape ``(n, n_dim)``."""
        return self._prior.draw(n, seed)

    def _describe_coordinates(self) -> None:
        continuous, lower, upper, period = [], [], [], []
        for rv, variable in zip(self.model.free_RVs, self.layout.variables, strict=True):
            size = variable.size
            is_discrete = np.dtype(rv.dtype).kind in "iub"
            continuous += [not is_discrete] * size
            if is_discrete:
                low, high = checks.discrete_support(rv, variable.shape)
                lower.append(low)
                upper.append(high)
            circular = isinstance(self.model.rvs_to_transforms[rv], CircularTransform)
            period += [2 * np.pi * circular] * size
        mask = np.array(continuous, dtype=bool)
        self.continuous = np.flatnonzero(mask)
        self.discrete = np.flatnonzero(~mask)
        self.lower = np.concatenate([np.empty(0), *lower])
        self.upper = np.concatenate([np.empty(0), *upper])
        self.period = np.array(period, dtype=float)

    @cached_property
    def n_numbers(self) -> int:
        """Number of data and constants that an evaluation reads, and of results that it makes."""
        model = self.model
        values = [model.rvs_to_values[rv] for rv in model.observed_RVs]
        used = list(ancestors([*model.observed_RVs, *model.potentials, *values]))
        of_others = {v.owner: getattr(v.owner.op, "n_numbers", 0) for v in used if v.owner}
        return sum(of_others.values()) + sum(
            _n_elements(v) for v in used if isinstance(v.type, TensorType)
        )

    @cached_property
    def likelihood_varies(self) -> bool:
        """Whether the likelihood depends on any of the free variables."""
        terms = [] if self.potentials_only else self.model.observed_RVs
        read = ancestors([*terms, *self.model.potentials])
        return not set(self.model.free_RVs).isdisjoint(read)

    # densities ------------------------------------------------------------------------------

    @cached_property
    def density(self) -> Density:
        """Log prior and log likelihood, without gradients."""
        return self._compiled(self.graphs(), None)

    @cached_property
    def differentiable(self) -> Density | None:
        """Log prior and log likelihood with gradients; None if there is no gradient.

        It is also None if observed variables are left out, because no MCMC step then uses it.
        """
        is_complete = self.potentials_only or not self._left_out
        if self.continuous.size == 0 or not is_complete:
            return None
        graphs = self.graphs()
        gradient = gradient_graphs(graphs)
        return None if gradient is None else self._compiled(graphs, gradient)

    @cached_property
    def is_log_concave(self) -> bool:
        """Whether prior and likelihood are known to be log-concave, in these coordinates.

        The posterior then has a single mode, and so have all densities between it and the prior.
        """
        graphs = None if self.discrete.size or self.period.any() else self.graphs()
        return graphs is not None and is_log_concave(graphs.parts, graphs.log_density)

    @cached_property
    def hyperparameters(self) -> tuple[FlatVariable, ...] | None:
        """The few given which the posterior is log-concave in the others; None if not known.

        Given the scale and the location of a variable, a change of its coordinates is linear.
        """
        return find_hyperparameters(self)

    @cached_property
    def is_concave_in_hyperparameters(self) -> bool:
        """Whether the posterior is log-concave in them alone, in centred coordinates."""
        return is_concave_in(self.centred(), self.hyperparameters or ())

    @cached_property
    def curvature(self) -> Curvature | None:
        """Second derivatives with respect to all but the hyperparameters; None if not known."""
        if type(self) is not PyMCTarget or self.hyperparameters is None:
            return None
        given = {variable.name for variable in self.hyperparameters}
        kept = (v for v in self.layout.variables if v.name not in given)
        return Curvature.of(self, self.layout.positions_of(kept))

    def centred(self) -> "PyMCTarget":
        """Return the target in coordinates in which all effects are centred, as far as known."""
        return self

    def compiled_for(self) -> dict[str, str]:
        """Return what evaluates the densities, and on which device if that is not this CPU."""
        facts = {"backend": "numba" if self.backend == "loops" else self.backend}
        return facts | {"device": device_name()} if self.backend == "jax" else facts

    def evaluate(self, x: Floats) -> Particles:
        """Return the points ``x``, shape ``(n, n_dim)``, with their log densities."""
        return Particles(x, log_densities(self, x))

    def rows_of(self, draws: Mapping[str, NDArray[Any]], parameter: str) -> Floats:
        """Return posterior draws as points, shape ``(n_chains * n_draws, n_dim)``."""
        x = self.unconstrained.values(draws, parameter)
        outside = (x[:, self.discrete] < self.lower) | (x[:, self.discrete] > self.upper)
        if outside.any():
            row, column = np.argwhere(outside)[0]
            raise ValueError(
                f"{parameter} must lie inside the support of the priors, got the discrete value "
                f"{x[row, self.discrete[column]]:g} in draw {row}, outside {self.lower[column]:g} "
                f"to {self.upper[column]:g}: it belongs to another model. Sample this model with "
                "pm.sample."
            )
        return x

    def graphs(self) -> DensityGraphs:
        """Return log prior and log likelihood as graphs."""
        return self._graphs

    @cached_property
    def _graphs(self) -> DensityGraphs:
        return density_graphs(
            self.model,
            self.layout,
            potentials_only=self.potentials_only,
            left_out=self._left_out,
        )

    def _compiled(self, graphs: DensityGraphs, gradient: list[list[Variable]] | None) -> Density:
        if self.backend == "numpy":
            return numpy_density(graphs.parts, graphs.log_density, gradient)
        if self.backend == "jax":
            return compile_jax_density(
                graphs.parts, graphs.log_density, gradient, self.compile_kwargs
            )
        started = time.perf_counter()
        compiled = compile_density(graphs.parts, graphs.log_density, gradient, self.compile_kwargs)
        if self.__dict__.get("differentiable") is None:  # else, it was said before
            offer_jax(compiled.slow_ops, time.perf_counter() - started)
        return by_compiled_rows(compiled, self.n_dim) if self.backend == "loops" else compiled

    @cached_property
    def discrete_prior(self) -> CompiledDensity:
        """Log prior of the discrete variables, with a log likelihood of 0 beside it."""
        parts, log_prior = discrete_prior_graph(self.model, self.layout, self._left_out)
        return compile_density(parts, [log_prior, pt.constant(0.0)], None, self.compile_kwargs)

    # draws ----------------------------------------------------------------------------------

    def prior_points(self, n: int, seed: np.random.SeedSequence) -> Floats:
        """Return ``n`` prior draws as points, also those outside of transforms (NaN there)."""
        return prior.without_overflow(self._prior.draw(n, seed), self._keeps_support)

    def finite_prior_points(self, n: int, seed: np.random.SeedSequence) -> Floats:
        """Return ``n`` prior draws in these coordinates, without those outside of transforms."""
        x = self._prior_points(n, seed.spawn(1)[0])
        return x[np.isfinite(x).all(axis=1)]

    def draw(self, n: int, seed: np.random.SeedSequence) -> Particles:
        """Return ``n`` independent draws from the normalised prior."""
        kept: list[Particles] = []
        n_kept = n_tried = 0
        while n_kept < n or not kept:
            drawn = self._prior_points(n - n_kept, seed.spawn(1)[0])
            n_tried += len(drawn)
            x = prior.without_overflow(drawn, self._keeps_support)
            particles = self.evaluate(x[np.isfinite(x).all(axis=1)])
            checks.refuse_undefined(self, particles)
            checks.refuse_ties(self.layout, drawn[np.isfinite(drawn).all(axis=1)])
            checks.refuse_beyond_circle(self.layout, self.period, x)
            if not self._keeps_support.all():
                particles = particles.take(np.flatnonzero(particles.log_density[:, 0] > -np.inf))
            kept.append(particles)
            n_kept += len(particles)
            checks.refuse_low_acceptance(n_kept, n_tried)
        return kept[0].join(kept[1:])

    @cached_property
    def prior_acceptance(self) -> float:
        """Share of raw prior draws that lie inside the transforms, from 1,000 draws."""
        if self._keeps_support.all():
            return 1.0
        x = self._prior_points(_ACCEPTANCE_DRAWS, np.random.SeedSequence(_ACCEPTANCE_DRAWS))
        x = prior.without_overflow(x, self._keeps_support)
        log_prior = log_densities(self, x[np.isfinite(x).all(axis=1)])[:, 0]
        return float((log_prior > -np.inf).sum() / _ACCEPTANCE_DRAWS)

    @property
    def log_prior_mass(self) -> float:
        """Log of the prior mass inside transforms that the user gave, in nats.

        The evidence is that of the renormalised prior. Exact for ordered transforms of
        exchangeable variables; for others it is the log of ``prior_acceptance``.
        """
        return self.log_order_mass + float(np.log(self.prior_acceptance))

    def wrap(self, x: Floats) -> Floats:
        """Return ``x`` with circular coordinates brought back to one period."""
        if self.period.any():
            circular = self.period > 0
            turns = np.round(x[:, circular] / self.period[circular])
            x[:, circular] -= self.period[circular] * turns
        return x

    def outside(self, x: Floats) -> NDArray[np.bool_]:
        """Return which rows of ``x`` lie outside the one period that ``wrap`` keeps."""
        beyond: NDArray[np.bool_] = (self.period > 0) & (np.abs(x) > 0.5 * self.period)
        return beyond.any(axis=1)

    def describe(self, x: Floats, limit: int = 6) -> str:
        """Return a point as text, on the constrained scale, for messages."""
        values = self.constrained.values(x[None, :])
        names = [rv.name for rv in self.model.free_RVs]
        shown = [f"{name}={np.round(values[name][0], 4).tolist()}" for name in names[:limit]]
        return "{" + ", ".join(shown) + (", ..." if len(names) > limit else "") + "}"

    # results --------------------------------------------------------------------------------

    @cached_property
    def constrained(self) -> prior.ConstrainedSpace:
        """The map from flat vectors to named variables and deterministics."""
        return prior.ConstrainedSpace(self.model, self.layout)

    @cached_property
    def unconstrained(self) -> prior.UnconstrainedSpace:
        """The map from named free variables to flat vectors."""
        return prior.UnconstrainedSpace(self.model)

    def posterior(self, draws: Floats) -> dict[str, NDArray[Any]]:
        """Return free variables and deterministics by name, each of shape ``(n, ...)``."""
        return self.constrained.values(draws)

    def sample_stats(
        self, draws: Floats, log_density: Floats | None = None
    ) -> dict[str, NDArray[Any]]:
        """Return ``lp``, the log posterior density up to the evidence, shape ``(n,)``.

        It is evaluated unless ``log_density`` is given, as in these coordinates.
        """
        if log_density is None:
            return {"lp": self.evaluate(draws).log_density.sum(axis=1)}
        return {"lp": log_density + self.log_order_mass}

    def observed_data(self) -> dict[str, NDArray[Any]]:
        """Return copies of the observed data by name."""
        return {name: np.array(v) for name, v in arviz.find_observations(self.model).items()}

    def constant_data(self) -> dict[str, NDArray[Any]]:
        """Return ``pm.Data`` that are not observed, by name."""
        return {name: np.array(v) for name, v in arviz.find_constants(self.model).items()}

    def coords_and_dims(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the model's coordinates and the dimensions of its variables."""
        coords, dims = arviz.coords_and_dims_for_inferencedata(self.model)
        return coords, dims

    def add_log_densities(self, dt: Any, groups: Sequence[str]) -> None:
        """Add pointwise log densities of the posterior draws to a DataTree, as PyMC does."""
        for group in groups:
            compute = getattr(pm.stats, f"compute_{group}")
            compute(dt, model=self.model, extend_inferencedata=True, progressbar=False)


def _n_elements(variable: Variable) -> int:
    """Return the number of elements of a variable, as far as it is known without its values."""
    if isinstance(variable, SharedVariable):
        return int(variable.get_value(borrow=True).size)
    return prod(length or 1 for length in variable.type.shape)


_COMPILED = ("density", "differentiable", "_graphs")


class ExchangedTarget(PyMCTarget):
    """A model whose compiled densities read arrays that can be exchanged without compiling again.

    The graphs of a derived class hold ``_arrays`` as shared variables, one for each.
    """

    is_log_concave = False  # not known, because the arrays are not those of the graphs

    _base: Self | None = None
    _arrays: Sequence[NDArray[Any]]

    @cached_property
    def density(self) -> Density:
        """Log prior and log likelihood, without gradients."""
        if self._base is None:
            return super().density
        return self._base.density.reading(self._exchanged())

    @cached_property
    def differentiable(self) -> Density | None:
        """Log prior and log likelihood with gradients; None if there is no gradient."""
        if self._base is None:
            return super().differentiable
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

    def _prior_sampler(self) -> prior.PriorSampler:
        return prior.prior_sampler(self.model, self.variables, self.factors)

    def _prior_points(self, n: int, seed: np.random.SeedSequence) -> Floats:
        drawn = self._prior.draw(n, seed)
        return self.coordinates.converted(drawn, self._non_centred, self.centring)

    @cached_property
    def _graphs(self) -> DensityGraphs:
        amount, log_unit = (pytensor.shared(array, borrow=True) for array in self._arrays)
        return density_graphs(
            self.model,
            self.layout,
            coordinates=lambda values: coordinates.partly_centred(
                self.model, self.variables, values, amount, log_unit, self.factors
            ),
        )

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
