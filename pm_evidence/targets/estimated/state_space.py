"""State-space models: the user's call, its checks and its record."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.fg import MissingInputError
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.op import RandomVariable

from pm_evidence.core.checks import check_choice, check_share, real_number
from pm_evidence.core.exceptions import ModelError
from pm_evidence.core.resampling import SCHEMES
from pm_evidence.targets.compile.rewrite import evaluated_shapes, inline_symbolic
from pm_evidence.targets.estimated import variable
from pm_evidence.targets.estimated.particle_filter import (
    ParticleFilter,
    StateSpaceGraphs,
    compile_filter,
    row_kinds,
    simulated,
)
from pm_evidence.targets.model.upstream import check_known_indices, name_of_distribution

Floats = NDArray[np.float64]


def observations(observed: Any) -> Floats:
    """Return the data as floats, NaN where missing."""
    values = variable.given_value("observed", observed)
    if values.dtype.kind not in "biuf":
        raise ValueError(
            f"observed must be numeric, got dtype {values.dtype}; encode it as numbers."
        )
    data = np.array(values, np.float64, order="C")
    if data.ndim not in (1, 2) or data.size == 0:
        raise ValueError(
            f"observed must have shape (n_times,) or (n_times, k) with at least one entry, got "
            f"{data.shape}; put time first, and reshape further dimensions into one."
        )
    infinite = np.argwhere(np.isinf(data))
    if infinite.size:
        raise ValueError(
            f"observed must be finite, got {data[tuple(infinite[0])]} at time {infinite[0, 0]}; "
            "mark missing values by NaN."
        )
    if np.isnan(data).all():
        raise ValueError(
            "observed must have values that are not missing, got only NaN: without data the "
            "evidence is 1. Check how the data were read."
        )
    return data


def trace(functions: dict[str, Any], data: Floats) -> StateSpaceGraphs:
    """Call the user's functions with stand-ins and check what they return."""
    t = pt.lscalar("t")
    init = variable.call_user("init", functions["init"])
    shape = _shape("init", init)
    if len(shape) > 1:
        raise ModelError(
            f"init must return a scalar or a vector, got shape {shape}; stack the state's "
            "components into one vector."
        )
    dtype = init.dtype
    for _ in range(2):  # a continuous state may start at an integer constant
        h = pt.TensorType(dtype, shape=shape)("h")
        transition = variable.call_user("transition", functions["transition"], h, t)
        if transition.dtype == dtype:
            break
        dtype = transition.dtype
    _check_state("transition", transition, h)
    if not h.dtype.startswith("float") and init.dtype.startswith("float"):
        raise ModelError(
            f"init and transition must both be continuous or both be discrete, got {init.dtype} "
            f"and {transition.dtype}; use distributions of one kind."
        )
    emission = variable.call_user("emission", functions["emission"], h, t)
    emitted = _shape("emission", emission)
    if emitted != data.shape[1:]:
        raise ModelError(
            "emission must return the distribution of one row of observed, of shape "
            f"{data.shape[1:]}, got shape {emitted}; {_shape_remedy(data.shape[1:])}."
        )
    y = pt.TensorType("float64", shape=data.shape[1:])("y")
    further = {}
    for name, arguments in (("proposal", (h, t, y)), ("init_proposal", (y,))):
        if functions[name] is not None:
            further[name] = variable.call_user(name, functions[name], *arguments)
            _check_state(name, further[name], h)
    if functions["look_ahead"] is not None:
        variable.check_call("look_ahead", functions["look_ahead"], h, t, y)
        weight = functions["look_ahead"](h, t, y)
        if not isinstance(weight, Variable) or weight.type.ndim != 0:
            raise TypeError(
                f"look_ahead must return a scalar log weight, got {type(weight).__name__}"
                f"{getattr(getattr(weight, 'type', None), 'shape', '')}; return for example "
                "pm.logp(dist, y)."
            )
        further["look_ahead"] = weight
    graphs = StateSpaceGraphs(h, t, y, init, transition, emission, **further)
    check_rows(graphs, data)
    return graphs


