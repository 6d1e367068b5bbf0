"""The evidence under other priors: by reweighting posterior draws, or by new runs."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pm_evidence.api.arguments import TARGET_MCSE, check_target
from pm_evidence.api.prior_rows import PriorRun, Study, seed_of
from pm_evidence.api.priors import sample_options, variants_of
from pm_evidence.api.sample import sample_evidence
from pm_evidence.core.checks import check_choice, check_flag, described
from pm_evidence.core.exceptions import usual_floats
from pm_evidence.core.random import resolve_seed
from pm_evidence.results.sensitivity import SensitivityTable, sensitivity_table
from pm_evidence.targets.model.cache import is_model

__all__ = ["prior_sensitivity"]

_POLICIES = ("auto", "always", "never")


@usual_floats()
def prior_sensitivity(
    model: Any,
    priors: Mapping[str, Any],
    *,
    result: Any = None,
    new_runs: str = "auto",
    target_mcse: float = TARGET_MCSE,
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool = True,
    sample_kwargs: Mapping[str, Any] | None = None,
) -> SensitivityTable:
    """Estimate the evidence of a model under other priors of its variables, one at a time.

    Parameters
    ----------
    model : pymc.Model
        The model; it is not changed.
    priors : mapping of str to factors or distributions
        For each free variable, a list of factors such as ``[0.5, 2]``, by which the spread of its
        prior about its location is multiplied; or a mapping of names to distributions, such as
        ``{"half-Cauchy": pm.HalfCauchy.dist(5)}``, to functions that take the model and return one,
        or to factors. Distributions may depend on other variables of the model.
    result : DataTree, optional
        What ``sample_evidence`` returned for this model; it is sampled if this is left out.
    new_runs : {"auto", "always", "never"}
        Whether models with other priors are sampled: where draws under the prior as it is written
        cannot be reweighted reliably, always, or never.
    target_mcse : float
        Error in nats that each run aims at.
    random_seed : int or numpy.random.Generator, optional
        The same seed gives the same numbers.
    progressbar : bool
        Whether to show the progress of runs.
    sample_kwargs : mapping, optional
        Further arguments of ``sample_evidence``, such as ``method`` or ``cores``.

    Returns
    -------
    SensitivityTable
        A DataFrame whose index holds variable and prior. ``factor``; ``log_evidence`` and ``mcse``
        in nats; ``log_bf`` and ``bf`` against the model as it is written, with ``log_bf_mcse`` in
        nats; ``how`` (``"as written"``, ``"reweighted"`` or ``"new run"``); ``pareto_k`` and
        ``ess`` of the reweighted draws; ``status``, ``warning``; ``dof`` and ``log_bf_dof``. Each
        variable has a row for its prior as it is written, between smaller and larger factors.

    Raises
    ------
    ModelError
        If the model has no well-defined evidence, or a factor is given for a distribution that has
        no scale about a location.
    ValueError, TypeError
        If an argument is of the wrong type or out of range, a name is not that of a free variable,
        or ``result`` is not one of this model and its data.

    Warns
    -----
    EvidenceWarning
        If an estimate of a run should not be relied on.

    Notes
    -----
    The Bayes factor of two priors of one model is the mean of the ratio of their densities over
    posterior draws. Numerator and denominator share the likelihood, so that the error of ``log_bf``
    is smaller than those of the two evidences. That of ``log_evidence`` is the sum of the error of
    the run and that of the ratio, which is an upper bound: both come from the same draws, and may
    be correlated.

    Reweighted draws are used if the Pareto tail of the ratios is not too heavy for their number
    (Vehtari et al. 2024), 100 draws are effective, the error is at most that of the difference of
    two runs, and not more than twice ``target_mcse`` of the evidence can lie where there is no
    draw. The last condition bounds, with 95 %, what a region without draws can hold, from the
    largest ratio among draws from the other prior. A prior that is more concentrated usually
    meets it, and one with a wider range does not. A run under the widest prior is therefore
    also used to reweight its draws for the others.

    For Uniform the factor scales the length of the interval about its middle, for MvNormal the
    standard deviations, and for LogNormal the spread of the logarithm. A factor for a variable
    whose prior depends on other variables multiplies what they give it.

    Examples
    --------
    >>> import pymc as pm, pm_evidence as pe
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", 0, 1)
    ...     y = pm.Normal("y", mu, 1, observed=[0.5, 1.5])
    >>> table = pe.prior_sensitivity(model, {"mu": [0.5]}, random_seed=1, progressbar=False)
    >>> list(table["how"])
    ['reweighted', 'as written']
    """
    if not is_model(model):
        raise TypeError(f"model must be a pymc.Model, got {described(model)}; pass the model.")
    variants = variants_of(model, priors)
    check_choice("new_runs", new_runs, _POLICIES)
    check_target(target_mcse)
    check_flag("progressbar", progressbar)
    options = sample_options("sample_kwargs", sample_kwargs)
    options |= {"target_mcse": target_mcse, "progressbar": progressbar}
    seed = resolve_seed(random_seed)
    if result is None:
        result = sample_evidence(model, random_seed=seed_of(seed, 0), **options)
    base = PriorRun.of(result, model, None)
    study = Study(base, model, new_runs, options, seed)
    rows = [row for name, group in variants.items() for row in study.rows(name, group)]
    return sensitivity_table(rows)
