"""Bayes factors of hypotheses about parameters: of a point, and of an order or range."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.api.sample import bridge_sampling, sample_evidence
from pm_evidence.core.checks import described
from pm_evidence.core.exceptions import ModelError
from pm_evidence.core.numerics import log_mean_exp
from pm_evidence.core.random import Phase, seed_of_run
from pm_evidence.core.records import SOUND, LogEvidence, Status, with_pointer
from pm_evidence.estimators.draws import (
    ENOUGH,
    LEAST_BEYOND,
    Share,
    log_ratio,
    point_density,
    share,
    share_of_groups,
    smallest_effective,
)
from pm_evidence.estimators.errors import Spread, combined, interval, is_heavy, pareto_k, spread
from pm_evidence.results import schema
from pm_evidence.results.compare import BayesFactor
from pm_evidence.results.elpd import origin_of
from pm_evidence.results.stored import (
    doubt_of_draws,
    doubt_of_few,
    estimate_of,
    not_a_tree,
    posterior_of,
)
from pm_evidence.runs.references import rows_and_variables
from pm_evidence.samplers.subsets import probabilities
from pm_evidence.targets.compile.numpy_graph import NotBatchedError
from pm_evidence.targets.model.cache import find_model, target_of
from pm_evidence.targets.model.derived import PointNull, data_of, point_null, shapes_of
from pm_evidence.targets.model.target import PyMCTarget

Floats = NDArray[np.float64]

Draws = Mapping[str, NDArray[Any]]
Constraints = Sequence[Callable[[Draws], Any]]

# Prior draws, at first and at most, by which the prior density at a point is estimated, and by
# which the prior probability of a constraint is.
_OF_POINT, _OF_CONSTRAINT = (4000, 256_000), (10_000, 320_000)
_FEWEST_EFFECTIVE = 100.0


@dataclass(frozen=True)
class Options:
    """What a test of a hypothesis may cost, and the seed of its random numbers."""

    target_mcse: float | None
    seed: int
    of_runs: Mapping[str, Any]  # further arguments of `sample_evidence`


def _factor(found: LogEvidence, side: str, **facts: Any) -> BayesFactor:
    """Return the Bayes factor of a hypothesis, which is a point or a constraint."""
    sides, warning = (f"for the {side}", f"against the {side}"), found.message
    return BayesFactor.of(found, sides, warning=with_pointer(found.status, warning), **facts)


def _check_prior(dt: Any) -> None:
    """Raise an error unless a result belongs to priors that are densities."""
    if not hasattr(dt, "children"):
        raise TypeError(not_a_tree("dt1", dt))
    group = dt.children.get(schema.LOG_EVIDENCE)
    if group is not None and group.attrs.get("potentials") == "prior":
        raise ModelError(
            "hypotheses need a prior that is a product of densities, got a result with "
            "potentials='prior'; compare two models with pe.compare_models."
        )


def _doubt_of(dt: Any, model: Any) -> tuple[str, str]:
    """Return the status of posterior draws, and what is to be said of it."""
    if schema.LOG_EVIDENCE in dt.children:
        own = estimate_of(dt, "dt1")
        sound = own.status in SOUND
        return (Status.OK, "") if sound else (own.status, f"Of the run: {own.message}")
    drawn = posterior_of(dt, data_of(model), "dt1")
    draws = {name: drawn[name] for name in shapes_of(model) if name in drawn}
    doubt = doubt_of_draws(dt, draws) or doubt_of_few(draws)
    if not doubt:
        return Status.OK, ""
    return Status.DOUBTFUL_DRAWS, f"Of the draws: {doubt}. Sample longer chains."


def _evaluated(model: Any) -> Any:
    """Return the target of a model in its own coordinates, by NumPy if it can evaluate it."""
    target: Any = target_of(model, backend="numpy")
    if not isinstance(target, PyMCTarget):
        return target
    try:
        target.evaluate(target.finite_prior_points(1, np.random.SeedSequence(0)))
    except NotBatchedError:
        target = target_of(model)
    return target


def _ever_more(
    of_draws: Callable[[int, np.random.SeedSequence], NDArray[Any]],
    bounds: tuple[int, int],
    options: Options,
    stream: int,
) -> Iterator[NDArray[Any]]:
    """Yield values at random draws, and each time as many further ones as there are."""
    values: NDArray[Any] | None = None
    for part in count():
        seed = np.random.SeedSequence(seed_of_run(options.seed, Phase.HYPOTHESES, stream, part))
        n = bounds[0] if values is None else values.size
        drawn = of_draws(n, seed)
        values = drawn if values is None else np.append(values, drawn)
        yield values
        if 2 * values.size > bounds[1]:
            return


# --- points ---


def point_factor(dt: Any, model: Any, point: Any, options: Options) -> BayesFactor:
    """Return the Bayes factor of a point against the model, by Savage and Dickey."""
    _check_prior(dt)
    null = point_null(find_model(model, "model"), point)
    log_prior, error = _log_prior(null, options)
    found = None
    if schema.POSTERIOR in dt.children:
        found = _from_draws(dt, null, log_prior, error, options)
    return _factor(found or _from_runs(dt, null, log_prior, error, options), "point")


def _log_prior(null: PointNull, options: Options) -> tuple[float, Spread]:
    """Return the log prior density at the point with its error, in nats."""
    if null.is_certain:
        value, error = float(null.log_prior(np.empty((1, 0)))[0]), Spread(0.0, np.inf)
    else:
        value, error = _mean_log_prior(null, options)
    if not np.isfinite(value):
        names = ", ".join(map(repr, null.held))
        raise ValueError(
            f"point must lie where the prior of {names} has a finite density above 0, got a log "
            f"density of {value}; correct the value, or the prior."
        )
    return value, error


def _mean_log_prior(null: PointNull, options: Options) -> tuple[float, Spread]:
    """Return the log of the mean density of the point over prior draws of what it depends on."""
    target, least = _evaluated(null.null), 0.25 * (options.target_mcse or 0.02)

    def log_priors(n: int, seed: np.random.SeedSequence) -> Floats:
        return null.log_prior(target.finite_prior_points(n, seed))

    for log_density in _ever_more(log_priors, _OF_POINT, options, 0):
        value = float(log_mean_exp(log_density))
        if not np.isfinite(value):
            return value, Spread(np.nan, 1.0)
        error = spread(((np.exp(log_density - value) - 1.0) / log_density.size, None))
        if error.mcse <= least:
            break
    heavy = is_heavy(pareto_k(log_density), log_density.size)
    return value, Spread(np.nan, 1.0) if heavy else error


def _from_draws(
    dt: Any, null: PointNull, log_prior: float, of_prior: Spread, options: Options
) -> LogEvidence | None:
    """Return the ratio of posterior and prior density; None if draws do not tell it reliably."""
    target = _evaluated(null.model)
    if not isinstance(target, PyMCTarget):
        return None
    x, draws = rows_and_variables(target, dt, "dt1")
    held, others = null.positions(target.layout)
    if target.period[held].any():
        return None
    at = _coordinates_of(target, null, draws)[:, held].mean(axis=0)
    conditional = _evaluated(null.null)
    fixed = (target.period > 0.0) | np.isin(np.arange(target.n_dim), target.discrete)
    found, beyond = point_density(
        x,
        target.evaluate(x).log_density.sum(axis=1),
        origin_of(dt, "dt1"),
        held,
        others,
        ~fixed[others],
        at,
        lambda rows: conditional.evaluate(rows).log_density.sum(axis=1),
    )
    total = combined(Spread(found.mcse, found.dof), of_prior)
    wanted = sqrt(2.0) * options.target_mcse if options.target_mcse else np.inf
    few = found.ess < _FEWEST_EFFECTIVE or beyond < LEAST_BEYOND
    if found.is_heavy or few or not total.mcse <= wanted:
        return None
    status, message = _doubt_of(dt, null.model)
    return _estimate(found.log_bf - log_prior, total, "savage_dickey", status, message)


def _coordinates_of(target: Any, null: PointNull, draws: Mapping[str, NDArray[Any]]) -> Floats:
    """Return the coordinates of some draws with the point in the place of their own values."""
    some = {name: values[:, :1] for name, values in draws.items()}
    for name, value in null.values.items():
        some[name] = np.where(null.held[name], value, some[name])
    x: Floats = target.rows_of(some, "point")
    return x


def _from_runs(
    dt: Any, null: PointNull, log_prior: float, of_prior: Spread, options: Options
) -> LogEvidence:
    """Return the log Bayes factor by the evidence of the model given the point."""
    each = None if options.target_mcse is None else options.target_mcse / sqrt(2.0)
    runs = {**options.of_runs, "target_mcse": each}
    seeds = [seed_of_run(options.seed, Phase.HYPOTHESES, k) for k in (1, 2)]
    if schema.LOG_EVIDENCE not in dt.children:
        dt = bridge_sampling(dt, null.model, random_seed=seeds[0], **runs)
    own = estimate_of(dt, "dt1")
    held = estimate_of(sample_evidence(null.null, random_seed=seeds[1], **runs), "the null model")
    total = combined(Spread(held.mcse, held.dof), Spread(own.mcse, own.dof), of_prior)
    bad = next((each for each in (held, own) if each.status not in SOUND), None)
    status, message = (bad.status, bad.message) if bad else (Status.OK, "")
    value = held.value - log_prior - own.value
    return _estimate(value, total, "two_evidences", status, message)


def _estimate(value: float, error: Spread, name: str, status: str, message: str) -> LogEvidence:
    within = interval(value, error)
    return LogEvidence(value, error.mcse, name, status, *within, message, error.dof)


# --- constraints ---


# Where few draws satisfy all parts of a constraint: groups of draws, and draws of a group.
_GROUPS, _FEWEST_GROUPS, _OF_GROUP = 16, 4, 256


def constraint_factor(dt: Any, model: Any, constraint: Any, options: Options) -> BayesFactor:
    """Return the Bayes factor of a constraint against the model, and against its complement.

    It is that of the encompassing prior.
    """
    constraints = _parts_of(constraint)
    _check_prior(dt)
    found = find_model(model, "model")
    drawn = posterior_of(dt, data_of(found), "dt1")
    origin = origin_of(dt, "dt1")
    draws = {name: v.reshape(-1, *v.shape[2:]) for name, v in drawn.items()}
    target = _evaluated(found)
    target = getattr(target, "evaluated", target)  # without an estimated likelihood
    names = [name for name in target.constrained.names if name in draws]
    draws = {name: draws[name] for name in names}
    columns = np.column_stack([v.reshape(len(origin), -1).astype(float) for v in draws.values()])
    inside = _satisfied(constraints, draws)
    posterior = share(inside, origin, smallest_effective(columns, origin))
    prior = _prior_share(constraints, target, names, options)
    steps = _Steps(target, names, constraints, options.seed)
    if steps.apply_to(posterior):
        order = np.argsort(origin, kind="stable")
        x, n_groups = target.rows_of(drawn, "dt1")[order], min(np.unique(origin).size, _GROUPS)
        posterior = steps.share(x, 1.0, n_groups) or posterior
    if steps.apply_to(prior):
        seed = np.random.SeedSequence(seed_of_run(options.seed, Phase.HYPOTHESES, 4))
        prior = steps.share(target.draw(_GROUPS * _OF_GROUP, seed).x, 0.0, _GROUPS) or prior
    status, message = _doubt_of(dt, found)
    against_model, against_rest = (
        _doubted(log_ratio(prior, posterior, odds=odds), status, message) for odds in (False, True)
    )
    facts = {"prior_prob": prior.value, "posterior_prob": posterior.value}
    rest = _factor(against_rest, "constraint", **facts)
    return _factor(against_model, "constraint", complement=rest, **facts)


def _parts_of(constraint: Any) -> Constraints:
    """Return the functions that a constraint consists of."""
    given = constraint if isinstance(constraint, list | tuple) else [constraint]
    if not given or not all(map(callable, given)):
        raise TypeError(
            "constraint must be a function of a draw, or a list of functions that must all be "
            f"true, got {described(constraint)}; pass for example "
            'lambda v: v["mu"][0] < v["mu"][1].'
        )
    return given


@dataclass(frozen=True)
class _Steps:
    """Meets the parts of a constraint one after the other."""

    target: Any
    names: list[str]
    constraints: Constraints
    seed: int

    def apply_to(self, found: Share) -> bool:
        """Return whether a share of draws is too small to be counted, and steps are possible."""
        if len(self.constraints) == 1 or found.value * found.n_effective >= ENOUGH:
            return False
        target = self.target
        return not target.discrete.size and target.differentiable is not None

    def share(self, x: NDArray[np.float64], beta: float, n_groups: int) -> Share | None:
        """Return the share by steps from draws; None if they are too few, or none gets so far."""
        if n_groups < _FEWEST_GROUPS or len(x) < _OF_GROUP:
            return None
        chosen = np.linspace(0, len(x) - 1, n_groups * _OF_GROUP).round().astype(np.int64)
        seed = np.random.SeedSequence(seed_of_run(self.seed, Phase.HYPOTHESES, 5, int(beta)))
        found = probabilities(self.target, x[chosen], beta, self._satisfied, n_groups, seed)
        return share_of_groups(found) if found.any() else None

    def _satisfied(self, x: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return which points satisfy which parts of the constraint."""
        values = self.target.posterior(x)
        draws = {name: values[name] for name in self.names}
        return np.column_stack([_satisfied([part], draws) for part in self.constraints])


