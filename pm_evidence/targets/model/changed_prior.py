"""A model with another prior of one variable, and the ratio of the two priors."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor.random.basic as ptr
from numpy.typing import NDArray
from pymc.backends.arviz import find_observations
from pymc.distributions.continuous import (
    HalfCauchyRV,
    HalfStudentTRV,
    MoyalRV,
    SkewNormalRV,
    WeibullBetaRV,
)
from pymc.distributions.distribution import SymbolicRandomVariable
from pymc.distributions.multivariate import MvNormalRV, ZeroSumNormalRV
from pymc.distributions.shape_utils import change_dist_size
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors, io_toposort
from pytensor.tensor.random.op import RandomVariable

from pm_evidence.core.checks import described
from pm_evidence.core.exceptions import ModelError
from pm_evidence.targets.layout import shape_of
from pm_evidence.targets.model.upstream import (
    default_transform,
    in_double_precision,
    missing_constant,
    name_of_distribution,
)
from pm_evidence.targets.model.vectorised import RowFunction, quietly

Floats = NDArray[np.float64]


# Which of the parameters of each distribution, in the order of its operation, is its scale.
_SCALE_AT = {
    ptr.NormalRV: 1,
    ptr.HalfNormalRV: 1,
    ptr.StudentTRV: 2,
    HalfStudentTRV: 1,
    ptr.CauchyRV: 1,
    HalfCauchyRV: 0,
    ptr.LaplaceRV: 1,
    ptr.LogisticRV: 1,
    ptr.GumbelRV: 1,
    MoyalRV: 1,
    SkewNormalRV: 1,
    ptr.ExponentialRV: 0,
    ptr.GammaRV: 1,
    ptr.InvGammaRV: 1,
    WeibullBetaRV: 1,
    ptr.LogNormalRV: 1,
    ZeroSumNormalRV: 0,
}

SCALABLE = (
    "Normal, HalfNormal, StudentT, HalfStudentT, Cauchy, HalfCauchy, Laplace, Logistic, Gumbel, "
    "Moyal, SkewNormal, Exponential, Gamma, InverseGamma, Weibull, LogNormal (the spread of its "
    "logarithm), Uniform, MvNormal and ZeroSumNormal"
)


def scaled_prior(rv: Any, factor: float) -> Variable:
    """Return the distribution of a variable with its spread multiplied by a factor."""
    node, shared = rv.owner, pytensor.shared(np.asarray(float(factor)), name=f"{rv.name}_factor")
    if type(node.op) not in (*_SCALE_AT, ptr.UniformRV, MvNormalRV):
        raise ModelError(
            f"priors[{rv.name!r}] must hold distributions instead of factors, got a factor for "
            f"{rv.name!r}, which is {name_of_distribution(rv)}: it has no scale about a "
            "location. Pass for example "
            f"{{'wider': pm.Beta.dist(1, 1)}}; factors are for {SCALABLE}."
        )
    if isinstance(node.op, RandomVariable):
        n_before = len(node.inputs) - len(node.op.dist_params(node))
        parameters = _scaled(node.op, node.inputs[n_before:], shared)
        return node.op.make_node(*node.inputs[:n_before], *parameters).default_output()
    rng, size, *parameters = node.inputs
    scaled: Variable = type(node.op).rv_op(
        *_scaled(node.op, parameters, shared), size=size, rng=rng
    )
    return scaled


def _scaled(op: Any, parameters: Sequence[Any], factor: Any) -> list[Any]:
    if isinstance(op, ptr.UniformRV):
        lower, upper = parameters
        middle, half = 0.5 * (lower + upper), 0.5 * (upper - lower)
        return [middle - factor * half, middle + factor * half]
    if isinstance(op, MvNormalRV):
        mean, covariance = parameters
        return [mean, covariance * factor**2]
    at = _SCALE_AT[type(op)]
    return [each * factor if k == at else each for k, each in enumerate(parameters)]


# A factor of the spread, a distribution, or a function of the model that returns one.
type Change = float | Variable | Callable[[pm.Model], Variable]


def check_variable(model: pm.Model, name: Any) -> Any:
    """Return the free variable of a name."""
    free = {str(rv.name): rv for rv in model.free_RVs}
    if isinstance(name, str) and name in free:
        return free[name]
    kinds = {
        "an observed variable, whose distribution is the likelihood": model.observed_RVs,
        "a deterministic variable, which has no prior": model.deterministics,
        "a potential, which has no prior": model.potentials,
        "data": model.data_vars,
    }
    of_kind = (kind for kind, group in kinds.items() if name in [v.name for v in group])
    kind = next(of_kind, "no variable of the model")
    raise ValueError(
        f"priors must name free variables of the model, got {described(name)}, which is {kind}; "
        f"the free variables are {', '.join(map(repr, free)) or '(none)'}."
    )


class ChangedPrior:
    """A model in which one variable has another prior."""

    def __init__(self, model: pm.Model, changed: pm.Model, old: Any, new: Any) -> None:
        self.model, self.changed, self.old, self.new = model, changed, old, new

    @property
    def has_ratio(self) -> bool:
        """Whether evidences differ by the mean ratio of the two priors over posterior draws.

        They do not where a prior is renormalised on a part of its support: by a transform that the
        user gave.
        """
        usual = (is_usual(self.model, rv) for rv in self.model.free_RVs)
        exact = missing_constant(self.model, [self.old]) is None
        return exact and all(usual) and is_usual(self.changed, self.new)

    def log_priors(self, draws: Mapping[str, NDArray[Any]]) -> tuple[Floats, Floats]:
        """Return the log densities of the new and the old prior at draws of the variables."""
        free = self.model.free_RVs
        inputs = {rv: rv.type(name=f"{rv.name}_drawn") for rv in free}
        data = {rv: self.model.rvs_to_values[rv] for rv in self.model.observed_RVs}
        with quietly():
            value = inputs[self.old]
            densities = [pm.logp(rv, value).sum() for rv in (self.new, self.old)]
            graphs = clone_replace(densities, {**inputs, **data}, rebuild_strict=False)
            function = RowFunction(list(inputs.values()), in_double_precision(graphs), [])
            new, old = function([np.asarray(draws[rv.name], rv.dtype) for rv in free], [])
        return np.asarray(new, float), np.asarray(old, float)

    def prior_draws(self, n: int, seed: int) -> dict[str, NDArray[Any]]:
        """Return ``n`` draws from the new prior of the variable and of those that it depends on.

        The other free variables, on which its density does not depend, are zero.
        """
        above = set(ancestors([self.new]))
        needed = [rv for rv in self.changed.free_RVs if rv in above]
        data = {rv: self.model.rvs_to_values[rv] for rv in self.model.observed_RVs}
        with quietly():
            graphs = clone_replace(needed, data, rebuild_strict=False)
            draw = pm.compile([], graphs, mode="FAST_COMPILE", random_seed=seed % 2**32)
            rows = [draw() for _ in range(n)]
        by_variable = zip(needed, zip(*rows, strict=True), strict=True)
        columns = {str(rv.name): np.stack(values) for rv, values in by_variable}
        others = {
            rv.name: np.zeros((n, *shape_of(rv)), rv.dtype)
            for rv in self.model.free_RVs
            if rv.name not in columns
        }
        return {**others, **columns}


def data_of(model: pm.Model) -> dict[str, NDArray[Any]]:
    """Return copies of the observed data by name."""
    return {str(name): np.array(v) for name, v in find_observations(model).items()}


def shapes_of(model: pm.Model) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the free variables by name."""
    return {str(rv.name): shape_of(rv) for rv in model.free_RVs}


