"""Annealed importance sampling with an estimated likelihood, and how precise it must be."""

from dataclasses import dataclass
from math import ceil, erfc, exp, floor, log10, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import check_count, check_share, real_number
from pm_evidence.core.contracts import NOISY_VARIANCE, Kernel
from pm_evidence.core.interrupts import Report, silent
from pm_evidence.core.random import Phase, generator
from pm_evidence.kernels.pseudo_marginal import PseudoMarginal
from pm_evidence.paths.geometric import EstimatedPath
from pm_evidence.samplers.ais import AIS
from pm_evidence.samplers.planning import Pilot
from pm_evidence.samplers.sampler import MOST_MOVES
from pm_evidence.samplers.smc import SMC
from pm_evidence.targets.estimated.target import EstimatedTarget

Floats = NDArray[np.float64]


# Number of seeds of an estimate if a move renews only some of them.
_RENEWED_SEEDS = 50


@dataclass(frozen=True, kw_only=True)
class AISEL:
    """Annealed importance sampling with an estimated likelihood (Tran et al., Algorithm 1).

    States are parameters together with the seeds of their likelihood estimate, and moves
    are pseudo-marginal. With resampling, particles are annealed in independent islands (the
    batches of section 3.1), and a density that the pilot fits to the posterior is used for
    importance sampling (IS squared) and for a bridge. Without resampling, independent paths run
    in both directions: on the joint space of parameters and seeds reverse paths are as valid as
    for a known likelihood, so Bennett's acceptance ratio can be used.

    Parameters
    ----------
    resampling : str or None
        ``"systematic"``, ``"stratified"``, ``"residual"``, ``"ssp"`` or ``"multinomial"``; None
        for independent paths.
    islands : int
        Number of independent populations that share the draws, at least 2. Without resampling,
        reverse paths start from these populations.
    chain_length : int
        Number of states kept from the chain of each resampled particle; 1 is the paper's
        algorithm. See ``pe.methods.SMC``.
    resample_below : float
        Used with ``chain_length=1``; see ``pe.methods.SMC``.
    burn_in : int
        Number of moves whose states are discarded before each state that is kept.
    ess : float
        Effective sample size at every stage, as a share of the particles.
    n_stages : int, optional
        Least number of stages, into which those of the pilot are divided; the pilot chooses it by
        default.
    renewal : float
        Share of its seeds that a move renews, at most 1. With a smaller share, old and new
        estimates are correlated. This helps if the estimates are noisy and there are many data.

    Notes
    -----
    The estimators ``smc`` and ``jarzynski`` are products of mean weights; ``importance`` is the
    mean weight of draws from the fitted density, recommended if the fit is good;
    ``power_posterior`` is the trapezoidal rule of Eq. 9 to 11.
    """

    resampling: str | None = "systematic"
    islands: int = 8
    chain_length: int = 5
    resample_below: float = 1.0
    burn_in: int = 0
    ess: float = 0.5
    n_stages: int | None = None
    renewal: float = 1.0
    name = "aisel"
    default_draws = 1000

    def __post_init__(self) -> None:
        self._smc()  # which checks the options that both have
        check_count("burn_in", self.burn_in, 0, MOST_MOVES)
        if real_number(self.renewal) != 1.0:
            check_share("renewal", self.renewal, 0.1)

    @property
    def annealer(self) -> SMC | AIS:
        """The sampler that runs the blocks."""
        if self.resampling is None:
            return AIS(n_stages=self.n_stages, ess=self.ess, islands=self.islands)
        return self._smc()

    def _smc(self) -> SMC:
        return SMC(
            islands=self.islands,
            chain_length=self.chain_length,
            ess=self.ess,
            resampling="systematic" if self.resampling is None else self.resampling,
            resample_below=self.resample_below,
            n_stages=self.n_stages,
        )

    @property
    def n_seeds(self) -> int:
        """Number of seeds that determine an estimate of the likelihood."""
        return 1 if self.renewal == 1.0 else _RENEWED_SEEDS

    @property
    def likelihood_moves(self) -> PseudoMarginal:
        """The kernel that moves parameters and seeds."""
        return PseudoMarginal(n_steps=1 + self.burn_in, renewal=self.renewal)


