"""Posteriors with several modes, or with a phase transition on the way to them; ordered means.

The prior of means under the ordered transform has lost its factorial.
"""

from itertools import product

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from scipy.special import gammaln, log_ndtr, logsumexp

from pm_evidence.testing.systems import ExactSystem, log_integral, log_normal, log_normal_group
from tests.systems.closed_forms import exact, normal_posterior
from tests.systems.deceptive import Modes

Floats = NDArray[np.float64]

PRIOR_SD = np.float64(3.0)

_TWO_Y = np.array([-1.9, -1.2, 0.3, 1.4, 2.2, 2.9])
_THREE_Y = np.array([-3.4, -0.3, 0.5, 3.1, 4.2])
_UNEQUAL_Y = np.array([-0.8, 0.1, 1.1, 2.4, 0.6])
_UNEQUAL_WEIGHTS = np.array([0.7, 0.3])


def log_mixture_terms(y: Floats, weights: Floats) -> tuple[Floats, NDArray[np.int64]]:
    """Return the evidence of every assignment of data to components with free means."""
    n_components = weights.size
    labels = np.array(list(product(range(n_components), repeat=y.size)))
    member = (labels[:, None, :] == np.arange(n_components)[:, None]).astype(np.int64)
    log_weight = np.log(weights)[labels].sum(axis=1)
    return log_weight + log_normal_group(y, 1.0, PRIOR_SD, member).sum(axis=1), member


def _build(y: Floats, weights: Floats, start: list[float]) -> pm.Model:
    with pm.Model() as model:
        # initval: PyMC would start all means at zero, where the transform is infinite.
        means = pm.Normal(
            "means",
            0,
            PRIOR_SD,
            shape=weights.size,
            transform=pm.distributions.transforms.ordered,
            initval=start,
        )
        pm.NormalMixture("y", w=weights, mu=means, sigma=1.0, observed=y)
    return model


def build_ordered_two() -> pm.Model:
    """Two ordered means with equal weights."""
    return _build(_TWO_Y, np.full(2, 1 / 2), [-1.0, 1.0])


def build_ordered_three() -> pm.Model:
    """Three ordered means with equal weights."""
    return _build(_THREE_Y, np.full(3, 1 / 3), [-1.0, 0.0, 1.0])


def build_ordered_unequal() -> pm.Model:
    """Two ordered means with unequal weights, where symmetry does not help."""
    return _build(_UNEQUAL_Y, _UNEQUAL_WEIGHTS, [-1.0, 1.0])


def _log_symmetric(y: Floats, n_components: int) -> float:
    # With equal weights every ordering of the means has the same integral: n! times the ordered
    # part is the evidence of the model without order.
    return float(logsumexp(log_mixture_terms(y, np.full(n_components, 1 / n_components))[0]))


def _log_unequal() -> float:
    log_terms, member = log_mixture_terms(_UNEQUAL_Y, _UNEQUAL_WEIGHTS)
    # Given the assignment the means are independent normals: so is their difference.
    mean, sd = normal_posterior(_UNEQUAL_Y, 1.0, PRIOR_SD, member)
    log_ordered = log_ndtr((mean[:, 1] - mean[:, 0]) / np.hypot(sd[:, 0], sd[:, 1]))
    return float(np.log(2) + logsumexp(log_terms + log_ordered))


_LINE_PRIOR_SD = np.float64(5.0)
_LINE_MEANS, _LINE_SD = np.array([-4.0, 4.0]), np.float64(0.5)
_LINE_LOG_WEIGHTS = np.log([0.3, 0.7])

# A broad and a narrow component about one centre, in ten dimensions. Annealing jumps from the broad
# to the narrow one at some inverse temperature, as at a first-order transition (Skilling, 2006,
# section 6).
_PHASES = Modes(10, (0.0, 0.0), (0.7, 0.05), (1.0, 100.0), prior_sd=1.0)

