"""What annealing starts from, and the posterior draws that reverse paths start from."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_choice, described
from pm_evidence.core.contracts import AnnealingSetup, Plan, Reference, Target
from pm_evidence.core.exceptions import ModelError, NumericalError, warn
from pm_evidence.core.random import Phase, generator, seed_of_run
from pm_evidence.core.records import CrossCheck, Role, RunRecord
from pm_evidence.core.resampling import resample
from pm_evidence.core.rows import one_blas_thread
from pm_evidence.estimators.of_islands import of_small_islands
from pm_evidence.families.native import ModelTarget, NativeTarget
from pm_evidence.paths.geometric import Posterior
from pm_evidence.references.density import check_reference, components_of
from pm_evidence.references.mixture import fit_population
from pm_evidence.references.target import ReferencedTarget, coordinates_of
from pm_evidence.results.stored import check_constants, doubt_of_draws, posterior_of
from pm_evidence.runs.defaults import annealing_setup
from pm_evidence.runs.rounds import Run
from pm_evidence.samplers.peaks import fit_laplace
from pm_evidence.samplers.planning import Pilot
from pm_evidence.samplers.sampler import ForwardBlock, ReverseStarts, RunContext
from pm_evidence.samplers.smc import SMC
from pm_evidence.targets.estimated.target import EstimatedTarget, TimesTarget
from pm_evidence.targets.model.data_points import DataPointsTarget
from pm_evidence.targets.model.target import PyMCTarget

Floats = NDArray[np.float64]


# Number of groups of neighbouring draws of the user's chains; groups count as independent.
_GROUPS = 16


def starts_from(target: Any, given: Any) -> ReverseStarts | None:
    """Return where reverse paths start, from what the user gives as ``reverse_start``."""
    if given is None:
        return None
    target = target.compiled if isinstance(target, ModelTarget) else target
    if isinstance(target, EstimatedTarget):
        raise ValueError(
            "reverse_start must be left out if the likelihood is estimated: posterior draws do not "
            "include the estimates of their likelihood."
        )
    if isinstance(target, PyMCTarget):
        x, sizes = given_rows(target, given, "reverse_start"), given["posterior"].sizes
        return ReverseStarts(x, groups_of(sizes["chain"], sizes["draw"]), kind="given")
    # an array does not tell the parameters of the target that its states come from, and moves are
    # cheap: paths relax before they start
    n_chains, rows = (1, given) if isinstance(given, np.ndarray) else _states_of(given, target)
    x = target.check(rows, "reverse_start")
    return ReverseStarts(x, groups_of(n_chains, len(x) // n_chains), kind="relaxed")


def given_rows(target: PyMCTarget, given: Any, parameter: str) -> Floats:
    """Return the posterior draws of a DataTree as points, shape ``(n, n_dim)``."""
    x, draws = rows_and_variables(target, given, parameter)
    doubt = doubt_of_draws(given, draws)
    if doubt:
        follows = "reverse paths" if parameter == "reverse_start" else "annealing"
        warn(
            f"{parameter} must hold draws from the posterior, but {doubt}: these draws, and the "
            f"{follows} from them, may miss a part of it. Sample again with a non-centred "
            f"model, a higher target_accept or longer chains, or leave {parameter} out."
        )
    return x


def rows_and_variables(
    target: PyMCTarget, given: Any, parameter: str
) -> tuple[Floats, dict[str, NDArray[Any]]]:
    """Return the posterior draws of a DataTree as points, and those of each free variable.

    The arguments and errors are those of `given_rows`, which also warns.
    """
    draws = posterior_of(given, target.observed_data(), parameter)
    check_constants(given, target.constant_data(), parameter)
    x = target.rows_of(draws, parameter)
    return x, {rv.name: draws[rv.name] for rv in target.model.free_RVs}


def groups_of(n_chains: int, n_draws: int) -> NDArray[np.int64]:
    """Return the group of each draw: neighbouring draws of a chain share a group."""
    parts = max(_GROUPS // n_chains, 1)
    part = np.arange(n_draws) * parts // n_draws
    groups: NDArray[np.int64] = (np.arange(n_chains)[:, None] * parts + part).ravel()
    return groups


def _states_of(dt: Any, target: NativeTarget) -> tuple[int, NDArray[Any]]:
    """Return the number of chains of an earlier run of a native target, and their states."""
    posterior = posterior_of(dt, target.observed_data())
    constants = dt["constant_data"].to_dataset() if "constant_data" in dt.children else {}
    for name, value in target.constant_data().items():
        found = constants[name].values if name in constants else None
        if found is None or not np.array_equal(found, value):
            raise ValueError(
                f"reverse_start must hold states of {target!r}, got draws with {name}={found}; "
                "pass a result for this target, or an array of states."
            )
    missing = [name for name in target.variables if name not in posterior]
    if missing:
        raise ValueError(
            f"reverse_start must hold states of {target!r} as "
            f"{' and '.join(map(repr, target.variables))}, got draws of {', '.join(posterior)}; "
            "pass a result for this target, or an array of states."
        )
    parts = [posterior[name] for name in target.variables]
    states = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1)
    return len(states), states.reshape(-1, *states.shape[2:])


# Islands and the length of their chains; particles of all islands together: this many for each
# coordinate, between these bounds. The pilot has the least number of them, or half as many as the
# islands have together.
_ISLANDS, _LENGTH, _ESS = 8, 4, 0.5
_PER_DIMENSION, _PARTICLES, _LEAST_PILOT = 12, (512, 2048), 200


@dataclass(frozen=True)
class SmallRun:
    """What a few small islands from the prior, or near it, found."""

    record: RunRecord  # the islands
    plan: Plan  # what the islands followed
    population: Floats  # shape (n, n_dim): the last population of the pilot

    @property
    def n_evaluations(self) -> int:
        """Density (or gradient) evaluations of pilot and islands."""
        blocks = self.record.of(Role.FORWARD)
        return self.plan.n_evaluations + sum(block.n_evaluations for block in blocks)

    def draws(self, seed: int) -> Floats:
        """Return draws of equal weight; those of one island are neighbours."""
        starts = ReverseStarts.of_islands(self.record.of(Role.FORWARD))
        assert starts.probability is not None
        rng = generator(seed_of_run(seed, Phase.REFERENCE), Phase.START)
        chosen = resample(starts.probability, len(starts.draws), rng, "systematic")
        return starts.draws[np.sort(chosen)]


def small_run(run: Run, setup: AnnealingSetup, pilot: Pilot, title: str, phase: Phase) -> SmallRun:
    """Anneal the islands of a run once, along the plan of a small pilot."""
    sampler: Any = run.sampler

    def learnt() -> tuple[Plan, Floats]:
        plan = pilot.run(setup.path, setup.kernel, run.seed, run.display.pilot)
        return replace(plan, population=None), plan.population.x

    plan, population = run.journal.remembered("plan", learnt, kernel=setup.kernel)
    context = RunContext(setup, plan, plan, run.size, run.seed, None, run.show)
    tasks = [
        ForwardBlock(sampler, setup.path, plan, i, run.size, run.seed, phase)
        for i in range(sampler.islands)
    ]
    record = context.extended(run.empty(context), Role.FORWARD, title, tasks, plan)
    return SmallRun(record, plan, population)


def check_run(run: Run, target: Any) -> SmallRun:
    """Run a few small islands from the prior, which check what annealing starts from."""
    total = int(np.clip(_PER_DIMENSION * target.n_dim, *_PARTICLES))
    islands = SMC(islands=_ISLANDS, chain_length=_LENGTH, ess=_ESS)
    seed = seed_of_run(run.seed, Phase.REFERENCE)
    small = replace(run, sampler=islands, size=total // _ISLANDS, seed=seed)
    pilot = Pilot(max(total // 2, _LEAST_PILOT), _LENGTH, _ESS)
    return small_run(small, annealing_setup(target, run.kernel), pilot, "Reference", Phase.ISLAND)


_NAMES = ("prior", "laplace", "fit")
# A density is not fitted to fewer posterior draws than this.
_LEAST_DRAWS = 50


def check_reference_argument(reference: Any) -> None:
    """Raise an error unless an argument can be a reference."""
    if isinstance(reference, str):
        check_choice("reference", reference, _NAMES)
        return
    is_object = isinstance(reference, Reference) and not isinstance(reference, type)
    if not is_object and not hasattr(reference, "children"):
        raise TypeError(
            f"reference must be {', '.join(map(repr, _NAMES))}, a DataTree with posterior draws or "
            "an object with the methods draw(n, rng) and log_density(x), got "
            f"{described(reference)}; pass for example pe.references.Normal(mean, covariance)."
        )


def in_own_coordinates(reference: Any) -> bool:
    """Return whether a reference is a density of the model's own coordinates: a user's object."""
    return not isinstance(reference, str) and not hasattr(reference, "children")


def with_reference(run: Run, target: Target) -> Any:
    """Return what is annealed: the target itself, or the model from the reference of the run."""
    reference = run.reference
    name = reference if isinstance(reference, str) else ""
    if name == "prior":
        return target
    along = isinstance(target, DataPointsTarget | TimesTarget)
    if along or not isinstance(target, PyMCTarget | EstimatedTarget):
        raise ValueError(
            "reference must be 'prior' for native targets and along data points, got "
            f"{described(reference)} for {'a model along data points' if along else repr(target)}; "
            "leave reference out."
        )
    # all of the density but likelihoods that are estimated
    known_part = target if isinstance(target, PyMCTarget) else target.evaluated
    positions = coordinates_of(known_part)
    if name and not positions.size:
        return target  # all variables keep their prior, or are uniform on circles
    _check_reference(known_part, reference, positions, target.differentiable is not None)
    facts, known, spent = dict[str, Any](), None, 0
    with one_blas_thread():
        try:
            small = check_run(run, target)
        except NumericalError as error:
            if name == "fit":
                raise
            warn(
                "the small annealing from the prior that checks the reference did not reach the "
                f"posterior, so that a mode which the reference misses may stay unknown: {error}"
            )
        else:
            x = small.draws(run.seed)[:, positions]
            fit = partial(fit_population, x, generator(run.seed, Phase.REFERENCE, 1))
            known, spent = run.journal.remembered("fit", fit), small.n_evaluations
            found = of_small_islands(small.record.of(Role.FORWARD))
            if np.isfinite([found.value, found.mcse]).all():
                facts["cross_check"] = CrossCheck(found.value, found.mcse)
        facts["reference"], density, further = _density(run, known_part, positions, known)
    start = ReferencedTarget(known_part, density, facts, spent + further, known)
    return start if isinstance(target, PyMCTarget) else target.changed(start=start)


def _density(
    run: Run, target: PyMCTarget, positions: NDArray[np.int64], known: Any
) -> tuple[str, Any, int]:
    """Return the kind of a reference, its density, and the evaluations that it cost."""
    reference, rng = run.reference, generator(run.seed, Phase.REFERENCE, 0)
    if isinstance(reference, str):
        if reference == "fit":
            return "fit", known, 0
        peaks = partial(fit_laplace, Posterior(target), positions, rng)
        return "laplace", *run.journal.remembered("laplace", peaks)
    if not hasattr(reference, "children"):
        return "given", reference, 0
    x = given_rows(target, reference, "reference")[:, positions]
    if len(x) < _LEAST_DRAWS:
        raise ValueError(
            f"reference must hold at least {_LEAST_DRAWS} posterior draws, got {len(x)}; pass "
            "more draws."
        )
    return "posterior", run.journal.remembered("fit", partial(fit_population, x, rng)), 0


def _check_reference(
    target: PyMCTarget, reference: Any, positions: NDArray[np.int64], has_gradient: bool
) -> None:
    """Raise an error if a model cannot be annealed from a reference, before this costs time."""
    ReferencedTarget(target, reference)
    if target.discrete.size:
        target.discrete_prior  # noqa: B018  # raises the error
    if isinstance(reference, str):
        if reference == "laplace" and (target.discrete.size or not has_gradient):
            lack = "discrete variables" if target.discrete.size else "no gradient"
            raise ModelError(
                "reference='laplace' needs a gradient and continuous variables only, got a model "
                f"with {lack}; use reference='fit'."
            )
        return
    d = len(positions)
    if not d:
        raise ValueError(
            "reference must be 'prior' for a model whose variables are all discrete or circular, "
            f"got one with {target.n_dim} of them: they keep their prior, or are uniform on the "
            "circle. Leave reference out."
        )
    if hasattr(reference, "children"):
        return
    if components_of(reference) is None:
        check_reference(reference, d)
        return
    found = reference.draw(1, np.random.default_rng(0)).shape[1]
    if found != d:
        sizes = [
            f"{v.name} ({v.size})"
            for v in target.layout.variables
            if np.isin(np.arange(v.start, v.start + v.size), positions).all()
        ]
        raise ValueError(
            f"reference must be a density of {d} coordinates, the unconstrained values of "
            f"{', '.join(sizes[:10])}, got one of {found}; pass a mean of length {d}."
        )