def _shape(what: str, distribution: Variable) -> tuple[int, ...]:
    """Return the shape of the distribution that a user's function returned."""
    try:
        return evaluated_shapes([distribution])[0]
    except MissingInputError as error:
        raise ModelError(
            f"{what} must return a distribution of one shape at all times and states, got one "
            "whose shape depends on h or t; pad it to a fixed shape, and mark what is missing in "
            "observed by NaN."
        ) from error


def _check_state(what: str, distribution: Variable, h: Variable) -> None:
    shape = _shape(what, distribution)
    if shape != h.type.shape:
        raise ModelError(
            f"{what} must return a distribution of the state, of shape {h.type.shape} as init's, "
            f"got shape {shape}; {_shape_remedy(h.type.shape)}."
        )
    if distribution.dtype.startswith("float") != h.dtype.startswith("float"):
        raise ModelError(
            f"{what} must return a distribution of the state, of type {h.dtype}, got "
            f"{distribution.dtype}; use discrete distributions for all of them, or continuous ones."
        )


def _shape_remedy(shape: tuple[int, ...]) -> str:
    if shape:
        return f"pass shape={shape[0]} to it, or parameters of that length"
    return "give it scalar parameters"


def check_rows(graphs: StateSpaceGraphs, data: Floats) -> None:
    """Refuse data that the emission does not fit."""
    if data.shape[1:] != graphs.y.type.shape:
        raise ModelError(
            f"observed must have rows of shape {graphs.y.type.shape}, as when the model was "
            f"defined, got {data.shape[1:]}; define the model again for other data."
        )
    missing = np.isnan(data).reshape(len(data), -1)
    in_part = np.flatnonzero(missing.any(axis=1) & ~missing.all(axis=1))
    op = graphs.emission.owner.op
    if in_part.size and op.ndim_supp > 0:
        raise ModelError(
            "a row of observed may be missing in part only if the components of the emission are "
            f"independent, got {name_of_distribution(graphs.emission)}, which is joint, and time "
            f"{in_part[0]} missing in part; set whole rows to NaN, or write independent components."
        )


def check_densities(graphs: StateSpaceGraphs) -> None:
    """Refuse distributions without a log density if the filter needs it."""
    needed = {"emission": graphs.emission}
    if graphs.proposal is not None:
        needed.update(transition=graphs.transition, proposal=graphs.proposal)
    if graphs.init_proposal is not None:
        needed.update(init=graphs.init, init_proposal=graphs.init_proposal)
    for what, distribution in needed.items():
        value = distribution.type("value")
        try:
            log_density = pm.logp(distribution, value, warn_rvs=False)
        except (NotImplementedError, TypeError, ValueError) as error:
            raise ModelError(
                f"{what} must return a distribution with a log density, got "
                f"{name_of_distribution(distribution)}, which has none: {error}"
            ) from error
        nodes = [v.owner for v in ancestors([log_density], blockers=_named(graphs))]
        hidden = [n for n in nodes if n is not None and isinstance(n.op, RandomVariable)]
        if any(not v.name for node in hidden for v in node.outputs[1:]):
            raise ModelError(
                f"{what} must return a distribution whose parameters are known given h and the "
                f"model's variables, got {name_of_distribution(distribution)} with a parameter "
                "that is itself drawn; make that a part of the state, or a variable of the model."
            )


def _named(graphs: StateSpaceGraphs) -> list[Variable]:
    return [v for v in ancestors(graphs.named().values()) if v.name and v.owner is not None]


