"""A survey of the posterior: its peaks, and the ridges that populations do not follow to the end.

Annealing can miss a mode, jump over a narrow spike at a first-order transition, or stop short of
the neck of a funnel, and none of its own draws then tell. A survey climbs from positions that the
run passed on its way, and looks below the scale of the population. What it finds becomes a part of
the density that importance sampling draws from.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.shape import Shape
from pm_evidence.kernels.ascent import Climbs, climb
from pm_evidence.paths.fitted import StudentFit
from pm_evidence.paths.posterior import Posterior
from pm_evidence.samplers.local_fit import Local, fit_locally

__all__ = ["Survey", "survey"]

Floats = NDArray[np.float64]

# Evaluations of a first ascent, and of one that has to tell a slow one from an endless one.
_FIRST, _LONG = 60, 600
# Ascents take this share of the budget, and start from batches of so many positions on the way and
# of as many prior draws: these are independent, and hold basins that populations soon lose.
_SHARE_OF_ASCENTS, _BATCH = 0.5, 96
# Ascents of posterior draws that look for ridges.
_FOLLOWED = 8
# The population is contracted towards each of its centres as if annealed to powers between these.
_POWERS = (4.0, 40.0)
# Excess of a probe's log density over the curvature's prediction that is worth an ascent, and how
# many of those are made.
_EXCESS, _ASCENTS_OF_PROBES = 4.0, 32
# So many probes for each evaluation that ascents leave of the budget; and at each centre, at least.
_PROBES, _LEAST_PROBES = 3, 100
# Peaks that coincide: nats, and distance in the population's standard deviations.
_SAME_HEIGHT, _SAME_PLACE = 1e-2, 1e-2
# Components of so many nats less than the largest play no part, nor do more than so many.
_NEGLIGIBLE, _MOST_PEAKS = 14.0, 24
# A peak whose standard deviations are smaller than the population's by this factor's exponential is
# a part of it, not the whole.
_NARROWER = 0.2
# Endless ascents closer than this in direction (cosine) follow one ridge; steps along a ridge.
_SAME_RIDGE, _RIDGES, _RIDGE_STEPS = 0.8, 3, 40
# A ridge is left where its mass per step has fallen by so many nats.
_RIDGE_END = 9.0
# Nats by which a ridge must outweigh all that was found, and still grow, to be without bound.
_UNBOUNDED = 3.0


@dataclass(frozen=True, slots=True)
class Survey:
    """What is known of a posterior besides a population.

    Parameters
    ----------
    components : list of StudentFit
        Densities at peaks and along ridges.
    log_mass : ndarray
        About the log evidence that each of them covers, in nats.
    n_peaks : int
        Number of distinct peaks that ascents ended at.
    unbounded : bool
        Whether the mass along a ridge grows to its end, beyond all that was found.
    n_evaluations : int
        Evaluations of the density, gradients counted alike.
    """

    components: list[StudentFit] = field(default_factory=list)
    log_mass: Floats = field(default_factory=lambda: np.empty(0))
    n_peaks: int = 0
    unbounded: bool = False
    n_evaluations: int = 0


def survey(
    posterior: Posterior,
    shape: Shape,
    draws: Floats,
    visited: Floats,
    log_evidence: float,
    budget: int,
    rng: np.random.Generator,
) -> Survey:
    """Look for what a run may have missed.

    Parameters
    ----------
    posterior : Posterior
        The density, with a gradient.
    shape : Shape
        Location and scale of the population.
    draws : ndarray, shape (n, d)
        Draws from the posterior, of all islands.
    visited : ndarray, shape (m, d)
        Positions that the run passed at lower inverse temperatures.
    log_evidence : float
        Of the run, in nats.
    budget : int
        Evaluations, of which half go to ascents and three times the other half to probes.
    rng : numpy.random.Generator
        Chooses positions.
    """
    scout = _Scout(posterior, shape, budget)
    starts = draws[rng.permutation(len(draws))[:_FOLLOWED]]
    followed = scout.climb(starts, _LONG)
    while scout.spent < _SHARE_OF_ASCENTS * budget:
        parts = [
            draws[rng.integers(len(draws), size=_BATCH // 4)],
            visited[rng.integers(len(visited), size=_BATCH)],
            posterior.draw_prior(_BATCH, rng),
        ]
        scout.climb(np.concatenate(parts), _FIRST)
    scout.probe(draws, _PROBES * (budget - scout.spent), rng)
    endless = _directions(followed, shape)
    peaks = scout.components()
    ridges = [scout.ridge(direction, reach) for direction, reach in endless]
    found = [*peaks, *(local for ridge in ridges for local in ridge)]
    if len(found) == 1 and _is_known(found[0], shape, log_evidence):
        found = []
    log_mass = np.array([local.log_mass for local in found])
    return Survey(
        [local.fit for local in found],
        log_mass,
        len(peaks),
        any(_grows(ridge, log_evidence) for ridge in ridges),
        scout.spent,
    )


class _Scout:
    """Climbs, keeps account of the peaks, and of the evaluations spent."""

    def __init__(self, posterior: Posterior, shape: Shape, budget: int) -> None:
        self.posterior, self.shape, self.budget = posterior, shape, budget
        self.spent = 0
        self.peaks: list[tuple[Floats, float]] = []  # point, log density; highest not first

    def climb(self, start: Floats, most: int, level: Floats | None = None) -> Climbs:
        """Climb from some points and note the peaks."""
        found = climb(self.posterior.target, start, self.shape, most, level)
        self.spent += found.n_evaluations
        if level is None:
            for i in np.flatnonzero(found.settled):
                self._note(found.x[i], float(found.log_density[i]))
        return found

    def _note(self, x: Floats, height: float) -> None:
        for point, known in self.peaks:
            if abs(height - known) < _SAME_HEIGHT and _distance(self.shape, x, point) < _SAME_PLACE:
                return
        self.peaks.append((x, height))

    def probe(self, draws: Floats, budget: int, rng: np.random.Generator) -> None:
        """Look below the population's scale, where a narrow and high mode would win.

        Draws, and new ones of the curvature's shape, are contracted towards a peak, or towards the
        population's centre, as if annealed beyond ``beta = 1``; what lies higher than the curvature
        there predicts is climbed from.
        """
        centres = sorted(self.peaks, key=lambda peak: -peak[1])[:4]
        if not centres:
            centres = [(self.shape.mean, np.nan)]
        n = max(budget // len(centres), _LEAST_PROBES)
        for centre, _ in centres:
            local = fit_locally(self.posterior, centre, self.shape)
            self.spent += 6 * len(centre)
            near = draws
            if local is not None and len(centres) > 1:
                inside = _nearest(self.shape, draws, [point for point, _ in centres], centre)
                near = draws[inside] if inside.any() else draws
            apart = near[rng.integers(len(near), size=n)] - centre
            if local is not None:  # at high powers the population has the curvature's shape
                normal = rng.standard_normal((3 * n // 4, len(centre)))
                apart[: len(normal)] = normal @ local.fit.shape.factor.T
            power = np.exp(rng.uniform(*np.log(_POWERS), size=n))
            x = centre + apart / np.sqrt(power)[:, None]
            log_density = self.posterior.log_density(x)
            self.spent += len(x)
            top = np.argsort(-log_density)[: _ASCENTS_OF_PROBES // 2]
            if local is not None:
                excess = log_density - local.predicted(x)
                excess[~np.isfinite(excess)] = -np.inf
                best = np.argsort(-excess)[: _ASCENTS_OF_PROBES // 2]
                top = np.union1d(top, best[excess[best] > _EXCESS])
            self.climb(x[top], _LONG)

    def components(self) -> list[Local]:
        """Return densities at the distinct peaks, but those of negligible mass."""
        found: list[Local] = []
        for point, height in sorted(self.peaks, key=lambda peak: -peak[1])[: 3 * _MOST_PEAKS]:
            if any(local.covers(point, height) for local in found):
                continue
            self.spent += 6 * len(point)
            local = fit_locally(self.posterior, point, self.shape)
            if local is not None:
                found.append(local)
        found = sorted(found, key=lambda local: -local.log_mass)[:_MOST_PEAKS]
        return [local for local in found if local.log_mass > found[0].log_mass - _NEGLIGIBLE]

    def ridge(self, direction: Floats, reach: float) -> list[Local]:
        """Follow a ridge from the population's centre, a standard deviation a step.

        Each step finds the peak among the points at its distance, and fits a density there.
        """
        x, step = self.shape.mean, _unwhitened(self.shape, direction)
        found: list[Local] = []
        for k in range(_RIDGE_STEPS):
            there = self.climb(x[None], _LONG, direction)
            local = fit_locally(self.posterior, there.x[0], self.shape)
            self.spent += 6 * len(x)
            if local is None:
                break
            found.append(local)
            masses = [part.log_mass for part in found]
            rising = k > 0 and masses[-1] > masses[-2]
            if masses[-1] < max(masses) - _RIDGE_END or (k > reach and not rising):
                break
            x = there.x[0] + step
        return found


def _is_known(local: Local, shape: Shape, log_evidence: float) -> bool:
    """Whether a peak is the population's own, so that the population knows its shape better.

    A spike on top of the population is narrower, or holds more.
    """
    narrower = _log_volume(shape) - _log_volume(local.fit.shape)
    return narrower < _NARROWER * local.fit.shape.mean.size and local.log_mass < log_evidence + 1.0


def _log_volume(shape: Shape) -> float:
    scales = np.diag(shape.factor) if shape.is_dense else shape.factor[:, 0]
    return float(np.log(np.abs(scales)).sum())


def _grows(ridge: list[Local], log_evidence: float) -> bool:
    """Whether the mass along a ridge grows to its end, beyond all that the run found."""
    if len(ridge) < 2:
        return False
    mass = np.array([local.log_mass for local in ridge])
    return bool(mass.max() > max(log_evidence, mass[0]) + _UNBOUNDED)


def _directions(followed: Climbs, shape: Shape) -> list[tuple[Floats, float]]:
    """Return the unit vectors along which ascents of draws went on without end, and how far."""
    found: list[tuple[Floats, float]] = []
    endless = ~followed.settled & np.isfinite(followed.log_density)
    for x in followed.x[endless]:
        along = _whitened(shape, x)
        reach = float(np.linalg.norm(along))
        along = along / max(reach, 1e-300)
        if not any(abs(along @ known) > _SAME_RIDGE for known, _ in found):
            found.append((along, reach))
    return found[:_RIDGES]


def _whitened(shape: Shape, x: Floats) -> Floats:
    if shape.is_dense:
        solved: Floats = np.linalg.solve(shape.factor, (x - shape.mean).T).T
        return solved
    return (x - shape.mean) / shape.factor[:, 0]


def _unwhitened(shape: Shape, step: Floats) -> Floats:
    moved: Floats = shape.factor @ step if shape.is_dense else shape.factor[:, 0] * step
    return moved


def _distance(shape: Shape, x: Floats, other: Floats) -> float:
    return float(np.linalg.norm(_whitened(shape, x) - _whitened(shape, other)))


def _nearest(
    shape: Shape, draws: Floats, centres: list[Floats], centre: Floats
) -> NDArray[np.bool_]:
    """Return which draws are nearer to one centre than to the others."""
    y = _whitened(shape, draws)
    own = ((y - _whitened(shape, centre)) ** 2).sum(axis=1)
    others = [((y - _whitened(shape, other)) ** 2).sum(axis=1) for other in centres]
    nearest: NDArray[np.bool_] = own <= np.min(others, axis=0)
    return nearest
