"""Models made from a model: with another prior, held at a point, observed at simulated data."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytensor.tensor.random.basic as ptr
from numpy.typing import NDArray
from pymc.backends.arviz import find_observations
from pymc.distributions import continuous
from pymc.distributions.distribution import SymbolicRandomVariable, create_partial_observed_rv
from pymc.distributions.multivariate import MvNormalRV, ZeroSumNormalRV
from pymc.distributions.shape_utils import change_dist_size
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors, io_toposort
from pytensor.tensor.random.op import RandomVariable

from pm_evidence.core.checks import described
from pm_evidence.core.exceptions import ModelError
from pm_evidence.targets.layout import Layout, shape_of
from pm_evidence.targets.model import upstream
from pm_evidence.targets.model.prior import UnconstrainedSpace
from pm_evidence.targets.model.vectorised import RowFunction, quietly

Floats = NDArray[np.float64]


def data_of(model: pm.Model) -> dict[str, NDArray[Any]]:
    """Return copies of the observed data by name."""
    return {str(name): np.array(value) for name, value in find_observations(model).items()}


def shapes_of(model: pm.Model) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the free variables by name."""
    return {str(rv.name): shape_of(rv) for rv in model.free_RVs}


def free_variable(model: pm.Model, parameter: str, name: Any) -> Any:
    """Return the free variable of a name, which is that of a ``parameter`` of the user."""
    free = {str(rv.name): rv for rv in model.free_RVs}
    if isinstance(name, str) and name in free:
        return free[name]
    kinds = {
        "an observed variable, whose distribution is the likelihood": model.observed_RVs,
        "a deterministic variable, whose prior density is not known": model.deterministics,
        "a potential, which has no prior": model.potentials,
        "data": model.data_vars,
    }
    of_kind = (kind for kind, group in kinds.items() if name in [v.name for v in group])
    raise ValueError(
        f"{parameter} must name free variables of the model, got {described(name)}, which is "
        f"{next(of_kind, 'no variable of the model')}; the free variables are "
        f"{', '.join(map(repr, free)) or '(none)'}."
    )


def is_usual(model: pm.Model, rv: Any) -> bool:
    """Return whether a variable has the transform that PyMC gives to its distribution."""
    usual = upstream.default_transform(rv.owner.op, rv)
    return type(model.rvs_to_transforms[rv]) is type(usual)


def _copy_of(model: pm.Model, replaced: Mapping[Variable, Variable] | None = None) -> pm.Model:
    """Return a copy of a model with other variables, which keep their values and transforms."""
    # PyMC's own copy refuses models with initial values
    new, other = dict(replaced or {}), object.__new__(type(model))
    other.__dict__.update(model.__dict__)
    for name in ("free_RVs", "observed_RVs", "potentials", "deterministics"):
        setattr(other, name, [new.get(v, v) for v in getattr(model, name)])
    other.named_vars = {k: new.get(v, v) for k, v in model.named_vars.items()}
    for name in ("rvs_to_values", "rvs_to_transforms", "rvs_to_initial_values"):
        setattr(other, name, {new.get(rv, rv): v for rv, v in getattr(model, name).items()})
    return other


def _with_values(model: pm.Model, values: Mapping[Any, Any]) -> pm.Model:
    """Give variables of a copied model their values, and return it."""
    model.rvs_to_values.update(values)
    model.values_to_rvs = {model.rvs_to_values[rv]: rv for rv in model.basic_RVs}
    return model


def _coordinate_of(rv: Any, transform: Any) -> Variable:
    """Return an input for the value of a variable on its transformed scale."""
    value = rv if transform is None else transform.forward(rv, *rv.owner.inputs)
    suffix = "" if transform is None else f"_{transform.name}__"
    coordinate: Variable = value.type(name=f"{rv.name}{suffix}")
    return coordinate


def _rebuilt(model: pm.Model, old: Variable, new: Variable) -> dict[Variable, Variable]:
    """Return what takes the place of a variable of a model and of all that depend on it."""
    replaced = {old: new}
    for node in io_toposort([], [*model.basic_RVs, *model.potentials, *model.deterministics]):
        if old in node.outputs or not any(v in replaced for v in node.inputs):
            continue
        fresh = node.clone_with_new_inputs([replaced.get(v, v) for v in node.inputs])
        for before, after in zip(node.outputs, fresh.outputs, strict=True):
            after.name = before.name
            replaced[before] = after
    return replaced


# another prior ----------------------------------------------------------------------------------

