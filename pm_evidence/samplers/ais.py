"""Annealed importance sampling: independent paths from prior to posterior."""

from dataclasses import dataclass

import numpy as np

from pm_evidence.core.checks import check_count, check_share
from pm_evidence.core.contracts import Path, Plan
from pm_evidence.core.numerics import log_mean_exp
from pm_evidence.core.progress import Report, silent
from pm_evidence.core.random import block_seeds, streams
from pm_evidence.core.records import BlockRecord
from pm_evidence.samplers.trace import FORWARD, Tracer
from pm_evidence.schedules.fixed import refine

__all__ = ["AIS"]

_PATHS_PER_BLOCK = 64


@dataclass(frozen=True, kw_only=True)
class AIS:
    """Annealed importance sampling (Neal 2001; Habeck 2017, Eq. 2 to 4).

    A pilot learns a schedule and a kernel for each of its stages; every stage is then cut into
    equal parts, and independent paths follow. The mean weight is an unbiased estimate of Z.

    Parameters
    ----------
    n_stages : int
        Number of inverse temperatures after the first, about.
    ess : float
        Effective sample size that the pilot's stages keep, as a share.
    """

    n_stages: int = 200
    ess: float = 0.5
    name = "ais"
    chain_length = 5  # of the pilot

    def __post_init__(self) -> None:
        check_count("n_stages", self.n_stages, 1)
        check_share("ess", self.ess, 0.5)

    def n_blocks(self, draws: int) -> int:
        """Return the number of blocks that ``draws`` paths are cut into."""
        return -(-draws // _PATHS_PER_BLOCK)

    def follow(self, plan: Plan) -> Plan:
        """Return the plan with every stage cut into equal parts."""
        beta = refine(plan.beta, self.n_stages)
        parts = (len(beta) - 1) // plan.n_stages
        return Plan(beta, tuple(kernel for kernel in plan.kernels for _ in range(parts)))

    def run_block(
        self, path: Path, plan: Plan, block: int, draws: int, seed: int, report: Report = silent
    ) -> BlockRecord:
        """Run the block's share of ``draws`` paths."""
        n = min(_PATHS_PER_BLOCK, draws - block * _PATHS_PER_BLOCK)
        draw_seed, chain_seed = block_seeds(seed, FORWARD, block)
        chains = streams(chain_seed, n)
        state = path.draw(n, draw_seed)
        log_weight = np.zeros(n)
        tracer = Tracer(block, report)
        for start, beta, kernel in zip(plan.beta[:-1], plan.beta[1:], plan.kernels, strict=True):
            energy = path.energy(state, start)
            log_weight += path.log_ratio(state, start, beta)
            state, info = kernel.advance(path, state, beta, chains)
            tracer.add(beta, energy, log_weight, info, log_mean_exp(log_weight))
        return BlockRecord(
            block=block,
            work=-log_weight,
            trace=tracer.trace(plan.n_stages),
            draws=state.to_draws(),
            log_weight=log_weight,
            n_evaluations=n + tracer.n_evaluations,
            n_nan=tracer.n_nan,
        )
