"""A PyMC model as a target: prior draws, log densities and results."""

import logging
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.backends.arviz import (
    coords_and_dims_for_inferencedata,
    find_constants,
    find_observations,
)
from pymc.logprob.transforms import CircularTransform
from pytensor.gradient import NullTypeGradError
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace

from pm_evidence.core.exceptions import ModelError, NumericalError
from pm_evidence.targets.compile.density import (
    CompiledDensity,
    compile_density,
    in_double_precision,
)
from pm_evidence.targets.estimated.variable import logp_of
from pm_evidence.targets.model.car import missing_constant
from pm_evidence.targets.model.checks import check_model, no_density
from pm_evidence.targets.model.index_checks import with_guarded_indices
from pm_evidence.targets.model.prior import prior_sampler
from pm_evidence.targets.model.quiet import quietly
from pm_evidence.targets.model.supports import discrete_support
from pm_evidence.targets.model.transforms import ConstrainedSpace, UnconstrainedSpace
from pm_evidence.targets.points import Particles

__all__ = ["PyMCTarget"]

Floats = NDArray[np.float64]
_log = logging.getLogger("pymc.pm_evidence")

# Fewer accepted prior draws than this share means that the cut prior cannot be drawn by rejection.
_MIN_PRIOR_ACCEPTANCE = 1e-3
_ACCEPTANCE_DRAWS = 1000
# Below and above these, the exponential in double precision is 0 and infinite.
_LEAST_EXPONENT, _GREATEST_EXPONENT = -745.1332191019412, 709.782712893384
# So many equal prior draws of a continuous variable, and such a share of all, are no accident.
_FEWEST_TIES, _LEAST_TIED_SHARE = 3, 1e-3


