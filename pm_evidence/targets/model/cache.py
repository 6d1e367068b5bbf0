"""The targets of models: compiled once in each process, and rebuilt in workers."""

import copyreg
import logging
from collections import OrderedDict
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import cloudpickle
import numpy as np
import pymc as pm
from pymc.backends.arviz import find_observations

from pm_evidence.core.digest import digest_of_bytes
from pm_evidence.targets.estimated.target import CompiledTarget, EstimatedTarget
from pm_evidence.targets.estimated.variable import estimated_variables
from pm_evidence.targets.model.checks import check_model
from pm_evidence.targets.model.identity import (
    DISPATCHERS,
    description_of,
    registered_functions,
)
from pm_evidence.targets.model.reparameterised import (
    ReparameterisedTarget,
    has_better_coordinates,
)
from pm_evidence.targets.model.target import PyMCTarget
from pm_evidence.targets.plates.target import PlateTarget

__all__ = ["checked_data", "find_model", "is_model", "model_in", "target_of"]

_log = logging.getLogger("pymc.pm_evidence")


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
_SAID: set[str] = set()


def target_of(
    model: pm.Model,
    *,
    potentials_only: bool = False,
    compile_kwargs: Mapping[str, Any] | None = None,
    reparameterise: bool = False,
    backend: str = "numba",
    marginalise: bool = False,
) -> CompiledTarget:
    """Return the target of a model: the one that was kept, if the model and its data are the same.

    Otherwise the model is compiled. With ``reparameterise``, a model that better coordinates are
    known for becomes a ``ReparameterisedTarget``; with ``marginalise``, it becomes a
    ``PlateTarget``.
    """
    content = _content(model), dict(compile_kwargs or {})
    key = (id(model), potentials_only, reparameterise, backend, marginalise)
    kept = _KEPT.get(key)
    # the target keeps its model alive, so that no other model has the same id
    if kept is None or kept[1].model is not model or kept[0] != content:
        target = _build(
            model,
            potentials_only=potentials_only,
            compile_kwargs=compile_kwargs,
            reparameterise=reparameterise,
            backend=backend,
            marginalise=marginalise,
        )
        return _keep(key, content, target)
    return _keep(key, content, kept[1])


def _content(model: pm.Model) -> Any:
    """Return all that a target depends on; what cannot be described is equal to nothing."""
    digests, undescribed = description_of(model)
    if not _SAID.issuperset(undescribed):
        _SAID.update(undescribed)
        _log.warning(
            "The model is compiled in every call, because it uses %s, whose content cannot be "
            "compared. Keep such objects out of its densities to compile it once.",
            " and ".join(undescribed),
        )
    rvs = model.basic_RVs
    graphs = (*rvs, *model.potentials, *model.deterministics)
    values = (model.rvs_to_values[rv] for rv in rvs)
    transforms = (model.rvs_to_transforms[rv] for rv in model.free_RVs)
    return (*map(id, (*graphs, *values, *transforms)), *digests.values())


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
    marginalise: bool = False,
) -> CompiledTarget:
    if marginalise:
        return PlateTarget(model)
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
            "marginalise": isinstance(target, PlateTarget),
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
            DISPATCHERS[position].register(kind, function)
        target = _keep(key, None, _build(model, **options))
    if isinstance(target, ReparameterisedTarget):
        return target.with_settings(settings)
    if not isinstance(target, EstimatedTarget):
        return target
    return target.evaluated if settings is None else target.with_settings(settings)


for _kind in (PyMCTarget, ReparameterisedTarget, PlateTarget, EstimatedTarget):
    copyreg.pickle(_kind, _reduce)