# Two thin shells in five dimensions (Feroz, Hobson and Bridges 2009, section 6.2).
_SHELL_DIMS, _SHELL_BOX = 5, 6.0
_SHELL_CENTRES, _SHELL_RADIUS, _SHELL_SD = np.array([-3.5, 3.5]), 2.0, np.float64(0.1)

_SQUARE_Y = np.float64(4.0)

_LABELS_Y = np.array([-2.6, -1.9, -1.4, -2.2, 1.7, 2.5, 2.1, 1.2])


def build_bimodal() -> pm.Model:
    """Two unequal modes on a line, as a potential."""
    with pm.Model() as model:
        x = pm.Normal("x", 0, _LINE_PRIOR_SD)
        parts = [
            log_weight + pm.logp(pm.Normal.dist(mean, _LINE_SD), x)
            for log_weight, mean in zip(_LINE_LOG_WEIGHTS, _LINE_MEANS, strict=True)
        ]
        pm.Potential("likelihood", pm.math.logaddexp(*parts))
    return model


def build_square() -> pm.Model:
    """Only the square of the parameter is observed: two equal modes."""
    with pm.Model() as model:
        x = pm.Normal("x", 0, 1)
        pm.Normal("y", x**2, 1, observed=_SQUARE_Y)
    return model


def build_gaussian_shells() -> pm.Model:
    """Two thin spherical shells in five dimensions that do not touch, as a potential."""
    with pm.Model() as model:
        x = pm.Uniform("x", -_SHELL_BOX, _SHELL_BOX, shape=_SHELL_DIMS)
        first = np.eye(_SHELL_DIMS)[0]
        parts = [
            pm.logp(
                pm.Normal.dist(_SHELL_RADIUS, _SHELL_SD),
                pm.math.sqrt(((x - centre * first) ** 2).sum()),
            )
            for centre in _SHELL_CENTRES
        ]
        pm.Potential("likelihood", pm.math.logaddexp(*parts))
    return model


def build_label_switching() -> pm.Model:
    """Two component means with equal weights and no order: their labels can be swapped."""
    with pm.Model() as model:
        means = pm.Normal("means", 0, PRIOR_SD, shape=2)
        pm.NormalMixture("y", w=np.full(2, 0.5), mu=means, sigma=1.0, observed=_LABELS_Y)
    return model


def _log_shells() -> float:
    """Return the log integral of both shells over the box, beyond which they have no mass."""

    def log_density(radius: Floats) -> Floats:
        return log_normal(_SHELL_RADIUS, radius, _SHELL_SD) + (_SHELL_DIMS - 1) * np.log(radius)

    half = 0.5 * _SHELL_DIMS
    log_sphere = np.log(2.0) + half * np.log(np.pi) - gammaln(half)
    both = np.log(2.0) + log_sphere + log_integral(log_density, (0.8, 3.2))
    return float(both - _SHELL_DIMS * np.log(2.0 * _SHELL_BOX))


def _log_square() -> float:
    def log_density(x: Floats) -> Floats:
        return log_normal(_SQUARE_Y, x**2, 1.0) + log_normal(x, 0.0, 1.0)

    return log_integral(log_density, (-9.0, 9.0))


def systems() -> tuple[ExactSystem, ...]:
    """Return the multimodal and the ordered systems."""
    overlap = log_normal(_LINE_MEANS, 0.0, np.hypot(np.full(2, _LINE_SD), _LINE_PRIOR_SD))
    line = float(logsumexp(_LINE_LOG_WEIGHTS + overlap))
    two, three = -float(gammaln(3)), -float(gammaln(4))
    return (
        exact(build_ordered_two, _log_symmetric(_TWO_Y, 2), log_prior_mass=two),
        exact(build_ordered_three, _log_symmetric(_THREE_Y, 3), log_prior_mass=three),
        exact(build_ordered_unequal, _log_unequal(), log_prior_mass=two),
        exact(build_bimodal, line),
        exact(build_square, _log_square()),
        ExactSystem("phase_transition", _PHASES.build, _PHASES.log_evidence()),
        exact(build_gaussian_shells, _log_shells()),
        exact(build_label_switching, _log_symmetric(_LABELS_Y, 2)),
    )
