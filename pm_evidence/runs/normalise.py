"""The second run of a model whose potentials belong to the prior: what normalises this prior."""

from dataclasses import asdict, replace
from typing import Any

from pm_evidence.core.contracts import Kernel, Target
from pm_evidence.core.random import Phase, seed_of_run
from pm_evidence.core.records import LogEvidence, RunRecord
from pm_evidence.estimators.of_run import estimates
from pm_evidence.execution.display import Display
from pm_evidence.runs.anneal import anneal
from pm_evidence.runs.estimated import kernel_of_prior
from pm_evidence.runs.interruption import was_interrupted
from pm_evidence.runs.rounds import Run

__all__ = ["over_prior"]


def over_prior(
    run: Run,
    main: Any,
    prior: Target,
    kernel: str | Kernel,
    display: Display,
    record: RunRecord,
) -> tuple[RunRecord, list[LogEvidence]]:
    """Return record and estimates with the constant that normalises a prior with potentials.

    Parameters
    ----------
    run : Run
        The resolved arguments.
    main, prior : Target
        The model, and its prior with the potentials as a likelihood.
    kernel : str or Kernel
        What moves the particles of the first run.
    display : Display
        Shows progress.
    record : RunRecord
        The record of the first run.

    Raises
    ------
    KeyboardInterrupt
        If the first run was interrupted: without the constant there is no estimate.
    """
    if was_interrupted(record):
        raise KeyboardInterrupt
    prior_run = replace(run, seed=seed_of_run(run.seed, Phase.PRIOR))
    _, of_prior = anneal(prior_run, prior, kernel_of_prior(main, kernel), display)
    record = replace(record, info={**record.info, "prior_constant": asdict(of_prior[0])})
    return record, estimates(record)
