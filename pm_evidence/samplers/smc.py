"""Tempered sequential Monte Carlo on independent islands."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.contracts import MoveInfo, Path, Plan
from pm_evidence.core.numerics import ess_share, log_mean_exp, normalised
from pm_evidence.core.progress import Progress, Report, silent
from pm_evidence.core.random import block_seeds, streams
from pm_evidence.core.records import BlockRecord, StageTrace
from pm_evidence.core.resampling import SCHEMES, resample
from pm_evidence.samplers.moves import grow_chains

__all__ = ["FORWARD", "SMC"]

FORWARD = 1  # phase of the random streams


@dataclass(frozen=True, kw_only=True)
class SMC:
    """Sequential Monte Carlo: reweigh, resample and move a population from prior to posterior.

    A pilot learns the schedule and the kernels; each island then runs them as they are, so that
    its estimate of Z is unbiased, and the spread of the islands gives the error.

    Parameters
    ----------
    islands : int
        Number of independent populations of ``draws`` particles each, at least 2.
    chain_length : int
        After resampling, ``draws / chain_length`` particles start chains of which all states are
        kept (waste-free SMC, Dau and Chopin 2022). 1 is the standard algorithm: all particles are
        resampled and moved once.
    ess : float
        Effective sample size that every stage keeps, as a share of ``draws``.
    resampling : str
        ``"systematic"``, ``"stratified"``, ``"residual"``, ``"ssp"`` or ``"multinomial"``.
    n_stages : int
        Number of stages where the schedule is a named one.

    Notes
    -----
    Del Moral, Doucet and Jasra (2006); Dau and Chopin (2022), Algorithm 3. Within an island the
    variance of Z is also estimated by adding up, over stages, the variance of the mean weight with
    each chain as one unit (their section 4.2). It misses what chains that never leave their mode
    pass on from stage to stage, so the reported error comes from the spread of the islands.
    """

    islands: int = 16
    chain_length: int = 5
    ess: float = 0.5
    resampling: str = "systematic"
    n_stages: int = 50
    name = "smc"

    def __post_init__(self) -> None:
        if not 0.0 < self.ess < 1.0:
            raise ValueError(f"ess must lie between 0 and 1, got {self.ess}; try 0.5.")
        for name, least in (("islands", 2), ("chain_length", 1), ("n_stages", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
                raise ValueError(f"{name} must be a whole number of at least {least}, got {value}.")
        if self.resampling not in SCHEMES:
            raise ValueError(
                f"resampling must be one of {', '.join(SCHEMES)}, got {self.resampling!r}."
            )

    def n_blocks(self, draws: int) -> int:
        """Return the number of blocks, one per island."""
        return self.islands

    def plan(self, plan: Plan) -> Plan:
        """Return the plan as the islands follow it."""
        return plan

    def run_block(
        self, path: Path, plan: Plan, block: int, draws: int, seed: int, report: Report = silent
    ) -> BlockRecord:
        """Run one island of ``draws`` particles."""
        draw_seed, chain_seed = block_seeds(seed, FORWARD, block)
        rng = np.random.default_rng(chain_seed.spawn(1)[0])
        n_chains = max(draws // self.chain_length, 2)
        chains = streams(chain_seed, n_chains)
        n = n_chains * self.chain_length
        state = path.draw(n, draw_seed)
        log_z, variance, n_evaluations, n_nan = 0.0, 0.0, n, 0
        rows = []
        for start, beta, kernel in zip(plan.beta[:-1], plan.beta[1:], plan.kernels, strict=True):
            log_weight = path.log_ratio(state, start, beta)
            energy = path.energy(state, start)
            log_z += log_mean_exp(log_weight)
            if not np.isfinite(log_z):
                break
            variance += _variance_of_mean(log_weight, n_chains if rows else n)
            weight = normalised(log_weight)
            chosen = resample(weight, n_chains, rng, self.resampling)
            state, info = grow_chains(
                path, kernel, state.take(chosen), beta, self.chain_length, chains
            )
            rows.append(_row(energy, log_weight, info))
            n_evaluations += info.n_evaluations
            n_nan += info.n_nan
            report(Progress(block, len(rows), beta, rows[-1][2], info.acceptance, log_z))
        return BlockRecord(
            block=block,
            work=np.array([-log_z]),
            trace=stage_trace(rows, plan.n_stages),
            draws=state.to_draws() if np.isfinite(log_z) else None,
            relative_variance=variance,
            n_evaluations=n_evaluations,
            n_nan=n_nan,
        )


def _variance_of_mean(log_weight: NDArray[np.float64], n_units: int) -> float:
    """Return the variance of the mean weight over its square, from ``n_units`` equal units.

    Unit ``i`` holds members ``i``, ``i + n_units`` and so on, as ``grow_chains`` lays chains out.
    """
    weight = np.exp(log_weight - np.max(log_weight)).reshape(-1, n_units).mean(axis=0)
    return float(weight.var(ddof=1) / (n_units * weight.mean() ** 2))


def _row(energy: NDArray[np.float64], log_weight: NDArray[np.float64], info: MoveInfo) -> tuple:
    finite = energy[np.isfinite(energy)]
    return float(finite.mean()), float(finite.var()), ess_share(log_weight), info.acceptance


def stage_trace(rows: list[tuple], n_stages: int) -> StageTrace:
    """Return the trace of a block that may have ended before its last stage."""
    columns = np.full((4, n_stages), np.nan)
    if rows:
        columns[:, : len(rows)] = np.array(rows).T
    return StageTrace(*columns)


def kernel_settings(plan: Plan) -> Mapping[str, NDArray[np.float64]]:
    """Return the settings of the kernel of every stage, each of shape ``(n_stages,)``."""
    rows: list[dict[str, Any]] = [kernel.settings() for kernel in plan.kernels]
    return {key: np.array([row[key] for row in rows]) for key in rows[0]} if rows else {}