def check_time_indices(graphs: StateSpaceGraphs, n_times: int) -> None:
    """Refuse arrays that are indexed by time and end before the last time."""
    for what, graph in graphs.named().items():
        for time in {1 if what == "transition" else 0, 0 if what == "init" else n_times - 1}:
            try:
                at_time = {graphs.t: pt.constant(time, dtype="int64")}
                check_known_indices(inline_symbolic([graph]), at_time)
            except ModelError as error:
                raise ModelError(
                    f"{what} must have covariates for every time, and observed has {n_times} "
                    f"times, but at time {time} {error}"
                ) from error


FILTERS = ("bootstrap", "guided", "auxiliary")

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
    model = variable.model_of(name, model, dims)
    n_particles = variable.checked_particles(n_particles)
    check_choice("filter", filter, FILTERS)
    check_choice("resampling", resampling, SCHEMES)
    if real_number(ess) != 1.0:  # resampling at every time
        ess = check_share("ess", ess, 0.5)
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
    parents = variable.find_parents(graphs.named().values(), model, [graphs.h, graphs.t, graphs.y])
    is_shared = isinstance(observed, SharedVariable)
    if is_shared:  # the user may change the data, and their number
        parents.append(observed.shape[0])
    stand_ins = tuple(parent.type(name=parent.name) for parent in parents)
    graphs = graphs.given(dict(zip(parents, stand_ins, strict=True)))
    spec = StateSpaceSpec(stand_ins, graphs, n_particles, filter, resampling, float(ess))
    draw = simulated(graphs, stand_ins[-1] if is_shared else len(data))
    draw = pt.specify_shape(draw, (None if is_shared else len(data), *data.shape[1:]))
    if not is_shared:
        is_whole = np.isfinite(data).all()
        observed = data.astype(graphs.emission.dtype) if is_whole else data
    return variable.register_estimated(
        variable.StateSpaceRV, name, spec, parents, draw, observed, dims, model
    )


@dataclass(frozen=True, eq=False)
class StateSpaceSpec:
    """The record of a call of ``StateSpace``; see ``variable.EstimatedRV``."""

    parents: Sequence[Variable]  # stand-ins of the parents
    graphs: StateSpaceGraphs  # graphs of one particle, functions of the stand-ins
    n_particles: int | Literal["auto"]  # how the filter runs, as the user gave it
    filter: str
    resampling: str
    ess: float

    def estimator(
        self, name: str, x: Variable, parents: Sequence[Variable], observed: NDArray[Any]
    ) -> ParticleFilter:
        """Return the estimator; see ``variable.EstimatedRV``."""
        data = observations(observed)
        graphs = self.graphs.given(dict(zip(self.parents, parents, strict=True)))
        check_rows(graphs, data)
        check_time_indices(graphs, len(data))
        kinds = row_kinds(data)
        code = compile_filter(graphs, kinds, x, look_ahead=self.filter == "auxiliary")
        variable.warn_if_slow(name, code.functions)
        n_particles = self.n_particles
        if n_particles == "auto":
            n_particles = int(np.clip(len(data) // 4, _LEAST_PARTICLES, _MOST_PARTICLES))
        return ParticleFilter(
            name,
            code,
            data,
            kinds,
            graphs.h.type.shape,
            n_particles,
            resampling=self.resampling,
            ess=self.ess,
            auto=self.n_particles == "auto",
        )


def _check_filter(filter: str, proposal: Any, init_proposal: Any, look_ahead: Any) -> None:
    if filter == "guided" and proposal is None:
        raise ValueError(
            'filter="guided" needs a proposal, got None; pass proposal=lambda h, t, y: '
            "pm.Normal.dist(...), or leave filter out."
        )
    for argument, value, own in (
        ("proposal", proposal, "guided"),
        ("init_proposal", init_proposal, "guided"),
        ("look_ahead", look_ahead, "auxiliary"),
    ):
        if value is not None and filter != own:
            raise ValueError(
                f'{argument} is for filter="{own}", got it with filter="{filter}"; '
                f'pass filter="{own}", or drop {argument}.'
            )
