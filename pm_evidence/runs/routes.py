"""Routes to an evidence, the cheapest first, until one of them certifies itself.

1. ``"importance"``: a coarse annealing from the prior, and draws from a density that is fitted to
   it; see ``runs.importance``.
2. ``"annealing"``: annealing from the prior with as many particles as the error needs.
3. ``"long_chains"``: the same with longer chains, if those of the second route hardly moved.

A route is the last one if its estimate is ok and its error small enough. If none is, and the first
one, which is unbiased, demands more evidence than the last one found, it is the result.
"""

from dataclasses import replace
from math import inf
from typing import Any

import numpy as np

from pm_evidence.core.exceptions import NumericalError
from pm_evidence.core.interrupts import interrupt_answered
from pm_evidence.core.records import CrossCheck, LogEvidence, Role, Status
from pm_evidence.estimators.verdicts import DISAGREEMENT
from pm_evidence.execution.blocks import dividing_rows
from pm_evidence.runs import defaults
from pm_evidence.runs.anneal import anneal_moved
from pm_evidence.runs.importance import importance_route
from pm_evidence.runs.rounds import EVALUATIONS_EACH, Found, Limits, Run, was_interrupted
from pm_evidence.samplers.smc import SMC
from pm_evidence.targets.model.target import PyMCTarget

# How much longer a route takes than those before it, at least.
_GROWTH = 2.0
# The third route: how many times longer its chains are, and how many each island has at least, for
# the usual error and for large ones.
_LONGER, _CHAINS, _FEW_CHAINS = 4, 10, 2
# Estimates of the first route that check the last one, and what they are called there.
_CHECKS = {"smc": "coarse", "importance": "fitted"}


def anneal_by_routes(run: Run, target: PyMCTarget, least_draws: int = 0) -> Found:
    """Take the routes in turn until the error is small enough."""
    routes = _Routes(run, target, least_draws)
    for route in (routes.importance, routes.annealing, routes.long_chains):
        if routes.ended:
            break
        route()
    return routes.result()


