"""Schedules that are learnt from the variance of the energy: VAROPT and GMS13."""

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_count
from pm_evidence.core.contracts import AnnealingSetup, Plan, Tunable
from pm_evidence.core.progress import Report
from pm_evidence.core.schedule import PathVariance, UsedSchedule
from pm_evidence.samplers.planning import (
    TRIAL_PATHS,
    TRIAL_STAGES,
    piloted,
    stages_of,
    trial_of,
    untuned,
)
from pm_evidence.samplers.sampler import Sampler
from pm_evidence.samplers.sizes import MOST_STAGES
from pm_evidence.samplers.stages import kernels_along
from pm_evidence.schedules.deceleration import check_largest_step, decelerated
from pm_evidence.schedules.gms13 import divergences_from_variance, gms13
from pm_evidence.schedules.prediction import predicted_variance
from pm_evidence.schedules.varopt import SMOOTHING, check_smoothing, varopt

__all__ = ["GMS13", "VarOpt"]

Floats = NDArray[np.float64]

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
        (lattices, `pe.Gaussian`). Otherwise ``V`` comes from the pilot that tunes the kernels, and
        these options are not used.
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
    for lattices if it has none. See ``schedules.varopt`` for the mathematics. In a PyMC model a
    linear trial run from a vague prior would jump over all that matters, so the populations of
    the adaptive pilot are used instead, reweighted to the inverse temperatures between its
    stages. Each stage is moved by the pilot's kernel of the stage in which it ends.

    Examples
    --------
    >>> import pm_evidence as pe
    >>> dt = pe.sample_evidence(
    ...     pe.Gaussian(),
    ...     method=pe.AIS(n_stages=50),
    ...     schedule=pe.VarOpt(largest_step=0.03),
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
        Size of the trial run if the kernel has nothing to tune; see `pe.VarOpt`.

    Raises
    ------
    ValueError
        If an option is out of range.

    Notes
    -----
    Kiwaki (2015), section 7, uses 10 knots, with long chains at each. Here the mean energies at the
    knots come from the same runs as the variances of `pe.VarOpt`, as integrals of the variance
    between knots; see ``schedules.gms13``. The first step from a vague prior is as long as that of
    a linear schedule.

    Examples
    --------
    >>> import pm_evidence as pe
    >>> dt = pe.sample_evidence(
    ...     pe.Gaussian(),
    ...     method=pe.AIS(n_stages=50),
    ...     schedule=pe.GMS13(n_knots=5),
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
