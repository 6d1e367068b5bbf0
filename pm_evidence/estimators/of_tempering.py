"""All estimates of a run of tempered chains, and whether the chains mixed."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from pm_evidence.core.records import LogEvidence, Role, RunRecord, Status
from pm_evidence.estimators.errors import Verdict, judged
from pm_evidence.estimators.jarzynski import jarzynski
from pm_evidence.estimators.mbar import mbar
from pm_evidence.estimators.rts import rts, ts
from pm_evidence.estimators.ti import chained_bar, stepping_stone, ti, ti_rb
from pm_evidence.estimators.verdicts import contradict, in_addition, ranked, times, with_check

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


def of_tempering(record: RunRecord) -> list[LogEvidence]:
    """Return the estimates of tempered chains, the recommended one first.

    Simulated tempering recommends the Rao-Blackwellized estimate of Carlson et al. (2016), and
    parallel tempering the multistate one. The populations that chains have their first states from
    are compared with it, and so is importance sampling from a density that is fitted to the draws,
    where there is one. It is recommended instead if it is far more precise: the error of tempered
    chains cannot count what all of them missed for lack of time, such as the neck of a funnel.
    """
    found = {name: estimator() for name, estimator in _reported(record).items()}
    name, first = next(iter(found.items()))
    annealed = jarzynski(record.work(Role.FORWARD), name="smc")
    verdicts = [*_of_populations(first, annealed)]
    if annealed.value < first.value:
        annealed = judged(annealed, verdicts)
    else:
        first = judged(first, verdicts)
    first = judged(first, _of_restarts(record))
    first = judged(first, _of_drift(first, record))
    first = _of_initial_iterations(first, record)
    first, drawn = with_check(first, record)
    others = [judged(each, _beside(first, each)) for key, each in found.items() if key != name]
    return ranked(first, [*others, annealed], drawn, _smaller(first, drawn))


def others_of_tempering(record: RunRecord) -> Mapping[str, Callable[[], LogEvidence]]:
    """Return the estimators of tempered chains that a run does not report, by name."""
    states = _states(record)
    found: dict[str, Callable[[], LogEvidence]] = {
        "chained_bar": partial(chained_bar, **states),
        **{f"ti_{rule}": partial(ti, rule=rule, **states) for rule in ("riemann", "trapezoid")},
    }
    if record.facts.tempering_log_z is not None:
        rung, groups = states["rung"], states["groups"]
        found["ts"] = partial(ts, rung, groups=groups, **_weights(record))
    return found


def _reported(
    record: RunRecord, halves: Collection[int] = (0, 1)
) -> dict[str, Callable[[], LogEvidence]]:
    """Return the estimators that a run reports, the recommended one first."""
    states = _states(record, halves)
    multistate: dict[str, Callable[[], LogEvidence]] = {"mbar": partial(mbar, **states)}
    rest: dict[str, Callable[[], LogEvidence]] = {
        "stepping_stone": partial(stepping_stone, **states),
        "stepping_stone_reverse": partial(stepping_stone, direction="reverse", **states),
        "ti": partial(ti, **states),
    }
    if record.facts.tempering_log_z is None:
        return multistate | rest
    del states["rung"]
    states |= _weights(record)
    return {"rts": partial(rts, **states), **multistate, "ti_rb": partial(ti_rb, **states), **rest}


def _weights(record: RunRecord) -> dict[str, Any]:
    """Return the log normalising constants and the prior by which chains drew temperatures."""
    facts = record.facts
    arrays = {"log_z": facts.tempering_log_z, "prior": facts.tempering_prior}
    return {name: np.array(values, float) for name, values in arrays.items()}


def _states(record: RunRecord, halves: Collection[int] = (0, 1)) -> dict[str, Any]:
    """Return the states of the chains of all blocks as estimators take them.

    ``halves`` are those of the record of each block that count: the first, 0, or the second, 1.
    """
    parts, n_ladders = [], 0
    for each in record.tempered:
        n = len(each.energy)
        kept = np.isin(np.arange(n) >= n // 2, list(halves))
        ladder = np.broadcast_to(each.ladder + n_ladders, each.energy.shape)
        parts.append([values[kept].ravel() for values in (each.energy, each.rung, ladder)])
        n_ladders += int(each.ladder.max()) + 1
    energy, rung, groups = (np.concatenate(part) for part in zip(*parts, strict=True))
    return {"beta": record.beta, "energy": energy, "rung": rung.astype(np.int64), "groups": groups}


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


def _of_restarts(record: RunRecord) -> Iterator[Verdict]:
    """Yield the verdict on chains that hardly came from the reference to the target."""
    restarts = int(sum(each.restarts.sum() for each in record.tempered))
    n_ladders = int(sum(each.ladder.max() + 1 for each in record.tempered))
    enough = max(_LEAST_PER_LADDER * n_ladders, _LEAST_RESTARTS)
    if restarts >= enough:
        return
    ends = 0, len(record.beta) - 1
    visited = [any((each.rung == k).any() for each in record.tempered) for k in ends]
    if restarts:
        problem = f"chains came from the reference to the target only {restarts} times"
    elif all(visited):
        problem = "no chain came from the reference to the target"
    else:
        problem = "chains never left a part of the temperatures"
    # an error that is large because chains do not move would not become small with longer chains
    yield (
        Status.NOT_MIXED,
        f"{problem} in {n_ladders} ladders, and at least {enough:.0f} times are needed for an "
        "error that can be trusted. Use more draws, more temperatures, or a kernel that mixes "
        "faster.",
        (Status.OK, Status.HIGH_VARIANCE),
    )


def _of_drift(estimate: LogEvidence, record: RunRecord) -> Iterator[Verdict]:
    """Yield the verdict on a record whose halves contradict each other."""
    if estimate.status != Status.OK:
        return
    early, late = (_reported(record, (half,))[estimate.estimator]() for half in (0, 1))
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
