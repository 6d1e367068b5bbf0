"""Arguments of `sample_evidence`, checked and resolved before anything costs time."""

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import (
    check_choice,
    check_count,
    check_dimensions,
    check_flag,
    check_positive,
    check_text,
    described,
    plain_array,
)
from pm_evidence.core.contracts import Kernel
from pm_evidence.core.exceptions import ModelError, exceptions_of_users, usual_floats
from pm_evidence.core.interrupts import interruptible
from pm_evidence.core.jax import check_jax
from pm_evidence.families.native import checked_native, is_native
from pm_evidence.kernels.hmc import HMC
from pm_evidence.references.density import components_of
from pm_evidence.runs.defaults import adds_data_points
from pm_evidence.runs.references import in_own_coordinates
from pm_evidence.runs.rounds import Limits
from pm_evidence.samplers import planning
from pm_evidence.samplers.ais import AIS
from pm_evidence.samplers.aisel import AISEL
from pm_evidence.samplers.bridge import Bridge
from pm_evidence.samplers.resample_move import ARM, ResampleMove
from pm_evidence.samplers.sampler import Sampler
from pm_evidence.samplers.simulated_tempering import SimulatedTempering
from pm_evidence.samplers.smc import SMC
from pm_evidence.samplers.tempering import ParallelTempering, Tempering
from pm_evidence.schedules import fixed_schedule
from pm_evidence.targets.compile.numpy_graph import NotBatchedError
from pm_evidence.targets.estimated.variable import estimated_variables
from pm_evidence.targets.model.cache import find_model

Floats = NDArray[np.float64]


# What users call the estimate from draws that they have.
_OF_DRAWS = ("bridge", "bridge_sampling", "nuts")
_SAMPLERS: dict[str, type[Any]] = {
    "smc": SMC,
    "ais": AIS,
    "aisel": AISEL,
    "resample_move": ResampleMove,
    "arm": ARM,
    "simulated_tempering": SimulatedTempering,
    "parallel_tempering": ParallelTempering,
}
_SCHEDULES: dict[str, Any] = {
    "adaptive": planning.ADAPTIVE,
    "linear": planning.Linear,
    "sm08": planning.SM08,
    "gms13": planning.GMS13,
    "varopt": planning.VarOpt,
}
# What a sampler gives itself whose blocks another one runs.
_OF_EVERY_SAMPLER = ("name", "default_draws", "n_seeds", "annealer", "likelihood_moves")

# What pymc.compile takes and a density of one vector can be compiled with.
_COMPILE_KWARGS = (
    "mode",
    "name",
    "profile",
    "random_seed",
    "accept_inplace",
    "allow_input_downcast",
    "no_default_updates",
    "rebuild_strict",
    "trust_input",
)
_DIMENSIONS_OF_DRAWS = ("chain", "draw")
_IDATA_KWARGS = ("coords", "dims", "log_likelihood", "log_prior")
_MOST_CORES, _MOST_DRAWS = 10_000, 10**15
_ADDRESSES = 2**47  # bytes that a process can address
# The error in nats at which a run ends by default, and the least that can be asked for.
TARGET_MCSE, _LEAST_MCSE = 0.02, 1e-9
# Without a limit of the user's, this many times the draws of the first round: for an error that
# was asked for, and for the default one.
_MOST_ROUNDS, _MOST_ROUNDS_BY_DEFAULT = 1000, 10


@contextmanager
def entry() -> Iterator[None]:
    """Wrap a function that users call: Ctrl-C, exceptions and NumPy's warnings are as usual."""
    with interruptible(), exceptions_of_users(), usual_floats():
        yield


def one_target(target: Any, model: Any) -> Any:
    """Return the target that the user hands over by either name; None if there is none."""
    if target is not None and model is not None:
        raise TypeError("target and model are two names of one argument; pass only one of them.")
    return model if target is None else target


def find_target(target: Any, model: Any) -> Any:
    """Return the native target or pymc.Model that the user passes, or the one of the context."""
    given = one_target(target, model)
    return checked_native(given) if is_native(given) else find_model(given)


