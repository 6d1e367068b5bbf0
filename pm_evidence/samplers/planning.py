"""The kinds of schedules that users can ask for, and the plans made from them."""

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.contracts import AnnealingSetup, Plan
from pm_evidence.core.progress import Report
from pm_evidence.core.random import Phase
from pm_evidence.samplers.ais import AIS
from pm_evidence.samplers.pilot import Pilot
from pm_evidence.samplers.sampler import Sampler
from pm_evidence.schedules.fixed import linear
from pm_evidence.schedules.learnt import even_steps

__all__ = ["ADAPTIVE", "AdaptiveSchedule", "FixedSchedule", "Schedule"]

Floats = NDArray[np.float64]

_LEAST_PILOT = 200  # particles
_TRIAL_STAGES, _TRIAL_PATHS = 400, 256


class Schedule(Protocol):
    """How a run finds its inverse temperatures, and the kernel of each stage."""

    def plan(
        self, setup: AnnealingSetup, sampler: Sampler, size: int, seed: int, report: Report
    ) -> tuple[Plan, Plan]:
        """Return the plan of a pilot, and the one that blocks follow.

        Parameters
        ----------
        setup : AnnealingSetup
            What is annealed and how.
        sampler : Sampler
            The sampler that follows the plan.
        size : int
            Particles of an island, or paths of the first round.
        seed : int
            Seed of the run.
        report : callable
            Called after every stage of the pilot.
        """
        ...


@dataclass(frozen=True)
class AdaptiveSchedule:
    """A schedule found by a pilot, or by a trial run if there is no kernel to tune."""

    def plan(
        self, setup: AnnealingSetup, sampler: Sampler, size: int, seed: int, report: Report
    ) -> tuple[Plan, Plan]:
        """Return the plan of a pilot, and the one that blocks follow; see ``Schedule``."""
        if setup.n_stages is None or sampler.uses_pilot:
            coarse = _piloted(setup, sampler, size, seed, report, None)
            return coarse, sampler.follow(coarse)
        plan = _untuned(setup, _even_steps(setup, sampler.n_stages or setup.n_stages, seed))
        return plan, plan


ADAPTIVE = AdaptiveSchedule()


@dataclass(frozen=True)
class FixedSchedule:
    """Inverse temperatures given by the user; a pilot tunes the kernels along them.

    Parameters
    ----------
    beta : ndarray, shape (n_stages + 1,)
        Strictly increasing from 0 to 1.
    """

    beta: Floats

    def plan(
        self, setup: AnnealingSetup, sampler: Sampler, size: int, seed: int, report: Report
    ) -> tuple[Plan, Plan]:
        """Return the plan of a pilot, and the one that blocks follow; see ``Schedule``."""
        if setup.n_stages is None or sampler.uses_pilot:
            plan = _piloted(setup, sampler, size, seed, report, self.beta)
        else:
            plan = _untuned(setup, self.beta)
        return plan, plan


def _piloted(
    setup: AnnealingSetup,
    sampler: Sampler,
    size: int,
    seed: int,
    report: Report,
    beta: Floats | None,
) -> Plan:
    n = max(size, min(setup.n_pilot, sampler.first_round(size)), _LEAST_PILOT)
    pilot = Pilot(n, sampler.chain_length, sampler.ess, beta)
    found = pilot.run(setup.path, setup.kernel, seed, report)
    return replace(found, population=None)  # the plan is sent to the workers with every block


def _untuned(setup: AnnealingSetup, beta: Floats) -> Plan:
    return Plan(beta, (setup.kernel,) * (len(beta) - 1))


def _even_steps(setup: AnnealingSetup, n_stages: int, seed: int) -> Floats:
    """Return a schedule of stages of about equal difficulty, from the energies of a trial run."""
    trial = _untuned(setup, linear(_TRIAL_STAGES))
    record = AIS().run_block(setup.path, trial, 0, _TRIAL_PATHS, seed, phase=Phase.TRIAL)
    return even_steps(trial.beta, record.trace.energy_var, n_stages)
