"""Normal approximations at a few points about the peak of many hyperparameters."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np
from numpy.typing import NDArray

from pm_evidence.core.shape import Shape
from pm_evidence.references.fitted import StudentFit
from pm_evidence.references.nested import NestedNormal, functions_of
from pm_evidence.references.surfaces import QuadraticSurface, n_coefficients
from pm_evidence.samplers.conditional import ConditionalFit, ConditionalFits

__all__ = ["Design", "ascended", "designed", "is_same_peak"]

Floats = NDArray[np.float64]

# Steps of an ascent: distance of the first differences, in prior standard deviations; largest
# number of steps, and length of one in prior standard deviations; usual distance of differences in
# posterior standard deviations, by which factor it may be wrong at the peak, and by which it is
# corrected at most; and the distance, in posterior standard deviations, at which an ascent ends.
_FIRST_STEP, _ASCENT_STEPS, _LARGEST_MOVE = 0.5, 20, 1.0
_USUAL_STEP, _WRONG, _LARGEST_CHANGE, _NEAR = 1.0, 2.0, 4.0, 0.3
# Peaks are the same if they are so many deviations, and so many nats, apart at most.
_SAME = 1.5
# Points for each coefficient of a quadratic function, and their standard deviation relative to the
# curvature at the peak; number of further points, which test what the functions predict; and the
# least share of the points at which an approximation must be found.
_POINTS, _SPREAD, _TESTS, _FOUND = 3.0, 1.2, 8, 0.8
# Largest divergence of conditional densities from what is predicted, in nats, at points whose mass
# is at most so many nats below the largest.
_WORST_DIVERGENCE, _HEAVY = 30.0, 4.0
# Log mass where no approximation is found.
_NOT_FOUND = -1e12
# Least and largest curvature of the log mass, in units of the step.
_LEAST, _MOST = 0.1, 4.0
# Distances in posterior standard deviations at which the tails are tested. There, the log of the
# weight of a draw may exceed that of others by as much as the log mass is below the largest, and by
# this number of nats. Models with and without a long tail were 1 nat or more from this bound.
_FAR, _LARGEST_EXCESS = (2.0, 4.0, 6.0), 0.0
# The mass is negligible if it is so many nats below the largest.
_NEGLIGIBLE = 9.0
# Draws from which the density of the hyperparameters is learnt, and its degrees of freedom.
_DRAWS, _DOF = 4000, 5.0
# Standard deviation of the hyperparameters in each normal density of the mixture.
_WIDTH = 0.6


@dataclass(frozen=True)
class Design:
    """Approximations at points that are spread about a peak of the hyperparameters.

    Parameters
    ----------
    conditional : ConditionalFits
        Has made them.
    shape : Shape
        Location and scale of the points.
    fits : sequence of ConditionalFit
        The approximations.
    tests : sequence of ConditionalFit
        Approximations at further points.
    tails : sequence of ConditionalFit, optional
        Approximations far from the peak along each axis; None if some are not known.
    """

    conditional: ConditionalFits
    shape: Shape
    fits: Sequence[ConditionalFit]
    tests: Sequence[ConditionalFit]
    tails: Sequence[ConditionalFit] | None

    @property
    def at(self) -> Floats:
        """The points, shape ``(m, k)``."""
        return np.array([fit.values for fit in self.fits])

    @property
    def log_mass(self) -> Floats:
        """Log density of the hyperparameters at the points, up to a constant, shape ``(m,)``."""
        return np.array([fit.log_mass for fit in self.fits])

    @property
    def log_weight(self) -> Floats:
        """Log mass that each approximation stands for, shape ``(m,)``."""
        log_density = StudentFit(self.shape, inf).log_density(self.at)
        found: Floats = self.log_mass - log_density - np.log(len(self.fits))
        return found

    def mixed(self) -> list[StudentFit]:
        """Return normal densities that are linear in the hyperparameters, one for each point."""
        return [self.conditional.joint(fit, _WIDTH * self.shape.factor) for fit in self.fits]

    def nested(self) -> NestedNormal:
        """Return the density that the approximations determine."""
        fits = self.fits
        skewness = [fit.skewness for fit in fits if fit.skewness is not None]
        functions, pattern = functions_of([fit.shape for fit in fits], skewness)
        surface = QuadraticSurface.through(self.shape, self.at, functions)
        given, rest = self.conditional.given, self.conditional.rest
        hyper = self._hyper()
        return NestedNormal(given, rest, hyper, surface, pattern, is_skewed=bool(skewness))

    @property
    def is_even(self) -> bool:
        """Whether quadratic functions predict the approximations at further points."""
        predicted = self.nested()
        least = max(fit.log_mass for fit in (*self.fits, *self.tests)) - _HEAVY
        for fit in self.tests:
            there = replace(fit, shape=predicted.shape_at(fit.values))
            divergence = self.conditional.divergence(fit, there)
            if fit.log_mass > least and not divergence < _WORST_DIVERGENCE:
                return False
        return True

    @property
    def covers_tails(self) -> bool:
        """Whether the density of the hyperparameters falls as the fitted one does, or faster.

        A scale that may be zero has a long tail, in which the fitted density would have few draws.
        """
        if self.tails is None:
            return False
        far = np.array([fit.values for fit in self.tails])
        height = np.array([fit.log_mass for fit in self.tails])
        hyper, log_weight = self._hyper(), self.log_weight
        weight = np.exp(log_weight - log_weight.max())
        usual = np.average(self.log_mass - hyper.log_density(self.at), weights=weight)
        # log of the weight of a draw there, and of the probability that it has
        excess = height - hyper.log_density(far) - usual
        return bool((excess + height - self.log_mass.max() < _LARGEST_EXCESS).all())

    def _hyper(self) -> StudentFit:
        """Return a density of the hyperparameters, which has the moments of a fitted one.

        The log mass minus that of the normal density of the points is a quadratic function near
        them, and bounded far from them.
        """
        normal = StudentFit(self.shape, inf)
        excess = (self.log_mass - normal.log_density(self.at))[:, None]
        surface = QuadraticSurface.through(self.shape, self.at, excess)
        draws = normal.draw(_DRAWS, np.random.default_rng(_DRAWS))
        log_weight = surface(draws)[:, 0]
        weight = np.exp(log_weight - log_weight.max())
        weight /= weight.sum()
        mean = weight @ draws
        apart = draws - mean
        covariance = (apart * weight[:, None]).T @ apart
        return StudentFit(Shape(mean, np.linalg.cholesky(covariance)), _DOF)


def ascended(conditional: ConditionalFits, start: ConditionalFit) -> tuple[ConditionalFit, Floats]:
    """Return the approximation at a peak of the hyperparameters, and steps of about a deviation."""
    here, scale = start, conditional.scale
    step = _FIRST_STEP * scale
    for _ in range(_ASCENT_STEPS):
        beside = _beside(conditional, here, step)
        mass = np.array([_mass(each) for each in beside]).reshape(-1, 2)
        slope = 0.5 * np.clip(mass[:, 1] - mass[:, 0], -1e6, 1e6)
        bend = np.clip(2.0 * here.log_mass - mass.sum(axis=1), 1e-3, 1e6)
        move = np.clip(step * slope / bend, -_LARGEST_MOVE * scale, _LARGEST_MOVE * scale)
        deviations = np.sqrt(bend) / _USUAL_STEP
        is_near = (np.abs(move / step) * deviations < _NEAR).all()
        if is_near and (np.abs(np.log(deviations)) < np.log(_WRONG)).all():
            break
        best = max([here, *(each for each in beside if each)], key=lambda fit: fit.log_mass)
        for shorter in (1.0, 0.5, 0.25):
            values = here.values + shorter * move
            there = conditional.near(here, values)
            if there is not None and there.log_mass > best.log_mass:
                best = there
                break
        here = best
        step = step / np.clip(deviations, 1.0 / _LARGEST_CHANGE, _LARGEST_CHANGE)
    return here, step


def is_same_peak(one: ConditionalFit, other: ConditionalFit, step: Floats) -> bool:
    """Return whether two ascents have ended at the same peak, with steps of about a deviation."""
    apart = np.abs(one.values - other.values) / step
    return bool((apart < _SAME).all()) and abs(one.log_mass - other.log_mass) < _SAME


def designed(conditional: ConditionalFits, peak: ConditionalFit, step: Floats) -> Design | None:
    """Return approximations about a peak; None if too many are not found.

    The points are a Halton sequence of a normal density, which is a little wider than the curvature
    at the peak says. They are always the same.
    """
    from scipy.stats import qmc  # importing SciPy takes as long as the package

    k = step.size
    n = int(_POINTS * n_coefficients(k))
    narrow = _curvature(conditional, peak, step)
    shape = Shape(narrow.mean, _SPREAD * narrow.factor)
    sequence = qmc.Halton(k, scramble=True, rng=np.random.default_rng(k))
    normal = qmc.MultivariateNormalQMC(np.zeros(k), engine=sequence).random(n + _TESTS)
    found, tests = [peak], list[ConditionalFit]()
    for i, point in enumerate(normal):
        places = shape.whitened(np.array([fit.values for fit in found]))
        nearest = found[int(np.argmin(((places - point) ** 2).sum(axis=1)))]
        fit = conditional.near(nearest, shape.mean + shape.scaled(point[None])[0])
        if fit is not None:
            (found if i < n else tests).append(fit)
    if len(found) < _FOUND * n or len(tests) < _FOUND * _TESTS:
        return None
    return Design(conditional, shape, found[1:], tests, _tails(conditional, peak, narrow))


def _tails(
    conditional: ConditionalFits, peak: ConditionalFit, shape: Shape
) -> list[ConditionalFit] | None:
    """Return approximations ever farther from a peak, below and above along each axis.

    The result is None if one is not found where the mass need not be negligible.
    """
    found = list[ConditionalFit]()
    deviations = np.sqrt((shape.factor**2).sum(axis=1))
    for move in np.vstack([np.diag(deviations), -np.diag(deviations)]):
        last = peak
        for distance in _FAR:
            fit = conditional.near(last, shape.mean + distance * move)
            if fit is None and last.log_mass > peak.log_mass - _NEGLIGIBLE:
                return None
            if fit is None:
                break
            found.append(fit)
            last = fit
    return found


def _curvature(conditional: ConditionalFits, peak: ConditionalFit, step: Floats) -> Shape:
    """Return location and scale by the second differences at a peak."""
    k = step.size
    beside = np.array([_mass(each) for each in _beside(conditional, peak, step)]).reshape(-1, 2)
    diagonal = 2.0 * peak.log_mass - beside.sum(axis=1)
    curvature = np.diag(diagonal)
    at = peak.values
    for i in range(k):
        for j in range(i):
            both = np.zeros(k)
            both[[i, j]] = step[[i, j]]
            mass = _mass(conditional.near(peak, at + both))
            mixed = mass - beside[i, 1] - beside[j, 1] + peak.log_mass
            curvature[i, j] = curvature[j, i] = -mixed
    curvature = np.where(np.abs(curvature) < _MOST, curvature, 0.0)
    np.fill_diagonal(curvature, np.clip(diagonal, _LEAST, _MOST))
    values, vectors = np.linalg.eigh(curvature)
    covariance = (vectors / np.maximum(values, _LEAST)) @ vectors.T
    return Shape(at, step[:, None] * np.linalg.cholesky(covariance))


def _beside(
    conditional: ConditionalFits, here: ConditionalFit, step: Floats
) -> list[ConditionalFit | None]:
    """Return the approximations below and above along each axis."""
    at = here.values
    moves = np.eye(step.size) * step
    return [conditional.near(here, at + sign * move) for move in moves for sign in (-1.0, 1.0)]


def _mass(fit: ConditionalFit | None) -> float:
    return _NOT_FOUND if fit is None else fit.log_mass
