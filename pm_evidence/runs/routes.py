"""Routes to an evidence, the cheapest first, until one of them certifies itself.

1. ``"importance"``: a coarse annealing from the prior, and draws from a density that is fitted to
   it; see ``runs.importance``.
2. ``"annealing"``: annealing from the prior with as many particles as the error needs.
3. ``"long_chains"``: the same with longer chains, if those of the second route hardly moved.

A route is the last one if its estimate is ok and its error small enough. If none is, and the first
one, which is unbiased, demands more evidence than the last one found, it is the result.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np

from pm_evidence.core.contracts import Kernel
from pm_evidence.core.exceptions import ModelError, NumericalError
from pm_evidence.core.interrupts import interrupt_answered
from pm_evidence.core.records import CrossCheck, LogEvidence, Role, RunRecord, Status
from pm_evidence.estimators.of_run import estimates
from pm_evidence.estimators.verdicts import DISAGREEMENT
from pm_evidence.execution.blocks import dividing_rows
from pm_evidence.execution.display import Display
from pm_evidence.runs.anneal import anneal_moved
from pm_evidence.runs.defaults import effort_of, lacking
from pm_evidence.runs.importance import RouteResult, grown_effort, importance_route, share_of_effort
from pm_evidence.runs.rounds import EVALUATIONS_EACH, Limits, Run, was_interrupted
from pm_evidence.samplers.ais import AIS
from pm_evidence.samplers.smc import SMC
from pm_evidence.targets.compile.numpy_density import NumpyDensity
from pm_evidence.targets.compile.numpy_graph import LoopError, NotBatchedError
from pm_evidence.targets.estimated.variable import estimated_variables
from pm_evidence.targets.model.cache import target_of
from pm_evidence.targets.model.target import PyMCTarget, ReparameterisedTarget
from pm_evidence.targets.plates.structure import has_global_children, structure_of_model
from pm_evidence.targets.plates.target import PlateTarget

# How much longer a route takes than those before it, at least.
_GROWTH = 2.0
# The third route: how many times longer its chains are, and how many each island has at least, for
# the usual error and for large ones.
_LONGER, _CHAINS, _FEW_CHAINS = 4, 10, 2
# Estimates of the first route that check the last one, and what they are called there.
_CHECKS = {"smc": "coarse", "importance": "fitted"}


def anneal_by_routes(
    run: Run,
    target: PyMCTarget,
    kernel: str | Kernel,
    display: Display,
    least_draws: int = 0,
) -> tuple[Any, RunRecord, list[LogEvidence]]:
    """Take the routes in turn until the error is small enough."""
    routes = _Routes(run, target, kernel, display, least_draws)
    for route in (routes.importance, routes.annealing, routes.long_chains):
        if routes.ended:
            break
        route()
    return routes.result()


class _Routes:
    """The routes of one run, and what those that were taken found."""

    def __init__(
        self,
        run: Run,
        target: PyMCTarget,
        kernel: str | Kernel,
        display: Display,
        least_draws: int,
    ) -> None:
        self.run, self.target, self.kernel, self.display = run, target, kernel, display
        self.least_draws = least_draws
        self.target_mcse = float(run.limits.target_mcse or 0.0)
        self.wanted = share_of_effort(self.target_mcse)
        n_draws = int(effort_of(target) * self.wanted * run.sampler.first_round(run.size))
        self.size = run.sampler.size(n_draws)
        self.started, self.taken = run.time(), list[RouteResult]()
        self.lost = 0  # evaluations of a route that failed
        self.interrupted = False

    @property
    def ended(self) -> bool:
        """Whether no further route is needed, or none is expected to end in time."""
        if not self.taken:
            return False
        last = self.taken[-1]
        if self.interrupted:
            return True
        if last.name != "importance" and (
            last.status != Status.NOT_MIXED or last.record.facts.more_peaks
        ):
            return True
        return last.reached(self.target_mcse) or last.status == Status.UNBOUNDED or self.too_late

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
            found = importance_route(
                self.run, self.target, self.kernel, self.display, self.least_draws
            )
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
        with self.display.compiling():
            target = compiled_if_long(self.target, inf if name == "long_chains" else ANNEALING)
        left = max(self.run.limits.max_time - (self.run.time() - self.started), 0.0)
        limits = replace(self.run.limits, max_time=left)
        run = replace(self.run, sampler=sampler, size=size, limits=limits, effort=self.wanted)
        try:
            found = anneal_moved(run, target, self.kernel, self.display, None, "auto")
        except KeyboardInterrupt:
            if not self.taken:
                raise
            self.interrupted = True
            self.run.journal.close()
            interrupt_answered()
            return
        self.interrupted = was_interrupted(found[1])
        # few islands of a round that was interrupted are worth less than the route before
        few = len(found[1].of(Role.FORWARD)) < sampler.islands
        if not (self.interrupted and self.taken and few):
            self.taken.append(RouteResult(name, *found))

    def result(self) -> tuple[Any, RunRecord, list[LogEvidence]]:
        """Return target, record and estimates of the last route, with the cost of all.

        If it is not ok and the first route demands more, those of the first one.
        """
        first, last = self.taken[0], self.taken[-1]
        facts = [each.record.facts for each in self.taken]
        shared = {
            "routes": {each.name: each.in_words() for each in self.taken},
            "n_evaluations": self.lost + sum(each.n_evaluations for each in facts),
            "n_nan": sum(each.n_nan for each in facts),
            "tuning_time": sum(each.tuning_time or 0.0 for each in facts),
            "sampling_time": sum(each.sampling_time or 0.0 for each in facts),
        }
        record = last.record.stating(**shared, route=last.name)
        limit = None
        if self.interrupted:
            limit = Status.INTERRUPTED
        elif last.name == "importance" and not last.reached(self.target_mcse):
            limit = Status.MAX_TIME
        if limit is not None:
            record = record.stating(stopped_by=limit.value, target_mcse=self.target_mcse)
        if last is not first and first.name == "importance":
            check = _as_check(first)
            record = record if check is None else record.stating(cross_check=check)
        evidence = estimates(record)
        if _demands_more(record.facts.cross_check, first.evidence[0], evidence[0]):
            record = first.record.stating(
                **shared, route=first.name, annealed_log_z=evidence[0].value
            )
            return first.target, record, estimates(record)
        return last.target, record, evidence


def _demands_more(check: CrossCheck | None, first: LogEvidence, last: LogEvidence) -> bool:
    """Return whether check and estimate of the first route exceed that of the last, not ok, one."""
    if check is None or last.status == Status.OK:
        return False
    return all(
        value > last.value + DISAGREEMENT * float(np.hypot(mcse, last.mcse))
        for value, mcse in ((check.log_z, check.mcse), (first.value, first.mcse))
    )


def _as_check(first: RouteResult) -> CrossCheck | None:
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
    size = sampler.size(int(sampler.default_draws * effort_of(target)))
    most = _MOST_ROUNDS * sampler.first_round(size)
    limits = Limits(target_mcse=target_mcse, max_draws=most)
    run = Run(sampler, size, cores, None, seed, name=sampler.name, limits=limits)
    with dividing_rows(cores, None), Display(enabled=False) as display:
        if not lacking(target):
            return anneal_by_routes(run, target, "auto", display)[2][0]
        return anneal_moved(run, target, "auto", display, None, "auto")[2][0]


# Evaluations of a first route, and of annealing from the prior, at the usual target error. The
# latter takes 300,000, of a few points at a time, which take NumPy three times as long each.
_FIRST, ANNEALING = 10_000, 900_000
# NumPy takes about 1.5 nanoseconds for each number that the operations of the graph give, and as
# long as for so many further numbers for each point. With more work in all it takes ten seconds.
_PER_POINT, _MOST = 3_000, 6e9


def expected_evaluations(sampler: Any, limits: Limits, *, is_short: bool) -> float:
    """Return about how many evaluations a run makes; infinite if it moves chains step by step."""
    if not is_short and not isinstance(sampler, AIS | SMC):
        return inf
    grown = grown_effort(limits.target_mcse or inf)
    return grown * (_FIRST if is_short else ANNEALING)


def model_target(
    model: Any,
    backend: str,
    n_evaluations: float,
    compile_kwargs: Mapping[str, Any],
    **options: Any,
) -> Any:
    """Return the target of a model with what evaluates it.

    Of a model with a loop the density alone is compiled, if it is evaluated for a short route.
    """
    options["compile_kwargs"] = dict(compile_kwargs)
    if backend != "auto":
        return target_of(model, backend=backend, **options)
    if not compile_kwargs and not estimated_variables(model):
        target = target_of(model, backend="numpy", **options)
        try:
            if _is_short(target, n_evaluations):
                return target
        except LoopError:
            target = target_of(model, backend="loops", **options)
            if _is_short(target, n_evaluations):
                return target
        except NotBatchedError:
            pass
    return target_of(model, backend="numba", **options)


def compiled_if_long(target: Any, n_evaluations: float) -> Any:
    """Return a target that NumPy evaluates, or its compiled form if so many evaluations need it.

    Integrals over local variables have no compiled form, and all variables together are far harder
    to sample than those that remain.
    """
    evaluated = getattr(target, "backend", None) in ("numpy", "loops")
    if not evaluated or isinstance(target, PlateTarget) or _is_short(target, n_evaluations):
        return target
    compiled: Any = target_of(
        target.model,
        potentials_only=target.potentials_only,
        compile_kwargs=target.compile_kwargs,
        reparameterise=isinstance(target, ReparameterisedTarget),
        backend="numba",
    )
    settings = getattr(target, "settings", None)
    return compiled if settings is None else compiled.with_settings(settings())


def _is_short(target: Any, n_evaluations: float) -> bool:
    """Return whether NumPy can evaluate a model, and takes at most ten seconds or so.

    NotBatchedError is raised if it cannot. Time in compiled loops does not count.
    """
    if target.n_dim == 0:
        return True
    if target.discrete.size or _PER_POINT * n_evaluations > _MOST:
        return False
    density = target.differentiable
    if not isinstance(density, NumpyDensity):
        return False
    return (density.n_numbers + _PER_POINT) * n_evaluations <= _MOST


# Number of coordinates up to which the approximations of log-concave posteriors cost little.
_MOST_APPROXIMATED = 3000


def _is_approximated(model: Any, structure: Any) -> bool:
    """Return whether an approximation of the posterior of all variables costs little."""
    if not structure.reasons or structure.layout.size > _MOST_APPROXIMATED:
        return False
    target: Any = target_of(model, reparameterise=True, backend="numpy")
    return target.hyperparameters is not None


def plate_target(
    model: Any, marginalise: Any, problem: str | None, *, open_routes: bool
) -> PlateTarget | None:
    """Return the target of a model whose local variables are integrated, or None.

    ``problem`` is why other arguments do not allow it. Discrete variables are summed whenever they
    can be. Where the user leaves the route open, continuous ones are integrated, with two
    exceptions: parameters of the prior of global variables, and elements that need nodes of their
    own where an approximation of the posterior of all variables is known, which then takes less
    time. All this is known before the run.
    """
    if marginalise is False:
        return None
    if problem is None and not estimated_variables(model):
        try:
            structure = structure_of_model(model)
            of_sums = any(plate.rule != "quadrature" for plate in structure.plates)
            needed = marginalise is True or of_sums
            if structure.plates and (
                needed or (open_routes and not has_global_children(model, structure))
            ):
                target: Any = target_of(model, marginalise=True, backend="numpy")
                if needed or target.is_cheap or not _is_approximated(model, structure):
                    # these raise an error if the model cannot be integrated or is not batched
                    target.rules, target.differentiable  # noqa: B018
                    return target
            problem = "the model has no such variable"
        except (NotBatchedError, NotImplementedError) as error:
            problem = str(error)
    if marginalise == "auto":
        return None
    raise ModelError(
        "marginalise must be 'auto' or False where no variable can be integrated one element at a "
        f"time, got True: {problem or 'a likelihood is estimated'}. pe.structure(model) says why "
        "of each variable; leave marginalise out."
    )
