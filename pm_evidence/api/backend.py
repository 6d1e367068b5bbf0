"""Checks that JAX can evaluate what is asked for, before anything is run."""

from typing import Any

import numpy as np

from pm_evidence.core.checks import check_choice, described
from pm_evidence.core.contracts import Kernel
from pm_evidence.core.exceptions import ModelError
from pm_evidence.core.jax import check_jax
from pm_evidence.families.native import is_native
from pm_evidence.kernels.hmc import HMC
from pm_evidence.references.packed import packed
from pm_evidence.runs.defaults import adds_data_points
from pm_evidence.runs.references import in_own_coordinates
from pm_evidence.samplers.sampler import Sampler
from pm_evidence.targets.compile.numpy_graph import NotBatchedError
from pm_evidence.targets.estimated.variable import estimated_variables

__all__ = ["BACKENDS", "check_backend", "check_gradient", "needs_compiled_code"]

BACKENDS = ("auto", "numpy", "numba", "jax")
_REMEDY = "leave backend out"


def check_backend(
    backend: Any, given: Any, kernel: str | Kernel, sampler: Sampler, path: Any, reference: Any
) -> None:
    """Raise an error if the backend is unknown, or cannot do what the other arguments ask for.

    Parameters
    ----------
    backend : str
        What the user asks for.
    given : pymc.Model or native target
        What is annealed.
    kernel, path, reference
        The arguments of `sample_evidence`.
    sampler : Sampler
        The method.

    Raises
    ------
    ValueError
        If the backend is unknown, or another argument does not fit it.
    ImportError
        If JAX is not installed.
    ModelError
        If the model has discrete variables, or a likelihood that is estimated.
    """
    check_choice("backend", backend, BACKENDS)
    if backend in ("auto", "numba"):
        return
    if is_native(given):
        raise ValueError(
            "backend must be 'numba' for native targets, which have compiled kernels of their own, "
            f"got {backend!r} for {described(given)}; {_REMEDY}."
        )
    _check_model(given, backend)
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
            "kernel must be 'auto', 'hmc' or a pe.HMC, which moves whole populations, got "
            f"{described(kernel)},"
        )
    if adds_data_points(sampler, path):
        return (
            "path must be 'auto' or 'geometric', got data points that are added one by one, by "
            f"path={described(path)} or by method {sampler.name!r},"
        )
    if in_own_coordinates(reference) and packed(reference, np.empty(0, np.int64)) is None:
        return (
            "reference must be a name, posterior draws or a density of pe.references, such as "
            f"pe.references.Normal(mean, covariance), got {described(reference)}, which is called"
        )
    return None


def _check_model(model: Any, backend: str) -> None:
    estimated = [rv.name for rv in estimated_variables(model)]
    if estimated:
        raise ModelError(
            f"backend={backend!r} needs a likelihood that is evaluated, got a model in which that "
            f"of {estimated[0]!r} is estimated by pe.StateSpace or pe.RandomEffects; {_REMEDY}."
        )
    discrete = [rv.name for rv in model.free_RVs if np.dtype(rv.dtype).kind in "iub"]
    if discrete:
        raise ModelError(
            f"backend={backend!r} needs continuous variables only, got a model in which "
            f"{', '.join(map(repr, discrete[:10]))} is discrete; sum it out, for example by "
            f"pm.Mixture, or {_REMEDY}."
        )


def check_gradient(target: Any) -> None:
    """Raise ModelError if a target for NumPy or JAX has no gradient; its code is made here.

    Raises
    ------
    ModelError
        If there is none, or JAX has no code for the model.
    """
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
