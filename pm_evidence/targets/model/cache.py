"""The targets of models: made once in each process, and rebuilt in workers."""

import copyreg
import logging
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any, NamedTuple

import cloudpickle
import numpy as np
import pymc as pm
from pymc.distributions.custom import CustomDistRV, CustomSymbolicDistRV
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.op import Op
from pytensor.graph.traversal import ancestors, toposort
from pytensor.graph.type import Type
from pytensor.tensor.type import TensorType

from pm_evidence.core.digest import Digest, digest_of_bytes, is_of_library
from pm_evidence.targets.estimated.target import CompiledTarget, EstimatedTarget
from pm_evidence.targets.estimated.variable import estimated_variables
from pm_evidence.targets.model import upstream
from pm_evidence.targets.model.checks import check_model
from pm_evidence.targets.model.derived import data_of
from pm_evidence.targets.model.target import (
    PyMCTarget,
    ReparameterisedTarget,
    has_better_coordinates,
)
from pm_evidence.targets.plates.target import PlateTarget

# Functions of pm.CustomDist are registered here by class; pickle includes the class but not these.
DISPATCHERS = (
    upstream.log_densities,
    upstream.log_distribution_functions,
    upstream.support_points,
    upstream.sizes_of_distributions,
)


def registered_functions(model: pm.Model) -> list[tuple[int, type, Any]]:
    """Return the functions that are registered for the custom distributions of a model."""
    nodes = (v.owner for v in ancestors([*model.basic_RVs, *model.potentials]))
    kinds = dict.fromkeys(type(node.op) for node in nodes if node is not None)
    return [
        (position, kind, dispatcher.registry[kind])
        for kind in kinds
        if issubclass(kind, CustomDistRV | CustomSymbolicDistRV)
        for position, dispatcher in enumerate(DISPATCHERS)
        if kind in dispatcher.registry
    ]


def identity_of(model: pm.Model) -> dict[str, str]:
    """Return a digest of the structure of a model and one of its data.

    Graphs are followed from the variables of the model, including those inside operations; other
    objects that an operation holds are described as by ``core.digest``.
    """
    return description_of(model)[0]


