"""What annealing starts from, and the posterior draws that reverse paths start from."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial, singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_choice, described
from pm_evidence.core.contracts import AnnealingSetup, Kernel, Plan, Reference, Target
from pm_evidence.core.exceptions import ModelError, NumericalError, warn
from pm_evidence.core.random import Phase, generator, seed_of_run
from pm_evidence.core.records import CrossCheck, Role, RunRecord
from pm_evidence.core.resampling import resample
from pm_evidence.core.rows import one_blas_thread
from pm_evidence.estimators.of_islands import of_small_islands
from pm_evidence.execution.display import Display
from pm_evidence.families.native import ModelTarget, NativeTarget
from pm_evidence.paths.geometric import Posterior
from pm_evidence.references.compiled import check_reference, packed
from pm_evidence.references.mixture import fit_population
from pm_evidence.references.target import ReferencedTarget, coordinates_of
from pm_evidence.results.observed import check_constants, posterior_of
from pm_evidence.results.stored import doubt_of_draws
from pm_evidence.runs.defaults import annealing_setup
from pm_evidence.runs.rounds import Run
from pm_evidence.samplers.peaks import fit_laplace
from pm_evidence.samplers.planning import Pilot
from pm_evidence.samplers.sampler import ForwardBlock, ReverseStarts, RunContext
from pm_evidence.samplers.smc import SMC
from pm_evidence.targets.estimated.target import EstimatedTarget
from pm_evidence.targets.model.data_points import DataPointsTarget
from pm_evidence.targets.model.target import PyMCTarget

Floats = NDArray[np.float64]


# Number of groups of neighbouring draws of the user's chains; groups count as independent.
_GROUPS = 16


def starts_from(target: Any, given: Any) -> ReverseStarts | None:
    """Return where reverse paths start, from what the user gives as ``reverse_start``."""
    return None if given is None else _starts(target, given)


@singledispatch
def _starts(target: Any, given: Any) -> ReverseStarts:
    # an array does not tell the parameters of the target that its states come from, and moves are
    # cheap: paths relax before they start
    if isinstance(given, np.ndarray):
        x = target.check(given, "reverse_start")
        return ReverseStarts(x, groups_of(1, len(x)), kind="relaxed")
    states = _states_of(given, target)
    n_chains, n_draws = states.shape[:2]
    rows = states.reshape(n_chains * n_draws, *states.shape[2:])
    x = target.check(rows, "reverse_start")
    return ReverseStarts(x, groups_of(n_chains, n_draws), kind="relaxed")


@_starts.register
def _(target: PyMCTarget, given: Any) -> ReverseStarts:
    x = given_rows(target, given, "reverse_start")
    sizes = given["posterior"].sizes
    return ReverseStarts(x, groups_of(sizes["chain"], sizes["draw"]), kind="given")


@_starts.register
def _(target: EstimatedTarget, given: Any) -> ReverseStarts:
    raise ValueError(
        "reverse_start must be left out if the likelihood is estimated: posterior draws do not "
        "include the estimates of their likelihood."
    )


@_starts.register
def _(target: ModelTarget, given: Any) -> ReverseStarts:
    return _starts(target.compiled, given)


def given_rows(target: PyMCTarget, given: Any, parameter: str) -> NDArray[np.float64]:
    """Return the posterior draws of a DataTree as points, shape ``(n, n_dim)``."""
    x, draws = rows_and_variables(target, given, parameter)
    _warn_of_draws(given, draws, parameter)
    return x


def rows_and_variables(
    target: PyMCTarget, given: Any, parameter: str
) -> tuple[NDArray[np.float64], dict[str, NDArray[Any]]]:
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


def _warn_of_draws(given: Any, draws: Mapping[str, NDArray[Any]], parameter: str) -> None:
    doubt = doubt_of_draws(given, draws)
    if doubt:
        follows = "reverse paths" if parameter == "reverse_start" else "annealing"
        warn(
            f"{parameter} must hold draws from the posterior, but {doubt}: these draws, and the "
            f"{follows} from them, may miss a part of it. Sample again with a non-centred "
            f"model, a higher target_accept or longer chains, or leave {parameter} out."
        )


def _states_of(dt: Any, target: NativeTarget) -> NDArray[Any]:
    """Return the states of an earlier run of a native target, shape ``(chains, draws, ...)``."""
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
    if len(target.variables) == 1:
        return posterior[target.variables[0]]
    return np.concatenate([posterior[name] for name in target.variables], axis=-1)


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


def small_run(
    run: Run, setup: AnnealingSetup, pilot: Pilot, display: Display, title: str, phase: Phase
) -> SmallRun:
    """Anneal the islands of a run once, along the plan of a small pilot."""
    sampler: Any = run.sampler

    def learnt() -> tuple[Plan, Floats]:
        plan = pilot.run(setup.path, setup.kernel, run.seed, display.pilot)
        return replace(plan, population=None), plan.population.x

    plan, population = run.journal.remembered("plan", learnt, kernel=setup.kernel)
    show = run.shown_on(display)
    context = RunContext(setup, plan, plan, run.size, run.seed, None, show)
    tasks = [
        ForwardBlock(sampler, setup.path, plan, i, run.size, run.seed, phase)
        for i in range(sampler.islands)
    ]
    record = context.extended(run.empty(context), Role.FORWARD, title, tasks, plan)
    return SmallRun(record, plan, population)


def check_run(run: Run, target: Any, kernel: str | Kernel, display: Display) -> SmallRun:
    """Run a few small islands from the prior, which check what annealing starts from."""
    total = int(np.clip(_PER_DIMENSION * target.n_dim, *_PARTICLES))
    islands = SMC(islands=_ISLANDS, chain_length=_LENGTH, ess=_ESS)
    seed = seed_of_run(run.seed, Phase.REFERENCE)
    small = replace(run, sampler=islands, size=total // _ISLANDS, seed=seed)
    pilot = Pilot(max(total // 2, _LEAST_PILOT), _LENGTH, _ESS)
    setup = annealing_setup(target, kernel)
    return small_run(small, setup, pilot, display, "Reference", Phase.ISLAND)


_NAMES = ("prior", "laplace", "fit")
_PRIOR = "prior"
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


def with_reference(
    run: Run, target: Target, reference: Any, kernel: str | Kernel, display: Display
) -> Any:
    """Return what is annealed: the target itself, or the model from another reference."""
    if isinstance(reference, str) and reference == _PRIOR:
        return target
    if not isinstance(target, PyMCTarget) or isinstance(target, DataPointsTarget):
        raise ValueError(
            "reference must be 'prior' for native targets, for models with pe.StateSpace or "
            "pe.RandomEffects, and along data points, got "
            f"{described(reference)} for {_kind_of(target)}; leave reference out."
        )
    positions = coordinates_of(target)
    if isinstance(reference, str) and not positions.size:
        return target  # all variables keep their prior, or are uniform on circles
    _check_reference(target, reference, positions)
    with one_blas_thread():
        small = _checked(run, target, reference, kernel, display)
        known, n_evaluations, facts = None, 0, dict[str, Any]()
        if small is not None:
            x = small.draws(run.seed)[:, positions]
            fit = partial(fit_population, x, generator(run.seed, Phase.REFERENCE, 1))
            known = run.journal.remembered("fit", fit)
            found, n_evaluations = (
                of_small_islands(small.record.of(Role.FORWARD)),
                small.n_evaluations,
            )
            if np.isfinite([found.value, found.mcse]).all():
                facts["cross_check"] = CrossCheck(found.value, found.mcse)
        name, density, spent = _density(run, target, reference, positions, known)
    facts["reference"] = name
    return ReferencedTarget(target, density, facts, n_evaluations + spent, known)


def _checked(
    run: Run, target: PyMCTarget, reference: Any, kernel: str | Kernel, display: Display
) -> SmallRun | None:
    """Return the small annealing from the prior; None, with a warning, if it does not arrive."""
    try:
        return check_run(run, target, kernel, display)
    except NumericalError as error:
        if isinstance(reference, str) and reference == "fit":
            raise
        warn(
            "the small annealing from the prior that checks the reference did not reach the "
            f"posterior, so that a mode which the reference misses may stay unknown: {error}"
        )
        return None


def _density(
    run: Run, target: PyMCTarget, reference: Any, positions: NDArray[np.int64], known: Any
) -> tuple[str, Any, int]:
    """Return the kind of a reference, its density, and the evaluations that it cost."""
    rng = generator(run.seed, Phase.REFERENCE, 0)
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


def _check_reference(target: PyMCTarget, reference: Any, positions: NDArray[np.int64]) -> None:
    """Raise an error if a model cannot be annealed from a reference, before this costs time."""
    ReferencedTarget(target, reference)
    if target.discrete.size:
        target.discrete_prior  # noqa: B018  # raises the error
    if isinstance(reference, str):
        if reference == "laplace" and (target.discrete.size or target.differentiable is None):
            lack = "discrete variables" if target.discrete.size else "no gradient"
            raise ModelError(
                "reference='laplace' needs a gradient and continuous variables only, got a model "
                f"with {lack}; use reference='fit'."
            )
        return
    _check_positions(target, positions)
    if not hasattr(reference, "children"):
        _check_dimension(target, reference, positions)


def _check_positions(target: PyMCTarget, positions: NDArray[np.int64]) -> None:
    if not positions.size:
        raise ValueError(
            "reference must be 'prior' for a model whose variables are all discrete or circular, "
            f"got one with {target.n_dim} of them: they keep their prior, or are uniform on the "
            "circle. Leave reference out."
        )


def _check_dimension(target: PyMCTarget, reference: Any, positions: NDArray[np.int64]) -> None:
    """Raise ValueError unless a user's density is one of the coordinates of a model."""
    arrays, d = packed(reference, positions), len(positions)
    if arrays is None:
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


def _kind_of(target: Any) -> str:
    return "a model along data points" if isinstance(target, DataPointsTarget) else repr(target)