class _Routes:
    """The routes of one run, and what those that were taken found."""

    def __init__(self, run: Run, target: PyMCTarget, least_draws: int) -> None:
        self.run, self.target, self.least_draws = run, target, least_draws
        self.target_mcse = float(run.limits.target_mcse or 0.0)
        self.wanted = defaults.share_of_effort(self.target_mcse)
        n_draws = int(defaults.effort_of(target) * self.wanted * run.sampler.first_round(run.size))
        self.size = run.sampler.size(n_draws)
        self.started, self.taken = run.time(), list[Found]()
        self.lost = 0  # evaluations of a route that failed
        self.interrupted = False

    @property
    def ended(self) -> bool:
        """Whether no further route is needed, or none is expected to end in time."""
        if not self.taken:
            return False
        last = self.taken[-1]
        status = last.best.status
        annealed = last.route != "importance"
        if annealed and (status != Status.NOT_MIXED or last.record.facts.more_peaks):
            return True
        enough = last.reached(self.target_mcse) or status == Status.UNBOUNDED
        return self.interrupted or enough or self.too_late

    @property
    def too_late(self) -> bool:
        """Whether a further route, which takes longer, is not expected to end in time."""
        seconds = self.taken[-1].seconds_each if self.taken else 0.0
        longer = seconds * EVALUATIONS_EACH * self.run.sampler.first_round(self.size)
        elapsed = self.run.time() - self.started
        return elapsed + max(_GROWTH * elapsed, longer) > self.run.limits.max_time

    def importance(self) -> None:
        """Draw from a density fitted to a coarse annealing."""
        try:
            found = importance_route(self.run, self.target, self.least_draws)
        except NumericalError as error:  # the next route says what is wrong
            self.lost = error.n_evaluations
            if self.too_late:
                raise
            return
        self.taken.append(found)
        self.interrupted = was_interrupted(found.record)

    def annealing(self) -> None:
        """Anneal from the prior, in coordinates that a pilot finds best."""
        self._anneal("annealing", self.run.sampler, self.size)

    def long_chains(self) -> None:
        """Anneal from the prior with longer chains."""
        usual: Any = self.run.sampler
        longer = replace(usual, chain_length=_LONGER * usual.chain_length)
        n_chains = max(round(self.wanted * _CHAINS), _FEW_CHAINS)
        self._anneal("long_chains", longer, max(self.size, n_chains * longer.chain_length))

    def _anneal(self, name: str, sampler: Any, size: int) -> None:
        """Anneal islands of ``size`` particles in the time that is left."""
        with self.run.display.compiling():
            target = defaults.compiled_if_long(
                self.target, inf if name == "long_chains" else defaults.ANNEALING
            )
        left = max(self.run.limits.max_time - (self.run.time() - self.started), 0.0)
        limits = replace(self.run.limits, max_time=left)
        run = replace(self.run, sampler=sampler, size=size, limits=limits, effort=self.wanted)
        try:
            found = replace(anneal_moved(run, target), route=name)
        except KeyboardInterrupt:
            if not self.taken:
                raise
            self.interrupted = True
            self.run.journal.close()
            interrupt_answered()
            return
        self.interrupted = was_interrupted(found.record)
        # few islands of a round that was interrupted are worth less than the route before
        few = len(found.record.of(Role.FORWARD)) < sampler.islands
        if not (self.interrupted and self.taken and few):
            self.taken.append(found)

    def result(self) -> Found:
        """Return what the last route found, with the cost of all.

        If it is not ok and the first route demands more, what the first one found.
        """
        first, last = self.taken[0], self.taken[-1]
        facts = [each.record.facts for each in self.taken]
        shared = {
            "routes": {each.route: _in_words(each) for each in self.taken},
            "n_evaluations": self.lost + sum(each.n_evaluations for each in facts),
            "n_nan": sum(each.n_nan for each in facts),
            "tuning_time": sum(each.tuning_time or 0.0 for each in facts),
            "sampling_time": sum(each.sampling_time or 0.0 for each in facts),
        }
        found = last.stating(**shared, route=last.route)
        limit = None
        if self.interrupted:
            limit = Status.INTERRUPTED
        elif last.route == "importance" and not last.reached(self.target_mcse):
            limit = Status.MAX_TIME
        if limit is not None:
            found = found.stating(stopped_by=limit.value, target_mcse=self.target_mcse)
        if last is first or first.route != "importance":
            return found
        check = _as_check(first)
        if check is None:
            return found
        found = found.stating(cross_check=check)
        if found.best.status == Status.OK or not all(
            value > found.best.value + DISAGREEMENT * float(np.hypot(mcse, found.best.mcse))
            for value, mcse in ((check.log_z, check.mcse), (first.best.value, first.best.mcse))
        ):
            return found
        # check and estimate of the first route exceed that of the last one
        return first.stating(**shared, route=first.route, annealed_log_z=found.best.value)


def _in_words(found: Found) -> dict[str, Any]:
    """Return the recommended estimate of a route and its cost in plain types."""
    best = found.best
    return {
        "estimator": best.estimator,
        "value": best.value,
        "mcse": best.mcse,
        "status": str(best.status),
        "n_evaluations": found.record.facts.n_evaluations,
    }


def _as_check(first: Found) -> CrossCheck | None:
    """Return the fact by which the first route checks the last one.

    Its islands and the draws from its fitted density give two estimates that are unbiased for the
    evidence and never negative. The one that demands more is chosen.
    """
    found = [each for each in first.evidence if each.estimator in _CHECKS]
    found = [each for each in found if np.isfinite([each.value, each.mcse]).all()]
    if not found:
        return None
    most = max(found, key=lambda each: each.value - DISAGREEMENT * each.mcse)
    return CrossCheck(most.value, most.mcse, _CHECKS[most.estimator])


_MOST_ROUNDS = 10  # in draws of the first


def evidence_of(target: Any, target_mcse: float, cores: int, seed: int) -> LogEvidence:
    """Return the recommended estimate of a target, as `sample_evidence` would make it."""
    sampler = SMC()
    size = sampler.size(int(sampler.default_draws * defaults.effort_of(target)))
    most = _MOST_ROUNDS * sampler.first_round(size)
    limits = Limits(target_mcse=target_mcse, max_draws=most)
    run = Run(sampler, size, cores, None, seed, name=sampler.name, limits=limits)
    with dividing_rows(cores, None), run.display:
        return (anneal_moved if defaults.lacking(target) else anneal_by_routes)(run, target).best