def first_round(chosen: Sampler, draws: int | None) -> tuple[int, int]:
    """Return the particles of an island, or paths, and how many the first round has in all."""
    draws = chosen.default_draws if draws is None else check_count("draws", draws, 2, _MOST_DRAWS)
    size = chosen.annealer.size(draws)
    n_draws = chosen.annealer.first_round(size)
    check_memory(n_draws)
    return size, n_draws


def chosen_sampler(method: Any, default: str) -> Sampler:
    """Return the sampler that ``method`` stands for."""
    if isinstance(method, str):
        if method.lower() in _OF_DRAWS:
            raise ValueError(
                f"method must be the name of a sampler, got {method!r}; the evidence from draws of "
                "pm.sample is pe.bridge_sampling(idata, model)."
            )
        check_choice("method", method, ("auto", *_SAMPLERS))
        method = _SAMPLERS[default if method == "auto" else method]
    if isinstance(method, type) and hasattr(method, "annealer"):
        method = method()
    whole = all(hasattr(method, name) for name in _OF_EVERY_SAMPLER)
    if isinstance(method, type) or not (whole and isinstance(method.annealer, Sampler)):
        names = ", ".join(map(repr, ("auto", *_SAMPLERS)))
        raise TypeError(
            f"method must be a name ({names}) or a sampler such as pe.methods.SMC(islands=32), got "
            f"{described(method)}; derive a sampler from pe.extending.Annealer."
        )
    if method.name == AISEL.name and default != AISEL.name:
        raise ValueError(
            "method='aisel' needs a likelihood that is estimated, got a model without; use 'ais' "
            "or 'smc', or write its latent variables as pe.StateSpace or pe.RandomEffects."
        )
    sampler: Sampler = method
    return sampler


# Values of those arguments which leave open how a model is annealed.
USUAL: dict[str, tuple[str, ...]] = {
    "schedule": ("adaptive",),
    "reference": ("prior",),
    "path": ("auto", "geometric"),
}


def not_usual(arguments: Mapping[str, Any]) -> list[str]:
    """Return the names of those arguments that do not leave open how a model is annealed."""
    return [
        name
        for name, value in arguments.items()
        if not isinstance(value, str) or value not in USUAL[name]
    ]


def check_bridge_arguments(chosen: Any, of_annealing: Mapping[str, Any], idata_kwargs: Any) -> None:
    """Raise ValueError if the method is bridge sampling, and has no use for an argument."""
    if not isinstance(chosen, Bridge):
        return
    wrong = {name: of_annealing[name] for name in not_usual(of_annealing)}
    wrong |= {"idata_kwargs": idata_kwargs} if idata_kwargs else {}
    for name, value in wrong.items():
        raise ValueError(
            f"{name} must be left out with pe.methods.Bridge, got {described(value)}: nothing is "
            f"annealed "
            "but a small check, and the groups of the result are those of idata."
        )


def chosen_schedule(
    schedule: str | planning.Schedule | Sequence[float] | Floats, sampler: Sampler
) -> planning.Schedule:
    """Return the schedule that the user asks for by name, as an object or by its values."""
    chosen: Any = schedule
    if isinstance(schedule, str):
        chosen = _SCHEDULES.get(schedule, schedule)
    if isinstance(chosen, type) and hasattr(chosen, "plan"):
        chosen = chosen()
    if not callable(getattr(chosen, "plan", None)):
        beta = fixed_schedule(chosen)
        if isinstance(sampler, Tempering):
            sampler.check_temperatures(beta)
        return planning.FixedSchedule(beta)
    n_stages = sampler.annealer.n_stages
    if isinstance(chosen, planning.VarOpt) and n_stages is not None:
        chosen.check(n_stages)
    named: planning.Schedule = chosen
    return named


def checked_cores(cores: int | None) -> int:
    """Return the number of threads."""
    if cores is not None:
        return check_count("cores", cores, 1, _MOST_CORES)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def checked_executor(executor: Any) -> Executor | None:
    """Return the executor, if it is one."""
    if executor is None:
        return None
    if isinstance(executor, type) or not callable(getattr(executor, "submit", None)):
        raise TypeError(
            f"executor must have a submit method as concurrent.futures executors do, got "
            f"{described(executor)}; pass for example ProcessPoolExecutor(4)."
        )
    return executor


