"""Effects of groups, integrated out by importance sampling: the user's call and its record."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.distribution import support_point
from pymc.distributions.shape_utils import change_dist_size
from pymc.pytensorf import rvs_in_graph
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace

from pm_evidence.core.checks import check_choice
from pm_evidence.core.exceptions import ModelError
from pm_evidence.targets.compile.rewrite import depends_on, evaluated_shapes
from pm_evidence.targets.estimated import variable
from pm_evidence.targets.estimated.group_importance import (
    DRAWS,
    GroupEstimator,
    check_groups_are_separate,
    compile_groups,
)
from pm_evidence.targets.model.checks import has_atom
from pm_evidence.targets.model.upstream import default_transform, name_of_distribution


@dataclass(frozen=True)
class GroupedData:
    """Observations in groups."""

    labels: NDArray[Any]  # shape (n_groups,): label of every group, sorted
    # shape (n_obs,): position of every observation's group among the labels
    index: NDArray[np.int64]
    kept: NDArray[np.int64]  # shape (n_kept,): rows that are not missing
    event_shape: tuple[int, ...]  # shape of one observation

    @property
    def n_groups(self) -> int:
        """Number of groups."""
        return len(self.labels)

    @classmethod
    def from_user(cls, name: str, observed: Any, groups: Any) -> Self:
        """Return data and groups after checking them."""
        values, kept = _rows(name, observed)
        labels, index = _by_group(groups, len(values))
        empty = np.setdiff1d(np.arange(len(labels)), index[kept])
        if empty.size:
            raise ValueError(
                f"every group must have an observation that is not missing, but {empty.size} of "
                f"{len(labels)} have none, the first {labels[empty[0]].item()!r}: nothing is known "
                "of its effect. Drop its rows from observed and groups."
            )
        return cls(labels, index, kept, values.shape[1:])

    def without_missing(self, name: str, observed: NDArray[Any]) -> NDArray[Any]:
        """Return the rows that are not missing."""
        values, kept = _rows(name, observed)
        shape = (len(self.index), *self.event_shape)
        if values.shape != shape or not np.array_equal(kept, self.kept):
            raise ModelError(
                f"data of {name!r} may change in their values only, but shape {values.shape} "
                f"(it was {shape}) or missing rows have changed; build the model again."
            )
        return values[kept]

    def with_type_of(self, variable: Variable, observed: Any) -> Any:
        """Return the data as the model stores them: in the variable's type unless some are NaN."""
        if isinstance(observed, Variable):
            return observed
        values, kept = _rows("observed", observed)
        converted = values.astype(variable.dtype) if len(kept) == len(values) else values
        return converted if np.array_equal(converted, values) else values