def changed_prior(model: pm.Model, name: str, change: Change) -> ChangedPrior:
    """Return a model with another prior of one variable."""
    old = check_variable(model, name)
    if isinstance(change, int | float):
        new = scaled_prior(old, float(change))
    else:
        given = change(model) if callable(change) and not isinstance(change, Variable) else change
        new = _checked(model, old, given)
    new.name = old.name
    found = rebuilt([*model.basic_RVs, *model.potentials, *model.deterministics], old, new)
    return ChangedPrior(model, _with_variables(model, found, old, new), old, new)


def _checked(model: pm.Model, old: Any, given: Any) -> Any:
    """Return a distribution in the shape of the variable whose prior it is to be."""
    owner = getattr(given, "owner", None)
    parameter = f"priors[{old.name!r}]"
    if owner is None or not isinstance(owner.op, RandomVariable | SymbolicRandomVariable):
        raise TypeError(
            f"{parameter} must hold factors or distributions, got {described(given)}; pass for "
            "example pm.HalfNormal.dist(2), or a function of the model that returns it."
        )
    if given in model.basic_RVs:
        raise ValueError(
            f"{parameter} must hold distributions, got the variable {given.name!r} of the model; "
            "make one with .dist, for example pm.HalfNormal.dist(2)."
        )
    below = [rv for rv in model.basic_RVs if old in ancestors([rv])]
    used = [rv.name for rv in below if rv in set(ancestors([given]))]
    if used:
        raise ValueError(
            f"{parameter} must hold distributions that do not depend on {old.name!r} itself, got "
            f"one that depends on {used[0]!r}; use other variables of the model."
        )
    if np.dtype(given.dtype).kind != np.dtype(old.dtype).kind:
        raise ValueError(
            f"{parameter} must hold distributions of the kind of {old.name!r}, whose dtype is "
            f"{old.dtype}, got one of dtype {given.dtype}; both must be continuous or discrete."
        )
    shape = shape_of(old)
    if owner.op.ndim_supp == 0 and shape_of(given) == () != shape:
        given = change_dist_size(given, shape)
    if shape_of(given) != shape:
        raise ValueError(
            f"{parameter} must hold distributions of shape {shape}, got shape {shape_of(given)}; "
            "pass shape= to .dist."
        )
    return given


