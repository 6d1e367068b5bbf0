"""Strict bounds of the evidence, on data that are simulated from the model."""

from concurrent.futures import Executor
from typing import Any

import numpy as np

from pm_evidence.api.arguments import (
    check_memory,
    checked_cores,
    checked_executor,
    one_target,
)
from pm_evidence.core.checks import check_count
from pm_evidence.core.contracts import Kernel
from pm_evidence.core.exceptions import ModelError, exceptions_of_users, usual_floats
from pm_evidence.core.interrupts import interruptible
from pm_evidence.core.random import resolve_seed
from pm_evidence.execution.display import Display
from pm_evidence.runs.anneal import anneal, warn_of
from pm_evidence.runs.defaults import default_method
from pm_evidence.runs.result import posterior_draws, result_of
from pm_evidence.runs.rounds import Run
from pm_evidence.samplers.ais import AIS
from pm_evidence.samplers.sampler import ReverseStarts
from pm_evidence.targets.model.cache import find_model, target_of
from pm_evidence.targets.model.derived import simulate


@interruptible()
@exceptions_of_users()
@usual_floats()
def simulate_and_certify(
    target: Any = None,
    *,
    draws: int = 1000,
    n_stages: int | None = None,
    kernel: str | Kernel = "auto",
    cores: int | None = None,
    executor: Executor | None = None,
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool = True,
    model: Any = None,
) -> Any:
    """Bound the evidence strictly on both sides, on data simulated from the model.

    Parameters and data are drawn together from the model. The drawn parameters are then an exact
    draw from the posterior given the drawn data, so reverse paths from there give a strict upper
    bound of log evidence, as forward paths give a lower one. Where both are close, annealing with
    these settings works for models and data of this kind; the observed values themselves are not
    used.

    Parameters
    ----------
    target : pymc.Model, optional
        The model; may be left out inside its context.
    draws : int
        Number of paths in each direction.
    n_stages : int, optional
        As for ``pe.methods.AIS``.
    kernel, cores, executor, random_seed, progressbar, model
        As for `sample_evidence`.

    Returns
    -------
    xarray.DataTree
        As from ``sample_evidence(method="ais")``, for the simulated data. Its estimators
        ``lower_bound`` and ``upper_bound`` hold the bounds in nats.

    Raises
    ------
    ModelError
        If the model has no well-defined evidence, or cannot be simulated because of a potential.
    ValueError, TypeError
        If an argument is of the wrong type or out of range.

    Notes
    -----
    Bidirectional Monte Carlo (Grosse, Ghahramani and Adams 2015; Grosse, Ancha and Roy 2016);
    Habeck (2017), Eq. 7. The bounds hold in expectation, over data as well as over paths.

    Examples
    --------
    >>> import pymc as pm, pm_evidence as pe
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", 0, 1)
    ...     y = pm.Normal("y", mu, 1, observed=[0.5, 1.5])
    >>> dt = pe.simulate_and_certify(model, random_seed=1, progressbar=False)
    >>> lower = pe.log_evidence(dt, estimator="lower_bound")
    >>> upper = pe.log_evidence(dt, estimator="upper_bound")
    >>> bool(lower.value < upper.value)
    True
    """
    given = find_model(one_target(target, model))
    sampler = AIS(n_stages=n_stages)
    check_count("draws", draws, 2 * sampler.chain_length)
    check_memory(draws)
    run = Run(
        sampler,
        draws,
        checked_cores(cores),
        checked_executor(executor),
        resolve_seed(random_seed),
        kernel=kernel,
        display=Display(progressbar),
    )
    if default_method(given) == "aisel":
        raise ModelError(
            "simulate_and_certify needs a likelihood that can be evaluated, got a model with "
            "pe.StateSpace or pe.RandomEffects: an exact draw of the parameters comes without an "
            "estimate of its own. Use sample_evidence(method=pe.methods.AISEL(resampling=None))."
        )
    with run.display:
        with run.display.compiling():
            simulated, x = simulate(given, run.seed)
            main = target_of(simulated)
        found = anneal(run, main, ReverseStarts(x, kind="exact"))
    warn_of(found)
    return result_of(run, found, posterior_draws(run, found.record, found.evidence))