def check_target(target_mcse: Any) -> None:
    """Raise ValueError unless an error in nats can be reached: rounding alone makes such errors."""
    if check_positive("target_mcse", target_mcse, TARGET_MCSE) < _LEAST_MCSE:
        raise ValueError(
            f"target_mcse must be at least {_LEAST_MCSE:g}, about the rounding error of a log "
            f"likelihood, got {described(target_mcse)}; pass for example 0.005."
        )


def limits(
    target_mcse: float | None, max_time: float | None, max_draws: int | None, first_round: int
) -> Limits:
    """Return what ends a run, after checking it."""
    if target_mcse is None and max_time is None:
        if max_draws is not None:
            raise ValueError(
                f"max_draws needs target_mcse or max_time, got max_draws={described(max_draws)} "
                "with target_mcse=None, which asks for one round; leave one of the two out."
            )
        return Limits()
    if target_mcse is not None:
        check_target(target_mcse)
    if max_time is not None:
        check_positive("max_time", max_time)
    if max_draws is not None:
        check_count("max_draws", max_draws, first_round)
    asked = target_mcse != TARGET_MCSE or max_time is not None or max_draws is not None
    most = _MOST_ROUNDS if asked else _MOST_ROUNDS_BY_DEFAULT
    return Limits(
        target_mcse=None if target_mcse is None else float(target_mcse),
        max_time=np.inf if max_time is None else float(max_time),
        max_draws=max_draws or most * first_round,
        asked=asked,
    )


