"""The Bayes factor of an order or range of parameters, by the encompassing prior."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.api.point import Options, check_prior, doubt_of, evaluated
from pm_evidence.core.checks import described
from pm_evidence.core.random import Phase, seed_of_run
from pm_evidence.core.records import LogEvidence, Status, with_pointer
from pm_evidence.estimators.shares import (
    ENOUGH,
    Share,
    log_ratio,
    share,
    share_of_groups,
    smallest_effective,
)
from pm_evidence.results.compare import BayesFactor
from pm_evidence.results.elpd import origin_of
from pm_evidence.results.observed import posterior_of
from pm_evidence.samplers.subsets import probabilities
from pm_evidence.targets.model.cache import find_model
from pm_evidence.targets.model.derived import data_of

Draws = Mapping[str, NDArray[Any]]
Constraints = Sequence[Callable[[Draws], Any]]

# Prior draws: at first, and at most.
_DRAWS, _MOST_DRAWS = 10_000, 320_000
# Where few draws satisfy all parts of a constraint: groups of draws, and draws of a group.
_GROUPS, _FEWEST_GROUPS, _OF_GROUP = 16, 4, 256
_SIDES = "for the constraint", "against the constraint"


def constraint_factor(dt: Any, model: Any, constraint: Any, options: Options) -> BayesFactor:
    """Return the Bayes factor of a constraint against the model, and against its complement."""
    constraints = _parts_of(constraint)
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
    status, message = doubt_of(dt, found)
    against_model, against_rest = (
        _doubted(log_ratio(prior, posterior, odds=odds), status, message) for odds in (False, True)
    )
    facts = {"prior_prob": prior.value, "posterior_prob": posterior.value}
    rest = _factor(against_rest, **facts)
    return _factor(against_model, complement=rest, **facts)


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


def _factor(found: LogEvidence, **facts: Any) -> BayesFactor:
    return BayesFactor.of(found, _SIDES, warning=with_pointer(found.status, found.message), **facts)


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
    inside, part, n = np.empty(0, dtype=bool), 0, _DRAWS
    while True:
        seed = np.random.SeedSequence(seed_of_run(options.seed, Phase.HYPOTHESES, 3, part))
        certain = target.prior_acceptance == 1.0
        x = target.finite_prior_points(n, seed) if certain else target.draw(n, seed).x
        values = target.posterior(x)
        found = _satisfied(constraints, {name: values[name] for name in names})
        inside, part, n = np.append(inside, found), part + 1, len(inside) + n
        fewest = min(inside.sum(), inside.size - inside.sum())
        enough = fewest > 0 and 1.0 / np.sqrt(fewest) <= least
        is_rare = len(constraints) > 1 and not inside.any()  # and is met in steps
        if enough or is_rare or 2 * inside.size > _MOST_DRAWS:
            return Share(float(inside.mean()), float(inside.size))


def _satisfied(constraints: Constraints, draws: Draws) -> NDArray[np.bool_]:
    """Return which draws satisfy all parts of a constraint."""
    n = len(next(iter(draws.values())))
    found = np.empty(n, dtype=bool)
    for i in range(n):
        draw = {name: values[i] for name, values in draws.items()}
        found[i] = all(_answer(constraint, draw) for constraint in constraints)
    return found


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
    if not isinstance(answer, bool | np.bool_) and not _is_one_answer(answer):
        raise ValueError(
            f"constraint must return True or False for one draw, got {described(answer)}; "
            'combine several answers, for example (np.diff(v["mu"]) > 0).all().'
        )
    return bool(answer)


def _is_one_answer(answer: Any) -> bool:
    return isinstance(answer, np.ndarray) and answer.dtype == bool and answer.shape == ()
