"""The Bayes factor of a point of some parameters against the model, by Savage and Dickey."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.api.bridge import bridge_sampling
from pm_evidence.api.sample import sample_evidence
from pm_evidence.core.exceptions import ModelError
from pm_evidence.core.numerics import log_mean_exp
from pm_evidence.core.random import Phase, seed_of_run
from pm_evidence.core.records import SOUND, LogEvidence, Status, with_pointer
from pm_evidence.estimators.errors import Spread, combined, interval, is_heavy, pareto_k, spread
from pm_evidence.estimators.point_density import LEAST_BEYOND, point_density
from pm_evidence.results import schema
from pm_evidence.results.compare import BayesFactor
from pm_evidence.results.elpd import origin_of
from pm_evidence.results.observed import posterior_of
from pm_evidence.results.stored import doubt_of_draws, doubt_of_few, estimate_of, not_a_tree
from pm_evidence.runs.references import rows_and_variables
from pm_evidence.targets.compile.numpy_graph import NotBatchedError
from pm_evidence.targets.model.cache import find_model, target_of
from pm_evidence.targets.model.derived import PointNull, data_of, point_null, shapes_of
from pm_evidence.targets.model.target import PyMCTarget

Floats = NDArray[np.float64]

# Prior draws by which the prior density at a point is estimated: at first, and at most.
_DRAWS, _MOST_DRAWS = 4000, 256_000
_SIDES = "for the point", "against the point"
_FEWEST_EFFECTIVE = 100.0


@dataclass(frozen=True)
class Options:
    """What a test of a hypothesis may cost, and the seed of its random numbers."""

    target_mcse: float | None
    seed: int
    of_runs: Mapping[str, Any]  # further arguments of `sample_evidence`


def point_factor(dt: Any, model: Any, point: Any, options: Options) -> BayesFactor:
    """Return the Bayes factor of a point against the model, from a result of the model."""
    check_prior(dt)
    null = point_null(find_model(model, "model"), point)
    log_prior, error = _log_prior(null, options)
    estimate = None
    if schema.POSTERIOR in dt.children:
        estimate = _from_draws(dt, null, log_prior, error, options)
    found = estimate or _from_runs(dt, null, log_prior, error, options)
    return BayesFactor.of(found, _SIDES, warning=with_pointer(found.status, found.message))


def check_prior(dt: Any) -> None:
    """Raise an error unless a result belongs to priors that are densities."""
    if not hasattr(dt, "children"):
        raise TypeError(not_a_tree("dt1", dt))
    group = dt.children.get(schema.LOG_EVIDENCE)
    if group is not None and group.attrs.get("potentials") == "prior":
        raise ModelError(
            "hypotheses need a prior that is a product of densities, got a result with "
            "potentials='prior'; compare two models with pe.compare_models."
        )


def doubt_of(dt: Any, model: Any) -> tuple[str, str]:
    """Return the status of posterior draws, and what is to be said of it."""
    if schema.LOG_EVIDENCE in dt.children:
        own = estimate_of(dt, "dt1")
        sound = own.status in SOUND
        return (Status.OK, "") if sound else (own.status, f"Of the run: {own.message}")
    drawn = posterior_of(dt, data_of(model), "dt1")
    draws = {name: drawn[name] for name in shapes_of(model) if name in drawn}
    doubt = doubt_of_draws(dt, draws) or doubt_of_few(draws)
    return (
        (Status.DOUBTFUL_DRAWS, f"Of the draws: {doubt}. Sample longer chains.")
        if doubt
        else (Status.OK, "")
    )


def evaluated(model: Any) -> Any:
    """Return the target of a model in its own coordinates, by NumPy if it can evaluate it."""
    target: Any = target_of(model, backend="numpy")
    if not isinstance(target, PyMCTarget):
        return target
    try:
        target.evaluate(target.finite_prior_points(1, np.random.SeedSequence(0)))
    except NotBatchedError:
        target = target_of(model)
    return target


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
    target, least = evaluated(null.null), 0.25 * (options.target_mcse or 0.02)
    log_density, part, n = np.empty(0), 0, _DRAWS
    while True:
        seed = np.random.SeedSequence(seed_of_run(options.seed, Phase.HYPOTHESES, 0, part))
        drawn = null.log_prior(target.finite_prior_points(n, seed))
        log_density, part = np.append(log_density, drawn), part + 1
        value = float(log_mean_exp(log_density))
        if not np.isfinite(value):
            return value, Spread(np.nan, 1.0)
        error = spread(((np.exp(log_density - value) - 1.0) / log_density.size, None))
        if error.mcse <= least or 2 * log_density.size > _MOST_DRAWS:
            break
        n = log_density.size
    if is_heavy(pareto_k(log_density), log_density.size):
        error = Spread(np.nan, 1.0)
    return value, error


def _from_draws(
    dt: Any, null: PointNull, log_prior: float, of_prior: Spread, options: Options
) -> LogEvidence | None:
    """Return the ratio of posterior and prior density; None if draws do not tell it reliably."""
    target = evaluated(null.model)
    if not isinstance(target, PyMCTarget):
        return None
    x, draws = rows_and_variables(target, dt, "dt1")
    held, others = null.positions(target.layout)
    if target.period[held].any():
        return None
    at = _coordinates_of(target, null, draws)[:, held].mean(axis=0)
    conditional = evaluated(null.null)
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
    status, message = doubt_of(dt, null.model)
    value = found.log_bf - log_prior
    return LogEvidence(
        value, total.mcse, "savage_dickey", status, *interval(value, total), message, total.dof
    )


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
    value = held.value - log_prior - own.value
    total = combined(Spread(held.mcse, held.dof), Spread(own.mcse, own.dof), of_prior)
    bad = next((each for each in (held, own) if each.status not in SOUND), None)
    status, message = (bad.status, bad.message) if bad else (Status.OK, "")
    return LogEvidence(
        value, total.mcse, "two_evidences", status, *interval(value, total), message, total.dof
    )
