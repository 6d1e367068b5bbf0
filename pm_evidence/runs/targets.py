"""What is annealed: the target of a model, with what evaluates it and what it integrates.

A rule chooses between NumPy, which needs no compilation, and compiled code. Local variables are
integrated where it pays.
"""

from collections.abc import Mapping
from math import inf
from typing import Any

from pm_evidence.core.exceptions import ModelError
from pm_evidence.runs.importance import grown_effort
from pm_evidence.runs.rounds import Limits
from pm_evidence.samplers.ais import AIS
from pm_evidence.samplers.smc import SMC
from pm_evidence.targets.compile.numpy_density import NumpyDensity
from pm_evidence.targets.compile.numpy_graph import LoopError, NotBatchedError
from pm_evidence.targets.estimated.variable import estimated_variables
from pm_evidence.targets.model.cache import target_of
from pm_evidence.targets.model.target import ReparameterisedTarget
from pm_evidence.targets.plates.structure import has_global_children, structure_of_model
from pm_evidence.targets.plates.target import PlateTarget

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
