"""Initial iterations of simulated tempering, which learn the weights of the temperatures."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.contracts import Path
from pm_evidence.core.numerics import log_mean_exp
from pm_evidence.core.progress import Progress, Report, silent
from pm_evidence.core.random import Phase, block_seeds, streams
from pm_evidence.samplers.tempered_chains import Chains, annealed_start, check_linear
from pm_evidence.samplers.tempering_weights import Redraw, TemperingPlan, log_probabilities

__all__ = ["InitialIterations", "LearntWeights"]

Floats = NDArray[np.float64]

# The rounds end when no temperature is visited more or less often than its prior says by more than
# this share of 1 / K, with K temperatures (Carlson et al. 2016, section 2.4).
_TOLERANCE = 0.1
# Increment of the log weights in the first phase of Wang-Landau sampling, in nats, and the smallest
# one; it is halved when all temperatures were visited.
_INCREMENT, _LEAST_INCREMENT = 1.0, 0.01
_MOST_SWEEPS = 20_000  # of Wang-Landau sampling
_PARTICLES = 4  # of the population that every chain starts from
# Least log of a share, where no state has any mass at a temperature, and least mean of rows.
_LEAST_LOG_SHARE, _TINY = -1e6, 1e-300


@dataclass(frozen=True, slots=True)
class LearntWeights:
    """Weights learnt in initial iterations.

    Parameters
    ----------
    log_z : ndarray, shape (n_temperatures,)
        Log normalising constants relative to that of the reference, in nats.
    log_z_by_round : ndarray, shape (n_rounds + 1, n_temperatures)
        Those before the first round and after each.
    log_share_by_round : ndarray, shape (n_rounds, n_temperatures)
        Log of the Rao-Blackwellized share of each temperature (Eq. 9), round by round.
    deviation : ndarray, shape (n_rounds,)
        Largest difference between these shares and the prior, as a multiple of 1 / K.
    n_evaluations : int
        Density (or gradient) evaluations.
    """

    log_z: Floats
    log_z_by_round: Floats
    log_share_by_round: Floats
    deviation: Floats
    n_evaluations: int


@dataclass(frozen=True)
class InitialIterations:
    """A task: rounds of simulated tempering, after each of which the weights are updated.

    Chains of a round start at temperatures drawn from the prior, with the states that they have.

    Parameters
    ----------
    path : Path
        What is tempered.
    plan : TemperingPlan
        Temperatures, kernels and prior.
    n_chains : int
        Number of chains.
    start : str
        ``"annealing"``, ``"equal"`` or ``"wang_landau"``; see ``pe.SimulatedTempering``.
    sweeps, rounds : int
        Moves of every chain in a round, and the largest number of rounds.
    seed : int
        Seed of the run.

    Notes
    -----
    Carlson et al. (2016), section 2.4.
    """

    path: Path
    plan: TemperingPlan
    n_chains: int
    start: str
    sweeps: int
    rounds: int
    seed: int

    def __call__(self, report: Report = silent) -> LearntWeights:
        """Return the weights."""
        plan, prior = self.plan, self.plan.prior
        draw_seed, chain_seed = block_seeds(self.seed, Phase.TUNING, 0)
        rng = np.random.default_rng(chain_seed.spawn(1)[0])
        chains, annealed, spent = self._chains(draw_seed, chain_seed, rng)
        log_z = np.zeros(len(prior))
        if self.start == "annealing" and np.isfinite(annealed).all():
            log_z = annealed
        if self.start == "wang_landau":
            log_z = self._wang_landau(chains, rng)
        history, shares, deviations = [log_z], [], []
        for i in range(self.rounds):
            chains.rung = rng.choice(len(prior), self.n_chains, p=prior).astype(np.int16)
            log_share = self._round(chains, log_z, rng)
            # Eq. 12, relative to the reference
            log_z = log_z + log_share - np.log(prior)
            log_z = log_z - log_z[0]
            shares.append(log_share)
            history.append(log_z)
            deviations.append(float(np.abs(np.exp(log_share) - prior).max() * len(prior)))
            stage = (i + 1) * plan.n_stages // self.rounds
            report(Progress(0, stage, np.nan, np.nan, np.nan, float(log_z[-1])))
            if deviations[-1] < _TOLERANCE:
                break
        return LearntWeights(
            log_z,
            np.array(history),
            np.array(shares),
            np.array(deviations),
            spent + chains.n_evaluations,
        )

    def _chains(
        self,
        draw_seed: np.random.SeedSequence,
        chain_seed: np.random.SeedSequence,
        rng: np.random.Generator,
    ) -> tuple[Chains, Floats, int]:
        """Return the chains, the log normalising constants of annealed paths, and their cost."""
        plan, n = self.plan, self.n_chains
        rung = np.sort(rng.choice(len(plan.prior), n, p=plan.prior)).astype(np.int16)
        if self.start == "annealing":
            chosen = [np.flatnonzero(rung == k) for k in range(len(plan.beta))]
            both = draw_seed, chain_seed.spawn(1)[0]
            start = annealed_start(self.path, plan, chosen, n, _PARTICLES, both)
            state, spent = start.state, start.n_evaluations
            log_z = np.array([log_mean_exp(each) for each in start.log_z])
        else:
            state, log_z, spent = self.path.draw(n, draw_seed), np.zeros(len(plan.beta)), n
            check_linear(self.path, state)
        seeds = draw_seed.spawn(1)[0]
        own = streams(chain_seed, n)
        return Chains(self.path, plan.beta, plan.kernels, state, rung, own, seeds), log_z, spent

    def _round(self, chains: Chains, log_z: Floats, rng: np.random.Generator) -> Floats:
        """Return the log of the shares of the temperatures in a round with fixed weights."""
        log_weight = np.log(self.plan.prior) - log_z
        redraw = Redraw(self.plan.beta, log_weight, rng)
        log_shares = []
        for _ in range(self.sweeps):
            chains.move()
            energy = chains.energy
            log_p = log_probabilities(self.plan.beta, log_weight, energy)
            log_shares.append(_log_mean_exp(log_p))
            chains.rung = redraw.changed(chains.rung, energy)
        return _log_mean_exp(np.array(log_shares))

    def _wang_landau(self, chains: Chains, rng: np.random.Generator) -> Floats:
        """Return log normalising constants by Wang and Landau's (2001) algorithm.

        Every visit lowers the weight of a temperature by an increment, which is halved when all
        temperatures were visited at least half as often as their prior says.
        """
        beta, prior = self.plan.beta, self.plan.prior
        log_z, increment, sweeps = np.zeros(len(beta)), _INCREMENT, 0
        visits = np.zeros(len(beta))
        while increment >= _LEAST_INCREMENT and sweeps < _MOST_SWEEPS:
            chains.move()
            rule = Redraw(beta, np.log(prior) - log_z, rng)
            chains.rung = rule.changed(chains.rung, chains.energy)
            counts = np.bincount(chains.rung, minlength=len(beta))
            visits += counts
            log_z += increment * counts / (prior * len(beta) * self.n_chains)
            sweeps += 1
            if (visits >= 0.5 * prior * visits.sum()).all():
                visits[:] = 0.0
                increment *= 0.5
        return log_z - log_z[0]


def _log_mean_exp(rows: Floats) -> Floats:
    """Return the log of the mean of ``exp(rows)`` over rows, shape ``(n_columns,)``."""
    top = np.maximum(rows.max(axis=0), _LEAST_LOG_SHARE)
    return top + np.log(np.maximum(np.exp(rows - top).mean(axis=0), _TINY))
