"""Discrete and continuous free variables together: a sum of conjugate terms."""

from itertools import product

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp

from pm_evidence.testing.closed_forms import log_mvnormal, log_normal, log_poisson_gamma
from pm_evidence.testing.systems import ExactSystem

Floats = NDArray[np.float64]


_SLAB_X = np.array(
    [
        [1.0, 0.9, -0.3],
        [0.2, 0.1, 1.1],
        [-0.8, -0.9, 0.4],
        [1.3, 1.2, 0.0],
        [-0.5, -0.6, -1.2],
        [0.4, 0.6, 0.8],
        [-1.1, -0.9, 0.3],
        [0.7, 0.5, -0.9],
    ]
)
_SLAB_Y = np.array([1.6, 0.5, -1.1, 2.4, -1.0, 0.3, -2.2, 1.4])
_SLAB_P, _SLAB_SD, _SLAB_NOISE = 0.3, np.float64(2.0), np.float64(0.8)

_CHANGE_COUNTS = np.array([4, 6, 3, 5, 4, 7, 1, 0, 2, 1, 1, 0])
_CHANGE_SHAPE, _CHANGE_RATE = 2.0, np.float64(0.5)

_DIRICHLET_Y = np.array([-1.7, 0.2, 2.6])
_DIRICHLET_MEANS = np.array([-2.0, 0.0, 2.0])
_DIRICHLET_PRIOR = np.array([1.0, 2.0, 1.5])


def build_spike_and_slab() -> pm.Model:
    """Regression in which each coefficient is in or out; two columns are nearly the same."""
    with pm.Model() as model:
        included = pm.Bernoulli("included", p=_SLAB_P, shape=_SLAB_X.shape[1])
        slope = pm.Normal("slope", 0, _SLAB_SD, shape=_SLAB_X.shape[1])
        pm.Normal("y", _SLAB_X @ (included * slope), _SLAB_NOISE, observed=_SLAB_Y)
    return model


def build_change_point() -> pm.Model:
    """Counts whose rate changes once, at an unknown time."""
    n = _CHANGE_COUNTS.size
    with pm.Model() as model:
        switch = pm.DiscreteUniform("switch", lower=1, upper=n - 1)
        early = pm.Gamma("early", alpha=_CHANGE_SHAPE, beta=_CHANGE_RATE)
        late = pm.Gamma("late", alpha=_CHANGE_SHAPE, beta=_CHANGE_RATE)
        rate = pm.math.switch(np.arange(n) < switch, early, late)
        pm.Poisson("y", rate, observed=_CHANGE_COUNTS)
    return model


def build_dirichlet_mixture() -> pm.Model:
    """A mixture with unknown weights and explicit assignments to components that are known."""
    with pm.Model() as model:
        weights = pm.Dirichlet("weights", a=_DIRICHLET_PRIOR)
        label = pm.Categorical("label", p=weights, shape=_DIRICHLET_Y.size)
        pm.Normal("y", pt.as_tensor(_DIRICHLET_MEANS)[label], 1, observed=_DIRICHLET_Y)
    return model


def _log_spike_and_slab() -> float:
    terms = []
    for included in product((0, 1), repeat=_SLAB_X.shape[1]):
        columns = _SLAB_X * np.array(included)
        cov = _SLAB_SD**2 * columns @ columns.T + _SLAB_NOISE**2 * np.eye(_SLAB_Y.size)
        n_in = sum(included)
        log_prior = n_in * np.log(_SLAB_P) + (len(included) - n_in) * np.log1p(-_SLAB_P)
        terms.append(log_prior + log_mvnormal(_SLAB_Y, 0.0, cov))
    return float(logsumexp(terms))


def _log_change_point() -> float:
    prior = (_CHANGE_SHAPE, float(_CHANGE_RATE))
    switches = range(1, _CHANGE_COUNTS.size)
    terms = [
        log_poisson_gamma(_CHANGE_COUNTS[:at], *prior)
        + log_poisson_gamma(_CHANGE_COUNTS[at:], *prior)
        for at in switches
    ]
    return float(logsumexp(terms) - np.log(len(switches)))


def _log_dirichlet_mixture() -> float:
    labels = np.array(list(product(range(3), repeat=_DIRICHLET_Y.size)))
    counts = (labels[:, :, None] == np.arange(3)).sum(axis=1)
    prior = _DIRICHLET_PRIOR
    log_labels = (gammaln(prior + counts) - gammaln(prior)).sum(axis=1)
    log_labels = log_labels + gammaln(prior.sum()) - gammaln(prior.sum() + _DIRICHLET_Y.size)
    log_likelihood = log_normal(_DIRICHLET_Y, _DIRICHLET_MEANS[labels], 1.0).sum(axis=1)
    return float(logsumexp(log_labels + log_likelihood))


def systems() -> tuple[ExactSystem, ...]:
    """Return the mixed systems."""
    return (
        ExactSystem("spike_and_slab", build_spike_and_slab, _log_spike_and_slab(), smooth=False),
        ExactSystem("change_point", build_change_point, _log_change_point(), smooth=False),
        ExactSystem(
            "dirichlet_mixture", build_dirichlet_mixture, _log_dirichlet_mixture(), smooth=False
        ),
    )