_POINTS, _REPEATS = 10, 20
# Theorem 1 assumes perfect moves. The efficiency of pseudo-marginal moves falls by the factor
# exp(-sigma^2) (Pitt, Silva, Giordani and Kohn 2012), as does that of a bridge to the posterior:
# this corresponds to tau = 1.
_TAU_OF_MOVES = 1.0
_PILOT, _LEAST, _MOST = 128, 2, 1_000_000
_PILOT_CHAIN = 4
_ROUNDS, _CLOSE, _FASTEST = 5, 1.5, 4.0


@dataclass(frozen=True, slots=True)
class Precision:
    """How noisy estimates of the log likelihood are over the posterior, and what that costs."""

    n_particles: tuple[int, ...]  # particles of each estimator
    # Variance of the estimated log likelihood, the mean over posterior draws, in square nats
    variance: float
    variances: tuple[float, ...]  # the variance of each estimator
    # Largest mean acceptance probability that moves at ``beta = 1`` can have with this noise
    acceptance: float
    tau: float = float("nan")  # factor of the schedule; see ``tau_of``

    @property
    def efficiency(self) -> float:
        """Effective sample size as a share of that for a known likelihood (Theorem 1)."""
        return exp(-self.tau * self.variance)

    def facts(self) -> dict[str, Any]:
        """Return these numbers by name, for the record of a run."""
        return {
            "n_particles": list(self.n_particles),
            "log_likelihood_variance": self.variance,
            "noise_acceptance": self.acceptance,
            "tau": self.tau,
            "expected_efficiency": self.efficiency,
        }


def tau_of(beta: Floats) -> float:
    """Return the factor ``tau`` that multiplies the variance in Theorem 1 of Tran et al.

    With an estimated likelihood the effective sample size falls by the factor
    ``exp(-tau sigma^2)``, where ``tau = sum_t (a_t - a_{t-1}) (2 a_t - 1)``. For K equal steps
    ``tau`` is 1 / K.
    """
    return float(np.sum(np.diff(beta) * (2.0 * beta[1:] - 1.0)))


def optimal_variance(tau: float, fixed: float, per_variance: float) -> float:
    """Return the variance of the log likelihood estimate at which annealing costs least.

    Minimum of ``exp(tau s) (per_variance / s + fixed)`` over ``s`` (section 3.4), which assumes
    perfect moves.
    """
    if per_variance <= 0.0:
        return 0.0
    if fixed <= 0.0:
        return 1.0 / tau
    half = 0.5 * tau * per_variance
    root = sqrt(half * half + tau * fixed * per_variance)
    return (root - half) / (tau * fixed)


def measure(target: EstimatedTarget, x: Floats, seed: int, tau: float = float("nan")) -> Precision:
    """Estimate the likelihood repeatedly at some of the points ``x``, shape ``(n, n_dim)``."""
    rng = generator(seed, Phase.PRECISION)
    points = x[rng.choice(len(x), min(_POINTS, len(x)), replace=False)]
    repeated = np.repeat(points, _REPEATS, axis=0)
    shape = len(points), _REPEATS
    parts = []
    for estimator in target.estimators:
        size = len(repeated), estimator.n_seeds
        words = rng.integers(2**53, size=size, dtype=np.uint64)
        parts.append(estimator.estimate(repeated, words).reshape(shape))
    variances = [_variance(part) for part in parts]
    return Precision(
        n_particles=tuple(estimator.n_particles for estimator in target.estimators),
        variance=sum(variances),
        variances=tuple(variances),
        acceptance=_acceptance(np.sum(parts, axis=0)),
        tau=tau,
    )


def _variance(estimates: Floats) -> float:
    if not np.isfinite(estimates).all():
        return float("inf")
    return float(estimates.var(axis=1, ddof=1).mean())


def _acceptance(estimates: Floats) -> float:
    """Return the mean acceptance probability of a new estimate at the same point, at equilibrium.

    At equilibrium the probability of an estimate is proportional to its value.
    """
    rates = []
    for row in estimates:
        if not np.isfinite(row.max()):
            continue
        weight = np.exp(row - row.max())
        with np.errstate(invalid="ignore"):  # estimates of zero
            change = row[None, :] - row[:, None]
        rate = np.exp(np.minimum(np.where(np.isnan(change), -np.inf, change), 0.0))
        np.fill_diagonal(rate, 0.0)
        rates.append(weight @ rate.sum(axis=1) / (weight.sum() * (len(row) - 1)))
    return float(np.mean(rates)) if rates else 0.0


