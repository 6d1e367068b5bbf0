"""Checks of a user's state-space model, made when it is defined."""

from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.graph.basic import Variable
from pytensor.graph.fg import MissingInputError
from pytensor.graph.traversal import ancestors, io_toposort
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.subtensor import Subtensor, indices_from_subtensor

from pm_evidence.core.exceptions import ModelError
from pm_evidence.targets.compile.batched import inline_symbolic
from pm_evidence.targets.compile.parameters_only import evaluated_shapes
from pm_evidence.targets.estimated.state_space.graphs import StateSpaceGraphs
from pm_evidence.targets.estimated.user_input import check_call, given_value
from pm_evidence.targets.estimated.variable import call_user

__all__ = ["check_densities", "check_rows", "check_time_indices", "observations", "trace"]

Floats = NDArray[np.float64]


def observations(observed: Any) -> Floats:
    """Return the data as floats, NaN where missing."""
    if np.ma.isMaskedArray(observed) and observed.dtype.kind in "biuf":
        observed = np.ma.filled(observed.astype(float), np.nan)
    values = given_value("observed", observed)
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
    init = call_user("init", functions["init"])
    shape = _shape("init", init)
    if len(shape) > 1:
        raise ModelError(
            f"init must return a scalar or a vector, got shape {shape}; stack the state's "
            "components into one vector."
        )
    dtype = init.dtype
    for _ in range(2):  # a continuous state may start at an integer constant
        h = pt.TensorType(dtype, shape=shape)("h")
        transition = call_user("transition", functions["transition"], h, t)
        if transition.dtype == dtype:
            break
        dtype = transition.dtype
    _check_state("transition", transition, h)
    if not h.dtype.startswith("float") and init.dtype.startswith("float"):
        raise ModelError(
            f"init and transition must both be continuous or both be discrete, got {init.dtype} "
            f"and {transition.dtype}; use distributions of one kind."
        )
    emission = call_user("emission", functions["emission"], h, t)
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
            further[name] = call_user(name, functions[name], *arguments)
            _check_state(name, further[name], h)
    if functions["look_ahead"] is not None:
        check_call("look_ahead", functions["look_ahead"], h, t, y)
        further["look_ahead"] = _scalar(functions["look_ahead"](h, t, y))
    graphs = StateSpaceGraphs(h, t, y, init, transition, emission, **further)
    check_rows(graphs, data)
    return graphs


def _scalar(result: Any) -> Variable:
    if not isinstance(result, Variable) or result.type.ndim != 0:
        raise TypeError(
            f"look_ahead must return a scalar log weight, got {type(result).__name__}"
            f"{getattr(getattr(result, 'type', None), 'shape', '')}; return for example "
            "pm.logp(dist, y)."
        )
    return result


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
    """Refuse data that the emission does not fit.

    Raises
    ------
    ModelError
        If rows have another shape, or a row is partly missing but its components are not
        independent.
    """
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
            f"independent, got {distribution_name(graphs.emission)}, which is joint, and time "
            f"{in_part[0]} missing in part; set whole rows to NaN, or write independent components."
        )


def distribution_name(distribution: Variable) -> str:
    """Return the name under which a distribution is printed."""
    op = distribution.owner.op
    return str(getattr(op, "_print_name", (str(op),))[0])


def check_densities(graphs: StateSpaceGraphs) -> None:
    """Refuse distributions without a log density if the filter needs it.

    Raises
    ------
    ModelError
        The message names the function and the distribution.
    """
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
                f"{distribution_name(distribution)}, which has none: {error}"
            ) from error
        nodes = [v.owner for v in ancestors([log_density], blockers=_named(graphs))]
        hidden = [n for n in nodes if n is not None and isinstance(n.op, RandomVariable)]
        if any(not v.name for node in hidden for v in node.outputs[1:]):
            raise ModelError(
                f"{what} must return a distribution whose parameters are known given h and the "
                f"model's variables, got {distribution_name(distribution)} with a parameter that "
                "is itself drawn; make that a part of the state, or a variable of the model."
            )


def _named(graphs: StateSpaceGraphs) -> list[Variable]:
    return [v for v in ancestors(graphs.named().values()) if v.name and v.owner is not None]


def check_time_indices(graphs: StateSpaceGraphs, n_times: int) -> None:
    """Refuse arrays that are indexed by time and end before the last time.

    Compiled code does not check its indices.

    Raises
    ------
    ModelError
        The message names the function, the array and its length.
    """
    for what, graph in graphs.named().items():
        for node in io_toposort([], inline_symbolic([graph])):
            if not isinstance(node.op, Subtensor):
                continue
            array = node.inputs[0]
            indices = indices_from_subtensor(node.inputs[1:], node.op.idx_list)
            for axis, index in enumerate(indices):
                if isinstance(index, slice) or not _is_time_alone(index, graphs):
                    continue
                _check_reach(what, array, axis, index, graphs.t, n_times)


def _is_time_alone(index: Any, graphs: StateSpaceGraphs) -> bool:
    if not isinstance(index, Variable):
        return False
    found = set(ancestors([index]))
    return graphs.t in found and graphs.h not in found


def _check_reach(
    what: str, array: Variable, axis: int, index: Variable, t: Variable, n_times: int
) -> None:
    if t in set(ancestors([array])):
        return
    length = evaluated_shapes([array])[0][axis]
    at = pm.compile([t], pt.as_tensor(index), mode="FAST_COMPILE")
    for time in {0 if what == "emission" else 1, n_times - 1}:
        if time < n_times and not -length <= int(at(time)) < length:
            name = array.name or "an array"
            raise ModelError(
                f"{what} uses {name}[{int(at(time))}] at time {time}, but {name} has length "
                f"{length} and observed has {n_times} times; pass covariates for every time."
            )
