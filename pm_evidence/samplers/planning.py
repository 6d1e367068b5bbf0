"""How a run finds its inverse temperatures and the kernel of each stage."""

from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_count
from pm_evidence.core.contracts import AnnealingSetup, Plan, Tunable
from pm_evidence.core.interrupts import Report
from pm_evidence.core.random import Phase
from pm_evidence.core.records import PathVariance, UsedSchedule
from pm_evidence.samplers.ais import AIS, ISLANDS_SHARE, SMALL_ISLAND
from pm_evidence.samplers.pilot import Pilot
from pm_evidence.samplers.sampler import MOST_STAGES, Sampler, kernels_along
from pm_evidence.schedules import (
    SMOOTHING,
    check_largest_step,
    check_smoothing,
    decelerated,
    divergences_from_variance,
    gms13,
    linear,
    predicted_variance,
    sm08,
    varopt,
)

Floats = NDArray[np.float64]


_LEAST_PILOT = 200  # particles
_NAMED_STAGES = 200  # of a named schedule, if neither the sampler nor the target gives a number
TRIAL_STAGES, TRIAL_PATHS = 400, 256
_LEAST_STAGES = 10  # of islands that reverse paths start from
# Lattices: the power 3/4 of the variance gave a variance of the work that was 0 to 10 % smaller
# than 1/2, and half of that with equal steps.
_POWER = 0.75


class Schedule(Protocol):
    """How a run finds its inverse temperatures, and the kernel of each stage."""

    def plan(
        self, setup: AnnealingSetup, sampler: Sampler, size: int, seed: int, report: Report
    ) -> tuple[Plan, Plan]:
        """Return the plan of a pilot, and the one that blocks follow."""
        ...


@dataclass(frozen=True)
class AdaptiveSchedule:
    """A schedule found by a pilot, or by a trial run if there is no kernel to tune."""

    def plan(
        self, setup: AnnealingSetup, sampler: Sampler, size: int, seed: int, report: Report
    ) -> tuple[Plan, Plan]:
        """Return the plan of a pilot, and the one that blocks follow; see ``Schedule``."""
        if setup.n_stages is None or sampler.uses_pilot:
            coarse, variance = piloted(setup, sampler, size, seed, report, None)
            plans = coarse, sampler.follow(replace(coarse, path_variance=variance))
            options = {"ess": sampler.ess}
            first, second = (_said(plan, "adaptive", options, variance) for plan in plans)
            return first, second
        trial, found = trial_of(setup, TRIAL_STAGES, TRIAL_PATHS, seed)
        beta = varopt(
            found.beta,
            found.variance,
            sampler.n_stages or setup.n_stages,
            power=_POWER,
            floor=setup.even_share,
        )
        options = {"pilot_stages": TRIAL_STAGES, "pilot_paths": TRIAL_PATHS}
        plan = _said(untuned(setup, beta, trial.n_evaluations), "adaptive", options, found)
        return (plan if setup.starts else _for_islands(setup, sampler, plan, found, size)), plan


ADAPTIVE = AdaptiveSchedule()


@dataclass(frozen=True)
class FixedSchedule:
    """Inverse temperatures given by the user; a pilot tunes the kernels along them."""

    beta: Floats  # shape (n_stages + 1,): strictly increasing from 0 to 1
    name: str = "given"  # name of the schedule in results

    def plan(
        self, setup: AnnealingSetup, sampler: Sampler, size: int, seed: int, report: Report
    ) -> tuple[Plan, Plan]:
        """Return the plan of a pilot, and the one that blocks follow; see ``Schedule``."""
        if setup.n_stages is None or sampler.uses_pilot:
            plan, _ = piloted(setup, sampler, size, seed, report, self.beta)
        else:
            plan = untuned(setup, self.beta)
        plan = replace(plan, schedule=UsedSchedule(self.beta, self.name))
        return plan, plan


@dataclass(frozen=True, kw_only=True)
class Linear:
    """Equal steps from 0 to 1: ``schedule="linear"``.

    Notes
    -----
    Suited to native targets, such as lattices, whose energy varies about equally along the path,
    and to comparisons with other schedules. From a vague prior the first step is far too long.

    Examples
    --------
    >>> import pm_evidence as pe
    >>> dt = pe.sample_evidence(
    ...     pe.mixtures.Gaussian(),
    ...     method=pe.methods.AIS(n_stages=100),
    ...     schedule=pe.schedules.Linear(),
    ...     draws=200,
    ...     target_mcse=None,
    ...     random_seed=1,
    ...     progressbar=False,
    ... )
    >>> dt["annealing"]["beta"].values[[0, 1, 50, 100]]
    array([0.  , 0.01, 0.5 , 1.  ])
    """

    def plan(
        self, setup: AnnealingSetup, sampler: Sampler, size: int, seed: int, report: Report
    ) -> tuple[Plan, Plan]:
        """Return the plan of a pilot, and the one that blocks follow; see ``Schedule``."""
        fixed = FixedSchedule(linear(stages_of(setup, sampler)), "linear")
        return fixed.plan(setup, sampler, size, seed, report)


