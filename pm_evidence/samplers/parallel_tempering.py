"""Parallel tempering: ladders of chains that exchange their temperatures."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_count
from pm_evidence.core.contracts import Plan
from pm_evidence.core.random import Phase
from pm_evidence.core.records import BlockRecord, RunRecord
from pm_evidence.core.schedule import UsedSchedule
from pm_evidence.samplers.sampler import RunContext, block_sizes
from pm_evidence.samplers.sizes import MOST_ISLANDS, MOST_TEMPERATURES
from pm_evidence.samplers.stages import kernels_along
from pm_evidence.samplers.tempering import Tempering
from pm_evidence.schedules.equal_rejection import equalised, rejection_rates

__all__ = ["Exchange", "ParallelTempering"]

Floats = NDArray[np.float64]
Rungs = NDArray[np.int16]

_LADDERS_OF_BLOCK = 16
# Temperatures before the first round of tuning, for targets that no pilot plans.
_FIRST_TEMPERATURES, _MOST_TEMPERATURES = 31, 1000
# Iterations of the first round of tuning, which double, and the largest number of rounds.
_TUNING, _MOST_ROUNDS = 32, 6
# Tuning ends when the barrier changes by less than this share.
_STABLE = 0.1


@dataclass
class Exchange:
    """Exchanges of temperatures between neighbours, in even and odd pairs alternately.

    Parameters
    ----------
    beta : ndarray, shape (n_temperatures,)
        Inverse temperatures.
    ladder : ndarray of int64, shape (n_chains,)
        Ladder of each chain. Every ladder has one chain at each temperature.
    rng : numpy.random.Generator
        Decides on exchanges.

    Notes
    -----
    The deterministic even-odd scheme (Okabe et al. 2001). Proposals of a pair are made in every
    other iteration, which makes chains travel along the ladder instead of diffusing (Syed et al.
    2022).
    """

    beta: Floats
    ladder: NDArray[np.int64]
    rng: np.random.Generator
    odd: bool = False

    def changed(self, rung: Rungs, energy: Floats) -> Rungs:
        """Return the temperatures after exchanges; see ``tempered_chains.Rule``."""
        n_ladders = len(rung) // len(self.beta)
        chain = np.empty((n_ladders, len(self.beta)), np.int64)
        chain[self.ladder, rung] = np.arange(len(rung))
        colder, first = chain[:, 1 + self.odd :: 2], chain[:, int(self.odd) : -1 : 2]
        self.odd = not self.odd
        step = self.beta[rung[colder]] - self.beta[rung[first]]
        log_ratio = step * (energy[colder] - energy[first])
        exchanged = np.log(self.rng.random(log_ratio.shape)) < log_ratio
        out = rung.copy()
        out[first[exchanged]], out[colder[exchanged]] = (
            rung[colder[exchanged]],
            rung[first[exchanged]],
        )
        return out


@dataclass(frozen=True, kw_only=True)
class ParallelTempering(Tempering):
    """Parallel tempering: chains at all temperatures, which exchange these with each other.

    Each of several independent ladders has one chain at every temperature. After each move,
    neighbours exchange their temperatures with the probability that leaves their joint
    distribution invariant, so that states found at high temperatures reach the posterior. A tuning
    phase places the temperatures so that all exchanges are rejected equally often, until the sum
    of the rejection rates (the communication barrier) is stable. The evidence comes from all
    energies (MBAR), and its error from the spread of the ladders.

    Parameters
    ----------
    n_temperatures : int, optional
        Number of temperatures. By default the number at which about half of the exchanges are
        rejected.
    ladders : int
        Number of independent ladders, at least 2.

    Notes
    -----
    Syed, Bouchard-Cote, Deligiannidis and Doucet (2022), with their Algorithm 4 for the schedule.
    At the reference, states are drawn anew in every iteration.

    Examples
    --------
    >>> import pm_evidence as pe
    >>> dt = pe.sample_evidence(
    ...     pe.Gaussian(),
    ...     method=pe.ParallelTempering(ladders=16),
    ...     draws=1600,
    ...     target_mcse=None,
    ...     random_seed=1,
    ...     progressbar=False,
    ... )
    >>> pe.log_evidence(dt).status
    'ok'
    """

    n_temperatures: int | None = None
    ladders: int = 32
    name = "parallel_tempering"
    default_draws = 16_000

    def __post_init__(self) -> None:
        if self.n_temperatures is not None:
            check_count("n_temperatures", self.n_temperatures, 2, MOST_TEMPERATURES)
        check_count("ladders", self.ladders, 2, MOST_ISLANDS)

    @property
    def islands(self) -> int:  # type: ignore[override]
        """Number of ladders, which are the chains of the posterior."""
        return self.ladders

    @property
    def n_stages(self) -> int:  # type: ignore[override]
        """Number of steps of a named schedule, and of the first round of tuning."""
        return (self.n_temperatures or _FIRST_TEMPERATURES) - 1

    def size(self, draws: int) -> int:
        """Return the draws of a ladder."""
        return max(-(-draws // self.ladders), 2)

    def first_round(self, size: int) -> int:
        """Return the draws of all ladders."""
        return self.ladders * size

    def unit(self, size: int) -> int:
        """Return the number of ladders: all have equally many draws."""
        return self.ladders

    def units(self, record: RunRecord, size: int) -> int:
        """Return the number of draws so far."""
        return sum(
            chains.every * len(chains.energy) * len(np.unique(chains.ladder))
            for chains in record.tempered
        )

    def iterations(self, draws: int, n_temperatures: int) -> int:
        """Return the number of iterations: each gives a draw of every ladder."""
        return max(draws // self.ladders, 1)

    def groups(self) -> list[int]:
        """Return the number of ladders of each block of a round."""
        return block_sizes(self.ladders, max(min(_LADDERS_OF_BLOCK, self.ladders // 2), 1))

    def kept(self, n_ladders: int, n_temperatures: int) -> list[NDArray[np.int64]]:
        """Return all ladders for each temperature."""
        return [np.arange(n_ladders)] * n_temperatures

    def rule(self, plan: Plan, ladder: NDArray[np.int64], rng: np.random.Generator) -> Exchange:
        """Return the rule of exchanges."""
        return Exchange(plan.beta, ladder, rng)

    def prepared(self, context: RunContext) -> RunContext:
        """Return the context with temperatures that reject exchanges equally often."""
        plan, used = context.plan, context.plan.schedule
        if used is None or used.name != "adaptive":
            self.check_temperatures(plan.beta)
            return self.with_ladders(context, {})
        beta = plan.beta
        if self.n_temperatures is not None:
            beta = equalised(beta, np.ones(plan.n_stages), self.n_temperatures)
        before, barrier, n_iterations, first, spent = 0.0, 0.0, _TUNING, 0, 0
        for _ in range(_MOST_ROUNDS):
            plan = replace(plan, beta=beta, kernels=kernels_along(context.coarse, beta))
            blocks = self.run_round(context, plan, n_iterations, first, Phase.TUNING, "Tuning")
            first, n_iterations = first + len(blocks), 2 * n_iterations
            spent += sum(block.n_evaluations for block in blocks)
            rates = _rates(blocks, beta)
            before, barrier = barrier, float(rates.sum())
            settled = abs(barrier - before) < _STABLE * barrier
            wanted = int(np.clip(np.ceil(2.0 * barrier) + 2, 4, _MOST_TEMPERATURES))
            n_before, beta = len(beta), equalised(beta, rates, self.n_temperatures or wanted)
            if barrier == 0.0 or (settled and abs(len(beta) - n_before) <= 0.2 * n_before):
                break
        options = {"barrier": barrier}
        plan = replace(
            plan,
            beta=beta,
            kernels=kernels_along(context.coarse, beta),
            n_evaluations=plan.n_evaluations + spent,
            schedule=UsedSchedule(beta, "equal_rejection", options),
        )
        coarse = replace(context.coarse, n_evaluations=context.coarse.n_evaluations + spent)
        return self.with_ladders(replace(context, plan=plan, coarse=coarse), {})


def _rates(blocks: tuple[BlockRecord, ...], beta: Floats) -> Floats:
    """Return the rejection rate of each pair of neighbours."""
    chains = [block.tempered for block in blocks if block.tempered is not None]
    energy = np.concatenate([found.energy.ravel() for found in chains])
    rung = np.concatenate([found.rung.ravel() for found in chains])
    return rejection_rates(beta, energy, rung)
