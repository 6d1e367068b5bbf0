"""What evaluates a model: NumPy where a run is short, compiled code where it is long.

NumPy needs nothing but the model's graph. Compiled code takes 5 to 60 seconds to make, and is three
to ten times as fast. Which of them is chosen depends on the graph and on the number of evaluations
that is to be expected, and not on a clock: the same seed gives the same numbers.
"""

from collections.abc import Mapping
from math import inf
from typing import Any

from pm_evidence.runs.coarse import grown_effort
from pm_evidence.runs.limits import Limits
from pm_evidence.samplers.ais import AIS
from pm_evidence.samplers.smc import SMC
from pm_evidence.targets.compile.numpy_density import NumpyDensity
from pm_evidence.targets.compile.numpy_graph import NotBatchedError
from pm_evidence.targets.estimated.variable import estimated_variables
from pm_evidence.targets.model.cache import target_of
from pm_evidence.targets.model.reparameterised import ReparameterisedTarget
from pm_evidence.targets.plates.target import PlateTarget

__all__ = ["ANNEALING", "compiled_if_long", "expected_evaluations", "model_target"]

# Evaluations of a first route, and of annealing from the prior, at the usual target error.
_FIRST, ANNEALING = 10_000, 300_000
# NumPy takes about 1.5 nanoseconds for each number that the operations of the graph give, and as
# long as for so many further numbers for each point. With more work in all it takes ten seconds.
_PER_POINT, _MOST = 3_000, 6e9


def expected_evaluations(sampler: Any, limits: Limits, *, is_short: bool) -> float:
    """Return about how many evaluations a run makes; infinite if it moves chains step by step.

    Parameters
    ----------
    sampler : Annealer
        The method.
    limits : Limits
        The target error.
    is_short : bool
        Whether a first route, or a bridge from posterior draws, is expected to be enough.
    """
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

    Parameters
    ----------
    model : pymc.Model
        The model.
    backend : {"auto", "numpy", "numba", "jax"}
        ``"auto"`` is NumPy if it can evaluate the model in a short time, and otherwise numba.
    n_evaluations : float
        About how many evaluations of density and gradient are made.
    compile_kwargs : mapping
        Passed on to ``pymc.compile``; if there are some, the model is compiled.
    **options
        Passed on to ``target_of``.
    """
    options["compile_kwargs"] = dict(compile_kwargs)
    if backend != "auto":
        return target_of(model, backend=backend, **options)
    if not compile_kwargs and not estimated_variables(model):
        target = target_of(model, backend="numpy", **options)
        if _is_short(target, n_evaluations):
            return target
    return target_of(model, backend="numba", **options)


def compiled_if_long(target: Any, n_evaluations: float) -> Any:
    """Return a target that NumPy evaluates, or its compiled form if so many evaluations need it."""
    is_numpy = getattr(target, "backend", None) == "numpy" and not isinstance(target, PlateTarget)
    if not is_numpy or _is_short(target, n_evaluations):
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
    """Return whether NumPy can evaluate a model, and takes at most ten seconds or so."""
    if target.n_dim == 0:
        return True
    if target.discrete.size:
        return False
    try:
        density = target.differentiable
    except NotBatchedError:
        return False
    if not isinstance(density, NumpyDensity):
        return False
    return (density.n_numbers + _PER_POINT) * n_evaluations <= _MOST