@dataclass(frozen=True, kw_only=True)
class SM08:
    """The schedule of Salakhutdinov and Murray (2008): ``schedule="sm08"``.

    Steps become shorter towards 1: of 14,500 steps, 500 divide [0, 0.5] evenly, 4,000 divide
    [0.5, 0.9] and 10,000 [0.9, 1]. Other numbers of stages are divided in the same shares.

    Notes
    -----
    Chosen by its authors for restricted Boltzmann machines, whose energy varies most near 1. On a
    PyMC model it varies most near 0, where this schedule has its longest steps.

    Examples
    --------
    >>> import pm_evidence as pe
    >>> dt = pe.sample_evidence(
    ...     pe.mixtures.Gaussian(),
    ...     method=pe.methods.AIS(n_stages=145),
    ...     schedule=pe.schedules.SM08(),
    ...     draws=200,
    ...     target_mcse=None,
    ...     random_seed=1,
    ...     progressbar=False,
    ... )
    >>> dt["annealing"]["beta"].values[[5, 45, 145]]
    array([0.5, 0.9, 1. ])
    """

    def plan(
        self, setup: AnnealingSetup, sampler: Sampler, size: int, seed: int, report: Report
    ) -> tuple[Plan, Plan]:
        """Return the plan of a pilot, and the one that blocks follow; see ``Schedule``."""
        fixed = FixedSchedule(sm08(stages_of(setup, sampler)), "sm08")
        return fixed.plan(setup, sampler, size, seed, report)


@dataclass(frozen=True)
class _Steps:
    """The steps of a path that has densities at their ends only."""

    def plan(
        self, setup: AnnealingSetup, sampler: Sampler, size: int, seed: int, report: Report
    ) -> tuple[Plan, Plan]:
        """Return one plan twice; see ``Schedule``."""
        assert setup.n_stages is not None
        plan = untuned(setup, linear(setup.n_stages))
        plan = replace(plan, schedule=UsedSchedule(plan.beta, "steps"))
        return plan, plan


def within_steps(schedule: Schedule, setup: AnnealingSetup) -> Schedule:
    """Return the schedule of a path: its own steps if it has densities at their ends only."""
    prescribed = getattr(setup.path, "prescribed", None)
    if prescribed is not None and isinstance(schedule, AdaptiveSchedule):
        return FixedSchedule(prescribed, "batches")
    if not setup.stepwise:
        return schedule
    if isinstance(schedule, AdaptiveSchedule | Linear):
        return _Steps()
    raise ValueError(
        f"schedule must be left out where states grow, here by {setup.n_stages} steps that cannot "
        f"be divided, got {type(schedule).__name__}; leave it out, or choose another path."
    )


def stages_of(setup: AnnealingSetup, sampler: Sampler) -> int:
    """Return the number of stages of a named schedule: of the sampler, the target, or 200."""
    usual = getattr(sampler, "named_stages", None) or setup.n_stages or _NAMED_STAGES
    return sampler.n_stages or usual


def piloted(
    setup: AnnealingSetup,
    sampler: Sampler,
    size: int,
    seed: int,
    report: Report,
    beta: Floats | None,
) -> tuple[Plan, PathVariance | None]:
    """Return the plan of a pilot, and the variance of the energy along its populations."""
    n = max(size, min(setup.n_pilot, sampler.first_round(size)), _LEAST_PILOT)
    pilot = Pilot(n, sampler.chain_length, sampler.ess, beta)
    found = pilot.run(setup.path, setup.kernel, seed, report)
    return replace(found, population=None, path_variance=None), found.path_variance


def untuned(setup: AnnealingSetup, beta: Floats, n_evaluations: int = 0) -> Plan:
    """Return the plan of a kernel without settings to tune."""
    return Plan(beta, (setup.kernel,) * (len(beta) - 1), n_evaluations=n_evaluations)


def trial_of(
    setup: AnnealingSetup, n_stages: int, n_paths: int, seed: int
) -> tuple[Plan, PathVariance]:
    """Return the plan of a trial run along equal steps, and the variance of its energies.

    Kiwaki (2015), Algorithm 2: a cheap run of annealed importance sampling with a linear schedule.
    He weights its states by their weights so far. Here they count equally: with 400 stages and 256
    paths, the resulting schedules were equally good on a Gaussian and on an Ising lattice, and if
    a trial is too short, a few paths have all the weight and their variance is much too small.
    """
    plan = untuned(setup, linear(n_stages))
    block = AIS().run_block(setup.path, plan, 0, n_paths, seed, phase=Phase.TRIAL)
    variance = np.where(np.isfinite(block.trace.energy_var), block.trace.energy_var, 0.0)
    return replace(plan, n_evaluations=block.n_evaluations), PathVariance(plan.beta, variance)