def _doubted(estimate: LogEvidence, status: str, message: str) -> LogEvidence:
    """Return an estimate with the status of the draws that it comes from, if that is not ok."""
    if status == Status.OK or estimate.status == Status.NO_SUPPORT:
        return estimate
    return replace(estimate, status=status, message=f"{message} {estimate.message}".strip())


def _prior_share(
    constraints: Constraints, target: Any, names: list[str], options: Options
) -> Share:
    """Return the prior probability of a constraint, from as many draws as the error asks for."""
    least = 0.5 * (options.target_mcse or np.inf)

    def are_inside(n: int, seed: np.random.SeedSequence) -> NDArray[np.bool_]:
        certain = target.prior_acceptance == 1.0
        x = target.finite_prior_points(n, seed) if certain else target.draw(n, seed).x
        values = target.posterior(x)
        return _satisfied(constraints, {name: values[name] for name in names})

    for inside in _ever_more(are_inside, _OF_CONSTRAINT, options, 3):
        fewest = min(inside.sum(), inside.size - inside.sum())
        is_rare = len(constraints) > 1 and not inside.any()  # and is met in steps
        if is_rare or (fewest > 0 and 1.0 / np.sqrt(fewest) <= least):
            break
    return Share(float(inside.mean()), float(inside.size))


