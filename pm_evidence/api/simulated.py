"""Checks on simulated data: strict bounds of the evidence, and calibrated Bayes factors."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from math import nan
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pm_evidence.api import arguments
from pm_evidence.api.arguments import entry
from pm_evidence.core.checks import check_count, described
from pm_evidence.core.contracts import Kernel
from pm_evidence.core.exceptions import (
    ModelError,
    NumericalError,
    warn,
)
from pm_evidence.core.random import Phase, generator, resolve_seed
from pm_evidence.core.records import LogEvidence, Status
from pm_evidence.execution.display import Display
from pm_evidence.results.calibration import Calibration, calibration_of
from pm_evidence.results.compare import prior_of
from pm_evidence.runs.anneal import anneal, warn_of
from pm_evidence.runs.defaults import default_method
from pm_evidence.runs.result import posterior_draws, result_of
from pm_evidence.runs.rounds import Run
from pm_evidence.runs.routes import evidence_of
from pm_evidence.samplers.ais import AIS
from pm_evidence.samplers.sampler import ReverseStarts
from pm_evidence.targets.model.cache import find_model, is_model, target_of
from pm_evidence.targets.model.derived import DataSets, simulate


@entry()
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
    given = find_model(arguments.one_target(target, model))
    sampler = AIS(n_stages=n_stages)
    check_count("draws", draws, 2 * sampler.chain_length)
    arguments.check_memory(draws)
    run = Run(
        sampler,
        draws,
        arguments.checked_cores(cores),
        arguments.checked_executor(executor),
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


Data = dict[str, NDArray[Any]]

_FEWEST_DATA_SETS, _MOST_DATA_SETS, _FEWEST_MODELS = 20, 100_000, 2
_TARGET_MCSE = 0.1


@entry()
def calibrate(
    models: Mapping[str, Any],
    n: int = 200,
    *,
    prior_probs: Mapping[str, float] | Sequence[float] | None = None,
    simulators: Mapping[str, Any] | None = None,
    target_mcse: float = _TARGET_MCSE,
    cores: int | None = None,
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool = True,
) -> Calibration:
    """Check posterior model probabilities on data whose model is known.

    A model is drawn from the prior probabilities, and data from its prior predictive distribution.
    Posterior model probabilities of many such data sets must be calibrated: of those data sets to
    which a model is given a probability of 0.3, it made 30 %.

    Parameters
    ----------
    models : mapping of str to pymc.Model
        Two models or more with the same observed variables. Their observed values are not used.
    n : int
        Number of data sets.
    prior_probs : mapping of str to float, or sequence of float, optional
        Prior probability of each model, as in ``compare``.
    simulators : mapping of str to pymc.Model, optional
        Models that draw the data in the place of some of ``models``, to see how a wrong prior or
        likelihood would show.
    target_mcse : float
        Error of each log evidence in nats. A larger one is enough than for a single comparison.
    cores : int, optional
        Threads in this process; all cores by default.
    random_seed : int or numpy.random.Generator, optional
        The same seed gives the same numbers, bit for bit.
    progressbar : bool
        Whether to show progress.

    Returns
    -------
    Calibration
        Its ``p_value``, ``status``, logarithmic score, the law of Bayes factors in favour of wrong
        models, and all log evidences.

    Raises
    ------
    ModelError
        If a model cannot be simulated or has no well-defined evidence.
    ValueError, TypeError
        If an argument is of the wrong type or out of range, or the models have observed variables
        of other names, shapes or types.

    Warns
    -----
    EvidenceWarning
        If the status is not ``"ok"``.

    Notes
    -----
    Each model is compiled once; data sets are exchanged in the memory that compiled code reads.

    Given the data, the model that they came from is a draw from its posterior. The test is
    conditional on the data and exact: its false-alarm rate is its level, and the status is
    ``"miscalibrated"`` in one of a hundred calibrations of right probabilities. It finds shifts of
    a log evidence, and probabilities that are too extreme or too cautious; ``models`` says
    how large a shift must be. See Talts et al. (2018) for parameters, and Schad et al. (2023) for
    Bayes factors.

    References
    ----------
    Schad, D. J., Nicenboim, B., Bürkner, P.-C., Betancourt, M. and Vasishth, S. (2023). Workflow
    techniques for the robust use of Bayes factors. Psychological Methods 28, 1404-1426.

    Talts, S., Betancourt, M., Simpson, D., Vehtari, A. and Gelman, A. (2018). Validating Bayesian
    inference algorithms with simulation-based calibration. arXiv:1804.06788.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pm_evidence as pe
    >>> with pm.Model() as null:
    ...     y = pm.Normal("y", 0, 1, observed=np.zeros(5))
    >>> with pm.Model() as effect:
    ...     mu = pm.Normal("mu", 0, 1)
    ...     y = pm.Normal("y", mu, 1, observed=np.zeros(5))
    >>> found = pe.calibrate({"null": null, "effect": effect}, 30, random_seed=1, progressbar=False)
    >>> found.status
    'ok'
    """
    check_count("n", n, _FEWEST_DATA_SETS, _MOST_DATA_SETS)
    arguments.check_target(target_mcse)
    n_cores, seed = arguments.checked_cores(cores), resolve_seed(random_seed)
    competitors = _data_sets("models", models)
    names, prior = list(competitors), prior_of(list(competitors), prior_probs)
    others = {} if simulators is None else _data_sets("simulators", simulators)
    unknown = [name for name in others if name not in names]
    if unknown:
        raise ValueError(
            f"simulators must have names of the models, got {unknown}; the models are {names}."
        )
    _check_shapes(competitors | {f"simulators[{name!r}]": each for name, each in others.items()})
    label = generator(seed, Phase.CALIBRATION).choice(len(names), n, p=prior)
    with Display(progressbar) as display:
        with display.compiling():
            data = _drawn(competitors | others, label, seed)
            targets = {
                name: target_of(each.observed, reparameterise=True)
                for name, each in competitors.items()
            }
        display.begin("Data sets", n, 1)
        rows: list[list[LogEvidence]] = []
        try:
            for i, values in enumerate(data):
                row = []
                for k, name in enumerate(names):
                    competitors[name].set(values)
                    run_seed = int(generator(seed, Phase.CALIBRATION, i, k).integers(2**63))
                    row.append(_evidence(targets[name], target_mcse, n_cores, run_seed))
                rows.append(row)
                display.done(i)
        except KeyboardInterrupt:
            if len(rows) < _FEWEST_DATA_SETS:
                raise
    runs = _dataset(names, prior, label, rows)
    rng = generator(seed, Phase.CALIBRATION, n)
    found = calibration_of(runs, rng, interrupted=len(rows) < n)
    if found.status != Status.OK:
        warn(f"status {found.status!r}: {found.message}")
    return found


def _data_sets(parameter: str, models: Any) -> dict[str, DataSets]:
    """Return what draws and exchanges the data of models, by name."""
    if not isinstance(models, Mapping):
        raise TypeError(
            f"{parameter} must be a mapping of names to models, got {described(models)}; pass for "
            'example {"null": null, "effect": effect}.'
        )
    if len(models) < _FEWEST_MODELS and parameter == "models":
        raise ValueError(
            f"models must hold at least two models, got {len(models)}; calibration compares models."
        )
    for name, model in models.items():
        if not isinstance(name, str):
            raise TypeError(
                f"{parameter} must have names as keys, got {described(name)}; put them in quotes."
            )
        if not is_model(model):
            raise TypeError(
                f"{parameter}[{name!r}] must be a pymc.Model, got {described(model)}; pass a model."
            )
        if default_method(model) == "aisel":
            raise ModelError(
                f"{parameter}[{name!r}] must have a likelihood that can be evaluated, got a model "
                "with pe.StateSpace or pe.RandomEffects: its data cannot be exchanged without "
                "compiling it again."
            )
    return {name: DataSets(model) for name, model in models.items()}


def _check_shapes(competitors: Mapping[str, DataSets]) -> None:
    """Raise ValueError unless all models observe variables of the same names, shapes and kinds."""
    (first, expected), *others = ((name, each.kinds) for name, each in competitors.items())
    for name, found in others:
        if found != expected:
            told = [
                ", ".join(
                    f"{each} {shape} ({kind})" for each, (shape, kind) in sorted(kinds.items())
                )
                for kinds in (expected, found)
            ]
            raise ValueError(
                f"models must have the same observed variables, got {told[0]} in {first!r} and "
                f"{told[1]} in {name!r}; give them the same names, shapes and kinds of numbers."
            )


def _drawn(drawn_by: Mapping[str, DataSets], label: NDArray[np.int64], seed: int) -> list[Data]:
    """Return a data set of the model that each label names."""
    data: list[Data] = [{} for _ in label]
    for k, each in enumerate(drawn_by.values()):
        mine = np.flatnonzero(label == k)
        rng = generator(seed, Phase.CALIBRATION, len(label) + 1, k)
        for i, values in zip(mine, each.draw(len(mine), rng), strict=True):
            data[i] = values
    return data


def _evidence(target: Any, target_mcse: float, cores: int, seed: int) -> LogEvidence:
    try:
        return evidence_of(target, target_mcse, cores, seed)
    except NumericalError as error:
        return LogEvidence(nan, nan, "", status=Status.FAILED, message=str(error))


def _dataset(
    names: list[str],
    prior: NDArray[np.float64],
    label: NDArray[np.int64],
    rows: list[list[LogEvidence]],
) -> xr.Dataset:
    """Return the evidences of all data sets."""
    dims = ("data_set", "model")
    return xr.Dataset(
        {
            "log_evidence": (dims, np.array([[each.value for each in row] for row in rows])),
            "mcse": (dims, np.array([[each.mcse for each in row] for row in rows])),
            "status": (dims, np.array([[str(each.status) for each in row] for row in rows])),
            "drawn_from": ("data_set", np.array(names)[label[: len(rows)]]),
            "prior_prob": ("model", prior),
        },
        coords={"model": names, "data_set": np.arange(len(rows))},
    )
