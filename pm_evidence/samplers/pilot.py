"""The pilot: an adaptive run that learns a schedule and the kernel of every stage.

The runs that follow use both unchanged. If a schedule or a step size were chosen from the same
population that it moves, the estimate of Z would be biased. A pilot avoids this bias.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.contracts import (
    Bridgeable,
    Growing,
    Kernel,
    MoveInfo,
    Path,
    Plan,
    Tunable,
    UsesCurvature,
)
from pm_evidence.core.exceptions import NumericalError
from pm_evidence.core.interrupts import Progress, Report, silent
from pm_evidence.core.numerics import ess_share, log_mean_exp, normalised
from pm_evidence.core.random import Phase, block_seeds, streams
from pm_evidence.core.records import PathVariance
from pm_evidence.core.resampling import resample
from pm_evidence.core.rows import one_blas_thread
from pm_evidence.samplers.sampler import grow_chains
from pm_evidence.schedules import next_beta, no_support

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

    def _more(
        self, path: Path, kernel: Kernel, state: Any, chains: NDArray[np.uint64]
    ) -> tuple[Any, int]:
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
    path: Path,
    kernel: Kernel,
    first: Any,
    beta: float,
    length: int,
    chains: NDArray[np.uint64],
    rounds: int,
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
