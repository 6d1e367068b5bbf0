"""State-space models: the user's call, its checks and its record."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable

from pm_evidence.core.checks import check_choice, check_count, check_share, real_number
from pm_evidence.core.resampling import SCHEMES
from pm_evidence.targets.estimated.state_space.checks import (
    check_densities,
    check_rows,
    check_time_indices,
    observations,
    trace,
)
from pm_evidence.targets.estimated.state_space.compile import compile_filter
from pm_evidence.targets.estimated.state_space.filter import ParticleFilter
from pm_evidence.targets.estimated.state_space.graphs import StateSpaceGraphs, row_kinds
from pm_evidence.targets.estimated.state_space.simulate import SimulateOp
from pm_evidence.targets.estimated.user_input import MOST_PARTICLES, model_of
from pm_evidence.targets.estimated.variable import find_parents, register_estimated

__all__ = ["StateSpace", "StateSpaceSpec"]

FILTERS = ("bootstrap", "guided", "auxiliary")

_log = logging.getLogger("pymc.pm_evidence")

# The variance of a log estimate grows with the number of times, and falls with the number of
# particles.
_LEAST_PARTICLES, _MOST_PARTICLES = 32, 512


def StateSpace(
    name: str,
    *,
    init: Callable[[], Any],
    transition: Callable[[Any, Any], Any],
    emission: Callable[[Any, Any], Any],
    observed: Any,
    n_particles: int | Literal["auto"] = "auto",
    filter: Literal["bootstrap", "guided", "auxiliary"] = "bootstrap",
    proposal: Callable[[Any, Any, Any], Any] | None = None,
    init_proposal: Callable[[Any], Any] | None = None,
    look_ahead: Callable[[Any, Any, Any], Any] | None = None,
    resampling: str = "systematic",
    ess: float = 0.5,
    dims: Any = None,
    model: pm.Model | None = None,
) -> Variable:
    """Add a time series with a hidden state to the model of the context.

    The states do not become variables of the model: ``sample_evidence`` integrates them out with
    a particle filter. The functions are those of *one* particle and return PyMC distributions::

        with pm.Model():
            mu = pm.Normal("mu", 0, 5)
            phi = pm.Uniform("phi", 0, 1)
            sigma = pm.HalfNormal("sigma", 1)
            pe.StateSpace(
                "returns",
                init=lambda: pm.Normal.dist(mu, sigma / pt.sqrt(1 - phi**2)),
                transition=lambda h, t: pm.Normal.dist(mu + phi * (h - mu), sigma),
                emission=lambda h, t: pm.Normal.dist(0, pt.exp(h / 2)),
                observed=y,
            )

    Parameters
    ----------
    name : str
        Name of the observed variable.
    init : callable
        Takes no argument and returns the distribution of the state at time 0: a scalar or a vector,
        continuous or discrete.
    transition : callable
        Takes a state ``h`` and a time ``t`` and returns the distribution of the state at ``t``
        given that it was ``h`` at ``t - 1``. Times count from 0, so that covariates are ``X[t]``;
        ``t`` is the time *after* the transition, and is at least 1.
    emission : callable
        Takes a state ``h`` and a time ``t`` and returns the distribution of the observation at
        ``t`` given that the state is ``h`` then: a scalar, or a vector of shape ``(k,)``.
    observed : array_like or pm.Data, shape (n_times,) or (n_times, k)
        The data. NaN or a mask marks missing values: whole rows, or single components if the
        components of the emission are independent.
    n_particles : int or "auto"
        Number of particles, at least 2. "auto" starts with a number that grows with the length of
        the series, and lets the sampler choose.
    filter : {"bootstrap", "guided", "auxiliary"}
        States are drawn from the transition; from ``proposal``; or from the transition, after
        particles that are likely to fit the next observation were resampled.
    proposal : callable, optional
        For the guided filter: takes ``h``, ``t`` and ``y``, the observation at ``t``, and returns
        the distribution that the state at ``t`` is drawn from. Its support must include that of the
        transition. At rows with missing values the state is drawn from the transition.
    init_proposal : callable, optional
        The same for time 0: takes ``y``.
    look_ahead : callable, optional
        For the auxiliary filter: takes ``h`` at ``t - 1``, ``t`` and ``y`` and returns a log
        weight, in nats. By default it is the emission's log density at the transition's typical
        value (``support_point``).
    resampling : {"systematic", "stratified", "residual", "ssp", "multinomial"}
        How particles are resampled.
    ess : float
        Particles are resampled if their effective sample size falls below this share.
    dims : str or tuple of str, optional
        Dimensions of the data.
    model : pymc.Model, optional
        The model; that of the context if left out.

    Returns
    -------
    TensorVariable
        The observed variable.

    Raises
    ------
    ModelError, TypeError, ValueError
        The message names the argument, the rule, the value and the remedy.

    Notes
    -----
    All filters are special cases of one: particles are resampled with probabilities ``v``,
    proportional to weight times look-ahead, and have the weights ``W / v`` afterwards. A share of
    0.05 of ``v`` is given by the weights themselves, so that a bad look-ahead only costs precision.
    The estimate is unbiased for every filter and scheme (Del Moral 2004; Pitt, Silva, Giordani and
    Kohn 2012).
    """
    model = model_of(name, model, dims)
    options = FilterOptions.checked(n_particles, filter, resampling, ess)
    _check_filter(filter, proposal, init_proposal, look_ahead)
    data = observations(observed)
    functions = {
        "init": init,
        "transition": transition,
        "emission": emission,
        "proposal": proposal,
        "init_proposal": init_proposal,
        "look_ahead": look_ahead,
    }
    graphs = trace(functions, data)
    check_densities(graphs)
    parents = find_parents(graphs.named().values(), model, [graphs.h, graphs.t, graphs.y])
    stand_ins = tuple(parent.type(name=parent.name) for parent in parents)
    graphs = graphs.given(dict(zip(parents, stand_ins, strict=True)))
    shared = observed if isinstance(observed, SharedVariable) else None
    spec = StateSpaceSpec(stand_ins, graphs, options, shared, len(data))
    rng = pt.random.shared_rng(seed=None)
    draw = SimulateOp(spec).make_node(rng, *stand_ins).outputs[1]
    if shared is None:
        is_whole = np.isfinite(data).all()
        observed = data.astype(graphs.emission.dtype) if is_whole else data
    return register_estimated(
        name, spec, parents, draw, observed, class_name="StateSpace", dims=dims, model=model
    )


@dataclass(frozen=True)
class FilterOptions:
    """The options of a filter, as the user gave them."""

    n_particles: int | Literal["auto"]
    filter: str
    resampling: str
    ess: float

    @classmethod
    def checked(cls, n_particles: Any, filter: Any, resampling: Any, ess: Any) -> "FilterOptions":
        """Return the options after checking them."""
        if not (isinstance(n_particles, str) and n_particles == "auto"):
            n_particles = check_count("n_particles", n_particles, 2, MOST_PARTICLES)
        check_choice("filter", filter, FILTERS)
        check_choice("resampling", resampling, SCHEMES)
        if real_number(ess) != 1.0:  # resampling at every time
            ess = check_share("ess", ess, 0.5)
        return cls(n_particles, filter, resampling, float(ess))


@dataclass(frozen=True, eq=False)
class StateSpaceSpec:
    """The record of a call of ``StateSpace``; see ``variable.EstimatedSpec``.

    Parameters
    ----------
    parents : tuple of Variable
        Stand-ins of the parents.
    graphs : StateSpaceGraphs
        Graphs of one particle, functions of the stand-ins.
    options : FilterOptions
        How the filter runs.
    shared : SharedVariable or None
        The data, if the user may change them.
    length : int
        Number of times of the data, if they are fixed.
    """

    parents: Sequence[Variable]
    graphs: StateSpaceGraphs
    options: FilterOptions
    shared: SharedVariable | None
    length: int

    @property
    def n_times(self) -> int:
        """Length of the data at present."""
        return self.length if self.shared is None else len(self.shared.get_value(borrow=True))

    def estimator(
        self, name: str, x: Variable, parents: Sequence[Variable], observed: NDArray[Any]
    ) -> ParticleFilter:
        """Return the estimator; see ``variable.EstimatedSpec``."""
        data = observations(observed)
        graphs = self.graphs.given(dict(zip(self.parents, parents, strict=True)))
        check_rows(graphs, data)
        check_time_indices(graphs, len(data))
        options = self.options
        kinds = row_kinds(data)
        code = compile_filter(graphs, kinds, x, look_ahead=options.filter == "auxiliary")
        if code.slow_ops:
            _log.warning(
                "There is no numba implementation of %s in %s: this part runs in Python, which is "
                "correct but slow.",
                ", ".join(code.slow_ops),
                name,
            )
        n_particles = options.n_particles
        if n_particles == "auto":
            n_particles = int(np.clip(len(data) // 4, _LEAST_PARTICLES, _MOST_PARTICLES))
        return ParticleFilter(
            name,
            code,
            data,
            kinds,
            graphs.h.type.shape,
            n_particles,
            resampling=options.resampling,
            ess=options.ess,
            auto=options.n_particles == "auto",
        )


def _check_filter(filter: str, proposal: Any, init_proposal: Any, look_ahead: Any) -> None:
    if filter == "guided" and proposal is None:
        raise ValueError(
            'filter="guided" needs a proposal, got None; pass proposal=lambda h, t, y: '
            "pm.Normal.dist(...), or leave filter out."
        )
    given = {"proposal": proposal, "init_proposal": init_proposal, "look_ahead": look_ahead}
    belongs = {"proposal": "guided", "init_proposal": "guided", "look_ahead": "auxiliary"}
    for argument, value in given.items():
        if value is not None and filter != belongs[argument]:
            raise ValueError(
                f'{argument} is for filter="{belongs[argument]}", got it with filter="{filter}"; '
                f'pass filter="{belongs[argument]}", or drop {argument}.'
            )
