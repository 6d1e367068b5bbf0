"""The entry point: wires target, path, kernel, sampler, record and estimators together."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.api.arguments import (
    TARGET_MCSE,
    Sampler,
    check_memory,
    checked_cores,
    checked_executor,
    chosen_sampler,
    chosen_schedule,
    compile_options,
    idata_options,
    limits,
)
from pm_evidence.core.checks import check_choice, check_count
from pm_evidence.core.contracts import Kernel
from pm_evidence.core.exceptions import ModelError, exceptions_of_users, warn
from pm_evidence.core.interrupts import interruptible
from pm_evidence.core.random import resolve_seed
from pm_evidence.core.records import BlockRecord, LogEvidence, RunRecord, StageTrace
from pm_evidence.estimators.of_run import estimates
from pm_evidence.execution.display import Display
from pm_evidence.families.native import NativeTarget
from pm_evidence.kernels.pseudo_marginal import PseudoMarginal
from pm_evidence.results.given_draws import doubt_of_draws
from pm_evidence.results.observed import posterior_of
from pm_evidence.runs.defaults import line_of, method_of
from pm_evidence.runs.result import posterior_draws, result_of
from pm_evidence.runs.rounds import Run, Starts
from pm_evidence.samplers.ais import AIS
from pm_evidence.samplers.aisel import AISEL
from pm_evidence.samplers.n_particles import choose_particles, measure, tau_of
from pm_evidence.samplers.smc import SMC
from pm_evidence.targets.estimated.target import EstimatedTarget
from pm_evidence.targets.model.cache import find_model, target_of
from pm_evidence.targets.model.simulate import simulate
from pm_evidence.targets.model.target import PyMCTarget

__all__ = ["sample_evidence", "simulate_and_certify"]

Floats = NDArray[np.float64]
Target = PyMCTarget | NativeTarget
# A larger share of proposals at which the density is NaN is worth a warning.
_NAN_SHARE = 1e-3
# Takes the seed of the second run out of the reach of other seeds that a user would choose.
_PRIOR_RUN = 2**64
# Groups of neighbouring draws of the user's chains that count as independent.
_START_GROUPS = 16


@interruptible()
@exceptions_of_users()
def sample_evidence(
    target: Any = None,
    *,
    method: str | SMC | AIS = "auto",
    draws: int | None = None,
    schedule: str | Sequence[float] | Floats = "adaptive",
    kernel: str | Kernel = "auto",
    reference: str = "prior",
    potentials: str = "likelihood",
    cores: int | None = None,
    executor: Executor | None = None,
    target_mcse: float | None = TARGET_MCSE,
    max_time: float | None = None,
    max_draws: int | None = None,
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
        The model; may be left out inside its context. Or a target such as ``pe.Gaussian()``.
    method : str or sampler
        ``"smc"`` (sequential Monte Carlo on independent islands), ``"ais"`` (annealed importance
        sampling with independent paths, forward and reverse), ``"aisel"`` (annealed importance
        sampling with an estimated likelihood), or a sampler with its own options, such as
        ``pe.SMC(islands=32)``. ``"auto"`` is ``"aisel"`` for models with a `pe.StateSpace` or
        `pe.RandomEffects`, ``"smc"`` for all other models, and ``"ais"`` for native targets.
    draws : int, optional
        How many posterior draws, or paths in each direction, the first round makes in all: 3,200
        by default for SMC (200 on each of 16 islands), 1,000 for AIS and AISEL. With islands each
        makes at least two chains (20 draws for the default of ``pe.SMC``).
    schedule : str or array_like
        ``"adaptive"``, ``"linear"``, ``"sm08"``, or inverse temperatures that rise from 0 to 1.
    kernel : str or Kernel
        What moves the continuous variables: ``"auto"`` (HMC where there is a gradient),
        ``"hmc"``, ``"random_walk"``, or a kernel object. Discrete variables with small support
        are drawn exactly, others walked.
    reference : {"prior"}
        Where annealing starts.
    potentials : {"likelihood", "prior"}
        Whether a ``pm.Potential`` counts as data, or as a part of the prior: then its normalising
        constant is estimated by a second run and taken off, with its error.
    cores : int, optional
        Threads in this process; all cores by default.
    executor : concurrent.futures.Executor, optional
        Where the blocks run instead, for example ``client.get_executor()`` of Dask.
    target_mcse : float, optional
        Rounds follow until the error of the recommended log evidence is at most so many nats, 0.02
        by default, and its status ``"ok"``; None for one round.
    max_time : float, optional
        No round starts that would end later than after so many seconds.
    max_draws : int, optional
        Most draws over all islands, or paths in each direction. Where this or ``max_time`` ends a
        run before it has the error that was asked for, the status says so. With the default error
        and without limits a run ends at 10 times the draws of its first round, whatever its error
        is; with an error of your own it ends at 1,000 times.
    random_seed : int or numpy.random.Generator, optional
        The same seed gives the same numbers, bit for bit, whatever ``cores`` and ``executor``. What
        a stored result holds as its ``random_seed`` can be passed as it is, digits included.
    progressbar : bool
        Whether to show progress.
    model : pymc.Model, optional
        The same as ``target``, as in ``pm.sample``.
    idata_kwargs : mapping, optional
        ``coords``, ``dims`` to add to the model's, and ``log_likelihood=True`` or
        ``log_prior=True`` for the pointwise groups.
    compile_kwargs : mapping, optional
        Passed on to ``pymc.compile``, ``profile`` for instance. Models are always compiled with
        numba, so that ``mode`` may be left out or ``"NUMBA"``.

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
        If an argument is of the wrong type or out of range.

    Warns
    -----
    EvidenceWarning
        If the estimate should not be relied on; the status in ``log_evidence`` says why.

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
    if target is not None and model is not None:
        raise TypeError("target and model are two names of one argument; pass only one of them.")
    given = target if target is not None else model
    native = isinstance(given, NativeTarget)
    best = method_of(given if native else find_model(given))
    chosen = chosen_sampler(method, best)
    sampler, draws = _annealer(chosen, draws)
    check_memory(sampler.first_round(draws))
    check_choice("reference", reference, ["prior"])
    check_choice("potentials", potentials, ["likelihood", "prior"])
    options = idata_options(idata_kwargs)
    for_compiler = compile_options(compile_kwargs)
    run = Run(
        sampler=sampler,
        name=chosen.name,
        draws=draws,
        schedule=chosen_schedule(schedule, sampler),
        cores=checked_cores(cores),
        executor=checked_executor(executor),
        seed=resolve_seed(random_seed),
        limits=limits(target_mcse, max_time, max_draws, sampler.first_round(draws)),
    )
    with Display(progressbar) as display:
        with display.compiling():
            main, constant = _targets(given, potentials, for_compiler)
        check_memory(sampler.first_round(draws), main.n_dim, bytes_each=1 if native else 8)
        starts = _starts(main, sampler)
        _check_groups(main, options)
        if isinstance(main, EstimatedTarget):
            main, kernel = _settled(run, main, kernel, chosen, display)
        record, evidence = _anneal(run, main, kernel, display, starts)
        posterior = posterior_draws(run, record, evidence)
        if constant is not None:
            prior_run = replace(run, seed=run.seed + _PRIOR_RUN)
            # the prior's constant is no estimate: what moves estimates cannot move it
            moves = "auto" if isinstance(main, EstimatedTarget) else kernel
            _, of_prior = _anneal(prior_run, constant, moves, display, None)
            record = replace(record, info={**record.info, "prior_constant": asdict(of_prior[0])})
            evidence = estimates(record)
    _warn(evidence[0], record)
    return result_of(run, main, record, evidence, posterior, potentials, options)


@interruptible()
@exceptions_of_users()
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
        As for ``pe.AIS``.
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
    if target is not None and model is not None:
        raise TypeError("target and model are two names of one argument; pass only one of them.")
    sampler = AIS(n_stages=n_stages)
    check_count("draws", draws, 2 * sampler.chain_length)
    check_memory(draws)
    seed = resolve_seed(random_seed)
    run = Run(sampler, draws, None, checked_cores(cores), checked_executor(executor), seed)
    model = find_model(target if target is not None else model)
    if method_of(model) is AISEL:
        raise ModelError(
            "simulate_and_certify needs a likelihood that can be evaluated, got a model with "
            "pe.StateSpace or pe.RandomEffects: an exact draw of the parameters comes without an "
            "estimate of its own. Use sample_evidence(method=pe.AISEL(resampling=None))."
        )
    with Display(progressbar) as display:
        with display.compiling():
            simulated, x = simulate(model, seed)
            main = target_of(simulated)
        starts = Starts(x, kind="exact")
        record, evidence = _anneal(run, main, kernel, display, starts)
    _warn(evidence[0], record)
    posterior = posterior_draws(run, record, evidence)
    return result_of(run, main, record, evidence, posterior, "likelihood", idata_options(None))


def _annealer(chosen: Sampler, draws: int | None) -> tuple[SMC | AIS, int]:
    """Return what anneals, and with how many particles per island, or paths."""
    draws = chosen.default_draws if draws is None else check_count("draws", draws, 2)
    annealer = chosen.annealer if isinstance(chosen, AISEL) else chosen
    if isinstance(annealer, SMC):
        draws = max(-(-draws // annealer.islands), 2 * annealer.chain_length)
    return annealer, draws


def _settled(
    run: Run, target: EstimatedTarget, kernel: str | Kernel, chosen: Sampler, display: Display
) -> tuple[EstimatedTarget, Kernel]:
    """Return an estimated target with numbers of particles, and what moves its states."""
    moves = line_of(target, kernel).kernel
    if isinstance(chosen, AISEL):
        if isinstance(kernel, str):
            moves = PseudoMarginal(n_steps=1 + chosen.burn_in, renewal=chosen.renewal)
        n_particles, _ = zip(*target.settings(), strict=True)
        target = target.with_settings([(n, chosen.n_blocks) for n in n_particles])
    return choose_particles(target, moves, run.seed, display.pilot), moves


def _check_groups(target: Target, options: Mapping[str, Any]) -> None:
    """Raise ValueError if the user asks for pointwise densities that nobody can evaluate."""
    asked = options.get("log_likelihood") or options.get("log_prior")
    if asked and isinstance(target, EstimatedTarget):
        raise ValueError(
            "idata_kwargs must not ask for log_likelihood or log_prior where the likelihood is "
            "estimated, as PyMC cannot evaluate it; leave them out."
        )


def _targets(
    given: Any, potentials: str, compile_kwargs: dict[str, Any]
) -> tuple[Target, PyMCTarget | None]:
    """Return what to anneal, and what normalises the prior where potentials belong to it."""
    if isinstance(given, NativeTarget):
        return given, None
    model = find_model(given)
    if potentials == "prior" and not model.observed_RVs:
        raise ModelError(
            "potentials='prior' needs an observed variable, got a model with none: a potential "
            "that belongs to the prior leaves no data. Pass potentials='likelihood'."
        )
    main = target_of(model, compile_kwargs=compile_kwargs)
    if potentials == "likelihood" or not model.potentials:
        return main, None
    return main, target_of(model, potentials_only=True, compile_kwargs=compile_kwargs)


def _starts(target: Target, sampler: SMC | AIS) -> Starts | None:
    """Return the draws that the user wants reverse paths to start from."""
    if not isinstance(sampler, AIS) or sampler.reverse_start is None:
        return None
    given = sampler.reverse_start
    if isinstance(target, EstimatedTarget):
        raise ValueError(
            "reverse_start must be left out where the likelihood is estimated: posterior draws "
            "do not hold the estimates that they came with."
        )
    if isinstance(target, PyMCTarget):
        draws = posterior_of(given, target.observed_data())
        x = target.rows_of(draws, "reverse_start")
        _warn_of_draws(given, {rv.name: draws[rv.name] for rv in target.model.free_RVs})
        n_chains, n_draws = next(iter(draws.values())).shape[:2]
        kind = "given"
    else:
        # of a native target states alone may be given, and moves there are cheap
        if isinstance(given, np.ndarray):
            x = target.check(given, "reverse_start")
            n_chains, n_draws = 1, len(x)
        else:
            states = _states_of(given, target)
            n_chains, n_draws = states.shape[:2]
            rows = states.reshape(n_chains * n_draws, *states.shape[2:])
            x = target.check(rows, "reverse_start")
        kind = "relaxed"
    parts = max(_START_GROUPS // n_chains, 1)
    part = np.arange(n_draws) * parts // n_draws
    group = (np.arange(n_chains)[:, None] * parts + part).ravel()
    return Starts(x, group, kind=kind)


def _warn_of_draws(given: Any, draws: Mapping[str, NDArray[Any]]) -> None:
    doubt = doubt_of_draws(given, draws)
    if doubt:
        warn(
            f"reverse_start must hold draws from the posterior, but {doubt}: reverse paths from "
            "there may miss a part of it. Sample again with a non-centred model, a higher "
            "target_accept or longer chains, or leave reverse_start out."
        )


def _states_of(dt: Any, target: NativeTarget) -> NDArray[Any]:
    """Return the states of an earlier run of a native target, shape ``(chains, draws, ...)``."""
    posterior = posterior_of(dt, target.observed_data())
    constants = dt["constant_data"].to_dataset() if "constant_data" in dt.children else {}
    for name, value in target.constant_data().items():
        found = constants[name].values if name in constants else None
        if found is None or not np.array_equal(found, value):
            raise ValueError(
                f"reverse_start must hold states of {target!r}, got draws with {name}={found}; "
                "pass a result for this target, or an array of states."
            )
    if "x" not in posterior:
        raise ValueError(
            f"reverse_start must hold states of {target!r} as 'x', got draws of "
            f"{', '.join(posterior)}; pass a result for this target, or an array of states."
        )
    return posterior["x"]


def _anneal(
    run: Run, target: Target, kernel: str | Kernel, display: Display, starts: Starts | None
) -> tuple[RunRecord, list[LogEvidence]]:
    if target.n_dim == 0:
        record = _nothing_to_sample(target)
        return record, estimates(record)
    with display.compiling():  # a gradient, where the kernel wants one
        line = line_of(target, kernel)
    record, evidence = run.anneal(line, display, starts)
    if isinstance(target, EstimatedTarget):
        record = _with_precision(run, target, record)
        evidence = estimates(record)
    return replace(record, info={**record.info, "log_prior_mass": target.log_prior_mass}), evidence


def _with_precision(run: Run, target: EstimatedTarget, record: RunRecord) -> RunRecord:
    """Return the record with what is known of the noise of the likelihood."""
    drawn = posterior_draws(run, record)
    if drawn is None:
        return record
    x = drawn.draws.reshape(-1, drawn.draws.shape[-1])[:, : target.n_dim]
    precision = measure(target, x, run.seed, tau_of(record.beta))
    _, n_blocks = zip(*target.settings(), strict=True)
    info = {**record.info, **precision.facts(), "n_blocks": list(n_blocks)}
    return replace(record, info=info)


def _nothing_to_sample(target: Any) -> RunRecord:
    """Return the record of a model without free variables: its likelihood is its evidence."""
    log_likelihood = target.draw(1, np.random.SeedSequence(0)).log_density[:, 1]
    nothing = StageTrace(-log_likelihood, np.zeros(1), np.ones(1), np.full(1, np.nan))
    blocks = [BlockRecord(i, -log_likelihood, nothing, relative_variance=0.0) for i in range(2)]
    return RunRecord("smc", np.array([0.0, 1.0]), blocks, (), (), {}, {"log_prior_mass": 0.0})


def _warn(evidence: LogEvidence, record: RunRecord) -> None:
    if evidence.status != "ok":
        warn(f"status {evidence.status!r}: {evidence.message}")
    n_nan, n = record.info.get("n_nan", 0), record.info.get("n_evaluations", 0)
    if n_nan > _NAN_SHARE * n:
        warn(
            f"the log density was NaN at {n_nan} of {n} proposals; they were refused, so the "
            "evidence is that of the model where its density is defined. Look for an overflow, or "
            "for a covariance that is not positive definite."
        )
