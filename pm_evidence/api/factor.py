"""Bayes factors: of two results, or of two models that are annealed into each other."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any

import numpy as np

from pm_evidence.api import arguments
from pm_evidence.api.arguments import TARGET_MCSE, entry
from pm_evidence.api.hypotheses import Options, constraint_factor, point_factor
from pm_evidence.core.checks import described
from pm_evidence.core.exceptions import ModelError, warn
from pm_evidence.core.random import Phase, resolve_seed, seed_of_run
from pm_evidence.core.records import Status, with_pointer
from pm_evidence.execution.blocks import dividing_rows
from pm_evidence.execution.display import Display
from pm_evidence.results.compare import BayesFactor, check_same_data, factor_of_results
from pm_evidence.results.stored import fingerprint
from pm_evidence.runs import defaults
from pm_evidence.runs.pair import anneal_between, check_annealed, model_draws
from pm_evidence.runs.rounds import Run
from pm_evidence.samplers.smc import SMC
from pm_evidence.targets.layout import PairLayout
from pm_evidence.targets.model.cache import checked_data, model_in


@entry()
def bayes_factor(
    dt1: Any,
    dt2: Any = None,
    *,
    point: Mapping[str, Any] | None = None,
    constraint: Callable[[Mapping[str, Any]], Any] | None = None,
    model: Any = None,
    idata: Sequence[Any] | None = None,
    target_mcse: float | None = TARGET_MCSE,
    cores: int | None = None,
    executor: Executor | None = None,
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool = True,
    compile_kwargs: Mapping[str, Any] | None = None,
) -> BayesFactor:
    """Return the Bayes factor of two results, of two models, or of a hypothesis about parameters.

    It is that of the first against the second, or of the hypothesis against its model.

    Of two results, the evidences are subtracted. Two models that share variables are annealed from
    one to the other: this needs much less computation than two evidences if their posteriors are
    alike, as they are in nested models, with other priors, or with another likelihood of the same
    data. A hypothesis about the parameters of one model is a ``point`` or a ``constraint``, whose
    Bayes factor is that of posterior and prior, from draws of the model.

    Parameters
    ----------
    dt1, dt2 : DataTree, LogEvidence or pymc.Model
        For a hypothesis, ``dt1`` alone: a result of ``sample_evidence``, or what ``pm.sample``
        returned. Otherwise two results of ``sample_evidence`` or `attach_evidence`, or two models
        (also Bambi's). All free variables of models must be continuous. Variables of the same name
        and shape are shared; of two vectors of different length, the elements up to the shorter
        length.
    point : mapping of str to float or array_like, optional
        Values of free variables, such as ``{"delta": 0.0}``. The null model is the model given that
        the variables have these values: the prior of all others is their prior given the point.
        One number holds all elements of a variable, and NaN in an array leaves an element free.
    constraint : callable or list of callable, optional
        An order or a range: a function of one draw, a mapping of the names of variables (also
        deterministic ones) to arrays of their shapes, that returns True or False. For example
        ``lambda v: v["mu"][0] < v["mu"][1]``. Of a list all functions must return True. Where few
        draws satisfy all of them, they are met one after the other.
    model : pymc.Model, optional
        The model of ``dt1``, for a hypothesis; may be left out inside its context.
    idata : pair of DataTree, optional
        Posterior draws of the two models: results of ``sample_evidence``, or what ``pm.sample``
        returned, of which bridge sampling then estimates a coarse evidence. Either may be None. If
        it is left out, both models are annealed coarsely from their priors. For two models only.
    target_mcse : float, optional
        Error in nats. Paths are annealed between the posteriors, in rounds, until the error of the
        log Bayes factor is at most this; None for one round. For a point, a further run is made if
        the error is larger from the draws that there are. For a constraint, the number of prior
        draws depends on it, and posterior draws are as many as there are.
    cores, executor, compile_kwargs
        As for `sample_evidence`.
    random_seed, progressbar
        As for `sample_evidence`. The same seed and models give the same numbers, bit for bit.

    Returns
    -------
    BayesFactor
        The Bayes factor with its error, in words, and its status. For a constraint it is that
        against the model without the constraint, and ``complement`` that against the model in which
        the constraint is violated; ``prior_prob`` and ``posterior_prob`` are its probabilities. For
        models it also has the number
        of evaluations, and the record of the work, from which ``pe.estimate`` computes all
        estimates again.

    Raises
    ------
    TypeError
        If the two are neither both results nor both models, or there is no model of a hypothesis.
    ModelError
        If two models share no variable, or one has discrete variables, a likelihood that is
        estimated, a prior of unknown mass, or no well-defined evidence; if a point concerns a prior
        that a transform cuts.
    NumericalError
        If a log density is NaN, or draws of one model have no density in the other.
    ValueError
        If the observed data differ, a result has no evidence, a point names discrete or unknown
        variables or lies outside the support, or another argument is wrong.

    Warns
    -----
    EvidenceWarning
        If the Bayes factor of models or of a hypothesis should not be relied on; its status says
        why.

    Notes
    -----
    *Point.* The Bayes factor is the ratio of the posterior and the prior density at the point
    (Dickey 1971), which is exact for the null model above, and for no other: where the null
    hypothesis has another prior of the remaining parameters, compare two models. The posterior
    density is the mean of ratios of log densities of Chen (1994), Eq. 2.3, which has no bias, in
    coordinates in which the other parameters do not depend on those of the point if the posterior
    is normal. If these ratios have a heavy tail, the error is too large, or fewer than 1 % of the
    draws are as far from their centre as the point, the evidence of the null model is estimated by
    a run of its own, and that of the model taken from ``dt1``, or found by `bridge_sampling`.

    *Constraint.* The ratio of the posterior and the prior probability (Klugkist, Laudy and Hoijtink
    2005), and the ratio of their odds. Prior draws are as many as needed, at most 320,000. The
    effective number of posterior draws is counted. Where fewer than 20 draws satisfy all of a list
    of constraints, their probability is that of one, times that of another given the first, and so
    on, rare ones first (Au and Beck 2001). Copies of the draws that satisfy those so far are moved
    by HMC within their region, and the error is that of 16 groups of draws. This needs continuous
    variables and a gradient. If all draws or none satisfy the constraint, the status is
    ``"bound"``: the Bayes factor is an upper or lower bound with a probability of 95 %, and has no
    error.

    *Models.* Draws from both posteriors are completed by the variables that their model lacks, from
    a density that is fitted to the posterior of the other model (the linking densities of Carlin
    and Chib 1995). Shared variables are mapped linearly so that means and covariances of the
    posteriors coincide where this brings them nearer to each other (Jarzynski 2002; Meng and
    Schilling 2002). Neither changes the evidences. Bennett's ratio of the work at both sets of
    draws is bridge sampling between the posteriors (Meng and Wong 1996). If they overlap too
    little, or the error is too large, paths anneal from each posterior to the other along
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

    The null hypothesis that ``mu`` is zero, and the hypothesis that it is positive:

    >>> model = normal(1)
    >>> dt = pe.sample_evidence(model, random_seed=1, progressbar=False)
    >>> null = pe.bayes_factor(dt, model=model, point={"mu": 0.0}, random_seed=1)
    >>> round(null.log_bf, 2)  # the exact value is -0.117
    -0.12
    >>> pe.bayes_factor(dt, model=model, constraint=lambda v: v["mu"] > 0, random_seed=1).words
    'weak evidence for the constraint'
    """
    if _is_hypothesis(dt2, point, constraint, model, idata):
        if target_mcse is not None:
            arguments.check_target(target_mcse)
        of_runs: dict[str, Any] = {"cores": cores, "executor": executor}
        of_runs |= {"progressbar": progressbar, "compile_kwargs": compile_kwargs}
        options = Options(target_mcse, resolve_seed(random_seed), of_runs)
        if constraint is not None:
            factor = constraint_factor(dt1, model, constraint, options)
        else:
            factor = point_factor(dt1, model, point, options)
    else:
        models = [model_in(each) for each in (dt1, dt2)]
        if None in models:
            _check_results(models, (dt1, dt2), idata)
            return factor_of_results(dt1, dt2)
        sampler = SMC()
        size = sampler.size(sampler.default_draws)
        run = Run(
            sampler,
            size,
            arguments.checked_cores(cores),
            arguments.checked_executor(executor),
            resolve_seed(random_seed),
            limits=arguments.limits(target_mcse, None, None, sampler.first_round(size)),
            display=Display(progressbar),
        )
        for_compiler = arguments.compile_options(compile_kwargs)
        factor = _of_models(run, models, _posteriors(idata), for_compiler)
    if factor.status != Status.OK:
        warn(f"status {factor.status!r}: {factor.warning}")
    return factor


def _of_models(
    run: Run, models: Sequence[Any], posteriors: Sequence[Any], compile_kwargs: dict[str, Any]
) -> BayesFactor:
    """Return the Bayes factor of two models, by annealing from one to the other."""
    if models[0] is models[1]:
        raise ModelError(
            "dt1 and dt2 must be two models, got the same model twice; pass the other one."
        )
    data = [fingerprint(checked_data(model)) for model in models]
    check_same_data(dict(zip(("dt1", "dt2"), data, strict=True)))
    with dividing_rows(run.cores, run.executor), run.display:
        with run.display.compiling():
            n = defaults.expected_evaluations(run.sampler, run.limits, is_short=True)
            targets = [
                defaults.model_target(model, "auto", n, compile_kwargs, reparameterise=True)
                for model in models
            ]
        for target, which in zip(targets, ("first", "second"), strict=True):
            check_annealed(target, which)
        PairLayout.of(*targets)  # raises the error if they share no variable
        drawn = [
            model_draws(
                replace(run, seed=seed_of_run(run.seed, Phase.PAIR, k)),
                target,
                posteriors[k],
                f"idata[{k}]",
            )
            for k, target in enumerate(targets)
        ]
        found = anneal_between(run, *drawn)
    best, spent = found.best, found.record.facts.n_evaluations
    warning = with_pointer(best.status, best.message)
    return BayesFactor.of(best, warning=warning, n_evaluations=spent, record=found.record)


def _is_hypothesis(dt2: Any, point: Any, constraint: Any, model: Any, idata: Any) -> bool:
    """Return whether a hypothesis is asked for, and not a pair; raise ValueError if both are."""
    asked = {"dt2": dt2, "point": point, "constraint": constraint}
    given = [name for name, value in asked.items() if value is not None]
    if len(given) > 1 or (not given and model is not None):
        raise ValueError(
            f"one of dt2, point and constraint must be given, got {' and '.join(given) or 'none'}; "
            'pass for example point={"delta": 0.0} and the model.'
        )
    found = point is not None or constraint is not None
    for name, value, wanted in (("model", model, found), ("idata", idata, not found)):
        if value is not None and not wanted:
            use = "a point or a constraint" if name == "model" else "two models"
            raise ValueError(f"{name} must be left out unless there is {use}; leave it out.")
    return found


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
