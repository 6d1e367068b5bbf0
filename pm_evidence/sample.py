"""The entry point: wires target, path, kernel, sampler, record and estimators together."""

import os
import time
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_choice, check_count
from pm_evidence.core.contracts import Kernel, Plan
from pm_evidence.core.errors import EvidenceWarning, ModelError
from pm_evidence.core.numerics import normalised
from pm_evidence.core.progress import Report
from pm_evidence.core.random import resolve_seed
from pm_evidence.core.records import BlockRecord, LogEvidence, RunRecord, StageTrace
from pm_evidence.core.resampling import resample
from pm_evidence.estimators.bar import bridge
from pm_evidence.estimators.difference import difference
from pm_evidence.estimators.jarzynski import jarzynski, single_run
from pm_evidence.estimators.recommend import recommend
from pm_evidence.execution.blocks import run_blocks
from pm_evidence.execution.display import Display
from pm_evidence.kernels.choose import choose_kernel
from pm_evidence.paths.geometric import GeometricPath
from pm_evidence.results.datatree import to_datatree
from pm_evidence.results.observed import fingerprint
from pm_evidence.samplers.ais import AIS
from pm_evidence.samplers.pilot import Pilot
from pm_evidence.samplers.smc import SMC
from pm_evidence.samplers.trace import kernel_settings
from pm_evidence.schedules.fixed import fixed_schedule
from pm_evidence.targets.pymc_model import PyMCTarget, find_model, target_of

__all__ = ["sample_evidence"]

Floats = NDArray[np.float64]
_METHODS = {"auto": SMC, "smc": SMC, "ais": AIS}
_IDATA_KWARGS = ("coords", "dims", "log_likelihood", "log_prior")
# A larger share of proposals at which the density is NaN is worth a warning.
_NAN_SHARE = 1e-3
_RESAMPLING = 9  # phase of the random streams
# Takes the seed of the second run out of the reach of other seeds that a user would choose.
_PRIOR_RUN = 2**64
# The pilot wants enough particles per dimension to learn a covariance from.
_PILOT_PARTICLES_PER_DIMENSION = 10