def _for_islands(
    setup: AnnealingSetup, sampler: Sampler, plan: Plan, found: PathVariance, size: int
) -> Plan:
    """Return the plan of islands that reverse paths start from.

    They take as many stages as small islands can afford, because mixing is what limits native
    kernels. There are at least as many as leave the sampler's effective sample size at every stage
    if moves mix: the variance of the log weights of a stage is then ``1 / ess - 1``.
    """
    length = float(np.sqrt(found.variance) @ np.diff(found.beta))
    needed = max(np.ceil(length / np.sqrt(1.0 / sampler.ess - 1.0)), _LEAST_STAGES)
    affordable = 2.0 * size * ISLANDS_SHARE * plan.n_stages / (sampler.islands * SMALL_ISLAND)
    n_stages = int(min(max(needed, affordable), plan.n_stages))
    beta = varopt(found.beta, found.variance, n_stages)
    return untuned(setup, beta, plan.n_evaluations)


def _said(plan: Plan, name: str, options: dict[str, float], variance: PathVariance | None) -> Plan:
    """Return a plan that says how its schedule was found."""
    predicted = float("nan")
    if variance is not None:
        predicted = predicted_variance(plan.beta, variance.beta, variance.variance)
    used = UsedSchedule(plan.beta, name, options, predicted)
    # the plan is sent to the workers with every block, and they need no variance
    return replace(plan, schedule=used, path_variance=None)


_MOST_PATHS = 1_000_000  # of a trial run
# Share of the steps that lies evenly, for variances that are zero or missing in some places. It
# increases the predicted variance by about a hundredth.
_FLOOR = 0.01


@dataclass(frozen=True, kw_only=True)
class VarOpt:
    """The schedule with the smallest variance of the work (Kiwaki 2015): ``schedule="varopt"``.

    Steps have equal length in the metric ``sqrt(V(beta)) d beta`` with ``V`` the variance of the
    energy. If every move drew independently, no schedule with as many stages would do better.

    Parameters
    ----------
    largest_step : float, optional
        Kiwaki's bound of deceleration: no step is longer, and the others are stretched less. Long
        steps are those where the energy hardly varies; moves may mix slowly there, which the
        variance does not show. He uses 0.009, 0.006 and 0.003 with at least 1,000 stages. It must
        be at least ``1 / n_stages``. No bound if left out.
    pilot_stages, pilot_paths : int
        Size of the trial run of equal steps that estimates ``V`` if the kernel has nothing to tune
        (lattices, `pe.mixtures.Gaussian`). Otherwise ``V`` comes from the pilot that tunes the
        kernels, and these options are not used.
    smoothing : float
        Share of the path, in stages, over which the estimates of ``V`` are averaged, from 0 to
        below 1.

    Raises
    ------
    ValueError
        If an option is out of range; at the start of a run, if ``n_stages * largest_step < 1``.

    Notes
    -----
    The number of stages is ``n_stages`` of the sampler, or 200 for a model and that of the target
    for lattices if it has none. See `VarOpt` for the mathematics. In a PyMC model a
    linear trial run from a vague prior would jump over all that matters, so the populations of
    the adaptive pilot are used instead, reweighted to the inverse temperatures between its
    stages. Each stage is moved by the pilot's kernel of the stage in which it ends.

    Examples
    --------
    >>> import pm_evidence as pe
    >>> dt = pe.sample_evidence(
    ...     pe.mixtures.Gaussian(),
    ...     method=pe.methods.AIS(n_stages=50),
    ...     schedule=pe.schedules.VarOpt(largest_step=0.03),
    ...     draws=200,
    ...     target_mcse=None,
    ...     random_seed=1,
    ...     progressbar=False,
    ... )
    >>> bool(dt["annealing"]["beta"].diff("beta_point").max() <= 0.03 + 1e-12)
    True
    """

    largest_step: float | None = None
    pilot_stages: int = TRIAL_STAGES
    pilot_paths: int = TRIAL_PATHS
    smoothing: float = SMOOTHING

    def __post_init__(self) -> None:
        if self.largest_step is not None:
            check_largest_step(self.largest_step, None)
        _check_trial(self.pilot_stages, self.pilot_paths)
        check_smoothing(self.smoothing)

    def check(self, n_stages: int) -> None:
        """Raise ValueError if a number of stages does not fit the options."""
        if self.largest_step is not None:
            check_largest_step(self.largest_step, n_stages)

    def plan(
        self, setup: AnnealingSetup, sampler: Sampler, size: int, seed: int, report: Report
    ) -> tuple[Plan, Plan]:
        """Return the plan of a pilot, and the one that blocks follow; see ``Schedule``."""
        n_stages = stages_of(setup, sampler)
        self.check(n_stages)
        coarse, found = _surveyed(self, setup, sampler, size, seed, report)
        beta = varopt(found.beta, found.variance, n_stages, smoothing=self.smoothing, floor=_FLOOR)
        if self.largest_step is not None:
            beta = decelerated(beta, self.largest_step)
        return _plans(setup, coarse, beta, "varopt", asdict(self), found)


