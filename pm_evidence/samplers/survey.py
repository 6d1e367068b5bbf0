"""A survey of the posterior: its peaks, and ridges that extend beyond the populations.

Annealing can miss a mode, jump over a narrow spike at a first-order transition, or stop short of
the neck of a funnel, and its own draws do not show this. A survey climbs from positions that the
run passed on its way and from prior draws, looks below the scale of the population, and combines
coordinates of the peaks. What it finds becomes a part of the density that importance sampling draws
from. docs/approximations.md says which posteriors each part is for.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.shape import Shape
from pm_evidence.kernels.ascent import Climbs, climb
from pm_evidence.paths.geometric import Posterior
from pm_evidence.references.mixture import Component
from pm_evidence.samplers.peaks import Local, Survey, fit_locally
from pm_evidence.targets.model.exchangeable import Relabelling, find_relabelling

Floats = NDArray[np.float64]

# Gradients that a survey costs, at least, in a run with the default target; the least share of the
# usual number of ascents that a small budget leaves; and the share of the budget for ascents.
USUAL_BUDGET, _LEAST_SHARE, _SHARE_OF_ASCENTS = 30_000, 0.4, 0.4
# Values for each gradient of the budget, and of these for probes with the usual budget. The scan
# gets more of a smaller one, because few probes find no spikes. Half as many probes missed the
# spike of ``spike_20`` in 1.5 % of 400 runs, and these none.
_VALUES, _PROBES = 1.8, 1.17
# Largest number of coordinates of all positions of a scan, or of all probes: it bounds the memory
# where there are very many dimensions.
_MOST_COORDINATES = 4_000_000
# Largest number of evaluations of a first ascent, and of one that may be slow or endless.
_FIRST, _LONG = 60, 600
# Number of visited positions in a batch of starts for ascents, and of prior draws, some of which
# lie in basins of attraction that populations lose early.
_BATCH = 96
# Number of ascents from posterior draws, to look for ridges, and the least number of them.
_FOLLOWED, _LEAST_FOLLOWED = 8, 2
# Number of posterior draws, and of prior draws, from which the likelihood is climbed with so small
# a power of the prior; powers with which its maximum is climbed to closely.
_PULLED, _LITTLE_PRIOR, _LIKELIHOOD = 8, (0.01, 1.0), (0.0, 1e6)
# For the scan: number of positions with similar predictions that are compared, nats added to their
# spread, which is zero if the prediction is exact, and ascents from those that stand out most.
LIKE, _EVEN_SPREAD, _ASCENTS_OF_SCAN = 64, 0.1, 96
# Predictions far from all peaks are minus infinity; a finite number has differences.
_LOWEST = -1e300
# Powers between which the density is raised where the population is contracted towards a peak;
# ascents from the highest of the probes there, and the least number of probes.
_POWERS, _ASCENTS_OF_PROBES, _LEAST_PROBES = (4.0, 40.0), 16, 100
# Number of highest peaks whose curvature predicts the density, and towards which probes are made.
_CENTRES = 4
# Exchanged coordinates: positions in each round for each gradient of the budget, and at least; the
# nats by which they exceed the prediction of the peaks if ascents start there; the most ascents,
# and the most rounds while there are new peaks.
_EXCHANGED, _LEAST_EXCHANGED, _EXCESS, _ASCENTS_OF_EXCHANGES, _EXCHANGES = 0.05, 64, 4.0, 16, 10
# Peaks are new if they add this share to the mass of those before them; share of the mass that may
# be left out.
_NEW_MASS, _LEFT_OUT = 0.01, 1e-4
# Peaks coincide if they are closer than this in height, in nats, and in position, in standard
# deviations of the population.
_SAME_HEIGHT, _SAME_PLACE = 1e-2, 1e-2
# Largest standard deviation at a peak, in those of the population; for each square root of the
# number of dimensions if correlations are not known.
_LONGEST = 2.0
# Components whose log mass is this many nats below the largest are left out, as are those beyond
# this number. A second mode whose log mass is less than the last number below that of the first
# asks for a longer search.
_NEGLIGIBLE, _MOST_PEAKS, _MINOR = 14.0, 24, 5.0
# Endless ascents follow the same ridge if the cosine between their directions exceeds this; largest
# number of ridges and of steps along one; steps from the population's centre to its other end; it
# is no longer followed where its log mass per step is this many nats below its maximum.
_SAME_RIDGE, _RIDGES, _RIDGE_STEPS, _BACKWARDS, _RIDGE_END = 0.8, 3, 40, 3.0, 9.0
# A ridge leads towards a peak if, in at least so many dimensions, the mean square of the draws'
# distances from the nearest peak exceeds that of a normal distribution by this much, and by this
# share of it.
_MANY, _APART, _SHARE_APART = 60, 16.0, 0.2
# The posterior counts as unbounded if the log mass along a ridge still rises at its end, and is so
# many nats above that at its start and above the log evidence.
_UNBOUNDED = 3.0


def survey(
    posterior: Posterior,
    shape: Shape,
    draws: Floats,
    visited: Floats,
    log_evidence: float,
    budget: int,
    rng: np.random.Generator,
) -> Survey:
    """Search for peaks and ridges that a run may have missed.

    A log-concave density has a single peak, to which one ascent leads.
    """
    scout = _Scout(posterior, shape, budget)
    if posterior.is_log_concave:
        scout.climb(draws[:1], _LONG)
        return scout.findings(scout.components())
    n_followed = max(int(scout.share * _FOLLOWED), _LEAST_FOLLOWED)
    followed = scout.climb(draws[rng.permutation(len(draws))[:n_followed]], _LONG)
    scout.batch(draws, visited, rng)
    scout.follow_data(draws, rng)
    more_peaks = scout.exchange(draws, rng)
    scout.afford()
    scout.scan(rng)
    if scout.has_several_modes():  # a third one may have less of the prior in its basin
        scout.afford()
        scout.scan(rng)
    while scout.climbed < _SHARE_OF_ASCENTS * scout.budget:
        scout.batch(draws, visited, rng)
    asked = min(budget / USUAL_BUDGET, 1.0)
    scout.probe(draws, int(scout.n_probes * (1.0 + asked**2)), rng)
    if scout.has_several_modes():
        more_peaks = scout.exchange(draws, rng)
    endless = directions(followed, shape)
    peaks = scout.components()
    followed_to = endless or towards(peaks, draws, shape)
    ridges = [scout.ridge(direction, reach) for direction, reach in followed_to]
    ridges += [scout.ridge(-direction, _BACKWARDS)[1:] for direction, _ in followed_to]
    unbounded = any(grows(ridge, log_evidence) for ridge in ridges)
    return replace(scout.findings(peaks, ridges, unbounded), more_peaks=more_peaks)


class _Scout:
    """Makes ascents, and keeps account of the peaks and of the evaluations."""

    def __init__(self, posterior: Posterior, shape: Shape, budget: int) -> None:
        self.posterior, self.shape, self.budget, self.spent = posterior, shape, budget, 0
        self.climbed = 0
        d = shape.mean.size
        self.points, self.heights = np.empty((0, d)), np.empty(0)
        self._fits: dict[int, Local | None] = {}
        self.relabelling: Relabelling | None = None
        self._tested = False

    @property
    def share(self) -> float:
        """Number of ascents that the budget allows, relative to the usual one."""
        return float(np.clip(self.budget / USUAL_BUDGET, _LEAST_SHARE, 1.0))

    @property
    def n_probes(self) -> float:
        """Number of values for probes, before what a larger budget asks for."""
        return _PROBES * self.budget * min(self.budget / USUAL_BUDGET, 1.0)

    def afford(self) -> None:
        """Raise the budget to the usual one if there are several modes."""
        if self.budget < USUAL_BUDGET and self.has_several_modes():
            self.budget = USUAL_BUDGET

    def climb(self, start: Floats, most: int, level: Floats | None = None) -> Climbs:
        """Climb from some points and record the peaks."""
        found = climb(self.posterior.target, start, self.shape, most, level)
        self.spent += found.n_evaluations
        self.climbed += found.n_evaluations
        if level is None:
            height = found.log_density - self.posterior.target.log_order_mass
            self._note(found.x[found.settled], height[found.settled])
        return found

    def batch(self, draws: Floats, visited: Floats, rng: np.random.Generator) -> None:
        """Climb from posterior draws, from visited positions and from prior draws."""
        n = int(self.share * _BATCH)
        starts = (
            draws[rng.integers(len(draws), size=n // 4)],
            visited[rng.integers(len(visited), size=n)],
            self.posterior.draw_prior(n, rng),
        )
        self.climb(np.concatenate(starts), _FIRST)

    def follow_data(self, draws: Floats, rng: np.random.Generator) -> None:
        """Climb from where the likelihood, with little of the prior, leads.

        There may be a peak to which the data pull parameters far from the prior, and a narrow one
        at the maximum of the likelihood itself.
        """
        n = max(int(self.share * _PULLED), 2)
        near, target = draws[rng.integers(len(draws), size=n)], self.posterior.target
        both = np.concatenate([near, self.posterior.draw_prior(n, rng)])
        for start, power, most in ((both, _LITTLE_PRIOR, _LONG), (near, _LIKELIHOOD, _FIRST)):
            found = climb(target, start, self.shape, _FIRST, power=power)
            self.spent += found.n_evaluations
            self.climb(found.x, most)

    def has_several_modes(self) -> bool:
        """Return whether there is a second mode of similar mass."""
        peaks = self.unlike(self.distinct(_CENTRES))
        if self.relabelling is not None:
            peaks = self.unlike(self.distinct(_CENTRES * len(self.relabelling.maps)))
        log_mass = np.sort([local.log_mass for local in peaks])
        return len(log_mass) > 1 and bool(log_mass[-2] > log_mass[-1] - _MINOR)

    def unlike(self, peaks: list[Local]) -> list[Local]:
        """Return the peaks that are not another one with other labels of its components."""
        if len(peaks) > 1 and not self._tested:
            self.relabelling, spent = find_relabelling(self.posterior.target)
            self.spent += spent
            self._tested = True
        if self.relabelling is None:
            return peaks
        kept: list[Local] = []
        for peak in sorted(peaks, key=lambda local: -local.height):
            if not any(self._n_covered(peak, other) for other in kept):
                kept.append(peak)
        return kept

    def n_images(self, local: Local) -> float:
        """Return the number of different places to which relabelling moves a peak."""
        if self.relabelling is None:
            return 1.0
        return len(self.relabelling.maps) / max(self._n_covered(local, local), 1)

    def _n_covered(self, peak: Local, other: Local) -> int:
        """Return how many images of a peak coincide with another one."""
        assert self.relabelling is not None
        images = self.relabelling.images(peak.fit.shape.mean[None])[:, 0]
        return int(np.count_nonzero(other.covers(images, np.array(peak.height))))

    def _note(self, x: Floats, height: Floats) -> None:
        """Add the peaks that are not known yet."""
        y, places = self.shape.whitened(x), self.shape.whitened(self.points)
        new = np.ones(len(x), bool)
        for place, known in zip(places, self.heights, strict=True):
            new &= ~coincide(y, height, place, known)
        chosen: list[int] = []
        while new.any():
            first = int(np.argmax(new))
            chosen.append(first)
            new &= ~coincide(y, height, y[first], height[first])
        self.points = np.concatenate([self.points, x[chosen]])
        self.heights = np.concatenate([self.heights, height[chosen]])

    def distinct(self, n: int) -> list[Local]:
        """Return densities at the highest peaks, at most ``n``, that do not cover each other."""
        found: list[Local] = []
        left = np.argsort(-self.heights, kind="stable")
        for _ in range(2 * n):  # the fit fails at some peaks
            if not left.size or len(found) == n:
                break
            peak = int(left[0])
            if peak not in self._fits:
                self._fits[peak] = self.fit_at(self.points[peak])
            local = self._fits[peak]
            left = left[1:]
            if local is not None:
                found.append(local)
                left = left[~local.covers(self.points[left], self.heights[left])]
        return found

    def fit_at(self, x: Floats) -> Local | None:
        """Return a density fitted at a point."""
        self.spent += 8 * x.size + 1
        # standard deviations alone are shorter than the density along its longest axis
        longest = _LONGEST * (1.0 if self.shape.is_dense else x.size**0.5)
        # a peak apart from the population may be wider than it, up to the distance between them
        distance = float(np.linalg.norm(self.shape.whitened(x[None])[0]))
        return fit_locally(self.posterior, x, self.shape, max(longest, distance / x.size**0.5))

    def scan(self, rng: np.random.Generator) -> None:
        """Climb from those contracted prior draws that seem to be in the basin of another peak.

        There the density is higher than at positions of similar distance from the known peaks. A
        single evaluation shows this, while an ascent takes many.
        """
        n = min(
            int(_VALUES * self.budget - self.n_probes), _MOST_COORDINATES // self.shape.mean.size
        )
        x = contracted(self.posterior.draw_prior(n, rng), rng)
        log_density = self.posterior.log_density(x)
        self.spent += len(x)
        x, log_density = x[np.isfinite(log_density)], log_density[np.isfinite(log_density)]
        fits = self.distinct(_CENTRES)
        if not fits or len(x) < LIKE:
            return
        predicted = np.array([fit.predicted(x) for fit in fits]).max(axis=0)
        n_ascents = int(self.share * _ASCENTS_OF_SCAN)
        self.climb(x[outlying(log_density, predicted, n_ascents)], _FIRST)

    def probe(self, draws: Floats, n_probes: int, rng: np.random.Generator) -> None:
        """Look below the population's scale for a narrow and high mode.

        Posterior draws, and normal draws with the covariance of the curvature, are contracted
        towards a peak, or towards the population's centre, as if annealed beyond ``beta = 1``.
        Ascents start from those of highest density, and from those whose density exceeds the
        prediction of the curvature most.
        """
        peaks: list[Local | None] = [*self.distinct(_CENTRES)] or [None]
        n_probes = min(n_probes, _MOST_COORDINATES // self.shape.mean.size)
        n = max(n_probes // len(peaks), int(self.share * _LEAST_PROBES))
        for local in peaks:
            centre = self.shape.mean if local is None else local.shape.mean
            apart = draws[rng.integers(len(draws), size=n)] - centre
            if local is not None:  # at high powers the population has the curvature's shape
                normal = rng.standard_normal((3 * n // 4, len(centre)))
                apart[: len(normal)] = normal @ local.shape.factor.T
            power = np.exp(rng.uniform(*np.log(_POWERS), size=n))
            x = centre + apart / np.sqrt(power)[:, None]
            log_density = self.posterior.log_density(x)
            self.spent += n
            n_ascents = int(self.share * _ASCENTS_OF_PROBES)
            top = np.argsort(-log_density)[:n_ascents]
            if local is not None:
                excess = np.where(
                    np.isfinite(log_density), log_density - local.predicted(x), -np.inf
                )
                best = np.argsort(-excess)[:n_ascents]
                top = np.union1d(top, best[excess[best] > _EXCESS])
            self.climb(x[top], _LONG)

    def exchange(self, draws: Floats, rng: np.random.Generator) -> bool:
        """Look for peaks that have some coordinates of known ones; return if more are expected.

        Where coordinates have several modes each, independently of the others, there are more peaks
        than ascents from anywhere meet. Peaks with some coordinates of others, or of prior and
        posterior draws, are then higher than the known peaks predict.
        """
        peaks = self.unlike(self.distinct(3 * _MOST_PEAKS))
        for _ in range(_EXCHANGES):
            if not peaks or len(peaks) > _MOST_PEAKS:
                break
            self.afford()
            n = int(max(_EXCHANGED * min(self.budget, USUAL_BUDGET), _LEAST_EXCHANGED))
            others = np.concatenate([draws, self.posterior.draw_prior(len(draws), rng)])
            means = np.array([peak.fit.shape.mean for peak in _significant(peaks)])
            x = exchanged(means, others, n, rng)
            log_density = self.posterior.log_density(x)
            self.spent += n
            excess = log_density - np.max([peak.predicted(x) for peak in peaks], axis=0)
            high = np.where(excess > _EXCESS, log_density, -np.inf)
            top = np.argsort(-high)[: int(self.share * _ASCENTS_OF_EXCHANGES)]
            self.climb(x[top[np.isfinite(high[top])]], _FIRST)
            before, peaks = peaks, self.unlike(self.distinct(3 * _MOST_PEAKS))
            if not _added(before, peaks) > _NEW_MASS:
                return False
        heaviest = sorted(peaks, key=lambda local: -local.log_mass)[:_MOST_PEAKS]
        return bool(peaks) and (len(peaks) <= _MOST_PEAKS or _added(heaviest, peaks) > _LEFT_OUT)

    def components(self) -> list[Local]:
        """Return densities at the distinct peaks, except those of negligible mass."""
        peaks = self.distinct(3 * _MOST_PEAKS)
        found = self.unlike(peaks)
        if len(found) == len(peaks):
            self.relabelling = None
        return _significant(found)

    def findings(
        self, peaks: list[Local], ridges: Sequence[list[Local]] = (), unbounded: bool = False
    ) -> Survey:
        """Return the findings, with what they have cost."""
        parts = [*peaks, *(local for ridge in ridges for local in ridge)]
        fits: list[Component] = [local.fit for local in parts]
        log_mass = np.array([local.log_mass + np.log(self.n_images(local)) for local in parts])
        found = Survey(fits, log_mass, len(peaks), unbounded, self.spent, False, self.relabelling)
        return replace(found, components=[*found.relabelled(fits)])

    def ridge(self, direction: Floats, reach: float) -> list[Local]:
        """Follow a ridge from the population's centre, in steps of one standard deviation.

        Each step finds the maximum in the hyperplane orthogonal to ``direction``, and fits a
        density there.
        """
        x, step = self.shape.mean, self.shape.scaled(direction[None])[0]
        found: list[Local] = []
        for k in range(_RIDGE_STEPS):
            there = self.climb(x[None], _LONG, direction)
            local = self.fit_at(there.x[0])
            if local is None:
                break
            found.append(local)
            masses = [part.log_mass for part in found]
            rising = k > 0 and masses[-1] > masses[-2]
            if masses[-1] < max(masses) - _RIDGE_END or (k > reach and not rising):
                break
            x = there.x[0] + step
        return found


def _significant(peaks: list[Local]) -> list[Local]:
    """Return the peaks of largest mass, except those whose mass is negligible."""
    found = sorted(peaks, key=lambda local: -local.log_mass)[:_MOST_PEAKS]
    return [local for local in found if local.log_mass > found[0].log_mass - _NEGLIGIBLE]


def _added(before: list[Local], after: list[Local]) -> float:
    """Return the share of the mass of some peaks that those before them lack."""
    total = [np.logaddexp.reduce([peak.log_mass for peak in peaks]) for peaks in (before, after)]
    return float(-np.expm1(total[0] - total[1]))


def directions(followed: Climbs, shape: Shape) -> list[tuple[Floats, float]]:
    """Return the directions of endless ascents, as unit vectors, and how far the ascents went."""
    found: list[tuple[Floats, float]] = []
    endless = ~followed.settled & np.isfinite(followed.log_density)
    for x in followed.x[endless]:
        along = shape.whitened(x[None])[0]
        reach = float(np.linalg.norm(along))
        along = along / max(reach, 1e-300)
        if not any(abs(along @ known) > _SAME_RIDGE for known, _ in found):
            found.append((along, reach))
    return found[:_RIDGES]


def towards(peaks: list[Local], draws: Floats, shape: Shape) -> list[tuple[Floats, float]]:
    """Return the direction of the first peak, as a unit vector, if draws are near no peak at all.

    In many dimensions the peak of a density with a scale as a variable has hardly any mass.
    """
    d = draws.shape[1]
    if not peaks or d < _MANY:
        return []
    squares = [peak.fit.shape.squared_distances(draws) for peak in peaks]
    if np.min(squares, axis=0).mean() < d + max(_APART, _SHARE_APART * d):
        return []
    along = shape.whitened(peaks[0].fit.shape.mean[None])[0]
    reach = float(np.linalg.norm(along))
    return [(along / max(reach, 1e-300), reach)]


def grows(ridge: list[Local], log_evidence: float) -> bool:
    """Return whether the mass grows up to the end of a ridge, far beyond start and evidence.

    A ridge whose mass falls again leads to a peak, which may be far from the draws.
    """
    if len(ridge) < 2:
        return False
    mass = np.array([local.log_mass for local in ridge])
    return bool(mass.max() == mass[-1] > max(log_evidence, mass[0]) + _UNBOUNDED)


def contracted(x: Floats, rng: np.random.Generator) -> Floats:
    """Return positions moved towards their centre, by factors between ``1 / sqrt(d)`` and 1.

    In many dimensions draws lie in a shell, ``sqrt(d)`` standard deviations from the centre.
    """
    n, d = x.shape
    centre = np.median(x, axis=0)
    return centre + (x - centre) * d ** (-0.5 * rng.uniform(size=(n, 1)))


def exchanged(peaks: Floats, others: Floats, n: int, rng: np.random.Generator) -> Floats:
    """Return peaks that have one or more of their coordinates from other positions.

    Half of the positions have a single foreign coordinate, and the rest each with a probability of
    1/2. Half of them take theirs from another peak, if there are several.
    """
    d = peaks.shape[1]
    x, donors = peaks[rng.integers(len(peaks), size=n)], others[rng.integers(len(others), size=n)]
    if len(peaks) > 1:
        donors[::2] = peaks[rng.integers(len(peaks), size=len(donors[::2]))]
    foreign = rng.uniform(size=(n, d)) < 0.5
    foreign[: n // 2] = np.arange(d) == rng.integers(d, size=(n // 2, 1))
    return np.where(foreign, donors, x)


def outlying(log_density: Floats, predicted: Floats, n: int) -> NDArray[np.intp]:
    """Return the positions whose density stands out most among those with similar predictions."""
    predicted = np.maximum(predicted, _LOWEST)
    order = np.argsort(predicted, kind="stable")
    order = order[len(order) % LIKE :]
    excess = (log_density - predicted)[order].reshape(-1, LIKE)
    excess = excess - np.median(excess, axis=1, keepdims=True)
    spread = np.median(np.abs(excess), axis=1, keepdims=True) + _EVEN_SPREAD
    with np.errstate(over="ignore"):  # those that are far too low become minus infinity
        relative = (excess / spread).ravel()
    chosen: NDArray[np.intp] = order[np.argsort(-relative, kind="stable")[:n]]
    return chosen


def coincide(y: Floats, heights: Floats, place: Floats, height: float) -> NDArray[np.bool_]:
    """Return which peaks coincide with one, in the population's coordinates."""
    near = np.abs(heights - height) < _SAME_HEIGHT
    same: NDArray[np.bool_] = near & (((y - place) ** 2).sum(axis=1) < _SAME_PLACE**2)
    return same
