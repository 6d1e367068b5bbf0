"""The pilot: an adaptive run that learns a schedule and the kernel of every stage.

The runs that follow use both as they are. A schedule or a step size chosen from the very
population that it moves would bias the estimate of Z; chosen by a pilot it does not.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from pm_evidence.core.contracts import Kernel, Path, Plan
from pm_evidence.core.numerics import ess_share, log_mean_exp, normalised
from pm_evidence.core.progress import Progress, Report, silent
from pm_evidence.core.random import block_seeds, streams
from pm_evidence.core.resampling import resample
from pm_evidence.samplers.moves import grow_chains
from pm_evidence.schedules.adaptive import next_beta

__all__ = ["PILOT", "Pilot"]

PILOT = 0  # phase of the random streams
_TUNING_ROUNDS = 2


@dataclass(frozen=True)
class Pilot:
    """Adaptive tempered SMC with waste-free moves.

    Parameters
    ----------
    n : int
        Number of particles.
    chain_length : int
        States per chain and stage.
    ess : float
        Effective sample size that every stage keeps, as a share (0 to 1).
    schedule : ndarray, optional
        Inverse temperatures to follow; found on the way if left out.
    """

    n: int
    chain_length: int
    ess: float = 0.5
    schedule: NDArray[np.float64] | None = None

    def run(self, path: Path, kernel: Kernel, seed: int, report: Report = silent) -> Plan:
        """Learn a plan for ``path``, starting from an untuned kernel."""
        with threadpool_limits(limits=1):
            return self._run(path, kernel, seed, report)

    def _run(self, path: Path, kernel: Kernel, seed: int, report: Report) -> Plan:
        draw_seed, chain_seed = block_seeds(seed, PILOT, 0)
        rng = np.random.default_rng(chain_seed.spawn(1)[0])
        n_chains = max(self.n // self.chain_length, 1)
        chains = streams(chain_seed, n_chains)
        state = path.draw(self.n, draw_seed)
        betas, kernels, log_z = [0.0], [], 0.0
        while betas[-1] < 1.0:
            start = betas[-1]
            beta = self._next(path, state, start, len(kernels))
            log_weight = path.log_ratio(state, start, beta)
            log_z += log_mean_exp(log_weight)
            weight = normalised(log_weight)
            kernel = kernel.learn(path, state.take(resample(weight, self.n, rng, "systematic")))
            first = state.take(resample(weight, n_chains, rng, "systematic"))
            tuned = [kernel]

            def watch(kernel: Kernel, info: object, tuned: list[Kernel] = tuned) -> Kernel:
                tuned[0] = kernel.adjust(info)  # type: ignore[arg-type]
                return tuned[0]

            for _ in range(_TUNING_ROUNDS):
                state, info = grow_chains(
                    path, tuned[0], first, beta, self.chain_length, chains, watch
                )
            kernel = tuned[0]
            betas.append(beta)
            kernels.append(kernel.frozen())
            ess = ess_share(log_weight)
            report(Progress(-1, len(kernels), beta, ess, info.acceptance, log_z))
        return Plan(np.array(betas), tuple(kernels))

    def _next(self, path: Path, state: object, beta: float, stage: int) -> float:
        if self.schedule is not None:
            return float(self.schedule[stage + 1])
        return next_beta(path, state, beta, self.ess)  # type: ignore[arg-type]
