"""Component means under the ordered transform, whose prior has lost its factorial."""

from itertools import product

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from scipy.special import gammaln, log_ndtr, logsumexp

from pm_evidence.testing.closed_forms import log_normal_group
from pm_evidence.testing.systems import ExactSystem
from tests.systems.closed_forms import normal_posterior

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


def systems() -> tuple[ExactSystem, ...]:
    """Return the ordered systems."""
    return (
        ExactSystem(
            "ordered_two",
            build_ordered_two,
            _log_symmetric(_TWO_Y, 2),
            log_prior_mass=-float(gammaln(3)),
        ),
        ExactSystem(
            "ordered_three",
            build_ordered_three,
            _log_symmetric(_THREE_Y, 3),
            log_prior_mass=-float(gammaln(4)),
        ),
        ExactSystem(
            "ordered_unequal",
            build_ordered_unequal,
            _log_unequal(),
            log_prior_mass=-float(gammaln(3)),
        ),
    )
