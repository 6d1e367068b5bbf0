"""Checks that refuse models whose evidence is not defined or cannot be found by annealing."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytensor.tensor.random.basic as ptr
from numpy.typing import NDArray
from pymc.data import MinibatchOp
from pymc.distributions.censored import CensoredRV
from pymc.distributions.continuous import FlatRV, HalfFlatRV
from pymc.distributions.custom import CustomSymbolicDistRV
from pymc.distributions.discrete import DiscreteUniformRV
from pymc.distributions.distribution import DiracDeltaRV, PartialObservedRV, SymbolicRandomVariable
from pymc.distributions.mixture import MixtureRV
from pymc.distributions.multivariate import CARRV, ICARRV
from pymc.distributions.shape_utils import change_dist_size
from pymc.distributions.simulator import SimulatorRV
from pymc.logprob.transforms import (
    ChainedTransform,
    CircularTransform,
    IntervalTransform,
    Transform,
)
from pymc.pytensorf import constant_fold
from pymc.variational.minibatch_rv import MinibatchRandomVariable
from pytensor.graph.basic import Variable
from pytensor.graph.fg import MissingInputError
from pytensor.graph.traversal import ancestors
from pytensor.scan.op import Scan
from pytensor.tensor.random.type import RandomGeneratorType

from pm_evidence.core.checks import check_dimensions, described
from pm_evidence.core.exceptions import ModelError, NumericalError
from pm_evidence.targets.layout import Layout, Particles, shape_of, value_of
from pm_evidence.targets.model import upstream
from pm_evidence.targets.model.vectorised import quietly

Floats = NDArray[np.float64]

# If a continuous variable has this many equal prior draws, and this share of all, it has an atom.
_FEWEST_TIES, _LEAST_TIED_SHARE = 3, 1e-3
# What is raised by parts of other variables, and by those that cannot be drawn at all.
_UNDRAWABLE = (MissingInputError, RuntimeError, TypeError, ValueError, ArithmeticError, IndexError)
# Numbers of draws among which atoms are looked for; fewer where there are many numbers in each.
_MOST_DRAWS, _FEWEST, _MOST_NUMBERS = 1000, 100, 100_000


def has_atom(variable: Variable) -> bool:
    """Return whether a variable, given its parents, takes a value with positive probability.

    It does if one of the distributions that it is made of does, or if draws of it repeat a value.
    Only censoring and graphs of users can give atoms to distributions that have none. Atoms of
    loops and of Python functions of users are seen when the prior is drawn.
    """
    op = variable.owner.op
    made_of = [
        v
        for v in variable.owner.inputs
        if not v.name and isinstance(getattr(v.owner, "op", None), SymbolicRandomVariable)
    ]
    if isinstance(op, DiracDeltaRV) or any(map(has_atom, made_of)):
        return True
    if not isinstance(op, CensoredRV | CustomSymbolicDistRV):
        return False
    if any(isinstance(node.op, Scan) for node in _nodes(variable)):
        return False
    n = int(np.clip(_MOST_NUMBERS // max(math.prod(shape_of(variable)), 1), _FEWEST, _MOST_DRAWS))
    try:
        with quietly():
            many = change_dist_size(variable, (n,), expand=True)
            drawn = pm.draw(many, random_seed=n, mode="FAST_COMPILE")
    except _UNDRAWABLE:
        return False
    return _repeats(drawn.reshape(n, -1))


def _repeats(draws: Floats) -> bool:
    """Return whether a coordinate takes the same finite value in several draws.

    Among 10,000 draws with 53 random bits, two are equal with a probability of 1e-8, and three
    practically never. An atom with a probability below 1 in 1,000 changes log Z by as little.
    """
    most = max(_FEWEST_TIES, int(_LEAST_TIED_SHARE * len(draws)))
    values = np.sort(np.where(np.isfinite(draws), draws, np.nan), axis=0)
    return bool((values[most - 1 :] == values[: len(values) - most + 1]).any())


def _adds_probability_to_density(variable: Variable) -> bool:
    """Whether a mixture's density adds the probability of an atom to a density at that value.

    This is the case if one component has an atom and another has none. Components that share
    their atoms, such as variables censored at the same value, have a proper density.
    """
    op = variable.owner.op
    if not isinstance(op, MixtureRV) or np.dtype(variable.dtype).kind != "f":
        return False
    _, _, *components = variable.owner.inputs
    return len({has_atom(component) for component in components}) > 1


_DIMENSIONS_OF_DRAWS = ("chain", "draw")
_IMPROPER = {  # and what to use instead
    FlatRV: ("pm.Flat", "pm.Normal with a wide sigma"),
    HalfFlatRV: ("pm.HalfFlat", "pm.HalfNormal with a wide sigma"),
    ICARRV: ("pm.ICAR", "pm.CAR with alpha below 1"),
}


def check_model(model: pm.Model) -> None:
    """Refuse a model whose evidence is not defined."""
    _check_names(model)
    if not model.observed_RVs and not model.potentials:
        raise ModelError(
            "model must have at least one observed variable or pm.Potential, got none: there are "
            "no data whose evidence could be computed. Pass observed=... to the likelihood."
        )
    for rv in model.basic_RVs:
        others = [v for v in model.basic_RVs if v is not rv]
        _check_proper(rv, others, "likelihood" if rv in model.observed_RVs else "prior")
        if rv in model.free_RVs:
            _check_missing(rv)
            _check_density(rv)
            _check_circle(rv, model.rvs_to_transforms[rv])
    for term in [*model.basic_RVs, *model.potentials]:
        _check_likelihood(term)
    for rv in model.observed_RVs:
        _check_mixture(rv)
    _check_indices(model)


def _check_names(model: pm.Model) -> None:
    """Refuse names that posterior draws cannot be stored under."""
    for name in (variable.name for variable in (*model.free_RVs, *model.deterministics)):
        if name in _DIMENSIONS_OF_DRAWS:
            raise ModelError(
                f"no variable may be called {name!r}, which is a dimension of all posterior "
                f"draws, got one of this name; rename it, for example to '{name}_'."
            )
    dims = [*model.coords, *(dim for dims in model.named_vars_to_dims.values() for dim in dims)]
    check_dimensions("names of dimensions", [dim for dim in dims if dim is not None])
    for name, labels in model.coords.items():
        wrong = next((label for label in labels or () if isinstance(label, tuple)), None)
        if wrong is not None:
            raise ModelError(
                f"labels of dimensions must be single values, got the tuple {described(wrong)} for "
                f"the dimension {name!r}, which results cannot be stored with; join its parts to a "
                "text."
            )


def _check_proper(rv: Variable, others: Sequence[Variable], what: str) -> None:
    for node in _nodes(rv, others):
        for improper, (name, instead) in _IMPROPER.items():
            if isinstance(node.op, improper):
                raise ModelError(
                    f"every variable must have a proper {what}, got {rv.name} ~ {name}, which "
                    "does not integrate to one: the evidence would be known only up to an "
                    f"arbitrary factor. Give {rv.name!r} a proper {what}, for example {instead}."
                )
        if isinstance(node.op, CARRV) and node is not rv.owner:
            raise ModelError(
                f"pm.CAR must be a separate variable, got one inside of {rv.name}: its log density "
                "in PyMC lacks a constant, which can be restored only for a separate variable. "
                "Write it as pm.MvNormal with tau=tau * (diag(W.sum(0)) - alpha * W)."
            )


def _check_density(rv: Variable) -> None:
    """Refuse a continuous variable that takes some value with positive probability."""
    continuous = np.dtype(rv.dtype).kind == "f"
    if continuous and has_atom(rv):
        raise ModelError(_no_density(f"{rv.name} ~ {upstream.name_of_distribution(rv)}", rv.name))


def _no_density(what: str, name: str) -> str:
    """Return the message that refuses a variable with an atom."""
    return (
        f"every free variable of type float must have a density, got {what}, which takes some "
        "value with positive probability: annealing would treat that probability as a density. "
        "Write an explicit Bernoulli indicator, for example "
        f'at_atom = pm.Bernoulli("at_atom", p), a continuous variable for the other values, and '
        f"pm.math.switch(at_atom, value, continuous) wherever the model uses {name!r}; for a "
        "censored or rounded variable, draw the variable itself and clip or round it where it is "
        "used; for whole numbers, use a distribution of integers (and integer bounds)."
    )


def _check_circle(rv: Variable, transform: Transform | None) -> None:
    """Refuse a variable on a circle that is transformed before: its density has infinite mass."""
    steps = transform.transform_list if isinstance(transform, ChainedTransform) else []
    if any(isinstance(step, CircularTransform) for step in steps):
        raise ModelError(
            f"the transform circular must be the only one of a variable, got {rv.name} with "
            f"{' and '.join(step.name for step in steps)}, whose density repeats along the line "
            "and has infinite mass: PyMC adds transform=... to the usual one. Write "
            f'pm.Uniform("{rv.name}", -np.pi, np.pi, '
            "default_transform=pm.distributions.transforms.circular) or "
            f'pm.VonMises("{rv.name}", 0, 1e-6).'
        )


def _check_missing(rv: Variable) -> None:
    op = rv.owner.op
    if isinstance(op, PartialObservedRV) and op.ndim_supp > 0:
        raise ModelError(
            f"missing values must belong to a variable whose components are independent, got "
            f"{rv.name} of a multivariate distribution: PyMC counts the prior of the missing "
            "values as likelihood. Give the observed components their marginal distribution, or "
            "write the missing ones as a separate free variable."
        )


def _check_likelihood(rv: Variable) -> None:
    for node in _nodes(rv):
        if isinstance(node.op, MinibatchRandomVariable):
            raise ModelError(
                f"observed variables must not use total_size, got one on {rv.name}: a rescaled "
                "likelihood is not a likelihood of the data. Drop total_size and pass all data."
            )
        if isinstance(node.op, MinibatchOp):
            raise ModelError(
                f"data must not be a pm.Minibatch, got one in {rv.name}: the evidence is that of "
                "all the data. Pass the whole array."
            )
        if isinstance(node.op, SimulatorRV):
            raise ModelError(
                f"every variable must have a density, got {rv.name} ~ pm.Simulator, which has "
                "none. Use pm.sample_smc for approximate Bayesian computation, or write the "
                "likelihood."
            )


def _check_indices(model: pm.Model) -> None:
    """Refuse indices that are known to lie outside of the arrays that they belong to."""
    data = {rv: model.rvs_to_values[rv] for rv in model.observed_RVs}
    parameters = [
        v for rv in model.basic_RVs for v in rv.owner.inputs if isinstance(v.type, pt.TensorType)
    ]
    terms = [*parameters, *model.potentials, *model.deterministics]
    upstream.check_known_indices(terms, data)


def _check_mixture(rv: Variable) -> None:
    for node in _nodes(rv):
        if any(_adds_probability_to_density(output) for output in node.outputs[-1:]):
            raise ModelError(
                f"observed variables must have a density, got {rv.name} ~ pm.Mixture of "
                "distributions with and without an atom (such as pm.DiracDelta): PyMC adds the "
                "probability of the atom to a density at the same value. Use pm.HurdleGamma or "
                "pm.HurdleLogNormal, or write the observations at the atom and the others as two "
                "observed variables, a pm.Bernoulli and the continuous one."
            )


def _nodes(rv: Variable, given: Iterable[Variable] = ()) -> Iterator:
    """Yield the nodes that a variable is made of, including those inside distributions."""
    given = frozenset(given)
    for variable in ancestors([rv], blockers=given):
        if variable.owner is not None and variable not in given:
            yield variable.owner
            if isinstance(variable.owner.op, SymbolicRandomVariable):
                for output in variable.owner.op.fgraph.outputs:
                    yield from _nodes(output)


_Bounds = tuple[Variable, Variable]

_BOUNDS: dict[type, Callable[..., _Bounds]] = {
    ptr.BernoulliRV: lambda p: (pt.constant(0), pt.constant(1)),
    ptr.CategoricalRV: lambda p: (pt.constant(0), p.shape[-1] - 1),
    ptr.BinomialRV: lambda n, p: (pt.constant(0), n),
    ptr.BetaBinomialRV: lambda n, a, b: (pt.constant(0), n),
    DiscreteUniformRV: lambda lower, upper: (lower, upper),
}


# Distributions of PyMC whose draws may lie where their density is zero, because users define both.
_BY_USERS = ("pymc.distributions.custom", "pymc.distributions.simulator")


def keeps_support(rv: Variable, transform: Transform | None) -> bool:
    """Return whether a transform is known to cover the whole support of a variable."""
    op = rv.owner.op
    module = type(op).__module__
    if not module.startswith(("pymc.distributions.", "pytensor.tensor.random.")):
        return False
    if module.startswith(_BY_USERS):
        return False
    usual = upstream.default_transform(op, rv)
    if transform is usual:
        return True
    if type(transform) is not type(usual):
        return False
    # intervals may have any bounds: those that PyMC computes from the parameters are meant
    if isinstance(transform, IntervalTransform) and isinstance(usual, IntervalTransform):
        given, own = transform.args_fn, usual.args_fn
        return getattr(given, "__code__", given) is getattr(own, "__code__", own)
    return True


def coordinates_on_support(model: pm.Model, layout: Layout) -> NDArray[np.bool_]:
    """Return of which coordinates `keeps_support` holds, shape ``(n_dim,)``."""
    keeps = [keeps_support(rv, model.rvs_to_transforms[rv]) for rv in model.free_RVs]
    return np.repeat(np.array(keeps, dtype=bool), [v.size for v in layout.variables])


def discrete_support(rv: Variable, shape: tuple[int, ...]) -> tuple[Floats, Floats]:
    """Return the least and the greatest value of every element of a discrete variable."""
    size = math.prod(shape)
    unknown = np.full(size, -np.inf), np.full(size, np.inf)
    op = rv.owner.op
    bounds = next((make for kind, make in _BOUNDS.items() if isinstance(op, kind)), None)
    if bounds is None:
        return unknown
    values = constant_fold(bounds(*op.dist_params(rv.owner)), raise_not_constant=False)
    if any(isinstance(v, Variable) and _is_random(v) for v in values):
        return unknown
    lower, upper = (np.broadcast_to(value_of(v), shape).ravel().astype(float) for v in values)
    return lower, upper


def _is_random(variable: Variable) -> bool:
    # symbolic distributions such as pm.Truncated are not a RandomVariable, but hold a generator
    return any(isinstance(v.type, RandomGeneratorType) for v in ancestors([variable]))


_ROUNDING = 1e-9  # of an angle, in periods
# If a smaller share of prior draws is accepted, the truncated prior cannot be drawn by rejection.
_MIN_ACCEPTANCE = 1e-3


def refuse_low_acceptance(n_kept: int, n_tried: int) -> None:
    """Refuse a prior nearly all of whose draws fall outside of the transforms."""
    if n_tried > 5 / _MIN_ACCEPTANCE and n_kept < _MIN_ACCEPTANCE * n_tried:
        raise ModelError(
            "prior draws must be finite and fall inside the transforms, but only "
            f"{n_kept} of {n_tried} are. Use pm.Truncated, or a prior whose support fits its "
            "transform."
        )


def refuse_beyond_circle(layout: Layout, period: Floats, x: Floats) -> None:
    """Refuse variables on a circle whose prior reaches beyond it."""
    for k in np.flatnonzero(period):
        if (np.abs(x[:, k]) > (0.5 + _ROUNDING) * period[k]).any():
            (name,) = (v.name for v in layout.variables if v.start <= k < v.start + v.size)
            raise ModelError(
                f"a variable with the transform circular must lie between -pi and pi, got {name}, "
                "whose prior reaches beyond, where its density would be that of another angle. "
                f'Write pm.VonMises("{name}", ...), or pm.Uniform from -np.pi to np.pi, or leave '
                "the transform out."
            )


def refuse_ties(layout: Layout, x: Floats) -> None:
    """Refuse continuous variables that take a value repeatedly, because they have an atom."""
    for variable in layout.variables:
        if variable.dtype == "float64" and _repeats(x[:, variable.positions]):
            raise ModelError(_no_density(variable.name, variable.name))


def refuse_undefined(target: Any, particles: Particles) -> None:
    """Refuse a model whose log density is NaN or infinite at a prior draw."""
    found = undefined_density(particles.log_density)
    if found is None:
        return
    row, problem = found
    x = particles.x[row]
    index = target.graphs().wrong_index(target.layout.split(x))
    if index is not None:
        raise ModelError(f"{index} The index is that of a draw from the prior.")
    raise NumericalError(
        f"{problem}, first at {target.describe(x)}. Look for NaN in the data, or for an overflow "
        "in the model at such values, or for an index beyond its array in a loop; "
        "model.point_logps() at this point names the variable."
    )


def undefined_density(log_density: Floats) -> tuple[int, str] | None:
    """Return the first prior draw whose log density is NaN or plus infinity."""
    bad = np.argwhere(np.isnan(log_density) | (log_density == np.inf))
    if len(bad) == 0:
        return None
    row, column = bad[0]
    n_bad = len(np.unique(bad[:, 0]))
    both = np.isnan(log_density[row]).all()
    part = "density" if both else ("prior", "likelihood")[column]
    problem = (
        f"the log {part} must be a number below infinity, got {log_density[row, column]} at "
        f"{n_bad} of {len(log_density)} prior draws"
    )
    return int(row), problem