def choose_particles(
    target: EstimatedTarget, kernel: Kernel, seed: int, report: Report = silent
) -> EstimatedTarget:
    """Return the target with the numbers of particles that cost least, found by a pilot.

    Numbers that the user gave are not changed.

    The variance of an estimate falls with the number of particles, usually in inverse proportion.
    Cost is counted, not timed, so that the same seed gives the same number.
    """
    if not any(estimator.auto for estimator in target.estimators):
        return target
    for _ in range(_ROUNDS):
        plan = Pilot(_PILOT, _PILOT_CHAIN).run(EstimatedPath(target), kernel, seed, report)
        known = measure(target, plan.population.x, seed).variance <= NOISY_VARIANCE
        target = _settle(target, plan.population.x, tau_of(plan.beta), seed)
        if known:  # the estimates were precise enough for the pilot to find the posterior
            break
    return target


def _settle(target: EstimatedTarget, x: Floats, tau: float, seed: int) -> EstimatedTarget:
    """Return the target with the cheapest numbers of particles, measured at the points ``x``."""
    before = None
    for _ in range(_ROUNDS):
        found = measure(target, x, seed)
        numbers = _cheapest(target, found, tau, _fall(before, found))
        settings = [
            (_rounded(n) if estimator.auto else estimator.n_particles, estimator.n_seeds)
            for estimator, n in zip(target.estimators, numbers, strict=True)
        ]
        target, before = target.with_settings(settings), found
        change = np.array(target.settings())[:, 0] / np.array(found.n_particles)
        if change.max() <= _CLOSE and change.min() >= 1.0 / _CLOSE:
            break
    return target


def _fall(before: Precision | None, now: Precision) -> Floats:
    """Return the exponent with which each variance falls as the number of particles grows.

    It is 1 for independent random numbers and up to about 3 for quasi-random ones. With 1 assumed
    for these, the search would oscillate.
    """
    if before is None or not np.isfinite(before.variance + now.variance):
        return np.ones(len(now.variances))
    tiny = np.finfo(float).tiny
    fewer = np.log(np.maximum(before.variances, tiny) / np.maximum(now.variances, tiny))
    more = np.log(np.array(now.n_particles) / np.array(before.n_particles))
    fall: Floats = np.clip(fewer / np.where(more == 0.0, np.inf, more), 1.0, _FASTEST)
    return fall


def _cheapest(target: EstimatedTarget, found: Precision, tau: float, fall: Floats) -> Floats:
    """Return the cheapest numbers of particles that give the optimal total variance."""
    now, variances = np.array(found.n_particles, float), np.array(found.variances)
    if not np.isfinite(found.variance):
        return 4.0 * now
    tiny = np.finfo(float).tiny
    free = np.array([estimator.auto for estimator in target.estimators])
    fixed_cost = np.sum([estimator.fixed_cost for estimator in target.estimators])
    # the cost is least if the shares of the variance are proportional to gamma
    shares = np.sqrt(now * variances)
    root = shares[free].sum()
    best = min(optimal_variance(t, fixed_cost, root**2) for t in (tau, _TAU_OF_MOVES))
    # noise that is not normal may lower the acceptance more than normal noise of this variance
    best *= min(found.acceptance / max(erfc(0.5 * sqrt(found.variance)), tiny), 1.0)
    left = max(best - variances[~free].sum(), 0.1 * best)
    wanted = left * shares / max(root, tiny)
    cheapest: Floats = now * (variances / np.maximum(wanted, tiny)) ** (1.0 / fall)
    return cheapest


def _rounded(n: float) -> int:
    """Return ``n`` rounded up to an even number of about two significant digits."""
    n = min(max(n, _LEAST), _MOST)
    unit = 10 ** max(floor(log10(n)) - 1, 0)
    return int(2 * ceil(ceil(n / unit) * unit / 2))
