"""The targets of models: made once in each process, and rebuilt in workers."""

import copyreg
import logging
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any

import cloudpickle
import numpy as np
import pymc as pm
from pymc.backends.arviz import find_observations
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
    options = {
        "potentials_only": potentials_only,
        "reparameterise": reparameterise,
        "backend": backend,
        "marginalise": marginalise,
    }
    key = id(model), *options.values()
    kept = _KEPT.get(key)
    # the target keeps its model alive, so that no other model has the same id
    if kept is None or kept[1].model is not model or kept[0] != content:
        return _keep(key, content, _build(model, compile_kwargs=compile_kwargs, **options))
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
    potentials_only: Any,
    compile_kwargs: Mapping[str, Any] | None,
    reparameterise: Any,
    backend: Any,
    marginalise: Any,
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
