"""Tempered sequential Monte Carlo on independent islands."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_choice, check_share, real_number
from pm_evidence.core.contracts import Bridgeable, Growing, HasPosterior, Path, Plan
from pm_evidence.core.interrupts import Report, silent
from pm_evidence.core.numerics import ess_share, log_mean_exp, normalised
from pm_evidence.core.random import Phase, block_seeds, streams
from pm_evidence.core.records import BlockRecord, RunRecord
from pm_evidence.core.resampling import SCHEMES, resample
from pm_evidence.paths.geometric import GeometricPath
from pm_evidence.samplers.sampler import Annealer, RunContext, Tracer, grow_chains
from pm_evidence.schedules import refine

# Number of states of every stage that are kept for a survey of the posterior: more of early
# stages, from which modes can be reached that later stages have lost.
_VISITED, _VISITED_LATER = 16, 2
# Largest number of coordinates of these states.
_MOST_COORDINATES = 8000


@dataclass(frozen=True, kw_only=True)
class SMC(Annealer):
    """Sequential Monte Carlo: reweigh, resample and move a population from prior to posterior.

    A pilot learns the schedule and the kernels. Each island then uses them unchanged, so that its
    estimate of Z is unbiased, and the spread of the islands gives the error. If all variables are
    continuous, a mixture is also fitted to the last populations and to the peaks that a survey of
    the posterior finds. If the fit is good, importance sampling from this mixture, and a bridge
    from it to the populations, are far more precise.

    Parameters
    ----------
    islands : int
        Number of independent populations that share the draws, at least 2.
    chain_length : int
        After resampling, one in ``chain_length`` particles of an island starts a chain of which
        all states are kept (waste-free SMC, Dau and Chopin 2022). 1 is the standard algorithm: all
        particles are resampled and moved once.
    ess : float
        Effective sample size at every stage of the pilot, as a share of its particles.
    resampling : str
        ``"systematic"``, ``"stratified"``, ``"residual"``, ``"ssp"`` or ``"multinomial"``.
    resample_below : float
        With ``chain_length=1``, resample only if the effective sample size falls below this
        share, and at the end; in between, particles carry their weights.
    n_stages : int, optional
        Least number of stages, into which those of the pilot are divided. By default the pilot
        chooses it, and a named schedule, such as ``"linear"``, has 50.

    Notes
    -----
    Del Moral, Doucet and Jasra (2006); Dau and Chopin (2022), Algorithm 3. Within an island the
    variance of Z is also estimated by adding up, over stages, the variance of the mean weight with
    each chain as one unit (their section 4.2). This misses the dependence between stages if chains
    never leave their mode, so the reported error comes from the spread of the islands. The bridge
    is that of Meng and Wong (1996), see ``estimators.bar``.
    """

    islands: int = 16
    chain_length: int = 10
    ess: float = 0.7
    resampling: str = "systematic"
    resample_below: float = 1.0
    n_stages: int | None = None
    name = "smc"
    default_draws = 3200
    uses_pilot = True
    named_stages = 50

    def __post_init__(self) -> None:
        self.check_populations()
        check_choice("resampling", self.resampling, SCHEMES)
        if real_number(self.resample_below) != 1.0:
            check_share("resample_below", self.resample_below, 0.5)
            if self.chain_length != 1:
                raise ValueError(
                    f"resample_below needs chain_length=1, got {self.chain_length}: longer chains "
                    "start from resampled particles; pass chain_length=1, or leave it out."
                )

    def size(self, draws: int) -> int:
        """Return the particles of an island: at least two chains."""
        return max(-(-draws // self.islands), 2 * self.chain_length)

    def first_round(self, size: int) -> int:
        """Return how many particles the islands of the first round have together."""
        return self.islands * size

    def unit(self, size: int) -> int:
        """Return the particles of an island: rounds consist of whole islands."""
        return size

    def follow(self, plan: Plan) -> Plan:
        """Return the plan of the pilot, with its stages divided into so many as are asked for."""
        if self.n_stages is None:
            return plan
        beta = refine(plan.beta, self.n_stages)
        parts = (len(beta) - 1) // plan.n_stages
        kernels = tuple(kernel for kernel in plan.kernels for _ in range(parts))
        return replace(plan, beta=beta, kernels=kernels)

    def extended(self, context: RunContext, record: RunRecord, draws: int) -> RunRecord:
        """Return the record with more islands, ``draws`` particles in all."""
        return self.forward(context, record, draws, context.size)

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
        chains = streams(chain_seed, max(-(-draws // self.chain_length), 2))
        n = len(chains) * self.chain_length
        state, carried = path.draw(n, draw_seed), np.zeros(n)
        log_z, variance, tracer = 0.0, 0.0, Tracer(block, report, n)
        for start, beta, kernel in zip(plan.beta[:-1], plan.beta[1:], plan.kernels, strict=True):
            ratio = path.log_ratio(state, start, beta)
            log_weight = carried + ratio
            energy = path.energy(state, start)
            log_z += log_mean_exp(log_weight) - log_mean_exp(carried)
            if not np.isfinite(log_z):
                break
            before = carried
            few = self.resample_below < 1.0 and beta < 1.0
            if few and ess_share(log_weight) >= self.resample_below:
                state, info = kernel.advance(path, state, beta, chains)
                carried = log_weight
            else:
                variance += _variance_of_mean(log_weight, len(chains) if tracer.n_stages else n)
                order = path.order(state)
                weight = normalised(log_weight[order])
                first = state.take(order[resample(weight, len(chains), rng, self.resampling)])
                state, info = grow_chains(path, kernel, first, beta, self.chain_length, chains)
                carried = np.zeros(n)
            tracer.add(beta, energy, ratio, info, log_z, before)
            tracer.visited += some_of(path, state, 2 * tracer.n_stages <= plan.n_stages, rng)
        found = island(path, plan, log_z, tracer, state, rng)
        if found.draws is not None:
            # states are in the order of resampling: surplus ones are dropped at random
            kept = np.sort(rng.permutation(n)[:draws])
            known = None if found.log_density is None else found.log_density[kept]
            origin = kept % len(chains)
            found = replace(found, draws=found.draws[kept], log_density=known, origin=origin)
        return replace(found, relative_variance=variance)


def island(
    path: Path, plan: Plan, log_z: float, tracer: Tracer, state: Any, rng: np.random.Generator
) -> BlockRecord:
    """Return the record of an island that ended with the population ``state``.

    If its evidence is zero, it did not reach the target and has no draws.
    """
    ended = bool(np.isfinite(log_z))
    energy, bridge = path.energy(state, 1.0), None
    log_density = None
    if ended and isinstance(path, GeometricPath) and path.posterior() is not None:
        log_density = path.log_posterior(state)
    if ended and plan.fit is not None and isinstance(path, Bridgeable):
        bridge = path.bridge_work(plan.fit, state, len(state), rng)
    return BlockRecord(
        block=tracer.block,
        work=np.array([-log_z]),
        trace=tracer.trace(plan.n_stages),
        draws=state.to_draws() if ended else None,
        log_density=log_density,
        end=(float(energy.mean()), float(energy.var())) if ended else (np.nan, np.nan),
        bridge=bridge,
        visited=np.concatenate(tracer.visited) if tracer.visited else None,
        n_evaluations=tracer.n_evaluations + (len(bridge[0]) if bridge else 0),
        n_nan=tracer.n_nan,
    )


def some_of(path: Path, state: Any, early: bool, rng: np.random.Generator) -> list[NDArray[Any]]:
    """Return a few states of a stage, for a survey; none if their size changes."""
    if isinstance(path, Growing) and not isinstance(path, HasPosterior):
        return []
    index = rng.integers(len(state), size=_VISITED if early else _VISITED_LATER)
    draws = state.take(index).to_draws()
    return [draws[: max(_MOST_COORDINATES // draws[0].size, 1)]]


def _variance_of_mean(log_weight: NDArray[np.float64], n_units: int) -> float:
    """Return the relative variance of the mean weight, from ``n_units`` units of equal size.

    Unit ``i`` holds members ``i``, ``i + n_units`` and so on, as ``grow_chains`` lays chains out.
    """
    weight = np.exp(log_weight - np.max(log_weight)).reshape(-1, n_units).mean(axis=0)
    return float(weight.var(ddof=1) / (n_units * weight.mean() ** 2))
