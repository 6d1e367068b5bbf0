"""The diagnostics that a block records while it runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.contracts import MoveInfo, Plan, StageBatch
from pm_evidence.core.numerics import ess_share, moments, normalised
from pm_evidence.core.progress import Progress, Report
from pm_evidence.core.records import StageTrace

__all__ = ["Tracer", "kernel_settings"]

Floats = NDArray[np.float64]


@dataclass
class Tracer:
    """Collects the diagnostics of a block stage by stage, and reports them.

    Parameters
    ----------
    block : int
        Index of the block.
    report : callable
        Called with the progress of the block.
    n_evaluations, n_nan : int
        Density evaluations so far, and how many of them were NaN.
    """

    block: int
    report: Report
    n_evaluations: int = 0
    n_nan: int = 0
    _rows: list[tuple[float, ...]] = field(default_factory=list, init=False)

    @property
    def n_stages(self) -> int:
        """Stages so far."""
        return len(self._rows)

    def add(
        self,
        beta: float,
        energy: Floats,
        log_weight: Floats,
        info: MoveInfo,
        log_z: float,
        carried: Floats | None = None,
        *,
        counted: bool = False,
    ) -> None:
        """Record a stage that ended at ``beta``.

        Parameters
        ----------
        beta : float
            Inverse temperature at the end of the stage.
        energy : ndarray, shape (n,)
            Energies at its beginning.
        log_weight : ndarray, shape (n,)
            Incremental log weights of the stage.
        info : MoveInfo
            Report of the moves.
        log_z : float
            Estimate of the log evidence so far.
        carried : ndarray, shape (n,), optional
            Log weights with which particles enter the stage; None means equal weights.
        counted : bool
            Whether to record the number of particles.
        """
        shares = np.full((2, 1), ess_share(log_weight))
        particles = len(log_weight) if counted else np.nan
        rate = np.array([info.acceptance])
        batch = StageBatch(None, None, None, rate, info.n_evaluations, info.n_nan)
        if carried is not None and np.ptp(carried) > 0.0:
            weight = normalised(carried)
            found = _weighted_moments(energy, weight)
            alive = weight > 0.0
            ratio = np.exp(log_weight[alive] - log_weight[alive].max())
            shares[0] = (weight[alive] @ ratio) ** 2 / (weight[alive] @ ratio**2)
            shares[1] = ess_share(carried + log_weight)
        else:
            found = moments(energy[None])
        self._write(np.array([beta]), found, shares, batch, log_z, particles)

    def add_many(
        self, beta: Floats, energy: Floats, shares: Floats, batch: StageBatch, log_z: float
    ) -> None:
        """Record ``m`` stages at once.

        Energies have shape ``(m, n)``. Effective shares have shape ``(2, m)``: those of the
        incremental weights, and of the accumulated ones.
        """
        self._write(beta, moments(energy), shares, batch, log_z)

    def _write(
        self,
        beta: Floats,
        mean_and_var: tuple[Floats, Floats],
        shares: Floats,
        batch: StageBatch,
        log_z: float,
        particles: float = np.nan,
    ) -> None:
        (mean, var), (ess, path_ess) = mean_and_var, shares
        counts = np.full(len(mean), particles)
        self._rows.extend(zip(mean, var, ess, batch.acceptance, path_ess, counts, strict=True))
        self.n_evaluations += batch.n_evaluations
        self.n_nan += batch.n_nan
        at, acceptance = float(beta[-1]), float(batch.acceptance[-1])
        self.report(Progress(self.block, self.n_stages, at, float(ess[-1]), acceptance, log_z))

    def trace(self, n_stages: int, *, backwards: bool = False) -> StageTrace:
        """Return the trace over ``n_stages``; NaN for stages that the block did not reach.

        Stages are counted from the reference, also if the block ran ``backwards``.
        """
        columns = np.full((6, n_stages), np.nan)
        if self._rows:
            columns[:, : self.n_stages] = np.array(self._rows).T
        return StageTrace(*(columns[:, ::-1] if backwards else columns))


def _weighted_moments(energy: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """Return mean and variance of the finite energies of positive weight, each of shape ``(1,)``.

    Both are NaN if there are none, as in ``numerics.moments``.
    """
    counted = (weight > 0.0) & np.isfinite(energy)
    if not counted.any():
        return np.full(1, np.nan), np.full(1, np.nan)
    energy, weight = energy[counted], weight[counted]
    mean = np.average(energy, weights=weight)
    return np.array([mean]), np.array([np.average((energy - mean) ** 2, weights=weight)])


def kernel_settings(plan: Plan) -> Mapping[str, Floats]:
    """Return the settings of the kernel of every stage, each of shape ``(n_stages,)``."""
    rows = [kernel.settings() for kernel in plan.kernels]
    return {key: np.array([row[key] for row in rows]) for key in rows[0]} if rows else {}