def _rows(name: str, observed: Any) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the data, and the rows that are not missing."""
    values = variable.given_value(f"observed of {name!r}", observed)
    if values.dtype.kind not in "biuf" or values.ndim == 0 or len(values) == 0:
        raise TypeError(
            f"observed of {name!r} must be numbers, one row for every observation, got "
            f"{values.dtype} of shape {values.shape}; pass an array, with NaN where one is missing."
        )
    rows = values.reshape(len(values), -1)
    bad = np.flatnonzero(np.isinf(rows).any(axis=1))
    if bad.size:
        raise ValueError(
            f"observed of {name!r} must be finite, got {values[bad[0]]} in row {bad[0]}; correct "
            "it, or put NaN where an observation is missing."
        )
    missing = np.isnan(rows).any(axis=1)
    partly = np.flatnonzero(missing & ~np.isnan(rows).all(axis=1))
    if partly.size:
        raise ValueError(
            f"an observation of {name!r} must be missing as a whole, but row {partly[0]} is "
            f"{values[partly[0]]}; put NaN in all of it."
        )
    return values, np.flatnonzero(~missing)


def _by_group(groups: Any, n_obs: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
    groups = variable.given_value("groups", groups)
    if groups.shape != (n_obs,):
        raise ValueError(
            f"groups must give the group of each of the {n_obs} observations, got shape "
            f"{groups.shape}; pass one label for every row of observed."
        )
    wrong = None
    if groups.dtype.kind == "f" and not np.array_equal(groups, np.floor(groups)):
        wrong = groups[groups != np.floor(groups)][0]
    elif groups.dtype.kind == "O" and not all(isinstance(label, str) for label in groups):
        wrong = "a mixture of types"
    elif groups.dtype.kind not in "biufUSOM":
        wrong = f"dtype {groups.dtype}"
    if wrong is not None:
        raise ValueError(
            f"groups must be whole numbers or labels, got {wrong}; every observation needs a "
            "group: pass one label for every row of observed, such as a string."
        )
    if groups.dtype.kind == "O":
        groups = groups.astype(str)
    labels, index = np.unique(groups, return_inverse=True)
    return labels, index.astype(np.int64)


# Enough for groups whose effect has a nearly normal posterior, where weights hardly vary.
_USUAL_PARTICLES = 16


def RandomEffects(
    name: str,
    *,
    effects: Callable[[], Any],
    emission: Callable[[Any, NDArray[np.int64]], Any],
    groups: Any,
    observed: Any,
    n_particles: int | Literal["auto"] = "auto",
    draws: Literal["quasi", "random"] = "quasi",
    dims: Any = None,
    model: pm.Model | None = None,
) -> Variable:
    """Add data in groups, each with its own unknown effect, to the model of the context.

    The effects do not become variables of the model: ``sample_evidence`` integrates them out,
    group by group, by importance sampling. In place of::

        u = pm.Normal("u", 0, s, shape=n_groups)
        pm.Poisson("counts", pt.exp(b[0] + b[1] * X + u[groups]), observed=y)

    write::

        pe.RandomEffects(
            "counts",
            effects=lambda: pm.Normal.dist(0, s),
            emission=lambda u, i: pm.Poisson.dist(pt.exp(b[0] + b[1] * X[i] + u)),
            groups=groups,
            observed=y,
        )

    Parameters
    ----------
    name : str
        Name of the observed variable.
    effects : callable
        Takes no argument and returns the distribution of the effect of *one* group: a scalar, as
        ``pm.Normal.dist(0, s)``, or a vector, as ``pm.MvNormal.dist(mu, cov)``. It has to be
        continuous. If it is bounded, as ``pm.Gamma.dist``, PyMC's transform is used.
    emission : callable
        Takes ``u`` and ``i`` and returns the distribution of the observations ``i``, an array of
        row numbers, given the effects ``u`` of their groups, one for every observation. It
        corresponds to ``u[groups][i]`` in the model above. Covariates are indexed by ``i``, as
        ``X[i]``, and components of vectors as ``u[:, 0]``. Given the effects, observations are
        independent of each other.
    groups : array_like, shape (n_obs,)
        Group of every observation: whole numbers or labels.
    observed : array_like or pm.Data, shape (n_obs, ...)
        The data. NaN or a mask marks a missing observation, which is left out.
    n_particles : int or "auto"
        Particles for every group, at least 2. "auto" starts with 16 and lets the sampler choose.
    draws : {"quasi", "random"}
        How particles are drawn: on a randomly shifted lattice, or independently. The estimate is
        unbiased in both cases. With about eight particles or more, the lattice has by far the
        smallest error for effects of up to three dimensions.
    dims : str or tuple of str, optional
        Dimensions of the data.
    model : pymc.Model, optional
        The model; that of the context if left out.

    Returns
    -------
    TensorVariable
        The observed variable.

    Raises
    ------
    ModelError, TypeError, ValueError
        The message names the argument, the rule, the value and the remedy.

    Notes
    -----
    The likelihood of a group, the integral of ``p(y | u) p(u)`` over its effect, is estimated
    without bias by the mean of ``p(y | u) p(u) / q(u)`` over draws from ``q``: Student-t with four
    degrees of freedom along the axes of the Hessian, around the mode that Newton's method finds.
    This is the importance sampling that Tran, Scharth, Gunawan, Kohn, Brown and Hawkins (2020),
    section 3.4, take their cost model from. If the density of a group has several modes, the
    estimate is still unbiased, but its variance is large, because ``q`` covers only one mode.
    """
    model = variable.model_of(name, model, dims)
    n_particles = variable.checked_particles(n_particles)
    check_choice("draws", draws, DRAWS)
    data = GroupedData.from_user(name, observed, groups)
    effect = _EffectGraphs.build(effects, data.n_groups)
    index = pytensor.shared(data.index[data.kept], name="groups")
    drawn = _emit(emission, effect.drawn[data.index], np.arange(len(data.index)))
    given = _emit(emission, effect.value[index], data.kept)
    y, log_likelihood = _log_likelihood(given, drawn, data, index, effect.value)
    graphs = [effect.log_prior + log_likelihood, effect.start, effect.value, drawn]
    parents = variable.find_parents(graphs, model, [effect.z, index, y])
    stand_ins = [p.type(name=p.name) for p in parents]
    *graphs, drawn = clone_replace(graphs, dict(zip(parents, stand_ins, strict=True)))
    _refuse_unnamed_draws(graphs[:1])
    spec = RandomEffectsSpec(stand_ins, effect.z, y, graphs, data, n_particles, draws)
    values = data.with_type_of(drawn, observed)
    return variable.register_estimated(
        variable.RandomEffectsRV, name, spec, parents, drawn, values, dims, model
    )


@dataclass(frozen=True)
class _EffectGraphs:
    """Graphs of the effects of all groups."""

    drawn: Variable  # shape (n_groups, ...): draws
    z: Variable  # shape (n_groups, n_effect_dim): unconstrained values, flat, an input
    value: Variable  # shape (n_groups, ...): the effects at ``z``
    log_prior: Variable  # shape (n_groups,): log density of ``z``, in nats
    start: Variable  # shape (n_groups, n_effect_dim): a typical value of ``z``

    @classmethod
    def build(cls, effects: Callable[[], Any], n_groups: int) -> "_EffectGraphs":
        one = variable.call_user("effects", effects)
        if not one.dtype.startswith("float"):
            raise ModelError(
                f"effects must be continuous, got {name_of_distribution(one)}, which is discrete: "
                "no proposal can be fitted to its mode. Write them as ordinary variables of the "
                "model, or sum over their values with pm.Mixture."
            )
        if has_atom(one):
            raise ModelError(
                f"effects must have a density, got {name_of_distribution(one)}, which takes some "
                "value with positive probability. Write them as ordinary variables of the model, "
                "with a pm.Bernoulli that says which groups have that value."
            )
        drawn = change_dist_size(one, (n_groups,), expand=True)
        inputs = drawn.owner.inputs
        transform = default_transform(drawn.owner.op, drawn)
        start = support_point(drawn)
        start = start if transform is None else transform.forward(start, *inputs)
        (shape,) = evaluated_shapes([start])
        n_dim = int(np.prod(shape[1:]))
        if n_dim == 0:
            raise ModelError(
                f"effects must have at least one component, got shape {shape[1:]}; drop the "
                "random effect, or correct its shape."
            )
        z = pt.TensorType("float64", shape=(n_groups, n_dim))("z")
        shaped = z.reshape(shape)
        value = shaped if transform is None else transform.backward(shaped, *inputs)
        log_prior = _sum_by_row(pm.logp(drawn, value, warn_rvs=False))
        if transform is not None:
            log_prior = log_prior + _sum_by_row(transform.log_jac_det(shaped, *inputs))
        return cls(drawn, z, value, log_prior, start.reshape((n_groups, n_dim)))


@dataclass(frozen=True)
class RandomEffectsSpec:
    """The record of a call of ``RandomEffects``; see ``variable.EstimatedRV``."""

    parents: Sequence[Variable]  # stand-ins of the parents
    z: Variable  # inputs: unconstrained effects, and data without missing rows
    y: Variable
    # Joint log density, start of Newton's method and effects, as graphs of the stand-ins, ``z`` and
    # ``y``; see ``compile_groups``
    graphs: Sequence[Variable]
    data: GroupedData  # the group of every observation
    n_particles: int | Literal["auto"]  # as the user gave it
    draws: str  # how particles are drawn

    def estimator(
        self, name: str, x: Variable, parents: Sequence[Variable], observed: NDArray[Any]
    ) -> GroupEstimator:
        """Return the estimator; see ``variable.EstimatedRV``."""
        y = self.data.without_missing(name, observed)
        given = dict(zip(self.parents, parents, strict=True))
        given[self.y] = pt.constant(y.astype(self.y.dtype))
        joint, start, value = clone_replace(list(self.graphs), given, rebuild_strict=False)
        check_groups_are_separate(name, x, self.z, joint, start)
        density = compile_groups(x, self.z, joint, start)
        variable.warn_if_slow(name, density.calls)
        return GroupEstimator(
            name,
            density,
            self.data.labels,
            (x, self.z, value),
            _USUAL_PARTICLES if self.n_particles == "auto" else self.n_particles,
            self.draws,
            self.n_particles == "auto",
        )


def _emit(emission: Callable[..., Any], effects: Variable, rows: NDArray[np.int64]) -> Variable:
    try:
        return variable.call_user("emission", emission, effects, rows)
    except (ValueError, IndexError, TypeError) as error:
        error.add_note(
            f"emission was called with u of shape {effects.type.shape} and the {len(rows)} row "
            "numbers i of the observations: covariates must be indexed by i, as X[i]."
        )
        raise


def _log_likelihood(
    emission: Variable, drawn: Variable, data: GroupedData, index: Variable, effects: Variable
) -> tuple[Variable, Variable]:
    """Return an input for the data, and their log density by group."""
    shape = (len(data.kept), *data.event_shape)
    if emission.type.ndim != len(shape) or not _may_be(drawn, (len(data.index), *shape[1:])):
        raise ValueError(
            "emission must return the distribution of the observations i, which have shape "
            f"{(len(data.index), *shape[1:])}, got {name_of_distribution(emission)} of shape "
            f"{drawn.type.shape}. Index covariates by i, as X[i], and components of a vector of "
            "effects as u[:, 0]."
        )
    y = pt.TensorType(emission.dtype, shape=shape)("y")
    each = _sum_by_row(pm.logp(emission, y, warn_rvs=False))
    if not depends_on(each, effects):
        raise ModelError(
            "emission must depend on the effects u, but it does not use them; add u to its mean, "
            "or drop the random effect."
        )
    each = pt.specify_shape(each, (shape[0],))
    by_group = pt.zeros(data.n_groups)[index].inc(each)
    return y, by_group


def _refuse_unnamed_draws(graphs: Sequence[Variable]) -> None:
    random = rvs_in_graph(graphs)
    if random:
        raise ModelError(
            "effects and emission must be functions of the model's variables, of u and of i, but "
            f"their parameters contain a draw from {name_of_distribution(next(iter(random)))} that "
            "has no name in the model. Make it a variable of the model, outside of these functions."
        )


def _sum_by_row(log_density: Variable) -> Variable:
    axes = tuple(range(1, log_density.type.ndim))
    return log_density.sum(axis=axes) if axes else log_density


def _may_be(variable: Variable, shape: tuple[int, ...]) -> bool:
    known = variable.type.shape
    return len(known) == len(shape) and all(
        a is None or a == b for a, b in zip(known, shape, strict=True)
    )
