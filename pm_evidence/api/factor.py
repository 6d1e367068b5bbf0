"""Bayes factors: of two results, or of two models that are annealed into each other."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any

import numpy as np

from pm_evidence.api.arguments import (
    TARGET_MCSE,
    checked_cores,
    checked_executor,
    compile_options,
    limits,
)
from pm_evidence.core.checks import described
from pm_evidence.core.exceptions import ModelError, exceptions_of_users, usual_floats, warn
from pm_evidence.core.interrupts import interruptible
from pm_evidence.core.random import Phase, resolve_seed, seed_of_run
from pm_evidence.core.records import Status, with_pointer
from pm_evidence.execution.blocks import dividing_rows
from pm_evidence.execution.display import Display
from pm_evidence.results.compare import BayesFactor, check_same_data, factor_of_results
from pm_evidence.results.observed import fingerprint
from pm_evidence.runs.pair import anneal_between, check_annealed, model_draws
from pm_evidence.runs.rounds import Run
from pm_evidence.samplers.smc import SMC
from pm_evidence.targets.layout import PairLayout
from pm_evidence.targets.model.cache import checked_data, model_in, target_of

_NAMES = ("dt1", "dt2")


@interruptible()
@exceptions_of_users()
@usual_floats()
def bayes_factor(
    dt1: Any,
    dt2: Any,
    *,
    idata: Sequence[Any] | None = None,
    target_mcse: float | None = TARGET_MCSE,
    cores: int | None = None,
    executor: Executor | None = None,
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool = True,
    compile_kwargs: Mapping[str, Any] | None = None,
) -> BayesFactor:
    """Return the Bayes factor of the first of two results, or of two models, against the second.

    Of two results, the evidences are subtracted. Two models that share variables are annealed from
    one to the other: this needs much less computation than two evidences if their posteriors are
    alike, as they are in nested models, with other priors, or with another likelihood of the same
    data.

    Parameters
    ----------
    dt1, dt2 : DataTree, LogEvidence or pymc.Model
        Two results of ``sample_evidence`` or `attach_evidence`, or two models (also Bambi's). All
        free variables of models must be continuous. Variables of the same name and shape are
        shared; of two vectors of different length, the elements up to the shorter length.
    idata : pair of DataTree, optional
        Posterior draws of the two models: results of ``sample_evidence``, or what ``pm.sample``
        returned, of which bridge sampling then estimates a coarse evidence. Either may be None. If
        it is left out, both models are annealed coarsely from their priors. This and all further
        arguments are for models only.
    target_mcse : float, optional
        Error in nats. Paths are annealed between the posteriors, in rounds, until the error of the
        log Bayes factor is at most this; None for one round.
    cores, executor, compile_kwargs
        As for `sample_evidence`.
    random_seed, progressbar
        As for `sample_evidence`. The same seed and models give the same numbers, bit for bit.

    Returns
    -------
    BayesFactor
        The Bayes factor with its error, in words, and its status. For models it also has the number
        of evaluations, and the record of the work, from which ``pe.estimate`` computes all
        estimates again.

    Raises
    ------
    TypeError
        If the two are neither both results nor both models.
    ModelError
        If two models share no variable, or one has discrete variables, a likelihood that is
        estimated, a prior of unknown mass, or no well-defined evidence.
    NumericalError
        If a log density is NaN, or draws of one model have no density in the other.
    ValueError
        If the observed data differ, a result has no evidence, or another argument is wrong.

    Warns
    -----
    EvidenceWarning
        If the Bayes factor of models should not be relied on; its status says why.

    Notes
    -----
    Draws from both posteriors are completed by the variables that their model lacks, from a density
    that is fitted to the posterior of the other model (the linking densities of Carlin and Chib
    1995). Shared variables are mapped linearly so that means and covariances of the posteriors
    coincide where this brings them nearer to each other (Jarzynski 2002; Meng and Schilling 2002).
    Neither changes the evidences. Bennett's ratio of the work at both sets of draws is bridge
    sampling between the posteriors (Meng and Wong 1996). If they overlap too little, or the error
    is too large, paths anneal from each posterior to the other along
    ``f_1**(1 - beta) * f_2**beta``, and Bennett's ratio is that of the work of these paths.

    Half of the draws fit what the other half is used with. The error is that of the spread of
    groups of draws, which counts that draws depend on each other. The status is not ``"ok"`` if
    both directions contradict each other, if the coarse evidence of a model, which includes a
    search for modes, cannot be relied on, or if the difference of the two coarse evidences
    contradicts the estimate.

    The words are the category of Kass and Raftery (1995, section 3.2) that the estimate lies in.
    If the interval extends into other categories, the category is uncertain.

    Examples
    --------
    >>> import pymc as pm, pm_evidence as pe
    >>> def normal(sigma):
    ...     with pm.Model() as model:
    ...         mu = pm.Normal("mu", 0, sigma)
    ...         pm.Normal("y", mu, 1, observed=[0.5, 1.5])
    ...     return model
    >>> factor = pe.bayes_factor(normal(1), normal(2), random_seed=1, progressbar=False)
    >>> round(factor.log_bf, 2), factor.status  # the exact value is 0.327
    (0.33, 'ok')
    """
    models = [model_in(each) for each in (dt1, dt2)]
    if None in models:
        _check_results(models, (dt1, dt2), idata)
        return factor_of_results(dt1, dt2)
    run = _run_of(target_mcse, cores, executor, random_seed)
    posteriors, options = _posteriors(idata), compile_options(compile_kwargs)
    _check_models(models)
    with dividing_rows(run.cores, run.executor), Display(progressbar) as display:
        targets = _targets(models, options, display)
        drawn = [
            model_draws(
                replace(run, seed=seed_of_run(run.seed, Phase.PAIR, k)),
                target,
                posteriors[k],
                display,
                f"idata[{k}]",
            )
            for k, target in enumerate(targets)
        ]
        record, (found, *_) = anneal_between(run, drawn[0], drawn[1], display)
    warning = with_pointer(found.status, found.message)
    if found.status != Status.OK:
        warn(f"status {found.status!r}: {warning}")
    spent = record.facts.n_evaluations
    return BayesFactor.of(found, warning=warning, n_evaluations=spent, record=record)


def _check_results(models: Sequence[Any], given: Sequence[Any], idata: Any) -> None:
    """Raise an error unless neither argument is a model, and there are no posterior draws."""
    if models[0] is not models[1]:
        raise TypeError(
            "dt1 and dt2 must be two models or two results, got "
            f"{' and '.join(map(described, given))}; pass two models, and the result of one in "
            "idata=(result, None)."
        )
    if idata is not None:
        raise ValueError(
            "idata must be left out unless dt1 and dt2 are models, got posterior draws beside two "
            "results; pass the models, or leave idata out."
        )


def _targets(models: Sequence[Any], options: dict[str, Any], display: Display) -> list[Any]:
    """Return the compiled models, if they can be annealed into each other."""
    with display.compiling():
        targets = [
            target_of(model, compile_kwargs=options, reparameterise=True) for model in models
        ]
    for target, which in zip(targets, ("first", "second"), strict=True):
        check_annealed(target, which)
    PairLayout.of(*targets)  # raises the error if they share no variable
    return targets


def _run_of(target_mcse: Any, cores: Any, executor: Any, random_seed: Any) -> Run:
    sampler = SMC()
    size = sampler.size(sampler.default_draws)
    return Run(
        sampler=sampler,
        size=size,
        cores=checked_cores(cores),
        executor=checked_executor(executor),
        seed=resolve_seed(random_seed),
        limits=limits(target_mcse, None, None, sampler.first_round(size)),
    )


def _posteriors(idata: Any) -> tuple[Any, Any]:
    """Return the posterior draws of both models; None where there are none."""
    pair = (None, None) if idata is None else idata
    wanted = isinstance(pair, tuple | list) and len(pair) == 2
    if not wanted or not all(each is None or hasattr(each, "children") for each in pair):
        raise TypeError(
            "idata must be a pair of DataTrees with posterior draws, of which either may be None, "
            f"got {described(idata)}; pass for example idata=(idata_1, idata_2)."
        )
    return pair[0], pair[1]


def _check_models(models: Sequence[Any]) -> None:
    """Raise an error if two models cannot be compared."""
    if models[0] is models[1]:
        raise ModelError(
            "dt1 and dt2 must be two models, got the same model twice; pass the other one."
        )
    data = [fingerprint(checked_data(model)) for model in models]
    check_same_data(dict(zip(_NAMES, data, strict=True)))
