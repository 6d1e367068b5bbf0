"""All estimates of a run of tempered chains, and whether the chains mixed."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.records import LogEvidence, Role, RunRecord, Status
from pm_evidence.estimators.errors import Verdict, judged
from pm_evidence.estimators.jarzynski import jarzynski
from pm_evidence.estimators.mbar import mbar
from pm_evidence.estimators.rts import rts, ts
from pm_evidence.estimators.ti import chained_bar, stepping_stone, ti, ti_rb
from pm_evidence.estimators.verdicts import contradict, in_addition, ranked, times, with_check

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

# The least number of times that chains of an estimate with the status ``"ok"`` came from the
# reference to the target: in each ladder on average, and in all. Without these, chains have
# forgotten neither their first states nor each other's modes.
_LEAST_PER_LADDER, _LEAST_RESTARTS = 1.0, 40
# Estimates from the two halves of a record contradict each other if they differ by more than this
# number of standard errors.
_DRIFT = 4.0
# Largest difference between the shares of temperatures and their prior at which the initial
# iterations end before their largest number of rounds (Carlson et al. 2016, section 2.4).
_TOLERANCE = 0.1
# Importance sampling is recommended if its error is this many times smaller.
_GROSS = 2.0


@dataclass(frozen=True, slots=True)
class _States:
    """The states of all chains, as estimators take them."""

    beta: Floats  # shape (n_temperatures,)
    # shape (n,): energies in nats, indices of temperatures, and numbers of ladders, over all blocks
    energy: Floats
    rung: Whole
    ladder: Whole
    # shape (n,): whether the state is in the second half of the record of its block
    late: NDArray[np.bool_]
    restarts: int  # times that chains came from the reference to the target, and number of ladders
    n_ladders: int

    @property
    def arguments(self) -> tuple[Floats, Floats, Whole]:
        """The common arguments of estimators."""
        return self.beta, self.energy, self.rung

    def part(self, *, late: bool) -> "_States":
        """Return the states of the first or the second half."""
        here = self.late == late
        parts = self.energy[here], self.rung[here], self.ladder[here], self.late[here]
        return _States(self.beta, *parts, self.restarts, self.n_ladders)


def of_tempering(record: RunRecord) -> list[LogEvidence]:
    """Return the estimates of tempered chains, the recommended one first.

    Simulated tempering recommends the Rao-Blackwellized estimate of Carlson et al. (2016), and
    parallel tempering the multistate one. The populations that chains have their first states from
    are compared with it, and so is importance sampling from a density that is fitted to the draws,
    where there is one. It is recommended instead if it is far more precise: the error of tempered
    chains cannot count what all of them missed for lack of time, such as the neck of a funnel.
    """
    states = _states(record)
    found = {name: estimator() for name, estimator in _reported(record, states).items()}
    name, first = next(iter(found.items()))
    annealed = jarzynski(record.work(Role.FORWARD), name="smc")
    verdicts = [*_of_populations(first, annealed)]
    if annealed.value < first.value:
        annealed = judged(annealed, verdicts)
    else:
        first = judged(first, verdicts)
    first = judged(first, _of_restarts(states))
    first = judged(first, _of_drift(first, record, states))
    first = _of_initial_iterations(first, record)
    first, drawn = with_check(first, record)
    others = [judged(each, _beside(first, each)) for key, each in found.items() if key != name]
    return ranked(first, [*others, annealed], drawn, _smaller(first, drawn))


def others_of_tempering(record: RunRecord) -> Mapping[str, Callable[[], LogEvidence]]:
    """Return the estimators of tempered chains that a run does not report, by name."""
    states = _states(record)
    arguments, groups = states.arguments, states.ladder
    found: dict[str, Callable[[], LogEvidence]] = {
        "chained_bar": partial(chained_bar, *arguments, groups=groups),
        **{
            f"ti_{rule}": partial(ti, *arguments, rule=rule, groups=groups)
            for rule in ("riemann", "trapezoid")
        },
    }
    if record.facts.tempering_log_z is not None:
        log_z, prior = _weights(record)
        found["ts"] = partial(ts, states.rung, log_z, prior=prior, groups=groups)
    return found


def _reported(record: RunRecord, states: _States) -> dict[str, Callable[[], LogEvidence]]:
    """Return the estimators that a run reports, the recommended one first."""
    arguments, groups = states.arguments, states.ladder
    multistate = partial(mbar, *arguments, groups=groups)
    rest: dict[str, Callable[[], LogEvidence]] = {
        "stepping_stone": partial(stepping_stone, *arguments, groups=groups),
        "stepping_stone_reverse": partial(
            stepping_stone, *arguments, direction="reverse", groups=groups
        ),
        "ti": partial(ti, *arguments, rule="corrected", groups=groups),
    }
    if record.facts.tempering_log_z is None:
        return {"mbar": multistate, **rest}
    log_z, prior = _weights(record)
    return {
        "rts": partial(rts, states.beta, states.energy, log_z, prior=prior, groups=groups),
        "mbar": multistate,
        "ti_rb": partial(ti_rb, states.beta, states.energy, log_z, prior=prior, groups=groups),
        **rest,
    }


def _weights(record: RunRecord) -> tuple[Floats, Floats]:
    """Return the log normalising constants and the prior by which chains drew temperatures."""
    facts = record.facts
    return np.array(facts.tempering_log_z, float), np.array(facts.tempering_prior, float)


def _states(record: RunRecord) -> _States:
    """Return the states of the chains of all blocks."""
    chains = record.tempered
    first = np.cumsum([0, *(each.ladder.max() + 1 for each in chains)])
    ladder = [
        np.broadcast_to(each.ladder + at, each.energy.shape).ravel()
        for each, at in zip(chains, first[:-1], strict=True)
    ]
    late = [
        np.repeat(np.arange(len(each.energy)) >= len(each.energy) // 2, each.energy.shape[1])
        for each in chains
    ]
    return _States(
        record.beta,
        np.concatenate([each.energy.ravel() for each in chains]),
        np.concatenate([each.rung.ravel() for each in chains]).astype(np.int64),
        np.concatenate(ladder),
        np.concatenate(late),
        int(sum(each.restarts.sum() for each in chains)),
        int(first[-1]),
    )


def _smaller(first: LogEvidence, drawn: list[LogEvidence]) -> LogEvidence | None:
    """Return importance sampling if it is reliable, and its error is less than half as large."""
    if not drawn or not (first.status == drawn[-1].status == Status.OK):
        return None
    if drawn[-1].mcse * _GROSS >= first.mcse:
        return None
    message = (
        f"importance is recommended because its error is {drawn[-1].mcse:.2g} nats, and that of "
        f"{first.estimator} is {first.mcse:.2g} nats."
    )
    return replace(drawn[-1], message=message)


def _of_populations(first: LogEvidence, annealed: LogEvidence) -> Iterator[Verdict]:
    """Yield the verdict on the smaller estimate, of tempering or of populations it starts from.

    The mean evidence of populations is unbiased and never negative, so that it rarely exceeds the
    true one by far. It can be far too low, and small populations often are.
    """
    if not (first.status == annealed.status == Status.OK and contradict(first, annealed)):
        return
    message = (
        f"{first.estimator} gives {first.value:.3f}, and the populations that chains start from "
        f"{annealed.value:.3f}: "
    )
    if annealed.value < first.value:
        message += f"these are too small to find all modes. Use the estimate '{first.estimator}'."
    else:
        message += (
            "chains left out a part of the target. Use more draws, or a kernel that mixes faster."
        )
    yield Status.INCONSISTENT, message


def _beside(first: LogEvidence, other: LogEvidence) -> Iterator[Verdict]:
    """Yield the verdict on an estimate from the same states that contradicts the first one.

    Stepping stones and mean energies use the states of one or two temperatures for each step, and
    need temperatures that are closer together.
    """
    if first.status == other.status == Status.OK and contradict(first, other):
        yield (
            Status.INCONSISTENT,
            f"the estimate differs from {first.estimator} by {abs(first.value - other.value):.3f} "
            "nats, by far more than its error: neighbouring temperatures are too far apart for it. "
            f"Use the estimate '{first.estimator}', or more temperatures.",
        )


def _of_restarts(states: _States) -> Iterator[Verdict]:
    """Yield the verdict on chains that hardly came from the reference to the target."""
    enough = max(_LEAST_PER_LADDER * states.n_ladders, _LEAST_RESTARTS)
    if states.restarts >= enough:
        return
    visited = np.bincount(states.rung, minlength=len(states.beta)) > 0
    if states.restarts:
        problem = f"chains came from the reference to the target only {states.restarts} times"
    elif visited[0] and visited[-1]:
        problem = "no chain came from the reference to the target"
    else:
        problem = "chains never left a part of the temperatures"
    # an error that is large because chains do not move would not become small with longer chains
    yield (
        Status.NOT_MIXED,
        f"{problem} in {states.n_ladders} ladders, and at least {enough:.0f} times are needed for "
        "an error that can be trusted. Use more draws, more temperatures, or a kernel that mixes "
        "faster.",
        (Status.OK, Status.HIGH_VARIANCE),
    )


def _of_drift(estimate: LogEvidence, record: RunRecord, states: _States) -> Iterator[Verdict]:
    """Yield the verdict on a record whose halves contradict each other."""
    if estimate.status != Status.OK:
        return
    name = estimate.estimator
    early, late = (_reported(record, states.part(late=half))[name]() for half in (False, True))
    error = float(np.hypot(early.mcse, late.mcse))
    distance = abs(early.value - late.value)
    if distance > _DRIFT * error:
        yield (
            Status.NOT_MIXED,
            f"the first half of the iterations gives {early.value:.3f} and the second half "
            f"{late.value:.3f}; they differ by {times(distance, error)} standard errors: chains "
            "had not forgotten their first states. Use more draws.",
        )


def _of_initial_iterations(estimate: LogEvidence, record: RunRecord) -> LogEvidence:
    """Return an estimate whose message says if the initial iterations did not converge.

    This is no status: the estimate is consistent with any weights of the temperatures.
    """
    deviation = record.facts.initial_deviation or 0.0
    if deviation < _TOLERANCE:
        return estimate
    message = (
        f"the initial iterations ended after {record.facts.initial_rounds} rounds, in the last "
        f"of which a temperature was visited {100.0 * deviation:.0f} % more or less often than its "
        f"prior says ({100.0 * _TOLERANCE:.0f} % is aimed at). The estimate does not depend on "
        "this, but its error may become smaller with more sweeps in each round, such as "
        "pe.methods.SimulatedTempering(sweeps=200)."
    )
    return in_addition(estimate, message)
