"""What is annealed and how, unless the user says otherwise: setup, path, evaluator, integrals."""

from collections.abc import Mapping
from dataclasses import replace
from functools import singledispatch
from math import inf
from typing import Any

import numpy as np

from pm_evidence.core.checks import check_choice, check_kind, described, missing_members
from pm_evidence.core.contracts import AnnealingSetup, Kernel, Path
from pm_evidence.core.exceptions import ModelError
from pm_evidence.families.native import is_native
from pm_evidence.kernels.cycle import OnDataPoints, choose_kernel
from pm_evidence.kernels.pseudo_marginal import PseudoMarginal
from pm_evidence.kernels.suitability import check_moves, checked_kernel
from pm_evidence.paths.data_points import DataPoints, DataPointsPath, TimesPath
from pm_evidence.paths.geometric import EstimatedPath, GeometricPath, ReferencedPath
from pm_evidence.references.target import ReferencedTarget
from pm_evidence.runs.rounds import Limits
from pm_evidence.samplers.ais import AIS
from pm_evidence.samplers.sampler import Sampler
from pm_evidence.samplers.smc import SMC
from pm_evidence.targets.compile.numpy_density import NumpyDensity
from pm_evidence.targets.compile.numpy_graph import LoopError, NotBatchedError
from pm_evidence.targets.estimated.target import EstimatedTarget, TimesTarget
from pm_evidence.targets.estimated.variable import estimated_variables
from pm_evidence.targets.model.cache import target_of
from pm_evidence.targets.model.data_points import DataPointsTarget
from pm_evidence.targets.model.target import PyMCTarget, ReparameterisedTarget
from pm_evidence.targets.plates.structure import has_global_children, structure_of_model
from pm_evidence.targets.plates.target import PlateTarget

# The pilot needs enough particles per dimension to estimate a covariance. Largest number of their
# coordinates: in very many dimensions, standard deviations have to be enough.
_PILOT_PARTICLES_PER_DIMENSION, _MOST_COORDINATES = 10, 1_600_000
# A density is cheap that reads and makes at most so many numbers; least effort where these are many
# more.
_CHEAP, _LEAST_EFFORT = 10_000, 0.1
_NOISY_PILOT, _NOISY_PATHS = 200, 16


@singledispatch
def annealing_setup(target: Any, kernel: str | Kernel) -> AnnealingSetup:
    """Return how a target is annealed, with the kernel that the user asks for.

    Targets that are not a PyMC model have a method of this name.
    """
    own = getattr(target, "annealing_setup", None)
    if not callable(own):
        raise TypeError(
            "target must be a pymc.Model or have a method annealing_setup, got "
            f"{type(target).__name__}; see pe.extending.NativeTarget."
        )
    setup = own(kernel)
    source = f"{type(target).__name__}.annealing_setup"
    check_kind(source, setup, AnnealingSetup, "return a pe.extending.AnnealingSetup")
    missing = missing_members(setup.path, Path)
    if missing:
        raise TypeError(
            f"the path of {source} must have the methods of a path, got {described(setup.path)} "
            f"without {', '.join(missing)}; define them."
        )
    checked_kernel(f"the kernel of {source}", setup.kernel)
    checked: AnnealingSetup = setup
    return checked


@annealing_setup.register
def _(target: PyMCTarget, kernel: str | Kernel) -> AnnealingSetup:
    path, chosen = GeometricPath(target), choose_kernel(target, kernel)
    n_pilot, facts = _n_pilot(target.n_dim), _known_of(target)
    return AnnealingSetup(path, chosen, n_pilot=n_pilot, effort=effort_of(target), facts=facts)


@annealing_setup.register
def _(target: ReferencedTarget, kernel: str | Kernel) -> AnnealingSetup:
    return AnnealingSetup(
        ReferencedPath(target),
        choose_kernel(target, kernel),
        n_pilot=_n_pilot(target.n_dim),
        effort=effort_of(target.model),
        n_evaluations=target.n_evaluations,
        facts=_known_of(target.model) | target.facts,
    )


@annealing_setup.register
def _(target: DataPointsTarget, kernel: str | Kernel) -> AnnealingSetup:
    return AnnealingSetup(
        DataPointsPath(target),
        OnDataPoints(choose_kernel(target, kernel)),
        n_pilot=_n_pilot(target.n_dim),
        facts={"stepwise": True, "data_order": tuple(target.order.tolist())},
    )


