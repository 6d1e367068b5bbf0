"""A system of each family, once more from its data and SciPy's densities alone.

``test_systems`` integrates the models; here not even the data come from the package.
"""

from itertools import product

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad
from scipy.special import gammaln, logsumexp

from pm_evidence.testing import (
    conjugate,
    constrained,
    correlations,
    discrete,
    features,
    gaussians,
    heavy_tailed,
    hierarchical,
    imputed,
    mixed,
    multimodal,
    ordered,
    potentials,
)
from pm_evidence.testing.random_effects import poisson_glmm
from pm_evidence.testing.registry import _FAMILIES, deceptive_systems, exact_systems
from pm_evidence.testing.system import TAGS, ExactSystem, tagged

FAMILIES = (
    conjugate,
    constrained,
    correlations,
    discrete,
    features,
    gaussians,
    heavy_tailed,
    hierarchical,
    imputed,
    mixed,
    multimodal,
    ordered,
    potentials,
)
SCHOOLS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
SCHOOLS_SD = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def log_common_mean(y, sd, prior_sd):
    """Log density of data about a mean that is normal about zero."""
    if len(y) == 0:
        return 0.0
    cov = np.diag(np.broadcast_to(sd, len(y)) ** 2.0) + prior_sd**2
    return stats.multivariate_normal(np.zeros(len(y)), cov).logpdf(y)


def log_quad(density, low, high, points=None):
    return np.log(quad(density, low, high, points=points, epsabs=0.0, epsrel=1e-10, limit=500)[0])


def log_student_prior():
    def joint(mu):
        return stats.norm.pdf([8.1, 8.9], mu, 0.5).prod() * stats.t.pdf(mu, 2)

    return log_quad(joint, 0.0, 17.0, [8.5])


def log_assignments(y, weights):
    """Sum over all assignments of data to components, whose means are normal with scale 3."""
    y, weights, terms = np.array(y), np.array(weights), []
    for labels in product(range(len(weights)), repeat=len(y)):
        labels = np.array(labels)
        parts = [log_common_mean(y[labels == k], 1.0, 3.0) for k in range(len(weights))]
        terms.append(np.log(weights[labels]).sum() + sum(parts))
    return logsumexp(terms)


def log_lkj():
    """Correlation of a standardised pair under a density ``3 (1 - rho**2) / 4``."""
    pairs = [[1.2, 0.7], [-0.4, -0.9], [0.8, 1.5], [-1.6, -0.6], [0.3, -0.5], [-0.7, -1.1]]

    def joint(rho):
        normal = stats.multivariate_normal(np.zeros(2), [[1.0, rho], [rho, 1.0]])
        return 0.75 * (1.0 - rho**2) * normal.pdf(pairs).prod()

    return log_quad(joint, -0.999999, 0.999999)


def log_interval():
    return log_quad(lambda x: stats.norm.pdf([0.62, 0.81, 0.95], x, 0.2).prod(), 0.0, 1.0)


def log_child():
    """A parent that is observed, and a child about it that is integrated out."""
    cov = 0.36 + 0.25 * np.eye(2)
    child = stats.multivariate_normal([2.5, 2.5], cov).logpdf([1.6, 1.9])
    return stats.norm.logpdf(2.5, 0.0, 1.2) + child


