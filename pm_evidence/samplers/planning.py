"""How a run finds its inverse temperatures and the kernel of each stage: pilots and schedules.

A pilot is an adaptive run that learns a schedule and the kernel of every stage. The runs that
follow use both unchanged. If a schedule or a step size were chosen from the same population that it
moves, the estimate of Z would be biased. A pilot avoids this bias.
"""

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_count
from pm_evidence.core.contracts import (
    AnnealingSetup,
    Bridgeable,
    Growing,
    Kernel,
    MoveInfo,
    Path,
    Plan,
    Streams,
    Tunable,
    UsesCurvature,
)
from pm_evidence.core.exceptions import NumericalError
from pm_evidence.core.interrupts import Progress, Report, silent
from pm_evidence.core.numerics import ess_share, log_mean_exp, normalised
from pm_evidence.core.random import Phase, block_seeds, streams
from pm_evidence.core.records import PathVariance, UsedSchedule
from pm_evidence.core.resampling import resample
from pm_evidence.core.rows import one_blas_thread
from pm_evidence.samplers.ais import AIS, ISLANDS_SHARE, SMALL_ISLAND
from pm_evidence.samplers.sampler import MOST_STAGES, Sampler, grow_chains, kernels_along
from pm_evidence.schedules import (
    SMOOTHING,
    check_largest_step,
    check_smoothing,
    decelerated,
    divergences_from_variance,
    gms13,
    linear,
    next_beta,
    no_support,
    predicted_variance,
    sm08,
    varopt,
)

Floats = NDArray[np.float64]


# Pieces of a pilot's stage. The first stage is divided by halves instead, because the variance
# under a vague prior falls by many decades as soon as the likelihood counts at all.
_PIECES, _HALVES = 8, 40
_LARGEST = 1e300  # of a variance


@dataclass
class PilotVariance:
    """Collects the variance of the energy along a path from the populations of a pilot.

    On a path whose log density is linear in beta, such as ``prior * likelihood**beta``, the
    populations at both ends of a stage are also reweighted to the inverse temperatures in between,
    which costs no evaluation. On other paths the variances at both ends are interpolated.
    """

    _ends: list[Floats] = field(default_factory=lambda: [np.zeros(1)])
    _variances: list[Floats] = field(default_factory=list)

    def add(
        self, start: float, stop: float, before: Floats, after: Floats, log_weight: Floats
    ) -> None:
        """Add a stage."""
        if start == 0.0:
            ends = stop * np.append(0.0, 0.5 ** np.arange(_HALVES, -1, -1.0))
        else:
            ends = np.linspace(start, stop, _PIECES + 1)
        fine = np.isfinite(before) & np.isfinite(log_weight)
        implied = (start - stop) * before[fine]  # where the log density is linear in beta
        if np.allclose(log_weight[fine], implied, rtol=1e-6, atol=1e-9):
            found = [_between(before, after, at - start, at - stop) for at in ends]
        else:
            sides = [
                _weighted_variance(energy, np.zeros(energy.size)) for energy in (before, after)
            ]
            found = list(np.interp(ends, [start, stop], sides))
        root = np.sqrt(np.array(found))
        # the geometric mean of both ends, because variances fall like a power of beta
        self._variances.append(root[1:] * root[:-1])
        self._ends.append(ends[1:])

    def result(self) -> PathVariance:
        """Return the variances of all stages so far, which must have reached 1."""
        ends, values = np.concatenate(self._ends), np.concatenate(self._variances)
        ends, kept = np.unique(ends, return_index=True)
        # under a vague prior the square of an energy may overflow
        values = np.nan_to_num(values, nan=0.0, posinf=_LARGEST)[kept[1:] - 1]
        return PathVariance(ends, values)


def _weighted_variance(energy: Floats, log_weight: Floats) -> float:
    """Return the variance of finite energies with weights; NaN if no weight is finite."""
    fine = np.isfinite(energy) & (log_weight > -np.inf)
    if not fine.any():
        return float("nan")
    weight, energy = normalised(log_weight[fine]), energy[fine]
    some = weight > 0.0  # the square of an energy without weight may overflow
    weight, energy = weight[some], energy[some]
    with np.errstate(over="ignore"):
        return float(weight @ (energy - weight @ energy) ** 2)