# Which of the parameters of each distribution, in the order of its operation, is its scale.
_SCALE_AT = {
    ptr.NormalRV: 1,
    ptr.HalfNormalRV: 1,
    ptr.StudentTRV: 2,
    continuous.HalfStudentTRV: 1,
    ptr.CauchyRV: 1,
    continuous.HalfCauchyRV: 0,
    ptr.LaplaceRV: 1,
    ptr.LogisticRV: 1,
    ptr.GumbelRV: 1,
    continuous.MoyalRV: 1,
    continuous.SkewNormalRV: 1,
    ptr.ExponentialRV: 0,
    ptr.GammaRV: 1,
    ptr.InvGammaRV: 1,
    continuous.WeibullBetaRV: 1,
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
            f"{rv.name!r}, which is {upstream.name_of_distribution(rv)}: it has no scale about a "
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


@dataclass(frozen=True, eq=False)
class ChangedPrior:
    """A model in which one variable has another prior."""

    model: pm.Model  # the model as it is written
    changed: pm.Model  # the same with another prior
    old: Any  # the variable in each of them
    new: Any

    @property
    def has_ratio(self) -> bool:
        """Whether evidences differ by the mean ratio of the two priors over posterior draws.

        They do not where a prior is renormalised on a part of its support: by a transform that the
        user gave.
        """
        usual = (is_usual(self.model, rv) for rv in self.model.free_RVs)
        exact = upstream.missing_constant(self.model, [self.old]) is None
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
            function = RowFunction(list(inputs.values()), upstream.in_double_precision(graphs), [])
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
            drawn = pm.draw(graphs, n, random_seed=[seed % 2**32], mode="FAST_COMPILE")
        columns = {str(rv.name): values for rv, values in zip(needed, drawn, strict=True)}
        others = {
            rv.name: np.zeros((n, *shape_of(rv)), rv.dtype)
            for rv in self.model.free_RVs
            if rv.name not in columns
        }
        return {**others, **columns}


def changed_prior(model: pm.Model, name: str, change: Change) -> ChangedPrior:
    """Return a model with another prior of one variable."""
    old = free_variable(model, "priors", name)
    if isinstance(change, int | float):
        new = scaled_prior(old, float(change))
    else:
        given = change(model) if callable(change) and not isinstance(change, Variable) else change
        new = _fitting(model, old, given)
    new.name = old.name
    changed, values = _copy_of(model, _rebuilt(model, old, new)), {}
    if type(old.owner.op) is not type(new.owner.op):
        changed.rvs_to_initial_values[new] = None
        if is_usual(model, old):
            transform = upstream.default_transform(new.owner.op, new)
            changed.rvs_to_transforms[new] = transform
            values[new] = _coordinate_of(new, transform)
    return ChangedPrior(model, _with_values(changed, values), old, new)


def _fitting(model: pm.Model, old: Any, given: Any) -> Any:
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


# held at a point ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PointNull:
    """A model given that some of its variables are at a point."""

    model: pm.Model  # the model as it is written
    null: pm.Model  # the same with what is held as further observations
    values: Mapping[str, Floats]  # the point: a value for each element, NaN for those not held
    observed: tuple[Variable, ...]  # the variables of the null model that were free before

    @property
    def held(self) -> dict[str, NDArray[np.bool_]]:
        """Which elements of each variable are held."""
        return {name: ~np.isnan(value) for name, value in self.values.items()}

    @property
    def is_certain(self) -> bool:
        """Whether the prior density at the point depends on no free variable."""
        return set(self.null.free_RVs).isdisjoint(ancestors(self.observed))

    def positions(self, layout: Layout) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the coordinates of the model that are held, and the others, in their order."""
        is_held = np.zeros(layout.size, dtype=bool)
        for variable in layout.variables:
            mask = self.held.get(variable.name)
            if mask is not None:
                # the coordinates of a variable may be fewer than its elements if all are held
                is_held[variable.positions] = True if mask.all() else mask.ravel()
        return np.flatnonzero(is_held), np.flatnonzero(~is_held)

    def log_prior(self, x: Floats) -> Floats:
        """Return the log prior density at the point given points of the null model, in nats."""
        terms = [pm.logp(rv, self.null.rvs_to_values[rv]).sum() for rv in self.observed]
        with quietly():
            total = pt.add(*terms) if len(terms) > 1 else terms[0]
            graphs = self.null.replace_rvs_by_values([total])
            if self.is_certain:
                return np.asarray(graphs[0].eval(mode="FAST_COMPILE"), float).reshape(1)
            function = RowFunction(self.null.value_vars, upstream.in_double_precision(graphs), [])
            layout = Layout.of([shape_of(value) for value in self.null.value_vars])
            parts = zip(layout.split(x), self.null.value_vars, strict=True)
            (found,) = function([part.astype(value.dtype) for part, value in parts], [])
        return np.asarray(found, float)


def point_null(model: pm.Model, point: Any) -> PointNull:
    """Return a model given a point, which maps names of variables to their values.

    NaN in a value leaves an element free.
    """
    values = _values_of(model, point)
    _check_priors(model, [rv for rv in model.free_RVs if rv.name in values])
    null, observed = model, list[Variable]()
    for name, value in values.items():
        rv = next(each for each in null.free_RVs if each.name == name)
        mask = ~np.isnan(value)
        if mask.all():
            null = _whole(null, rv, value)
        else:
            null, rv, moved = _part(null, rv, value, mask)
            observed = [moved.get(each, each) for each in observed]
        observed.append(rv)
    return PointNull(model, null, values, tuple(observed))


def _whole(model: pm.Model, rv: Any, value: Floats) -> pm.Model:
    """Return a model in which a variable is observed."""
    other = _copy_of(model)
    other.free_RVs = [each for each in model.free_RVs if each is not rv]
    return _observing(other, rv, value)


def _part(
    model: pm.Model, rv: Any, value: Floats, mask: NDArray[np.bool_]
) -> tuple[pm.Model, Variable, dict[Variable, Variable]]:
    """Return a model in which elements of a variable are observed, those, and what is replaced."""
    with quietly():
        (seen, _), (unseen, _), _ = create_partial_observed_rv(rv, pt.constant(~mask))
    place = np.argsort(np.concatenate([np.flatnonzero(mask), np.flatnonzero(~mask)]))
    joined = pt.concatenate([seen, unseen])[place].reshape(mask.shape)
    seen.name, unseen.name, joined.name = f"{rv.name}_held", f"{rv.name}_free", rv.name
    moved = _rebuilt(model, rv, joined)
    moved.pop(rv)
    other, transform = _copy_of(model, moved), model.rvs_to_transforms[rv]
    other.free_RVs = [unseen if each is rv else each for each in other.free_RVs]
    other.deterministics = [*other.deterministics, joined]
    other.named_vars |= {rv.name: joined, seen.name: seen, unseen.name: unseen}
    new = _coordinate_of(unseen, transform), transform, None
    mappings = other.rvs_to_values, other.rvs_to_transforms, other.rvs_to_initial_values
    for mapping, value_of_unseen in zip(mappings, new, strict=True):
        mapping.pop(rv)
        mapping[unseen] = value_of_unseen
    return _observing(other, seen, value[mask]), seen, moved


def _observing(model: pm.Model, rv: Any, value: Floats) -> pm.Model:
    """Return a copied model in which a variable is observed at a value."""
    model.observed_RVs = [*model.observed_RVs, rv]
    model.rvs_to_transforms[rv] = None
    model.rvs_to_initial_values.pop(rv, None)
    at = pt.constant(np.asarray(value, rv.dtype), name=f"{rv.name}_at")
    return _with_values(model, {rv: at})


def _values_of(model: pm.Model, point: Any) -> dict[str, Floats]:
    """Return the values of a point by name."""
    example = 'pass for example {"delta": 0.0}'
    if not isinstance(point, Mapping):
        raise TypeError(
            f"point must be a mapping of names of variables to values, got {described(point)}; "
            f"{example}."
        )
    if not point:
        raise ValueError(f"point must name at least one variable, got none; {example}.")
    return {name: _value(model, name, value) for name, value in point.items()}


def _value(model: pm.Model, name: Any, value: Any) -> Floats:
    """Return the value of one variable in its shape; raise if it cannot be held there."""
    rv = free_variable(model, "point", name)
    if np.dtype(rv.dtype).kind != "f":
        raise ValueError(
            f"point must name continuous variables, got {name!r}, whose dtype is {rv.dtype}; use "
            f"constraint=lambda v: v[{name!r}] == {described(value)} for the probability of a "
            "value."
        )
    shape = shape_of(rv)
    try:
        given = np.asarray(value, np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"point[{name!r}] must be a number or an array of numbers, got {described(value)}; "
            "pass for example 0.0."
        ) from error
    if given.shape not in ((), shape):
        raise ValueError(
            f"point[{name!r}] must be one number or have the shape {shape} of the variable, got "
            f"shape {given.shape}; write NaN for elements that stay free."
        )
    full = np.broadcast_to(given, shape).astype(np.float64)
    _check_value(rv, name, full)
    return full


def _check_value(rv: Any, name: str, value: Floats) -> None:
    if np.isinf(value).any() or np.isnan(value).all():
        raise ValueError(
            f"point[{name!r}] must be finite, got {described(value.tolist())}; pass the value that "
            "the hypothesis gives the variable."
        )
    if np.isnan(value).any() and rv.owner.op.ndim_supp > 0:
        raise ValueError(
            f"point[{name!r}] must hold all elements of a multivariate variable, got NaN in "
            f"that of {name!r}, which is {upstream.name_of_distribution(rv)}; write the "
            "variable as independent elements to hold some of them."
        )


def _check_priors(model: pm.Model, held: list[Any]) -> None:
    """Raise ModelError if a prior is renormalised in a way that depends on the point."""
    for rv in model.free_RVs:
        concerned = rv in held or not set(held).isdisjoint(ancestors([rv]))
        if concerned and not is_usual(model, rv):
            raise ModelError(
                f"point must leave the normalisation of priors as it is, got {rv.name!r}, whose "
                "prior is cut by a transform that is not the usual one; use a distribution with "
                "the support that is meant, such as pm.Truncated."
            )
    if upstream.missing_constant(model, held) is not None:
        raise ModelError(
            "point must name variables with a normalised prior, got one of pm.CAR; compare the "
            "models: pe.compare_models."
        )


# simulated data ---------------------------------------------------------------------------------

# Prior draws that are tried for each that falls inside the transforms.
_MOST_TRIED = 1000


def simulate(model: pm.Model, seed: int) -> tuple[pm.Model, Floats]:
    """Return the model with simulated data, and the parameters that they were simulated with."""
    _check_simulated(model, " Use sample_evidence(method='ais').")
    ((values, x),) = _drawn(model, 1, np.random.default_rng(seed))
    data = dict[Any, Variable]()
    for rv in model.observed_RVs:
        old = model.rvs_to_values[rv]
        data[rv] = pt.constant(np.asarray(values[rv.name], old.dtype), old.name)
    return _with_values(_copy_of(model), data), x[None]


class DataSets:
    """Data sets drawn from a model, and the model observed at any of them.

    The observed values are shared variables, so that the model is compiled once.
    """

    def __init__(self, model: pm.Model) -> None:
        _check_simulated(model)
        self.model = model
        self._arrays: dict[str, NDArray[Any]] = {}
        self.kinds: dict[str, tuple[tuple[int, ...], str]] = {}
        values = {}
        for rv in model.observed_RVs:
            old, name = model.rvs_to_values[rv], str(rv.name)
            # a scalar would be compiled as a constant
            array = np.zeros(shape_of(old) or (1,), old.dtype)
            shared = pytensor.shared(array, name=old.name, shape=array.shape, borrow=True)
            self._arrays[name] = shared.get_value(borrow=True)
            self.kinds[name] = shape_of(rv), "real" if np.dtype(rv.dtype).kind == "f" else "whole"
            values[rv] = shared if old.type.ndim else shared[0]
        self.observed = _with_values(_copy_of(model), values)

    def draw(self, n: int, rng: np.random.Generator) -> list[dict[str, NDArray[Any]]]:
        """Return ``n`` data sets from the prior predictive distribution."""
        drawn = _drawn(self.model, n, rng)
        return [{name: values[name] for name in self._arrays} for values, _ in drawn]

    def set(self, data: Mapping[str, NDArray[Any]]) -> None:
        """Observe the model at a data set, by the names of the observed variables."""
        for name, array in self._arrays.items():
            array[...] = np.reshape(data[name], array.shape)


def _check_simulated(model: pm.Model, remedy: str = "") -> None:
    if model.potentials or not model.observed_RVs:
        found = "a potential" if model.potentials else "no observed variable"
        raise ModelError(
            f"a model to be simulated must have observed variables and no potential, got {found}: "
            f"data cannot be drawn from it.{remedy}"
        )


def _drawn(
    model: pm.Model, n: int, rng: np.random.Generator
) -> list[tuple[dict[str, NDArray[Any]], Floats]]:
    """Return joint draws by name, each with its parameters, all inside the transforms.

    A transform that the user gave, such as an ordered one, truncates the prior.
    """
    variables = upstream.with_exact_car([*model.free_RVs, *model.observed_RVs])
    names = [rv.name for rv in (*model.free_RVs, *model.observed_RVs)]
    space = UnconstrainedSpace(model) if model.free_RVs else None
    found: list[tuple[dict[str, NDArray[Any]], Floats]] = []
    n_tried = 0
    while len(found) < n:
        more = max(n - len(found), n_tried, 2)
        n_tried += more
        with quietly():
            drawn = pm.draw(variables, draws=more, random_seed=rng)
        values = dict(zip(names, drawn, strict=True))
        x = np.empty((more, 0)) if space is None else space.prior_rows(values)
        inside = np.flatnonzero(np.isfinite(x).all(axis=1))
        found += [({name: values[name][i] for name in names}, x[i]) for i in inside]
        if n_tried > _MOST_TRIED * max(len(found), 1):
            raise ModelError(
                f"prior draws must fall inside the transforms, but {len(found)} of {n_tried} do. "
                "Use pm.Truncated, or a prior whose support fits its transform."
            )
    return found[:n]
