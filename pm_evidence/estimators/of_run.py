"""All estimates of one run, the recommended one first, and any other that its record allows."""

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from pm_evidence.core.records import LogEvidence, Role, RunRecord
from pm_evidence.estimators.annealed_paths import one_sided, two_sided
from pm_evidence.estimators.bar import bar
from pm_evidence.estimators.cumulant import (
    cumulant,
    cumulant_forward,
    cumulant_reverse,
    lower_bound,
    upper_bound,
)
from pm_evidence.estimators.difference import difference
from pm_evidence.estimators.histogram import histogram, histogram_posterior
from pm_evidence.estimators.islands import integrated, of_islands
from pm_evidence.estimators.jarzynski import jarzynski, jarzynski_reverse, single_run
from pm_evidence.estimators.of_given import of_given
from pm_evidence.estimators.of_pair import of_pair
from pm_evidence.estimators.of_tempering import of_tempering, others_of_tempering
from pm_evidence.estimators.verdicts import (
    beside_bridge,
    beyond_annealing,
    known,
    of_few_values,
    of_integration,
    of_more_peaks,
    of_noise,
    short_of_target,
    short_of_trial,
    unbounded,
    unfinished,
    with_stage,
)

__all__ = ["applicable", "estimates"]

Estimator = Callable[[], LogEvidence]


def estimates(record: RunRecord) -> list[LogEvidence]:
    """Return all estimates that a run reports, the recommended one first.

    Parameters
    ----------
    record : RunRecord
        A run of any sampler.

    Notes
    -----
    With paths in both directions Bennett's ratio is recommended, because it uses all work and has
    the smallest variance. With islands of SMC alone the rule is that of `recommend`, and with
    forward paths alone the mean weight is recommended.

    The estimates depend on the record alone: facts of the run that change them, such as the noise
    of an estimated likelihood, the limit that ended the run, or the normalising constant of a prior
    with potentials, are entries of ``record.info``.
    """
    found = _before_the_constant(record)
    first = found[:1] if "prior_constant" in record.info else found
    return [_relative(estimate, record) for estimate in first]


def applicable(record: RunRecord) -> Mapping[str, Estimator]:
    """Return every estimator that can be computed from a record, by name.

    Parameters
    ----------
    record : RunRecord
        A run of any sampler.

    Returns
    -------
    mapping of str to callable
        First those that the run itself reports, in their order; called without arguments, each
        returns its estimate. The others are computed from the same work, and no estimate of another
        kind has passed a verdict on them.
    """
    found = _before_the_constant(record)
    others = {
        name: partial(_computed, estimator, record) for name, estimator in _others(record).items()
    }
    reported = {each.estimator: partial(_relative, each, record) for each in found}
    return {**reported, **{name: each for name, each in others.items() if name not in reported}}


def _before_the_constant(record: RunRecord) -> list[LogEvidence]:
    """Return the estimates of the path, with the verdicts of the run's facts."""
    info = record.info
    if "evidences" in info:
        return of_pair(record)
    if record.tempered:
        found = of_tempering(record)
    elif record.of(Role.GIVEN):
        found = of_given(record)
    elif record.of_islands:
        found = of_islands(
            record.of(Role.FORWARD),
            info.get("moment_distance"),
            correlation=info.get("chain_correlation"),
            coarse=bool(info.get("coarse")),
        )
        if info.get("reference"):
            found = beside_bridge(found)
        if info.get("estimated_likelihood"):
            found += integrated(record)
    elif not record.of(Role.REVERSE):
        found = one_sided(record)
    else:
        found = two_sided(record)
    if info.get("unbounded"):
        found = [unbounded(estimate) for estimate in found]
    if info.get("more_peaks"):
        found = [of_more_peaks(estimate, info["n_peaks"]) for estimate in found]
    if info.get("stepwise"):
        found = [with_stage(estimate, record.of(Role.FORWARD)) for estimate in found]
    if "trial_log_z" in info:
        kind = info.get("trial", info.get("reference", "base rates"))
        trial = info["trial_log_z"], info["trial_mcse"], kind
        found = [short_of_trial(estimate, *trial) for estimate in found]
    if "n_values" in info:
        seen = info["n_values"], info["n_prior_draws"]
        found = [of_few_values(estimate, *seen) for estimate in found]
    if "annealed_log_z" in info:
        found = [beyond_annealing(estimate, info["annealed_log_z"]) for estimate in found]
    if "short_of" in info:
        found[0] = short_of_target(found[0], info["short_of"])
    if "stopped_by" in info:
        found[0] = unfinished(found[0], info["stopped_by"], info["target_mcse"])
    if "integration_error" in info:
        found = [of_integration(estimate, info["integration_error"]) for estimate in found]
    return [_of_noise(estimate, record) for estimate in found]


def _of_noise(estimate: LogEvidence, record: RunRecord) -> LogEvidence:
    known = "log_likelihood_variance" in record.info
    return of_noise(estimate, record.info) if known else estimate


def _relative(estimate: LogEvidence, record: RunRecord) -> LogEvidence:
    """Return an estimate relative to the prior, where potentials belong to that, if it is known."""
    constant = record.info.get("prior_constant")
    if constant is not None:
        estimate = difference(estimate, LogEvidence(**constant))
    return known(estimate)


def _computed(estimator: Estimator, record: RunRecord) -> LogEvidence:
    """Return an estimate that the run does not report, with the verdicts of the run's facts."""
    found = estimator()
    if record.info.get("unbounded"):
        found = unbounded(found)
    if record.info.get("more_peaks"):
        found = of_more_peaks(found, record.info["n_peaks"])
    return _relative(_of_noise(found, record), record)


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
        exact = record.info.get("reverse_start") == "exact"
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