@annealing_setup.register
def _(target: TimesTarget, kernel: str | Kernel) -> AnnealingSetup:
    whole = annealing_setup.dispatch(EstimatedTarget)(target, kernel)
    return replace(
        whole,
        path=TimesPath(target),
        kernel=OnDataPoints(whole.kernel),
        facts={**whole.facts, "stepwise": True, "data_order": tuple(target.order.tolist())},
    )


@annealing_setup.register
def _(target: EstimatedTarget, kernel: str | Kernel) -> AnnealingSetup:
    if isinstance(kernel, str) and kernel in ("auto", "random_walk"):
        kernel = PseudoMarginal()
    if not isinstance(kernel, PseudoMarginal):
        raise ValueError(
            "kernel must be 'auto' or a pe.kernels.PseudoMarginal where the likelihood is "
            "estimated, got "
            f"{described(kernel)}: estimates have no gradient."
        )
    check_moves(kernel, target)
    n_pilot = max(_NOISY_PILOT, _PILOT_PARTICLES_PER_DIMENSION * target.n_dim)
    start = target.start
    spent, facts = (
        (start.n_evaluations, start.facts) if isinstance(start, ReferencedTarget) else (0, {})
    )
    return AnnealingSetup(
        EstimatedPath(target),
        kernel,
        n_pilot=n_pilot,
        n_paths=_NOISY_PATHS,
        n_evaluations=spent,
        facts={"estimated_likelihood": True} | facts,
    )


# Error, in nats, that the usual effort is meant for.
USUAL_MCSE = 0.02
# For a smaller error, particles and first draws grow in inverse proportion, at most by this factor.
# The particles show which share of the posterior a fit may miss. Few first draws would be added to
# until the error seems small enough, and runs that end in this way state too small an error.
_MOST_GROWN = 20.0


def share_of_effort(target_mcse: float) -> float:
    """Return the share of the usual effort that an error needs, from 0 to 1."""
    return min((USUAL_MCSE / target_mcse) ** 2, 1.0)


def grown_effort(target_mcse: float) -> float:
    """Return by which factor particles and draws are more for an error below the usual one."""
    return float(np.clip(USUAL_MCSE / target_mcse, 1.0, _MOST_GROWN))


def effort_of(target: Any) -> float:
    """Return the share of the usual effort that a run begins with: little for dear densities.

    Rounds add draws until the error is small enough, so that this changes the cost and not the
    error. A model that is evaluated in microseconds begins with more draws than the error needs,
    because they find more modes.
    """
    if not isinstance(target, PyMCTarget):
        return 1.0
    density = target.differentiable if target.backend == "numpy" else None
    in_loops = density.n_in_loops if isinstance(density, NumpyDensity) else 0
    return float(np.clip(_CHEAP / max(target.n_numbers, in_loops, 1), _LEAST_EFFORT, 1.0))


def _known_of(target: PyMCTarget) -> dict[str, bool]:
    """Return what is known of a posterior density, for the record of a run."""
    return {"log_concave": True} if target.is_log_concave else {}


