"""An observed variable of a PyMC model whose likelihood is estimated.

The variable is an observed variable like any other: it has parents and a value, is printed in
one line, and is drawn in prior and posterior predictive sampling. Only its density is missing.
Instead it has a *spec*, from which :func:`estimators_of` builds the estimator.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.distribution import SymbolicRandomVariable
from pymc.logprob.abstract import _logprob
from pymc.model.core import new_or_existing_block_model_access
from pymc.pytensorf import collect_default_updates
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.type import RandomGeneratorType

from pm_evidence.core.checks import described
from pm_evidence.core.exceptions import ModelError
from pm_evidence.targets.estimated.user_input import check_call, numeric_value
from pm_evidence.targets.layout import Layout

__all__ = [
    "EstimatedRV",
    "EstimatedSpec",
    "call_user",
    "estimated_variables",
    "estimators_of",
    "find_parents",
    "flat_values",
    "register_estimated",
]


class EstimatedSpec(Protocol):
    """The record that an estimated likelihood keeps of the user's call.

    Attributes
    ----------
    parents : sequence of Variable
        Stand-ins for the parents in the model; the graphs of the spec are functions of them.
    """

    @property
    def parents(self) -> Sequence[Variable]:
        """Stand-ins of the parents."""
        ...

    def estimator(
        self, name: str, x: Variable, parents: Sequence[Variable], observed: NDArray[Any]
    ) -> Any:
        """Return the estimator of the likelihood of ``observed``.

        Parameters
        ----------
        name : str
            Name of the variable in the model.
        x : TensorVariable, shape (n_dim,)
            Flat vector of the free variables' unconstrained values.
        parents : sequence of Variable
            The parents' values as graphs of ``x``, in the order of the stand-ins.
        observed : ndarray
            The data.
        """
        ...


class EstimatedRV(SymbolicRandomVariable):
    """The Op of an observed variable whose likelihood is estimated.

    Parameters
    ----------
    inputs : sequence of Variable
        Stand-ins of the parents, then random generators.
    outputs : sequence of Variable
        A draw of the data, then the advanced generators.
    spec : EstimatedSpec
        The record that the estimator is built from.
    class_name : str
        Name under which the variable is printed.
    """

    default_output = 0
    inline_logprob = False

    def __init__(
        self,
        inputs: Sequence[Variable],
        outputs: Sequence[Variable],
        *,
        spec: EstimatedSpec,
        class_name: str,
        **kwargs: Any,
    ) -> None:
        self.spec = spec
        self._print_name = (class_name, rf"\operatorname{{{class_name}}}")
        super().__init__(inputs, outputs, ndim_supp=outputs[0].type.ndim, **kwargs)


class StateSpaceRV(EstimatedRV):
    """The Op of ``pe.StateSpace``; graphs of a model show the name of the class."""


class RandomEffectsRV(EstimatedRV):
    """The Op of ``pe.RandomEffects``."""


_KINDS = {"StateSpace": StateSpaceRV, "RandomEffects": RandomEffectsRV}


@_logprob.register(EstimatedRV)
def _refuse_density(op: EstimatedRV, values: Any, *inputs: Any, **kwargs: Any) -> Any:
    name = next((v.name for v in values if v.name), op._print_name[0])
    raise ModelError(
        f"pe.{op._print_name[0]} has no log density that PyMC could evaluate, but that of {name!r} "
        "was requested: its likelihood is estimated with particles. Use "
        "pe.sample_evidence(model), which also returns the posterior, in place of pm.sample."
    )


def call_user(what: str, function: Callable[..., Any], *arguments: Variable) -> Variable:
    """Return the distribution that a user's function returns.

    Parameters
    ----------
    what : str
        Name of the argument, for messages.
    function : callable
        Returns a distribution made by ``.dist()``.
    *arguments : Variable
        Passed on.

    Raises
    ------
    TypeError
        If it is not a function, or does not return a distribution.
    """
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
    """Return the model's variables that graphs are functions of, the nearest ones only.

    Parameters
    ----------
    graphs : iterable of Variable
        Graphs that the user's functions returned.
    model : pymc.Model
        The model.
    given : iterable of Variable
        Arguments of the functions, where the search ends.

    Returns
    -------
    list of Variable
        Named variables (random, deterministic, data) in the model's order, then other shared
        arrays.
    """
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
    name: str,
    spec: EstimatedSpec,
    parents: Sequence[Variable],
    draw: Variable,
    observed: Any,
    *,
    class_name: str,
    dims: Any = None,
    model: pm.Model | None = None,
) -> Variable:
    """Add an observed variable with an estimated likelihood to a model.

    Parameters
    ----------
    name : str
        Name in the model.
    spec : EstimatedSpec
        The record that the estimator is built from.
    parents : sequence of Variable
        Parents in the model, in the order of ``spec.parents``.
    draw : TensorVariable
        A draw of the data as a graph of ``spec.parents`` and of shared random generators.
    observed : array_like or pm.Data
        The data; NaN is kept as it is.
    class_name : str
        Name under which the variable is printed.
    dims : str or sequence of str, optional
        Dimensions of the data.
    model : pymc.Model, optional
        The model; that of the context if left out.

    Returns
    -------
    TensorVariable
        The variable, in ``model.observed_RVs``.
    """
    model = pm.modelcontext(model)
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
    op = _KINDS.get(class_name, EstimatedRV)(
        [*spec.parents, *updates.keys()],
        [draw, *updates.values()],
        spec=spec,
        class_name=class_name,
    )
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
    x, values = flat_values(model)
    result = []
    for rv in estimated:
        spec = rv.owner.op.spec
        parents = model.replace_rvs_by_values(rv.owner.inputs[: len(spec.parents)])
        graphs = clone_replace(parents, values, rebuild_strict=False)
        observed = numeric_value(model.rvs_to_values[rv])
        result.append(spec.estimator(rv.name, x, graphs, observed))
    return result


def flat_values(model: pm.Model) -> tuple[Variable, dict[Variable, Variable]]:
    """Return the flat vector of unconstrained values, and all value variables as parts of it."""
    shapes = model.eval_rv_shapes()
    variables = model.value_vars
    layout = Layout.of([shapes[v.name] for v in variables], dtypes=[v.dtype for v in variables])
    x = pt.TensorType("float64", shape=(layout.size,))("x")
    return x, dict(zip(variables, layout.split_graph(x), strict=True))