def description_of(model: pm.Model) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the digests of `identity_of`, and the classes of what could not be described."""
    found = _Description()
    variables = [*model.basic_RVs, *model.potentials, *model.deterministics]
    found.graphs(variables)
    for rv in model.basic_RVs:
        found.structure.add((rv.name, rv in model.observed_RVs, model.rvs_to_transforms.get(rv)))
    found.graphs([model.rvs_to_values[rv] for rv in model.observed_RVs])
    for _, kind, function in registered_functions(model):
        found.structure.add((kind.__name__, function))
    digests = {"model": found.structure.hexdigest(), "data": found.data.hexdigest()}
    return digests, tuple(dict.fromkeys(found.undescribed))


class _Description:
    """The digests of the structure and of the data, and the variables that were met."""

    def __init__(self) -> None:
        self.structure, self.data = Digest(self._plain), Digest(self._plain)
        self._index: dict[Variable, int] = {}

    @property
    def undescribed(self) -> list[str]:
        return self.structure.undescribed + self.data.undescribed

    def graphs(self, outputs: Iterable[Variable]) -> None:
        """Add graphs, each operation after those of its inputs."""
        outputs = list(outputs)
        for node in toposort(outputs):
            if node.outputs[0] in self._index:
                continue
            inputs = [self._number(variable) for variable in node.inputs]
            self.structure.add(("apply", node.op, inputs))
            for variable in node.outputs:
                self._index[variable] = len(self._index)
        self.structure.add([(self._number(each), each.name) for each in outputs])

    def _number(self, variable: Variable) -> int:
        """Return the number of a variable; what is met first has no inputs."""
        if variable not in self._index:
            self._index[variable] = len(self._index)
            self._leaf(variable)
        return self._index[variable]

    def _leaf(self, variable: Variable) -> None:
        self.structure.add(("leaf", variable.type))
        if isinstance(variable, Constant):
            value = variable.data
            apart = isinstance(value, np.ndarray) and value.size > 1
            (self.data if apart else self.structure).add(value)
        elif isinstance(variable, SharedVariable) and isinstance(variable.type, TensorType):
            self.data.add(variable.get_value(borrow=True))

    def _plain(self, value: Any) -> Any:
        """Return what describes a part of a graph; any other value as it is."""
        if isinstance(value, Variable):
            return "variable", self._index.get(value) or self._apart([value])
        if isinstance(value, pm.Model):  # its variables that matter are in the graphs
            return "model", [rv.name for rv in value.basic_RVs]
        if isinstance(value, Type):
            return "type", str(value)
        if isinstance(value, Op):
            return self._operation(value)
        return value

    def _operation(self, op: Op) -> Any:
        """Return the class of an operation, and what it holds.

        Operations of libraries say in ``__props__`` what they hold, if they hold anything but a
        graph. Those of users often do not.
        """
        inner, declared = getattr(op, "fgraph", None), getattr(op, "__props__", None)
        props = {name: getattr(op, name, None) for name in declared or ()}
        # of a loop, how its graph is repeated; what pe.StateSpace and pe.RandomEffects keep
        more = getattr(op, "info", None), getattr(op, "spec", None)
        complete = is_of_library(type(op)) and (declared is not None or inner is not None)
        held = None if complete else dict(vars(op))
        return type(op), props, inner and self._apart(inner.outputs), more, held

    def _apart(self, outputs: Iterable[Variable]) -> str:
        """Return a digest of graphs that are no part of this one; their data belong to its data."""
        within = _Description()
        within.graphs(outputs)
        self.data.add(within.data.hexdigest())
        self.structure.undescribed += within.undescribed
        return within.structure.hexdigest()


_log = logging.getLogger("pymc.pm_evidence")


def is_model(target: Any) -> bool:
    """Return whether a value is a pymc.Model."""
    return isinstance(target, pm.Model)


def find_model(target: Any, parameter: str = "target") -> pm.Model:
    """Return the model that the user gives as ``parameter``, or the one whose context is open.

    A Bambi model is built if it has not been, and its PyMC model is returned.
    """
    found = model_in(target)
    if found is not None:
        return found
    if target is not None:
        raise TypeError(
            f"{parameter} must be a pymc.Model, got {type(target).__name__}; pass the model, or "
            "call inside its context."
        )
    try:
        return pm.modelcontext(None)
    except TypeError as error:
        raise TypeError(
            f"{parameter} must be given outside a model context: pass the model, as in "
            "pe.sample_evidence(model) or pe.bridge_sampling(idata, model), or call inside "
            "`with model:`."
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
    """Return the observed data of a model by name, after checking that its evidence is defined."""
    check_model(model)
    return data_of(model)


# A process compiles a model only once, even if it is sampled repeatedly or a worker runs many of
# its blocks. The targets that were used last are kept, the latest one at the end.
_KEPT: dict[Any, tuple[Any, CompiledTarget]] = {}
_MAX_KEPT = 8
_SAID: set[str] = set()


class _Asked(NamedTuple):
    """How a target is made of a model; see `target_of`."""

    potentials_only: bool
    compile_kwargs: Mapping[str, Any]
    reparameterise: bool
    backend: str
    marginalise: bool


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
    kwargs = dict(compile_kwargs or {})
    asked = _Asked(potentials_only, kwargs, reparameterise, backend, marginalise)
    # the target keeps its model alive, so that no other model has the same id
    key = id(model), potentials_only, reparameterise, backend, marginalise
    content = description_of(model)
    if not _SAID.issuperset(content[1]):
        _SAID.update(content[1])
        _log.warning(
            "The model is compiled in every call, because it uses %s, whose content cannot be "
            "compared. Keep such objects out of its densities to compile it once.",
            " and ".join(content[1]),
        )
    kept = _KEPT.get(key)
    if kept is None or kept[0] != (content, kwargs):
        return _keep(key, (content, kwargs), _build(model, asked))
    return _keep(key, *kept)


def _keep(key: Any, content: Any, target: CompiledTarget) -> CompiledTarget:
    _KEPT.pop(key, None)
    _KEPT[key] = content, target
    for oldest in list(_KEPT)[:-_MAX_KEPT]:
        del _KEPT[oldest]
    return target


def _build(model: pm.Model, asked: _Asked) -> CompiledTarget:
    if asked.marginalise:
        return PlateTarget(model)
    how: dict[str, Any] = {"compile_kwargs": asked.compile_kwargs, "backend": asked.backend}
    if asked.potentials_only:
        left_out = estimated_variables(model)
        return PyMCTarget(model, potentials_only=True, left_out=left_out, **how)
    if estimated_variables(model):
        return EstimatedTarget.of_model(model, asked.compile_kwargs)
    if asked.reparameterise and has_better_coordinates(model):
        return ReparameterisedTarget(model, **how)
    return PyMCTarget(model, **how)


def _reduce(target: Any) -> tuple[Any, ...]:
    settings = start = None
    if isinstance(target, EstimatedTarget):
        start = None if target.start is target.evaluated else target.start
        target, settings = target.evaluated, target.settings()
    elif isinstance(target, ReparameterisedTarget):
        settings = target.settings()
    # blocks are sent one at a time; the data that they share are pickled once
    if "_pickled" not in vars(target):
        asked = _Asked(
            target.potentials_only,
            target.compile_kwargs,
            isinstance(target, ReparameterisedTarget),
            target.backend,
            isinstance(target, PlateTarget),
        )
        of_model = target.model, asked, registered_functions(target.model)
        vars(target)["_pickled"] = cloudpickle.dumps(of_model)
    return _rebuilt, (vars(target)["_pickled"], settings, start)


def _rebuilt(pickled: bytes, settings: Any, start: Any = None) -> CompiledTarget:
    key = digest_of_bytes(pickled)
    target: Any
    if key in _KEPT:
        target = _keep(key, *_KEPT[key])
    else:
        model, asked, registered = cloudpickle.loads(pickled)
        for position, kind, function in registered:
            DISPATCHERS[position].register(kind, function)
        target = _keep(key, None, _build(model, asked))
    if settings is None:
        return target.evaluated if isinstance(target, EstimatedTarget) else target
    changed: Any = target.with_settings(settings)
    found: CompiledTarget = changed if start is None else changed.changed(start=start)
    return found


for _kind in (PyMCTarget, ReparameterisedTarget, PlateTarget, EstimatedTarget):
    copyreg.pickle(_kind, _reduce)
