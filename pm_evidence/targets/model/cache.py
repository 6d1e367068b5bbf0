"""The targets of models: compiled once in each process, and rebuilt in workers."""

import copyreg
import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

import cloudpickle
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.backends.arviz import find_observations
from pymc.distributions.custom import CustomDistRV, CustomSymbolicDistRV
from pymc.distributions.distribution import _support_point
from pymc.distributions.shape_utils import _change_dist_size
from pymc.logprob.abstract import _logcdf, _logprob
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors

from pm_evidence.core.digest import digest_of_bytes
from pm_evidence.targets.estimated.target import CompiledTarget, EstimatedTarget
from pm_evidence.targets.estimated.variable import estimated_variables
from pm_evidence.targets.model.checks import check_model
from pm_evidence.targets.model.reparameterised import (
    ReparameterisedTarget,
    has_better_coordinates,
)
from pm_evidence.targets.model.target import PyMCTarget

__all__ = [
    "checked_data",
    "find_model",
    "is_model",
    "model_in",
    "registered_functions",
    "target_of",
]


def is_model(target: Any) -> bool:
    """Return whether a value is a pymc.Model."""
    return isinstance(target, pm.Model)


def find_model(target: Any) -> pm.Model:
    """Return the model that the user gives, or the one whose context is open.

    A Bambi model is built if it has not been, and its PyMC model is returned.

    Raises
    ------
    TypeError
        If there is neither.
    """
    found = model_in(target)
    if found is not None:
        return found
    if target is not None:
        raise TypeError(
            f"target must be a pymc.Model, got {type(target).__name__}; pass the model, or call "
            "inside its context."
        )
    try:
        return pm.modelcontext(None)
    except TypeError as error:
        raise TypeError(
            "target must be given outside a model context; call sample_evidence(model), or call "
            "it inside `with model:`."
        ) from error


def model_in(target: Any) -> pm.Model | None:
    """Return the model that a value is, or that a Bambi model has; None for anything else."""
    if isinstance(target, pm.Model):
        return target
    if isinstance(target, type | ModuleType):
        return None
    if not (hasattr(target, "backend") and hasattr(target, "build")):
        return None
    if target.backend is None:
        target.build()
    model = getattr(target.backend, "model", None)
    return model if isinstance(model, pm.Model) else None


def checked_data(model: pm.Model) -> dict[str, Any]:
    """Return the observed data of a model by name, after checking that its evidence is defined.

    Raises
    ------
    ModelError
        If it is not.
    """
    check_model(model)
    return {name: np.array(value) for name, value in find_observations(model).items()}


# A process compiles a model only once, even if it is sampled repeatedly or a worker runs many of
# its blocks. The targets that were used last are kept.
_KEPT: "OrderedDict[Any, tuple[Any, CompiledTarget]]" = OrderedDict()
_MAX_KEPT = 8


def target_of(
    model: pm.Model,
    *,
    potentials_only: bool = False,
    compile_kwargs: Mapping[str, Any] | None = None,
    reparameterise: bool = False,
    backend: str = "numba",
) -> CompiledTarget:
    """Return the target of a model: the one that was kept, if the model and its data are the same.

    Otherwise the model is compiled. With ``reparameterise``, a model that better coordinates are
    known for becomes a ``ReparameterisedTarget``.
    """
    content = _content(model), dict(compile_kwargs or {})
    key = (id(model), potentials_only, reparameterise, backend)
    kept = _KEPT.get(key)
    # the target keeps its model alive, so that no other model has the same id
    if kept is None or kept[1].model is not model or kept[0] != content:
        target = _build(
            model,
            potentials_only=potentials_only,
            compile_kwargs=compile_kwargs,
            reparameterise=reparameterise,
            backend=backend,
        )
        return _keep(key, content, target)
    return _keep(key, content, kept[1])