def idata_options(idata_kwargs: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return ``idata_kwargs`` with its mappings filled in."""
    options = _options("idata_kwargs", idata_kwargs, _IDATA_KWARGS)
    for name in ("coords", "dims"):
        options[name] = _options(f"idata_kwargs[{name!r}]", options.get(name))
    for name, labels in options["coords"].items():
        check_text("keys of idata_kwargs['coords']", name)
        if name in _DIMENSIONS_OF_DRAWS or plain_array(f"idata_kwargs[{name!r}]", labels).ndim != 1:
            raise ValueError(
                f"idata_kwargs['coords'] must hold a row of labels for each dimension but chain "
                f"and draw, got {described(labels)} for {name!r}; pass for example ['a', 'b']."
            )
    for name, dims in options["dims"].items():
        check_text("keys of idata_kwargs['dims']", name)
        if not isinstance(dims, list | tuple) or not all(isinstance(d, str | None) for d in dims):
            raise ValueError(
                f"idata_kwargs['dims'] must hold a list of names for each variable, got "
                f"{described(dims)} for {name!r}; pass for example ['group']."
            )
        check_dimensions("names in idata_kwargs['dims']", filter(None, dims))
    for name in ("log_likelihood", "log_prior"):
        check_flag(f"idata_kwargs[{name!r}]", options.get(name, False))
    return options


def compile_options(compile_kwargs: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return ``compile_kwargs`` as a dict, without a mode that goes without saying."""
    options = _options("compile_kwargs", compile_kwargs, _COMPILE_KWARGS)
    mode = options.pop("mode", None)
    if not (mode is None or (isinstance(mode, str) and mode.upper() == "NUMBA")):
        raise ValueError(
            f"compile_kwargs must not hold another 'mode' than 'NUMBA', got {described(mode)}: "
            "models are compiled with numba; leave it out."
        )
    return options


def check_memory(draws: int, n_dim: int = 1, *, bytes_each: int = 8) -> None:
    """Refuse draws that no memory of this machine can hold."""
    try:
        there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # on Windows
        there = _ADDRESSES
    needed = draws * n_dim * bytes_each
    if needed > there:
        raise ValueError(
            f"draws must fit into memory, got so many that states of {n_dim} numbers would take "
            f"{needed // 2**30:,} GiB of {there // 2**30:,} GiB; pass fewer draws."
        )


def _options(name: str, value: Any, known: Sequence[str] | None = None) -> dict[str, Any]:
    """Return a mapping as a dict, after checking its keys; an empty one for None."""
    if value is not None and not isinstance(value, Mapping):
        raise TypeError(f"{name} must be a dict, got {described(value)}; leave it out for none.")
    for key in value or {}:
        if known is not None and key not in known:
            raise ValueError(
                f"{name} must hold only {', '.join(map(repr, known))}, got {key!r}; leave it out."
            )
    return dict(value or {})


BACKENDS = ("auto", "numpy", "numba", "jax")
_REMEDY = "leave backend out"


def check_backend(
    backend: Any, given: Any, kernel: str | Kernel, sampler: Sampler, path: Any, reference: Any
) -> None:
    """Raise an error if the backend is unknown, or cannot do what the other arguments ask for."""
    check_choice("backend", backend, BACKENDS)
    if backend in ("auto", "numba"):
        return
    if is_native(given):
        raise ValueError(
            "backend must be 'numba' for native targets, which have compiled kernels of their own, "
            f"got {backend!r} for {described(given)}; {_REMEDY}."
        )
    estimated = [rv.name for rv in estimated_variables(given)]
    if estimated:
        raise ModelError(
            f"backend={backend!r} needs a likelihood that is evaluated, got a model in which that "
            f"of {estimated[0]!r} is estimated by pe.StateSpace or pe.RandomEffects; {_REMEDY}."
        )
    discrete = [rv.name for rv in given.free_RVs if np.dtype(rv.dtype).kind in "iub"]
    if discrete:
        raise ModelError(
            f"backend={backend!r} needs continuous variables only, got a model in which "
            f"{', '.join(map(repr, discrete[:10]))} is discrete; sum it out, for example by "
            f"pm.Mixture, or {_REMEDY}."
        )
    problem = needs_compiled_code(kernel, sampler, path, reference)
    if problem is not None:
        raise ValueError(f"{problem} with backend={backend!r}; {_REMEDY}.")
    if backend == "jax":
        check_jax()


def needs_compiled_code(
    kernel: str | Kernel, sampler: Sampler, path: Any, reference: Any
) -> str | None:
    """Return which argument needs code that numba compiles, in words; None if none does."""
    is_hmc = kernel in ("auto", "hmc") if isinstance(kernel, str) else isinstance(kernel, HMC)
    if not is_hmc:
        return (
            "kernel must be 'auto', 'hmc' or a pe.kernels.HMC, which moves whole populations, got "
            f"{described(kernel)},"
        )
    if adds_data_points(sampler, path):
        return (
            "path must be 'auto' or 'geometric', got data points that are added one by one, by "
            f"path={described(path)} or by method {sampler.name!r},"
        )
    if in_own_coordinates(reference) and components_of(reference) is None:
        return (
            "reference must be a name, posterior draws or a density of pe.references, such as "
            f"pe.references.Normal(mean, covariance), got {described(reference)}, which is called"
        )
    return None


def check_gradient(target: Any) -> None:
    """Raise ModelError if a target for NumPy or JAX has no gradient; its code is made here."""
    backend = getattr(target, "backend", None)
    if backend not in ("numpy", "jax") or not target.n_dim:
        return
    try:
        has_none = target.differentiable is None
    except NotBatchedError as error:
        raise ModelError(
            "backend='numpy' needs a model whose operations NumPy does for many points at once, "
            f"got one of which it cannot: {error}. Leave backend out."
        ) from error
    if has_none:
        target.density  # noqa: B018  # raises an error if JAX has no code for it either
        raise ModelError(
            f"backend={backend!r} needs a gradient, got a model with an operation that has none; "
            f"{_REMEDY}."
        )


def check_marginalise(marginalise: Any) -> None:
    """Raise an error unless the argument is ``"auto"``, True or False."""
    if not isinstance(marginalise, bool) and marginalise != "auto":
        raise ValueError(
            f"marginalise must be 'auto', True or False, got {described(marginalise)}; "
            "leave it out."
        )