VALUES = {
    "normal_mean": lambda: log_common_mean([1.2, 0.4, 2.1, 1.7, 0.9], 1.0, 2.0),
    "uniform_interval": log_interval,
    # theta**-5 / 10 from the largest datum, 3.6, to the end of the prior at 10
    "uniform_width": lambda: np.log((3.6**-4 - 10.0**-4) / 40.0),
    "lkj_correlation": log_lkj,
    # dry: sprinkler on with 0.4, wet with 0.8; rain: off with 0.99, wet with 0.9, or both
    "sprinkler": lambda: np.log(0.8 * 0.4 * 0.8 + 0.2 * (0.99 * 0.9 + 0.01 * 0.99)),
    "no_free_variable": lambda: stats.norm.logpdf([0.4, -1.2, 0.7]).sum(),
    "observed_parent": log_child,
    "student_t_prior": log_student_prior,
    "eight_schools_pooled": lambda: log_common_mean(SCHOOLS, SCHOOLS_SD, 5.0),
    # two of five values are missing, and say nothing
    "missing_normal": lambda: log_common_mean([1.3, 0.2, 2.4], 1.0, 2.0),
    "mixture_assignments": lambda: log_assignments([-2.2, -1.4, 0.2, 1.9, 2.4, 3.1], [0.6, 0.4]),
    # modes at -4 and 4 of a width of 0.5 under a prior of scale 5: their overlaps are equal
    "bimodal": lambda: stats.norm.logpdf(4.0, 0.0, np.sqrt(25.25)),
    "ordered_two": lambda: log_assignments([-1.9, -1.2, 0.3, 1.4, 2.2, 2.9], [0.5, 0.5]),
    "potential_only": lambda: stats.norm.logpdf([0.8, -1.5], 0, np.hypot(1, [0.4, 1.1])).sum(),
}


@pytest.mark.parametrize("name", VALUES)
def test_values_from_data_alone(name):
    """An error in the data of a system would be in its model and in its value alike."""
    assert exact_systems()[name].log_evidence == pytest.approx(VALUES[name](), rel=1e-8)


def test_every_family_is_in_the_registry_and_has_a_value_here():
    assert set(FAMILIES) == set(_FAMILIES)
    listed = [system.name for family in _FAMILIES for system in family.systems()]
    assert listed == list(exact_systems()) and len(set(listed)) == len(listed)
    gaussian = {system.name for system in gaussians.systems()}  # test_systems has their formula
    for family in FAMILIES:
        names = {system.name for system in family.systems()}
        assert names <= gaussian or names & set(VALUES), family.__name__
    assert not set(deceptive_systems()) & set(listed)


def test_random_effects_are_integrated_unit_by_unit():
    """The Poisson mixed model on a grid of intercept and scale, and of each unit's effect.

    These are trapezoids with a step of 0.2, whose error in such smooth densities is far below 1e-4
    nats.
    """
    counts = np.array([3, 1, 4, 0, 0, 1, 9, 12, 7, 2, 2, 5, 1, 0, 0, 6, 3, 8])
    exposure = np.array([1, 0.5, 1.5, 1, 0.5, 1, 2, 2, 1, 1, 0.5, 1.5, 1, 1, 0.5, 1, 0.5, 2])
    step = 0.2
    b, log_s, z = (np.arange(low, high, step) for low, high in ((-5, 5), (-9, 1.9), (-8, 8)))
    effect = b[:, None, None] + np.exp(log_s)[:, None] * z
    total = stats.norm.logpdf(b, 0, 1.5)[:, None] + stats.halfnorm.logpdf(np.exp(log_s)) + log_s
    weight = stats.norm.logpdf(z) + np.log(step)
    for y, e in zip(counts.reshape(6, 3).sum(1), exposure.reshape(6, 3).sum(1), strict=True):
        rate = np.exp(np.minimum(effect, 50.0))
        total = total + logsumexp(y * effect - e * rate + weight, axis=-1)
    constant = (counts * np.log(exposure) - gammaln(counts + 1)).sum()
    found = logsumexp(total) + constant + 2.0 * np.log(step)
    # the scale below exp(-9) is left out: 1e-4 of the prior
    assert poisson_glmm().log_evidence == pytest.approx(found, abs=5e-4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"log_evidence": np.nan}, "log_evidence of 'a' must be finite, got nan"),
        ({"tags": frozenset({"continuous", "odd"})}, r"tags of 'a' must be among .* got \['odd'\]"),
    ],
)
def test_a_system_that_no_test_could_use(changes, message):
    fields = {"name": "a", "build": None, "log_evidence": 0.0, "tags": tagged("trap"), "note": ""}
    assert ExactSystem(**fields).smooth and tagged("trap") <= TAGS.keys()
    with pytest.raises(ValueError, match=message):
        ExactSystem(**fields | changes)
