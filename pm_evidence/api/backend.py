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
from pm_evidence.targets.estimated.variable import estimated_variables

__all__ = ["BACKENDS", "check_backend", "check_gradient"]

BACKENDS = ("numba", "numpy", "jax")
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
    if backend in ("numba", "numpy"):
        return
    if is_native(given):
        raise ValueError(
            "backend must be 'numba' for native targets, which have compiled kernels of their own, "
            f"got 'jax' for {described(given)}; {_REMEDY}."
        )
    _check_model(given)
    is_hmc = kernel in ("auto", "hmc") if isinstance(kernel, str) else isinstance(kernel, HMC)
    if not is_hmc:
        raise ValueError(
            "kernel must be 'auto', 'hmc' or a pe.HMC with backend='jax', which moves whole "
            f"populations, got {described(kernel)}; leave kernel out, or {_REMEDY}."
        )
    if adds_data_points(sampler, path):
        raise ValueError(
            "path must be 'auto' or 'geometric' with backend='jax', got data points that are added "
            f"one by one, by path={described(path)} or by method {sampler.name!r}; {_REMEDY}."
        )
    if in_own_coordinates(reference) and packed(reference, np.empty(0, np.int64)) is None:
        raise ValueError(
            "reference must be a name, posterior draws or a density of pe.references with "
            f"backend='jax', as JAX cannot call other objects, got {described(reference)}; pass "
            f"for example pe.references.Normal(mean, covariance), or {_REMEDY}."
        )
    check_jax()


def _check_model(model: Any) -> None:
    estimated = [rv.name for rv in estimated_variables(model)]
    if estimated:
        raise ModelError(
            "backend='jax' needs a likelihood that is evaluated, got a model in which that of "
            f"{estimated[0]!r} is estimated by pe.StateSpace or pe.RandomEffects; {_REMEDY}."
        )
    discrete = [rv.name for rv in model.free_RVs if np.dtype(rv.dtype).kind in "iub"]
    if discrete:
        raise ModelError(
            "backend='jax' needs continuous variables only, got a model in which "
            f"{', '.join(map(repr, discrete[:10]))} is discrete; sum it out, for example by "
            f"pm.Mixture, or {_REMEDY}."
        )


def check_gradient(target: Any) -> None:
    """Raise ModelError if a target for JAX has no gradient; it is compiled here.

    Raises
    ------
    ModelError
        If there is none, or JAX has no code for the model.
    """
    if getattr(target, "backend", None) != "jax" or not target.n_dim:
        return
    if target.differentiable is None:
        target.density  # noqa: B018  # raises an error if JAX has no code for it either
        raise ModelError(
            "backend='jax' needs a gradient, got a model with an operation that has none; "
            f"{_REMEDY}."
        )
