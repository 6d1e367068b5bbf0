"""Log evidence from posterior draws, in one call."""

from collections.abc import Mapping
from concurrent.futures import Executor
from os import PathLike
from typing import Any

import numpy as np

from pm_evidence.api.arguments import TARGET_MCSE
from pm_evidence.api.sample import sample_evidence
from pm_evidence.core.contracts import Kernel
from pm_evidence.core.exceptions import usual_floats
from pm_evidence.samplers.bridge import Bridge


@usual_floats()
def bridge_sampling(
    idata: Any,
    model: Any = None,
    *,
    target_mcse: float | None = TARGET_MCSE,
    max_time: float | None = None,
    max_draws: int | None = None,
    draws: int | None = None,
    kernel: str | Kernel = "auto",
    potentials: str = "likelihood",
    reparameterise: bool = True,
    backend: str = "auto",
    cores: int | None = None,
    executor: Executor | None = None,
    checkpoint: str | PathLike[str] | None = None,
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool = True,
    compile_kwargs: Mapping[str, Any] | None = None,
) -> Any:
    """Estimate the evidence of a model from posterior draws that are there already.

    The same as ``sample_evidence(model, method=pe.methods.Bridge(idata))``.

    Parameters
    ----------
    idata : DataTree
        What ``pm.sample`` returned for this model and its data, whatever its ``nuts_sampler``. Four
        chains or more, of 1,000 draws each, are enough for most models.
    model : pymc.Model, optional
        The model; may be left out inside its context. All its free variables must be continuous.
    target_mcse : float, optional
        Error in nats that is aimed at; None for one round of draws from the fitted density, or for
        as many as lower the error within ``max_time``.
    max_time, max_draws : optional
        Limits of the draws from the fitted density: seconds, and their number.
    draws : int, optional
        Draws from the fitted density, 4,000 by default. More are added until the error is as small
        as ``target_mcse``, unless the given draws limit it.
    kernel : str or Kernel
        What moves the particles of the small annealing that checks the draws.
    potentials, reparameterise, backend, cores, executor, checkpoint
        As for `sample_evidence`.
    random_seed, progressbar, compile_kwargs
        As for `sample_evidence`. The same seed and draws give the same numbers, bit for bit.

    Returns
    -------
    xarray.DataTree
        All groups of ``idata``, and the groups ``log_evidence``, ``work`` and ``annealing``. The
        estimators are ``"bridge"``, ``"importance"``, and the coarse ``"smc"`` of the check.

    Raises
    ------
    ModelError
        If the model has no well-defined evidence, or variables that are not continuous.
    NumericalError
        If a log density is NaN, or the check does not reach the posterior.
    ValueError, TypeError
        If the draws are not those of this model and its data, or another argument is wrong.

    Warns
    -----
    EvidenceWarning
        If the estimate should not be relied on; the status in ``log_evidence`` says why.

    Notes
    -----
    Meng and Wong (1996), with a mixture of Student-t densities that is fitted to one half of the
    draws and used with the other half, as Wang, Jones and Meng (2022) recommend. The error is that
    of the spread of 16 groups of neighbouring draws, so that it counts their autocorrelation.
    It does not count what no draw shows. Therefore the status is not ``"ok"`` if R-hat, divergences
    or the effective number of draws say that these should not be relied on, or if a small
    annealing from the prior or a search for peaks finds what they have missed.

    Examples
    --------
    >>> import pymc as pm, pm_evidence as pe
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", 0, 1)
    ...     y = pm.Normal("y", mu, 1, observed=[0.5, 1.5])
    ...     idata = pm.sample(1000, chains=4, cores=1, random_seed=1, progressbar=False)
    >>> dt = pe.bridge_sampling(idata, model, random_seed=1, progressbar=False)
    >>> pe.log_evidence(dt).status  # the exact value is -2.971
    'ok'
    """
    return sample_evidence(
        model,
        method=Bridge(idata),
        draws=draws,
        kernel=kernel,
        potentials=potentials,
        reparameterise=reparameterise,
        backend=backend,
        cores=cores,
        executor=executor,
        checkpoint=checkpoint,
        target_mcse=target_mcse,
        max_time=max_time,
        max_draws=max_draws,
        random_seed=random_seed,
        progressbar=progressbar,
        compile_kwargs=compile_kwargs,
    )