def sample_evidence(
    target: Any = None,
    *,
    method: str | SMC | AIS = "auto",
    draws: int = 1000,
    schedule: str | Sequence[float] | Floats = "adaptive",
    kernel: str | Kernel = "auto",
    reference: str = "prior",
    potentials: str = "likelihood",
    cores: int | None = None,
    executor: Executor | None = None,
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool = True,
    model: Any = None,
    idata_kwargs: Mapping[str, Any] | None = None,
    compile_kwargs: Mapping[str, Any] | None = None,
) -> Any:
    """Estimate the evidence (marginal likelihood) of a model, with its error.

    Parameters
    ----------
    target : pymc.Model, optional
        The model; may be left out inside its context.
    method : str or sampler
        ``"auto"``, ``"smc"`` (sequential Monte Carlo on independent islands), ``"ais"`` (annealed
        importance sampling), or a sampler with its own options such as ``pe.SMC(islands=32)``.
    draws : int
        SMC: particles per island. AIS: number of annealed paths.
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
    random_seed : int or numpy.random.Generator, optional
        The same seed gives the same numbers, bit for bit, whatever ``cores`` and ``executor``.
    progressbar : bool
        Whether to show progress.
    model : pymc.Model, optional
        The same as ``target``, as in ``pm.sample``.
    idata_kwargs : mapping, optional
        ``coords``, ``dims`` to add to the model's, and ``log_likelihood=True`` or
        ``log_prior=True`` for the pointwise groups.
    compile_kwargs : mapping, optional
        Passed on to ``pymc.compile``.

    Returns
    -------
    xarray.DataTree
        Posterior draws with equal weights, and the groups ``log_evidence``, ``work`` and
        ``annealing``. Log evidence is in nats, relative to the normalised prior.

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
    sampler = _sampler(method)
    check_count("draws", draws, 2 * getattr(sampler, "chain_length", 1))
    check_choice("reference", reference, ["prior"])
    check_choice("potentials", potentials, ["likelihood", "prior"])
    options = _idata_options(idata_kwargs)
    compile_options = _compile_options(compile_kwargs)
    run = _Run(
        sampler=sampler,
        draws=draws,
        schedule=None
        if isinstance(schedule, str) and schedule == "adaptive"
        else fixed_schedule(schedule, sampler.n_stages),
        kernel=kernel,
        cores=_cores(cores),
        executor=_checked_executor(executor),
        seed=resolve_seed(random_seed),
    )
    pymc_model = find_model(target if target is not None else model)
    if potentials == "prior" and not pymc_model.observed_RVs:
        raise ModelError(
            "potentials='prior' needs an observed variable, got a model with none: a potential "
            "that belongs to the prior leaves no data. Pass potentials='likelihood'."
        )
    main = target_of(pymc_model, compile_kwargs=compile_options)
    with Display(progressbar) as display:
        record = run.anneal(main, display)
        evidence = run.estimates(record)
        if potentials == "prior" and pymc_model.potentials:
            constant = target_of(pymc_model, potentials_only=True, compile_kwargs=compile_options)
            prior_run = replace(run, seed=run.seed + _PRIOR_RUN)
            of_prior = prior_run.estimates(prior_run.anneal(constant, display))
            evidence = [difference(evidence[0], of_prior[0])]
    _warn(evidence[0], record)
    return _results(run, main, record, evidence, potentials, options)


def _sampler(method: Any) -> SMC | AIS:
    if isinstance(method, SMC | AIS):
        return method
    if isinstance(method, type) and issubclass(method, SMC | AIS):
        return method()
    if not isinstance(method, str):
        raise TypeError(
            f"method must be a name ({', '.join(map(repr, _METHODS))}) or a sampler such as "
            f"pe.SMC(islands=32), got {method!r}."
        )
    return _METHODS[check_choice("method", method, _METHODS)]()


def _cores(cores: int | None) -> int:
    if cores is not None:
        return check_count("cores", cores, 1)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _checked_executor(executor: Any) -> Executor | None:
    if executor is None:
        return None
    if isinstance(executor, type) or not callable(getattr(executor, "submit", None)):
        raise TypeError(
            f"executor must have a submit method as concurrent.futures executors do, got "
            f"{executor!r}; pass for example ProcessPoolExecutor(4)."
        )
    return executor


def _idata_options(idata_kwargs: Mapping[str, Any] | None) -> dict[str, Any]:
    options = dict(_mapping("idata_kwargs", idata_kwargs))
    for name in options:
        if name not in _IDATA_KWARGS:
            raise ValueError(
                f"idata_kwargs must hold only {', '.join(map(repr, _IDATA_KWARGS))}, got {name!r}; "
                "leave it out."
            )
    for name in ("coords", "dims"):
        options[name] = dict(_mapping(f"idata_kwargs[{name!r}]", options.get(name)))
    return options


def _compile_options(compile_kwargs: Mapping[str, Any] | None) -> dict[str, Any]:
    options = dict(_mapping("compile_kwargs", compile_kwargs))
    if "mode" in options:
        raise ValueError(
            f"compile_kwargs must not hold 'mode', got {options['mode']!r}: models are compiled "
            "with numba; leave it out."
        )
    return options


def _mapping(name: str, value: Any) -> Mapping[str, Any]:
    if value is not None and not isinstance(value, Mapping):
        raise TypeError(f"{name} must be a dict, got {value!r}; leave it out for none.")
    return value or {}


@dataclass(frozen=True)
class _BlockTask:
    """One block of a run; all that a worker needs."""

    sampler: SMC | AIS
    path: GeometricPath
    plan: Plan
    draws: int
    seed: int

    def __call__(self, block: int, report: Report) -> BlockRecord:
        return self.sampler.run_block(self.path, self.plan, block, self.draws, self.seed, report)


@dataclass(frozen=True)
class _Run:
    """The resolved arguments of a run."""

    sampler: SMC | AIS
    draws: int
    schedule: Floats | None
    kernel: str | Kernel
    cores: int
    executor: Executor | None
    seed: int

    def anneal(self, target: PyMCTarget, display: Display) -> RunRecord:
        """Run pilot and blocks, and return what they leave behind."""
        if target.n_dim == 0:
            return _nothing_to_sample(target, self.sampler.name)
        path = GeometricPath(target)
        started = time.perf_counter()
        kernel = choose_kernel(target, self.kernel)
        plan = self._plan(path, kernel, display)
        planned = time.perf_counter()
        sampler = self.sampler
        n_blocks = sampler.n_blocks(self.draws)
        display.begin(sampler.name.upper(), n_blocks, plan.n_stages)
        blocks = run_blocks(
            _BlockTask(sampler, path, plan, self.draws, self.seed),
            n_blocks,
            cores=self.cores,
            executor=self.executor,
            report=display.block,
            done=display.done,
        )
        finished = time.perf_counter()
        info = {
            "tuning_time": planned - started,
            "sampling_time": finished - planned,
            "n_evaluations": sum(block.n_evaluations for block in blocks),
            "n_nan": sum(block.n_nan for block in blocks),
            "log_prior_mass": target.log_prior_mass,
        }
        return RunRecord(sampler.name, plan.beta, blocks, (), kernel_settings(plan), info)

    def _plan(self, path: GeometricPath, kernel: Kernel, display: Display) -> Plan:
        n = max(self.draws, _PILOT_PARTICLES_PER_DIMENSION * path.target.n_dim)
        pilot = Pilot(n, self.sampler.chain_length, self.sampler.ess, self.schedule)
        plan = pilot.run(path, kernel, self.seed, display.pilot)
        return plan if self.schedule is not None else self.sampler.follow(plan)

    def estimates(self, record: RunRecord) -> list[LogEvidence]:
        """Return all estimates of a record, the recommended one first."""
        work = record.work_forward
        if record.method != "smc":
            return [jarzynski(work)]
        smc = jarzynski(work, name="smc")
        alone = single_run(work, [block.relative_variance for block in record.forward])
        works = [block.bridge for block in record.forward if block.bridge is not None]
        if len(works) < len(record.forward):
            return [smc, alone]
        return [*recommend(smc, bridge(works), works), alone]


def _nothing_to_sample(target: PyMCTarget, method: str) -> RunRecord:
    """Return the record of a model without free variables: its likelihood is its evidence."""
    log_likelihood = target.draw(1, np.random.SeedSequence(0)).log_density[:, 1]
    nothing = StageTrace(-log_likelihood, np.zeros(1), np.ones(1), np.full(1, np.nan))
    blocks = [BlockRecord(i, -log_likelihood, nothing, relative_variance=0.0) for i in range(2)]
    return RunRecord(method, np.array([0.0, 1.0]), blocks, (), {}, {"log_prior_mass": 0.0})


def _warn(evidence: LogEvidence, record: RunRecord) -> None:
    if evidence.status != "ok":
        warnings.warn(
            f"status {evidence.status!r}: {evidence.message}", EvidenceWarning, stacklevel=3
        )
    n_nan, n = record.info.get("n_nan", 0), record.info.get("n_evaluations", 0)
    if n_nan > _NAN_SHARE * n:
        warnings.warn(
            f"the log density was NaN at {n_nan} of {n} proposals; they were refused, so the "
            "evidence is that of the model where its density is defined. Look for an overflow, or "
            "for a covariance that is not positive definite.",
            EvidenceWarning,
            stacklevel=3,
        )


def _results(
    run: _Run,
    target: PyMCTarget,
    record: RunRecord,
    evidence: list[LogEvidence],
    potentials: str,
    options: dict[str, Any],
) -> Any:
    """Return the DataTree of a run."""
    draws = _posterior_draws(run, record)
    posterior: dict[str, NDArray[Any]] = {}
    sample_stats: dict[str, NDArray[Any]] = {}
    if draws is not None:
        n_chains, n_draws, n_dim = draws.shape
        flat = draws.reshape(-1, n_dim)
        posterior = {
            name: value.reshape(n_chains, n_draws, *value.shape[1:])
            for name, value in target.constrained.values(flat).items()
        }
        lp = target.evaluate(flat).log_density.sum(axis=1)
        sample_stats = {"lp": lp.reshape(n_chains, n_draws)}
    observed = target.observed_data()
    coords, dims = target.coords_and_dims()
    attrs = (
        {"sampling_time": record.info["sampling_time"]} if "sampling_time" in record.info else {}
    )
    dt = to_datatree(
        replace(record, info={**record.info, "potentials": potentials}),
        evidence,
        recommended=evidence[0].estimator,
        posterior=posterior,
        sample_stats=sample_stats,
        observed_data=observed,
        constant_data=target.constant_data(),
        coords={**coords, **options["coords"]},
        dims={**dims, **options["dims"]},
        fingerprint=fingerprint(observed),
        random_seed=run.seed,
        versions={name: version(name) for name in ("pm_evidence", "pymc", "pytensor", "numba")},
        sample_attrs=attrs,
    )
    if posterior:
        groups = [name for name in ("log_likelihood", "log_prior") if options.get(name)]
        target.add_log_densities(dt, groups)
    return dt


def _posterior_draws(run: _Run, record: RunRecord) -> Floats | None:
    """Return posterior draws of equal weight, shape ``(n_chains, n_draws, n_dim)``."""
    blocks = [block for block in record.forward if block.draws is not None]
    parts = [np.asarray(block.draws) for block in blocks]
    if not blocks:
        return None
    if blocks[0].log_weight is None:
        return np.stack(parts)
    log_weight = np.concatenate([b.log_weight for b in blocks if b.log_weight is not None])
    if not np.isfinite(log_weight.max()):
        return None
    rng = np.random.default_rng(np.random.SeedSequence(run.seed, spawn_key=(_RESAMPLING,)))
    chosen = resample(normalised(log_weight), run.draws, rng, "systematic")
    return np.concatenate(parts)[rng.permutation(chosen)][None]
