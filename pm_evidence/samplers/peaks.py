"""What is known of a posterior: densities fitted at its peaks and along its ridges."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf, log, pi

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.exceptions import NumericalError
from pm_evidence.core.shape import Shape, learn_shape
from pm_evidence.kernels.ascent import climb
from pm_evidence.paths.geometric import Posterior
from pm_evidence.references.curved import CurvedFit, variance_of_third
from pm_evidence.references.mixture import (
    Component,
    Relabelled,
    StudentFit,
    StudentMixture,
    student_dof,
    widened,
    with_wide,
)
from pm_evidence.targets.model.exchangeable import Relabelling

Floats = NDArray[np.float64]


# Step of the finite differences of gradients, relative to the length scale of the curvature. Three
# rounds find this scale even if it is far below that of the population.
_STEP, _ROUNDS = 1e-3, 3
# A peak is narrower than this step if the log density falls by more than so many nats, instead of
# 1/2, within one standard deviation. The scale is then looked for from this share of the first one.
_STEEP, _NARROW = 5.0, 1e-3
# Largest number of gradients on either side that are computed at once: it bounds the memory.
_MOST_ROWS = 256
# Two peaks count as one if they are closer than this, in standard deviations of the first.
_SAME = 0.5


@dataclass(frozen=True, slots=True)
class Local:
    """A Student-t density about a point."""

    fit: StudentFit  # the density
    height: float  # log density of the posterior at the point, in nats
    log_mass: float  # log of the integral of the Gaussian of the same height and curvature, in nats

    @property
    def shape(self) -> Shape:
        """Location and scale, with the lower Cholesky factor of the covariance."""
        assert isinstance(self.fit.shape, Shape)
        return self.fit.shape

    def predicted(self, x: Floats) -> Floats:
        """Return the log density that the curvature predicts at every row of ``x``."""
        squares = self.fit.shape.squared_distances(x)
        return self.height - 0.5 * squares

    def covers(self, points: Floats, heights: Floats) -> NDArray[np.bool_]:
        """Return which of the peaks at ``points``, shape ``(n, d)``, coincide with this one."""
        squares = self.fit.shape.squared_distances(points)
        near: NDArray[np.bool_] = squares < _SAME**2
        return near & (heights <= self.height + _SAME)


def fit_locally(
    posterior: Posterior, x: Floats, shape: Shape, longest: float = 1.0
) -> Local | None:
    """Fit a density to the curvature at a point (Laplace).

    Directions in which the density rises, or falls off much more slowly than the population's own
    scale, get that scale.
    """
    d = x.size
    height = float(posterior.log_density(x[None])[0])
    basis = shape.factor if shape.is_dense else shape.factor[:, :1]
    for start in (1.0, _NARROW):
        # columns of ``local`` are directions in the population's coordinates, each as long as one
        # standard deviation of the density along it
        local = start * np.eye(d)
        for _ in range(_ROUNDS):
            curvature = _curvature(posterior, x, _scaled(basis, local))
            if not (np.isfinite(curvature).all() and np.isfinite(height)):
                return None
            inverse = np.linalg.inv(local)
            curvature = inverse.T @ (0.5 * (curvature + curvature.T)) @ inverse
            value, vector = np.linalg.eigh(0.5 * (curvature + curvature.T))
            local = vector / np.sqrt(np.where(value < longest**-2, 1.0, value))
        factor = _scaled(basis, local)
        beside = posterior.log_density(np.concatenate([x + factor.T, x - factor.T]))
        if not (np.isfinite(beside) & (beside < height - _STEEP)).any():
            break
    covariance = factor @ factor.T
    try:
        lower = np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        return None
    log_mass = height + 0.5 * d * log(2.0 * pi) + float(np.log(np.diag(lower)).sum())
    return Local(StudentFit(Shape(x, lower), student_dof(d)), height, log_mass)


def _scaled(basis: Floats, local: Floats) -> Floats:
    """Return directions, which are columns in units of the population, in those of the density."""
    scaled: Floats = basis @ local if basis.shape[1] == len(local) else basis * local
    return scaled


def _curvature(posterior: Posterior, x: Floats, directions: Floats) -> Floats:
    """Return minus the second derivatives of the log density along some directions, its columns."""
    found = np.empty((x.size, x.size))
    for start in range(0, x.size, _MOST_ROWS):
        rows = slice(start, start + _MOST_ROWS)
        steps = _STEP * directions[:, rows].T
        with np.errstate(over="ignore", invalid="ignore"):  # gradients may be infinite
            change = posterior.gradient(x - steps) - posterior.gradient(x + steps)
            found[rows] = change @ directions / (2.0 * _STEP)
    return found


# Step of the differences that give third derivatives, in standard deviations. Where the expansion
# is good, the share of useful draws is the same between 0.1 and 1.
_STEP_OF_THIRD = 0.5


def third_derivatives(posterior: Posterior, shape: Shape) -> Floats:
    """Return the third derivatives of the log density, shape ``(d, d, d)``, at a peak.

    They are taken in the coordinates in which the shape has scale 1. The second difference of the
    gradient along the sum of two axes, less those along each, gives all derivatives that contain
    both axes. Of three indices, two are always both even or both odd, so that only such pairs are
    needed: ``d**2 / 2 + d`` gradients.
    """
    d = shape.mean.size
    first, second = np.nonzero(np.triu((np.arange(d)[:, None] - np.arange(d)) % 2 == 0))
    alone = np.flatnonzero(first == second)
    directions = np.eye(d)[first] + np.where((first == second)[:, None], 0.0, np.eye(d)[second])
    middle = posterior.gradient(shape.mean[None])
    found = np.empty((len(first), d))
    for start in range(0, len(first), _MOST_ROWS):
        rows = slice(start, start + _MOST_ROWS)
        steps = _STEP_OF_THIRD * shape.scaled(directions[rows])
        change = posterior.gradient(shape.mean + steps) + posterior.gradient(shape.mean - steps)
        found[rows] = (change - 2.0 * middle) @ shape.factor / _STEP_OF_THIRD**2
    pairs = 0.5 * (found - found[alone][first] - found[alone][second])
    pairs[alone] = found[alone]
    total, count = np.zeros((d, d, d)), np.zeros((d, d, d))
    for i, j in ((first, second), (second, first)):
        total[:, i, j], count[:, i, j] = pairs.T, 1.0
    orders = (0, 1, 2), (1, 2, 0), (2, 0, 1)
    sums = [np.sum([each.transpose(order) for order in orders], axis=0) for each in (total, count)]
    third: Floats = sums[0] / sums[1]
    return third


# Prior draws from which the scale of the prior is learnt, and those at which ascents start.
_PRIOR_DRAWS, _STARTS = 200, 12
# Largest number of gradients of one ascent, and of peaks at which a density is fitted.
_MOST, _MOST_PEAKS = 600, 6
# Components whose log mass is so many nats below the largest are left out.
_NEGLIGIBLE = 14.0


def fit_laplace(
    posterior: Posterior, positions: NDArray[np.int64], rng: np.random.Generator
) -> tuple[StudentMixture, int]:
    """Fit normal densities to the curvature at the peaks that ascents from prior draws end at.

    Directions in which the density falls off more slowly than the prior get the prior's scale, see
    `fit_locally`.
    """
    draws = posterior.draw_prior(_PRIOR_DRAWS, rng)
    shape = learn_shape(draws, dense=False)
    found = climb(posterior.target, draws[:_STARTS], shape, _MOST)
    spent, peaks = found.n_evaluations + len(draws), list[Local]()
    order = np.flatnonzero(found.settled)
    order = order[np.argsort(-found.log_density[order], kind="stable")]
    while order.size and len(peaks) < _MOST_PEAKS:
        local = fit_locally(posterior, found.x[order[0]], shape)
        spent += 6 * draws.shape[1] + 1
        order = order[1:]
        if local is not None:
            peaks.append(local)
            order = order[~local.covers(found.x[order], found.log_density[order])]
    if not peaks:
        raise NumericalError(
            f"reference='laplace' needs a peak of the posterior density, got none from {_STARTS} "
            "ascents: the density rises without end, or is not finite. Use reference='fit' or "
            "'prior'."
        )
    highest = max(local.log_mass for local in peaks)
    kept = [local for local in peaks if local.log_mass > highest - _NEGLIGIBLE]
    parts = [_marginal(local, positions) for local in kept]
    log_mass = np.array([local.log_mass for local in kept])
    return with_wide(parts, log_mass, widened(parts[0])), spent


def _marginal(local: Local, positions: NDArray[np.int64]) -> StudentFit:
    """Return the normal density of some of the coordinates."""
    shape = local.shape
    if len(positions) == shape.mean.size:
        return replace(local.fit, dof=inf)
    rows = shape.factor[positions]
    return StudentFit(Shape(shape.mean[positions], np.linalg.cholesky(rows @ rows.T)), inf)


@dataclass(frozen=True, slots=True)
class Survey:
    """What a survey found in addition to the population."""

    components: list[Component] = field(default_factory=list)  # densities at peaks and along ridges
    # Approximate log evidence of the region that each of them covers, in nats
    log_mass: Floats = field(default_factory=lambda: np.empty(0))
    n_peaks: int = 0  # number of distinct peaks that ascents ended at
    # Whether the mass along a ridge grows far beyond that at its start and the evidence
    unbounded: bool = False
    n_evaluations: int = 0  # evaluations of the density and of its gradient
    # Whether the components together approximate the whole posterior, beside which nothing is
    # searched for
    complete: bool = False
    # Permutations of components under which the posterior does not change. All components of the
    # findings are averaged over them.
    relabelling: Relabelling | None = None
    # What annealing starts from, if the findings are complete: its gradient is known
    reference: StudentMixture | None = None
    # Whether peaks that were not found are to be expected, because there were ever more
    more_peaks: bool = False
    curved: bool = False  # whether third derivatives at the peaks are among the findings

    def joined_by(self, other: "Survey") -> "Survey":
        """Return these findings with the components of others."""
        components = [*self.components, *self.relabelled(other.components)]
        return replace(
            self, components=components, log_mass=np.append(self.log_mass, other.log_mass)
        )

    def relabelled(self, fits: Sequence[Component]) -> Sequence[Component]:
        """Return densities averaged over all labellings, if there are such."""
        if self.relabelling is None:
            return fits
        return [Relabelled(fit, self.relabelling) for fit in fits]

    def aligned(self, draws: Floats) -> Floats:
        """Return draws in the labelling of the first component, if there are several labellings."""
        first = self.components[0] if self.components else None
        return first.aligned(draws) if isinstance(first, Relabelled) else draws


# Largest number of coordinates in which third derivatives are used; most peaks that get them, and
# the share of the heaviest one's mass that they have at least; and the largest variance of the log
# weights, in square nats, that they explain. At variances of 0.06 to 0.9 the share of useful draws
# rose to 0.9; at 2.3 it fell from 0.11 to 0.03, and at 4.9 it rose from 0.01 to 0.14.
_MOST_CURVED, _MOST_CURVED_PEAKS, _HEAVY_PEAK, _MOST_VARIANCE = 100, 4, 0.1, 3.0


def cost_of_curves(found: Survey) -> int:
    """Return how many gradients third derivatives cost at the peaks of a survey; 0 if none has."""
    return sum(1 + d + (d * d + 1) // 2 for d in (each.mean.size for each, _ in _curvable(found)))


def with_curves(posterior: Posterior, found: Survey) -> Survey:
    """Return the findings of a survey with densities that third derivatives have bent."""
    curved, log_mass = list[Component](), list[float]()
    for shape, mass in _curvable(found):
        third = third_derivatives(posterior, shape)
        if np.isfinite(third).all() and variance_of_third(third) < _MOST_VARIANCE:
            curved.append(CurvedFit.of(shape, third))
            log_mass.append(mass)
    return replace(
        found,
        components=[*found.components, *found.relabelled(curved)],
        log_mass=np.append(found.log_mass, log_mass),
        n_evaluations=found.n_evaluations + cost_of_curves(found),
        curved=True,
    )


def _curvable(found: Survey) -> list[tuple[Shape, float]]:
    """Return shapes and log masses of the peaks at which third derivatives are worth their cost."""
    peaks = list[tuple[Shape, float]]()
    for component, mass in zip(found.components[: found.n_peaks], found.log_mass, strict=False):
        fit = component.component if isinstance(component, Relabelled) else component
        shape = getattr(fit, "shape", None)
        if isinstance(shape, Shape) and shape.is_dense and shape.mean.size <= _MOST_CURVED:
            peaks.append((shape, float(mass)))
    peaks.sort(key=lambda peak: -peak[1])
    lowest = peaks[0][1] + log(_HEAVY_PEAK) if peaks else inf
    return [peak for peak in peaks[:_MOST_CURVED_PEAKS] if peak[1] > lowest]
