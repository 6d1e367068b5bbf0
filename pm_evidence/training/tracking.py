"""Log Z of a machine while it is trained, its error, and the likelihoods that follow from it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.checks import (
    check_count,
    check_finite,
    check_flag,
    described,
    real_number,
    whole_array,
)
from pm_evidence.core.contracts import Path
from pm_evidence.core.exceptions import warn
from pm_evidence.core.numerics import log_sum_exp
from pm_evidence.core.random import streams, uniforms
from pm_evidence.families.rbm.gibbs import BaseRatePath, BlockGibbs, Units, log_densities, unpack
from pm_evidence.families.rbm.moment_average import Machine
from pm_evidence.families.rbm.target import RBM, smoothed
from pm_evidence.samplers.simulated_tempering import log_probabilities
from pm_evidence.training.parameters import Parameters

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]


_KERNEL = BlockGibbs()
# Mean probabilities below this are rounded up to it, so that their logs are finite.
_LEAST = 1e-250
# A chain with more weight than this has no other chains to compare with.
_MOST_WEIGHT = 0.9


@dataclass(frozen=True)
class Ladder:
    """Inverse temperatures, and the prior over them."""

    beta: Floats  # shape (n_temperatures,): rising from 0 to 1
    # shape (n_temperatures,): log probabilities ``log r_k`` of the prior, in nats
    log_prior: Floats

    @classmethod
    def even(cls, n_temperatures: int, slope: float) -> Self:
        """Return even steps, and a prior in proportion to ``exp(slope * beta)``."""
        beta = np.linspace(0.0, 1.0, n_temperatures)
        return cls(beta, slope * beta - log_sum_exp(slope * beta))

    def probabilities(self, energy: Floats, log_z: Floats) -> Floats:
        """Return the probabilities of all temperatures given states (Carlson et al., Eq. 7)."""
        found: Floats = np.exp(log_probabilities(self.beta, self.log_prior - log_z, energy))
        return found


@dataclass(frozen=True)
class Visits:
    """What chains saw in some sweeps."""

    # shape (n_temperatures,): mean probability of every temperature over sweeps and chains: ``c_k``
    # of Carlson et al
    share: Floats
    # shape (n, 2): mean over the sweeps of the probabilities of the first and the last temperature,
    # for each chain
    ends: Floats

    def log_ratio(self, ladder: Ladder) -> Floats:
        """Return ``log(r_1 c_k / (r_k c_1))``, shape (n_temperatures,), in nats: Eq. 12."""
        ratio = np.log(np.maximum(self.share, _LEAST)) - ladder.log_prior
        found: Floats = ratio - ratio[0]
        return found

    def influence(self) -> Floats:
        """Return how much each chain contributes to the last log ratio, shape (n,), in nats.

        The mean is 0. The chains are independent of each other, so that the scatter gives the error
        of the estimate (Carlson et al., Eq. 16), also if the sweeps of a chain are correlated.
        """
        first, last = np.maximum(self.ends, _LEAST).T
        found: Floats = last / last.mean() - first / first.mean()
        return found


@dataclass(frozen=True)
class TrainingChains:
    """Chains that move between temperatures."""

    ladder: Ladder  # inverse temperatures, and the prior over them
    state: Units  # states of both layers, ``n`` of them
    rung: NDArray[np.int64]  # shape (n,): number of the temperature of each chain
    streams: NDArray[np.uint64]  # shape (n, 4): streams of the chains, which advance in place
    # shape (n, n_temperatures): probabilities of all temperatures given the states
    probability: Floats

    @classmethod
    def start(cls, path: Path, ladder: Ladder, n: int, seed: np.random.SeedSequence) -> Self:
        """Return ``n`` chains that start at independent draws of the reference."""
        draw_seed, chain_seed = seed.spawn(2)
        n_temperatures = len(ladder.beta)
        even = np.full((n, n_temperatures), 1.0 / n_temperatures)
        state, rung = path.draw(n, draw_seed), np.zeros(n, np.int64)
        return cls(ladder, state, rung, streams(chain_seed, n), even)

    def at_random(self) -> Self:
        """Return the chains at fresh temperatures, each as probable as any other."""
        draws = uniforms(self.streams, 1)[:, 0]
        return replace(self, rung=(draws * len(self.ladder.beta)).astype(np.int64))

    def moved(
        self, path: Path, log_z: Floats, n_sweeps: int, n_ignored: int = 0
    ) -> tuple[Self, Visits]:
        """Return the chains after some sweeps, and what they saw."""
        state, rung, probability = self.state, self.rung, self.probability
        share, ends = np.zeros(len(log_z)), np.zeros((len(state), 2))
        for sweep in range(-n_ignored, n_sweeps):
            beta = self.ladder.beta[rung]
            state, _ = _KERNEL.advance_each(path, state, beta, self.streams)
            probability = self.ladder.probabilities(path.energy(state, 1.0), log_z)
            rung = _drawn(probability, uniforms(self.streams, 1))
            if sweep >= 0:
                share += probability.mean(axis=0)
                ends += probability[:, [0, -1]]
        chains = replace(self, state=state, rung=rung, probability=probability)
        return chains, Visits(share / n_sweeps, ends / n_sweeps)

    def weights(self) -> Floats:
        """Return weights of the states for averages over the machine; they sum to 1."""
        weight: Floats = self.probability[:, -1] / self.probability[:, -1].sum()
        return weight

    def change(self, step: Machine, of_itself: Floats | float = 0.0) -> tuple[Floats, Floats]:
        """Return how log Z changes with the parameters, by importance sampling."""
        d = log_densities(step.layers(), self.state.layers) - of_itself
        weight = np.maximum(self.probability, _LEAST)
        weight /= weight.sum(axis=0)
        size = float(np.abs(d).max())  # largest exponent
        factor = np.exp(np.outer(d, self.ladder.beta) - size * self.ladder.beta)
        mean = (weight * factor).sum(axis=0)
        change: Floats = np.log(mean) + size * self.ladder.beta
        influence = len(d) * weight[:, -1] * (factor[:, -1] / mean[-1] - 1.0)
        return change, influence

    def own_part(self, parameters: Parameters, rate: float) -> Floats:
        """Return what each state contributed to the change of its own log density in an update.

        An update moves the parameters away from the states that it takes for the model: the log
        density ``x'theta`` of state ``i`` changes by ``-rate * w_i * x_i'g_i`` because of its own
        statistics ``g_i``. Such changes are no part of the change of log Z, to which every state
        would contribute with the same sign. The mean without state ``i`` is ``(g - w_i g_i) / (1 -
        w_i)`` with the mean ``g`` of all, so that the difference is ``rate * w_i / (1 - w_i) *
        x_i'(g - g_i)``.
        """
        visible, weight = self.visible(), self.weights()
        hidden = unpack(self.state.layers[1], self.state.sizes[1])
        both = (parameters.hidden_probability(visible) * hidden).sum(axis=1)
        n_on = visible.sum(axis=1)
        of_own = n_on + both + n_on * both
        mean = parameters.moments(visible, weight.astype(np.float32))
        of_mean = log_densities(mean.layers(), self.state.layers)
        share = np.minimum(weight, _MOST_WEIGHT)
        found: Floats = rate * share / (1.0 - share) * (of_mean - of_own)
        return found

    def visible(self) -> NDArray[np.float32]:
        """Return the visible units of the chains, shape (n, n_visible)."""
        return unpack(self.state.layers[0], self.state.sizes[0]).astype(np.float32)


def _drawn(probability: Floats, uniform: Floats) -> NDArray[np.int64]:
    """Return an index for each row of probabilities, given uniform numbers of shape (n, 1)."""
    reached = np.cumsum(probability, axis=1)
    rung: NDArray[np.int64] = (reached < uniform * reached[:, -1:]).sum(axis=1)
    return rung


# Number of earlier updates to which chains respond one by one. What is left of the response after
# these is taken to happen at once.
_LONGEST = 50
# Share of the autocovariances that an update keeps: they are those of the last 100 updates.
_KEPT = 0.99


class TrackingError:
    """What each chain has contributed to the error of a tracked log Z.

    If log Z of the machine is too large by ``d``, chains visit its temperature too rarely; this is
    how later updates correct the error. But chains take some time to move. Until they have done so,
    every update corrects the same error again: the tracked value overshoots, and its error is
    larger than that of an estimate from chains in equilibrium.

    To first order, the mean of the log ratio of visits at update ``t`` is ``-sum_j (C_j - C_(j+1))
    d_(t-j)``, where ``d_t`` is the error at update ``t`` and ``C_j`` the autocorrelation over ``j``
    updates of what the chains move along. This is linear response theory: a system in equilibrium
    forgets its own fluctuations as it forgets a small disturbance (Kubo 1966, "The
    fluctuation-dissipation theorem"). ``C_j`` is measured on the slowest mode of a walk along the
    ladder.
    """

    def __init__(self, influence: Floats, mode: Floats) -> None:
        self._influence = influence
        # of the last updates, the newest first
        self._errors = np.zeros((_LONGEST, len(influence)))
        self._modes = np.zeros((_LONGEST + 1, len(mode)))
        self._modes[0] = mode - mode.mean()
        self._covariance, self._variance = np.zeros((2, _LONGEST + 1))
        self._n_updates = 0

    @property
    def mcse(self) -> float:
        """Standard error of log Z in nats, from the scatter over the chains."""
        n = len(self._influence)
        return float(self._influence.std(ddof=1) / np.sqrt(n))

    def predicted(self, influence: Floats) -> None:
        """Add what chains contribute to a predicted change of log Z, shape (n_chains,)."""
        self._influence = self._influence + influence

    def corrected(self, alpha: float, influence: Floats, mode: Floats) -> None:
        """Follow an update of log Z by ``alpha`` times the log ratio of visits."""
        self._n_updates += 1
        for rows, row in ((self._errors, self._influence), (self._modes, mode - mode.mean())):
            rows[1:] = rows[:-1]
            rows[0] = row
        response = self._response() @ self._errors
        self._influence = self._influence + alpha * (influence - response)

    def _response(self) -> Floats:
        """Return the response to the errors of the last updates, the newest first."""
        n = min(self._n_updates, _LONGEST)
        products = self._modes[: n + 1] @ self._modes[0]
        self._covariance[: n + 1] = _KEPT * self._covariance[: n + 1] + products
        self._variance[: n + 1] = _KEPT * self._variance[: n + 1] + products[0]
        correlation = np.ones(_LONGEST + 1)  # that of chains that never move
        known = self._variance > 0.0
        correlation[known] = self._covariance[known] / self._variance[known]
        correlation = np.minimum.accumulate(np.clip(correlation, 0.0, 1.0))
        response: Floats = correlation[:-1] - correlation[1:]
        response[n:] = 0.0
        if n == _LONGEST:
            response[-1] += correlation[-1]
        return response


def slowest_mode(log_prior: Floats) -> Floats:
    """Return the slowest mode of a walk along a ladder, shape ``(n_temperatures,)``."""
    share = np.exp(log_prior)
    found: Floats = np.cos(np.pi * (np.cumsum(share) - 0.5 * share))
    return found


_MOST_TEMPERATURES, _MOST_CHAINS, _MOST_SWEEPS, _MOST_UPDATES = 10_000, 10**6, 10**6, 10**9
_STEEPEST = 100.0  # slope: temperatures beyond it are hardly visited
# Sweeps of an initial iteration, of which the second half counts, and the most iterations.
_INITIAL_SWEEPS, _MOST_ITERATIONS = 50, 100
# Sweeps after these iterations, of which the second half counts. Fresh temperatures do not suit the
# states that chains have reached, which made log Z 0.4 to 0.9 nats too low on a machine of 180 x
# 500 units.
_SETTLING_SWEEPS = 200
# Initial iterations end if no mean probability differs from the prior by more than this share of an
# even prior: Carlson et al., section 2.4.
_CLOSE = 0.1
# Rows of the data, chosen once, whose likelihood is followed.
_MOST_ROWS = 10_000


@dataclass(frozen=True, kw_only=True)
class TrackLogZ:
    """How log Z is tracked while a machine is trained; see `train_rbm`.

    Parameters
    ----------
    n_temperatures : int
        Number of inverse temperatures, evenly spaced from 0 to 1; at least 2.
    n_chains : int
        Number of tempered chains; at least 2.
    n_sweeps : int
        Sweeps of every chain between two updates of the parameters.
    alpha : float
        Share of a new estimate of log Z in the tracked one, above 0 and at most 1.
    slope : float
        The prior over inverse temperatures is in proportion to ``exp(slope * beta)``.
    predict : bool
        Whether every update of the parameters is followed by the change of log Z that importance
        sampling from the chains predicts. Without this, as in the paper, the tracked value lags
        behind.
    every : int
        Number of updates between two points of the history.
    patience : int, optional
        The training ends if so many points in a row have not improved the validation likelihood.
    keep : sequence of ints
        Numbers of updates, multiples of ``every``, after which the machine is kept.

    Raises
    ------
    ValueError
        If an option is out of range.

    Notes
    -----
    Carlson et al. (2016), section 4.4, with 100 temperatures, 2,000 chains, 25 sweeps, ``alpha``
    0.2 and ``slope`` 2. Log Z at the first temperature is known. Estimates at the others begin with
    iterations of 50 sweeps, each of which starts at fresh temperatures, uniformly distributed, and
    replaces all estimates; the first half of its sweeps does not count. They end when no mean
    probability differs from the prior by more than ``0.1 / n_temperatures``, and 200 sweeps
    without fresh temperatures follow. Between updates of the parameters the estimates are corrected
    by ``alpha`` times ``log(r_1 c_k / (r_k c_1))``: the paper's partial update with exponent alpha.
    ``c_k`` is the mean over all of these sweeps.

    The error of log Z comes from the scatter over the chains, which are independent of each other,
    of what each has contributed to the estimate. It includes that chains take some updates to
    respond to new estimates, in which the same error is corrected again, so that the tracked value
    overshoots; more sweeps or a smaller ``alpha`` reduce this. The error does not tell of modes
    that no chain finds.

    Examples
    --------
    >>> import pm_evidence as pe
    >>> pe.rbm.TrackLogZ(n_chains=100, every=50).alpha
    0.2
    """

    n_temperatures: int = 100
    n_chains: int = 500
    n_sweeps: int = 10
    alpha: float = 0.2
    slope: float = 2.0
    predict: bool = True
    every: int = 10
    patience: int | None = None
    keep: Sequence[int] = ()

    def __post_init__(self) -> None:
        check_count("n_temperatures", self.n_temperatures, 2, _MOST_TEMPERATURES)
        check_count("n_chains", self.n_chains, 2, _MOST_CHAINS)
        check_count("n_sweeps", self.n_sweeps, 1, _MOST_SWEEPS)
        share = real_number(self.alpha)
        if share is None or not 0.0 < share <= 1.0:
            raise ValueError(
                f"alpha must be above 0 and at most 1, got {described(self.alpha)}; try 0.2."
            )
        if abs(check_finite("slope", self.slope, 2.0)) > _STEEPEST:
            raise ValueError(
                f"slope must lie between -{_STEEPEST:g} and {_STEEPEST:g}, got {self.slope}; try 2."
            )
        check_flag("predict", self.predict)
        check_count("every", self.every, 1, _MOST_UPDATES)
        if self.patience is not None:
            check_count("patience", self.patience, 1, _MOST_UPDATES)
        kept = whole_array("keep", self.keep)
        if kept.ndim != 1 or (kept < 0).any() or (kept % self.every).any():
            raise ValueError(
                f"keep must hold multiples of every={self.every}, got {described(self.keep)}; "
                "round them."
            )
        object.__setattr__(self, "keep", tuple(int(k) for k in kept))


@dataclass(frozen=True)
class TrainingHistory:
    """What was seen of a training; every array has one entry for each point.

    Parameters
    ----------
    update : ndarray of int64
        Number of updates before the point.
    log_z, log_z_mcse : ndarray
        Tracked log Z and its error, in nats.
    train, validation : ndarray
        Mean log-likelihoods in nats, whose error is that of log Z. The first is that of at most
        10,000 rows, chosen at random; the second is NaN without validation data.
    ess : ndarray
        Effective number of tempered chains for averages over the machine.
    best : int
        Number of updates of the machine that is returned.
    machines : dict of int to RBM
        Machines that were kept, by number of updates.

    Examples
    --------
    >>> import numpy as np, pm_evidence as pe
    >>> data = np.random.default_rng(1).integers(2, size=(100, 8))
    >>> track = pe.rbm.TrackLogZ(n_temperatures=10, n_chains=100, every=25)
    >>> rbm = pe.rbm.train_rbm(data, 4, n_updates=50, track=track, random_seed=1, progressbar=False)
    >>> rbm.history.update, rbm.history.best
    (array([ 0, 25, 50]), 50)
    """

    update: NDArray[np.int64]
    log_z: Floats
    log_z_mcse: Floats
    train: Floats
    validation: Floats
    ess: Floats
    best: int
    machines: dict[int, RBM] = field(default_factory=dict, repr=False)


class Tracker:
    """Follows log Z of a machine from update to update."""

    def __init__(
        self,
        settings: TrackLogZ,
        parameters: Parameters,
        data: NDArray[np.uint8],
        validation: NDArray[np.uint8] | None,
        seed: np.random.SeedSequence,
    ) -> None:
        self._settings, self._validation = settings, validation
        self._rates = smoothed(data.mean(axis=0))
        chain_seed, rows_seed = seed.spawn(2)
        order = np.random.default_rng(rows_seed).permutation(len(data))[:_MOST_ROWS]
        self._rows = data[np.sort(order)]
        self._ladder = Ladder.even(settings.n_temperatures, settings.slope)
        self._mode = slowest_mode(self._ladder.log_prior)
        self._points: list[tuple[float, ...]] = []
        self._kept: dict[int, RBM] = {}
        self._best: tuple[int, RBM] | None = None
        self._machine = parameters.machine(base=self._rates)
        self._begin(BaseRatePath(self._machine), chain_seed)

    @property
    def log_z(self) -> float:
        """Log Z of the machine that was visited last, in nats."""
        return float(self._log_z[-1])

    @property
    def mcse(self) -> float:
        """Standard error of ``log_z``."""
        return self._error.mcse

    def visit(
        self, parameters: Parameters, update: int, rate: float = 0.0, *, last: bool = False
    ) -> bool:
        """Update the estimates for the machine after ``update`` updates, of which 0 are known."""
        if update:
            self._follow(parameters.machine(base=self._rates), rate)
        if last or update % self._settings.every == 0:
            self._record(self._machine, update)
        return self._goes_on(update)

    def samples(self) -> tuple[Singles, Singles]:
        """Return visible units of the chains, shape (n, n_visible), and weights that sum to 1."""
        return self._chains.visible(), self._chains.weights().astype(np.float32)

    def finished(self, data: NDArray[np.uint8]) -> RBM:
        """Return the best machine, or the last one without validation, with data and history."""
        update, log_z, mcse, train, validation, ess = np.array(self._points).T
        best, machine = self._best or (int(update[-1]), self._machine)
        point = update.astype(np.int64)
        history = TrainingHistory(point, log_z, mcse, train, validation, ess, best, self._kept)
        return replace(machine, base="auto", data=data, history=history)

    def _begin(self, path: BaseRatePath, seed: np.random.SeedSequence) -> None:
        """Find the first estimates of log Z (Carlson et al., section 2.4)."""
        ladder, self._log_z = self._ladder, np.zeros(self._settings.n_temperatures)
        chains = TrainingChains.start(path, ladder, self._settings.n_chains, seed)
        half, limit = _INITIAL_SWEEPS // 2, _CLOSE / len(ladder.beta)
        for _ in range(_MOST_ITERATIONS):
            chains, visits = chains.at_random().moved(path, self._log_z, half, half)
            self._log_z = self._log_z + visits.log_ratio(ladder)
            away = float(np.abs(visits.share - np.exp(ladder.log_prior)).max())
            if away < limit:
                break
        else:
            warn(
                f"the first estimates of log Z did not settle: after {_MOST_ITERATIONS} iterations "
                f"a temperature has a mean probability that is {away:.2g} from its prior, where "
                f"{limit:.2g} was asked for. Use more chains (n_chains of pe.rbm.TrackLogZ)."
            )
        half = _SETTLING_SWEEPS // 2
        self._chains, visits = chains.moved(path, self._log_z, half, half)
        self._log_z = self._log_z + visits.log_ratio(ladder)
        self._error = TrackingError(visits.influence(), self._mode[self._chains.rung])

    def _follow(self, machine: RBM, rate: float) -> None:
        """Predict how log Z changes with the parameters, move the chains, and correct it."""
        alpha, before, chains = self._settings.alpha, self._machine, self._chains
        if self._settings.predict:
            own = chains.own_part(Parameters.of(before, np.float32), rate) if rate else 0.0
            step = Machine.of(machine).plus(Machine.of(before), -1.0)
            change, influence = chains.change(step, own)
            self._log_z = self._log_z + change
            self._error.predicted(influence)
        path, n_sweeps = BaseRatePath(machine), self._settings.n_sweeps
        self._chains, visits = chains.moved(path, self._log_z, n_sweeps)
        self._log_z = self._log_z + alpha * visits.log_ratio(self._ladder)
        self._error.corrected(alpha, visits.influence(), self._mode[self._chains.rung])
        self._machine = machine

    def _record(self, machine: RBM, update: int) -> None:
        """Add a point to the history, and keep the machine if it is the best or to be kept."""
        weights, validation = self._chains.weights(), float("nan")
        if self._validation is not None:
            validation = self._likelihood(machine, self._validation)
            if not self._points or validation > max(point[4] for point in self._points):
                self._best = update, machine
        train = self._likelihood(machine, self._rows)
        ess = 1.0 / float(weights @ weights)
        self._points.append((update, self.log_z, self.mcse, train, validation, ess))
        if update in self._settings.keep:
            self._kept[update] = machine

    def _goes_on(self, update: int) -> bool:
        """Return whether the validation likelihood has improved recently, if that is asked for."""
        patience, best = self._settings.patience, self._best
        if patience is None or best is None:
            return True
        return update - best[0] < patience * self._settings.every

    def _likelihood(self, machine: RBM, rows: NDArray[np.uint8]) -> float:
        """Return the mean log-likelihood of some rows, in nats."""
        parts = np.array_split(rows, max(1, len(rows) // 1000))
        free_energy = np.concatenate([machine.free_energy(part) for part in parts])
        return -float(free_energy.mean()) - self.log_z