def _between(before: Floats, after: Floats, forward: float, back: float) -> float:
    """Return the variance at a point between two populations, from both of them reweighted.

    ``forward`` and ``back`` are the distances from them. Each counts as its effective size.
    """
    found: list[tuple[float, float]] = []
    for energy, step in ((before, forward), (after, back)):
        fine = energy[np.isfinite(energy)]
        if fine.size:
            log_weight = -step * fine
            size: Any = fine.size * ess_share(log_weight)
            found.append((float(size), _weighted_variance(fine, log_weight)))
    total = sum(size for size, _ in found)
    return sum(size * variance for size, variance in found) / total if total > 0.0 else 0.0


# Further rounds after the last stage, so that the density is fitted to more draws.
_FIT_ROUNDS = 4
# Without a limit, a run with data in the wrong units would seem never to end.
_MAX_STAGES = 500
# Rounding errors of log weights, in nats, with which no evidence is known.
_LARGEST_ROUNDING = 0.5


@dataclass(frozen=True)
class Pilot:
    """Adaptive tempered SMC with waste-free moves."""

    n: int  # number of particles
    chain_length: int  # states per chain and stage
    ess: float = 0.5  # effective sample size at every stage, as a share (0 to 1)
    schedule: Floats | None = None  # inverse temperatures to follow; chosen adaptively if left out
    # Rounds of moves that tune the kernel at the first stage, where it is still untuned, and at
    # each later one
    rounds: tuple[int, int] = (4, 2)

    def run(self, path: Path, kernel: Kernel, seed: int, report: Report = silent) -> Plan:
        """Learn a plan for ``path``, starting from an untuned kernel."""
        with one_blas_thread():
            return self._run(path, kernel, seed, report)

    def _run(self, path: Path, kernel: Kernel, seed: int, report: Report) -> Plan:
        draw_seed, chain_seed = block_seeds(seed, Phase.PILOT, 0)
        rng = np.random.default_rng(chain_seed.spawn(1)[0])
        length = max(self.chain_length, 2)
        n_chains = max(self.n // length, 2)
        chains = streams(chain_seed, n_chains)
        state = path.draw(self.n, draw_seed)
        betas, log_z = [0.0], 0.0
        kernels: list[Kernel] = []
        n_evaluations, variance, energy = self.n, PilotVariance(), path.energy(state, 0.0)
        while betas[-1] < 1.0:
            if len(kernels) == _MAX_STAGES and self.schedule is None:
                error = NumericalError(
                    f"an adaptive schedule must end within {_MAX_STAGES} stages, got to "
                    f"beta={betas[-1]:.2g}: the prior is very far from the data. Check the units "
                    "of the data and the scale of the prior, or pass a schedule."
                )
                error.n_evaluations = n_evaluations
                raise error
            if self.schedule is None:
                beta = next_beta(path, state, betas[-1], self.ess)
            else:
                beta = float(self.schedule[len(kernels) + 1])
            _check_digits(energy, beta - betas[-1])
            log_weight = path.log_ratio(state, betas[-1], beta)
            log_z += log_mean_exp(log_weight)
            if log_z == -np.inf:
                part = path.part(betas[-1], beta) if isinstance(path, Growing) else ""
                raise no_support(self.n, part)
            weight = normalised(log_weight)
            population = state.take(resample(weight, self.n, rng, "systematic"))
            first = state.take(resample(weight, n_chains, rng, "systematic"))
            kernel, spent = _learnt(path, kernel, population, beta)
            rounds = self.rounds[bool(kernels)]
            kernel, state, info = _tune(path, kernel, first, beta, length, chains, rounds)
            before, energy = energy, path.energy(state, beta)
            variance.add(betas[-1], beta, before, energy, log_weight)
            betas.append(beta)
            kernels.append(_settled(kernel))
            n_evaluations += spent + info.n_evaluations
            ess = ess_share(log_weight)
            report(Progress(-1, len(kernels), beta, ess, info.acceptance, log_z))
        plan = Plan(
            np.array(betas),
            tuple(kernels),
            n_evaluations=n_evaluations,
            # where data are added, the energy is that of a single data point, and tells nothing
            path_variance=None if isinstance(path, Growing) else variance.result(),
        )
        if not isinstance(path, Bridgeable):
            return replace(plan, population=state)
        population, spent = self._more(path, _settled(kernel), state, chains)
        fit = path.fit(population)
        return replace(plan, fit=fit, population=population, n_evaluations=n_evaluations + spent)

    def _more(self, path: Path, kernel: Kernel, state: Any, chains: Streams) -> tuple[Any, int]:
        """Return the last population with further draws at ``beta = 1``, and their evaluations."""
        states, spent = [state], 0
        last = state.take(np.arange(len(state) - len(chains), len(state)))
        for _ in range(_FIT_ROUNDS):
            state, info = grow_chains(path, kernel, last, 1.0, self.chain_length, chains)
            spent += info.n_evaluations
            states.append(state)
            last = state.take(np.arange(len(state) - len(chains), len(state)))
        return states[0].join(states[1:]), spent


def _check_digits(energy: Floats, step: float) -> None:
    """Raise NumericalError if a step would weight particles by rounding errors of the energy."""
    least = float(np.abs(energy).min(initial=np.inf))
    if np.isfinite(least) and step * np.finfo(float).eps * least > _LARGEST_ROUNDING:
        raise NumericalError(
            "log densities must differ by more than their rounding errors, but the log likelihood "
            f"is about {-least:.2g} at best: the prior is very far from the data. Check the units "
            "of the data and the scale of the prior."
        )


def _learnt(path: Path, kernel: Kernel, population: Any, beta: float) -> tuple[Kernel, int]:
    """Return the kernel with its shape learnt at ``beta``, and the gradients that this took."""
    if isinstance(kernel, Tunable):
        kernel = kernel.learn(path, population)
    if isinstance(kernel, UsesCurvature):
        return kernel.with_curvature(path, population, beta)
    return kernel, 0


def _settled(kernel: Kernel) -> Kernel:
    """Return the kernel as it is used after the pilot."""
    return kernel.without_exploration() if isinstance(kernel, Tunable) else kernel


def _tune(
    path: Path, kernel: Kernel, first: Any, beta: float, length: int, chains: Streams, rounds: int
) -> tuple[Kernel, Any, MoveInfo]:
    """Adjust a kernel after every move, and return it with the last round's states and report."""
    tuned = [kernel]

    def watch(kernel: Kernel, info: MoveInfo) -> Kernel:
        if isinstance(kernel, Tunable):
            tuned[0] = kernel.adjust(info)
        return tuned[0]

    infos = []
    for _ in range(rounds):
        state, info = grow_chains(path, tuned[0], first, beta, length, chains, watch)
        infos.append(info)
    n_evaluations = sum(info.n_evaluations for info in infos)
    return tuned[0], state, replace(infos[-1], n_evaluations=n_evaluations)


_LEAST_PILOT = 200  # particles
_NAMED_STAGES = 200  # of a named schedule, if neither the sampler nor the target gives a number
TRIAL_STAGES, TRIAL_PATHS = 400, 256
_LEAST_STAGES = 10  # of islands that reverse paths start from
# Lattices: the power 3/4 of the variance gave a variance of the work that was 0 to 10 % smaller
# than 1/2, and half of that with equal steps.
_POWER = 0.75


@dataclass(frozen=True)
class Planning:
    """What inverse temperatures are looked for, and how they are found."""

    setup: AnnealingSetup  # how the target is annealed
    sampler: Sampler  # what runs along the plan
    size: int  # particles of an island, or paths of the first round
    seed: int  # seed of all streams
    report: Report = silent  # called with the progress of a pilot

    @property
    def n_stages(self) -> int:
        """Number of stages of a named schedule: of the sampler, the target, or 200."""
        usual = getattr(self.sampler, "named_stages", None) or self.setup.n_stages or _NAMED_STAGES
        return self.sampler.n_stages or usual

    @property
    def has_pilot(self) -> bool:
        """Whether a pilot tunes the kernels of a schedule that is given or adaptive."""
        return self.setup.n_stages is None or self.sampler.uses_pilot

    def piloted(self, beta: Floats | None = None) -> Plan:
        """Return the plan of a pilot, with the variance of the energy along its populations."""
        sampler = self.sampler
        n = max(self.size, min(self.setup.n_pilot, sampler.first_round(self.size)), _LEAST_PILOT)
        pilot = Pilot(n, sampler.chain_length, sampler.ess, beta)
        found = pilot.run(self.setup.path, self.setup.kernel, self.seed, self.report)
        return replace(found, population=None)

    def untuned(self, beta: Floats, n_evaluations: int = 0) -> Plan:
        """Return the plan of a kernel without settings to tune."""
        return Plan(beta, (self.setup.kernel,) * (len(beta) - 1), n_evaluations=n_evaluations)

    def trial(self, n_stages: int, n_paths: int) -> Plan:
        """Return the plan of a trial run along equal steps, with the variance of its energies.

        Kiwaki (2015), Algorithm 2: a cheap run of annealed importance sampling with a linear
        schedule. He weights its states by their weights so far. Here they count equally: with 400
        stages and 256 paths, the resulting schedules were equally good on a Gaussian and on an
        Ising lattice, and if a trial is too short, a few paths have all the weight and their
        variance is much too small.
        """
        plan = self.untuned(linear(n_stages))
        block = AIS().run_block(self.setup.path, plan, 0, n_paths, self.seed, phase=Phase.TRIAL)
        variance = np.where(np.isfinite(block.trace.energy_var), block.trace.energy_var, 0.0)
        found = PathVariance(plan.beta, variance)
        return replace(plan, n_evaluations=block.n_evaluations, path_variance=found)


class Schedule(ABC):
    """How a run finds its inverse temperatures, and the kernel of each stage."""

    @abstractmethod
    def plan(self, run: Planning) -> tuple[Plan, Plan]:
        """Return the plan of a pilot, and the one that blocks follow."""


@dataclass(frozen=True)
class AdaptiveSchedule(Schedule):
    """A schedule found by a pilot, or by a trial run if there is no kernel to tune."""

    def plan(self, run: Planning) -> tuple[Plan, Plan]:
        """Return the plan of a pilot, and the one that blocks follow."""
        setup, sampler = run.setup, run.sampler
        if run.has_pilot:
            coarse, options = run.piloted(), {"ess": sampler.ess}
            plan = _said(sampler.follow(coarse), "adaptive", options, coarse.path_variance)
            return _said(coarse, "adaptive", options, coarse.path_variance), plan
        assert setup.n_stages is not None
        trial = run.trial(TRIAL_STAGES, TRIAL_PATHS)
        found = trial.path_variance
        assert found is not None
        n_stages = sampler.n_stages or setup.n_stages
        beta = varopt(found.beta, found.variance, n_stages, power=_POWER, floor=setup.even_share)
        options = {"pilot_stages": TRIAL_STAGES, "pilot_paths": TRIAL_PATHS}
        plan = _said(run.untuned(beta, trial.n_evaluations), "adaptive", options, found)
        return (plan if setup.starts else _for_islands(run, plan, found)), plan


ADAPTIVE = AdaptiveSchedule()


@dataclass(frozen=True)
class FixedSchedule(Schedule):
    """Inverse temperatures given by the user; a pilot tunes the kernels along them."""

    beta: Floats  # shape (n_stages + 1,): strictly increasing from 0 to 1
    name: str = "given"  # name of the schedule in results

    def plan(self, run: Planning) -> tuple[Plan, Plan]:
        """Return the plan of a pilot, and the one that blocks follow."""
        setup = run.setup  # with a kernel that has nothing to tune, a pilot would learn nothing
        learns = isinstance(setup.kernel, Tunable) or isinstance(setup.path, Bridgeable)
        has_pilot = run.has_pilot and (learns or run.sampler.uses_pilot)
        plan = run.piloted(self.beta) if has_pilot else run.untuned(self.beta)
        used = UsedSchedule(self.beta, self.name)
        plan = replace(plan, schedule=used, path_variance=None)
        return plan, plan


@dataclass(frozen=True, kw_only=True)
class Linear(Schedule):
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

    def plan(self, run: Planning) -> tuple[Plan, Plan]:
        """Return the plan of a pilot, and the one that blocks follow."""
        return FixedSchedule(linear(run.n_stages), "linear").plan(run)


@dataclass(frozen=True, kw_only=True)
class SM08(Schedule):
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

    def plan(self, run: Planning) -> tuple[Plan, Plan]:
        """Return the plan of a pilot, and the one that blocks follow."""
        return FixedSchedule(sm08(run.n_stages), "sm08").plan(run)


class _Steps(Schedule):
    """The steps of a path that has densities at their ends only."""

    def plan(self, run: Planning) -> tuple[Plan, Plan]:
        """Return one plan twice."""
        assert run.setup.n_stages is not None
        plan = run.untuned(linear(run.setup.n_stages))
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


def _for_islands(run: Planning, plan: Plan, found: PathVariance) -> Plan:
    """Return the plan of islands that reverse paths start from.

    They take as many stages as small islands can afford, because mixing is what limits native
    kernels. There are at least as many as leave the sampler's effective sample size at every stage
    if moves mix: the variance of the log weights of a stage is then ``1 / ess - 1``.
    """
    length = float(np.sqrt(found.variance) @ np.diff(found.beta))
    needed = max(np.ceil(length / np.sqrt(1.0 / run.sampler.ess - 1.0)), _LEAST_STAGES)
    most = 2.0 * run.size * ISLANDS_SHARE * plan.n_stages
    affordable = most / (run.sampler.islands * SMALL_ISLAND)
    n_stages = int(min(max(needed, affordable), plan.n_stages))
    return run.untuned(varopt(found.beta, found.variance, n_stages), plan.n_evaluations)


def _said(plan: Plan, name: str, options: dict[str, Any], variance: PathVariance | None) -> Plan:
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


class _Learnt(Schedule):
    """The base of schedules that are learnt from the variance of the energy along the path."""

    name: ClassVar[str]  # in results
    # Size of the trial run
    pilot_stages: int
    pilot_paths: int

    @abstractmethod
    def steps(self, found: PathVariance, n_stages: int) -> Floats:
        """Return the inverse temperatures of so many stages."""

    def check(self, n_stages: int) -> None:
        """Raise ValueError if a number of stages does not fit the options."""

    def plan(self, run: Planning) -> tuple[Plan, Plan]:
        """Return the pilot's plan, and that along the schedule with the pilot's kernels.

        Each stage has the kernel of the pilot's stage in which it ends, as stages have that an
        adaptive schedule is cut into. A second pilot along the new schedule would cost more than
        most runs.
        """
        self.check(run.n_stages)
        has_pilot = isinstance(run.setup.kernel, Tunable)
        coarse = run.piloted() if has_pilot else run.trial(self.pilot_stages, self.pilot_paths)
        found = coarse.path_variance
        assert found is not None
        beta = self.steps(found, run.n_stages)
        plan = run.untuned(beta, coarse.n_evaluations)
        if has_pilot:
            plan = replace(coarse, beta=beta, kernels=kernels_along(coarse, beta))
        options = asdict(self)  # type: ignore[call-overload]
        plain = {k: v.item() if isinstance(v, np.generic) else v for k, v in options.items()}
        plan = _said(plan, self.name, plain, found)
        return (replace(coarse, path_variance=None) if has_pilot else plan), plan

    def _check_trial(self) -> None:
        check_count("pilot_stages", self.pilot_stages, 2, MOST_STAGES)
        check_count("pilot_paths", self.pilot_paths, 2, _MOST_PATHS)


@dataclass(frozen=True, kw_only=True)
class VarOpt(_Learnt):
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
    name = "varopt"

    def __post_init__(self) -> None:
        if self.largest_step is not None:
            check_largest_step(self.largest_step, None)
        self._check_trial()
        check_smoothing(self.smoothing)

    def check(self, n_stages: int) -> None:
        """Raise ValueError if a number of stages does not fit the options."""
        if self.largest_step is not None:
            check_largest_step(self.largest_step, n_stages)

    def steps(self, found: PathVariance, n_stages: int) -> Floats:
        """Return the inverse temperatures of so many stages."""
        beta = varopt(found.beta, found.variance, n_stages, smoothing=self.smoothing, floor=_FLOOR)
        return beta if self.largest_step is None else decelerated(beta, self.largest_step)


@dataclass(frozen=True, kw_only=True)
class GMS13(_Learnt):
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
    name = "gms13"

    def __post_init__(self) -> None:
        check_count("n_knots", self.n_knots, 2, MOST_STAGES)
        self._check_trial()

    def steps(self, found: PathVariance, n_stages: int) -> Floats:
        """Return the inverse temperatures of so many stages."""
        knots = np.linspace(0.0, 1.0, self.n_knots)
        divergence = divergences_from_variance(knots, found.beta, found.variance)
        return gms13(knots, divergence, n_stages)
