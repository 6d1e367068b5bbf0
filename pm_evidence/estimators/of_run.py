"""All estimates of one run, the recommended one first, and any other that its record allows."""

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from pm_evidence.core.records import LogEvidence, Role, RunRecord
from pm_evidence.estimators.bar import bar, histogram, histogram_posterior
from pm_evidence.estimators.cumulant import (
    cumulant,
    cumulant_forward,
    cumulant_reverse,
    lower_bound,
    upper_bound,
)
from pm_evidence.estimators.jarzynski import jarzynski, jarzynski_reverse, single_run
from pm_evidence.estimators.of_islands import integrated, of_given, of_islands
from pm_evidence.estimators.of_paths import difference, of_pair, one_sided, two_sided
from pm_evidence.estimators.of_tempering import of_tempering, others_of_tempering
from pm_evidence.estimators.verdicts import (
    judged,
    known,
    of_facts,
    of_integration,
    of_noise,
    of_survey,
    short_of_target,
    unfinished,
)

Estimator = Callable[[], LogEvidence]


def estimates(record: RunRecord) -> list[LogEvidence]:
    """Return all estimates that a run reports, the recommended one first.

    With paths in both directions Bennett's ratio is recommended, because it uses all work and has
    the smallest variance. With islands of SMC alone the rule is that of `recommend`, and with
    forward paths alone the mean weight is recommended.

    The estimates depend on the record alone: facts of the run that change them, such as the noise
    of an estimated likelihood, the limit that ended the run, or the normalising constant of a prior
    with potentials, are in ``record.facts``.
    """
    found = _before_the_constant(record)
    first = found if record.facts.prior_constant is None else found[:1]
    return [_relative(estimate, record) for estimate in first]


def applicable(record: RunRecord) -> Mapping[str, Estimator]:
    """Return every estimator that can be computed from a record, by name."""
    reported = {
        each.estimator: partial(_relative, each, record) for each in _before_the_constant(record)
    }
    others = {
        name: partial(_computed, estimator, record) for name, estimator in _others(record).items()
    }
    return {**reported, **{name: each for name, each in others.items() if name not in reported}}


def _before_the_constant(record: RunRecord) -> list[LogEvidence]:
    """Return the estimates of the path, with the verdicts of the run's facts."""
    facts = record.facts
    if facts.evidences is not None:
        return of_pair(record)
    found = [judged(each, of_facts(each, record)) for each in _of_blocks(record)]
    if facts.short_of is not None:
        found[0] = short_of_target(found[0], facts.short_of)
    if facts.stopped_by is not None and facts.target_mcse is not None:
        found[0] = unfinished(found[0], facts.stopped_by, facts.target_mcse)
    if facts.integration_error is not None:
        found = [of_integration(each, facts.integration_error) for each in found]
    return [of_noise(estimate, facts) for estimate in found]


def _of_blocks(record: RunRecord) -> list[LogEvidence]:
    """Return the estimates of the blocks, which depend on what these are."""
    if record.tempered:
        return of_tempering(record)
    if record.of(Role.GIVEN):
        return of_given(record)
    if record.of_islands:
        return of_islands(record)
    return two_sided(record) if record.of(Role.REVERSE) else one_sided(record)


def _relative(estimate: LogEvidence, record: RunRecord) -> LogEvidence:
    """Return an estimate relative to the prior, where potentials belong to that, if it is known."""
    constant = record.facts.prior_constant
    return known(estimate if constant is None else difference(estimate, constant))


def _computed(estimator: Estimator, record: RunRecord) -> LogEvidence:
    """Return an estimate that the run does not report, with the verdicts of the run's facts."""
    found = judged(estimator(), of_survey(record.facts))
    return _relative(of_noise(found, record.facts), record)


def _others(record: RunRecord) -> dict[str, Estimator]:
    """Return the estimators that need no more than the work and the traces of this record."""
    forward, reverse = record.work(Role.FORWARD), record.work(Role.REVERSE)
    origin = record.origin
    finite = bool(np.isfinite(forward).all())
    found: dict[str, Estimator] = {
        "jarzynski": partial(jarzynski, forward),
        "lower_bound": partial(lower_bound, forward),
    }
    if record.tempered:
        return found | dict(others_of_tempering(record))
    if finite:
        found["cumulant_forward"] = partial(cumulant_forward, forward)
    if record.of(Role.REVERSE):
        exact = record.facts.reverse_start == "exact"
        found |= {
            "bar": partial(bar, forward, reverse, reverse_blocks=origin),
            "histogram": partial(histogram, forward, reverse, reverse_blocks=origin),
            # its draws have a seed of their own, so that a record gives one number
            "histogram_posterior": partial(histogram_posterior, forward, reverse, random_seed=0),
            "jarzynski_reverse": partial(jarzynski_reverse, reverse, blocks=origin),
            "cumulant_reverse": partial(cumulant_reverse, reverse, blocks=origin),
            "upper_bound": partial(upper_bound, reverse, blocks=origin, exact=exact),
        }
        if finite:
            found["cumulant"] = partial(cumulant, forward, reverse, reverse_blocks=origin)
        if not np.isfinite(forward).any():  # there is no work density then
            del found["histogram_posterior"]
    return found | _of_populations(record)


def _of_populations(record: RunRecord) -> dict[str, Estimator]:
    """Return the estimators of islands, also of those that reverse paths start from."""
    role = Role.FORWARD if record.of_islands else Role.ISLAND
    if not record.of(role):
        return {}
    work = record.work(role)
    stated = np.array([block.relative_variance for block in record.of(role)])
    found: dict[str, Estimator] = {"smc": partial(jarzynski, work, name="smc")}
    if not np.isnan(stated).any():
        found["single_run"] = partial(single_run, work, stated)
    if record.of_islands and (area := integrated(record)):
        found["power_posterior"] = lambda: area[0]
    return found
