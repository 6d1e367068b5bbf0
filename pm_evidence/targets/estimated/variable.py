"""An observed variable of a PyMC model whose likelihood is estimated."""

import inspect
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.distribution import SymbolicRandomVariable
from pymc.model.core import new_or_existing_block_model_access
from pymc.pytensorf import collect_default_updates
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.type import RandomGeneratorType

from pm_evidence.core.checks import check_count, check_kind, check_text, described, plain_array
from pm_evidence.core.exceptions import ModelError
from pm_evidence.targets.compile.calls import CompiledCall
from pm_evidence.targets.layout import Layout, value_of
from pm_evidence.targets.model.upstream import log_densities

Floats = NDArray[np.float64]
Seeds = NDArray[np.uint64]

_log = logging.getLogger("pymc.pm_evidence")

MOST_PARTICLES = 1_000_000  # of one estimate


class LikelihoodEstimator(ABC):
    """An unbiased estimate of a likelihood, as a deterministic function of parameters and seeds.

    Derived classes are frozen dataclasses on machine code that does not depend on their numbers.
    """

    name: str  # name of the model's variable
    n_particles: int  # number of particles of an estimate
    auto: bool  # whether the sampler chooses the number of particles
    # Number of seeds of an estimate; each of them generates a part of its random numbers
    n_seeds: int

    @property
    @abstractmethod
    def most_seeds(self) -> int:
        """Largest number of seeds: that of the parts which random numbers can be divided into."""

    @abstractmethod
    def estimate(self, x: Floats, seeds: Seeds) -> Floats:
        """Return the log of an estimate for each row of ``x``, shape ``(n,)``, in nats."""

    @abstractmethod
    def latent(
        self, x: Floats, seeds: Seeds
    ) -> tuple[dict[str, tuple[tuple[str, ...], NDArray[Any]]], dict[str, Any]]:
        """Draw the latent variables that the likelihood integrates over, by their weights."""

    @abstractmethod
    def why_impossible(self, x: Floats, seeds: Any, parameters: str = "") -> str:
        """Return why the estimate at one point is 0 or not a number; empty if it is neither."""

    @property
    @abstractmethod
    def fixed_cost(self) -> float:
        """Cost of an estimate without its particles, in units of that of one particle."""

    def with_particles(self, n_particles: int) -> Self:
        """Return the estimator with another number of particles."""
        changed: Any = self
        return replace(changed, n_particles=check_count("n_particles", n_particles, 2))

    def with_seeds(self, n_seeds: int) -> Self:
        """Return the estimator with its random numbers divided into this many parts."""
        changed: Any = self
        return replace(changed, n_seeds=min(check_count("n_seeds", n_seeds, 1), self.most_seeds))

    def checked(self, x: Any, seeds: Any) -> tuple[Floats, Seeds]:
        """Return points and their seeds as compiled code reads them."""
        x = np.ascontiguousarray(x, np.float64)
        seeds = np.ascontiguousarray(seeds, np.uint64)
        if seeds.shape != (len(x), self.n_seeds):
            raise ValueError(
                f"seeds must have shape {(len(x), self.n_seeds)}, one for every row of x and "
                f"every block, got {seeds.shape}."
            )
        return x, seeds


def checked_particles(n_particles: Any) -> Any:
    """Return the number of particles that the user gives, or "auto"."""
    if isinstance(n_particles, str) and n_particles == "auto":
        return n_particles
    return check_count("n_particles", n_particles, 2, MOST_PARTICLES)


