"""Paths between the posteriors of two models, from draws of both."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.contracts import Plan
from pm_evidence.core.interrupts import Report, silent
from pm_evidence.core.numerics import ess_share
from pm_evidence.core.records import BlockRecord, Role, StageTrace
from pm_evidence.paths.geometric import PairPath
from pm_evidence.samplers.ais import AIS

Floats = NDArray[np.float64]
_BLOCK = 128  # paths that move together


@dataclass(frozen=True)
class PairBlock:
    """A task for a worker: a block of annealed paths from one of the posteriors to the other."""

    path: PairPath  # from the first posterior to the second
    plan: Plan  # inverse temperatures, and the kernel of each stage
    role: Role  # forward paths start from the first posterior, reverse paths from the second
    block: int  # index of the block
    starts: Floats  # shape (n, n_dim): where its paths start
    origin: NDArray[np.int64]  # shape (n,): group of posterior draws that each start comes from
    seed: int  # seed of the run

    def __call__(self, report: Report = silent) -> BlockRecord:
        """Run the block."""
        if self.role == Role.REVERSE:
            return AIS().run_reverse(
                self.path, self.plan, self.block, self.starts, self.origin, self.seed, report
            )
        path, n = replace(self.path, starts=self.starts), len(self.starts)
        made = AIS().run_block(path, self.plan, self.block, n, self.seed, report)
        return replace(made, origin=self.origin, draws=None, log_weight=None)

    def parts(self, first: int) -> list["PairBlock"]:
        """Return blocks of few paths, numbered from ``first``."""
        n = -(-len(self.starts) // _BLOCK)
        divided = zip(np.array_split(self.starts, n), np.array_split(self.origin, n), strict=True)
        return [
            replace(self, block=first + i, starts=x, origin=origin)
            for i, (x, origin) in enumerate(divided)
        ]


def crossed_at_once(blocks: Sequence[PairBlock]) -> list[BlockRecord]:
    """Return the work of paths of a single stage, on which nothing moves: that at posterior draws.

    With Bennett's ratio this is bridge sampling between two posteriors.
    """
    made = []
    for block in blocks:
        state = block.path.at(block.starts)
        work = block.path.energy(state, 0.0)
        if block.role == Role.FORWARD:  # a density that is not defined counts as zero
            work = np.where(np.isnan(work), np.inf, work)
        usable = work[np.isfinite(work)]
        trace = StageTrace(
            np.array([usable.mean() if usable.size else np.nan]),
            np.array([usable.var() if usable.size else np.nan]),
            np.array([ess_share(-work if block.role == Role.FORWARD else work)]),
            np.full(1, np.nan),
        )
        n = 2 * len(work)  # the densities of both models
        made.append(BlockRecord(block.block, work, trace, origin=block.origin, n_evaluations=n))
    return made
