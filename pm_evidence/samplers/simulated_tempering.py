"""Simulated tempering: chains that draw their temperatures given their states."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_choice, check_count, float_array
from pm_evidence.core.contracts import Path, Plan
from pm_evidence.core.interrupts import Progress, Report, silent
from pm_evidence.core.numerics import log_mean_exp
from pm_evidence.core.random import Phase, block_seeds, streams
from pm_evidence.core.records import UsedSchedule
from pm_evidence.samplers.sampler import (
    MOST_ISLANDS,
    MOST_MOVES,
    MOST_TEMPERATURES,
    RunContext,
    kernels_along,
)
from pm_evidence.samplers.tempering import (
    Chains,
    TemperatureRule,
    Tempering,
    annealed_start,
    check_linear,
)

Floats = NDArray[np.float64]
Rungs = NDArray[np.int16]


_EXPONENT = 2.0  # of the exponential prior: Carlson et al. (2016), section 4.4
_LEAST_SHARE = 1e-12  # of a temperature relative to that of the largest weight: none is visited


@dataclass(frozen=True, slots=True)
class TemperingPlan(Plan):
    """A plan with the weights of the temperatures."""

    # shape (n_temperatures,): approximate log normalising constants, in nats
    log_z: Floats = field(default_factory=lambda: np.zeros(0))
    # shape (n_temperatures,): prior over temperatures; it sums to 1
    prior: Floats = field(default_factory=lambda: np.zeros(0))

    @property
    def log_weight(self) -> Floats:
        """Log of prior over normalising constant, in nats."""
        weight: Floats = np.log(self.prior) - self.log_z
        return weight


@dataclass
class Redraw:
    """Draws of temperatures given states (Carlson et al. 2016, Eq. 7)."""

    beta: Floats  # shape (n_temperatures,): inverse temperatures
    log_weight: Floats  # shape (n_temperatures,): see ``TemperingPlan``
    rng: np.random.Generator  # source of the draws

    def changed(self, rung: Rungs, energy: Floats) -> Rungs:
        """Return the temperatures of the next iteration."""
        log_p = log_probabilities(self.beta, self.log_weight, energy)
        cumulative = np.cumsum(np.exp(log_p), axis=1)
        bound = self.rng.random(len(rung)) * cumulative[:, -1]
        return (cumulative <= bound[:, None]).sum(axis=1).astype(np.int16)


def log_probabilities(beta: Floats, log_weight: Floats, energy: Floats) -> Floats:
    """Return the log probability of every temperature given a state.

    Carlson et al. (2016), Eq. 7.
    """
    log_p = np.empty((len(energy), len(beta)))
    log_p[:, 0] = log_weight[0]
    np.multiply.outer(energy, -beta[1:], out=log_p[:, 1:])
    log_p[:, 1:] += log_weight[1:]
    log_p -= log_p.max(axis=1, keepdims=True)
    log_p -= np.log(np.exp(log_p).sum(axis=1, keepdims=True))
    return log_p


def prior_over(given: Any, beta: Floats) -> Floats:
    """Return the prior over temperatures that a user asks for, which sums to 1."""
    if isinstance(given, str):
        weight = np.ones(len(beta)) if given == "uniform" else np.exp(_EXPONENT * beta)
        return weight / weight.sum()
    weight = checked_weights(given)
    if len(weight) != len(beta):
        raise ValueError(
            f"prior must have one weight for each of the {len(beta)} temperatures, got "
            f"{len(weight)} weights; pass n_temperatures={len(weight)}, or 'uniform'."
        )
    return weight / weight.sum()


def checked_weights(given: Any) -> Floats:
    """Return the weights of temperatures that a user gives, of which the largest is 1."""
    weight = float_array("prior", given)
    if weight.ndim != 1 or weight.size < 2:
        raise ValueError(
            f"prior must be 'uniform', 'exponential' or a row of at least two weights, got shape "
            f"{weight.shape}; pass one weight for each temperature."
        )
    bad = np.flatnonzero(~(np.isfinite(weight) & (weight > 0.0)))
    if bad.size:
        raise ValueError(
            f"prior must be positive and finite, got prior[{bad[0]}]={weight[bad[0]]}; leave out "
            "temperatures that chains should not visit."
        )
    if weight.min() < _LEAST_SHARE * weight.max():
        raise ValueError(
            f"prior must have weights that differ by a factor of at most {1.0 / _LEAST_SHARE:g}, "
            f"got weights from {weight.min():g} to {weight.max():g}; leave out temperatures that "
            "chains should not visit."
        )
    return weight / weight.max()


# The rounds end when no temperature is visited more or less often than its prior says by more than
# this share of 1 / K, with K temperatures (Carlson et al. 2016, section 2.4).
_TOLERANCE = 0.1
_PARTICLES = 4  # of the population that every chain starts from
# Least log of a share, where no state has any mass at a temperature, and least mean of rows.
_LEAST_LOG_SHARE, _TINY = -1e6, 1e-300


@dataclass(frozen=True, slots=True)
class LearntWeights:
    """Weights learnt in initial iterations."""

    # shape (n_temperatures,): log normalising constants relative to that of the reference, in nats
    log_z: Floats
    # shape (n_rounds,): largest difference between the Rao-Blackwellized shares of the temperatures
    # (Eq. 9) and the prior, as a multiple of 1 / K
    deviation: Floats
    n_evaluations: int  # density (or gradient) evaluations


@dataclass(frozen=True)
class InitialIterations:
    """A task: rounds of simulated tempering, after each of which the weights are updated.

    Chains of a round start at temperatures drawn from the prior, with the states that they have.

    Carlson et al. (2016), section 2.4.
    """

    path: Path  # what is tempered
    plan: TemperingPlan  # temperatures, kernels and prior
    sampler: "SimulatedTempering"  # the numbers of chains, sweeps and rounds, and the start
    seed: int  # seed of the run

    def __call__(self, report: Report = silent) -> LearntWeights:
        """Return the weights."""
        plan, prior, sampler = self.plan, self.plan.prior, self.sampler
        n, log_z = sampler.chains, np.zeros(len(self.plan.beta))
        draw_seed, chain_seed = block_seeds(self.seed, Phase.TUNING, 0)
        rng = np.random.default_rng(chain_seed.spawn(1)[0])
        rung = np.sort(rng.choice(len(prior), n, p=prior)).astype(np.int16)
        if sampler.start == "annealing":
            chosen = [np.flatnonzero(rung == k) for k in range(len(plan.beta))]
            both = draw_seed, chain_seed.spawn(1)[0]
            start = annealed_start(self.path, plan, chosen, n, _PARTICLES, both)
            state, spent = start.state, start.n_evaluations
            annealed = np.array([log_mean_exp(each) for each in start.log_z])
            if np.isfinite(annealed).all():
                log_z = annealed
        else:
            state, spent = self.path.draw(n, draw_seed), n
            check_linear(self.path, state)
        seeds, own = draw_seed.spawn(1)[0], streams(chain_seed, n)
        chains = Chains(self.path, plan.beta, plan.kernels, state, rung, own, seeds)
        deviations = []
        for i in range(sampler.rounds):
            chains.rung = rng.choice(len(prior), n, p=prior).astype(np.int16)
            log_share = self._round(chains, log_z, rng)
            # Eq. 12, relative to the reference
            log_z = log_z + log_share - np.log(prior)
            log_z = log_z - log_z[0]
            deviations.append(float(np.abs(np.exp(log_share) - prior).max() * len(prior)))
            stage = (i + 1) * plan.n_stages // sampler.rounds
            report(Progress(0, stage, np.nan, np.nan, np.nan, float(log_z[-1])))
            if deviations[-1] < _TOLERANCE:
                break
        return LearntWeights(log_z, np.array(deviations), spent + chains.n_evaluations)

    def _round(self, chains: Chains, log_z: Floats, rng: np.random.Generator) -> Floats:
        """Return the log of the shares of the temperatures in a round with fixed weights."""
        log_weight = np.log(self.plan.prior) - log_z
        redraw = Redraw(self.plan.beta, log_weight, rng)
        log_shares = []
        for _ in range(self.sampler.sweeps):
            chains.move()
            energy = chains.energy
            log_p = log_probabilities(self.plan.beta, log_weight, energy)
            log_shares.append(_log_mean_exp(log_p))
            chains.rung = redraw.changed(chains.rung, energy)
        return _log_mean_exp(np.array(log_shares))


def _log_mean_exp(rows: Floats) -> Floats:
    """Return the log of the mean of ``exp(rows)`` over rows, shape ``(n_columns,)``."""
    top = np.maximum(rows.max(axis=0), _LEAST_LOG_SHARE)
    return top + np.log(np.maximum(np.exp(rows - top).mean(axis=0), _TINY))


_TEMPERATURES = 100
# Temperatures for each stage of a pilot's schedule, whose neighbours overlap in about half.
_PER_STAGE = 2


@dataclass(frozen=True, kw_only=True)
class SimulatedTempering(Tempering):
    """Simulated tempering (Carlson et al. 2016): each chain draws its temperature given its state.

    Temperature and state are drawn in turn, with weights by which all temperatures are visited as
    often as a prior over them says. Initial iterations learn these weights. Probabilities of the
    temperatures, averaged over the states of a long run, give the evidence (Rao-Blackwellized
    tempered sampling, RTS). Its error comes from the spread of the chains.

    Parameters
    ----------
    n_temperatures : int, optional
        Number of temperatures. By default that of the weights of ``prior``, and without such
        weights 100, or with a pilot two for each of its stages.
    chains : int
        Number of independent chains, at least 2.
    prior : str or array_like, shape (n_temperatures,)
        Prior over temperatures: ``"uniform"``, ``"exponential"`` (in proportion to ``exp(2 beta)``,
        more chains near the target), or weights of your own.
    start : str
        Weights that the initial iterations start from: ``"annealing"`` (from small annealed
        populations) or ``"equal"`` (the paper's).
    sweeps : int
        Moves of each chain in a round of the initial iterations.
    rounds : int
        Largest number of these rounds. They end when all temperatures are visited as the prior
        says, up to a tenth (section 2.4 of the paper).

    Notes
    -----
    Carlson, Stinson, Pakman and Paninski (2016), Algorithm 1. At the reference, states are drawn
    anew in every iteration.

    Examples
    --------
    >>> import pm_evidence as pe
    >>> dt = pe.sample_evidence(
    ...     pe.mixtures.Gaussian(),
    ...     method=pe.methods.SimulatedTempering(n_temperatures=20),
    ...     draws=1000,
    ...     target_mcse=None,
    ...     random_seed=1,
    ...     progressbar=False,
    ... )
    >>> pe.log_evidence(dt).status
    'ok'
    """

    n_temperatures: int | None = None
    chains: int = 256
    prior: Any = "uniform"
    start: str = "annealing"
    sweeps: int = 50
    rounds: int = 20
    name = "simulated_tempering"
    default_draws = 8000
    n_together = 128

    def __post_init__(self) -> None:
        if self.n_temperatures is not None:
            check_count("n_temperatures", self.n_temperatures, 2, MOST_TEMPERATURES)
        check_count("chains", self.chains, 2, MOST_ISLANDS)
        check_choice("start", self.start, ("annealing", "equal"))
        check_count("sweeps", self.sweeps, 1, MOST_MOVES)
        check_count("rounds", self.rounds, 1, MOST_MOVES)
        if isinstance(self.prior, str):
            check_choice("prior", self.prior, ("uniform", "exponential"))
        else:
            weights = checked_weights(self.prior)
            prior_over(weights, np.linspace(0.0, 1.0, self.n_temperatures or len(weights)))
            # a copy, which compares as a whole and cannot be changed
            object.__setattr__(self, "prior", tuple(weights.tolist()))

    def check_temperatures(self, beta: Floats) -> None:
        """Check inverse temperatures that do not come from this sampler; see ``Tempering``.

        Raises
        ------
        ValueError
            Also if there is not one weight of the prior for each of them.
        """
        super().check_temperatures(beta)
        prior_over(self.prior, beta)

    @property
    def _asked(self) -> int | None:
        """Number of temperatures that the user asks for, also by weights of a prior."""
        if self.n_temperatures is None and not isinstance(self.prior, str):
            return len(self.prior)
        return self.n_temperatures

    @property
    def n_ladders(self) -> int:
        """Number of chains, each of which is a ladder of its own."""
        return self.chains

    @property
    def islands(self) -> int:  # type: ignore[override]
        """Number of blocks, which are the chains of the posterior."""
        return len(self.groups())

    @property
    def n_stages(self) -> int:  # type: ignore[override]
        """Number of steps of a named schedule."""
        return (self._asked or _TEMPERATURES) - 1

    def kept(self, n_ladders: int, n_temperatures: int) -> list[NDArray[np.int64]]:
        """Return the chains that start at each temperature: about equally many."""
        at = np.arange(n_ladders) * n_temperatures // n_ladders
        return [np.flatnonzero(at == k) for k in range(n_temperatures)]

    def rule(
        self, plan: Plan, ladder: NDArray[np.int64], rng: np.random.Generator
    ) -> TemperatureRule:
        """Return the rule by which chains draw their temperatures."""
        assert isinstance(plan, TemperingPlan)
        return Redraw(plan.beta, plan.log_weight, rng).changed

    def prepared(self, context: RunContext) -> RunContext:
        """Return the context with a plan whose weights were learnt in initial iterations."""
        plan, used = context.plan, context.plan.schedule
        beta = plan.beta
        if used is not None and used.name == "adaptive":
            wanted = _PER_STAGE * plan.n_stages if context.setup.n_stages is None else self.n_stages
            if self._asked is not None:
                wanted = self._asked - 1
            positions = np.linspace(0.0, plan.n_stages, wanted + 1)
            beta = np.interp(positions, np.arange(plan.n_stages + 1), plan.beta)
            used = UsedSchedule(beta, used.name, used.options)
        else:
            self.check_temperatures(beta)
        prior = prior_over(self.prior, beta)
        first = TemperingPlan(
            beta,
            kernels_along(context.coarse, beta),
            n_evaluations=plan.n_evaluations,
            schedule=used,
            log_z=np.zeros(len(beta)),
            prior=prior,
        )
        task = InitialIterations(context.setup.path, first, self, context.seed)
        (found,) = context.execute("Initial iterations", [task], first)
        spent = found.n_evaluations
        facts = {
            "tempering_log_z": found.log_z.tolist(),
            "tempering_prior": prior.tolist(),
            "initial_rounds": len(found.deviation),
            "initial_deviation": float(found.deviation[-1]),
        }
        context = replace(
            context,
            coarse=replace(context.coarse, n_evaluations=context.coarse.n_evaluations + spent),
            plan=replace(first, log_z=found.log_z, n_evaluations=first.n_evaluations + spent),
        )
        return self.with_ladders(context, facts)