def frames_of(
    calls: Sequence[CompiledCall | None],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the addresses of functions, and their frames as rows of an array; 0 for None."""
    own = [np.empty(0, np.int64) if call is None else call.frame() for call in calls]
    frames = np.zeros((len(calls), max(frame.size for frame in own)), np.int64)
    for row, frame in zip(frames, own, strict=True):
        row[: frame.size] = frame
    return np.array([0 if call is None else call.address for call in calls]), frames


def warn_if_slow(name: str, calls: Iterable[CompiledCall]) -> None:
    """Name the operations of an estimated likelihood that run in Python."""
    slow_ops = sorted({slow for call in calls for slow in call.slow_ops})
    if slow_ops:
        _log.warning(
            "There is no numba implementation of %s in %s: this part runs in Python, which is "
            "correct but slow.",
            ", ".join(slow_ops),
            name,
        )


def check_call(what: str, function: Any, *arguments: Any) -> None:
    """Check that ``function`` can be called with these arguments."""
    names = ", ".join(getattr(argument, "name", None) or "..." for argument in arguments)
    example = f"write {what}=lambda {names}: pm.Normal.dist(...)".replace("lambda :", "lambda:")
    if not callable(function) or isinstance(function, type):
        raise TypeError(
            f"{what} must be a function that returns a distribution, got {described(function)}; "
            f"{example}."
        )
    try:
        inspect.signature(function).bind(*arguments)
    except ValueError:  # a C function without a known signature
        return
    except TypeError as error:
        raise TypeError(
            f"{what} must be a function of {len(arguments)} arguments, but such a call fails "
            f"({error}); {example}."
        ) from error


def model_of(name: Any, model: Any, dims: Any) -> pm.Model:
    """Return the model that a variable is added to, after checks that PyMC does not make."""
    check_text("name", name)
    if not name.strip():
        raise ValueError("name must not be empty; pass for example 'y'.")
    if model is not None:
        check_kind("model", model, pm.Model, "leave it out inside the model's context")
    model = pm.modelcontext(model)
    named = (dims,) if isinstance(dims, str) else () if dims is None else dims
    are_names = isinstance(named, tuple | list) and all(isinstance(d, str | None) for d in named)
    if not are_names:
        raise TypeError(
            f"dims must be a name or a tuple of names, got {described(dims)}; leave it out for "
            "none."
        )
    unknown = [dim for dim in named if dim is not None and dim not in model.coords]
    if unknown:
        raise ValueError(
            f"dims must name dimensions of the model, {list(model.coords)}, got {unknown[0]!r}; "
            "give them coordinates, or leave dims out."
        )
    if model.name_for(name) in model.named_vars:
        raise ValueError(
            f"name must be new in the model, got {name!r}, which is taken; choose another."
        )
    return model


def given_value(name: str, value: Any) -> NDArray[Any]:
    """Return the array that the user gives, NaN where a number is masked."""
    if isinstance(value, Variable):
        return value_of(value)
    if np.ma.isMaskedArray(value):
        is_number = value.dtype.kind in "biuf"
        return np.ma.filled(value.astype(float), np.nan) if is_number else np.asarray(value)
    return plain_array(name, value)


class EstimatedRV(SymbolicRandomVariable):
    """The Op of an observed variable whose likelihood is estimated.

    Its ``spec`` is the record of the user's call: ``parents``, which stand for those in the model,
    and ``estimator(name, x, parents, observed)``, which returns the estimator of the likelihood.
    Graphs of a model show the name of the derived class.
    """

    default_output = 0
    inline_logprob = False

    def __init__(
        self, inputs: Sequence[Variable], outputs: Sequence[Variable], *, spec: Any, **kwargs: Any
    ) -> None:
        self.spec = spec
        name = type(self).__name__.removesuffix("RV")
        self._print_name = name, rf"\operatorname{{{name}}}"
        super().__init__(inputs, outputs, ndim_supp=outputs[0].type.ndim, **kwargs)


class StateSpaceRV(EstimatedRV):
    """The Op of ``pe.StateSpace``."""


class RandomEffectsRV(EstimatedRV):
    """The Op of ``pe.RandomEffects``."""


@log_densities.register(EstimatedRV)
def _refuse_density(op: EstimatedRV, values: Any, *inputs: Any, **kwargs: Any) -> Any:
    name = next((v.name for v in values if v.name), op._print_name[0])
    raise ModelError(
        f"pe.{op._print_name[0]} has no log density that PyMC could evaluate, but that of {name!r} "
        "was requested: its likelihood is estimated with particles. Use "
        "pe.sample_evidence(model), which also returns the posterior, in place of pm.sample."
    )


def call_user(what: str, function: Callable[..., Any], *arguments: Variable) -> Variable:
    """Return the distribution that a user's function returns."""
    check_call(what, function, *arguments)
    with new_or_existing_block_model_access(
        error_msg_on_access=f"{what} must return a distribution without a name: write "
        'pm.Normal.dist(...) in place of pm.Normal("name", ...).'
    ):
        result = function(*arguments)
    op = getattr(getattr(result, "owner", None), "op", None)
    if not isinstance(op, pt.random.op.RandomVariable | SymbolicRandomVariable):
        raise TypeError(
            f"{what} must return a distribution, got {type(result).__name__}; return for example "
            "pm.Normal.dist(mu, sigma)."
        )
    return result


def find_parents(
    graphs: Iterable[Variable], model: pm.Model, given: Iterable[Variable] = ()
) -> list[Variable]:
    """Return the model's variables that graphs are functions of, the nearest ones only."""
    named = list(model.named_vars.values())
    given = set(given)
    found = dict.fromkeys(ancestors(graphs, blockers=[*named, *given]))
    shared = [
        v
        for v in found
        if isinstance(v, SharedVariable)
        and not isinstance(v.type, RandomGeneratorType)
        and v not in named
        and v not in given
    ]
    return [v for v in named if v in found] + shared[::-1]


def register_estimated(
    kind: type[EstimatedRV],
    name: str,
    spec: Any,
    parents: Sequence[Variable],
    draw: Variable,
    observed: Any,
    dims: Any,
    model: pm.Model,
) -> Variable:
    """Add an observed variable with an estimated likelihood to a model."""
    names = (dims,) if isinstance(dims, str) else dims
    if names is not None and len(names) != draw.type.ndim:
        raise ValueError(
            f"dims must name each of the {draw.type.ndim} dimensions of the data, got "
            f"{described(dims)}; leave it out for none."
        )
    data = observed if isinstance(observed, Variable) else pt.constant(observed)
    # PyMC needs the same type for both, and NaN needs a float
    if draw.type.dtype.startswith(("int", "uint", "bool")) and data.type.dtype.startswith("float"):
        draw = draw.astype(data.type.dtype)
    elif data.type.dtype != draw.type.dtype:
        data = data.astype(draw.type.dtype)
    updates = collect_default_updates(inputs=list(spec.parents), outputs=[draw])
    op = kind([*spec.parents, *updates.keys()], [draw, *updates.values()], spec=spec)
    rv = op(*parents, *updates.keys())
    rv = rv[0] if isinstance(rv, list | tuple) else rv
    rv.name = model.name_for(name)
    if isinstance(data, Constant):
        data.name = rv.name
    rv.tag.observations = data
    model.create_value_var(rv, transform=None, default_transform=None, value_var=data)
    model.add_named_variable(rv, names)
    model.observed_RVs.append(rv)
    return rv


def estimated_variables(model: pm.Model) -> list[Variable]:
    """Return the observed variables of a model whose likelihood is estimated."""
    return [rv for rv in model.observed_RVs if isinstance(rv.owner.op, EstimatedRV)]


def estimators_of(model: pm.Model) -> list[Any]:
    """Return the estimator of every estimated likelihood, in the order of ``observed_RVs``."""
    estimated = estimated_variables(model)
    if not estimated:
        return []
    shapes, variables = model.eval_rv_shapes(), model.value_vars
    layout = Layout.of([shapes[v.name] for v in variables], dtypes=[v.dtype for v in variables])
    x = pt.TensorType("float64", shape=(layout.size,))("x")
    values = dict(zip(variables, layout.split_graph(x), strict=True))
    result = []
    for rv in estimated:
        spec = rv.owner.op.spec
        parents = model.replace_rvs_by_values(rv.owner.inputs[: len(spec.parents)])
        graphs = clone_replace(parents, values, rebuild_strict=False)
        observed = value_of(model.rvs_to_values[rv])
        result.append(spec.estimator(rv.name, x, graphs, observed))
    return result