class PyMCTarget:
    """The posterior of a PyMC model over one flat vector of unconstrained values.

    Parameters
    ----------
    model : pymc.Model
        The model; it is not changed, and its data are those at the time of the call.
    potentials_only : bool
        Anneal from the prior to prior times potentials, leaving the observed variables out: the
        evidence is then the normalising constant of a prior that potentials are part of.
    compile_kwargs : mapping, optional
        Passed on to ``pymc.compile``.

    Attributes
    ----------
    n_dim : int
        Length of the flat vector.
    continuous, discrete : ndarray of int64
        Positions of the continuous and of the discrete coordinates.
    lower, upper : ndarray of float64, shape (n_discrete,)
        Bounds of the discrete coordinates, infinite where not known.
    period : ndarray of float64, shape (n_dim,)
        Period of circular coordinates; 0 for all others.
    log_order_mass : float
        Log of the prior mass inside ordered transforms of exchangeable variables, in nats.

    Raises
    ------
    ModelError
        If the model has no well-defined evidence.
    """

    def __init__(
        self,
        model: pm.Model,
        *,
        potentials_only: bool = False,
        compile_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        check_model(model)
        self.model = model
        self.potentials_only = potentials_only
        self.compile_kwargs = dict(compile_kwargs or {})
        self._prior = prior_sampler(model)
        self.log_order_mass = self._prior.log_order_mass
        self.shapes = self._prior.shapes
        self.n_dim = sum(int(np.prod(shape)) for shape in self.shapes)
        self._describe_coordinates()

    def _describe_coordinates(self) -> None:
        continuous, lower, upper, period = [], [], [], []
        for rv, shape in zip(self.model.free_RVs, self.shapes, strict=True):
            size = int(np.prod(shape))
            is_discrete = np.dtype(rv.dtype).kind in "iub"
            continuous += [not is_discrete] * size
            if is_discrete:
                low, high = discrete_support(rv, shape)
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

    # densities ------------------------------------------------------------------------------

    @cached_property
    def density(self) -> CompiledDensity:
        """Log prior and log likelihood, without gradients."""
        parts, log_density = self._graphs()
        return self._compiled(parts, log_density, None)

    @cached_property
    def differentiable(self) -> CompiledDensity | None:
        """Log prior and log likelihood with gradients; None where there is none."""
        if self.continuous.size == 0:
            return None
        parts, log_density = self._graphs()
        try:
            with quietly():
                gradient = [
                    pt.grad(pm.pytensorf.rewrite_pregrad(term), parts, disconnected_inputs="ignore")
                    for term in log_density
                ]
        except (NotImplementedError, NullTypeGradError):
            return None
        return self._compiled(parts, log_density, gradient)

    def evaluate(self, x: Floats) -> Particles:
        """Return the points ``x``, shape ``(n, n_dim)``, with their log densities."""
        return Particles(x, self._log_densities(x), None)

    def _log_densities(self, x: Floats) -> Floats:
        """Return log prior and log likelihood at ``x``, shape ``(n, 2)``.

        Where all coordinates are continuous they come from the function that moves need, with its
        gradients: these cost less than compiling a second function. Which function it is depends on
        the model alone, so that the same seed gives the same digits.
        """
        if self.discrete.size or self.differentiable is None:
            return self.density.values(x)
        log_density = self.differentiable.values(x)
        # where a gradient cannot be computed the value may exist all the same
        failed = np.isnan(log_density).any(axis=1)
        if failed.any():
            log_density[failed] = self.density.values(x[failed])
        return log_density

    def rows_of(self, draws: Mapping[str, NDArray[Any]], parameter: str) -> Floats:
        """Return posterior draws as points, shape ``(n_chains * n_draws, n_dim)``.

        Raises
        ------
        ValueError
            If a free variable is missing, has another shape, or lies outside its support;
            ``parameter`` names the argument that the draws come from.
        """
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

    def _graphs(self) -> tuple[list[Variable], list[Variable]]:
        """Return the parts of the flat vector, and log prior and log likelihood as their graphs."""
        model = self.model
        try:
            with quietly():
                log_prior = self._log_prior()
                log_likelihood = (
                    model.potentiallogp if self.potentials_only else self._log_likelihood()
                )
        except NotImplementedError as error:
            self._name_without_density(error)
            raise
        # one input a variable: slices of a single one would cost seconds of compiling
        parts, values = [], {}
        for value_var, shape in zip(model.value_vars, self.shapes, strict=True):
            part = pt.TensorType("float64", shape=shape)(model.values_to_rvs[value_var].name)
            parts.append(part)
            values[value_var] = part.astype(value_var.dtype)
            values[value_var].name = part.name
        graphs = [pt.as_tensor(g).sum() for g in (log_prior, log_likelihood)]
        graphs = in_double_precision(clone_replace(graphs, values, rebuild_strict=False))
        graphs, self._guards = with_guarded_indices(graphs)
        self._parts = parts
        return parts, self._impossible_beyond_doubles(graphs, values)

    def _impossible_beyond_doubles(
        self, graphs: list[Variable], values: Mapping[Variable, Variable]
    ) -> list[Variable]:
        """Return log densities that are minus infinity where a scale of 0 made them NaN.

        Far out on a transformed scale the variable itself is 0 or infinite in double precision,
        outside of its support, and not all densities check that: the one of
        ``pm.ZeroSumNormal`` is ``-inf + inf`` at ``sigma=0``, where its limit is minus infinity.
        """
        model = self.model
        far = [
            ((values[value] < _LEAST_EXPONENT) | (values[value] > _GREATEST_EXPONENT)).any()
            for rv, value in zip(model.free_RVs, model.value_vars, strict=True)
            if model.rvs_to_transforms[rv] is not None
            and not isinstance(model.rvs_to_transforms[rv], CircularTransform)
        ]
        if not far:
            return graphs
        beyond = pt.any(pt.stack(far))
        return [pt.switch(pt.isnan(graph) & beyond, -np.inf, graph) for graph in graphs]

    def _log_prior(self) -> Variable:
        """Return the log prior with Jacobians as a graph of the model's value variables."""
        return logp_of(self.model, self.model.free_RVs)

    def _name_without_density(self, error: NotImplementedError) -> None:
        """Raise what a density that PyMC does not have means for the user, naming the variable."""
        for rv in self.model.basic_RVs:
            try:
                pm.logp(rv, rv.type(), warn_rvs=False)
            except NotImplementedError as reason:
                raise ModelError(
                    f"every variable must have a log density that PyMC knows, but that of "
                    f"{rv.name} failed: {' '.join(str(reason).split()).rstrip('.')}. Use a "
                    "distribution whose density is known, or write it with pm.CustomDist(logp=...)."
                ) from error

    def _log_likelihood(self) -> Variable:
        """Return the log likelihood as a graph of the model's value variables."""
        missing = missing_constant(self.model, self.model.observed_RVs)
        return self.model.datalogp if missing is None else self.model.datalogp + missing

    def _compiled(
        self,
        parts: list[Variable],
        log_density: list[Variable],
        gradient: list[list[Variable]] | None,
    ) -> CompiledDensity:
        compiled = compile_density(parts, log_density, gradient, self.compile_kwargs)
        if compiled.slow_ops:
            _log.warning(
                "No numba implementation of %s: the model runs in Python there, correct but slow.",
                ", ".join(compiled.slow_ops),
            )
        return compiled

    # draws ----------------------------------------------------------------------------------

    def draw(self, n: int, seed: np.random.SeedSequence) -> Particles:
        """Return ``n`` independent draws from the normalised prior.

        Raises
        ------
        NumericalError
            If a log density is NaN at a prior draw.
        ModelError
            If nearly all draws fall outside a transform that the user gave, or a continuous
            variable takes one value again and again.
        """
        kept: list[Particles] = []
        n_kept = n_tried = 0
        while n_kept < n or not kept:
            x = self._prior.draw(n - n_kept, seed.spawn(1)[0])
            n_tried += len(x)
            particles = self.evaluate(x[np.isfinite(x).all(axis=1)])
            self._refuse_nan(particles)
            self._refuse_ties(particles.x)
            inside = np.flatnonzero(particles.log_density[:, 0] > -np.inf)
            kept.append(particles.take(inside))
            n_kept += len(inside)
            if n_tried > 5 / _MIN_PRIOR_ACCEPTANCE and n_kept < _MIN_PRIOR_ACCEPTANCE * n_tried:
                raise ModelError(
                    "prior draws must be finite and fall inside the transforms, but only "
                    f"{n_kept} of {n_tried} are. Use pm.Truncated, or a prior that lives where its "
                    "transform allows."
                )
        return kept[0].join(kept[1:])

    @cached_property
    def prior_acceptance(self) -> float:
        """Share of raw prior draws that lie inside the transforms, from 1,000 draws."""
        x = self._prior.draw(_ACCEPTANCE_DRAWS, np.random.SeedSequence(_ACCEPTANCE_DRAWS))
        inside = np.isfinite(x).all(axis=1)
        inside[inside] = self._log_densities(x[inside])[:, 0] > -np.inf
        return float(inside.mean())

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
        result: NDArray[np.bool_] = ((self.period > 0) & (np.abs(x) > 0.5 * self.period)).any(
            axis=1
        )
        return result

    def _refuse_nan(self, particles: Particles) -> None:
        log_density = particles.log_density
        bad = np.argwhere(np.isnan(log_density) | (log_density == np.inf))
        if len(bad) == 0:
            return
        row, column = bad[0]
        n_bad = len(np.unique(bad[:, 0]))
        self._refuse_index(particles.x[row])
        both = np.isnan(log_density[row]).all()
        part = "density" if both else ("prior", "likelihood")[column]
        raise NumericalError(
            f"the log {part} must be a number below infinity, got "
            f"{log_density[row, column]} at {n_bad} of {len(log_density)} prior draws, first at "
            f"{self.describe(particles.x[row])}. Look for NaN in the data, or for an overflow in "
            "the model at such values, or for an index beyond its array in a loop; "
            "model.point_logps() there names the variable."
        )

    def _refuse_index(self, x: Floats) -> None:
        """Raise an error if some index lies outside of its array at a point ``x``."""
        ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes])
        values = [
            part.reshape(shape)
            for part, shape in zip(np.split(x, ends[:-1]), self.shapes, strict=True)
        ]
        for guard in self._guards:
            problem = guard.why(self._parts, values)
            if problem is not None:
                raise ModelError(f"{problem} The index is that of a draw from the prior.")

    def _refuse_ties(self, x: Floats) -> None:
        """Refuse continuous variables that repeat a value, which no density explains.

        Among 10,000 draws with 53 random bits two are equal with a probability of 1e-8, three
        never; smaller shares than 1 in 1,000 shift log Z by as little.
        """
        start = 0
        for rv, shape in zip(self.model.free_RVs, self.shapes, strict=True):
            stop = start + int(np.prod(shape))
            if rv.dtype == "float64":
                values = np.sort(x[:, start:stop], axis=0)
                most = max(_FEWEST_TIES, int(_LEAST_TIED_SHARE * len(x)))
                if (values[most - 1 :] == values[: len(x) - most + 1]).any():
                    raise ModelError(no_density(rv.name, rv.name))
            start = stop

    def describe(self, x: Floats, limit: int = 6) -> str:
        """Return a point as text, on the constrained scale, for messages."""
        values = self.constrained.values(x[None, :])
        names = [rv.name for rv in self.model.free_RVs]
        shown = [f"{name}={np.round(values[name][0], 4).tolist()}" for name in names[:limit]]
        return "{" + ", ".join(shown) + (", ..." if len(names) > limit else "") + "}"

    # results --------------------------------------------------------------------------------

    @cached_property
    def constrained(self) -> "ConstrainedSpace":
        """The map from flat vectors to named variables and deterministics."""
        return ConstrainedSpace(self.model, self.shapes)

    @cached_property
    def unconstrained(self) -> "UnconstrainedSpace":
        """The map from named free variables to flat vectors."""
        return UnconstrainedSpace(self.model)

    def posterior(self, draws: Floats) -> dict[str, NDArray[Any]]:
        """Return free variables and deterministics by name, each of shape ``(n, ...)``."""
        return self.constrained.values(draws)

    def sample_stats(self, draws: Floats) -> dict[str, NDArray[Any]]:
        """Return ``lp``, the log posterior density up to the evidence, shape ``(n,)``."""
        return {"lp": self.evaluate(draws).log_density.sum(axis=1)}

    def observed_data(self) -> dict[str, NDArray[Any]]:
        """Return copies of the observed data by name."""
        return {name: np.array(v) for name, v in find_observations(self.model).items()}

    def constant_data(self) -> dict[str, NDArray[Any]]:
        """Return ``pm.Data`` that are not observed, by name."""
        return {name: np.array(v) for name, v in find_constants(self.model).items()}

    def coords_and_dims(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the model's coordinates and the dimensions of its variables."""
        coords, dims = coords_and_dims_for_inferencedata(self.model)
        return coords, dims

    def add_log_densities(self, dt: Any, groups: Sequence[str]) -> None:
        """Add pointwise log densities of the posterior draws to a DataTree, as PyMC does.

        Parameters
        ----------
        dt : DataTree
            With a group ``posterior``.
        groups : sequence of {"log_likelihood", "log_prior"}
            Which to add.
        """
        for group in groups:
            compute = getattr(pm.stats, f"compute_{group}")
            compute(dt, model=self.model, extend_inferencedata=True, progressbar=False)
