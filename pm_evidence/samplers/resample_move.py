"""Resample-move, with a fixed number of particles or with more where stages need them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_choice, check_count, check_flag, check_share, described
from pm_evidence.core.contracts import Path, Plan, Reseedable, Streams
from pm_evidence.core.interrupts import Report, silent
from pm_evidence.core.numerics import ess_share, log_sum_exp, normalised
from pm_evidence.core.random import Phase, block_seeds, streams
from pm_evidence.core.records import BlockRecord
from pm_evidence.core.resampling import resample
from pm_evidence.samplers.sampler import MOST_MOVES, ForwardBlock, RunContext, Tracer
from pm_evidence.samplers.smc import SMC, island, some_of
from pm_evidence.schedules import optimal_allocation

Floats = NDArray[np.float64]


# No stage has fewer particles than this share of the mean, nor fewer than this number. The
# variances that an allocation is computed from are estimates, and where particles depend on each
# other, many at one stage cannot make up for few at those before it.
_LEAST_SHARE, _LEAST_PARTICLES = 0.5, 10
_FIRST_PASS = 4  # islands


@dataclass(frozen=True)
class Pool:
    """The particles of a stage with their weights before and after it."""

    state: Any  # ``n`` particles, weighted by ``log_share`` for the density before the stage
    log_share: Floats  # shape (n,): log of the normalised weights before the stage
    ratio: Floats  # shape (n,): log of the weights of the stage, in nats
    n_evaluations: int = 0  # density evaluations that the pool has cost

    @property
    def log_weight(self) -> Floats:
        """Log weights after the stage, shape ``(n,)``."""
        return self.log_share + self.ratio

    @property
    def ess(self) -> float:
        """Effective sample size after the stage, as a share of the particles."""
        return ess_share(self.log_weight)


@dataclass(frozen=True)
class Stage:
    """Where an island is along its plan, and its random numbers."""

    path: Any  # what is annealed
    plan: Plan  # and how
    index: int  # index of the stage
    seed: np.random.SeedSequence  # source of the streams of independent states
    chains: Streams  # shape (n, 4): streams of the moves

    @property
    def ends(self) -> tuple[float, float]:
        """The inverse temperatures at which the stage starts and stops."""
        start, stop = self.plan.beta[self.index : self.index + 2]
        return float(start), float(stop)


def variance_of(blocks: Sequence[BlockRecord]) -> Floats:
    """Return the variance of the normalised weights of each stage, shape ``(n_stages,)``.

    It is ``v_n`` of Fraccaro, Paquet and Winther (2016), section 2.3: the mean over islands.
    """
    ess = np.array([block.trace.ess for block in blocks])
    # rounding may put a share of equal weights above 1
    excess = np.maximum(1.0 / ess - 1.0, 0.0)
    return np.where(np.isfinite(ess), excess, 0.0).mean(axis=0)


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
        variance = variance_of(blocks)
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
        chains = streams(chain_seed, int(sizes.max()) * self.spread)
        state = path.draw(int(sizes[0]), draw_seed)
        log_share = np.full(len(state), -np.log(len(state)))
        log_z, tracer = 0.0, Tracer(block, report, int(sizes[0]))
        for k in range(plan.n_stages):
            stage = Stage(path, plan, k, chain_seed, chains)
            start, beta = stage.ends
            pool = Pool(state, log_share, path.log_ratio(state, start, beta))
            pool = self.enlarged(pool, stage)
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
            tracer.visited += some_of(path, state, 2 * tracer.n_stages <= plan.n_stages, rng)
        return island(path, plan, log_z, tracer, state, rng)

    def sizes(self, plan: Plan, draws: int) -> NDArray[np.int64]:
        """Return the particles at the start of each stage and, last, of draws."""
        if plan.shares is None:
            return np.full(plan.n_stages + 1, draws)
        sizes = np.maximum(np.rint(plan.shares * draws), _LEAST_PARTICLES)
        return np.append(sizes, draws).astype(np.int64)

    @property
    def spread(self) -> int:
        """Return the largest number of particles that are moved together, for each particle."""
        return 1

    def enlarged(self, pool: Pool, stage: Stage) -> Pool:
        """Return the particles of a stage as they are."""
        return pool


_LEAST_RESEEDED = 100  # particles, as in the paper


@dataclass(frozen=True, kw_only=True)
class ARM(ResampleMove):
    """Adaptive resample-move (Fraccaro, Paquet and Winther 2016) on independent islands.

    Resample-move with the same number of particles at all stages spends too many on easy stages
    and too few on those where the density changes much. Here a stage whose effective sample size
    is too small receives further particles of the density before it.

    Parameters
    ----------
    generate : str
        Where further particles come from. ``"copy"``: the particles, moved once more.
        ``"anticipate"``: the same, after those that the next density favours have been split into
        several copies that share their weight. ``"reseed"``: independent states, for targets that
        can make them, such as a `pe.rbm.RBM` with ``data``.
    decide : str
        Who decides how many particles a stage receives. ``"first_pass"``: a few islands that do not
        count. They estimate the variance of the weights of each stage. Where it is larger than the
        threshold allows, the islands that count have particles in proportion to its square root
        (Theorem 1 of the paper). ``"island"``: each island for itself, as in the paper; it adds
        particles until the threshold is reached.
    ess_threshold : float
        Effective sample size at which no further particles are needed, as a share of all of them:
        ``gamma_thr`` of the paper.
    max_rounds : int
        Largest number of times that particles are added to a stage: ``i_max`` of the paper. Each
        time as many are added as an island has.
    while_rising : bool
        Whether an island that decides for itself also stops adding particles to a stage when a
        round has not raised the effective share. It often cannot reach the threshold, because the
        share tends to a limit that depends on the two densities alone. False: Algorithm 2 of the
        paper, which goes on for ``max_rounds`` there.
    reseed_moves : int
        Number of moves of each new state, with ``generate="reseed"``.
    islands, chain_length, resampling, resample_below, ess, n_stages
        See `ResampleMove`.
    allocation : {"equal"}
        Always equal: particles are added where they are needed instead.

    Notes
    -----
    Algorithm 2 and section 3.2 of the paper. A stage whose weights have the variance ``v`` has
    ``sqrt(v / (1 / ess_threshold - 1))`` times the particles of an island, rounded to whole rounds.
    The estimate of Z is unbiased, because the first pass is independent of the islands that count.
    If an island decides for itself, whether particles are added depends on the same weights that
    estimate Z, which is then too small on average: by 0.11 nats with 4 particles and by 0.04 with
    8, on a chain of six spins, and by twice as much with ``while_rising=False``. The bias is
    inversely proportional to the number of particles.

    Examples
    --------
    >>> import pymc as pm, pm_evidence as pe
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", 0, 1)
    ...     y = pm.Normal("y", mu, 1, observed=[0.5, 1.5, 0.2, 0.9])
    >>> dt = pe.sample_evidence(model, method="arm", draws=800, random_seed=1, progressbar=False)
    >>> pe.log_evidence(dt).status
    'ok'
    """

    generate: str = "copy"
    decide: str = "first_pass"
    ess_threshold: float = 0.7
    max_rounds: int = 20
    while_rising: bool = True
    reseed_moves: int = 1000
    name = "arm"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("generate", self.generate, ("copy", "anticipate", "reseed"))
        check_choice("decide", self.decide, ("first_pass", "island"))
        check_share("ess_threshold", self.ess_threshold, 0.7)
        check_count("max_rounds", self.max_rounds, 1, MOST_MOVES)
        check_flag("while_rising", self.while_rising)
        check_count("reseed_moves", self.reseed_moves, 1, MOST_MOVES)
        if self.allocation != "equal":
            raise ValueError(
                "allocation must be 'equal' for pe.methods.ARM, which adds particles where they "
                f"are needed, got {self.allocation!r}; use pe.methods.ResampleMove for an optimal "
                "allocation."
            )

    def prepared(self, context: RunContext) -> RunContext:
        """Return the context with the particles of each stage that a first pass has found.

        Raises
        ------
        ValueError
            If ``generate="reseed"`` and the path cannot make independent states.
        """
        path = context.setup.path
        if self.generate == "reseed" and not (isinstance(path, Reseedable) and path.can_reseed):
            raise ValueError(
                "generate='reseed' needs a target that can make independent states at each stage, "
                f"such as a pe.rbm.RBM with data, got a {described(path)}; use generate='copy'."
            )
        if self.decide == "island":
            return context
        blocks, context = replace(self, decide="island")._first_pass(context)
        needed = variance_of(blocks) / (1.0 / self.ess_threshold - 1.0)
        rounds = np.clip(np.rint(np.sqrt(needed)), 1.0, 1.0 + self.max_rounds)
        return replace(context, plan=replace(context.plan, shares=rounds))

    @property
    def spread(self) -> int:
        """Return the largest number of particles that are moved together, for each particle."""
        return 2 if self.generate == "anticipate" else 1

    def sizes(self, plan: Plan, draws: int) -> NDArray[np.int64]:
        """Return the particles at the start of each stage, which are always as many."""
        return np.full(plan.n_stages + 1, draws)

    def enlarged(self, pool: Pool, stage: Stage) -> Pool:
        """Return the particles of a stage with as many more as it needs."""
        shares = stage.plan.shares
        wanted = None if shares is None else int(shares[stage.index]) - 1
        base, rounds, share = pool, [pool], pool.ess if wanted is None else np.nan
        while len(rounds) <= self.max_rounds:
            if len(rounds) - 1 == wanted or share >= self.ess_threshold:
                break
            base, new = self._generated(base, share, stage)
            rounds.append(new)
            if wanted is None:
                before, share = share, _together(rounds).ess
                if self.while_rising and share <= before:
                    break
        return _together(rounds) if rounds[1:] else pool

    def _generated(self, base: Pool, ess: float, stage: Stage) -> tuple[Pool, Pool]:
        """Return the particles that the next round starts from, and the new ones of this round."""
        path, k, (start, stop), n = stage.path, stage.index, stage.ends, len(base.state)
        if self.generate == "reseed" or k == 0:
            n_new, fresh = n, stage.seed.spawn(1)[0]
            if self.generate == "reseed" and stage.plan.shares is None:
                lacking = (1.0 - ess / self.ess_threshold) * n
                n_new = max(int(lacking), _LEAST_RESEEDED)
            state = (
                path.draw(n_new, fresh)
                if k == 0
                else path.reseeded(n_new, start, self.reseed_moves, fresh)
            )
            log_share = np.full(n_new, -np.log(n_new))
            cost = n_new * (1 if k == 0 else self.reseed_moves)
            return base, Pool(state, log_share, path.log_ratio(state, start, stop), cost)
        log_share, copied, first = base.log_share, base.state, None
        if self.generate == "anticipate":
            copies = np.maximum(np.floor(n * normalised(base.log_weight)), 1.0).astype(np.int64)
            log_share = np.repeat(log_share - np.log(copies), copies)
            copied, first = copied.take(np.repeat(np.arange(n), copies)), np.cumsum(copies) - copies
        # the streams go on where the last moves left them
        kernel, chains = stage.plan.kernels[k - 1], stage.chains[: len(copied)]
        state, info = kernel.advance(path, copied, start, chains)
        new = Pool(state, log_share, path.log_ratio(state, start, stop), info.n_evaluations)
        if first is None:
            return new, new
        return Pool(state.take(first), base.log_share, new.ratio[first]), new


def _together(rounds: list[Pool]) -> Pool:
    """Return the particles of all rounds as one pool.

    Fraccaro, Paquet and Winther (2016), Proposition 1. Each round has the same share of the weight,
    which does not depend on how many copies were made.
    """
    log_share = np.concatenate([part.log_share for part in rounds]) - np.log(len(rounds))
    ratio = np.concatenate([part.ratio for part in rounds])
    state = rounds[0].state.join([part.state for part in rounds[1:]])
    return Pool(state, log_share, ratio, sum(part.n_evaluations for part in rounds))
