"""The Bayes factor of an order or range of parameters, by the encompassing prior."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.api.point import Options, check_prior, doubt_of, evaluated
from pm_evidence.core.checks import described
from pm_evidence.core.random import Phase, seed_of_run
from pm_evidence.core.records import LogEvidence, Status, with_pointer
from pm_evidence.estimators.shares import Share, log_ratio, share, smallest_effective
from pm_evidence.results.compare import BayesFactor
from pm_evidence.results.elpd import origin_of
from pm_evidence.results.observed import posterior_of
from pm_evidence.targets.model.cache import find_model
from pm_evidence.targets.model.changed_prior import data_of

Draws = Mapping[str, NDArray[Any]]

# Prior draws: at first, and at most.
_DRAWS, _MOST_DRAWS = 10_000, 320_000
_SIDES = "for the constraint", "against the constraint"


def constraint_factor(dt: Any, model: Any, constraint: Any, options: Options) -> BayesFactor:
    """Return the Bayes factor of a constraint against the model, and against its complement."""
    if not callable(constraint):
        raise TypeError(
            f"constraint must be a function of a draw, got {described(constraint)}; pass for "
            'example lambda v: v["mu"][0] < v["mu"][1].'
        )
    check_prior(dt)
    found = find_model(model, "model")
    drawn = posterior_of(dt, data_of(found), "dt1")
    origin = origin_of(dt, "dt1")
    draws = {name: v.reshape(-1, *v.shape[2:]) for name, v in drawn.items()}
    target = evaluated(found)
    target = getattr(target, "evaluated", target)  # without an estimated likelihood
    names = [name for name in target.constrained.names if name in draws]
    draws = {name: draws[name] for name in names}
    columns = np.column_stack([v.reshape(len(origin), -1).astype(float) for v in draws.values()])
    inside = _satisfied(constraint, draws)
    posterior = share(inside, origin, smallest_effective(columns, origin))
    prior = _prior_share(constraint, target, names, options)
    status, message = doubt_of(dt, found)
    against_model, against_rest = (
        _doubted(log_ratio(prior, posterior, odds=odds), status, message) for odds in (False, True)
    )
    facts = {"prior_prob": prior.value, "posterior_prob": posterior.value}
    rest = _factor(against_rest, **facts)
    return _factor(against_model, complement=rest, **facts)


def _factor(found: LogEvidence, **facts: Any) -> BayesFactor:
    return BayesFactor.of(found, _SIDES, warning=with_pointer(found.status, found.message), **facts)


def _doubted(estimate: LogEvidence, status: str, message: str) -> LogEvidence:
    """Return an estimate with the status of the draws that it comes from, if that is not ok."""
    if status == Status.OK or estimate.status == Status.NO_SUPPORT:
        return estimate
    return replace(estimate, status=status, message=f"{message} {estimate.message}".strip())


def _prior_share(
    constraint: Callable[[Draws], Any], target: Any, names: list[str], options: Options
) -> Share:
    """Return the prior probability of a constraint, from as many draws as the error asks for."""
    least = 0.5 * (options.target_mcse or np.inf)
    inside, part, n = np.empty(0, dtype=bool), 0, _DRAWS
    while True:
        seed = np.random.SeedSequence(seed_of_run(options.seed, Phase.HYPOTHESES, 3, part))
        certain = target.prior_acceptance == 1.0
        x = target.finite_prior_points(n, seed) if certain else target.draw(n, seed).x
        values = target.posterior(x)
        found = _satisfied(constraint, {name: values[name] for name in names})
        inside, part, n = np.append(inside, found), part + 1, len(inside) + n
        fewest = min(inside.sum(), inside.size - inside.sum())
        enough = fewest > 0 and 1.0 / np.sqrt(fewest) <= least
        if enough or 2 * inside.size > _MOST_DRAWS:
            return Share(float(inside.mean()), float(inside.size))


def _satisfied(constraint: Callable[[Draws], Any], draws: Draws) -> NDArray[np.bool_]:
    """Return which draws satisfy a constraint."""
    n = len(next(iter(draws.values())))
    found = np.empty(n, dtype=bool)
    for i in range(n):
        draw = {name: values[i] for name, values in draws.items()}
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
        if not isinstance(answer, bool | np.bool_) and not _is_one_answer(answer):
            raise ValueError(
                f"constraint must return True or False for one draw, got {described(answer)}; "
                'combine several answers, for example (np.diff(v["mu"]) > 0).all().'
            )
        found[i] = bool(answer)
    return found


def _is_one_answer(answer: Any) -> bool:
    return isinstance(answer, np.ndarray) and answer.dtype == bool and answer.shape == ()
