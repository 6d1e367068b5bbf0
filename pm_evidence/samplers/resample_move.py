"""Resample-move: particles are weighted, resampled where necessary, and moved once per stage."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_choice
from pm_evidence.core.contracts import Path, Plan
from pm_evidence.core.numerics import ess_share, log_sum_exp, normalised
from pm_evidence.core.progress import Report, silent
from pm_evidence.core.random import Phase, block_seeds, streams
from pm_evidence.core.records import BlockRecord
from pm_evidence.core.resampling import resample
from pm_evidence.samplers.sampler import ForwardBlock, RunContext
from pm_evidence.samplers.smc import SMC, island, some_of
from pm_evidence.samplers.trace import Tracer
from pm_evidence.schedules.allocation import optimal_allocation

__all__ = ["Pool", "ResampleMove"]

Floats = NDArray[np.float64]

# No stage has fewer particles than this share of the mean, nor fewer than this number. The
# variances that an allocation is computed from are estimates, and where particles depend on each
# other, many at one stage cannot make up for few at those before it.
_LEAST_SHARE, _LEAST_PARTICLES = 0.5, 10
_FIRST_PASS = 4  # islands


@dataclass(frozen=True)
class Pool:
    """The particles of a stage with their weights before and after it.

    Parameters
    ----------
    state : State
        ``n`` particles, weighted by ``log_share`` for the density before the stage.
    log_share : ndarray, shape (n,)
        Log of the normalised weights before the stage.
    ratio : ndarray, shape (n,)
        Log of the weights of the stage, in nats.
    n_evaluations : int
        Density evaluations that the pool has cost.
    """

    state: Any
    log_share: Floats
    ratio: Floats
    n_evaluations: int = 0

    @property
    def log_weight(self) -> Floats:
        """Log weights after the stage, shape ``(n,)``."""
        return self.log_share + self.ratio

    @property
    def ess(self) -> float:
        """Effective sample size after the stage, as a share of the particles."""
        return ess_share(self.log_weight)


@dataclass(frozen=True, kw_only=True)
class ResampleMove(SMC):
    """Resample-move (Gilks and Berzuini 2001) on independent islands.

    Particles go through a sequence of densities, in each of which the model has more data, or more
    variables, than in the one before. They are weighted at every stage, resampled if their weights
    have become too unequal, and moved once by a Markov chain.

    Parameters
    ----------
    islands : int
        Number of independent populations that share the draws, at least 2.
    chain_length : int
        States of the chain that each resampled particle starts; 1 is a single move.
    resampling : str
        ``"residual"``, ``"systematic"``, ``"stratified"``, ``"ssp"`` or ``"multinomial"``.
    resample_below : float
        Resample if the effective sample size falls below this share of the particles.
    allocation : str
        ``"equal"``: the same number of particles at all stages. ``"optimal"``: a first pass of a
        few islands estimates the variance of the weights of each stage. The islands that count are
        fresh ones, with as many particles at each stage as minimise the variance of log Z for the
        same number in all.
    ess : float
        Effective sample size at every stage of the pilot, as a share of its particles.
    n_stages : int
        Number of stages of a named schedule, such as ``"linear"``.

    Notes
    -----
    Fraccaro, Paquet and Winther (2016), Algorithm 1. Stages along a PyMC model add data
    (``path="data_points"``), unless another ``path`` is asked for. With the optimal allocation,
    particles are resampled at every stage (their Theorem 1, Eq. 6), and no stage has less than half
    of its equal share. The theorem assumes independent particles. Where one move leaves the copies
    of a particle alike, the optimal allocation may be no better than the equal one.

    Examples
    --------
    >>> import pymc as pm, pm_evidence as pe
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", 0, 1)
    ...     y = pm.Normal("y", mu, 1, observed=[0.5, 1.5, 0.2, 0.9])
    >>> dt = pe.sample_evidence(
    ...     model, method="resample_move", draws=800, random_seed=1, progressbar=False
    ... )
    >>> pe.log_evidence(dt).status
    'ok'
    """

    chain_length: int = 1
    resampling: str = "residual"
    resample_below: float = 0.9
    allocation: str = "equal"
    name = "resample_move"
    usual_path = "growing"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("allocation", self.allocation, ("equal", "optimal"))

    def prepared(self, context: RunContext) -> RunContext:
        """Return the context with the particles of each stage, from a first pass if asked for."""
        if self.allocation == "equal":
            return context
        blocks, context = self._first_pass(context)
        ess = np.array([block.trace.ess for block in blocks])
        # rounding may put a share of equal weights above 1
        excess = np.maximum(1.0 / ess - 1.0, 0.0)
        variance = np.where(np.isfinite(ess), excess, 0.0).mean(axis=0)
        shares = optimal_allocation(variance, len(variance)).particles
        shares = np.maximum(shares, _LEAST_SHARE)
        return replace(context, plan=replace(context.plan, shares=shares / shares.mean()))

    def _first_pass(self, context: RunContext) -> tuple[tuple[BlockRecord, ...], RunContext]:
        """Return some islands, and the context with their cost."""
        path, plan, n, seed = context.setup.path, context.plan, context.size, context.seed
        tasks = [
            ForwardBlock(self, path, plan, i, n, seed, Phase.TUNING) for i in range(_FIRST_PASS)
        ]
        made = context.execute("First pass", tasks, plan)
        spent = context.coarse.n_evaluations + sum(block.n_evaluations for block in made)
        return made, replace(context, coarse=replace(context.coarse, n_evaluations=spent))

    def run_block(
        self,
        path: Path,
        plan: Plan,
        block: int,
        draws: int,
        seed: int,
        report: Report = silent,
        *,
        phase: Phase = Phase.FORWARD,
    ) -> BlockRecord:
        """Run one island of ``draws`` particles."""
        draw_seed, chain_seed = block_seeds(seed, phase, block)
        rng = np.random.default_rng(chain_seed.spawn(1)[0])
        sizes = self.sizes(plan, draws)
        chains = streams(chain_seed, int(sizes.max()))
        state = path.draw(int(sizes[0]), draw_seed)
        log_share = np.full(len(state), -np.log(len(state)))
        log_z, tracer, visited = 0.0, Tracer(block, report), []
        for k in range(plan.n_stages):
            start, beta = float(plan.beta[k]), float(plan.beta[k + 1])
            pool = Pool(state, log_share, path.log_ratio(state, start, beta))
            pool = self.enlarged(pool, path, plan, k, chain_seed)
            step = log_sum_exp(pool.log_weight)
            log_z += step
            if not np.isfinite(log_z):
                break
            energy, n = path.energy(pool.state, start), int(sizes[k + 1])
            few = pool.ess < self.resample_below or beta == 1.0
            if few or n != len(pool.state):
                index = resample(normalised(pool.log_weight), n, rng, self.resampling)
                state, log_share = pool.state.take(index), np.full(n, -np.log(n))
            else:
                state, log_share = pool.state, pool.log_weight - step
            state, info = plan.kernels[k].advance(path, state, beta, chains[:n])
            info = replace(info, n_evaluations=info.n_evaluations + pool.n_evaluations)
            tracer.add(beta, energy, pool.ratio, info, log_z, pool.log_share, counted=True)
            visited += some_of(path, state, 2 * tracer.n_stages <= plan.n_stages, rng)
        return island(path, plan, block, log_z, tracer, state, visited, rng, int(sizes[0]))

    def sizes(self, plan: Plan, draws: int) -> NDArray[np.int64]:
        """Return the particles at the start of each stage and, last, of draws."""
        if plan.shares is None:
            return np.full(plan.n_stages + 1, draws)
        sizes = np.maximum(np.rint(plan.shares * draws), _LEAST_PARTICLES)
        return np.append(sizes, draws).astype(np.int64)

    def enlarged(
        self, pool: Pool, path: Path, plan: Plan, stage: int, seed: np.random.SeedSequence
    ) -> Pool:
        """Return the particles of a stage as they are."""
        return pool