def _satisfied(constraints: Constraints, draws: Draws) -> NDArray[np.bool_]:
    """Return which draws satisfy all parts of a constraint."""
    rows = (dict(zip(draws, row, strict=True)) for row in zip(*draws.values(), strict=True))
    return np.array([all(_answer(each, row) for each in constraints) for row in rows], dtype=bool)


def _answer(constraint: Callable[[Draws], Any], draw: Draws) -> bool:
    """Return what a function of the user's says of a draw."""
    try:
        answer = constraint(draw)
    except KeyError as error:
        if error.args and error.args[0] in draw:
            raise
        raise ValueError(
            f"constraint must read variables of the model, got {error}; the variables are "
            f"{', '.join(map(repr, draw))}."
        ) from error
    except Exception as error:
        raise ValueError(
            "constraint must be a function of one draw, a mapping of names to values, got one "
            f"that raised {type(error).__name__}: {error}; try it on such a mapping."
        ) from error
    one = isinstance(answer, np.ndarray) and answer.dtype == bool and answer.shape == ()
    if not isinstance(answer, bool | np.bool_) and not one:
        raise ValueError(
            f"constraint must return True or False for one draw, got {described(answer)}; "
            'combine several answers, for example (np.diff(v["mu"]) > 0).all().'
        )
    return bool(answer)
