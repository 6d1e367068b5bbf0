"""Posteriors with several modes, or with a phase transition on the way to them."""

from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp

from pm_evidence.testing.closed_forms import log_normal
from pm_evidence.testing.quadrature import log_integral
from pm_evidence.testing.systems import ExactSystem
from tests.systems.ordered import PRIOR_SD, log_mixture_terms

Floats = NDArray[np.float64]

_LINE_PRIOR_SD = np.float64(5.0)
_LINE_MEANS, _LINE_SD = np.array([-4.0, 4.0]), np.float64(0.5)
_LINE_LOG_WEIGHTS = np.log([0.3, 0.7])

# A broad and a narrow component about one centre. Annealing jumps from the broad to the narrow
# one at some inverse temperature, as at a first-order transition (Skilling, 2006, section 6).
_PHASE_DIMS = 10
_PHASE_SDS = np.array([0.7, 0.05])
_PHASE_LOG_WEIGHTS = np.array([0.0, np.log(100.0)])

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


def build_phase_transition() -> pm.Model:
    """A narrow phase that outweighs a broad one, about the same centre, in ten dimensions."""
    with pm.Model() as model:
        x = pm.Normal("x", 0, 1, shape=_PHASE_DIMS)
        parts: list[Any] = [
            log_weight + pm.logp(pm.Normal.dist(0, sd), x).sum()
            for log_weight, sd in zip(_PHASE_LOG_WEIGHTS, _PHASE_SDS, strict=True)
        ]
        pm.Potential("likelihood", pm.math.logaddexp(*parts))
    return model


def build_label_switching() -> pm.Model:
    """Two component means with equal weights and no order: their labels can be swapped."""
    with pm.Model() as model:
        means = pm.Normal("means", 0, PRIOR_SD, shape=2)
        pm.NormalMixture("y", w=np.full(2, 0.5), mu=means, sigma=1.0, observed=_LABELS_Y)
    return model


def _log_normal_overlap(
    log_weights: Floats, means: Floats, sds: Floats, prior_sd: float, n_dims: int
) -> float:
    """Integrate a mixture of isotropic normals against an isotropic normal prior at zero."""
    overlap = log_normal(means, 0.0, np.hypot(sds, prior_sd))
    return float(logsumexp(log_weights + n_dims * overlap))


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
    """Return the multimodal systems."""
    line_sds = np.full(2, _LINE_SD)
    line = _log_normal_overlap(_LINE_LOG_WEIGHTS, _LINE_MEANS, line_sds, _LINE_PRIOR_SD, 1)
    phase = _log_normal_overlap(_PHASE_LOG_WEIGHTS, np.zeros(2), _PHASE_SDS, 1.0, _PHASE_DIMS)
    labels = float(logsumexp(log_mixture_terms(_LABELS_Y, np.full(2, 0.5))[0]))
    return (
        ExactSystem("bimodal", build_bimodal, line),
        ExactSystem("square", build_square, _log_square()),
        ExactSystem("phase_transition", build_phase_transition, phase),
        ExactSystem("gaussian_shells", build_gaussian_shells, _log_shells()),
        ExactSystem("label_switching", build_label_switching, labels),
    )
