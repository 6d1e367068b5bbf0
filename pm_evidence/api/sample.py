"""The entry point: arguments are resolved, the target is annealed, the result is put together."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from inspect import signature
from math import inf
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.api import arguments
from pm_evidence.api.arguments import TARGET_MCSE, entry
from pm_evidence.core.checks import check_choice, check_flag, with_remedies
from pm_evidence.core.contracts import Kernel, Path, Target
from pm_evidence.core.digest import keeping
from pm_evidence.core.exceptions import ModelError, usual_floats
from pm_evidence.execution.blocks import dividing_rows
from pm_evidence.execution.display import Display
from pm_evidence.families.native import is_native
from pm_evidence.results.datatree import attach_evidence
from pm_evidence.runs import defaults, result
from pm_evidence.runs.anneal import anneal_moved, over_prior, warn_of, with_particles
from pm_evidence.runs.checkpoint import with_journal
from pm_evidence.runs.given import bridge_given
from pm_evidence.runs.references import check_reference_argument, in_own_coordinates, starts_from
from pm_evidence.runs.rounds import Run
from pm_evidence.runs.routes import anneal_by_routes
from pm_evidence.samplers.bridge import Bridge
from pm_evidence.samplers.planning import Schedule
from pm_evidence.samplers.sampler import Sampler

Floats = NDArray[np.float64]


_OF_CHAINS = "target_mcse= sets the error, and draws= the number of draws"
# Arguments of pm.sample and of other packages, and what is meant here.
_ELSEWHERE = {
    **dict.fromkeys(("seed", "random_state", "rng"), "pass random_seed="),
    **dict.fromkeys(("chains", "tune", "target_accept"), _OF_CHAINS),
    **dict.fromkeys(("n_samples", "samples", "num_samples"), "pass draws="),
    "progress": "pass progressbar=",
    "idata": "the evidence from draws of pm.sample is pe.bridge_sampling(idata, model)",
    "nuts_sampler": "sample with pm.sample, then call pe.bridge_sampling(idata, model)",
}


@with_remedies(_ELSEWHERE)
@entry()
def sample_evidence(
    target: Any = None,
    *,
    method: str | Sampler | Bridge = "auto",
    draws: int | None = None,
    schedule: str | Schedule | Sequence[float] | Floats = "adaptive",
    kernel: str | Kernel = "auto",
    reference: Any = "prior",
    path: str | Path = "auto",
    potentials: str = "likelihood",
    reparameterise: bool = True,
    marginalise: bool | str = "auto",
    backend: str = "auto",
    cores: int | None = None,
    executor: Executor | None = None,
    target_mcse: float | None = TARGET_MCSE,
    max_time: float | None = None,
    max_draws: int | None = None,
    checkpoint: str | PathLike[str] | None = None,
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool = True,
    model: Any = None,
    idata_kwargs: Mapping[str, Any] | None = None,
    compile_kwargs: Mapping[str, Any] | None = None,
) -> Any:
    """Estimate the evidence (marginal likelihood) of a model, with its error.

    Parameters
    ----------
    target : pymc.Model or native target, optional
        The model; may be left out inside its context. Or a target such as
        ``pe.mixtures.Gaussian()``, or one of your own, derived from `pe.extending.NativeTarget`.
    method : str or sampler
        ``"smc"`` (sequential Monte Carlo on independent islands), ``"ais"`` (annealed importance
        sampling with independent paths, forward and reverse), ``"aisel"`` (annealed importance
        sampling with an estimated likelihood), ``"parallel_tempering"`` or
        ``"simulated_tempering"`` (chains that move between temperatures), ``"resample_move"`` or
        ``"arm"`` (particles to which data, or variables, are added step by step; ``"arm"`` uses
        more of them where they are needed), or a sampler with its own options, such as
        ``pe.methods.SMC(islands=32)`` or ``pe.methods.ParallelTempering(ladders=64)``.
        ``pe.methods.Bridge(idata)`` takes posterior draws that are there already, see
        `bridge_sampling`. ``"auto"`` is ``"aisel"`` for models with a `pe.StateSpace` or
        `pe.RandomEffects`, ``"smc"`` for all other models, and that of the target, mostly
        ``"ais"``, for native targets.
    draws : int, optional
        How many posterior draws, or paths in each direction, the first round makes in all: 3,200
        by default for SMC (200 on each of 16 islands), 1,000 for AIS and AISEL, 16,000 for parallel
        tempering (500 on each of 32 ladders), 8,000 for simulated tempering. With islands each
        makes at least two chains (20 draws for the default of ``pe.methods.SMC``), and each ladder
        at least two draws. Very long runs of tempering record one iteration of several, so that the
        posterior has fewer draws. The defaults are divided by up to 10 for models with more than
        10,000 numbers of data, constants and results of operations, because each evaluation takes
        long. If ``draws`` is left out, a continuous model is first annealed coarsely, and a density
        fitted to it; this is enough if draws from the fitted density give the evidence reliably
        (see Notes).
    schedule : str, schedule or array_like
        ``"adaptive"``; ``"linear"``, ``"sm08"``, ``"gms13"`` or ``"varopt"`` with the ``n_stages``
        of the sampler; a schedule with its own options, such as
        ``pe.schedules.VarOpt(largest_step=0.01)``; or inverse temperatures that rise from 0 to 1.
    kernel : str or Kernel
        What moves the continuous variables: ``"auto"`` (HMC where there is a gradient),
        ``"hmc"``, ``"random_walk"``, or a kernel object. Discrete variables with small support
        are drawn exactly, others walked.
    reference : str, DataTree or reference
        The density that annealing of a model starts from. ``"prior"``; ``"laplace"``, normal
        densities at the peaks that ascents from prior draws end at, unless a likelihood is
        estimated; ``"fit"``, a mixture of Student-t densities fitted to a small annealing from the
        prior; posterior draws of the same model and data, to which such a mixture is fitted; or a
        density of the unconstrained values of the continuous variables, such as
        ``pe.references.Normal(mean, covariance)``, or any object with ``draw(n, rng)`` and
        ``log_density(x)``. Weights are exact however bad it is.
        A tenth of every reference is the prior, so that they are bounded where the prior reaches.
        Discrete variables keep their prior, circular ones are uniform. Every such run is checked by
        a small annealing from the prior, whose evaluations are counted.
    path : str or path
        The family of densities between reference and target. ``"geometric"`` raises the likelihood
        to the power beta. ``"data_points"``, or a `pe.paths.DataPoints`, adds the data of a model
        one after the other. Lattices also have ``"detour"``, restricted Boltzmann machines and
        `Gaussian` ``"moment_average"``, and machines ``"units"``; an object such as
        ``pe.paths.DetouredPath(target, height=1.0)`` has options. ``"auto"`` is the target's usual
        path; ``"geometric"`` for tempering, which needs a log density that is linear in beta;
        ``"data_points"`` for models, and ``"units"`` for machines, with ``"resample_move"`` and
        ``"arm"``.
    potentials : {"likelihood", "prior"}
        Whether a ``pm.Potential`` counts as data, or as a part of the prior: then its normalising
        constant is estimated by a second run and taken off, with its error.
    reparameterise : bool
        Whether variables of a model whose scale is a free variable, such as group effects, are
        sampled in the coordinates that a pilot finds best: centred, non-centred or between. Log
        evidence and posterior draws are those of the model as it is written. The model keeps its
        coordinates if ``kernel`` or ``reference`` is an object of one's own, if data points are
        added one by one, and if a likelihood is estimated.
    marginalise : {"auto", True, False}
        Whether variables whose elements are independent given the others, such as counts behind a
        detection, labels of a mixture or effects of groups, are integrated one element at a time
        (`structure` shows them). Only the others are then sampled; draws of the integrated ones
        come from their distribution given these. ``"auto"`` sums discrete variables whenever it
        can, and integrates continuous ones if method, schedule and draws are left out and no
        approximation of all variables takes less time. The attribute ``marginalised`` of the result
        names them, and ``integration_error`` is a part of the stated error.
    backend : {"auto", "numpy", "numba", "jax"}
        What evaluates the log densities of a model. ``"numpy"`` needs no compilation and suits
        short runs; the model must have continuous variables only and no loops. ``"numba"`` compiles
        the model, which takes 5 to 60 seconds and suits long runs. ``"auto"`` is NumPy for short
        runs of models that it can evaluate, and numba otherwise; the attribute ``backend`` of the
        result says which. ``"jax"`` (extra ``jax``) is compiled for whole populations, on a CPU or
        on a GPU, in double precision. The model must have continuous variables only and operations
        that JAX has; the kernel is HMC. Results are equal but for rounding, which depends on the
        number of threads with JAX.
    cores : int, optional
        Threads in this process; all cores by default.
    executor : concurrent.futures.Executor, optional
        Where the blocks run instead, for example ``client.get_executor()`` of Dask.
    target_mcse : float, optional
        Error in nats. Rounds of draws are added until the error of the recommended log evidence is
        at most this, and its status is ``"ok"``; None for a single round, or for as many rounds as
        end within ``max_time``. If ``draws`` is left out, a larger error than the default makes the
        search for missed modes smaller too.
    max_time : float, optional
        Seconds. A round is not started if it is expected to end later than this. The first round is
        always finished; that of the cheapest route is smaller where evaluations are so dear that
        the usual one would take too long.
    max_draws : int, optional
        Largest number of draws over all islands, or of paths in each direction. If this or
        ``max_time`` ends a run before the error is small enough, the status names it. Without these
        limits a run ends at 10 times the draws of its first round (a `RBM` at 1,500 paths) if
        ``target_mcse`` is the default, and at 1,000 times otherwise.
    checkpoint : path, optional
        A folder, in which every finished block is stored. The same call goes on from there if it
        was interrupted, or its process died, with the same results; see ``docs/checkpoints.md``.
    random_seed : int or numpy.random.Generator, optional
        The same seed gives the same numbers, bit for bit, whatever ``cores`` and ``executor``
        (with ``backend="jax"`` only up to rounding). What a stored result holds as its
        ``random_seed`` can be passed as it is, digits included. If it is left out, a checkpoint
        keeps the one that was drawn.
    progressbar : bool
        Whether to show progress.
    model : pymc.Model, optional
        The same as ``target``, as in ``pm.sample``.
    idata_kwargs : mapping, optional
        ``coords``, ``dims`` to add to the model's, and ``log_likelihood=True`` or
        ``log_prior=True`` for the pointwise groups.
    compile_kwargs : mapping, optional
        Passed on to ``pymc.compile``, ``profile`` for instance. ``backend`` decides what compiles
        models, so that ``mode`` may be left out or ``"NUMBA"``.

    Returns
    -------
    xarray.DataTree
        Posterior draws with equal weights, and the groups ``log_evidence``, ``work`` and
        ``annealing``. Log evidence is in nats, relative to the normalised prior. `log_evidence`
        reads the recommended estimate.

    Raises
    ------
    ModelError
        If the model has no well-defined evidence.
    NumericalError
        If a log density is NaN, or the data have no support under the prior.
    ValueError, TypeError
        If an argument is of the wrong type or out of range, or ``checkpoint`` is that of another
        call.
    KeyboardInterrupt
        Upon Ctrl-C, if no estimate can be made of what has finished. Otherwise the result is what
        there is, with the status ``"interrupted"``.
    ImportError
        If ``backend="jax"`` and JAX is not installed.

    Warns
    -----
    EvidenceWarning
        If the estimate should not be relied on; the status in ``log_evidence`` says why. If even
        the smallest first round of the cheapest route is expected to exceed ``max_time``.

    Notes
    -----
    A model with continuous variables only takes the cheapest of several routes, unless ``draws``, a
    schedule, a reference, another method or a sampler object is given, or ``target_mcse`` is None.
    The first is a coarse annealing from the prior, with importance sampling from a density that is
    fitted to it. It starts from normal approximations instead (Rue, Martino and Chopin 2009), if
    the posterior is known to be log-concave, or to be so given a few scales, which the attribute
    ``log_concave_given`` names. It ends the run if its status is ``"ok"``, its error small enough,
    and its weights have no heavy tail. The second is
    ``pe.methods.SMC()``, and the third the same with longer chains, if those of the second hardly
    moved. The attributes ``route`` and ``routes`` of the group ``log_evidence`` say what each
    found.

    Examples
    --------
    >>> import pymc as pm, pm_evidence as pe
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", 0, 1)
    ...     y = pm.Normal("y", mu, 1, observed=[0.5, 1.5])
    >>> dt = pe.sample_evidence(model, random_seed=1, progressbar=False)
    >>> pe.log_evidence(dt).status
    'ok'
    """
    given = arguments.find_target(target, model)
    chosen = arguments.chosen_sampler(method, defaults.default_method(given))
    sampler = chosen.annealer
    size, n_draws = arguments.first_round(chosen, draws)
    options = arguments.idata_options(idata_kwargs)
    for_compiler = arguments.compile_options(compile_kwargs)
    of_annealing = {"schedule": schedule, "reference": reference, "path": path}
    arguments.check_bridge_arguments(chosen, of_annealing, idata_kwargs)
    check_choice("potentials", potentials, ["likelihood", "prior"])
    check_reference_argument(reference)
    # the shape of a kernel object, data points and a density belong to the model's own coordinates
    own = not isinstance(kernel, str) or defaults.adds_data_points(sampler, path)
    moved = check_flag("reparameterise", reparameterise) and not own
    moved = moved and not in_own_coordinates(reference)
    arguments.check_marginalise(marginalise)
    arguments.check_backend(backend, given, kernel, sampler, path, reference)
    run = Run(
        sampler=sampler,
        name=chosen.name,
        size=size,
        schedule=arguments.chosen_schedule(schedule, chosen),
        cores=arguments.checked_cores(cores),
        executor=arguments.checked_executor(executor),
        seed=0,
        limits=arguments.limits(target_mcse, max_time, max_draws, n_draws),
        kernel=kernel,
        reference=reference,
        display=Display(progressbar),
    )
    numbers = {
        **of_annealing,
        "method": method,
        "draws": draws,
        "kernel": kernel,
        "potentials": potentials,
        "reparameterise": reparameterise,
        "marginalise": marginalise,
        "backend": backend,
        "target_mcse": target_mcse,
        "max_draws": max_draws,
        "compile_kwargs": compile_kwargs,
    }
    run = with_journal(run, given, numbers, checkpoint, random_seed)
    # all is left open, so that the cheapest route may be taken
    usual = isinstance(method, str) and method in ("auto", "smc") and draws is None
    usual = usual and not arguments.not_usual(of_annealing)
    open_routes = usual and run.limits.target_mcse is not None
    is_short = open_routes or isinstance(chosen, Bridge)
    n = defaults.expected_evaluations(sampler, run.limits, is_short=is_short)
    if compile_kwargs or arguments.needs_compiled_code(kernel, sampler, path, reference):
        n = inf
    rows, kept = dividing_rows(run.cores, run.executor), keeping(run.journal.kept)
    with rows, kept, run.display:
        with run.display.compiling():
            plain = isinstance(kernel, str) and isinstance(reference, str) and reference == "prior"
            problem = _not_integrated(
                given, potentials, backend, chosen, n, usual=reparameterise and plain
            )
            main: Any = defaults.plate_target(given, marginalise, problem, open_routes=open_routes)
            prior = None
            if main is None:
                main, prior = _targets(given, potentials, for_compiler, moved, backend, n)
            main, along = defaults.with_path(main, sampler, path)
        arguments.check_memory(n_draws, main.n_dim, bytes_each=1 if is_native(main) else 8)
        result.check_groups(main, options)
        by_routes = open_routes and not defaults.lacking(main)
        if draws is None and not by_routes:
            size = sampler.size(int(chosen.default_draws * defaults.effort_of(main)))
        run = replace(run, path=along, size=size)
        if by_routes:
            found = anneal_by_routes(run, main)
        elif isinstance(chosen, Bridge):
            found = bridge_given(run, main, chosen.idata)
        else:
            starts = starts_from(main, sampler.reverse_start)
            moving, main = with_particles(run, main, chosen)
            found = anneal_moved(moving, main, starts)
        drawn = result.without_globals(found.target)
        drawn = drawn or result.posterior_draws(run, found.record, found.evidence)
        found = result.with_integration_error(found, drawn)
        if prior is not None:
            found = over_prior(run, found, prior)
    warn_of(found)
    dt = result.result_of(run, found, drawn, potentials, options)
    return attach_evidence(chosen.idata, dt) if isinstance(chosen, Bridge) else dt


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


# Arguments of `sample_evidence` that functions have themselves which pass the others on.
_OWN = ("target", "model", "target_mcse", "random_seed", "progressbar")


def passed_on() -> list[str]:
    """Return the arguments that other functions take for `sample_evidence`."""
    return [name for name in signature(sample_evidence).parameters if name not in _OWN]


def _not_integrated(
    given: Any, potentials: str, backend: str, chosen: Sampler, n_evaluations: float, *, usual: bool
) -> str | None:
    """Return why local variables are not integrated, whatever the model; None if they may be."""
    if is_native(given):
        return "the target is no pymc.Model"
    if potentials == "prior" and given.potentials:
        return "potentials='prior' normalises the prior of all variables"
    if backend not in ("auto", "numpy"):
        return f"backend={backend!r} evaluates all variables"
    if not usual:
        return "reparameterise, kernel or reference belongs to all variables"
    if n_evaluations == inf or isinstance(chosen, Bridge):
        return "compile_kwargs, or the method, kernel or path, needs the density of all variables"
    return None


def _targets(
    given: Any,
    potentials: str,
    compile_kwargs: dict[str, Any],
    reparameterise: bool,
    backend: str,
    n_evaluations: float,
) -> tuple[Target, Target | None]:
    """Return what to anneal, and what normalises the prior where potentials belong to it."""
    if is_native(given):
        return given, None
    if potentials == "prior" and not given.observed_RVs:
        raise ModelError(
            "potentials='prior' needs an observed variable, got a model with none: a potential "
            "that belongs to the prior leaves no data. Pass potentials='likelihood'."
        )
    options: tuple[Any, ...] = backend, n_evaluations, compile_kwargs
    main = defaults.model_target(given, *options, reparameterise=reparameterise)
    arguments.check_gradient(main)
    if potentials == "likelihood" or not given.potentials:
        return main, None
    return main, defaults.model_target(given, *options, potentials_only=True)