def rebuilt(outputs: Sequence[Variable], old: Variable, new: Variable) -> dict[Variable, Variable]:
    """Return what takes the place of the old variable and of all that depend on it."""
    replaced = {old: new}
    for node in io_toposort([], outputs):
        if old in node.outputs or not any(v in replaced for v in node.inputs):
            continue
        fresh = node.clone_with_new_inputs([replaced.get(v, v) for v in node.inputs])
        for before, after in zip(node.outputs, fresh.outputs, strict=True):
            after.name = before.name
            replaced[before] = after
    return replaced


def with_other_variables(model: pm.Model, replaced: Mapping[Variable, Variable]) -> pm.Model:
    """Return a copy of a model with other variables, which keep their values and transforms."""
    # PyMC's own copy refuses models with initial values
    other = object.__new__(type(model))
    other.__dict__.update(model.__dict__)
    for name in ("free_RVs", "observed_RVs", "potentials", "deterministics"):
        setattr(other, name, [replaced.get(v, v) for v in getattr(model, name)])
    other.named_vars = {k: replaced.get(v, v) for k, v in model.named_vars.items()}
    for name in ("rvs_to_values", "rvs_to_transforms", "rvs_to_initial_values"):
        kept = {replaced.get(rv, rv): v for rv, v in getattr(model, name).items()}
        setattr(other, name, kept)
    return other


def _with_variables(
    model: pm.Model, replaced: Mapping[Variable, Variable], old: Any, new: Any
) -> pm.Model:
    """Return a model with another prior, whose values and transforms are as they were."""
    other = with_other_variables(model, replaced)
    if type(old.owner.op) is not type(new.owner.op):
        other.rvs_to_initial_values[new] = None
        if is_usual(model, old):
            transform = default_transform(new.owner.op, new)
            value = new if transform is None else transform.forward(new, *new.owner.inputs)
            suffix = "" if transform is None else f"_{transform.name}__"
            other.rvs_to_transforms[new] = transform
            other.rvs_to_values[new] = value.type(name=f"{new.name}{suffix}")
    values = {rv: other.rvs_to_values[rv] for rv in other.basic_RVs}
    other.values_to_rvs = {value: rv for rv, value in values.items()}
    return other


def is_usual(model: pm.Model, rv: Any) -> bool:
    """Return whether a variable has the transform that PyMC gives to its distribution."""
    usual = default_transform(rv.owner.op, rv)
    return type(model.rvs_to_transforms[rv]) is type(usual)