def _n_pilot(n_dim: int) -> int:
    return min(_PILOT_PARTICLES_PER_DIMENSION * n_dim, _MOST_COORDINATES // n_dim)


def with_path(target: Any, sampler: Sampler, path: Any) -> tuple[Any, Any]:
    """Return target and path with the sampler's usual path, and with the data in an order."""
    if isinstance(path, str) and path == "auto":
        path = sampler.usual_path
    if isinstance(path, str) and path == "growing":
        path = getattr(target, "growing_path", "auto" if is_native(target) else "data_points")
    if isinstance(path, str) and path == "data_points":
        path = DataPoints()
    if not isinstance(path, DataPoints):
        return target, path
    if not isinstance(target, PyMCTarget | EstimatedTarget):
        raise ValueError(
            f"path='data_points' needs a pymc.Model, got {described(target)}; leave path out."
        )
    return (path.of(target), "auto") if target.n_dim else (target, "auto")


def adds_data_points(sampler: Sampler, path: Any) -> bool:
    """Return whether the data of a model are added one by one, by the path or by the sampler."""
    if isinstance(path, str) and path == "auto":
        path = sampler.usual_path
    return isinstance(path, DataPoints) or path in ("growing", "data_points")


def along(target: Any, setup: AnnealingSetup, path: str | Path) -> AnnealingSetup:
    """Return the setup along the path that the user asks for."""
    if is_native(target):
        found: AnnealingSetup = target.with_path(setup, path)
        return found
    if isinstance(path, str):
        check_choice("path", path, ("auto", "geometric", "data_points"))
        return setup
    raise ValueError(
        "path must be 'auto', 'geometric', 'data_points' or a pe.paths.DataPoints for a "
        "pymc.Model, got "
        f"{described(path)}; for a path of your own derive a target from pe.extending.ModelTarget."
    )


def default_method(given: Any) -> str:
    """Return the name of the method that ``method="auto"`` stands for.

    It is sequential Monte Carlo for PyMC models, whose error was smaller in equal time in a
    comparison of several models.
    """
    if is_native(given):
        return str(given.method)
    return "aisel" if estimated_variables(given) else "smc"


def lacking(target: Any) -> str:
    """Return what keeps a density from being fitted to the posterior of a model; empty if nothing.

    That of a model whose likelihood is estimated or changes along the path is no density to fit.
    """
    if not isinstance(target, PyMCTarget) or isinstance(target, DataPointsTarget):
        return "a likelihood that cannot be evaluated as a whole"
    if not target.n_dim:
        return "no free variable"
    if target.discrete.size:
        names = [v.name for v in target.layout.variables if np.dtype(v.dtype).kind in "iub"]
        return f"the discrete variables {', '.join(map(repr, names))}"
    if target.prior_acceptance != 1.0:
        return "a transform that cuts off a part of the prior, whose mass is not known exactly"
    return ""


# Evaluations of a first route, and of annealing from the prior, at the usual target error. The
# latter takes 300,000, of a few points at a time, which take NumPy three times as long each.
_FIRST, ANNEALING = 10_000, 900_000
# NumPy takes about 1.5 nanoseconds for each number that the operations of the graph give, and as
# long as for so many further numbers for each point. With more work in all it takes ten seconds.
_PER_POINT, _MOST = 3_000, 6e9
# Where it reads long data some rows at a time, compiled code takes as long or longer for linear
# predictors and dear functions, and down to a fifth of the time for cheap ones of effects.
_MOST_OF_DATA = 2e11


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
    most = _MOST_OF_DATA if density.by_data else _MOST
    return (density.n_numbers + _PER_POINT) * effort_of(target) * n_evaluations <= most


# Number of coordinates up to which the approximations of log-concave posteriors cost little, and of
# global ones, as the second factor of crossed effects, up to which integrals cost less than these.
_MOST_APPROXIMATED, _MOST_GLOBAL = 3000, 48
# Number of variables up to which sampling both coordinates of all elements takes less time than
# integrating one of them. It took a fifth of the time with 104 variables, and had six times the
# error after two thirds of the time with 204.
_MOST_TOGETHER = 150


def _is_approximated(model: Any, structure: Any) -> bool:
    """Return whether an approximation of the posterior of all variables is known."""
    if not structure.reasons:
        return False
    target: Any = target_of(model, reparameterise=True, backend="numpy")
    return target.hyperparameters is not None


def plate_target(
    model: Any, marginalise: Any, problem: str | None, *, open_routes: bool
) -> PlateTarget | None:
    """Return the target of a model whose local variables are integrated, or None.

    ``problem`` is why other arguments do not allow it. Discrete variables are summed whenever they
    can be. Where the user leaves the route open, continuous ones are integrated, with three
    exceptions: parameters of the prior of global variables; elements of which only a part of the
    coordinates could be integrated, unless there are many; and elements that need nodes of their
    own, or leave many global variables, where an approximation of the posterior of all variables is
    known. Runs without integrals then take less time. All this is known before the run.
    """
    if marginalise is False:
        return None
    if problem is None and not estimated_variables(model):
        try:
            structure = structure_of_model(model)
            of_sums = any(plate.rule != "quadrature" for plate in structure.plates)
            needed = marginalise is True or of_sums
            is_partial = bool(structure.companions) and structure.layout.size <= _MOST_TOGETHER
            pays = open_routes and not is_partial
            if structure.plates and (
                needed or (pays and not has_global_children(model, structure))
            ):
                target: Any = target_of(model, marginalise=True, backend="numpy")
                is_small = structure.layout.size <= _MOST_APPROXIMATED and not target.is_cheap
                has_many = target.n_dim > _MOST_GLOBAL
                known = (is_small or has_many) and _is_approximated(model, structure)
                if needed or not known:
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