def _content(model: pm.Model) -> tuple[Any, ...]:
    """Return all that a target depends on: the ids of the graphs, and a digest of the data."""
    rvs = model.basic_RVs
    graphs = (*rvs, *model.potentials, *model.deterministics)
    values = tuple(model.rvs_to_values[rv] for rv in rvs)
    transforms = tuple(model.rvs_to_transforms[rv] for rv in model.free_RVs)
    digest = hashlib.sha256()
    for variable in _with_inner([*graphs, *values]):
        if isinstance(variable, SharedVariable) and isinstance(variable.type, pt.TensorType):
            array = np.asarray(variable.get_value(borrow=True))
        elif isinstance(variable, Constant) and isinstance(variable.data, np.ndarray):
            array = variable.data  # which a user can change in place
        else:
            continue
        digest.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
    return (*map(id, (*graphs, *values, *transforms)), digest.hexdigest())


def _with_inner(graphs: Sequence[Variable]) -> Iterator[Variable]:
    """Yield all variables of graphs, including those of graphs inside operations."""
    for variable in ancestors(graphs):
        yield variable
        inner = getattr(variable.owner and variable.owner.op, "fgraph", None)
        if inner is not None:
            yield from _with_inner(inner.outputs)


def _keep(key: Any, content: Any, target: CompiledTarget) -> CompiledTarget:
    _KEPT[key] = content, target
    _KEPT.move_to_end(key)
    while len(_KEPT) > _MAX_KEPT:
        _KEPT.popitem(last=False)
    return target


def _build(
    model: pm.Model,
    *,
    potentials_only: bool,
    compile_kwargs: Mapping[str, Any] | None,
    reparameterise: bool = False,
    backend: str = "numba",
) -> CompiledTarget:
    estimated = estimated_variables(model)
    if estimated and not potentials_only:
        return EstimatedTarget.of_model(model, compile_kwargs)
    if reparameterise and not potentials_only and has_better_coordinates(model):
        return ReparameterisedTarget(model, compile_kwargs=compile_kwargs, backend=backend)
    return PyMCTarget(
        model,
        potentials_only=potentials_only,
        compile_kwargs=compile_kwargs,
        left_out=estimated,
        backend=backend,
    )


def _reduce(target: Any) -> tuple[Any, ...]:
    settings = None
    if isinstance(target, EstimatedTarget):
        target, settings = target.evaluated, target.settings()
    elif isinstance(target, ReparameterisedTarget):
        settings = target.settings()
    # blocks are sent one at a time; the data that they share are pickled once
    if "_pickled" not in vars(target):
        model = target.model
        options = {
            "potentials_only": target.potentials_only,
            "compile_kwargs": target.compile_kwargs,
            "reparameterise": isinstance(target, ReparameterisedTarget),
            "backend": target.backend,
        }
        vars(target)["_pickled"] = cloudpickle.dumps((model, options, registered_functions(model)))
    return _rebuild, (vars(target)["_pickled"], settings)


def _rebuild(pickled: bytes, settings: Any) -> CompiledTarget:
    key = digest_of_bytes(pickled)
    if key in _KEPT:
        target = _keep(key, None, _KEPT[key][1])
    else:
        model, options, registered = cloudpickle.loads(pickled)
        for position, kind, function in registered:
            _DISPATCHERS[position].register(kind, function)
        target = _keep(key, None, _build(model, **options))
    if isinstance(target, ReparameterisedTarget):
        return target.with_settings(settings)
    if not isinstance(target, EstimatedTarget):
        return target
    return target.evaluated if settings is None else target.with_settings(settings)


for _kind in (PyMCTarget, ReparameterisedTarget, EstimatedTarget):
    copyreg.pickle(_kind, _reduce)


# Functions of pm.CustomDist are registered here by class; pickle includes the class but not these.
_DISPATCHERS = (_logprob, _logcdf, _support_point, _change_dist_size)


def registered_functions(model: pm.Model) -> list[tuple[int, type, Any]]:
    """Return the functions that are registered for the custom distributions of a model."""
    nodes = (v.owner for v in ancestors([*model.basic_RVs, *model.potentials]))
    kinds = dict.fromkeys(type(node.op) for node in nodes if node is not None)
    return [
        (position, kind, dispatcher.registry[kind])
        for kind in kinds
        if issubclass(kind, CustomDistRV | CustomSymbolicDistRV)
        for position, dispatcher in enumerate(_DISPATCHERS)
        if kind in dispatcher.registry
    ]
