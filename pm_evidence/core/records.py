"""The record of a run, and the estimates that are made from it.

The record holds what every estimator needs: work, energies, temperatures, draws. A status says
whether an estimate can be relied on; the first that applies is the one that is reported.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_choice, check_text, described, real_number
from pm_evidence.core.text import concise, decimals, facts

Floats = NDArray[np.float64]


PAGE = "docs/statuses.md"


class Status(StrEnum):
    """Whether an estimate can be relied on and, if it cannot, why.

    A member equals its text, and is stored and shown as that text.
    """

    OK = "ok"
    # The estimate should not be relied on.
    DOMINATED = "dominated"
    HEAVY_TAIL = "heavy_tail"
    HIGH_VARIANCE = "high_variance"
    NO_OVERLAP = "no_overlap"
    NO_SUPPORT = "no_support"
    NO_ERROR = "no_error"
    MISSED_MASS = "missed_mass"
    FEW_VALUES = "few_values"
    INCONSISTENT = "inconsistent"
    ISLANDS_DIFFER = "islands_differ"
    NOT_MIXED = "not_mixed"
    DOUBTFUL_DRAWS = "doubtful_draws"
    UNBOUNDED = "unbounded"
    FAILED = "failed"
    MISCALIBRATED = "miscalibrated"
    NOT_NORMAL = "not_normal"
    COARSE_SCHEDULE = "coarse_schedule"
    NOISY_LIKELIHOOD = "noisy_likelihood"
    # The estimate is sound, but is not what was asked for.
    MAX_TIME = "max_time"
    MAX_DRAWS = "max_draws"
    INTERRUPTED = "interrupted"
    WITHIN_ISLANDS = "within_islands"
    BOUND = "bound"

    # without this a status in a message would read <Status.OK: 'ok'>
    __repr__ = str.__repr__


# An estimate with one of these is sound, although it may be less precise than was asked for.
SOUND = (Status.OK, Status.MAX_TIME, Status.MAX_DRAWS)


def with_pointer(status: str, message: str) -> str:
    """Return the message of an estimate, followed by where its status is explained."""
    if status == Status.OK:
        return message
    return f"{message} See {PAGE}#{status}.".lstrip()


@dataclass(frozen=True, slots=True)
class PathVariance:
    """The variance of the energy along a path, as a step function of the inverse temperature."""

    beta: Floats  # shape (m + 1,): ends of pieces of [0, 1], strictly rising from 0 to 1
    variance: Floats  # shape (m,): variance of the energy in each piece, in square nats


@dataclass(frozen=True, slots=True)
class UsedSchedule:
    """The schedule that a run used."""

    beta: Floats  # shape (n_stages + 1,): inverse temperatures, strictly rising from 0 to 1
    # How it was found: ``"adaptive"``, ``"linear"``, ``"sm08"``, ``"gms13"``, ``"varopt"``, or
    # ``"given"`` by the user
    name: str = "given"
    options: Mapping[str, Any] = field(default_factory=dict)  # options with which it was found
    # Variance of the log weights in square nats if every move drew independently, from the
    # variances that the schedule was learnt from; NaN if nothing was learnt
    predicted_variance: float = float("nan")


_NUMBERS = tuple("eEfFgG%n")  # what the format of a float ends with


@dataclass(frozen=True, slots=True)
class LogEvidence:
    """An estimate of a log evidence with its error.

    Parameters
    ----------
    value : float
        Log evidence in nats, relative to the normalised reference distribution.
    mcse : float
        Monte Carlo standard error of ``value`` in nats; NaN if it cannot be estimated.
    estimator : str
        Name of the estimator.
    status : str
        ``"ok"``, or the name of the problem.
    lower, upper : float
        95 % interval in nats.
    message : str
        What the status means here, and what to do about it. If the status is ``"ok"``, it is empty,
        unless the estimate is recommended instead of one that comes earlier in the usual order,
        mean energies at temperatures without draws were interpolated, or initial iterations of
        simulated tempering did not converge: it then says so.
    dof : float
        Degrees of freedom of the Student's t interval from ``lower`` to ``upper``, which tell how
        well ``mcse`` itself is known. An error from the spread of 16 islands has 15. They are
        infinite if the interval is that of a normal distribution.

    Raises
    ------
    ValueError
        If ``value``, ``mcse``, ``lower`` or ``upper`` is not a number, ``mcse`` is negative,
        ``dof`` is not positive or ``lower`` exceeds ``upper``.
    TypeError
        If ``estimator``, ``status`` or ``message`` is not a string.

    Notes
    -----
    ``str`` gives value and error as ``-31.036(8)``, where the digits in parentheses are the error
    in units of the last digit, and a status other than ``"ok"`` in brackets. In an f-string, a
    format for numbers such as ``:.2f`` is applied to the value.
    """

    value: float
    mcse: float
    estimator: str
    status: str = "ok"
    lower: float = float("nan")
    upper: float = float("nan")
    message: str = ""
    dof: float = float("inf")

    def __post_init__(self) -> None:
        for name in ("value", "mcse", "lower", "upper"):
            if real_number(getattr(self, name)) is None:
                raise ValueError(
                    f"{name} must be a number of nats, got {described(getattr(self, name))}; pass "
                    'float("nan") if it is not known.'
                )
        for name in ("estimator", "status", "message"):
            check_text(name, getattr(self, name))
        check_choice("status", self.status, Status)
        if self.mcse < 0.0:
            raise ValueError(
                f"mcse must not be negative, got {self.mcse}; pass the standard error, or "
                'float("nan") if it is not known.'
            )
        if real_number(self.dof) is None or not self.dof > 0.0:
            raise ValueError(
                f"dof must be a positive number, got {described(self.dof)}; leave it out if the "
                "interval is that of a normal distribution."
            )
        if self.lower > self.upper:
            raise ValueError(
                f"lower must not exceed upper, got {self.lower} and {self.upper}; exchange them."
            )

    def __repr__(self) -> str:
        digits = 3 if not np.isfinite(self.mcse) or self.mcse >= 0.0095 else 4
        is_small = 0.0 < self.mcse < 0.00095
        mcse = f"{self.mcse:.1g}" if is_small else f"{self.mcse:.{digits}f}"
        return (
            f"LogEvidence(value={self.value:.{digits}f}, mcse={mcse}, "
            f'estimator="{self.estimator}", status="{self.status}")'
        )

    def __str__(self) -> str:
        text = concise(self.value, self.mcse)
        return text if self.status == "ok" else f"{text} [{self.status}]"

    def __format__(self, spec: str) -> str:
        return format(self.value if spec[-1:] in _NUMBERS else str(self), spec)

    def _repr_html_(self) -> str:
        rows = [
            ("log evidence", f"{concise(self.value, self.mcse)} nats"),
            ("95 % interval", _interval(self.lower, self.upper, self.mcse)),
            ("estimator", self.estimator),
            ("status", self.status),
            ("message", with_pointer(self.status, self.message)),
        ]
        return facts("LogEvidence", rows)


@dataclass(frozen=True, slots=True)
class StageTrace:
    """Per-stage diagnostics of one block; every array has shape ``(n_stages,)``.

    Stage ``k`` carries the population from ``beta[k]`` to ``beta[k + 1]``.

    Both shares are ``(sum w)**2 / (n sum w**2)``, which is Kiwaki (2015), Eq. 5: ``1 / (1 + s**2)``
    with ``s**2`` the variance of the weights divided by their mean.
    """

    # Mean and variance over the population at ``beta[k]`` of the energy, that is minus the
    # derivative of the log density along the path (minus the log likelihood on a geometric path)
    energy_mean: Floats
    energy_var: Floats
    # Effective sample size of the incremental weights, as a share of the population (0 to 1)
    ess: Floats
    acceptance: Floats  # mean acceptance probability of the moves at ``beta[k + 1]``
    path_ess: Floats = None  # type: ignore[assignment]
    particles: Floats = None  # type: ignore[assignment]
    # Log evidence so far at the end of the stage; NaN within stages that were recorded together
    log_z: Floats = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        for name in ("path_ess", "particles", "log_z"):
            if getattr(self, name) is None:
                object.__setattr__(self, name, np.full(np.shape(self.ess), np.nan))


@dataclass(frozen=True, slots=True)
class TemperedChains:
    """What the chains of a block recorded that move between temperatures."""

    # shape (n_iterations, n_chains): minus the derivative of the log density by beta, in nats, of
    # every state after its move
    energy: Floats
    # shape (n_iterations, n_chains): index of the temperature that the move was made at
    rung: NDArray[np.int16]
    # shape (n_chains,): ladder that each chain belongs to. Chains of different ladders are
    # independent.
    ladder: NDArray[np.int64]
    # shape (n_chains,): how often each chain came from the reference to the target
    restarts: NDArray[np.int64]
    # shape (n_chains,): how often each chain came from the reference to the target and back
    round_trips: NDArray[np.int64]
    # Number of iterations of which one is recorded. Restarts and round trips are counted in all.
    every: int = 1


@dataclass(frozen=True, slots=True)
class BlockRecord:
    """The record of one independent block.

    Parameters
    ----------
    block : int
        Index of the block; together with the seed it determines all random numbers.
    work : ndarray, shape (n_paths,)
        Minus log weight of each independent path in nats. An island of interacting particles is one
        path of an extended space, so its work is minus the log of its evidence estimate.
    trace : StageTrace
        Diagnostics per stage.
    draws : ndarray, shape (n_draws, ...), or None
        States at ``beta = 1`` in the target's own coordinates.
    log_density : ndarray, shape (n_draws,), or None
        Log density of the posterior at these draws in nats, with the prior normalised; None if it
        is not known.
    log_weight : ndarray, shape (n_draws,), or None
        Log weights of the draws in nats, unnormalised; None when the draws have equal weights.
    relative_variance : float
        Single-run estimate of the variance of ``exp(-work)`` over its squared mean, for a block
        that is one path; NaN if there is none.
    end : tuple of two floats
        Mean and variance over a population at ``beta = 1`` of the energy; NaN for a block of paths.
    bridge : tuple of two ndarray, or None
        Work from a fitted density to the target in nats: at draws from the fitted density, and at
        draws from the target.
    fit_draws : ndarray, shape (n_fit_draws, ...), or None
        The draws from the fitted density that the first array of ``bridge`` belongs to.
    fit_log_density : ndarray, shape (n_fit_draws,), or None
        Log density of the posterior at these draws in nats, with the prior normalised.
    visited : ndarray, shape (n_visited, ...), or None
        A few states that the block passed at lower inverse temperatures.
    origin : ndarray of int64, shape (n_paths,), or None
        Group of posterior draws that each reverse path started from. Paths of different groups are
        independent. If the block was tempered, the ladder of each draw, and if it is a population
        that was moved in chains, the chain of each draw, shape ``(n_draws,)``.
    tempered : TemperedChains or None
        The chains of a block that was tempered. Their first states come from
        populations, one for each ladder, of which ``work`` is minus the log evidence.
    n_evaluations : int
        Number of density (or gradient) evaluations.
    n_nan : int
        Number of moves that were rejected because the density was NaN.
    """

    block: int
    work: Floats
    trace: StageTrace
    draws: NDArray[Any] | None = None
    log_density: Floats | None = None
    log_weight: Floats | None = None
    relative_variance: float = float("nan")
    end: tuple[float, float] = (float("nan"), float("nan"))
    bridge: tuple[Floats, Floats] | None = None
    fit_draws: Floats | None = None
    fit_log_density: Floats | None = None
    visited: NDArray[Any] | None = None
    origin: NDArray[np.int64] | None = None
    tempered: TemperedChains | None = None
    n_evaluations: int = 0
    n_nan: int = 0


class Role(StrEnum):
    """What the blocks of a run are for. Stored results have the same names."""

    FORWARD = "forward"
    """They anneal from the reference to the target."""
    REVERSE = "reverse"
    """They anneal from the target to the reference."""
    ISLAND = "island"
    """They are populations that were run only for the draws that reverse blocks start from."""
    GIVEN = "given"
    """They are groups of posterior draws that the user gave."""


@dataclass(frozen=True, slots=True)
class CrossCheck:
    """The log evidence of an independent small run, below which an estimate should not lie."""

    log_z: float  # in nats, with its standard error
    mcse: float
    # ``"coarse"``, ``"fitted"``, ``"base rates"``, or that of a reference: ``"reference"``
    kind: str = "reference"

    def __post_init__(self) -> None:
        if not np.isfinite([self.log_z, self.mcse]).all():
            raise ValueError(f"a check must have a finite evidence, got {self.log_z}.")


@dataclass(frozen=True, slots=True)
class Facts:
    """What a run knows beside its blocks; None or False where it does not apply.

    Estimates depend on some of these. They are the attributes of a stored result.
    """

    schedule: UsedSchedule | None = None
    # Cost: density (or gradient) evaluations, those that were NaN, seconds
    n_evaluations: int = 0
    n_nan: int = 0
    tuning_time: float | None = None
    sampling_time: float | None = None
    # The target, and what annealing starts from
    reference: str | None = None
    reverse_start: str | None = None  # kind of ``ReverseStarts``, or how islands anneal
    centring: Mapping[str, float] | None = None  # amount of each partly centred variable
    log_concave: bool = False
    log_concave_given: str | None = None  # hyperparameters given which it is
    log_prior_mass: float | None = None
    prior_constant: LogEvidence | None = None  # log normalising constant of prior and potentials
    estimated_likelihood: bool = False
    stepwise: bool = False  # whether the path has no densities between its stages
    backend: str | None = None
    device: str | None = None
    potentials: str | None = None
    # What ended the run: ``"max_time"``, ``"max_draws"``, ``"given_draws"`` or ``"interrupted"``,
    # with the error that was asked for; or only the default error that was not reached
    stopped_by: str | None = None
    target_mcse: float | None = None
    short_of: float | None = None
    # The survey of the posterior, and the islands
    n_peaks: int | None = None
    unbounded: bool = False
    more_peaks: bool = False
    relabelled: str | None = None  # names of variables whose components are exchangeable
    moment_distance: float | None = None
    chain_correlation: float | None = None
    small_islands: bool = False  # whether islands have a few particles only
    # Distinct values that the likelihood took, if they are few, over so many prior draws
    n_values: int | None = None
    n_prior_draws: int | None = None
    marginalised: str | None = None  # names of local variables that were integrated
    integration_error: float | None = None  # of these integrals, in nats
    # Routes that were taken, the one that the result comes from, and how others check it
    route: str | None = None
    routes: Mapping[str, Mapping[str, Any]] | None = None
    cross_check: CrossCheck | None = None
    annealed_log_z: float | None = None
    # An estimated likelihood
    n_particles: Sequence[int] | None = None
    n_seeds: Sequence[int] | None = None
    log_likelihood_variance: float | None = None
    noise_acceptance: float | None = None
    tau: float | None = None
    expected_efficiency: float | None = None
    # Tempered chains
    ladders: int | None = None
    tempering_log_z: Sequence[float] | None = None
    tempering_prior: Sequence[float] | None = None
    initial_rounds: int | None = None
    initial_deviation: float | None = None
    # Posterior draws that the user gave
    doubt: str | None = None
    n_divergent: int | None = None
    n_chains: int | None = None
    # Indices of the data points in the order in which they are added, where a path adds them
    data_order: tuple[int, ...] | None = None
    # Annealing between two models
    evidences: tuple[LogEvidence, LogEvidence] | None = None
    shared: Sequence[str] | None = None

    def attributes(self) -> dict[str, Any]:
        """Return all that applies by name, in plain types."""
        found: dict[str, Any] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            if value is not None and value is not False:
                found[each.name] = asdict(value) if isinstance(value, LogEvidence) else value
        found.pop("cross_check", None)
        found.pop("data_order", None)  # an attribute of a file cannot be as long
        if self.schedule is not None:
            found["schedule"] = self.schedule.name
            found["schedule_options"] = dict(self.schedule.options)
            found["schedule_predicted_variance"] = float(self.schedule.predicted_variance)
        if self.cross_check is not None:
            found["trial"] = self.cross_check.kind
            found |= {"trial_log_z": self.cross_check.log_z, "trial_mcse": self.cross_check.mcse}
        return found


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A whole run: the schedule, and the blocks of each role."""

    method: str  # name of the sampler
    beta: Floats  # shape (n_stages + 1,): inverse temperatures, from 0 to 1
    blocks: Mapping[Role, Sequence[BlockRecord]]  # blocks of each role that the run has
    # shape (n_stages,): settings of the kernel that moves the population at ``beta[1:]``
    settings: Mapping[str, Floats] = field(default_factory=dict)
    facts: Facts = Facts()

    @property
    def schedule(self) -> UsedSchedule:
        """The schedule: inverse temperatures, how they were found, and the predicted variance."""
        return self.facts.schedule or UsedSchedule(self.beta, "unknown")

    def stating(self, **facts: Any) -> "RunRecord":
        """Return the record with some facts changed."""
        return replace(self, facts=replace(self.facts, **facts))

    def of(self, role: Role) -> tuple[BlockRecord, ...]:
        """Return the blocks of a role; empty if the run has none."""
        return tuple(self.blocks.get(role, ()))

    def updated(self, role: Role, blocks: Sequence[BlockRecord]) -> "RunRecord":
        """Return the record with other blocks of a role."""
        return replace(self, blocks={**self.blocks, role: tuple(blocks)})

    def extended(self, role: Role, blocks: Sequence[BlockRecord]) -> "RunRecord":
        """Return the record with more blocks of a role."""
        return self.updated(role, (*self.of(role), *blocks))

    def work(self, role: Role) -> Floats:
        """Return the work of every path of a role in nats, shape ``(n_paths,)``."""
        blocks = self.of(role)
        return np.concatenate([block.work for block in blocks]) if blocks else np.empty(0)

    @property
    def tempered(self) -> tuple[TemperedChains, ...]:
        """The chains of all blocks that move between temperatures; empty if there are none."""
        chains = (block.tempered for block in self.of(Role.FORWARD))
        return tuple(found for found in chains if found is not None)

    @property
    def of_islands(self) -> bool:
        """Whether there are no reverse blocks, and every forward block is one population."""
        forward_only = not self.of(Role.REVERSE) and not self.tempered
        return forward_only and all(block.work.size == 1 for block in self.of(Role.FORWARD))

    @property
    def sources(self) -> tuple[BlockRecord, ...]:
        """Blocks that posterior draws come from: given draws, else islands, else paths."""
        return self.of(Role.GIVEN) or self.of(Role.ISLAND) or self.of(Role.FORWARD)

    @property
    def origin(self) -> NDArray[np.int64] | None:
        """Group that each reverse path started from, shape ``(n_paths,)``."""
        origins = [block.origin for block in self.of(Role.REVERSE) if block.origin is not None]
        return np.concatenate(origins) if origins else None


def _interval(lower: float, upper: float, error: float) -> str:
    """Return an interval with the digits that the error justifies; empty if it is not known."""
    if not np.isfinite([lower, upper]).all():
        return ""
    digits = max(decimals(error), 0)
    return f"{lower:.{digits}f} to {upper:.{digits}f} nats"
