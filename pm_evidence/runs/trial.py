"""A small annealing from the prior: a population near the posterior, and a coarse evidence."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.contracts import Kernel, Plan
from pm_evidence.core.random import Phase, generator, seed_of_run
from pm_evidence.core.records import BlockRecord, LogEvidence
from pm_evidence.core.resampling import resample
from pm_evidence.estimators.islands import of_small_islands
from pm_evidence.execution.display import Display
from pm_evidence.runs.defaults import annealing_setup
from pm_evidence.runs.rounds import Run
from pm_evidence.samplers.pilot import Pilot
from pm_evidence.samplers.reverse_starts import ReverseStarts
from pm_evidence.samplers.sampler import ForwardBlock
from pm_evidence.samplers.smc import SMC

__all__ = ["Trial", "small_annealing"]

Floats = NDArray[np.float64]

# Islands and the length of their chains; particles of all islands together: this many for each
# coordinate, between these bounds. The pilot has the least number of them, or half as many as the
# islands have together.
_ISLANDS, _LENGTH, _ESS = 8, 4, 0.5
_PER_DIMENSION, _PARTICLES, _LEAST_PILOT = 12, (512, 2048), 200


@dataclass(frozen=True, slots=True)
class Trial:
    """What a small annealing from the prior found.

    Parameters
    ----------
    draws : ndarray, shape (n, n_dim)
        Draws of equal weight; those of one island are neighbours.
    evidence : LogEvidence
        Mean over the islands, which is unbiased for Z.
    n_evaluations : int
        Density (or gradient) evaluations.
    blocks : sequence of BlockRecord
        The islands.
    plan : Plan, optional
        What the islands followed.
    """

    draws: Floats
    evidence: LogEvidence
    n_evaluations: int
    blocks: Sequence[BlockRecord] = ()
    plan: Plan | None = None

    def facts(self) -> dict[str, float]:
        """Return the evidence, for a comparison with that of the run; none if it has no error."""
        if not np.isfinite([self.evidence.value, self.evidence.mcse]).all():
            return {}
        return {"trial_log_z": self.evidence.value, "trial_mcse": self.evidence.mcse}


def small_annealing(run: Run, target: Any, kernel: str | Kernel, display: Display) -> Trial:
    """Run a few small islands of sequential Monte Carlo from the prior, after a small pilot.

    Parameters
    ----------
    run : Run
        The resolved arguments; the random numbers come from a phase of their own.
    target : PyMCTarget
        What is annealed.
    kernel : str or Kernel
        What moves the particles.
    display : Display
        Shows progress.

    Raises
    ------
    NumericalError
        If no island reaches the target.
    """
    seed = seed_of_run(run.seed, Phase.REFERENCE)
    setup = annealing_setup(target, kernel)
    total = int(np.clip(_PER_DIMENSION * target.n_dim, *_PARTICLES))
    pilot = Pilot(max(total // 2, _LEAST_PILOT), _LENGTH, _ESS)

    def learnt() -> Plan:
        return replace(pilot.run(setup.path, setup.kernel, seed, display.pilot), population=None)

    plan = run.remembered("trial plan", learnt, kernel=setup.kernel)
    islands = SMC(islands=_ISLANDS, chain_length=_LENGTH, ess=_ESS)
    tasks = [
        ForwardBlock(islands, setup.path, plan, i, total // _ISLANDS, seed, Phase.ISLAND)
        for i in range(_ISLANDS)
    ]
    blocks = run.shown_on(display)("Reference", tasks, plan)
    starts = ReverseStarts.of_islands(blocks)
    assert starts.probability is not None
    rng = generator(seed, Phase.START)
    chosen = resample(starts.probability, len(starts.draws), rng, "systematic")
    return Trial(
        starts.draws[np.sort(chosen)],
        of_small_islands(blocks),
        plan.n_evaluations + sum(block.n_evaluations for block in blocks),
        blocks,
        plan,
    )