@dataclass(frozen=True, kw_only=True)
class GMS13:
    """The schedule of Grosse, Maddison and Salakhutdinov (2013): ``schedule="gms13"``.

    A few knots lie evenly on [0, 1]. Steps are equal between two knots, and their number is in
    proportion to the square root of what changes there: the sum of the Kullback-Leibler divergences
    of both knots in both directions.

    Parameters
    ----------
    n_knots : int
        Number of knots, with both ends; at least 2. With 2 the schedule is linear.
    pilot_stages, pilot_paths : int
        Size of the trial run if the kernel has nothing to tune; see `pe.schedules.VarOpt`.

    Raises
    ------
    ValueError
        If an option is out of range.

    Notes
    -----
    Kiwaki (2015), section 7, uses 10 knots, with long chains at each. Here the mean energies at the
    knots come from the same runs as the variances of `pe.schedules.VarOpt`, as integrals of the
    variance between knots; see ``schedules.gms13``. The first step from a vague prior is as long as
    that of a linear schedule.

    Examples
    --------
    >>> import pm_evidence as pe
    >>> dt = pe.sample_evidence(
    ...     pe.mixtures.Gaussian(),
    ...     method=pe.methods.AIS(n_stages=50),
    ...     schedule=pe.schedules.GMS13(n_knots=5),
    ...     draws=200,
    ...     target_mcse=None,
    ...     random_seed=1,
    ...     progressbar=False,
    ... )
    >>> dt["log_evidence"].attrs["schedule"]
    'gms13'
    """

    n_knots: int = 10
    pilot_stages: int = TRIAL_STAGES
    pilot_paths: int = TRIAL_PATHS

    def __post_init__(self) -> None:
        check_count("n_knots", self.n_knots, 2, MOST_STAGES)
        _check_trial(self.pilot_stages, self.pilot_paths)

    def plan(
        self, setup: AnnealingSetup, sampler: Sampler, size: int, seed: int, report: Report
    ) -> tuple[Plan, Plan]:
        """Return the plan of a pilot, and the one that blocks follow; see ``Schedule``."""
        coarse, found = _surveyed(self, setup, sampler, size, seed, report)
        knots = np.linspace(0.0, 1.0, self.n_knots)
        divergence = divergences_from_variance(knots, found.beta, found.variance)
        beta = gms13(knots, divergence, stages_of(setup, sampler))
        return _plans(setup, coarse, beta, "gms13", asdict(self), found)


def _check_trial(pilot_stages: Any, pilot_paths: Any) -> None:
    check_count("pilot_stages", pilot_stages, 2, MOST_STAGES)
    check_count("pilot_paths", pilot_paths, 2, _MOST_PATHS)


def _surveyed(
    schedule: VarOpt | GMS13,
    setup: AnnealingSetup,
    sampler: Sampler,
    size: int,
    seed: int,
    report: Report,
) -> tuple[Plan, PathVariance]:
    """Return the variance of the energy along the path, and the plan of the run that found it."""
    if isinstance(setup.kernel, Tunable):
        coarse, found = piloted(setup, sampler, size, seed, report, None)
        assert found is not None
        return coarse, found
    return trial_of(setup, schedule.pilot_stages, schedule.pilot_paths, seed)


def _plans(
    setup: AnnealingSetup,
    coarse: Plan,
    beta: Floats,
    name: str,
    options: dict[str, Any],
    found: PathVariance,
) -> tuple[Plan, Plan]:
    """Return the pilot's plan, and that along a new schedule with the pilot's kernels.

    Each stage has the kernel of the pilot's stage in which it ends, as stages have that an adaptive
    schedule is cut into. A second pilot along the new schedule would cost more than most runs.
    """
    predicted = predicted_variance(beta, found.beta, found.variance)
    plain = {
        key: value.item() if isinstance(value, np.generic) else value
        for key, value in options.items()
    }
    used = UsedSchedule(beta, name, plain, predicted)
    if not isinstance(setup.kernel, Tunable):
        plan = replace(untuned(setup, beta, coarse.n_evaluations), schedule=used)
        return plan, plan
    kernels = kernels_along(coarse, beta)
    return coarse, replace(coarse, beta=beta, kernels=kernels, schedule=used)
