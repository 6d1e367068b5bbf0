"""Simulated tempering: chains that draw their temperatures given their states."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_choice, check_count
from pm_evidence.core.contracts import Plan
from pm_evidence.core.records import RunRecord
from pm_evidence.core.schedule import UsedSchedule
from pm_evidence.samplers.initial_iterations import InitialIterations
from pm_evidence.samplers.sampler import RunContext, block_sizes
from pm_evidence.samplers.sizes import MOST_ISLANDS, MOST_MOVES, MOST_TEMPERATURES
from pm_evidence.samplers.stages import kernels_along
from pm_evidence.samplers.tempering import Tempering
from pm_evidence.samplers.tempering_weights import (
    Redraw,
    TemperingPlan,
    checked_weights,
    prior_over,
)

__all__ = ["SimulatedTempering"]

Floats = NDArray[np.float64]

_CHAINS_OF_BLOCK = 128
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
        populations), ``"equal"`` (the paper's), or ``"wang_landau"`` (Wang and Landau 2001).
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
    ...     pe.Gaussian(),
    ...     method=pe.SimulatedTempering(n_temperatures=20),
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

    def __post_init__(self) -> None:
        if self.n_temperatures is not None:
            check_count("n_temperatures", self.n_temperatures, 2, MOST_TEMPERATURES)
        check_count("chains", self.chains, 2, MOST_ISLANDS)
        check_choice("start", self.start, ("annealing", "equal", "wang_landau"))
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
    def islands(self) -> int:  # type: ignore[override]
        """Number of blocks, which are the chains of the posterior."""
        return len(self.groups())

    @property
    def n_stages(self) -> int:  # type: ignore[override]
        """Number of steps of a named schedule."""
        return (self._asked or _TEMPERATURES) - 1

    def first_round(self, size: int) -> int:
        """Return the draws of all chains."""
        return size

    def units(self, record: RunRecord, size: int) -> int:
        """Return the expected number of draws at the target so far."""
        n = sum(chains.every * chains.energy.size for chains in record.tempered)
        return -(-n // len(record.beta))

    def iterations(self, draws: int, n_temperatures: int) -> int:
        """Return the number of iterations after which ``draws`` chains were at the target."""
        return max(-(-draws * n_temperatures // self.chains), 1)

    def groups(self) -> list[int]:
        """Return the number of chains of each block of a round."""
        return block_sizes(self.chains, max(min(_CHAINS_OF_BLOCK, self.chains // 2), 1))

    def kept(self, n_ladders: int, n_temperatures: int) -> list[NDArray[np.int64]]:
        """Return the chains that start at each temperature: about equally many."""
        at = np.arange(n_ladders) * n_temperatures // n_ladders
        return [np.flatnonzero(at == k) for k in range(n_temperatures)]

    def rule(self, plan: Plan, ladder: NDArray[np.int64], rng: np.random.Generator) -> Redraw:
        """Return the rule by which chains draw their temperatures."""
        assert isinstance(plan, TemperingPlan)
        return Redraw(plan.beta, plan.log_weight, rng)

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
        task = InitialIterations(
            context.setup.path,
            first,
            self.chains,
            self.start,
            self.sweeps,
            self.rounds,
            context.seed,
        )
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
